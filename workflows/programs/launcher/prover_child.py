"""The prover as a child of the launcher, which starts it, reads from it, and starts it once more when it dies."""

from __future__ import annotations

import contextlib
import os
from typing import List, Optional

from workflows.programs.launcher.options import Options, Place
from workflows.programs.runtime import files
from workflows.wire import CheckpointSeen, from_line

MOST_STARTS = 2
"""It is started again once: a prover that dies twice does so for a reason that a third start would not change."""


class ProverChild:
    """The child process; an empty `argv` means that there is nothing to prove."""

    def __init__(self, argv: List[str]) -> None:
        self._argv = argv
        self._starts = 0
        self._stdin = -1
        self._rest = b""
        self._nan_step: Optional[int] = None
        self.pid = 0
        """0: not running."""
        self.fd = -1
        """Its output, non-blocking; -1: not running."""

    def start(self) -> str:
        """Start it where there is something to prove; why it could not be started, or ""."""
        if not self._argv or self.pid or self._starts >= MOST_STARTS:
            return ""
        self._starts += 1
        in_read, self._stdin = os.pipe()
        self.fd, out_write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._stdin, False)
        try:
            self.pid = os.posix_spawn(
                self._argv[0],
                self._argv,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, in_read, 0), (os.POSIX_SPAWN_DUP2, out_write, 1)],
            )
        except OSError as error:
            self.close()
            return f"the prover cannot be started: {error.strerror}"
        finally:
            os.close(in_read)
            os.close(out_write)
        if self._nan_step is not None:
            self.report_nan(self._nan_step)
        return ""

    def read(self) -> List[CheckpointSeen]:
        """Its findings since the last call."""
        try:
            data = os.read(self.fd, 65536)
        except (BlockingIOError, OSError):
            return []
        if not data:
            os.close(self.fd)
            self.fd = -1
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        found = [from_line(text.decode("utf-8", "replace")) for text in whole]
        return [report for report in found if isinstance(report, CheckpointSeen)]

    def report_nan(self, step: int) -> None:
        """Send it the first step whose loss was not a number."""
        self._nan_step = step
        if self._stdin >= 0:
            with contextlib.suppress(OSError):  # it is gone or stuck: the next one gets the step when it starts
                os.write(self._stdin, b"nan %d\n" % step)

    def request_look(self) -> None:
        """Let it look now: something was saved, and nobody may resume from that before it is proven."""
        if self._stdin >= 0:
            with contextlib.suppress(OSError):  # it is gone or stuck: it looks by itself when it is back
                os.write(self._stdin, b"look\n")

    def let_go(self, ledger: str, resume_from: str) -> None:
        """Tell it that checkpoints nobody needs may go now, but for the one that the ranks resumed from."""
        if self._stdin >= 0:
            with contextlib.suppress(OSError):  # it is gone or stuck: nothing goes then
                os.write(self._stdin, f"surplus {ledger} {resume_from}\n".encode())

    def mark_ended(self) -> None:
        """Note that its process was reaped."""
        self.pid = 0
        self.close()

    def finish(self) -> None:
        """Let it look once more and end."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def close(self) -> None:
        """Drop the pipes."""
        self.finish()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self._rest = b""


def command(options: Options, place: Place) -> List[str]:
    """Command of this pod's prover; empty where it has nothing to do here."""
    wanted = options.decides and place.pod_index == 0 and options.checkpoint_format != "none"
    if not (wanted and place.checkpoint_dir and place.run_dir):
        return []
    values = {
        "directory": place.checkpoint_dir,
        "run_dir": place.run_dir,
        "format": options.checkpoint_format,
        "pattern": options.checkpoint_pattern,
        "keep": options.keep,
        "keep_overwritten": options.keep_overwritten,
        "remove_surplus": options.remove_surplus,
        "keep_every_steps": options.keep_every_steps,
        "counter_restarts": options.counter_restarts,
    }
    # Written out here: importing the prover itself would cost every launcher its memory and start-up time.
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    return [*files.command("prove"), *(f"--{name.replace('_', '-')}={text}" for name, text in texts.items())]
