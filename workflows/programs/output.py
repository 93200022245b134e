"""What ranks print: cut into lines, kept in bounded memory, with the time, whatever it is.

Carriage returns end a *transient* line (a progress bar's state that the next one replaces); lines of megabytes come in
pieces; bytes that are no text are shown as replacement characters to people, and kept as they are in the rank's log.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, List, Optional, Tuple

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
class Line:
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

    def feed(self, data: bytes) -> List[Line]:
        """The lines that `data` completes."""
        lines: List[Line] = []
        start = 0
        buffer = self._pending + data
        for end in _ENDS.finditer(buffer):
            self._overwriting = end.group().endswith(b"\r")
            self._take(lines, buffer[start : end.start()], self._overwriting)
            start = end.end()
        self._keep(lines, buffer[start:])
        return lines

    def close(self) -> List[Line]:
        """The last line, where its end never came."""
        lines: List[Line] = []
        rest, self._pending = self._pending.rstrip(b"\r"), b""
        if rest or self._inside:
            self._take(lines, rest, False)
        return lines

    def _take(self, lines: List[Line], raw: bytes, transient: bool) -> None:
        raw = self._pieces(lines, raw)
        if raw or not transient or self._inside:  # a bar's first carriage return ends nothing
            lines.append(Line(raw, transient and not self._inside, goes_on=self._inside))
        self._inside = False

    def _keep(self, lines: List[Line], rest: bytes) -> None:
        text = rest.rstrip(b"\r")
        # A carriage return at the very end decides with the next byte what it is; as many as there are mean one.
        self._pending = self._pieces(lines, text) + (b"\r" if len(text) < len(rest) else b"")

    def _pieces(self, lines: List[Line], raw: bytes) -> bytes:
        """Give away all pieces but the last one, which is returned."""
        start = 0
        while len(raw) - start > self._limit_bytes:
            lines.append(Line(raw[start : start + self._limit_bytes], more=True, goes_on=self._inside))
            self._inside = True
            start += self._limit_bytes
        return raw[start:]


class Tail:
    """The last lines of a rank, both streams in order, and each bar only in its newest state."""

    def __init__(self, lines: int = TAIL_LINES, characters: int = TAIL_CHARACTERS) -> None:
        self._lines: Deque[Tuple[bytes, bool]] = deque(maxlen=lines)
        self._characters = characters

    def add(self, line: Line) -> None:
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
        self._held: Tuple[Line, ...] = ()

    def pick(self, lines: List[Line], at: float) -> List[Line]:
        """The lines to write; a bar's last state is never lost."""
        picked: List[Line] = []
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

    def rest(self) -> List[Line]:
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
