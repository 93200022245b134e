"""What py-spy and Python's faulthandler say, as values. Pure; what is not understood is left out."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple, cast

from workflows.programs.stack_values import MAIN, Frame, Thread

_HEAD = re.compile(r"^(?:Current thread|Thread) 0x(?P<id>[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])? \(most recent call")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')
_KERNEL = re.compile(r"^\[<[0-9a-fx]*>\] (?P<function>[^+\s]+)")
KEPT_KERNEL_FRAMES = 12


def py_spy(text: str) -> List[Thread]:
    """Threads of one process from `py-spy dump --json`; none where it is something else."""
    try:
        data: Any = json.loads(text)
    except ValueError:
        return []
    rows = cast("List[Any]", data) if isinstance(data, list) else []
    found = [_py_spy_thread(cast("Dict[str, Any]", row)) for row in rows if isinstance(row, dict)]
    return [thread for thread in found if thread is not None]


def _py_spy_thread(row: Dict[str, Any]) -> Optional[Thread]:
    try:
        frames = [Frame(str(one["name"]), str(one["filename"]), int(one["line"] or 0)) for one in row["frames"]]
        number = int(row.get("os_thread_id") or row["thread_id"])
    except (KeyError, TypeError, ValueError):
        return None
    return Thread(number, str(row.get("thread_name") or ""), "running" if row.get("active") else "sleeping", frames)


def faulthandler(text: str) -> List[Thread]:
    """Threads from a dump of all threads; the interpreter lists its first one last."""
    heads: List[Tuple[int, str, List[Frame]]] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            heads.append((int(head["id"], 16), head["name"] or "", []))
            continue
        frame = _FRAME.match(line)
        if frame is not None and heads:
            number = 0 if frame["line"] == "???" else int(frame["line"])
            heads[-1][2].append(Frame(frame["function"], frame["file"], number))
    found = [Thread(number, name, "", frames) for number, name, frames in heads]
    if found:
        found[-1] = Thread(found[-1].id, MAIN, "", found[-1].frames)
    return found[::-1]


def kernel_stack(text: str) -> List[str]:
    """Functions in `/proc/<pid>/stack`, without the entry that all share."""
    hits = (_KERNEL.match(line) for line in text.splitlines())
    names = [hit["function"] for hit in hits if hit is not None]
    return [name for name in names if not name.startswith(("entry_SYSCALL", "do_syscall", "el0"))][:KEPT_KERNEL_FRAMES]
