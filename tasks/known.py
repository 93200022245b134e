"""What the readers of an attempt's watch have seen so far."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tasks.cluster import Manifest
from tasks.facts import node_facts
from workflows.evidence import CoordinatorFacts, NodeFacts
from workflows.records import MarkRecord, StepRow


@dataclass
class Known:
    """What the readers have seen so far. Guarded by `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Event = field(default_factory=threading.Event)
    objects: dict[str, dict[str, Manifest]] = field(default_factory=lambda: {})
    """Of the attempt, by kind and name."""
    nodes: dict[str, NodeFacts] = field(default_factory=dict[str, NodeFacts])
    """All of the cluster: of many thousand no more is kept than is asked for."""
    gone: dict[str, Manifest] = field(default_factory=lambda: {})
    """Pods that were deleted while we watched."""
    coordinator: CoordinatorFacts | None = None
    unheard_since: float | None = None
    """Since when the coordinator has not answered although the cluster did."""
    checkpoints: tuple[dict[str, Any], ...] = ()
    steps: list[StepRow] = field(default_factory=lambda: [])
    moments: list[MarkRecord] = field(default_factory=lambda: [])
    pending_since: float | None = None
    away: dict[str, tuple[float, str]] = field(default_factory=lambda: {})
    """Since when a reader has got no answer, and why, by kind."""
    why_gone: str = "deleted by somebody"
    """What became of the attempt's own objects, where they are gone."""
    listed: set[str] = field(default_factory=set[str])
    """Kinds of which everything that exists was told."""
    unreached: tuple[str, ...] = ()
    """Nodes that are not ready and whose kubelets the cluster does not reach."""

    def nodes_of(self, names: Iterable[str]) -> tuple[NodeFacts, ...]:
        """Those of them that are known, by name; the caller holds the lock."""
        return tuple(self.nodes[name] for name in sorted(names) if name in self.nodes)

    def note_node(self, change: str, manifest: Manifest) -> None:
        """Take one line of a watch of nodes in.

        A node tells every few minutes that it lives, and there are thousands: only what is news wakes anybody.
        """
        with self.lock:
            if change == "SYNC":
                self.nodes.clear()
                self.listed.discard("Node")
            elif change == "DELETED":
                self.nodes.pop(manifest["metadata"]["name"], None)
            else:
                facts = node_facts(manifest)
                if self.nodes.get(facts.name) == facts:
                    return
                self.nodes[facts.name] = facts
        self.changed.set()
