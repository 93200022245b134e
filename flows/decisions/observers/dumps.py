"""Stack dumps of running processes: py-spy, faulthandler, pystack, gdb; one stack a process, its main thread's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from flows.decisions.places import rank_of
from workflows.evidence import LogLine

_PROCESS = re.compile(r"^Process (?P<pid>\d{1,9}): ")
_PY_SPY = re.compile(
    r'^Thread (?:0x)?[0-9A-Fa-f]{1,18} \((?P<state>active|idle)[^)]{0,12}\)(?:: "(?P<name>[^"]{0,80})")?'
)
_FAULTHANDLER = re.compile(
    r"^(?P<current>Current thread|Thread) 0x[0-9a-f]{4,18}(?: \[[^\]]{1,40}\])? \(most recent call first\):"
)
_PY_BT = re.compile(r"^Traceback \(most recent call first\):")
"""gdb's Python extension, of the thread that was chosen."""
_PYSTACK = re.compile(r"^Traceback for thread \d{1,9} .{0,60}\(most recent call last\):")
_GDB = re.compile(
    r"^Thread (?P<number>\d{1,5}) \((?:Thread 0x[0-9a-f]{1,18} \(LWP \d{1,9}\)|LWP \d{1,9})(?: \"[^\"]{0,40}\")?\)"
)
_SPY_FRAME = re.compile(r"^ {2,}(?P<function>[\w<>.:~ ]{1,160}) \((?P<file>[^()]{1,300}?)(?::\d{1,7})?\)$")
_FILE_FRAME = re.compile(
    r'^ {2,}(?:\((?:Python|C)\) )?File "(?P<file>[^"]{1,400})", line \d{1,7},? in (?P<function>[\w<>.:~]{1,200})'
)
_GDB_FRAME = re.compile(
    r"^[>* ]{0,3}#\d{1,4} +(?:0x[0-9a-f]{1,18} in )?(?P<function>\?\?|[\w:~<>@.]{1,200}) ?"
    r"\(.{0,400}?\)?(?: (?:from|at) (?P<file>\S{1,300}))?$"
)
_INNERMOST = re.compile(r"[>* ]{0,3}#0 ")
_CRASH = (
    "Fatal Python error",
    "*** Process received signal",
    "Segmentation fault",
    "core dumped",
    "SIGABRT",
    "SIGSEGV",
    "terminated with signal",
    " in abort (",
    " in raise (",
    " in __GI_abort (",
    " in __GI_raise (",
)
"""A dump after one of these is a last word, not a look at something that hangs."""
_SAYS_THREAD = Cue("(active", "(idle", "(most recent call first", "traceback for thread", "thread (", "#",
                   of=(_PY_SPY, _FAULTHANDLER, _PY_BT, _PYSTACK, _GDB, _GDB_FRAME))  # fmt: skip
_HEADS = ("Thread ", "Current thread ", "Process ", "Traceback for ", "Traceback (most recent call first)")
KEPT_FRAMES = 40


@dataclass
class Stack:
    """The main thread of one process, innermost frame first."""

    rank: int | None
    node: str
    line: LogLine
    """Where the dump begins."""
    frames: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(function, file) of each frame."""


@dataclass
class _Thread:
    line: LogLine
    kind: str
    main: bool
    frames: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def stacks(lines: Sequence[LogLine]) -> tuple[Stack, ...]:
    """The stacks of processes that were looked at while they ran; none of those that were dumped in a crash."""
    found: list[Stack] = []
    for stream in by_stream(lines) if _SAYS_THREAD.anywhere(lines) else ():
        if not any(line.text.startswith(_HEADS) or _INNERMOST.match(line.text) for line in stream):
            continue
        if any(word in line.text for line in stream for word in _CRASH):
            continue
        for group in _processes(stream):
            stack = _stack(group)
            if stack is not None:
                found.append(stack)
    return tuple(found)


def _processes(stream: Sequence[LogLine]) -> Iterator[list[LogLine]]:
    """The lines of each dumped process: a `Process` line begins one; without any, the whole stream is one."""
    group: list[LogLine] = []
    for line in stream:
        if _PROCESS.match(line.text) and group:
            yield group
            group = []
        group.append(line)
    yield group


def _stack(group: Sequence[LogLine]) -> Stack | None:
    threads = [thread for thread in _threads(group) if thread.frames]
    if not threads:
        return None
    main = next((thread for thread in threads if thread.main), None)
    if main is None:
        # faulthandler prints the main thread last, the others print it first.
        main = threads[-1] if threads[0].kind == "faulthandler" else threads[0]
    rank = next((known for line in group if (known := rank_of(line)) is not None), None)
    return Stack(rank, main.line.node, main.line, main.frames)


def _threads(group: Sequence[LogLine]) -> Iterator[_Thread]:
    thread: _Thread | None = None
    for line in group:
        begun = _begun(line)
        if begun is not None:
            if thread is not None:
                yield _ordered(thread)
            thread = begun
            continue
        frame = _frame(line.text)
        if frame is not None and thread is None and _INNERMOST.match(line.text):
            thread = _Thread(line, "gdb", True)
        if frame is not None and thread is not None and len(thread.frames) < KEPT_FRAMES:
            thread.frames.append(frame)
    if thread is not None:
        yield _ordered(thread)


def _begun(line: LogLine) -> _Thread | None:
    text = line.text
    if hit := _PY_SPY.match(text):
        return _Thread(line, "py-spy", hit["name"] == "MainThread")
    if hit := _FAULTHANDLER.match(text):
        return _Thread(line, "faulthandler", hit["current"] == "Current thread")
    if _PY_BT.match(text):
        return _Thread(line, "py-bt", True)
    if _PYSTACK.match(text):
        return _Thread(line, "pystack", False)
    if hit := _GDB.match(text):
        return _Thread(line, "gdb", hit["number"] == "1")
    return None


def _frame(text: str) -> tuple[str, str] | None:
    for pattern in (_SPY_FRAME, _FILE_FRAME, _GDB_FRAME):
        hit = pattern.match(text)
        if hit is not None:
            return hit["function"].strip(), hit["file"] or ""
    return None


def _ordered(thread: _Thread) -> _Thread:
    """Innermost first: pystack prints it last."""
    if thread.kind == "pystack":
        thread.frames.reverse()
    return thread
