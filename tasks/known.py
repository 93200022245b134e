"""What the readers of an attempt's watch have seen so far."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tasks.cluster import Kind, Manifest
from tasks.facts import is_ours, jobset_state, node_facts
from workflows.evidence import CoordinatorFacts, NodeFacts
from workflows.records import MarkRecord, StepRow

OURS: tuple[Kind, ...] = ("Pod", "JobSet", "Workflow")
"""Kinds of objects of an attempt that are watched."""


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
    end_untold: bool = False
    """The JobSet has ended, and its pods, which tell how, were not listed since."""
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

    def note(self, kind: Kind, change: str, manifest: Manifest, run: str) -> bool:
        """Take one line of a watch of the run's objects in; whether the pods must be listed, since the JobSet ended."""
        ends = False
        with self.lock:
            table = self.objects.setdefault(kind, {})
            if change == "SYNC":
                table.clear()
                self.listed.discard(kind)
            elif is_ours(manifest, run) or _loses(table, change, manifest):
                name = manifest["metadata"]["name"]
                if change != "DELETED":
                    ends = kind == "JobSet" and _has_ended(manifest) and not _has_ended(table.get(name, {}))
                    self.end_untold = self.end_untold or ends
                    table[name] = manifest
                else:
                    self._note_end(kind, table.pop(name, manifest), manifest, run)
        self.changed.set()
        return ends

    def told_the_end(self) -> None:
        """All pods were noted as they were after the JobSet had ended."""
        with self.lock:
            self.end_untold = False
        self.changed.set()

    @property
    def is_partial(self) -> bool:
        """Whether something may exist that was not told. The caller holds the lock."""
        return self.end_untold or not self.listed.issuperset(OURS)

    def _note_end(self, kind: Kind, last: Manifest, manifest: Manifest, run: str) -> None:
        if kind == "Pod":
            ours = is_ours(manifest, run)
            name = manifest["metadata"]["name"]
            self.gone[name] = manifest if ours else last | {"status": manifest.get("status", {})}
        elif manifest.get("status", {}).get("reason") == "BrokenObject":
            self.why_gone = str(manifest["status"].get("message", ""))

    def vanished(self) -> str:
        """Why nothing of the attempt exists; "" where something does, or may. The caller holds the lock."""
        gone = not self.is_partial and not any(self.objects.get(kind) for kind in OURS)
        return self.why_gone if gone else ""


def _loses(table: dict[str, Manifest], change: str, manifest: Manifest) -> bool:
    """Whether it is the end of an object of ours that left nothing but its name: its file was broken."""
    return change == "DELETED" and manifest["metadata"]["name"] in table


def _has_ended(jobset: Manifest) -> bool:
    return jobset_state(jobset) in ("Completed", "Failed")
