"""What ranks print: cut into lines, kept in bounded memory, with the time, whatever it is.

Carriage returns end a *transient* line (a progress bar's state that the next one replaces); lines of megabytes are cut;
bytes that are no text are shown as replacement characters.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, List, Tuple

LINE_BYTES = 64 * 1024
"""Longer lines are cut here in logs."""
TAIL_LINES = 100
TAIL_CHARACTERS = 2000
BAR_SECONDS = 1.0
"""A bar's state is written to logs at most so often."""
_ENDS = re.compile(rb"\n|(?<!\r)\r+(?:\n|(?=[^\n\r]))")
"""Tried at the first carriage return of a run only: else a run without an end is walked through from each of them."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Line:
    """One line of a rank."""

    text: str
    transient: bool = False
    """Ended by a carriage return: the next line overwrites it on a terminal."""


class LineSplitter:
    """Bytes in, lines out. A line's end may arrive later; what waits for it is bounded by `limit_bytes`."""

    def __init__(self, limit_bytes: int = LINE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pending = b""
        self._cut = 0
        self._overwriting = False

    @property
    def bar(self) -> str:
        """The newest state of a bar: it stands after a carriage return and ends when the next one comes."""
        return _text(self._pending) if self._overwriting else ""

    def feed(self, data: bytes) -> List[Line]:
        """The lines that `data` completes."""
        lines: List[Line] = []
        start = 0
        buffer = self._pending + data
        for end in _ENDS.finditer(buffer):
            self._overwriting = end.group().endswith(b"\r")
            self._take(lines, buffer[start : end.start()], self._overwriting)
            start = end.end()
        self._keep(buffer[start:])
        return lines

    def close(self) -> List[Line]:
        """The last line, where its end never came."""
        lines: List[Line] = []
        self._take(lines, self._pending.rstrip(b"\r"), False)
        self._pending = b""
        return lines

    def _take(self, lines: List[Line], raw: bytes, transient: bool) -> None:
        cut, self._cut = self._cut + max(0, len(raw) - self._limit_bytes), 0
        text = _text(raw[: self._limit_bytes])
        if cut:
            text += f" ... [{cut} more bytes of this line are not kept]"
        if text.strip():
            lines.append(Line(text, transient))

    def _keep(self, rest: bytes) -> None:
        if rest.endswith(b"\r\r"):  # as many as there are mean the same as one
            rest = rest.rstrip(b"\r") + b"\r"
        over = len(rest) - self._limit_bytes
        # One byte more is kept: a carriage return at the very end decides with the next byte what it is.
        if over > 1:
            self._cut += over - 1
            rest = rest[: self._limit_bytes] + rest[-1:]
        self._pending = rest


class Tail:
    """The last lines of a rank, both streams in order, and each bar only in its newest state."""

    def __init__(self, lines: int = TAIL_LINES, characters: int = TAIL_CHARACTERS) -> None:
        self._lines: Deque[Line] = deque(maxlen=lines)
        self._characters = characters

    def add(self, line: Line) -> None:
        """Remember `line`, without colours."""
        if self._lines and self._lines[-1].transient:
            self._lines.pop()
        text = _COLOUR.sub("", line.text) if "\x1b" in line.text else line.text
        self._lines.append(Line(text[: self._characters], line.transient))

    def lines(self) -> List[str]:
        """Oldest first."""
        return [line.text for line in self._lines]


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

    def take(self, size: int, at: float) -> bool:
        """True where a line of `size` bytes may be relayed now."""
        if at > self._at:
            self._left = min(self._burst, self._left + (at - self._at) * self._rate)
            self._at = at
        if self._left < size:
            self.withheld += 1
            return False
        self._left -= size
        return True


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return _CONTROL.sub("\ufffd", text) if not text.isprintable() else text
