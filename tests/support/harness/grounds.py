"""What a stage stands on: the embedded cluster here; a real one in `tests/bed`. The stories are the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from profiles.resolve import Resolved
from tasks.clusters import embedded_cluster
from tests.support.running.waiting import patience
from workflows import labels


class Ground(Protocol):
    """A cluster for stories, and what is asked of it beyond the seam."""

    profile: str
    """Name or path of its cluster profile."""
    deadline_seconds: float
    """Generous: a loaded machine is slow, a broken story hangs for ever."""

    def cluster(self, resolved: Resolved, home: Path) -> Any:
        """The cluster, breakable (`tasks.runs.faults.Breakable`)."""
        ...

    def no_orphans(self, resolved: Resolved, home: Path) -> None:
        """Nothing of the stories runs any more."""
        ...

    def drain(self, resolved: Resolved, home: Path, node: str) -> list[str]:
        """One round of what `kubectl drain` does: cordon, and ask each pod of ours there to go; those still there."""
        ...

    def strike(self, resolved: Resolved, home: Path) -> None:
        """End everything that a story left, mend what it broke."""
        ...


class EmbeddedGround:
    """A cluster in the stage's own home."""

    profile = "local"
    deadline_seconds = patience(90.0)

    def cluster(self, resolved: Resolved, home: Path) -> Any:
        """See `Ground`."""
        return embedded_cluster(resolved.cluster, home)

    def no_orphans(self, resolved: Resolved, home: Path) -> None:
        """Its keeper left too."""
        deadline = time.monotonic() + 15.0
        while left := self.cluster(resolved, home).processes():
            assert time.monotonic() < deadline, [(pid, _command(pid)) for pid in left]
            time.sleep(0.05)

    def drain(self, resolved: Resolved, home: Path, node: str) -> list[str]:
        """Nobody there evicts anything: a cordon is all that a refused eviction leaves anyway."""
        cluster = self.cluster(resolved, home)
        cluster.patch("Node", node, {"spec": {"unschedulable": True}})
        return pods_on(cluster, node)

    def strike(self, resolved: Resolved, home: Path) -> None:
        """See `Ground`."""
        self.cluster(resolved, home).stop()


def pods_on(cluster: Any, node: str) -> list[str]:
    """Pods of runs that are still on a node, and have not ended."""
    return [
        pod["metadata"]["name"]
        for pod in cluster.list("Pod", {})
        if pod["spec"].get("nodeName") == node
        and labels.RUN in pod["metadata"].get("labels", {})
        and pod["status"].get("phase") in ("Pending", "Running")
    ]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
