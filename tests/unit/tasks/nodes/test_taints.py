"""A node's taints belong to several writers: ours come and go, the others' stay, whoever writes at the same time."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Unavailable
from profiles.loading.load import load_cluster, load_run, resolve
from profiles.resolve import Resolved
from tasks.cluster import Manifest, using
from tasks.clusters import embedded_cluster
from tasks.context import Right, World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.nodes.by_hand import quarantine, release
from tasks.nodes.marks import TAINT_TRIES
from tasks.settings import Settings
from workflows import labels
from workflows.model.records import NodeRecord

LOST: Manifest = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
TAINT = {"key": labels.QUARANTINE_TAINT, "value": "r-a1-i1", "effect": "NoSchedule"}


class Busy:
    """A cluster whose node controller writes right after each of our first `times` looks."""

    def __init__(self, home: Path, times: int) -> None:
        self.real = embedded_cluster(load_cluster("local"), home)
        self.times = times
        self.written = 0

    def get(self, kind: Any, name: str) -> Manifest | None:
        found = self.real.get(kind, name)
        if self.written < self.times:
            self.written += 1
            theirs = {**LOST, "value": str(self.written)}
            self.real.patch("Node", name, {"spec": {"taints": [*self.taints(name, ours=True), theirs]}})
        return found

    def patch(self, kind: Any, name: str, patch: Manifest) -> Manifest:
        return self.real.patch(kind, name, patch)

    def taints(self, name: str, *, ours: bool) -> list[Manifest]:
        node = self.real.get("Node", name) or {}
        taints: list[Manifest] = node.get("spec", {}).get("taints", [])
        return [item for item in taints if (item["key"] == labels.QUARANTINE_TAINT) is ours]


@pytest.fixture
def resolved() -> Resolved:
    return resolve(load_run("demo"), load_cluster("local"))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ledger = Ledger(settings.ledger_url)
    yield World(settings, ledger, right=None)
    ledger.close()


def in_world(here: World, cluster: Busy, node: str) -> Any:
    here.ledger.set_node(NodeRecord("local", node, "quarantined", "why", 1.0, "r-a1-i1", "cpu"))
    return standing_in(World(here.settings, here.ledger, right=Right("r", 1), now=lambda: 2.0)), using(cluster)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("times", [0, 1, 3])
def test_others_taints_stay_and_ours_is_set(here: World, resolved: Resolved, tmp_path: Path, times: int) -> None:
    cluster = Busy(tmp_path, times)
    world, seam = in_world(here, cluster, "node-1")
    with world, seam:
        assert quarantine.fn(resolved, "node-1", "why", "r:a1:i1") == "node-1 is quarantined"
        assert cluster.written == times
        assert cluster.taints("node-1", ours=True) == [TAINT]
        assert [item["value"] for item in cluster.taints("node-1", ours=False)] == ([str(times)] if times else [])
        release.fn(resolved, "node-1", "repaired")
        assert cluster.taints("node-1", ours=True) == []
        assert len(cluster.taints("node-1", ours=False)) == min(times, 1)
        assert (cluster.real.get("Node", "node-1") or {})["metadata"]["labels"].get(labels.VERDICT) is None


def test_a_node_that_never_rests_is_waited_for(here: World, resolved: Resolved, tmp_path: Path) -> None:
    cluster = Busy(tmp_path, 10 * TAINT_TRIES)
    world, seam = in_world(here, cluster, "node-1")
    with world, seam, pytest.raises(Unavailable, match="node-1 is changed by somebody else"):
        inspect.unwrap(quarantine.fn)(resolved, "node-1", "why", "r:a1:i1")
    assert cluster.written == TAINT_TRIES


def test_a_node_that_is_gone_is_no_failure(here: World, resolved: Resolved, tmp_path: Path) -> None:
    world, seam = in_world(here, Busy(tmp_path, 0), "node-99")
    with world, seam:
        assert "no longer exists" in quarantine.fn(resolved, "node-99", "why", "r:a1:i1")
