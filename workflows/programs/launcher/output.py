"""What ranks print: cut into lines, kept in bounded memory, with the time, whatever it is.

Carriage returns end a *transient* line (a progress bar's state that the next one replaces); lines of megabytes come in
pieces; bytes that are no text are shown as replacement characters to people, and kept as they are in the rank's log.

One rank's output on its way: to its own log, to the launcher's output, to the progress reader, into the tail.

One rank's own log: all that it printed, byte by byte, each line behind the time at which it was read.

What is not there: what a bar's states overwrite within a second (the last one before an ordinary line always is), and
the carriage returns of line ends. What is there beside: an end of the last line, where the rank gave none. A line above
64 KiB is written as it comes; where something else was written meanwhile (the other stream, a note), it goes on behind
a time and `GOES_ON`.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, Dict, List, Optional, Tuple

from workflows.programs.progress.reader import ProgressReader, Report
from workflows.programs.runtime.files import Appender

LINE_BYTES = 64 * 1024
"""Longer lines come in pieces."""
TAIL_LINES = 100
TAIL_CHARACTERS = 2000
TAIL_BYTES = 4 * TAIL_CHARACTERS
BAR_SECONDS = 1.0
"""A bar's state is written to logs at most so often."""
_ENDS = re.compile(rb"\n|(?<!\r)\r+(?:\n|(?=[^\n\r]))")
"""Tried at the first carriage return of a run only: else a run without an end is walked through from each of them."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class OutputLine:
    """One line of a rank, or a piece of a long one."""

    raw: bytes
    """Without its end."""
    transient: bool = False
    """Ended by a carriage return: the next line overwrites it on a terminal."""
    more: bool = False
    """It goes on in the next piece."""
    goes_on: bool = False
    """It is not the line's first piece."""

    @property
    def blank(self) -> bool:
        """Nothing to see."""
        return not self.raw.strip()


class LineSplitter:
    """Bytes in, lines out. A line's end may arrive later; what waits for it is bounded by `limit_bytes`."""

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pending = b""
        self._overwriting = False
        self._inside = False
        """Pieces of the present line were given already."""

    @property
    def bar(self) -> str:
        """The newest state of a bar: it stands after a carriage return and ends when the next one comes."""
        return text_of(self._pending) if self._overwriting else ""

    def block(self, data: bytes) -> Optional[bytes]:
        """The lines that `data` completes, in one, each ended by a line feed; None: it must be cut by `feed`.

        Most of what ranks print has no carriage returns and no endless lines, and need not be cut for its log.
        """
        if b"\r" in data or self._overwriting or self._inside or self._pending.endswith(b"\r"):
            return None
        first = data.find(b"\n")
        if (
            len(data) > self._limit_bytes
            or len(self._pending) + (first if first >= 0 else len(data)) > self._limit_bytes
        ):
            return None
        end = data.rfind(b"\n") + 1
        if not end:
            self._pending += data
            return b""
        whole, self._pending = self._pending + data[:end], data[end:]
        return whole

    def feed(self, data: bytes) -> List[OutputLine]:
        """The lines that `data` completes."""
        lines: List[OutputLine] = []
        start = 0
        buffer = self._pending + data
        for end in _ENDS.finditer(buffer):
            self._overwriting = end.group().endswith(b"\r")
            self._take(lines, buffer[start : end.start()], self._overwriting)
            start = end.end()
        self._keep(lines, buffer[start:])
        return lines

    def close(self) -> List[OutputLine]:
        """The last line, where its end never came."""
        lines: List[OutputLine] = []
        rest, self._pending = self._pending.rstrip(b"\r"), b""
        if rest or self._inside:
            self._take(lines, rest, False)
        return lines

    def _take(self, lines: List[OutputLine], raw: bytes, transient: bool) -> None:
        raw = self._pieces(lines, raw)
        if raw or not transient or self._inside:  # a bar's first carriage return ends nothing
            lines.append(OutputLine(raw, transient and not self._inside, goes_on=self._inside))
        self._inside = False

    def _keep(self, lines: List[OutputLine], rest: bytes) -> None:
        text = rest.rstrip(b"\r")
        # A carriage return at the very end decides with the next byte what it is; as many as there are mean one.
        self._pending = self._pieces(lines, text) + (b"\r" if len(text) < len(rest) else b"")

    def _pieces(self, lines: List[OutputLine], raw: bytes) -> bytes:
        """Give away all pieces but the last one, which is returned."""
        start = 0
        while len(raw) - start > self._limit_bytes:
            lines.append(OutputLine(raw[start : start + self._limit_bytes], more=True, goes_on=self._inside))
            self._inside = True
            start += self._limit_bytes
        return raw[start:]


class Tail:
    """The last lines of a rank, both streams in order, and each bar only in its newest state."""

    def __init__(self, lines: int = TAIL_LINES, characters: int = TAIL_CHARACTERS) -> None:
        self._lines: Deque[Tuple[bytes, bool]] = deque(maxlen=lines)
        self._characters = characters

    def add(self, line: OutputLine) -> None:
        """Remember `line`; blank ones and all but the beginning of a long one say nothing."""
        if line.goes_on or line.blank:
            return
        self._end_bar()
        self._lines.append((line.raw[:TAIL_BYTES], line.transient))

    def add_all(self, lines: List[bytes]) -> None:
        """Remember whole lines, none of them transient."""
        kept = [(raw[:TAIL_BYTES], False) for raw in lines if raw.strip()]
        if kept:
            self._end_bar()
            self._lines.extend(kept[-TAIL_LINES:])

    def lines(self) -> List[str]:
        """Oldest first, without colours."""
        return [_COLOUR.sub("", text_of(raw))[: self._characters] for raw, _ in self._lines]

    def _end_bar(self) -> None:
        if self._lines and self._lines[-1][1]:
            self._lines.pop()


class Stamps:
    """Times as logs show them, `2026-11-21T10:02:56.123456Z`; the second is formatted once."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def of(self, at: float) -> str:
        """Unix time `at` as text."""
        second = int(at)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{int((at - second) * 1_000_000):06d}Z"


class Shown:
    """Which transient lines are worth a log's line: one a second, and the last before an ordinary one."""

    def __init__(self, every_seconds: float = BAR_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._shown_at = float("-inf")
        self._held: Tuple[OutputLine, ...] = ()

    def pick(self, lines: List[OutputLine], at: float) -> List[OutputLine]:
        """The lines to write; a bar's last state is never lost."""
        picked: List[OutputLine] = []
        for line in lines:
            if not line.transient:
                picked += [*self._held, line]
                self._held = ()
            elif at - self._shown_at >= self._every_seconds:
                self._shown_at, self._held = at, ()
                picked.append(line)
            else:
                self._held = (line,)
        return picked

    def rest(self) -> List[OutputLine]:
        """What was held back when the stream ends."""
        held, self._held = list(self._held), ()
        return held


class Allowance:
    """How much of a rank's output is relayed: a bucket that fills at `bytes_per_second` up to `burst_bytes`.

    The whole output goes to the rank's own log; the launcher's output ends in the node's container log, which a
    flooding rank must not fill.
    """

    def __init__(self, bytes_per_second: float = 1e6, burst_bytes: float = 4e6) -> None:
        self._rate = bytes_per_second
        self._burst = burst_bytes
        self._left = burst_bytes
        self._at = float("-inf")
        self.withheld = 0
        """Lines not relayed since the last one that was."""

    def take(self, size: int, at: float, lines: int = 1) -> bool:
        """True where `lines` lines of `size` bytes together may be relayed now."""
        if at > self._at:
            self._left = min(self._burst, self._left + (at - self._at) * self._rate)
            self._at = at
        if self._left < size:
            self.withheld += lines
            return False
        self._left -= size
        return True


def text_of(raw: bytes) -> str:
    """As people and patterns see it: what is no text, and what would act on a terminal, is replaced."""
    text = raw.decode("utf-8", "replace")
    return _CONTROL.sub("\ufffd", text) if not text.isprintable() else text


GOES_ON = b"... "


class RankLog:
    """Writes one log.

    Args:
        path: of the file; "": none is written.
        appender: writes it in the background.
        stamps: shared formatter of times.
    """

    def __init__(self, path: str, appender: Appender, stamps: Stamps) -> None:
        self.path = path
        self._appender = appender
        self._stamps = stamps
        self._open: Optional[int] = None
        """The stream whose long line stands at the end of the file, without its end."""

    def block(self, lines: bytes, at: float) -> None:
        """Write whole lines, each ended by a line feed."""
        if self.path:
            stamp = self._stamps.of(at).encode() + b" "
            self._append(self._ended() + stamp + lines[:-1].replace(b"\n", b"\n" + stamp) + b"\n")

    def lines(self, stream: int, lines: List[OutputLine], at: float) -> None:
        """Write lines, or pieces of long ones, of a stream."""
        if not self.path or not lines:
            return
        stamp = self._stamps.of(at).encode() + b" "
        parts: List[bytes] = []
        for line in lines:
            if not line.goes_on:
                parts += (self._ended(), stamp)
            elif self._open != stream:
                parts += (self._ended(), stamp, GOES_ON)
            parts.append(line.raw)
            if line.more:
                self._open = stream
            else:
                self._open = None
                parts.append(b"\n")
        self._append(b"".join(parts))

    def note(self, text: str, at: float) -> None:
        """A line of the launcher's own."""
        if self.path:
            self.block(f"launcher: {text}\n".encode("utf-8", "replace"), at)

    def _ended(self) -> bytes:
        """What ends a line that is open."""
        was, self._open = self._open, None
        return b"" if was is None else b"\n"

    def _append(self, data: bytes) -> None:
        self._appender.append(self.path, data)


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

    def __init__(self, rank: int, reader: ProgressReader, log: RankLog, stamps: Stamps) -> None:
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

    def _lines(self, stream: int, lines: List[OutputLine], at: float) -> List[Report]:
        reports: List[Report] = []
        for line in lines:
            self.tail.add(line)
            if not line.goes_on and self.reader.worth(line.raw):
                reports += self.reader.feed(text_of(line.raw), at)
        self._write(stream, self._shown[stream].pick(lines, at), at)
        return reports

    def _write(self, stream: int, lines: List[OutputLine], at: float) -> None:
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
