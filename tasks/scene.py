"""Where a fault is caused: a run, and the cluster whose processes can be broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from profiles.resolve import Resolved
from tasks.cluster import Cluster
from tasks.ledger import Ledger
from tasks.opening import run_folder
from tasks.settings import Settings
from workflows import labels
from workflows.records import AttemptRecord


class Breakable(Cluster, Protocol):
    """A cluster whose processes run on this machine, so that they can be broken: the embedded one, or a test's."""

    def pod_processes(self, pod: str) -> list[int]:
        """Pids of the pod's containers, oldest first."""
        ...

    def lose_node(self, name: str, *, silent: bool = False) -> None:
        """A power cut; unless `silent` the node's condition says so at once."""
        ...

    def hold(self, seconds: float) -> None:
        """Nobody can change anything for so long, as with an API server that hangs."""
        ...


@dataclass(frozen=True)
class Scene:
    """Where a fault is caused."""

    settings: Settings
    ledger: Ledger
    cluster: Breakable
    resolved: Resolved
    attempt: AttemptRecord

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return run_folder(self.resolved, self.attempt.run)

    def pods(self, role: str = "") -> list[str]:
        """Names of the attempt's pods, of one role or all."""
        marks = {labels.RUN: self.attempt.run, labels.ATTEMPT: str(self.attempt.number)}
        if role:
            marks[labels.ROLE] = role
        return [pod["metadata"]["name"] for pod in self.cluster.list("Pod", marks)]
