"""Who did not come, in reports over several lines: Horovod's stall inspector, JAX's barriers, NCCL's RAS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.observers.collectives import LAGGING_WEIGHT, missing, numbers
from flows.decisions.observers.streams import Lived
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

UNNAMED_WEIGHT = 0.65
"""Horovod says that some wait for others; which ones is not in the log."""
MISMATCH_WEIGHT = 0.65
"""NCCL's counters of two moments may differ while all is well; whoever prints them has a reason to."""

_STALLED = "tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"
_STALLED_OP = re.compile(r"\[(?P<which>missing|ready) ranks: ?(?P<ranks>\d[\d, ]{0,4000})[\]\s]")
_STALLED_HEAD = re.compile(r"^(?:Missing|Stalled) ranks:\s*$")
_STALLED_ROW = re.compile(r"^(?:(?P<rank>\d{1,7}): )?\[\S")
_TASKS_HEAD = "timed out task names:"
_CONNECTING = "PjRT_Client_Connect"
"""The barrier at which every task must have come for the first time."""
_TASK_ROW = re.compile(r"^\s*/job:\S{1,60}/task:(?P<rank>\d{1,6})\s*$")
_RAS_HEAD = "ranks have different"
_RAS_GROUP = re.compile(
    r"^\s*(?:(?P<count>\d{1,7}) ranks? (?:has|have)|Rank (?P<rank>\d{1,7}) has) "
    r"(?:launched up to operation|status) \w{1,20}(?: -- GPU .{1,60} on node (?P<node>\S{1,100}))?"
)
_SAYS_STALLED = Cue(_STALLED, "[missing ranks:", "[ready ranks:", of=(_STALLED_OP,))
_SAYS_TASKS, _SAYS_DIFFERENT = Cue(_TASKS_HEAD), Cue(_RAS_HEAD)
_RAS_ROW = re.compile(r"^\s*Rank (?P<rank>\d{1,7}) -- GPU .{1,60} on node (?P<node>\S{1,100})")


def stalled(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Horovod's stall inspector: who did not submit its tensors, unless the training went on afterwards.

    Its head stands once a minute, the rows below it are many: an excerpt may hold the rows alone.
    """
    if not _SAYS_STALLED.anywhere(lines):
        return
    lived = Lived(lines)
    said: LogLine | None = None
    inside = False
    lacking: list[set[int]] = []
    for line in lines:
        if _begins(line, said) and not lived.outlived(line):
            said = line
        if said is None:
            continue
        if _STALLED_HEAD.match(line.text):
            inside = True
            continue
        row = _STALLED_ROW.match(line.text) if inside else None
        inside = row is not None
        if ranks := _lacking(line, row):
            lacking.append(ranks)
    if said is not None:
        yield from _stalled(said, lacking)


def _begins(line: LogLine, said: LogLine | None) -> bool:
    """A report's head, or its first row where the log has lost the head."""
    return _STALLED in line.text or (said is None and _STALLED_OP.search(line.text) is not None)


def _lacking(line: LogLine, row: re.Match[str] | None) -> set[int]:
    """Ranks that a row of the stall inspector's report lacks."""
    if row is not None:
        # `3: [tensor, …]` looks as srun labels lines: then the number was taken for the rank that printed it.
        rank = int(row["rank"]) if row["rank"] else line.rank
        return {rank} if rank is not None else set()
    op = _STALLED_OP.search(line.text)
    if op is None:
        return set()
    ranks = set(numbers(op["ranks"]))
    return ranks if op["which"] == "missing" else set(range(max(ranks))) - ranks


def _stalled(said: LogLine, lacking: Sequence[set[int]]) -> Iterator[Clue]:
    """Those that every tensor lacks; else all that any one lacks."""
    ranks: set[int] = set()
    if lacking:
        ranks = set[int].intersection(*lacking) or set[int].union(*lacking)
    if ranks:
        yield from missing(str(sorted(ranks)), "horovod-missing-ranks", said)
    else:
        yield Clue(FaultClass.HANG, UNNAMED_WEIGHT, said.text[:400], "horovod-stall", file=said.file, line=said.line)


def tasks(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """JAX's coordination service lists the tasks that did not come to a barrier, one a line."""
    inside = False
    kind = FaultClass.COLLECTIVE_TIMEOUT
    for line in lines if _SAYS_TASKS.anywhere(lines) else ():
        if _TASKS_HEAD in line.text.lower():
            inside = True
            kind = FaultClass.RENDEZVOUS if _CONNECTING in line.text else FaultClass.COLLECTIVE_TIMEOUT
        elif inside and (hit := _TASK_ROW.match(line.text)):
            yield Clue(kind, LAGGING_WEIGHT, line.text.strip()[:400], "jax-missing-task",
                       "rank", "", int(hit["rank"]), echo=True, file=line.file, line=line.line)  # fmt: skip
        else:
            inside = False


def mismatched(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """NCCL's RAS: the ranks that launched fewer collectives than most, or have another status."""
    inside, few, most = False, False, 0
    for line in lines if _SAYS_DIFFERENT.anywhere(lines) else ():
        if _RAS_HEAD in line.text:
            inside, few, most = True, False, 0
            continue
        group = _RAS_GROUP.match(line.text) if inside else None
        row = group or (_RAS_ROW.match(line.text) if inside and few else None)
        if group is not None:
            count = int(group["count"] or 1)
            few, most = most > 0 and count * 2 < most, max(most, count)
        elif line.text.strip().startswith("#"):
            inside = False
        if row is not None and few and row["rank"]:
            yield _behind(int(row["rank"]), row["node"] or "", line)


def _behind(rank: int, node: str, line: LogLine) -> Clue:
    text = f"rank {rank} launched fewer collectives than most: {line.text.strip()}"
    return Clue(FaultClass.HANG, MISMATCH_WEIGHT, text[:400], "nccl-ras-mismatch", "rank", node, rank,
                file=line.file, line=line.line)  # fmt: skip
