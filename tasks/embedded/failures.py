"""Keepers that ended wrongly one after the other: what is written about them, and how long nobody starts the next one.

The shell that starts a keeper waits for its end and appends time, exit code and the last lines of `keeper.log` to
`keeper.failures`. A keeper that has settled removes the file. So it holds failures in a row, without progress between.
"""

from __future__ import annotations

import contextlib
import os
import time

FEW = 3
"""So many failures in a row are no accident: from now on whoever needs the keeper is told."""
KILLS_A_FAILURE = 4
"""A kill from outside is no crash; but a machine that is short of memory kills again and again."""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 30.0
"""Between two starts: doubled with every failure. A start costs a tenth of a second of one processor."""
MEMORY_SECONDS = 60.0
"""When nobody has started a keeper for so long the failures before are forgotten: twice the longest wait."""
SETTLED_SECONDS = 2.0
"""A keeper that has lived for so long, after a whole round, makes progress: longer than any burst of its own events."""
RETRY_SECONDS = 5.0
"""Nobody who was told comes back later than this."""
_KILLED = ("exit 137", "exit 143", "zygote ended")
_LINE_CHARACTERS = 300


class Failures:
    """Failures in a row, newest last.

    Args:
        ends: how each ended, e.g. `exit 1`.
        last_line: what the last one said last.
        at: when the last one ended or a start was tried since, seconds since 1970.
    """

    def __init__(self, ends: list[str], last_line: str, at: float) -> None:
        self.ends = ends
        self.last_line = last_line
        self.at = at

    @property
    def weight(self) -> int:
        """How many there are; kills count for less."""
        kills = sum(end in _KILLED for end in self.ends)
        return len(self.ends) - kills + kills // KILLS_A_FAILURE

    @property
    def hopeless(self) -> bool:
        """Whether they are too many for an accident."""
        return self.weight >= FEW

    def wait_seconds(self, now: float) -> float:
        """How long nobody is to start the next keeper, at the time `now`; 0 where one is due."""
        if self.weight == 0 or now < self.at - 1.0:  # the clock was set back: nobody waits for it to catch up
            return 0.0
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(self.weight - 1, 20))
        return max(0.0, self.at + wait - now)

    def message(self, root: str) -> str:
        """What whoever needs the keeper is told; the same words as long as the cause is the same."""
        end, log = self.ends[-1], os.path.join(root, "keeper.log")
        said = f" ({self.last_line})" if self.last_line else ""
        return f"the embedded cluster stands still: its keeper ends at every start, {end}{said}; see {log}"


def failures_path(root: str) -> str:
    """The file."""
    return os.path.join(root, "keeper.failures")


def read_failures(root: str) -> Failures | None:
    """The failures in a row, None where there are none, or none worth remembering."""
    path = failures_path(root)
    try:
        at = os.stat(path).st_mtime
        with open(path, "rb") as file:
            # An empty line ends each of them; what stands behind the last one is being written now.
            entries = file.read().decode(errors="replace").split("\n\n")[:-1]
    except OSError:
        return None
    if not entries or time.time() - at > MEMORY_SECONDS:
        return None
    ends = [entry.partition("\n")[0].partition(" ")[2] for entry in entries]
    told = entries[-1].rpartition("\n  ")[2] if "\n" in entries[-1] else ""
    return Failures(ends, told.strip()[:_LINE_CHARACTERS], at)


def write_failure(root: str, end: str) -> None:
    """Append one: how it ended."""
    with open(failures_path(root), "ab") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {end}\n\n".encode())


def note_start(root: str) -> None:
    """Another start is tried now: nobody else tries for a while. Failures that are long past are forgotten."""
    path = failures_path(root)
    with contextlib.suppress(OSError):
        if time.time() - os.stat(path).st_mtime > MEMORY_SECONDS:
            os.unlink(path)
        else:
            os.utime(path)


def forget_failures(root: str) -> None:
    """The keeper makes progress."""
    with contextlib.suppress(OSError):
        os.unlink(failures_path(root))
