"""From the lines of one rank to steps over all attempts and to phases. No clock, no file: times come with the lines.

Progress is "a new training step was reported", never "the number grew": counters fall back in each epoch and after a
resume, bars repeat themselves, evaluation has counters of its own. The begin of a pause that is reported only at its
end ("saved in 0.015 s") is computed from its length. A phase lasts until the rank enters the next one.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Match, NamedTuple, Optional, Pattern, Sequence, Set, Tuple, Union

from workflows.programs.progress.formats import FRAMEWORKS, Format, Framework, PhaseMark, from_pattern
from workflows.wire import LINE_PREFIX, PhaseSeen, StepSeen, from_dict

Report = Union[StepSeen, PhaseSeen]

_GROUPS = ("loss", "seconds", "tokens_per_second", "compute_seconds", "gradient_norm")

SEARCHED_CHARACTERS = 2000
"""Of a line: what it says of itself stands near its beginning, at most after a progress bar."""
DETAIL_CHARACTERS = 200
READ_SECONDS = 0.05
"""A line is read so long after it was printed, on a machine with much to do."""

LINE_LIMIT = 8000
"""Characters of a line that are searched: progress lines are short, and a pattern must not work through a dump."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Record(NamedTuple):
    """One record as printed, before counting; a tuple, since it is made in a fifth of a dataclass's time."""

    counter: Optional[int]
    epoch: Optional[int] = None
    total: Optional[int] = None
    loss: Optional[float] = None
    seconds: Optional[float] = None
    tokens_per_second: Optional[float] = None
    compute_seconds: Optional[float] = None
    gradient_norm: Optional[float] = None
    kind: str = "absolute"


class RecordFinder:
    """A compiled format. A thousand lines a second must cost next to nothing, so every lookup happens once."""

    def __init__(self, form: Format, world_size: int) -> None:
        self.kind = form.counter
        self.hint = form.hint
        self._record: Pattern[str] = re.compile(form.record)
        groups = self._record.groupindex
        self._groups = tuple((name, groups[name]) for name in _GROUPS if name in groups)
        self._counter, self._epoch, self._total = (groups.get(name, 0) for name in ("step", "epoch", "total"))
        self._fields: Tuple[Tuple[str, Pattern[str]], ...] = tuple(
            (name, re.compile(pattern)) for name, pattern in form.fields
        )
        self._world_size = world_size

    def find(self, text: str) -> List[Record]:
        """Every record in the line, in order."""
        hits = list(self._record.finditer(text))
        if len(hits) == 1:
            return [self._read(hits[0], text, len(text))]
        ends = [hit.start() for hit in hits[1:]] + [len(text)]
        return [self._read(hit, text, ends[index]) for index, hit in enumerate(hits)]

    def _read(self, hit: Match[str], text: str, end: int) -> Record:
        fields: Dict[str, float] = {}
        for name, group in self._groups:
            self._take(fields, name, parse_number(hit[group]))
        start = hit.start()
        for name, pattern in self._fields:
            found = pattern.search(text, start, end)
            if found is not None:
                self._take(fields, name, parse_number(found["value"]))
        say = fields.get
        return Record(
            _whole(hit, self._counter),
            _whole(hit, self._epoch),
            _whole(hit, self._total),
            say("loss"),
            say("seconds"),
            say("tokens_per_second"),
            say("compute_seconds"),
            say("gradient_norm"),
            self.kind,
        )

    def _take(self, fields: Dict[str, float], name: str, value: Optional[float]) -> None:
        if value is None:
            return
        if name == "bad":
            if value > 0:
                fields["loss"] = float("nan")
        elif name == "milliseconds":
            fields["seconds"] = value / 1000
        elif name == "tokens_per_second_per_rank":
            fields["tokens_per_second"] = value * self._world_size
        else:
            fields.setdefault(name, value)


def _whole(hit: Match[str], group: int) -> Optional[int]:
    """The whole number in a group; 0: there is no such group."""
    word = hit[group] if group else None
    if word is None:
        return None
    if word.isdecimal() and len(word) < 16:
        return int(word)
    value = parse_number(word)
    return None if value is None or not math.isfinite(value) else int(value)


def parse_number(text: Optional[str]) -> Optional[float]:
    """The number that a program printed; None: it is none."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


class PhaseTracker:
    """The phases of one rank, from lines that match `marks`; `started_at` is Unix time in seconds (None: unknown)."""

    def __init__(
        self, marks: Sequence[PhaseMark], rank: int, started_at: Optional[float] = None, incarnation: int = 1
    ) -> None:
        self._marks: List[Tuple[str, Pattern[str], PhaseMark]] = [
            (mark.hint, re.compile(mark.pattern), mark) for mark in marks
        ]
        self._rank = rank
        self._started_at = started_at
        self._incarnation = incarnation
        self._phase = ""
        self._detail = ""
        self._stepped = False
        self._begun: Set[str] = set()
        self._entered_at = float("-inf")
        """When the present phase was entered, as far as it is known."""
        self._until = float("-inf")
        """End of the last pause that is known."""

    @property
    def hints(self) -> List[str]:
        """A line that contains none of them says nothing."""
        return [hint for hint, _, _ in self._marks]

    def feed(self, text: str, at: float) -> List[PhaseSeen]:
        """What the line says; nothing for most."""
        for hint, pattern, mark in self._marks:
            if hint in text:
                hit = pattern.search(text, 0, SEARCHED_CHARACTERS)
                if hit is not None:
                    detail = text.strip()[:DETAIL_CHARACTERS]
                    return self._end(mark, hit, detail, at) if mark.ends else self._begin(mark.phase, detail, at)
        return []

    def step(self, at: float) -> List[PhaseSeen]:
        """A step was completed."""
        self._stepped = True
        return self._begin("step", "", at)

    def _begin(self, phase: str, detail: str, at: float) -> List[PhaseSeen]:
        # A rank that prints no steps, and no end of its saves, is in the phase already when it begins the next save.
        if phase == self._phase and (phase != "checkpoint" or self._stepped or detail == self._detail):
            return []
        return [self._enter(phase, detail, at)]

    def _end(self, mark: PhaseMark, hit: Match[str], detail: str, at: float) -> List[PhaseSeen]:
        phase = mark.phase
        reports: List[PhaseSeen] = []
        if self._phase != phase:
            since = at if mark.unmeasured else self._since(phase, hit, at)
            if since is None:
                return []
            reports.append(self._enter(phase, detail, since))
        elif self._entered_at == at:
            reports += self._anew(phase, hit, detail, at)
        else:
            at = self._ended(mark, hit, at)
        self._until = at
        following = "step" if self._stepped or phase == "checkpoint" else "init"
        return [*reports, self._enter(following, detail, at)]

    def _anew(self, phase: str, hit: Match[str], detail: str, at: float) -> List[PhaseSeen]:
        """Beginning and end were read in one go: the beginning is told anew, if the pause's length was printed."""
        since = self._since(phase, hit, at)
        return [] if since is None or since == at else [self._enter(phase, detail, since)]

    def _ended(self, mark: PhaseMark, hit: Match[str], at: float) -> float:
        """When a pause that was announced ended: by its own length, unless that is of something else than all of it."""
        own = self._entered_at + (_seconds(hit) or math.inf)
        return own if own <= at and (mark.whole or own >= at - READ_SECONDS) else at

    def _since(self, phase: str, hit: Match[str], at: float) -> Optional[float]:
        """When the pause began whose end is all that is told; None: it stalled nobody, or is known already."""
        seconds = _seconds(hit)
        if seconds is not None:
            # Where processes share a rank's output, each of them tells of the same pause.
            return at - seconds if at - seconds >= self._until else None
        return self._started_at if phase == "restore" and not self._stepped and phase not in self._begun else None

    def _enter(self, phase: str, detail: str, at: float) -> PhaseSeen:
        self._phase, self._detail, self._entered_at = phase, detail, at
        self._begun.add(phase)
        return PhaseSeen(phase=phase, at=at, rank=self._rank, detail=detail, incarnation=self._incarnation)


def without_revised_begins(reports: Sequence[Any]) -> List[Any]:
    """The reports of one reading without begins of pauses that a later report in it replaces by an earlier time."""
    kept: List[Any] = []
    for report in reports:
        last = kept[-1] if kept else None
        if isinstance(report, PhaseSeen) and isinstance(last, PhaseSeen):
            again = (report.phase, report.rank, report.incarnation) == (last.phase, last.rank, last.incarnation)
            if again and report.at < last.at:
                kept.pop()
        kept.append(report)
    return kept


def _seconds(hit: Match[str]) -> Optional[float]:
    groups = hit.groupdict()
    if groups.get("seconds") is not None:
        return float(groups["seconds"])
    return float(groups["milliseconds"]) / 1000 if groups.get("milliseconds") is not None else None


class PatternError(ValueError):
    """A profile's pattern is not a regular expression or has no group `step`."""


@dataclass(frozen=True)
class StepCounting:
    """How a program's step numbers become positions over all attempts."""

    first_counter: int = 1
    """Number the program gives its first step."""
    counter_restarts: bool = False
    """It counts from its beginning again after a resume."""
    resume_step: int = 0
    """Steps already done when this attempt started; 0: from scratch."""
    steps: int = 0
    """Planned steps; 0: not known."""
    world_size: int = 1
    """Ranks, for programs that print rates for each of them."""

    @property
    def offset(self) -> int:
        """What is added to a counter to get the position."""
        return 1 - self.first_counter + (self.resume_step if self.counter_restarts else 0)


def strip_colours(text: str) -> str:
    """`text` without terminal colours."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def framework_of(name: str, pattern: str = "") -> Optional[Framework]:
    """The framework called `name`; None where lines say nothing (`file`, `none`).

    Raises:
        PatternError: `regex` with a pattern that does not compile or lacks the group `step`.
    """
    if name != "regex":
        return FRAMEWORKS.get(name)
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise PatternError(f"progress.pattern: not a regular expression: {error}; got {pattern!r}") from error
    if "step" not in groups:
        raise PatternError(f"progress.pattern: needs a group (?P<step>...), got {pattern!r}")
    return from_pattern(pattern)


class ProgressReader:
    """The progress of one rank, from its lines.

    `framework` None means that its lines say nothing; `started_at` is its start in Unix seconds (None: not known).
    """

    def __init__(
        self,
        framework: Optional[Framework],
        counting: StepCounting,
        rank: int,
        started_at: Optional[float] = None,
        incarnation: int = 1,
    ) -> None:
        formats = framework.formats if framework is not None else ()
        self._phases = PhaseTracker(framework.marks if framework is not None else (), rank, started_at, incarnation)
        self._finders = [RecordFinder(form, counting.world_size) for form in formats]
        texts = [*(finder.hint for finder in self._finders), *self._phases.hints] if formats else []
        self._hints = [LINE_PREFIX.encode(), *(text.encode() for text in texts)]
        self._position = _StepPosition(counting)
        self._rank = rank
        self.incarnation = incarnation
        self.last: Optional[StepSeen] = None

    def may_match(self, raw: bytes) -> bool:
        """Whether any line in `raw` may contain a report, so that `feed` has to read it."""
        for hint in self._hints:
            if hint in raw:
                return True
        return b"\x1b" in raw  # colours may stand within a hint

    def feed(self, text: str, at: float) -> List[Report]:
        """Reports in one line, read `at` (Unix seconds): new steps, losses of known steps, changes of phase."""
        if text.startswith(LINE_PREFIX):
            return self._structured_report(text, at)
        if not self._finders:
            return []
        text = strip_colours(text[:LINE_LIMIT])
        reports: List[Report] = []
        for finder in self._finders:
            if finder.hint in text:
                for record in finder.find(text):
                    reports += self._take_record(record, at)
        reports += self._phases.feed(text, at)  # a save is told behind a bar, without a new line
        return reports

    def _structured_report(self, text: str, at: float) -> List[Report]:
        """A report that the program itself prints: a step or a phase of this rank, now; everything else is ignored."""
        try:
            data: Dict[str, Any] = json.loads(text[len(LINE_PREFIX) : LINE_LIMIT])
            kind = {"StepSeen": StepSeen, "PhaseSeen": PhaseSeen}[data["report"]]
            own = {"at": at, "rank": self._rank, "incarnation": self.incarnation}
            said = from_dict(kind, {**data, **own})
        except (ValueError, KeyError, TypeError, RecursionError):
            return []
        if isinstance(said, PhaseSeen):
            return [replace(said, detail=said.detail[:DETAIL_CHARACTERS])]
        if said.step < 1:
            return []
        self.last = said
        return [*self._phases.step(at), said]

    def _take_record(self, record: Record, at: float) -> List[Report]:
        if record.counter is None:
            return self._loss_only(record, at)
        step = self._position.of(record)
        if step is None:
            return []
        if self.last is not None and step == self.last.step:
            return self._loss_only(record, at)
        # Set at once: a frozen dataclass sets one field after the other, for as long as all the rest here takes.
        self.last = object.__new__(StepSeen)
        self.last.__dict__.update(
            step=step,
            at=at,
            rank=self._rank,
            loss=record.loss,
            seconds=record.seconds,
            tokens_per_second=record.tokens_per_second,
            total_steps=self._position.total(record),
            incarnation=self.incarnation,
            compute_seconds=record.compute_seconds,
            gradient_norm=record.gradient_norm,
        )
        return [*self._phases.step(at), self.last]

    def _loss_only(self, record: Record, at: float) -> List[Report]:
        """A loss that came apart from its step belongs to the latest one; a repeated record changes nothing."""
        if self.last is None or record.loss is None or _same(self.last.loss, record.loss):
            return []
        norm = self.last.gradient_norm if record.gradient_norm is None else record.gradient_norm
        self.last = replace(self.last, loss=record.loss, gradient_norm=norm, at=at)
        return [self.last]


class _StepPosition:
    """The step over all attempts that a record stands for."""

    def __init__(self, counting: StepCounting) -> None:
        self._counting = counting
        self._base = counting.offset
        self._epoch: Optional[int] = None
        self._last: Optional[int] = None
        self._epoch_length: Optional[int] = None
        self._bar_total = counting.steps or None

    def of(self, record: Record) -> Optional[int]:
        """None: not a training step."""
        counter = record.counter
        if counter is None:
            return None
        if record.kind == "bar":
            return self._of_bar(counter, record.total)
        if record.kind == "epoch":
            if record.epoch is not None and record.epoch == self._epoch and counter < (self._last or 0):
                return None  # a bar that is set back before the next epoch is announced
            self._follow_epoch(counter, record)
        self._last, self._epoch_length = counter, record.total
        step = counter + self._base
        return step if step > 0 else None

    def total(self, record: Record) -> Optional[int]:
        """Planned steps that the program prints; the length of an epoch is not that."""
        return None if record.kind == "epoch" else record.total

    def _of_bar(self, counter: int, total: Optional[int]) -> Optional[int]:
        if self._bar_total is None:
            self._bar_total = total
        if counter == 0 or total != self._bar_total:
            return None
        # A bar counts steps done, so the program's own first number plays no part.
        return counter + (self._counting.resume_step if self._counting.counter_restarts else 0)

    def _follow_epoch(self, counter: int, record: Record) -> None:
        if record.epoch is not None:
            if self._epoch is None and record.epoch > 0 and not self._counting.counter_restarts:
                self._base = record.epoch * (record.total or 0)
            elif self._epoch is None:
                self._base = self._counting.offset - 1 + self._counting.first_counter
            elif record.epoch != self._epoch:
                # The last lines before an epoch's end are often not printed; where its length is known it counts.
                self._base += max(self._epoch_length or 0, self._last or 0)
            self._epoch = record.epoch
        elif (
            self._last is not None
            and counter < self._last
            and counter <= (self._counting.first_counter + max(1, (self._last or 0) // 4))
        ):
            # The last lines before an epoch's end are often not printed; where the length is known it counts.
            self._base += max(self._last + 1 - self._counting.first_counter, record.total or 0)


def _same(one: Optional[float], other: float) -> bool:
    return one == other or (one is not None and one != one and other != other)  # noqa: PLR0124 - NaN is not itself
