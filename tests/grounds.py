"""What a stage stands on: the embedded cluster here; a real one in `tests/bed`. The stories are the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from profiles.resolve import Resolved
from tasks.clusters import embedded_cluster


class Ground(Protocol):
    """A cluster for stories, and what is asked of it beyond the seam."""

    profile: str
    """Name or path of its cluster profile."""
    deadline_seconds: float
    """Generous: a loaded machine is slow, a broken story hangs for ever."""

    def cluster(self, resolved: Resolved, home: Path) -> Any:
        """The cluster, breakable (`tasks.scene.Breakable`)."""
        ...

    def no_orphans(self, resolved: Resolved, home: Path) -> None:
        """Nothing of the stories runs any more."""
        ...

    def strike(self, resolved: Resolved, home: Path) -> None:
        """End everything that a story left, mend what it broke."""
        ...


class EmbeddedGround:
    """A cluster in the stage's own home."""

    profile = "local"
    deadline_seconds = 90.0

    def cluster(self, resolved: Resolved, home: Path) -> Any:
        """See `Ground`."""
        return embedded_cluster(resolved.cluster, home)

    def no_orphans(self, resolved: Resolved, home: Path) -> None:
        """Its keeper left too."""
        deadline = time.monotonic() + 15.0
        while left := self.cluster(resolved, home).processes():
            assert time.monotonic() < deadline, [(pid, _command(pid)) for pid in left]
            time.sleep(0.02)

    def strike(self, resolved: Resolved, home: Path) -> None:
        """See `Ground`."""
        self.cluster(resolved, home).stop()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
