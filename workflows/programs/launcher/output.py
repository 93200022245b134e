"""Output of ranks: split into lines for the rank's log, the launcher's output, the progress reader and the tail.

A carriage return ends a *transient* line (the state of a progress bar, which the next one replaces); lines of megabytes
come in pieces. People see replacement characters for bytes that are not text; the rank's log keeps the bytes.

The log of a rank has all that it printed, byte by byte, each line behind the time at which it was read. It lacks states
of bars that were overwritten within a second (but never the last one before an ordinary line) and the carriage returns
of line ends; it adds an end to the last line, where the rank gave none. A line above 64 KiB is written as it comes;
where something else was written meanwhile (the other stream, a note), it continues behind a time and `CONTINUATION`.
Values that the profile reads from Secrets are hidden in all of it, but in one that the border of two pieces cuts.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Deque, Dict, Iterable, List, Optional, Sequence, Tuple

from workflows.programs.progress.reader import ProgressReader, Report
from workflows.programs.runtime.files import Appender
from workflows.programs.runtime.text import is_visible, visible

LINE_BYTES = 64 * 1024
"""Longer lines come in pieces."""
TAIL_LINES = 100
TAIL_CHARACTERS = 2000
TAIL_BYTES = 4 * TAIL_CHARACTERS
HIDDEN_CHARACTERS = 6
BAR_SECONDS = 1.0
"""Shortest time between two states of a bar in the logs."""
_ENDS = re.compile(rb"\n|(?<!\r)\r+(?:\n|(?=[^\n\r]))")
"""Matches only at the first of several carriage returns; else a long run of them would take quadratic time."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

CONTINUATION = b"... "

BAR_IDLE_SECONDS = 0.25
"""After this silence the newest state of a bar is read, although only the next state ends it."""
STAMP_BYTES = 40
"""About the size of the prefix of a relayed line."""


@dataclass(frozen=True)
class OutputLine:
    """One line of a rank, or a piece of a long one."""

    raw: bytes
    """Without its end."""
    is_transient: bool = False
    """Ended by a carriage return: the next line overwrites it on a terminal."""
    is_continued: bool = False
    """Whether the next piece continues it."""
    is_continuation: bool = False
    """Whether it is not the line's first piece."""

    @property
    def is_blank(self) -> bool:
        """Whether it shows nothing."""
        return not self.raw.strip()


class LineSplitter:
    """Splits bytes into lines; an unfinished line is buffered up to `limit_bytes`."""

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pending = b""
        self._overwriting = False
        self._inside = False
        """Whether pieces of the present line were returned already."""

    @property
    def bar(self) -> str:
        """The newest state of a bar, which only the next carriage return ends."""
        return printable_text(self._pending) if self._overwriting else ""

    def block(self, data: bytes) -> Optional[bytes]:
        """All lines that `data` completes as one block, each ended by a line feed; None: only `feed` can split it.

        Most output has no carriage returns and no endless lines, and need not be split for the log.
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
        """The last line, if it has no end."""
        lines: List[OutputLine] = []
        rest, self._pending = self._pending.rstrip(b"\r"), b""
        if rest or self._inside:
            self._take(lines, rest, False)
        return lines

    def _take(self, lines: List[OutputLine], raw: bytes, transient: bool) -> None:
        raw = self._pieces(lines, raw)
        if raw or not transient or self._inside:  # a bar's first carriage return ends nothing
            lines.append(OutputLine(raw, transient and not self._inside, is_continuation=self._inside))
        self._inside = False

    def _keep(self, lines: List[OutputLine], rest: bytes) -> None:
        text = rest.rstrip(b"\r")
        # Only the next byte tells what a carriage return at the very end is; several of them count as one.
        self._pending = self._pieces(lines, text) + (b"\r" if len(text) < len(rest) else b"")

    def _pieces(self, lines: List[OutputLine], raw: bytes) -> bytes:
        """Add all pieces but the last one to `lines`, and return that one."""
        start = 0
        while len(raw) - start > self._limit_bytes:
            lines.append(
                OutputLine(raw[start : start + self._limit_bytes], is_continued=True, is_continuation=self._inside)
            )
            self._inside = True
            start += self._limit_bytes
        return raw[start:]


class Tail:
    """The last lines of a rank, both streams in order, and each bar only in its newest state."""

    def __init__(self, lines: int = TAIL_LINES, characters: int = TAIL_CHARACTERS) -> None:
        self._lines: Deque[Tuple[bytes, bool]] = deque(maxlen=lines)
        self._characters = characters

    def add(self, line: OutputLine) -> None:
        """Keep `line`, unless it is blank or a later piece of a long one."""
        if line.is_continuation or line.is_blank:
            return
        self._end_bar()
        self._lines.append((line.raw[:TAIL_BYTES], line.is_transient))

    def add_all(self, lines: List[bytes]) -> None:
        """Keep whole lines, none of them transient."""
        kept = [(raw[:TAIL_BYTES], False) for raw in lines if raw.strip()]
        if kept:
            self._end_bar()
            self._lines.extend(kept[-TAIL_LINES:])

    def lines(self) -> List[str]:
        """Oldest first, without colours."""
        return [_COLOUR.sub("", printable_text(raw))[: self._characters] for raw, _ in self._lines]

    def _end_bar(self) -> None:
        if self._lines and self._lines[-1][1]:
            self._lines.pop()


class TimestampFormatter:
    """Formats times for logs, `2026-11-21T10:02:56.123456Z`; each second is formatted once."""

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


class TransientFilter:
    """Chooses the transient lines for logs: one a second, and the last before an ordinary line."""

    def __init__(self, every_seconds: float = BAR_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._shown_at = float("-inf")
        self._held: Tuple[OutputLine, ...] = ()

    def pick(self, lines: List[OutputLine], at: float) -> List[OutputLine]:
        """The lines to write; a bar's last state is never lost."""
        picked: List[OutputLine] = []
        for line in lines:
            if not line.is_transient:
                picked += [*self._held, line]
                self._held = ()
            elif at - self._shown_at >= self._every_seconds:
                self._shown_at, self._held = at, ()
                picked.append(line)
            else:
                self._held = (line,)
        return picked

    def rest(self) -> List[OutputLine]:
        """The line that is still held back when the stream ends."""
        held, self._held = list(self._held), ()
        return held


class RelayBudget:
    """Limit of the output that is relayed: a token bucket that fills at `bytes_per_second` up to `burst_bytes`.

    A rank's own log has all of its output; the launcher's output goes to the node's container log, which a flooding
    rank must not fill.
    """

    def __init__(self, bytes_per_second: float = 1e6, burst_bytes: float = 4e6) -> None:
        self._rate = bytes_per_second
        self._burst = burst_bytes
        self._left = burst_bytes
        self._at = float("-inf")
        self.withheld = 0
        """Lines withheld since the last relayed one."""

    def take(self, size: int, at: float, lines: int = 1) -> bool:
        """Whether `lines` lines of together `size` bytes may be relayed now."""
        if at > self._at:
            self._left = min(self._burst, self._left + (at - self._at) * self._rate)
            self._at = at
        if self._left < size:
            self.withheld += lines
            return False
        self._left -= size
        return True


def printable_text(raw: bytes) -> str:
    """Text for people and patterns: bytes that are not text or would control a terminal are replaced."""
    return visible(raw.decode("utf-8", "replace"))


class RankLog:
    """Writes the log of one rank at `path`, in the background; "": writes none."""

    def __init__(self, path: str, appender: Appender, stamps: TimestampFormatter) -> None:
        self.path = path
        self._appender = appender
        self._stamps = stamps
        self._open: Optional[int] = None
        """Stream whose unfinished line is the last one in the file."""

    def block(self, lines: bytes, at: float) -> None:
        """Write whole lines, each ended by a line feed."""
        if self.path:
            stamp = self._stamps.of(at).encode() + b" "
            self._append(self._open_line_end() + stamp + lines[:-1].replace(b"\n", b"\n" + stamp) + b"\n")

    def lines(self, stream: int, lines: List[OutputLine], at: float) -> None:
        """Write lines, or pieces of long ones, of a stream."""
        if not self.path or not lines:
            return
        stamp = self._stamps.of(at).encode() + b" "
        parts: List[bytes] = []
        for line in lines:
            if not line.is_continuation:
                parts += (self._open_line_end(), stamp)
            elif self._open != stream:
                parts += (self._open_line_end(), stamp, CONTINUATION)
            parts.append(line.raw)
            if line.is_continued:
                self._open = stream
            else:
                self._open = None
                parts.append(b"\n")
        self._append(b"".join(parts))

    def note(self, text: str, at: float) -> None:
        """Write a line of the launcher."""
        if self.path:
            self.block(f"launcher: {text}\n".encode("utf-8", "replace"), at)

    def _open_line_end(self) -> bytes:
        """Line end for an unfinished line."""
        was, self._open = self._open, None
        return b"" if was is None else b"\n"

    def _append(self, data: bytes) -> None:
        self._appender.append(self.path, data)


def hidden_words(values: Iterable[str]) -> Tuple[bytes, ...]:
    """What of some secrets must not be shown: each of their lines, the longest first.

    Shorter ones than `HIDDEN_CHARACTERS` stand in innocent words too, and would tell of themselves by their absence.
    """
    lines = {line.strip() for value in values for line in value.splitlines()}
    found = [line.encode("utf-8", "surrogateescape") for line in lines if len(line) >= HIDDEN_CHARACTERS]
    return tuple(sorted(found, key=len, reverse=True))


class RankOutput:
    """Handles everything that a rank prints; `reader` finds its progress. `hidden` is written and told as `***`."""

    def __init__(
        self,
        rank: int,
        reader: ProgressReader,
        log: RankLog,
        stamps: TimestampFormatter,
        hidden: Sequence[bytes] = (),
    ) -> None:
        self._hidden = hidden
        self.rank = rank
        self.reader = reader
        self.log = log
        self.tail = Tail()
        self._stamps = stamps
        self._splitters: Dict[int, LineSplitter] = {}
        self._shown: Dict[int, TransientFilter] = {}
        self._allowance = RelayBudget()
        self._bar_since: Optional[float] = None
        self._relay: List[bytes] = []

    def open(self, stream: int) -> None:
        """Add a stream of the rank, by its descriptor."""
        self._splitters[stream] = LineSplitter()
        self._shown[stream] = TransientFilter()

    def feed(self, stream: int, data: bytes, at: float) -> List[Report]:
        """Handle output on `stream`; the progress in it."""
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
        self._note_withheld(at)
        return reports

    @property
    def waits_for_bar(self) -> bool:
        """Whether the newest state of a bar is unread."""
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

    def take_relayed(self) -> bytes:
        """Remove and return the bytes for the launcher's output."""
        if not self._relay:
            return b""
        data, self._relay = b"".join(self._relay), []
        return data

    def _block(self, stream: int, block: bytes, at: float) -> List[Report]:
        """Handle whole lines at once, none of them transient or long."""
        block = self._shown_of(block)
        held = self._shown[stream].rest()
        if held:
            self._write(stream, held, at)
        self.log.block(block, at)
        lines = block.split(b"\n")
        lines.pop()
        self.tail.add_all(lines)
        plain = is_visible(block)
        self._show_block(block, lines, plain, at)
        reports: List[Report] = []
        if self.reader.may_match(block):
            texts = block.decode("ascii").split("\n") if plain else []
            for index, raw in enumerate(lines):
                if self.reader.may_match(raw):
                    reports += self.reader.feed(texts[index] if plain else printable_text(raw), at)
        return reports

    def _shown_of(self, raw: bytes) -> bytes:
        for word in self._hidden:
            raw = raw.replace(word, b"***")
        return raw

    def _show_block(self, block: bytes, lines: List[bytes], plain: bool, at: float) -> None:
        if not self._may_show(len(block), len(lines), at):
            return
        lead = self._lead(at)
        if plain and b"\n\n" not in block and not block.startswith(b"\n"):
            self._relay.append(lead + block[:-1].replace(b"\n", b"\n" + lead) + b"\n")
        else:
            self._relay += [lead + _printable_bytes(raw) + b"\n" for raw in lines if raw.strip()]

    def _lines(self, stream: int, lines: List[OutputLine], at: float) -> List[Report]:
        reports: List[Report] = []
        if self._hidden:
            lines = [replace(line, raw=self._shown_of(line.raw)) for line in lines]
        for line in lines:
            self.tail.add(line)
            if not line.is_continuation and self.reader.may_match(line.raw):
                reports += self.reader.feed(printable_text(line.raw), at)
        self._write(stream, self._shown[stream].pick(lines, at), at)
        return reports

    def _write(self, stream: int, lines: List[OutputLine], at: float) -> None:
        self.log.lines(stream, lines, at)
        shown = [line for line in lines if not line.is_continuation and not line.is_blank]
        if shown and self._may_show(sum(len(line.raw) for line in shown), len(shown), at):
            lead = self._lead(at)
            self._relay += [
                lead
                + _printable_bytes(line.raw)
                + (
                    (
                        b" ... [%s]\n"
                        % (f"this line goes on in {self._name}" if self.log.path else "it goes on").encode()
                    )
                    if line.is_continued
                    else b"\n"
                )
                for line in shown
            ]

    @property
    def _name(self) -> str:
        return f"rank-{self.rank}.log"

    def _lead(self, at: float) -> bytes:
        return f"{self._stamps.of(at)} [rank{self.rank}]: ".encode()

    def _may_show(self, size: int, lines: int, at: float) -> bool:
        """Whether the lines may be relayed; first notes how many before them were withheld."""
        if not self._allowance.take(size + STAMP_BYTES * lines, at, lines):
            return False
        self._note_withheld(at)
        return True

    def _note_withheld(self, at: float) -> None:
        withheld, self._allowance.withheld = self._allowance.withheld, 0
        if withheld:
            said = f"... {withheld} lines are not shown here, they are in {self._name}\n"
            self._relay.append(self._lead(at) + said.encode())


def _printable_bytes(raw: bytes) -> bytes:
    return printable_text(raw).encode("utf-8", "replace")
