"""Faults that the demo trainer brings upon itself when it is asked to, through a file that it polls each step.

The file holds one JSON object `{"fault": "exception|nan|oom", "rank": 1, "step": 20}` or the words of the command line,
`exception-rank:1,step=20`. Without a step the fault fires at once, with one in the step after it was done. The rank
that fires renames the file first (`<file>.fired`), so that one request is one fault, in whatever attempt.
"""

from __future__ import annotations

import json
import os
import resource
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, cast

FAULTS = ("exception", "nan", "oom")
OOM_HEADROOM_BYTES = 256 << 20
OOM_BLOCK_BYTES = 4 * OOM_HEADROOM_BYTES


@dataclass(frozen=True)
class Fault:
    """One request."""

    fault: str
    """One of `FAULTS`."""
    rank: int
    step: int = 0
    """Fires once this many steps are done."""


class DemoFaultError(RuntimeError):
    """The exception that was asked for."""


def parse(text: str) -> Fault:
    """The request in `text`.

    Raises:
        ValueError: neither form, or a fault this trainer does not know.
    """
    text = text.strip()
    if text.startswith("{"):
        data = cast("Dict[str, Any]", json.loads(text))
        found = Fault(str(data.get("fault")), int(data.get("rank", 0)), int(data.get("step") or 0))
    else:
        head, *options = text.split(",")
        name, _, rank = head.partition("-rank:")
        named = {key: value for key, _, value in (option.partition("=") for option in options)}
        found = Fault(name, int(rank), int(named.get("step", 0)))
    if found.fault not in FAULTS:
        raise ValueError(f"fault {found.fault!r} is not one of {', '.join(FAULTS)}")
    return found


def due(path: str, rank: int, steps_done: int) -> Optional[str]:
    """The fault that this rank shall suffer now; its request is used up by asking. None: no fault.

    A file that cannot be understood is reported once by renaming it to `<path>.refused`.
    """
    try:
        with open(path, encoding="utf-8") as file:
            request = parse(file.read())
    except OSError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        print(f"fault file {path} is not understood: {error}", flush=True)
        _rename(path, ".refused")
        return None
    if request.rank != rank or steps_done < request.step or not _rename(path, ".fired"):
        return None
    return request.fault


def _rename(path: str, suffix: str) -> bool:
    """True where this process was the one that renamed it."""
    try:
        os.replace(path, path + suffix)
    except OSError:
        return False
    return True


def run_out_of_memory() -> None:
    """Ask for more memory than there is left. What is left is not filled first: a busy machine takes seconds for that.

    Raises:
        MemoryError: under a limit of address space that this process sets on itself first, so that the machine's other
            programs do not suffer.
    """
    used = _address_space_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + OOM_HEADROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    hoard: List[bytearray] = []
    while True:
        hoard.append(bytearray(OOM_BLOCK_BYTES))


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
