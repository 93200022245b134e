"""Listings of a checkpoint folder: files that were written later and hold earlier steps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.stamps import MONTHS
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

FELL_WEIGHT = 0.8
"""A whole series of checkpoints begins anew in the folder of a training that had come far."""
FEWEST_BEFORE, FEWEST_AFTER = 2, 2
"""Checkpoints that must stand on either side of the fall; one odd file proves nothing."""
SMALL_SHARE = 0.5
"""A step below this share of what had been reached is no older checkpoint that was kept by chance."""
_ROW = re.compile(
    r"^-rw[rwxsStT-]{7}[.+@]?\s.{1,120}?\s(?:(?P<month>[A-Z][a-z]{2}) {1,3}(?P<day>\d{1,2}) {1,3}(?P<year>\d{4}|"
    r"(?P<clock>\d\d:\d\d))|(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d)\S{0,20}(?: [+-]\d{4})?) {1,3}(?P<name>\S.{0,300})$"
)
"""`ls -l`, with a month or with a whole date."""
_STEP = re.compile(
    r"(?i)(?:global_?step|train_?step|step|steps|iter(?:ation)?|checkpoint|ckpt|update)[-_=]?0{0,12}"
    r"(?P<step>\d{1,9})(?!\d|\.\d)"
)

_SAYS_FILE = Cue("-rw", of=(_ROW,))


@dataclass(frozen=True)
class _File:
    when: tuple[str, int, int, str]
    """Sorts as time does within one listing."""
    step: int
    line: LogLine


def fallen(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Listings, file by file of the log, in which the later ones of two series of checkpoints count from the start."""
    listings: dict[str, list[_File]] = {}
    for line in _SAYS_FILE.among(lines):
        if line.text.startswith("-rw") and (found := _file(line)) is not None:
            listings.setdefault(line.file, []).append(found)
    for files in listings.values():
        yield from _fall(sorted(files, key=lambda item: item.when))


def _file(line: LogLine) -> _File | None:
    row = _ROW.match(line.text.strip()[:600])
    step = _STEP.search(row["name"].rsplit("/", 1)[-1]) if row is not None else None
    if row is None or step is None:
        return None
    if row["date"]:
        return _File((row["date"], 0, 0, ""), int(step["step"]), line)
    month = MONTHS.get(row["month"], 0)
    year = row["year"] if not row["clock"] else "9999"  # `ls` leaves the year away where it is this one.
    return _File((year, month, int(row["day"]), row["clock"] or ""), int(step["step"]), line)


def _fall(files: Sequence[_File]) -> Iterator[Clue]:
    for number in range(FEWEST_BEFORE, len(files) - FEWEST_AFTER + 1):
        reached = files[number - 1].step
        before, after = files[:number], files[number:]
        if files[number].step >= SMALL_SHARE * reached or max(item.step for item in after) >= reached:
            continue
        if _rises(before) and _rises(after):
            yield _clue(files[number], reached)
            return


def _clue(file: _File, reached: int) -> Clue:
    line = file.line
    text = f"the checkpoint of step {file.step} was written after that of step {reached}: {line.text}"
    return Clue(FaultClass.STARTED_OVER, FELL_WEIGHT, text[:400], "checkpoints-fell-back", "code", line.node,
                file=line.file, line=line.line, supersedes=("preempted", "unknown", "process_killed"))  # fmt: skip


def _rises(files: Sequence[_File]) -> bool:
    """Two or more files are a series where their steps rise with their times."""
    return all(first.step <= second.step for first, second in itertools.pairwise(files))
