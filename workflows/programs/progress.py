"""From the lines of one rank to steps over all attempts. No clock, no file: times come with the lines.

Progress is "a new training step was reported", never "the number grew": counters fall back in each epoch and after a
resume, bars repeat themselves, evaluation counts for itself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Union

from workflows.programs.progress_formats import FRAMEWORKS, Framework, from_pattern
from workflows.programs.progress_phases import DETAIL_CHARACTERS, Phases
from workflows.programs.progress_records import Finder, Record
from workflows.reports import LINE_PREFIX, PhaseSeen, StepSeen, from_dict

LINE_LIMIT = 8000
"""Characters of a line that are searched: progress lines are short, and a pattern must not work through a dump."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Report = Union[StepSeen, PhaseSeen]


class PatternError(ValueError):
    """A profile's pattern is not a regular expression or has no group `step`."""


@dataclass(frozen=True)
class Counting:
    """How the numbers of a program become positions over all attempts."""

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


class Reader:
    """The progress of one rank.

    Args:
        framework: what it prints; None: its lines say nothing.
        counting: how its numbers are counted.
        rank: stands in the reports.
        started_at: Unix time in seconds when the rank was started; None: not known.
        incarnation: of the rank, stands in the reports.
    """

    def __init__(
        self,
        framework: Optional[Framework],
        counting: Counting,
        rank: int,
        started_at: Optional[float] = None,
        incarnation: int = 1,
    ) -> None:
        formats = framework.formats if framework is not None else ()
        self._phases = Phases(framework.marks if framework is not None else (), rank, started_at, incarnation)
        self._finders = [Finder(form, counting.world_size) for form in formats]
        texts = [*(finder.hint for finder in self._finders), *self._phases.hints] if formats else []
        self._hints = [LINE_PREFIX.encode(), *(text.encode() for text in texts)]
        self._position = _Position(counting)
        self._rank = rank
        self.incarnation = incarnation
        self.last: Optional[StepSeen] = None

    def worth(self, raw: bytes) -> bool:
        """False where none of the lines in `raw` can say anything to `feed`."""
        for hint in self._hints:
            if hint in raw:
                return True
        return b"\x1b" in raw  # colours may stand within a hint

    def feed(self, text: str, at: float) -> List[Report]:
        """What the line says: new steps, losses of known steps, changes of phase.

        Args:
            text: one line, without its end.
            at: Unix time in seconds when it was read.
        """
        if text.startswith(LINE_PREFIX):
            return self._own_words(text, at)
        if not self._finders:
            return []
        text = strip_colours(text[:LINE_LIMIT])
        reports: List[Report] = []
        for finder in self._finders:
            if finder.hint in text:
                for record in finder.find(text):
                    reports += self._taken(record, at)
        reports += self._phases.feed(text, at)  # a save is told behind a bar, without a new line
        return reports

    def _own_words(self, text: str, at: float) -> List[Report]:
        """A report that the program itself prints: a step or a phase of this rank, now; nothing else is believed."""
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

    def _taken(self, record: Record, at: float) -> List[Report]:
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
        """A loss that came apart from its step belongs to the latest one; a repeated record says nothing new."""
        if self.last is None or record.loss is None or _same(self.last.loss, record.loss):
            return []
        norm = self.last.gradient_norm if record.gradient_norm is None else record.gradient_norm
        self.last = replace(self.last, loss=record.loss, gradient_norm=norm, at=at)
        return [self.last]


class _Position:
    """The step over all attempts that a record stands for."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._base = counting.offset
        self._epoch: Optional[int] = None
        self._last: Optional[int] = None
        self._bar_total = counting.steps or None

    def of(self, record: Record) -> Optional[int]:
        """None: not a training step."""
        counter = record.counter
        if counter is None:
            return None
        if record.kind == "bar":
            return self._of_bar(counter, record.total)
        if record.kind == "epoch":
            self._follow_epoch(counter, record)
        self._last = counter
        step = counter + self._base
        return step if step > 0 else None

    def total(self, record: Record) -> Optional[int]:
        """Planned steps as the program says them; an epoch's length is not that."""
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
                self._base += self._last or 0
            self._epoch = record.epoch
        elif self._last is not None and counter < self._last and counter <= self._near_start():
            # The last lines before an epoch's end are often not printed; where the length is known it counts.
            self._base += max(self._last + 1 - self._counting.first_counter, record.total or 0)

    def _near_start(self) -> int:
        return self._counting.first_counter + max(1, (self._last or 0) // 4)


def _same(one: Optional[float], other: float) -> bool:
    return one == other or (one is not None and one != one and other != other)  # noqa: PLR0124 - NaN is not itself
