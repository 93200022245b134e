"""One rank's own log: all that it printed, byte by byte, each line behind the time at which it was read.

What is not there: what a bar's states overwrite within a second (the last one before an ordinary line always is), and
the carriage returns of line ends. What is there beside: an end of the last line, where the rank gave none. A line above
64 KiB is written as it comes; where something else was written meanwhile (the other stream, a note), it goes on behind
a time and `GOES_ON`.
"""

from __future__ import annotations

from typing import List, Optional

from workflows.programs.appender import Appender
from workflows.programs.output import Line, Stamps

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

    def lines(self, stream: int, lines: List[Line], at: float) -> None:
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
