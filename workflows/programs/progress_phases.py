"""What one rank does, from the lines that say so: a phase begins, a phase has ended. No clock: lines bring the time.

Of a pause that is only told when it is over ("saved in 0.015 s"), the beginning is reported in hindsight. Each phase
reaches to the next one that the rank enters.
"""

from __future__ import annotations

import math
import re
from typing import Any, List, Match, Optional, Pattern, Sequence, Set, Tuple

from workflows.programs.progress_marks import PhaseMark
from workflows.reports import PhaseSeen

SEARCHED_CHARACTERS = 2000
"""Of a line: what it says of itself stands near its beginning, at most after a progress bar."""
DETAIL_CHARACTERS = 200
READ_SECONDS = 0.05
"""A line is read so long after it was printed, on a machine with much to do."""


class Phases:
    """The phases of one rank.

    Args:
        marks: lines of its program.
        rank: stands in the reports.
        started_at: Unix time in seconds when it was started; None: not known.
        incarnation: of the rank, stands in the reports.
    """

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
            since = self._since(phase, hit, at)
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


def told_once(reports: Sequence[Any]) -> List[Any]:
    """The reports of one reading without beginnings of pauses that were told anew in it, from an earlier moment."""
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
