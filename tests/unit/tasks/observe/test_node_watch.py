"""The table of nodes: what changed, what turned, lists that begin anew, clusters that do not answer; marks on nodes."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.cluster import ClusterProfile
from profiles.errors import Refused, Unavailable
from profiles.vocabulary import FaultClass, VerdictWord
from tasks.cluster import Manifest, Seen
from tasks.clusters import embedded_cluster
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.store import locks
from tasks.nodes.marks import Mark, Marker, Order, mark_of, set_mark
from tasks.observe.nodes import pool_node
from tasks.observe.reflector import Bell, NodeWatch
from tests.support.faults.node_faults import entry, inject, local, quarantined
from tests.support.running.waiting import patience
from workflows import labels as workflows_labels
from workflows.model.nodes import MESSAGE_CHARACTERS, Node, NodeFinding, pool_of, taint_manifest

FINDING = NodeFinding("node-1", "cpu", "KernelDeadlock", VerdictWord.FAIL, FaultClass.NODE_LOST, "it hangs", 5.0)
NOW = 1_795_324_560.0
DEADLINE_SECONDS = patience(30.0)


def node(name: str, version: str = "1", pool: str = "cpu", **conditions: str) -> Manifest:
    return {
        "metadata": {"name": name, "resourceVersion": version, "labels": {workflows_labels.POOL: pool}},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]},
    }


def watch(cluster: Any = None, now: Callable[[], float] = lambda: 7.0) -> NodeWatch:
    return NodeWatch(cluster, local(), now, lambda: None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    made = embedded_cluster(local(), tmp_path)
    yield made
    made.stop()


def names(nodes: list[Node]) -> set[str]:
    return {item.name for item in nodes}


def test_what_is_kept_of_a_node() -> None:
    manifest = node("n", "42", KernelDeadlock="True")
    manifest["metadata"] |= {"creationTimestamp": "2026-11-22T05:16:00Z", "managedFields": ["a lot"]}
    manifest["status"]["conditions"] = [entry("KernelDeadlock", message="x" * 1000)]
    taint = {"key": "a", "value": "b", "effect": "NoExecute", "timeAdded": "2026-11-22T05:16:00Z"}
    manifest["spec"] = {"unschedulable": True, "taints": [taint, {"key": "c", "effect": "NoSchedule"}]}
    seen = pool_node(manifest, local())
    assert seen is not None
    assert (seen.version, seen.created_at, seen.cordoned, seen.leaving) == ("42", NOW, True, False)
    assert len(seen.conditions[0].message) == MESSAGE_CHARACTERS
    assert [taint_manifest(item) for item in seen.taints] == manifest["spec"]["taints"], "written back as it was read"


def test_nodes_of_no_pool_are_nobodys() -> None:
    assert pool_node(node("n", pool="other"), local()) is None
    profile = ClusterProfile.model_validate({**local().model_dump(), "engine": "kubernetes"})
    assert pool_of({}, profile) is not None, "a pool without labels on Kubernetes takes every node"


def test_only_what_changed_is_given_out() -> None:
    seen = watch()
    for name in ("a", "b", "c"):
        seen.note("ADDED", node(name))
    assert len(seen.changed(2)) == 2
    assert len(seen.changed(9)) == 1
    assert not seen.has_changed
    seen.note("MODIFIED", node("b", "2"))
    seen.note("DELETED", node("c"))
    assert [(item.name, item.version) for item in seen.changed(9)] == [("b", "2")]
    seen.look_again(["a", "gone"])
    assert names(seen.changed(9)) == {"a"}


def test_what_we_saw_turning_is_remembered() -> None:
    seen = watch()
    seen.note("ADDED", node("a", Link="True", Other="False"))
    assert seen.turned("a") == {}, "it may have stood for long"
    seen.note("MODIFIED", node("a", "2", Link="True", Other="True", New="True"))
    assert seen.turned("a") == {"Other": 7.0, "New": 7.0}
    seen.note("DELETED", node("a"))
    assert seen.turned("a") == {}


def test_a_list_that_begins_anew_forgets_what_is_gone() -> None:
    seen = watch()
    seen.note("ADDED", node("a"))
    seen.note("SYNC", {})
    seen.note("ADDED", node("b"))
    assert set(seen.names()) == {"b"}
    seen.note("MODIFIED", node("b", "2", pool="other"))
    assert seen.names() == [], "it was given to another pool"


class Stuttering:
    """A cluster whose watch fails in a new way each time it is asked, then tells one node and waits for the end."""

    def __init__(self) -> None:
        self.since: list[str | None] = []
        self.ended = threading.Event()

    def watch(self, kind: str, labels: Any, *, since: str | None, timeout_seconds: float) -> Iterator[Seen]:
        del labels, timeout_seconds
        assert kind == "Node"
        self.since.append(since)
        match len(self.since):
            case 1:
                yield Seen("ADDED", node("old"), "5")
                raise Unavailable("away", 0.001)
            case 2:
                raise Refused("list nodes", "no")
            case 3:
                raise KeyError("metadata")
            case _:
                yield Seen("ADDED", node("new"), "9")
                self.ended.wait()


def test_a_watch_goes_on_where_it_stood_and_begins_anew_after_a_refusal() -> None:
    cluster, bell = Stuttering(), Bell()
    seen = NodeWatch(cluster, local(), lambda: 7.0, bell.ring)  # type: ignore[arg-type]
    with seen:
        said: set[str] = set()
        while set(seen.names()) != {"new"}:
            bell.wait(DEADLINE_SECONDS)
            said.add(seen.away[1] if seen.away else "")
        cluster.ended.set()
    assert cluster.since[:4] == [None, "5", None, None]
    assert seen.away is None
    assert {"list nodes: no", "KeyError: 'metadata'"} <= said, "a mistake of ours does not leave it deaf"


class Quiet:
    """A cluster that fails once, and then has nothing to tell."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.seconds: list[float] = []
        self.ended = threading.Event()

    def watch(self, kind: str, labels: Any, *, since: str | None, timeout_seconds: float) -> Iterator[Seen]:
        del kind, labels, since
        self.seconds.append(timeout_seconds)
        self.ring()
        if len(self.seconds) == 1:
            raise Unavailable("away", 0.001)
        if len(self.seconds) > 2:
            self.ended.wait()
        yield from ()


def test_a_quiet_cluster_that_answers_again_is_not_away() -> None:
    bell = Bell()
    cluster = Quiet(bell.ring)
    with NodeWatch(cluster, local(), lambda: 7.0, bell.ring) as seen:  # type: ignore[arg-type]
        while len(cluster.seconds) < 3:
            bell.wait(DEADLINE_SECONDS)
        assert seen.away is None
        cluster.ended.set()
    assert cluster.seconds[0] == cluster.seconds[2] > cluster.seconds[1]


def test_without_descriptors_it_is_away_and_hears_again(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell, found, full = Bell(), locks.holder_descriptor, [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    def holder_descriptor(path: str) -> int | None:
        if full:
            raise full.pop()
        return found(path)

    monkeypatch.setattr(locks, "holder_descriptor", holder_descriptor)
    with NodeWatch(cluster, local(), lambda: 7.0, bell.ring) as seen:
        said: set[str] = set()
        while not said:
            bell.wait(DEADLINE_SECONDS)
            said |= {seen.away[1]} if seen.away else set()
        cluster.patch("Node", "node-0", {"metadata": {"annotations": {"example.com/at": "1"}}})
        while seen.away:
            bell.wait(DEADLINE_SECONDS)
    assert all(os.strerror(errno.EMFILE) in one for one in said)


def test_a_mark_is_one_patch_and_is_taken_back_whole(cluster: EmbeddedCluster) -> None:
    theirs = {"key": "theirs", "value": "x", "effect": "NoSchedule"}
    cluster.patch("Node", "node-1", {"spec": {"taints": [theirs]}})
    seen = pool_node(cluster.get("Node", "node-1") or {}, local())
    before = int((cluster.get("Node", "node-1") or {})["metadata"]["resourceVersion"])
    assert set_mark(cluster, "node-1", mark_of(FINDING, NOW), seen)
    marked = cluster.get("Node", "node-1") or {}
    assert int(marked["metadata"]["resourceVersion"]) == before + 1
    assert marked["spec"]["taints"][0] == theirs
    assert quarantined(cluster) == {"node-1": "node_lost"}
    assert marked["metadata"]["labels"][workflows_labels.VERDICT] == "fail"
    evidence = json.loads(marked["metadata"]["annotations"][workflows_labels.VERDICT_EVIDENCE])
    assert evidence == {"check": "KernelDeadlock", "verdict": "fail", "class": "node_lost", "evidence": "it hangs"}
    assert marked["metadata"]["annotations"][workflows_labels.VERDICT_AT] == "2026-11-22T05:16:00Z"
    assert set_mark(cluster, "node-1", Mark())
    clean = cluster.get("Node", "node-1") or {}
    assert clean["spec"]["taints"] == [theirs]
    ours = (workflows_labels.VERDICT, workflows_labels.VERDICT_EVIDENCE, workflows_labels.VERDICT_AT)
    assert not {*clean["metadata"]["labels"], *clean["metadata"].get("annotations", {})} & {*ours}


def test_a_node_that_changed_since_it_was_seen_is_read_again(cluster: EmbeddedCluster) -> None:
    seen = pool_node(cluster.get("Node", "node-1") or {}, local())
    theirs = {"key": "new", "value": "x", "effect": "NoSchedule"}
    cluster.patch("Node", "node-1", {"spec": {"taints": [theirs]}})
    assert set_mark(cluster, "node-1", mark_of(FINDING, NOW), seen)
    assert (cluster.get("Node", "node-1") or {})["spec"]["taints"][0] == theirs


def test_marks_are_set_side_by_side_and_each_once(cluster: EmbeddedCluster) -> None:
    bell = Bell()
    with Marker(cluster, wake=bell.ring) as marker:
        for name in ("node-1", "node-2", "node-1", "gone"):
            marker.submit(Order(f"{name}/x/1", name, mark_of(FINDING, NOW)))
        ended = marker.wait()
    assert {item.order.node: item.there for item in ended} == {"node-1": True, "node-2": True, "gone": False}
    assert quarantined(cluster).keys() == {"node-1", "node-2"}
    assert marker.under_way == 0


def test_a_mark_that_is_refused_is_told(cluster: EmbeddedCluster) -> None:
    class Forbidding:
        def get(self, kind: str, name: str) -> Manifest:
            del kind, name
            raise Refused("nodes", "we may not")

    with Marker(Forbidding()) as marker:  # type: ignore[arg-type]
        marker.submit(Order("k", "node-1", Mark()))
        [ended] = marker.wait()
    assert "we may not" in str(ended.error)


def test_conditions_of_the_embedded_cluster_are_seen(cluster: EmbeddedCluster) -> None:
    bell = Bell()
    with NodeWatch(cluster, local(), lambda: 7.0, bell.ring) as seen:
        while len(seen.names()) < 6:
            bell.wait(DEADLINE_SECONDS)
        seen.changed(99)
        inject(cluster, "node-3", entry("KernelDeadlock"))
        while not seen.has_changed:
            bell.wait(DEADLINE_SECONDS)
        [changed] = seen.changed(9)
    assert (changed.name, changed.conditions[-1].type) == ("node-3", "KernelDeadlock")
    assert seen.turned("node-3") == {"KernelDeadlock": 7.0}
