"""Training that began anew although it should have gone on where it stood.

Signs are steps and losses that fall back to the beginning, a resume that ends at step 0, and listings of a checkpoint
folder in which files that were written later hold earlier steps.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.lines import MONTHS, by_stream
from flows.decisions.diagnosis.observers.resume_requests import (
    BEGINNING_SHARE,
    not_found,
    requested_resume,
    says_none,
    second_start,
)
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.steps import Step, ends, steps
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

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
    request = requested_resume(lines)
    if request is not None:
        yield request
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
    part_steps = [(part, steps(part)) for part in parts]
    for unit in ("step", "epoch"):
        yield from _fallen([start for part, found in part_steps for start in _starts(part, found, unit)], unit)


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
        weight, line = FELL_BACK_WEIGHT if missing or fresh else FELL_WEIGHT, after.first.line
        yield Clue(FaultClass.STARTED_OVER, weight, text[:400], "steps-fell-back", node=line.node,
                   supersedes=ENDED_BEFORE, file=line.file, line=line.line)  # fmt: skip


def _starts(lines: Sequence[LogLine], steps_in_order: Sequence[Step], unit: str) -> list[_Start]:
    found: list[_Start] = []
    run: list[tuple[int, Step]] = []
    places = {id(line): number for number, line in enumerate(lines)}
    begin = 0
    for step in [*steps_in_order, None]:
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


REWOUND_WEIGHT = 0.85
"""Steps and loss both went back to where an untrained model stands."""
ASKED_WEIGHT = 0.72
"""A resume was asked for, and the program says that it begins at 0."""
REWIND_BEGINNING_SHARE = 0.02
"""So small a share of the steps reached counts as the beginning."""
LOSS_FACTOR = 1.5
"""A loss so many times higher is that of an untrained model, not of a new epoch."""
CONFIRMING = 2
"""Steps that must follow the fall; one odd line proves nothing."""

_ZERO = re.compile(
    r"(?i)\bcontinuing training from (?:global step|step|epoch|iteration) 0\b|"
    r"\b(?:starting|start|begin(?:ning)?|initiali[sz]ing)\b.{0,40}\b"
    r"(?:from scratch|from (?:step|iteration|epoch) 0\b|at (?:step|iteration) 0\b)"
)
_ASKED = re.compile(
    r"(?i)\bresum(?:e|ing|ed)\b.{0,160}\b(?:checkpoint|step|iter(?:ation)?|epoch)s?[-_ =:]{0,3}0{0,9}[1-9]\d{0,8}\b|"
    r"\brequested (?:restore|resume)(?: at| from)? step [1-9]|\bresume ?= ?true\b|--resume[= ]\S*\d|"
    r"\bafter restart [1-9]"
)
NAMED_WEIGHT = 0.75
"""A later place is named, or was reached, by the same run that then shows the first one."""
FEWEST_OF_TRIAL = 10
_KEPT = re.compile(
    r"(?i)\b(?:snapshot|check_?point|ckpt|resum\w{1,4}|restor\w{1,4}|load\w{0,3}|start(?:ing)? from|last_?iter|"
    r"init_?from)"
    r"[^\n]{0,80}?(?<![\d.])(?P<at>[1-9]\d{1,8})(?![\d.]*\d)"
)
_AGAIN = re.compile(
    r"(?i)\bre-?(?:start|launch|submit|queue|spawn|sum|stor|cover|load|tr(?:y|ies))|\bfail|\bcrash|\bkill|\bpreempt|"
    r"\babort|\bterminat|\bsignal|\bexit(?:ed|code)|\battempt|\bfrom scratch|\berror\b|\bdied\b|\blost\b|\bgoing on\b|"
    r"\bno check_?points?\b|\bcheckpoint .{0,40}(?:not|missing)|\bagain\b|\belastic|\bworld[_ ]size"
)
"""What shows that the same run began again."""
_SAVES = re.compile(r"(?i)\bsav(?:e|ed|ing)\b|\bwr(?:ite|iting|ote|itten)\b")
_TRIAL = re.compile(r"\[pid=(?P<pid>\d{1,9})\], (?P<seconds>\d{1,9}) s, (?P<iter>\d{1,9}) iter\b")
_SAYS_TRIAL = Cue(of=(_TRIAL,))
_SAYS_ZERO = Cue(of=(_ZERO,))
_SAYS_ASKED = Cue(of=(_ASKED,))


def rewinds(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """All signs, stream by stream."""
    for stream in by_stream(lines):
        seen = steps(stream)
        found = _fall(stream, seen) or _at_zero(stream) or _from_there(stream, seen) or _trials(stream)
        if found is not None:
            yield found


def _fall(stream: Sequence[LogLine], seen: Sequence[Step]) -> Clue | None:
    """Steps and loss at the beginning again. Two runs in one file look alike: the lines between must show it."""
    numbered = [item for item in seen if item.step is not None]
    for index in range(1, len(numbered) - CONFIRMING + 1):
        before, after = numbered[index - 1], numbered[index]
        reached, begun = before.step or 0, after.step or 0
        later = numbered[index : index + CONFIRMING]
        if reached < 50 or begun > max(1, REWIND_BEGINNING_SHARE * reached) or before.loss is None:
            continue
        if not all(item.loss is not None and item.loss > LOSS_FACTOR * before.loss for item in later):
            continue
        between = [x.text[:2000] for x in stream if before.line.line < x.line < after.line.line and x.text.strip()]
        if not between or any(_AGAIN.search(text) for text in between):
            text = f"step {reached} with loss {before.loss:g}, then step {begun} with loss {after.loss:g}"
            return _rewind_clue(text, "steps-rewound", REWOUND_WEIGHT, after.line)
    return None


def _from_there(stream: Sequence[LogLine], seen: Sequence[Step]) -> Clue | None:
    """A step was reached, its checkpoint is named as what is gone on from, and the next step is the first of all."""
    numbered = [item for item in seen if item.step is not None]
    for before, after in itertools.pairwise(numbered):
        reached, begun = before.step or 0, after.step or 0
        if reached < 50 or begun > max(1, REWIND_BEGINNING_SHARE * reached) or (after.epoch or 0) > (before.epoch or 0):
            continue
        between = (line.text[:2000] for line in stream if before.line.line < line.line < after.line.line)
        far = (int(hit["at"]) for text in between if not _SAVES.search(text) for hit in _KEPT.finditer(text))
        if any(0.5 * reached <= at <= reached for at in far):
            text = (
                f"step {reached}, then its checkpoint is taken up, then step {begun}: {after.line.text.strip()[:200]}"
            )
            return _rewind_clue(text, "step-after-checkpoint", NAMED_WEIGHT, after.line)
    return None


def _trials(stream: Sequence[LogLine]) -> Clue | None:
    """Ray Tune's lines of one trial: its time goes on, its iterations begin anew, in another process."""
    before: re.Match[str] | None = None
    for line, hit in _SAYS_TRIAL.hits(stream, 1000):
        if before is not None and hit["pid"] != before["pid"] and int(hit["seconds"]) >= int(before["seconds"]):
            reached, begun = int(before["iter"]), int(hit["iter"])
            if reached >= FEWEST_OF_TRIAL and begun <= max(1, REWIND_BEGINNING_SHARE * reached):
                return _rewind_clue(
                    f"iteration {reached}, then {line.text.strip()[:200]}", "trial-rewound", NAMED_WEIGHT, line
                )
        before = hit
    return None


def _at_zero(stream: Sequence[LogLine]) -> Clue | None:
    request = next((line for line, _ in _SAYS_ASKED.hits(stream, 2000)), None)
    zero = next((line for line, _ in _SAYS_ZERO.hits(stream, 2000)), None)
    if request is None or zero is None or zero.line < request.line:
        return None
    first = next((item.step for item in steps(stream) if item.line.line > zero.line and item.step is not None), 0)
    return _rewind_clue(zero.text[:400], "resume-at-zero", ASKED_WEIGHT, zero) if first <= CONFIRMING else None


def _rewind_clue(text: str, rule: str, weight: float, line: LogLine) -> Clue:
    return Clue(
        FaultClass.STARTED_OVER,
        weight,
        text,
        rule,
        "code",
        line.node,
        line.rank,
        line.at,
        file=line.file,
        line=line.line,
    )


LISTING_FELL_WEIGHT = 0.8
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

_SAYS_FILE = Cue(of=(_ROW,))


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
        yield from _listing_fall(sorted(files, key=lambda item: item.when))


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


def _listing_fall(files: Sequence[_File]) -> Iterator[Clue]:
    for number in range(FEWEST_BEFORE, len(files) - FEWEST_AFTER + 1):
        reached = files[number - 1].step
        before, after = files[:number], files[number:]
        if files[number].step >= SMALL_SHARE * reached or max(item.step for item in after) >= reached:
            continue
        if _rises(before) and _rises(after):
            yield _listing_clue(files[number], reached)
            return


def _listing_clue(file: _File, reached: int) -> Clue:
    line = file.line
    text = f"the checkpoint of step {file.step} was written after that of step {reached}: {line.text}"
    return Clue(FaultClass.STARTED_OVER, LISTING_FELL_WEIGHT, text[:400], "checkpoints-fell-back", "code", line.node,
                file=line.file, line=line.line, supersedes=("preempted", "unknown", "process_killed"))  # fmt: skip


def _rises(files: Sequence[_File]) -> bool:
    """Two or more files are a series where their steps rise with their times."""
    return all(first.step <= second.step for first, second in itertools.pairwise(files))
