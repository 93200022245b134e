"""What a clue is worth where it stands in its stream: a wait that ended, a crash after the work was done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.going_on import went_on_until
from flows.decisions.steps import ends
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
_STARTED = re.compile(
    r"\bStarted container \S|\bSuccessfully pulled image\b|\bContainer image \S{1,300} already present on machine|"
    r"^ {4,10}State: {4,12}Running$|\s(?:Pulled|Started)\s{2,20}pod/(?P<pod>[\w.-]{1,120})"
)
_SAYS_STARTED = Cue("started container", "successfully pulled", "already present on", "running", "pulled", "started",
                    of=(_STARTED,))  # fmt: skip
BEFORE_START = frozenset(
    {"image-pull", "mount-failed", "container-config", "pod-sandbox", "key-missing", "unschedulable", "device-plugin"}
)
"""Rules of what keeps a container from being started: once it runs they are past."""
_MET = re.compile(
    r"Completed store-based barrier|\bInit COMPLETE\b|All distributed processes registered|"
    r"[Ii]nitialized process ?group|[Rr]endezvous (?:complete|has completed)|\bprocess group initialized\b"
)
_SAYS_MET = Cue("completed store-based", "init complete", "processes registered", "process group", "processgroup",
                "rendezvous complete", "rendezvous has comp", of=(_MET,))  # fmt: skip
_POD = re.compile(r"\bpods?/(?P<pod>[\w.-]{1,120})")
CRASH = re.compile(
    r"terminate called|Fatal Python error|[Ss]egmentation fault|[Ss]egfault|core dumped|double free|\b[Aa]borted\b|"
    r"\bSIG(?:ABRT|SEGV)\b|ended by signal (?:6|11) "
)
"""How programs fall that are taken down."""
_PARTED = re.compile(r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous")
"""What torchrun says when the store's host left first, as it does at the end of every run."""
MOST_IGNORED = 60
"""Lines that one ignored exception has at most."""
_SURVIVED = re.compile(
    r"Exception ignored in|--- Logging error ---|"
    r"Exception in thread (?:Thread-\d{1,6} \(_pin_memory_loop\)|QueueFeederThread|QueueManagerThread)"
)
"""What Python prints before exceptions that end nothing, or only follow when others are taken down."""
_SAYS_SURVIVED = Cue("exception ignored in", "--- logging error ---", "exception in thread", of=(_SURVIVED,))
_NAME = re.compile(r"^[A-Za-z_][\w.]{0,120}(?::|$)")
RESUMED = frozenset({FaultClass.PREEMPTED, FaultClass.NODE_LOST, FaultClass.HANG})
"""What another attempt goes on after: past once the training came to its end."""
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
    started: tuple[tuple[int, str], ...] = ()
    """Line numbers of containers that run, and the pod; "" where none is named."""
    met: int = 0
    """Last line that says that the ranks have found each other, 0 where none does."""
    ended: int = 0
    """Last line that says that the training came to its end, 0 where none does."""


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
    ended = [line.line for line in ends(stream) if line.line]
    met = max((line.line for line in _SAYS_MET.among(stream) if _MET.search(line.text[:2000])), default=0)
    first, last = (ended[0], ended[-1]) if ended else (0, 0)
    ignored = frozenset(_ignored(stream))
    return Standing(tuple(granted), back, first, ignored, tuple(_started(stream)), met, last)


def _started(stream: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    for line in _SAYS_STARTED.among(stream):
        if hit := _STARTED.search(line.text[:2000]):
            pod = hit["pod"] or next(iter(_POD.findall(line.text[:2000])), "")
            yield line.line, pod


def _ignored(stream: Sequence[LogLine]) -> Iterator[int]:
    """Numbers of the lines from `Exception ignored in` to the name of the exception."""
    inside: list[int] = []
    several = 0
    for line in stream if _SAYS_SURVIVED.anywhere(stream) else ():
        if begun := len(_SURVIVED.findall(line.text)):
            # Several processes print theirs through each other: then every line up to the last name is theirs.
            several = several + begun if inside or begun > 1 else 0
            inside.append(line.line)
        elif inside and (several > 1 or not line.text or line.text[0].isspace() or line.text.startswith("Traceback")):
            inside.append(line.line)
            several -= 1 if several and _NAME.match(line.text) else 0
            if len(inside) > MOST_IGNORED:
                yield from inside
                inside, several = [], 0
        elif inside:
            yield from (*inside, line.line) if _NAME.match(line.text) else inside
            inside, several = [], 0
    yield from inside


def lived_with(stream: Sequence[LogLine], streams: Sequence[Sequence[LogLine]], since: int) -> int:
    """Number of the line up to which training went on: by the stream's own words, or by those without a rank beside it.

    In one file the lines of a rank may have its number before them, and the steps of the whole gang none; or a line of
    nobody stands among those of ranks. Nothing up to the line `since` is looked at.
    """
    first = stream[0]
    if not first.file:
        return went_on_until(stream, since)
    common = [
        other
        for other in streams
        if other is not stream and other[0].file == first.file and None in (first.rank, other[0].rank)
    ]
    return max(went_on_until(part, since) for part in (stream, *common))


def lessened(clue: Clue, where: Standing) -> Clue:
    """The clue, worth less where a later line takes it back, or where the work was done before it."""
    if clue.line == 0:
        return clue
    if clue.line in where.ignored:
        return replace(clue, weight=clue.weight * IGNORED_FACTOR)
    if _granted(clue, where):
        return replace(clue, weight=clue.weight * GRANTED_FACTOR)
    if fell_at_the_end(clue, where.done):
        return replace(clue, weight=clue.weight * TEARDOWN_FACTOR)
    return clue


def _granted(clue: Clue, where: Standing) -> bool:
    """True where what the clue waited for, or complained of, came: a place, a container, its peers, an answer."""
    if clue.rule in BEFORE_START and _named_later(clue, where.started):
        return True
    if clue.fault_class is FaultClass.SCHEDULING:
        return _named_later(clue, where.granted)
    if clue.fault_class is FaultClass.CONTROL_PLANE:
        return clue.line < where.back
    if clue.fault_class is FaultClass.RENDEZVOUS:
        return clue.line < where.met
    return clue.fault_class in RESUMED and clue.line < where.ended


def fell_at_the_end(clue: Clue, done_line: int) -> bool:
    """True for a crash, or a lost rendezvous, after the line that says that the work was done."""
    if not 0 < done_line < clue.line:
        return False
    if clue.fault_class is FaultClass.RENDEZVOUS:
        return _PARTED.search(clue.text) is not None
    return clue.fault_class in _CRASHES and CRASH.search(clue.text) is not None


def _named_later(clue: Clue, where: Sequence[tuple[int, str]]) -> bool:
    """True where a later line says it of the clue's pod, or one of them names none."""
    hit = _POD.search(clue.text)
    pod = hit["pod"] if hit is not None else ""
    return any(line > clue.line and (not pod or not name or name == pod) for line, name in where)
