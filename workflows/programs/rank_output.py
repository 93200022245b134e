"""One rank's output on its way: to its own log, to the launcher's output, to the progress reader, into the tail."""

from __future__ import annotations

from typing import Dict, List, Optional

from workflows.programs.output import Allowance, Line, LineSplitter, Shown, Stamps, Tail, text_of
from workflows.programs.progress import Reader, Report
from workflows.programs.rank_log import RankLog

BAR_IDLE_SECONDS = 0.25
"""A bar's newest state has no end until the next one comes; after this silence it is read as it stands."""
STAMP_BYTES = 40
"""What stands in front of a relayed line, about."""
_ACTS = bytes([*range(9), 11, 12, *range(14, 27), *range(28, 32), 127])
"""Control characters that `text_of` replaces."""


class RankOutput:
    """Everything that is done with what a rank prints.

    Args:
        rank: its number, shown in front of relayed lines.
        reader: finds its progress.
        log: its own.
        stamps: shared formatter of times.
    """

    def __init__(self, rank: int, reader: Reader, log: RankLog, stamps: Stamps) -> None:
        self.rank = rank
        self.reader = reader
        self.log = log
        self.tail = Tail()
        self._stamps = stamps
        self._splitters: Dict[int, LineSplitter] = {}
        self._shown: Dict[int, Shown] = {}
        self._allowance = Allowance()
        self._bar_since: Optional[float] = None
        self._relay: List[bytes] = []

    def open(self, stream: int) -> None:
        """A stream of the rank, by its descriptor."""
        self._splitters[stream] = LineSplitter()
        self._shown[stream] = Shown()

    def feed(self, stream: int, data: bytes, at: float) -> List[Report]:
        """What the rank printed on `stream`; returns the progress in it."""
        splitter = self._splitters[stream]
        block = splitter.block(data)
        if block is not None:
            return self._block(stream, block, at) if block else []
        lines = splitter.feed(data)
        if splitter.bar:
            self._bar_since = at
        return self._lines(stream, lines, at)

    def close(self, stream: int, at: float) -> List[Report]:
        """The stream has ended."""
        reports = self._lines(stream, self._splitters[stream].close(), at)
        self._write(stream, self._shown[stream].rest(), at)
        self._say_withheld(at)
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

    def relayed(self) -> bytes:
        """What goes to the launcher's output now."""
        if not self._relay:
            return b""
        data, self._relay = b"".join(self._relay), []
        return data

    def _block(self, stream: int, block: bytes, at: float) -> List[Report]:
        """Whole lines, none of them transient or long: what can be done with all at once is done so."""
        held = self._shown[stream].rest()
        if held:
            self._write(stream, held, at)
        self.log.block(block, at)
        lines = block.split(b"\n")
        lines.pop()
        self.tail.add_all(lines)
        plain = block.isascii() and len(block.translate(None, _ACTS)) == len(block)
        self._show_block(block, lines, plain, at)
        reports: List[Report] = []
        if self.reader.worth(block):
            texts = block.decode("ascii").split("\n") if plain else []
            for index, raw in enumerate(lines):
                if self.reader.worth(raw):
                    reports += self.reader.feed(texts[index] if plain else text_of(raw), at)
        return reports

    def _show_block(self, block: bytes, lines: List[bytes], plain: bool, at: float) -> None:
        if not self._may_show(len(block), len(lines), at):
            return
        lead = self._lead(at)
        if plain and b"\n\n" not in block and not block.startswith(b"\n"):
            self._relay.append(lead + block[:-1].replace(b"\n", b"\n" + lead) + b"\n")
        else:
            self._relay += [lead + _shown(raw) + b"\n" for raw in lines if raw.strip()]

    def _lines(self, stream: int, lines: List[Line], at: float) -> List[Report]:
        reports: List[Report] = []
        for line in lines:
            self.tail.add(line)
            if not line.goes_on and self.reader.worth(line.raw):
                reports += self.reader.feed(text_of(line.raw), at)
        self._write(stream, self._shown[stream].pick(lines, at), at)
        return reports

    def _write(self, stream: int, lines: List[Line], at: float) -> None:
        self.log.lines(stream, lines, at)
        shown = [line for line in lines if not line.goes_on and not line.blank]
        if shown and self._may_show(sum(len(line.raw) for line in shown), len(shown), at):
            lead = self._lead(at)
            self._relay += [lead + _shown(line.raw) + (self._rest() if line.more else b"\n") for line in shown]

    def _rest(self) -> bytes:
        return b" ... [%s]\n" % (f"this line goes on in {self._name}" if self.log.path else "it goes on").encode()

    @property
    def _name(self) -> str:
        return f"rank-{self.rank}.log"

    def _lead(self, at: float) -> bytes:
        return f"{self._stamps.of(at)} [rank{self.rank}]: ".encode()

    def _may_show(self, size: int, lines: int, at: float) -> bool:
        """Whether they may be relayed; says how many before them were not."""
        if not self._allowance.take(size + STAMP_BYTES * lines, at, lines):
            return False
        self._say_withheld(at)
        return True

    def _say_withheld(self, at: float) -> None:
        withheld, self._allowance.withheld = self._allowance.withheld, 0
        if withheld:
            said = f"... {withheld} lines are not shown here, they are in {self._name}\n"
            self._relay.append(self._lead(at) + said.encode())


def _shown(raw: bytes) -> bytes:
    return text_of(raw).encode("utf-8", "replace")
