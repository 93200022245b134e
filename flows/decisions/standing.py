"""What a clue is worth where it stands in its stream: a wait that ended, a crash after the work was done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.steps import done, lived_until
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

GRANTED_FACTOR = 0.15
"""What a wait is worth that ended, and a control plane that came back."""
IGNORED_FACTOR = 0.1
"""What an exception is worth that Python itself says it ignored."""
TEARDOWN_FACTOR = 0.15
"""What a crash is worth of a program that had come to its end: libraries fall while they are taken down."""
_GRANTED = re.compile(
    r"Successfully assigned (?:[\w.-]{1,120}/)?(?P<pod>[\w.-]{1,120}) to |\bhas been allocated resources|"
    r"Granted job allocation|Successfully provisioned|[Cc]luster launched|\(autoscaler \+\w{1,12}\) Resized to|"
    r"[Aa]dmitted by [Cc]luster ?[Qq]ueue|[Ww]orkload (?:was )?admitted|pod group is ready\b|are ready to be scheduled"
)
_BACK = re.compile(
    r"successfully acquired lease|[Ss]uccessfully registered node|[Cc]onnection .{0,60}(?:re-?established|restored)|"
    r"[Rr]econnected to .{0,40}(?:server|controller|control plane)|slurmctld .{0,40}(?:responding again|is up)"
)
_SAYS_GRANTED = Cue(
    "successfully assigned", "been allocated resources", "granted job allocation", "successfully provisioned",
    "cluster launched", "(autoscaler +", "admitted by cluster", "workload admitted", "workload was admitted",
    "pod group is ready", "are ready to be scheduled", of=(_GRANTED,),
)  # fmt: skip
_SAYS_BACK = Cue("successfully acquired lease", "successfully registered node", "re-established", "reestablished",
                 "restored", "reconnected to", "slurmctld", of=(_BACK,))  # fmt: skip
_POD = re.compile(r"\bpods?/(?P<pod>[\w.-]{1,120})")
CRASH = re.compile(
    r"terminate called|Fatal Python error|[Ss]egmentation fault|[Ss]egfault|core dumped|double free|\b[Aa]borted\b|"
    r"\bSIG(?:ABRT|SEGV)\b|ended by signal (?:6|11) "
)
"""How programs fall that are taken down."""
_PARTED = re.compile(r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous")
"""What torchrun says when the store's host left first, as it does at the end of every run."""
_SURVIVED = ("Exception ignored in", "--- Logging error ---")
_SAYS_SURVIVED = Cue(*_SURVIVED)
_NAME = re.compile(r"^[A-Za-z_][\w.]{0,120}(?::|$)")
_CRASHES = frozenset({FaultClass.USER_CODE, FaultClass.PROCESS_KILLED, FaultClass.UNKNOWN})


@dataclass(frozen=True)
class Standing:
    """The lines of one stream that take back what stood before them."""

    granted: tuple[tuple[int, str], ...]
    """Line numbers, and the pod that got its place; "" where none is named."""
    back: int
    """Last line that says that the control plane answers again, 0 where none does."""
    done: int
    """First line that says that the training came to its end, 0 where none does."""
    ignored: frozenset[int] = frozenset()
    """Lines of exceptions that ended nothing: raised in finalisers, or while something was logged."""


def standing(stream: Sequence[LogLine]) -> Standing:
    """What takes back clues of this stream."""
    granted: list[tuple[int, str]] = []
    back = 0
    for line in _SAYS_GRANTED.among(stream):
        if hit := _GRANTED.search(line.text[:2000]):
            granted.append((line.line, hit["pod"] or ""))
    for line in _SAYS_BACK.among(stream):
        if _BACK.search(line.text[:2000]):
            back = line.line
    ended = next((line.line for line in stream if line.line and done(line)), 0)
    return Standing(tuple(granted), back, ended, frozenset(_ignored(stream)))


def _ignored(stream: Sequence[LogLine]) -> Iterator[int]:
    """Numbers of the lines from `Exception ignored in` to the name of the exception."""
    inside: list[int] = []
    for line in stream if _SAYS_SURVIVED.anywhere(stream) else ():
        if line.text.startswith(_SURVIVED):
            inside = [line.line]
        elif inside and (not line.text or line.text[0].isspace() or line.text.startswith("Traceback")):
            inside.append(line.line)
        elif inside:
            yield from (*inside, line.line) if _NAME.match(line.text) else inside
            inside = []


def lived_with(stream: Sequence[LogLine], streams: Sequence[Sequence[LogLine]]) -> int:
    """Number of the line up to which training went on: by the stream's own words, or by those without a rank beside it.

    In one file the lines of a rank may have its number before them, and the steps of the whole gang none.
    """
    first = stream[0]
    if first.rank is None or not first.file:
        return lived_until(stream)
    common = [other for other in streams if other[0].file == first.file and other[0].rank is None]
    return max(map(lived_until, (stream, *common)))


def lessened(clue: Clue, where: Standing) -> Clue:
    """The clue, worth less where a later line takes it back, or where the work was done before it."""
    if clue.line == 0:
        return clue
    if clue.line in where.ignored:
        return replace(clue, weight=clue.weight * IGNORED_FACTOR)
    if clue.fault_class is FaultClass.SCHEDULING and _got_its_place(clue, where):
        return replace(clue, weight=clue.weight * GRANTED_FACTOR)
    if clue.fault_class is FaultClass.CONTROL_PLANE and clue.line < where.back:
        return replace(clue, weight=clue.weight * GRANTED_FACTOR)
    if fell_at_the_end(clue, where.done):
        return replace(clue, weight=clue.weight * TEARDOWN_FACTOR)
    return clue


def fell_at_the_end(clue: Clue, done_line: int) -> bool:
    """True for a crash, or a lost rendezvous, after the line that says that the work was done."""
    if not 0 < done_line < clue.line:
        return False
    if clue.fault_class is FaultClass.RENDEZVOUS:
        return _PARTED.search(clue.text) is not None
    return clue.fault_class in _CRASHES and CRASH.search(clue.text) is not None


def _got_its_place(clue: Clue, where: Standing) -> bool:
    hit = _POD.search(clue.text)
    pod = hit["pod"] if hit is not None else ""
    return any(line > clue.line and (not pod or not name or name == pod) for line, name in where.granted)
