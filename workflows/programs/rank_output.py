"""One rank's output on its way: to its own log, to the launcher's output, to the progress reader, into the tail."""

from __future__ import annotations

from typing import Dict, List, Optional

from workflows.programs.appender import Appender
from workflows.programs.output import Allowance, Line, LineSplitter, Shown, Stamps, Tail
from workflows.programs.progress import Reader, Report

BAR_IDLE_SECONDS = 0.25
"""A bar's newest state has no end until the next one comes; after this silence it is read as it stands."""


class RankOutput:
    """Everything that is done with what a rank prints.

    Args:
        rank: its number, shown in front of relayed lines.
        reader: finds its progress.
        log_path: its own log; "": none.
        appender: writes the log.
        stamps: shared formatter of times.
    """

    def __init__(self, rank: int, reader: Reader, log_path: str, appender: Appender, stamps: Stamps) -> None:
        self.rank = rank
        self.reader = reader
        self.tail = Tail()
        self._log_path = log_path
        self._appender = appender
        self._stamps = stamps
        self._splitters: Dict[int, LineSplitter] = {}
        self._shown: Dict[int, Shown] = {}
        self._allowance = Allowance()
        self._bar_since: Optional[float] = None
        self._relay: List[str] = []

    def open(self, stream: int) -> None:
        """A stream of the rank, by its descriptor."""
        self._splitters[stream] = LineSplitter()
        self._shown[stream] = Shown()

    def feed(self, stream: int, data: bytes, at: float) -> List[Report]:
        """What the rank printed on `stream`; returns the progress in it."""
        lines = self._splitters[stream].feed(data)
        if self._splitters[stream].bar:
            self._bar_since = at
        return self._lines(stream, lines, at)

    def note(self, text: str, at: float) -> None:
        """A line of the launcher's own in the rank's log."""
        if self._log_path:
            self._appender.append(
                self._log_path, f"{self._stamps.of(at)} launcher: {text}\n".encode("utf-8", "replace")
            )

    def close(self, stream: int, at: float) -> List[Report]:
        """The stream has ended."""
        reports = self._lines(stream, self._splitters[stream].close(), at)
        self._write(self._shown[stream].rest(), at)
        return reports

    @property
    def waits_for_bar(self) -> bool:
        """A bar's state stands unread."""
        return self._bar_since is not None

    def idle(self, at: float) -> List[Report]:
        """Read the newest state of a bar that has been silent for a while."""
        if self._bar_since is None or at - self._bar_since < BAR_IDLE_SECONDS:
            return []
        self._bar_since = None
        reports: List[Report] = []
        for splitter in self._splitters.values():
            if splitter.bar:
                reports += self.reader.feed(splitter.bar, at)
        return reports

    def relayed(self) -> str:
        """What goes to the launcher's output now."""
        text, self._relay = "".join(self._relay), []
        return text

    def _lines(self, stream: int, lines: List[Line], at: float) -> List[Report]:
        reports: List[Report] = []
        for line in lines:
            self.tail.add(line)
            reports += self.reader.feed(line.text, at)
        self._write(self._shown[stream].pick(lines, at), at)
        return reports

    def _write(self, lines: List[Line], at: float) -> None:
        if not lines:
            return
        stamp = self._stamps.of(at)
        if self._log_path:
            text = "".join(f"{stamp} {line.text}\n" for line in lines)
            self._appender.append(self._log_path, text.encode("utf-8", "replace"))
        for line in lines:
            withheld = self._allowance.withheld
            if not self._allowance.take(len(line.text) + 40, at):
                continue
            if withheld:
                self._allowance.withheld = 0
                where = f"they are in rank-{self.rank}.log"
                self._relay.append(f"{stamp} [rank{self.rank}]: ... {withheld} lines are not shown here, {where}\n")
            self._relay.append(f"{stamp} [rank{self.rank}]: {line.text}\n")
