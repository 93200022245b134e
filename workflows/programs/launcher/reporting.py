"""Where reports go and how often: to the coordinator, the launcher's output, the record of steps and the prover."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.output import TimestampFormatter
from workflows.programs.progress.reader import without_revised_begins
from workflows.programs.runtime.files import RELAYED_SHARE, Appender, Printer
from workflows.wire import LINE_PREFIX, RankEnd, StepSeen, line

COMPUTE_SECONDS_BETWEEN = 0.05
"""Least time between two reports of a rank's local time, which shows stragglers; a thousand a second are too many."""
FIRST_STEPS = 20
"""First steps of each rank that are all printed, because the beginning proves what was resumed."""
SECONDS_BETWEEN = 1.0
LINES_OF_GOOD_ENDS = 3

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

LOOK_SECONDS = 1.0


class Console:
    """The launcher's own output: standard output and `launcher.log`."""

    def __init__(self, log_path: str, appender: Appender, stamps: TimestampFormatter, fd: int = 1) -> None:
        self._log_path = log_path
        self._appender = appender
        self._stamps = stamps
        self._printer = Printer(fd)

    def say(self, text: str, at: float) -> None:
        """Print a line for people."""
        self._both(f"{self._stamps.of(at)} launcher: {text}\n")

    def report(self, data: Dict[str, Any]) -> None:
        """Print a structured line."""
        self._both(f"{LINE_PREFIX}{_ENCODER.encode(data)}\n")

    def relay(self, lines: bytes) -> None:
        """Print lines of ranks, which have logs of their own."""
        if lines:
            self._printer.print(lines, RELAYED_SHARE)

    def close(self, timeout_seconds: float) -> None:
        """Wait until the log is written, then until the output is taken, at most `timeout_seconds` each."""
        self._appender.close(timeout_seconds)
        self._printer.close(timeout_seconds)

    def _both(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self._printer.print(data)
        if self._log_path:
            self._appender.append(self._log_path, data)


class Destinations(NamedTuple):
    """Where the report of one step goes."""

    log: bool
    coordinator: bool
    record: bool
    """`steps.jsonl`."""
    prover: bool
    """Set for the first loss that is not a number."""
    urgent: bool
    """Set for the rank's first step: the proof of what was resumed."""


class StepFilter:
    """Chooses where each step of this pod's ranks goes. A thousand steps a second must cost next to nothing."""

    def __init__(self) -> None:
        self._counts: Dict[int, int] = {}
        self._said_at: Dict[int, float] = {}
        self._measured_at: Dict[int, float] = {}
        self.reporting_rank: Optional[int] = None
        """Lowest living rank of this pod that reports steps."""
        self._passed = 0
        """Last step of a reporting rank that has ended, or gave way to a lower one: the next goes on from there."""
        self.last_step: Optional[int] = None
        self.interval = 1
        """Largest distance between two steps of the reporting rank."""
        self.first_nan_step: Optional[int] = None

    def reset(self) -> None:
        """Ranks restart: their first steps prove again what was resumed."""
        self._counts, self._said_at, self._measured_at = {}, {}, {}
        self._passed, self.last_step = 0, None

    def end_rank(self, rank: int) -> None:
        """A rank has ended, which may leave the others training on."""
        if rank == self.reporting_rank:
            self.reporting_rank, self._passed = None, self.last_step or 0

    def choose(self, step: StepSeen) -> Destinations:
        """Where `step` goes."""
        count = self._counts[step.rank] = self._counts.get(step.rank, 0) + 1
        nan = step.loss is not None and not math.isfinite(step.loss) and self.first_nan_step is None
        aloud = nan or count <= FIRST_STEPS or step.at - self._said_at[step.rank] >= SECONDS_BETWEEN
        if aloud:
            self._said_at[step.rank] = step.at
        if self.reporting_rank is None or step.rank < self.reporting_rank:
            if self.reporting_rank is not None:  # what a higher rank was first to say is no step once more
                self._passed = max(self._passed, self.last_step or 0)
            self.reporting_rank = step.rank
        reporting = step.rank == self.reporting_rank and step.step > self._passed
        if reporting:
            if self.last_step is not None:
                self.interval = max(self.interval, step.step - self.last_step)
            self.last_step = step.step
        if nan:
            self.first_nan_step = step.step
        told = aloud or reporting or self._measures(step)
        return Destinations(log=aloud, coordinator=told, record=reporting, prover=nan, urgent=count == 1)

    def _measures(self, step: StepSeen) -> bool:
        if step.compute_seconds is None or step.at - self._measured_at.get(step.rank, 0.0) < COMPUTE_SECONDS_BETWEEN:
            return False
        self._measured_at[step.rank] = step.at
        return True


class Reporter:
    """Sends reports to the console, to the coordinator through `gang`, and to `steps.jsonl` at `steps_path` ("": none).

    `on_nan` is called with the first step whose loss is not a number.
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

    def report(self, report: Any, urgent: bool = False) -> None:
        """Send one report that is not a step."""
        if isinstance(report, RankEnd):
            self.steps.end_rank(report.rank)
            if report.exit_code == 0 or report.requested:
                report = replace(report, last_lines=report.last_lines[-LINES_OF_GOOD_ENDS:])
        data: Dict[str, Any] = json.loads(line(report)[len(LINE_PREFIX) :])
        self._console.report(data)
        self._gang.report(data, urgent)

    def take(self, reports: Sequence[Any]) -> None:
        """Send reports from the ranks' output, in order."""
        steps: List[StepSeen] = []
        for report in without_revised_begins(reports):
            if isinstance(report, StepSeen):
                steps.append(report)
            else:
                self._take_steps(steps)
                steps = []
                self.report(report)
        self._take_steps(steps)

    def _take_steps(self, steps: Sequence[StepSeen]) -> None:
        record: List[Dict[str, Any]] = []
        travelling: List[Dict[str, Any]] = []
        urgent = False
        for report in steps:
            audience = self.steps.choose(report)
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
    """The data of `wire.line`, without the cost of a deep copy."""
    data: Dict[str, Any] = {"report": "StepSeen", **step.__dict__}
    if step.loss is not None and not math.isfinite(step.loss):
        data["loss"] = str(step.loss)
    if step.gradient_norm is not None and not math.isfinite(step.gradient_norm):
        data["gradient_norm"] = str(step.gradient_norm)
    return data


def _json_lines(steps: List[Dict[str, Any]]) -> str:
    """One line for each step; encoding them together takes two thirds of the time. None of the values is free text."""
    return _ENCODER.encode(steps)[1:-1].replace('},{"report":', '}\n{"report":') + "\n"


class GrowingFile:
    """Checks the size of a file whose growth is the program's only sign of progress; `path` "": there is none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._looked_at = float("-inf")

    def grown(self, now: float) -> int:
        """The new size in bytes where the file grew since the last check; 0 where it did not, or none is due.

        A file that is started over shrinks first; then its growth counts again. `now` is in monotonic seconds.
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
