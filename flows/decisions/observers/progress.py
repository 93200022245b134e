"""Progress: a training that began anew although it should have gone on where it stood."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.decisions.clues import Clue
from flows.decisions.observers.reentry import BEGINNING_SHARE, asked
from flows.decisions.observers.resumption import not_found, says_none, second_start
from flows.decisions.steps import Step, ends, steps
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

FELL_BACK_WEIGHT = 0.95
"""Steps had been made, the next start counts from the beginning, and says or shows that it has no checkpoint."""
FELL_WEIGHT = 0.8
"""Steps had been made, the next start counts from the beginning."""
FEWEST_STEPS = 10
"""After fewer steps there is hardly a checkpoint that could be missed."""
FRESH_LOSS_RATIO = 1.3
"""So many times the last loss the first one of a new start must be to look fresh."""
ENDED_BEFORE = ("preempted", "process_killed", "node_lost", "collective_timeout", "unknown")
"""How the start before may have ended: what matters is how the next one went."""
_ATTEMPT = re.compile(
    r"(?i)[-_.]?(?:restart(?:ed)?|attempt|retry|resumed?|requeued?|part|after|before|again)[-_.]?\d{0,4}(?![a-z0-9])"
)
"""What tells the files of one run's attempts apart."""


@dataclass(frozen=True)
class _Start:
    """One series of steps, or of epochs, that only rises."""

    begun: int
    reached: int
    first: Step
    last: Step
    before: tuple[LogLine, ...]
    """Lines since the series before it."""


def started_over(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Every way in which a start from the beginning shows; the surest one speaks."""
    fallen = [clue for parts in _runs(lines) for clue in _both(parts)]
    if fallen:
        yield from fallen
        return
    told = asked(lines)
    if told is not None:
        yield told
        return
    yield from not_found(lines)


def _runs(lines: Sequence[LogLine]) -> Iterator[list[list[LogLine]]]:
    """The lines of each run and rank: of one file, or of several whose names are those of attempts."""
    files: dict[tuple[str, int | None], list[LogLine]] = {}
    for line in lines:
        files.setdefault((line.file, line.rank), []).append(line)
    groups: dict[tuple[str, int | None], list[list[LogLine]]] = {}
    for (file, rank), part in files.items():
        stem = _ATTEMPT.sub("", file.rsplit("/", 1)[-1].rsplit(".", 1)[0])
        groups.setdefault((stem, rank), []).append(part)
    yield from groups.values()


def _both(parts: Sequence[Sequence[LogLine]]) -> Iterator[Clue]:
    """By steps and by epochs."""
    told = [(part, steps(part)) for part in parts]
    for unit in ("step", "epoch"):
        yield from _fallen([start for part, found in told for start in _starts(part, found, unit)], unit)


def _fallen(starts: Sequence[_Start], unit: str) -> Iterator[Clue]:
    """Starts that count from the beginning although the one before them had come far."""
    for before, after in itertools.pairwise(starts):
        if after.begun > max(1, BEGINNING_SHARE * before.reached) or before.reached < 2:
            continue
        if unit == "step" and (before.reached < FEWEST_STEPS or _next_epoch(before.last, after.first)):
            continue
        if ends(after.before):
            continue  # The one before had come to its end: this is another run.
        missing = any(says_none(line) for line in after.before)
        other_file = before.last.line.file != after.first.line.file
        if not missing and not other_file and not any(second_start(line) for line in after.before):
            continue
        fresh = _fresh(before.last, after.first)
        if fresh is False and not missing:
            continue
        text = f"{unit} {after.begun} follows {unit} {before.reached}: {after.first.line.text.strip()[:200]}"
        yield _clue(after.first.line, FELL_BACK_WEIGHT if missing or fresh else FELL_WEIGHT, text)


def _starts(lines: Sequence[LogLine], told: Sequence[Step], unit: str) -> list[_Start]:
    found: list[_Start] = []
    run: list[tuple[int, Step]] = []
    places = {id(line): number for number, line in enumerate(lines)}
    begin = 0
    for step in [*told, None]:
        value = _value(step, unit) if step is not None else None
        if step is not None and value is None:
            continue
        if run and (value is None or value < run[-1][0]):
            (begun, first), (reached, last) = run[0], run[-1]
            found.append(_Start(begun, reached, first, last, tuple(lines[begin : places[id(first.line)]])))
            begin, run = places[id(last.line)] + 1, []
        if step is not None and value is not None:
            run.append((value, step))
    return found


def _value(step: Step, unit: str) -> int | None:
    if unit == "step":
        return step.step
    return int(step.epoch) if step.epoch is not None else None


def _next_epoch(before: Step, after: Step) -> bool:
    """Steps that are counted anew in every epoch."""
    return before.epoch is not None and after.epoch is not None and after.epoch >= before.epoch and after.epoch > 0


def _fresh(before: Step, after: Step) -> bool | None:
    """Does the loss look like that of an untrained model? None where one of them is not known."""
    if before.loss is None or after.loss is None or before.loss <= 0:
        return None
    return after.loss >= FRESH_LOSS_RATIO * before.loss


def _clue(line: LogLine, weight: float, text: str) -> Clue:
    return Clue(FaultClass.STARTED_OVER, weight, text[:400], "steps-fell-back", node=line.node, supersedes=ENDED_BEFORE,
                file=line.file, line=line.line)  # fmt: skip
