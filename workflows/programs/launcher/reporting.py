"""Who hears of what, and how often: the coordinator, the launcher's own output, the record of steps, the prover.

A file whose growth is the only sign of progress that a program gives.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.output import Stamps
from workflows.programs.progress.reader import told_once
from workflows.programs.runtime.files import RELAYED_SHARE, Appender, Printer
from workflows.wire import LINE_PREFIX, RankEnd, StepSeen, line

COMPUTE_SECONDS_BETWEEN = 0.05
"""A rank's own time before the barrier tells stragglers, so every step of every rank counts, but not a thousand."""
FIRST_STEPS = 20
"""So many steps of each rank are said one by one: the beginning is where a resume is proven."""
SECONDS_BETWEEN = 1.0
LINES_OF_GOOD_ENDS = 3


class Console:
    """The launcher's own voice: its standard output and `launcher.log`."""

    def __init__(self, log_path: str, appender: Appender, stamps: Stamps, fd: int = 1) -> None:
        self._log_path = log_path
        self._appender = appender
        self._stamps = stamps
        self._printer = Printer(fd)

    def say(self, text: str, at: float) -> None:
        """A line for people."""
        self._both(f"{self._stamps.of(at)} launcher: {text}\n")

    def report(self, data: Dict[str, Any]) -> None:
        """A structured line."""
        self._both(f"{LINE_PREFIX}{_json(data)}\n")

    def relay(self, lines: bytes) -> None:
        """Lines of ranks: they have logs of their own."""
        if lines:
            self._printer.print(lines, RELAYED_SHARE)

    def close(self, timeout_seconds: float) -> None:
        """Wait until all is written, then until it is said: so long each, whoever hangs or does not read."""
        self._appender.close(timeout_seconds)
        self._printer.close(timeout_seconds)

    def _both(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self._printer.print(data)
        if self._log_path:
            self._appender.append(self._log_path, data)


class Audience(NamedTuple):
    """Who hears of one step."""

    log: bool
    coordinator: bool
    record: bool
    """`steps.jsonl`."""
    prover: bool
    """The first loss that is not a number."""
    urgent: bool
    """The rank's first step: the proof of what was resumed."""


class StepFilter:
    """Chooses who hears of which step of this pod's ranks. A thousand steps a second must cost next to nothing."""

    def __init__(self) -> None:
        self._counts: Dict[int, int] = {}
        self._said_at: Dict[int, float] = {}
        self._measured_at: Dict[int, float] = {}
        self.reporting_rank: Optional[int] = None
        """The lowest rank of this pod that reports steps."""
        self.last_step: Optional[int] = None
        self.interval = 1
        """Largest distance between two steps of the reporting rank."""
        self.first_nan_step: Optional[int] = None

    def begin_again(self) -> None:
        """Ranks begin again: their first steps are the proof of what was resumed, once more."""
        self._counts, self._said_at, self._measured_at = {}, {}, {}
        self.last_step = None

    def take(self, step: StepSeen) -> Audience:
        """Who hears of `step`."""
        count = self._counts[step.rank] = self._counts.get(step.rank, 0) + 1
        nan = step.loss is not None and not math.isfinite(step.loss) and self.first_nan_step is None
        aloud = nan or count <= FIRST_STEPS or step.at - self._said_at[step.rank] >= SECONDS_BETWEEN
        if aloud:
            self._said_at[step.rank] = step.at
        if self.reporting_rank is None or step.rank < self.reporting_rank:
            self.reporting_rank = step.rank
        reporting = step.rank == self.reporting_rank
        if reporting:
            if self.last_step is not None:
                self.interval = max(self.interval, step.step - self.last_step)
            self.last_step = step.step
        if nan:
            self.first_nan_step = step.step
        told = aloud or reporting or self._measures(step)
        return Audience(log=aloud, coordinator=told, record=reporting, prover=nan, urgent=count == 1)

    def _measures(self, step: StepSeen) -> bool:
        if step.compute_seconds is None or step.at - self._measured_at.get(step.rank, 0.0) < COMPUTE_SECONDS_BETWEEN:
            return False
        self._measured_at[step.rank] = step.at
        return True


class Reporter:
    """Says everything that is found out to everybody who should hear it.

    Args:
        console: the launcher's own output.
        gang: the way to the coordinator.
        appender: writes the record of steps.
        steps_path: of `steps.jsonl`; "": none.
        on_nan: called with the first step whose loss is not a number.
    """

    def __init__(
        self,
        console: Console,
        gang: CoordinatorLink,
        appender: Appender,
        steps_path: str,
        on_nan: Callable[[int], None],
    ) -> None:
        self._console = console
        self._gang = gang
        self._appender = appender
        self._steps_path = steps_path
        self._on_nan = on_nan
        self.steps = StepFilter()

    def tell(self, report: Any, urgent: bool = False) -> None:
        """Say one report, whatever it is but a step."""
        if isinstance(report, RankEnd) and (report.exit_code == 0 or report.requested):
            report = replace(report, last_lines=report.last_lines[-LINES_OF_GOOD_ENDS:])
        data: Dict[str, Any] = json.loads(line(report)[len(LINE_PREFIX) :])
        self._console.report(data)
        self._gang.report(data, urgent)

    def take(self, reports: Sequence[Any]) -> None:
        """Say what was read from the ranks' output, in order."""
        steps: List[StepSeen] = []
        for report in told_once(reports):
            if isinstance(report, StepSeen):
                steps.append(report)
            else:
                self._take_steps(steps)
                steps = []
                self.tell(report)
        self._take_steps(steps)

    def _take_steps(self, steps: Sequence[StepSeen]) -> None:
        record: List[Dict[str, Any]] = []
        travelling: List[Dict[str, Any]] = []
        urgent = False
        for report in steps:
            audience = self.steps.take(report)
            data = step_data(report)
            if audience.record:
                record.append(data)
            if audience.log:
                self._console.report(data)
            if audience.coordinator:
                travelling.append(data)
                urgent = urgent or audience.urgent
            if audience.prover:
                self._on_nan(report.step)
        self._gang.report_all(travelling, urgent)
        if record and self._steps_path:
            self._appender.append(self._steps_path, _json_lines(record).encode())


def step_data(step: StepSeen) -> Dict[str, Any]:
    """As `reports.line` has it, without the cost of copying a dataclass deeply."""
    data: Dict[str, Any] = {"report": "StepSeen", **step.__dict__}
    if step.loss is not None and not math.isfinite(step.loss):
        data["loss"] = str(step.loss)
    if step.gradient_norm is not None and not math.isfinite(step.gradient_norm):
        data["gradient_norm"] = str(step.gradient_norm)
    return data


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def _json_lines(steps: List[Dict[str, Any]]) -> str:
    """A line for each; encoded in one go, which takes two thirds of the time. No value of theirs is free text."""
    return _ENCODER.encode(steps)[1:-1].replace('},{"report":', '}\n{"report":') + "\n"


def _json(data: Dict[str, Any]) -> str:
    return _ENCODER.encode(data)


LOOK_SECONDS = 1.0


class GrowingFile:
    """Looks at one file's size now and then.

    Args:
        path: of the file; "": there is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._looked_at = float("-inf")

    def grown(self, now: float) -> int:
        """The new size in bytes where it grew since the last look; 0 where it did not or a look is not due.

        A file that is started over shrinks first; from then on its growth counts again.

        Args:
            now: monotonic seconds.
        """
        if not self.path or now - self._looked_at < LOOK_SECONDS:
            return 0
        self._looked_at = now
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return 0
        before, self._size = self._size, size
        return size if size > before else 0
