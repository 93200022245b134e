"""Standard output of a container whose result somebody refers to."""

from __future__ import annotations

import os

RESULT_LIMIT_BYTES = 256 * 1024
"""Argo's own limit of `outputs.result`."""


class Capture:
    """Standard output of a container whose result is wanted: copied to the log and kept."""

    def __init__(self, log: int) -> None:
        self.descriptor, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.descriptor, False)
        self._log = log
        self._kept = b""
        self.closed = False
        self._finished = False

    def pump(self) -> None:
        """Copy what is there now."""
        while not self.closed:
            try:
                piece = os.read(self.descriptor, 65536)
            except BlockingIOError:
                return
            if not piece:
                self.closed = True
            else:
                os.write(self._log, piece)
                self._kept = (self._kept + piece)[:RESULT_LIMIT_BYTES]

    def finish(self) -> None:
        """Take what is left in the pipe and close it."""
        if not self._finished:
            self.pump()
            self._finished = self.closed = True
            os.close(self.descriptor)
            os.close(self._log)

    def text(self) -> str:
        """The result: standard output without its last newline."""
        return self._kept.decode(errors="replace").removesuffix("\n")
