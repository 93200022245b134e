"""All GPUs of a node for the time of one probe: counted, opened each in a process of its own, and told of.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Callable, Dict, List, Sequence

from workflows.programs.gpu_children import Ended, Line, run_each
from workflows.programs.gpu_device import Device, Platform, UnavailableError, own_limit
from workflows.programs.readings import EVIDENCE_CHARACTERS, Parsed, Reading

OPENING_SECONDS = 40.0
"""To load the library, to open a GPU and to warm up, beside the time for which a probe measures."""
OPENED = "opened"
_BEGAN = time.monotonic()
"""This module is loaded when a process for one probe begins."""

Measure = Callable[[Device, int, Line], Dict[str, Any]]


class Session:
    """The GPUs of one probe."""

    def __init__(self, platform: Platform, seconds: float) -> None:
        self.platform, self.ends = platform, own_limit(seconds, _BEGAN)
        # In a process of its own: counting opens GPUs in some libraries, and may hang.
        [counted] = run_each((0,), lambda index, line: {"count": platform.count()}, self.ends)
        if counted.why:
            raise UnavailableError(f"{platform.version} cannot count the GPUs: {counted.why}")
        self.indices = tuple(range(int(counted.facts["count"])))
        if not self.indices:
            raise UnavailableError(platform.missing)

    def measure(self, work: Measure, alone: bool = True, **more: Any) -> List[Ended]:
        """Open each GPU and measure; a GPU that two processes were given is no answer."""

        def child(index: int, line: Line) -> Dict[str, Any]:
            line.stage("opening")
            device = self.platform.open(index, alone)
            line.stage(OPENED)
            return {**work(device, index, line), "identity": device.identity}

        return _distinct(run_each(self.indices, child, self.ends, **more))


def _distinct(found: Sequence[Ended]) -> List[Ended]:
    times = Counter(str(one.facts.get("identity", "")) for one in found)
    return [
        Ended(one.index, {}, one.stage, "its process was given a GPU that another one has, too")
        if one.facts.get("identity") and times[str(one.facts["identity"])] > 1
        else one
        for one in found
    ]


def reasons_of(found: Sequence[Ended]) -> List[str]:
    """Why some told nothing."""
    return [f"{named(one)}: {one.why}" for one in found if one.why]


def named(one: Ended) -> str:
    """As readings name it."""
    return f"gpu {one.index}"


def line_of(one: Ended) -> str:
    """What says so."""
    return str(one.facts.get("line", ""))[:EVIDENCE_CHARACTERS]


def parsed(session: Session, readings: Sequence[Reading], reasons: Sequence[str]) -> Parsed:
    """The readings, and why others are missing."""
    why = "; ".join(reasons) or ("" if readings else "no GPU told anything")
    return Parsed(tuple(readings), why, session.platform.version)
