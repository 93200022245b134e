"""Nodes are held for a test and given back whatever happens; what tests say of a node is written on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Unavailable
from profiles.loading.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest, Seen, using
from tasks.clusters import embedded_cluster
from tasks.context import World, at_hand, standing_in
from tasks.embedded.api import EmbeddedCluster
from tasks.nodes.by_hand import give_back
from tasks.nodes.holds import free_expired, give_nodes_back, hold_nodes, hold_of, using_gpus
from tasks.nodes.marks import Mark, VerdictMark, forget_verdict, set_mark, tell_node, tell_nodes
from tasks.settings import Settings, localised
from workflows import labels as workflows_labels
from workflows.model.cluster import pod_of

PROFILE = load_cluster("local")
HOLD = PROFILE.admission.hold_seconds
GPU = "amd.com/gpu"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with at_hand(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})) as world:
        yield world


@pytest.fixture
def cluster(here: World) -> Iterator[EmbeddedCluster]:
    made = embedded_cluster(localised(PROFILE, here.settings.home), here.settings.home)
    with using(made):
        yield made
    made.stop()


def node(cluster: Any, name: str = "node-1") -> Manifest:
    found = cluster.get("Node", name)
    assert found is not None
    return found


def held(cluster: Any) -> dict[str, str]:
    return {item["metadata"]["name"]: owner for item in cluster.list("Node") if (owner := hold_of(item)[0])}


def pod(name: str, node: str, phase: str = "Running", gpus: int = 0, **marks: str) -> Manifest:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "metadata": {"name": name, "labels": marks},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": phase},
    }


class Busy:
    """The cluster, with pods that come into its lists one after the other."""

    def __init__(self, cluster: EmbeddedCluster, *lists: list[Manifest]) -> None:
        self.name, self._cluster, self._lists = cluster.name, cluster, list(lists)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def watch(self, kind: str, labels: Any = None, **options: Any) -> Iterator[Any]:
        if kind != "Pod":
            yield from self._cluster.watch(kind, labels, **options)
            return
        pods = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        yield from (Seen("ADDED", item, "1") for item in pods)


def test_pods_that_use_gpus_are_those_that_ask_for_them_and_live_and_ours_that_train() -> None:
    pods = [
        pod("stranger", "a", gpus=8),
        pod("done", "b", "Succeeded", gpus=8),
        pod("web", "c"),
        pod("r-a1-0", "d", **{workflows_labels.ROLE: "trainer", workflows_labels.RUN: "r"}),
        pod("r-a1-c", "e", **{workflows_labels.ROLE: workflows_labels.COORDINATOR_ROLE, workflows_labels.RUN: "r"}),
        pod("waits", "f", "Pending", gpus=1),
        pod("nowhere", "", gpus=1),
        pod("zero", "g") | {"spec": {"nodeName": "g", "containers": [{"resources": {"limits": {GPU: "0"}}}]}},
    ]
    assert using_gpus(map(pod_of, pods), {GPU}) == {"a": "stranger", "d": "r", "f": "waits"}


def test_a_node_is_held_with_an_end_and_given_back(here: World, cluster: EmbeddedCluster) -> None:
    assert hold_nodes(PROFILE, ["node-1", "node-2"], "test-1") == {}
    assert held(cluster) == {"node-1": "test-1", "node-2": "test-1"}
    until = hold_of(node(cluster))[1]
    assert until is not None
    assert HOLD - 5 < until - here.now() <= HOLD
    give_nodes_back(["node-1", "node-2"], "test-1")
    assert held(cluster) == {}
    assert workflows_labels.HOLD_UNTIL not in node(cluster)["metadata"].get("annotations", {})


def test_a_hold_leaves_other_taints_as_they_are(here: World, cluster: EmbeddedCluster) -> None:
    assert set_mark(cluster, "node-1", Mark(VerdictWord.FAIL, "gpu_hardware"))
    hold_nodes(PROFILE, ["node-1"], "t")
    keys = [item["key"] for item in node(cluster)["spec"]["taints"]]
    assert keys == [workflows_labels.QUARANTINE_TAINT, workflows_labels.HOLD_TAINT]
    give_nodes_back(["node-1"], "t")
    assert [item["key"] for item in node(cluster)["spec"]["taints"]] == [workflows_labels.QUARANTINE_TAINT]


def test_somebody_elses_hold_is_kept_and_a_dead_ones_is_taken_over(here: World, cluster: EmbeddedCluster) -> None:
    assert hold_nodes(PROFILE, ["node-1"], "first") == {}
    assert hold_nodes(PROFILE, ["node-1", "node-2"], "second") == {"node-1": "held by first"}
    give_nodes_back(["node-1", "node-2"], "second")
    assert held(cluster) == {"node-1": "first"}
    with standing_in(replace(here, now=lambda: here.now() + HOLD + 1)):
        assert hold_nodes(PROFILE, ["node-1"], "second") == {}
    assert held(cluster) == {"node-1": "second"}


def test_the_same_owner_may_hold_again(here: World, cluster: EmbeddedCluster) -> None:
    hold_nodes(PROFILE, ["node-1"], "t")
    first = hold_of(node(cluster))[1] or 0.0
    with standing_in(replace(here, now=lambda: here.now() + 60)):
        assert hold_nodes(PROFILE, ["node-1"], "t") == {}
    assert (hold_of(node(cluster))[1] or 0.0) >= first + 59


def test_what_somebody_uses_is_not_held(here: World, cluster: EmbeddedCluster) -> None:
    trains = pod("r-a1-0", "node-1", **{workflows_labels.ROLE: "trainer", workflows_labels.RUN: "r"})
    with using(Busy(cluster, [trains])):
        assert hold_nodes(PROFILE, ["node-1", "node-2"], "t") == {"node-1": "r uses it"}
    assert held(cluster) == {"node-2": "t"}


def test_a_pod_that_came_between_the_look_and_the_taint_keeps_its_node(here: World, cluster: EmbeddedCluster) -> None:
    late = pod("r-a1-0", "node-2", **{workflows_labels.ROLE: "trainer", workflows_labels.RUN: "r"})
    with using(Busy(cluster, [], [late])):
        assert hold_nodes(PROFILE, ["node-1", "node-2"], "t") == {"node-2": "r came first"}
    assert held(cluster) == {"node-1": "t"}


def test_whoever_cannot_look_again_holds_nothing(here: World, cluster: EmbeddedCluster) -> None:
    class Away(Busy):
        def watch(self, kind: str, labels: Any = None, **options: Any) -> Iterator[Any]:
            if kind == "Pod" and held(cluster):
                raise Unavailable("gone")
            yield from super().watch(kind, labels, **options)

    with using(Away(cluster, [])), pytest.raises(Unavailable):
        hold_nodes(PROFILE, ["node-1"], "t")
    assert held(cluster) == {}


def test_holds_that_ran_out_are_freed_whoever_set_them(here: World, cluster: EmbeddedCluster) -> None:
    hold_nodes(PROFILE, ["node-1"], "dead")
    taint = {"key": workflows_labels.HOLD_TAINT, "value": "nobody-says", "effect": "NoSchedule"}
    cluster.patch("Node", "node-2", {"spec": {"taints": [taint]}})
    assert free_expired() == ["node-2"], "a hold without an end is nobody's"
    assert held(cluster) == {"node-1": "dead"}
    with standing_in(replace(here, now=lambda: here.now() + HOLD + 1)):
        assert free_expired() == ["node-1"]
    assert held(cluster) == {}


def test_a_node_that_is_gone_is_not_held(here: World, cluster: EmbeddedCluster) -> None:
    assert hold_nodes(PROFILE, ["node-99"], "t") == {"node-99": "the node no longer exists"}
    give_nodes_back(["node-99"], "t")


def condition(cluster: Any, name: str = "node-1") -> Manifest | None:
    listed: list[Manifest] = node(cluster, name)["status"].get("conditions") or []
    return next((item for item in listed if item["type"] == workflows_labels.VERDICT_CONDITION), None)


def test_a_verdict_is_label_annotations_and_condition(here: World, cluster: EmbeddedCluster) -> None:
    before = [item["type"] for item in node(cluster)["status"]["conditions"]]
    assert tell_node(cluster, VerdictMark("node-1", VerdictWord.FAIL, "device", "gemm: 12 of 16", 1e9, "gemm"))
    metadata = node(cluster)["metadata"]
    assert metadata["labels"][workflows_labels.VERDICT] == "fail"
    said = json.loads(metadata["annotations"][workflows_labels.VERDICT_EVIDENCE])
    assert said == {"verdict": "fail", "depth": "device", "check": "gemm", "evidence": "gemm: 12 of 16"}
    assert metadata["annotations"][workflows_labels.VERDICT_AT] == "2001-09-09T01:46:40Z"
    told = condition(cluster)
    assert told is not None
    assert (told["status"], told["reason"], told["message"]) == ("False", "TestFailed", "device: gemm: 12 of 16")
    assert [item["type"] for item in node(cluster)["status"]["conditions"]] == [
        *before,
        workflows_labels.VERDICT_CONDITION,
    ]
    assert not node(cluster)["spec"].get("taints"), "taints are the brake's"


def test_a_condition_turns_when_its_word_does(here: World, cluster: EmbeddedCluster) -> None:
    turned: list[tuple[str, str]] = []
    for at, word in ((1e9, VerdictWord.PASS), (1e9 + 60, VerdictWord.PASS), (1e9 + 120, VerdictWord.UNKNOWN)):
        tell_node(cluster, VerdictMark("node-1", word, "smoke", "why", at))
        told = condition(cluster) or {}
        turned.append((told["status"], told["lastTransitionTime"][-6:]))
    assert turned == [("True", "46:40Z"), ("True", "46:40Z"), ("Unknown", "48:40Z")]


def test_giving_a_node_back_takes_its_verdict_away(here: World, cluster: EmbeddedCluster) -> None:
    before = node(cluster)["status"]["conditions"]
    tell_node(cluster, VerdictMark("node-1", VerdictWord.FAIL, "smoke", "why", 1e9))
    give_back("local", "node-1", "mended")
    assert node(cluster)["status"]["conditions"] == before
    assert workflows_labels.VERDICT not in node(cluster)["metadata"]["labels"]
    assert forget_verdict(cluster, "node-1"), "safe to repeat"


def test_a_node_that_cannot_be_written_on_is_told_and_keeps_nobody_else_waiting(
    here: World, cluster: EmbeddedCluster
) -> None:
    class Sulking(Busy):
        def patch(self, kind: Any, name: str, patch: Manifest) -> Manifest:
            if name == "node-1":
                raise Unavailable("sulks")
            return cluster.patch(kind, name, patch)

    failed: list[tuple[str, str]] = []
    told = [VerdictMark(f"node-{number}", VerdictWord.PASS, "smoke", "why", 1e9) for number in (0, 1, 99)]
    with using(Sulking(cluster, [])):
        tell_nodes(told, lambda node, why: failed.append((node, why)))
    assert failed == [("node-1", "sulks")]
    assert condition(cluster, "node-0") is not None
