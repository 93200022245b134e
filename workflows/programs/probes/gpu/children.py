"""A process for each GPU, forked from one that has the library loaded and no GPU open; killed where it hangs.

A GPU that hangs or crashes does not hide the results of the others. The children stay in this process's group, so that
ending the group ends them too. A `Session` counts all GPUs of a node and opens each in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Sequence

from workflows.programs.parsers.text import EVIDENCE_CHARACTERS, ParsedOutput, Reading
from workflows.programs.probes.gpu.device import Device, Platform, UnavailableError, own_limit
from workflows.programs.probes.gpu_count import numbers_of

LAST_CHARACTERS = 300
GRACE_SECONDS = 2.0
"""For killed processes to be gone; one that stays is held by the kernel, and is left to it."""
BEGAN, WAITING = "started", "waiting for its turn"

Facts = Dict[str, Any]


class ChildLine:
    """A child's end: it says how far it is, and waits for its turn."""

    def __init__(self, writing: int, turn: int) -> None:
        self._writing, self._turn = writing, turn

    def stage(self, name: str) -> None:
        """From now on it is about that."""
        self.report({"stage": name})

    def report_partial(self, facts: Facts) -> None:
        """What is found already, and stays known whatever comes after it."""
        self.report({"partial": facts})

    def await_turn(self) -> None:
        """Until it may begin; without turns at once."""
        self.stage(WAITING)
        os.read(self._turn, 1)

    def report(self, facts: Facts) -> None:
        """One line to the parent."""
        left = memoryview(json.dumps(facts).encode("utf-8") + b"\n")
        while left:
            left = left[os.write(self._writing, left) :]


Work = Callable[[int, ChildLine], Facts]


@dataclass(frozen=True)
class ChildEnd:
    """What became of one GPU's process."""

    index: int
    facts: Mapping[str, Any] = field(default_factory=lambda: {})
    """What it found; empty where it came to no end."""
    stage: str = BEGAN
    """How far it came."""
    why: str = ""
    """Why it came to no end; "" where it did."""
    partial: Mapping[str, Any] = field(default_factory=lambda: {})
    """What it had found on the way; told where it came to no end, too."""
    number: Optional[int] = None
    """Of the GPU among all that the node should have; None: its index."""


@dataclass
class _Child:
    index: int
    pid: int
    reading: int
    turn: int
    output: IO[bytes]
    """What it and its libraries printed."""
    buffer: bytes = b""
    stage: str = BEGAN
    facts: Optional[Facts] = None
    partial: Facts = field(default_factory=lambda: {})
    why: str = ""
    gone: bool = False

    def take(self, block: bytes) -> None:
        """Read what came."""
        *lines, self.buffer = (self.buffer + block).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                message: Facts = json.loads(line)
                self.stage = str(message.get("stage", self.stage))
                self.why = str(message.get("error", self.why))
                self.partial.update(message.get("partial", {}))
                self.facts = message.get("facts", self.facts)

    def ended(self) -> ChildEnd:
        """What became of it; one that ended well has sent its facts."""
        if self.facts is not None and not self.why:
            return ChildEnd(self.index, self.facts, self.stage, "", self.partial)
        why = self.why or f"its process ended at stage {self.stage}{self._last()}"
        return ChildEnd(self.index, {}, self.stage, why, self.partial)

    def _last(self) -> str:
        self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, self.output.tell() - 4 * LAST_CHARACTERS))
        text = " ".join(self.output.read().decode("utf-8", "replace").split())
        return f"; it said: {text[-LAST_CHARACTERS:]}" if text else ""

    def mark_dead(self, status: int) -> None:
        """Its process is gone; one that a signal ended may have sent only half."""
        if self.facts is None and not self.why and os.WIFSIGNALED(status):
            self.why = f"its process was ended by signal {os.WTERMSIG(status)} at stage {self.stage}{self._last()}"


def run_each(
    indices: Sequence[int],
    work: Work,
    ends: float,
    turn_seconds: float = 0.0,
    beside: Optional[Callable[[], None]] = None,
    beside_seconds: float = 1.0,
) -> List[ChildEnd]:
    """Run `work` for each GPU in a process of its own, all at the same time.

    Args:
        indices: of the GPUs, in the order of turns.
        work: runs in the child; it gets its index and a line to the parent, and returns its result as JSON.
        ends: monotonic time at which children that still run are killed.
        turn_seconds: above 0, `await_turn` lets one child after the other begin, each for so long at most. A child that
            does not come to its turn delays no other.
        beside: called meanwhile, from the beginning on.
        beside_seconds: from one such call to the next.
    """
    children = [_fork(index, work) for index in indices]
    with selectors.DefaultSelector() as watched:
        for child in children:
            watched.register(child.reading, selectors.EVENT_READ, child)
        try:
            _follow(children, watched, _Turns(children, ends, turn_seconds), ends, (beside, beside_seconds))
        finally:
            _finish(children)
    found = [child.ended() for child in children]
    for child in children:
        child.output.close()
    return found


class _Turns:
    """Whose turn it is."""

    def __init__(self, children: Sequence[_Child], ends: float, seconds: float) -> None:
        self._ends, self._seconds = ends, seconds
        self._waiting = list(children)
        self._now: Optional[_Child] = None
        self._until = ends

    def pass_on(self) -> None:
        """Let the next one begin where the last one ended; one whose time is up is killed."""
        if not self._seconds:
            while self._waiting:
                _let(self._waiting.pop(0))
            return
        if self._now is not None and not self._now.gone:
            if time.monotonic() < self._until:
                return
            _kill(self._now, f"it did not end within {self._seconds:g} s of its turn, at stage {self._now.stage}")
        self._waiting = [child for child in self._waiting if not child.gone]
        self._now = next((child for child in self._waiting if child.stage == WAITING), None)
        if self._now is not None:
            self._waiting.remove(self._now)
            self._until = min(self._ends, time.monotonic() + self._seconds)
            self._now.stage = "its turn"
            _let(self._now)

    def until(self) -> float:
        """When to look again at the latest."""
        return self._until if self._now is not None and not self._now.gone else self._ends


def _let(child: _Child) -> None:
    with contextlib.suppress(OSError):
        os.write(child.turn, b"x")


def _follow(children: Sequence[_Child], watched: Any, turns: _Turns, ends: float, aside: Any) -> None:
    beside, every = aside
    due = time.monotonic()
    while any(not child.gone for child in children):
        turns.pass_on()
        now = time.monotonic()
        if now >= ends:
            break
        if beside is not None and now >= due:
            beside()
            due = time.monotonic() + every
        wake = min(ends, turns.until(), due if beside is not None else ends)
        for key, _ in watched.select(max(0.0, wake - time.monotonic())):
            block = os.read(key.fd, 1 << 16)
            if block:
                key.data.take(block)
            else:
                watched.unregister(key.fd)
                key.data.gone = True
    for child in children:
        if not child.gone:
            _kill(child, f"it did not answer in time, at stage {child.stage}")


def _kill(child: _Child, why: str) -> None:
    child.why, child.gone = child.why or why, True
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)


def _finish(children: Sequence[_Child]) -> None:
    """Fetch them; whoever is left is killed, and one that the kernel holds is not waited for."""
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        if not child.gone:
            _kill(child, f"the test was broken off at stage {child.stage}")
        while True:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid or time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        if pid:
            child.mark_dead(status)
        os.close(child.reading)
        os.close(child.turn)


def _fork(index: int, work: Work) -> _Child:
    reading, writing = os.pipe()
    taking, giving = os.pipe()
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child's record
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(giving)
        _be(index, work, ChildLine(writing, taking), output.fileno())
    os.close(writing)
    os.close(taking)
    return _Child(index, pid, reading, giving, output)


def _be(index: int, work: Work, line: ChildLine, output: int) -> None:
    """The child's life. Whatever comes, it ends here: it must not go on as its parent would."""
    try:
        os.dup2(output, 1)  # the answer's line belongs to the parent alone
        os.dup2(output, 2)
        try:
            line.report({"facts": work(index, line)})
        except BaseException as error:
            text = " ".join(str(error).split())[:LAST_CHARACTERS]
            line.report({"error": f"{type(error).__name__}: {text}" if text else type(error).__name__})
    finally:
        os._exit(0)


OPENING_SECONDS = 40.0
"""To load the library, to open a GPU and to warm up, beside the time for which a probe measures."""
OPENED = "opened"
_BEGAN = time.monotonic()
"""This module is loaded when a process for one probe begins."""

Measure = Callable[[Device, int, ChildLine], Dict[str, Any]]


class Session:
    """The GPUs of one probe."""

    def __init__(self, platform: Platform, seconds: float) -> None:
        self.platform, self.ends = platform, own_limit(seconds, _BEGAN)
        # In a process of its own: counting opens GPUs in some libraries, and may hang.
        [counted] = run_each((0,), lambda index, line: {"count": platform.count()}, self.ends)
        if counted.why:
            raise UnavailableError(f"{platform.version} cannot count the GPUs: {counted.why}")
        self.indices = tuple(range(int(counted.facts["count"])))
        self.numbers = numbers_of(len(self.indices))
        """Of each index the GPU's number: a library that has lost one of eight counts seven, whichever it was."""
        if not self.indices:
            raise UnavailableError(platform.missing)

    def by_number(self, subject: str) -> str:
        """`gpu 3 -> gpu 4` of indices by the GPUs' numbers."""
        return re.sub(r"\bgpu ([0-9]{1,4})\b", lambda hit: f"gpu {self._number(int(hit.group(1)))}", subject)

    def _number(self, index: int) -> int:
        return self.numbers[index] if index < len(self.numbers) else index

    def measure(self, work: Measure, alone: bool = True, **more: Any) -> List[ChildEnd]:
        """Open each GPU and measure; a GPU that two processes were given is no answer."""

        def child(index: int, line: ChildLine) -> Dict[str, Any]:
            line.stage("opening")
            device = self.platform.open(index, alone)
            line.stage(OPENED)
            return {**work(device, index, line), "identity": device.identity}

        found = _distinct(run_each(self.indices, child, self.ends, **more))
        return [replace(one, number=self._number(one.index)) for one in found]


def _distinct(found: Sequence[ChildEnd]) -> List[ChildEnd]:
    times = Counter(str(one.facts.get("identity", "")) for one in found)
    return [
        ChildEnd(one.index, {}, one.stage, "its process was given a GPU that another one has, too")
        if one.facts.get("identity") and times[str(one.facts["identity"])] > 1
        else one
        for one in found
    ]


def reasons_of(found: Sequence[ChildEnd]) -> List[str]:
    """Why some told nothing."""
    return [f"{gpu_name(one)}: {one.why}" for one in found if one.why]


def gpu_name(one: ChildEnd) -> str:
    """As readings name it."""
    return f"gpu {one.index if one.number is None else one.number}"


def line_of(one: ChildEnd) -> str:
    """What says so."""
    return str(one.facts.get("line", ""))[:EVIDENCE_CHARACTERS]


def to_parsed(session: Session, readings: Sequence[Reading], reasons: Sequence[str]) -> ParsedOutput:
    """The readings, and why others are missing."""
    why = "; ".join(reasons) or ("" if readings else "no GPU answered")
    return ParsedOutput(tuple(readings), why, session.platform.version)
