"""Whether an upgrade, a leave, a removal and the proving run hold: each by what is seen, unknown never for done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.bootstrap.judge import leave_proof, removal_proof, run_proof, upgrade_proof
from profiles.vocabulary import RunState
from tests.support.builders import host_sights
from tests.support.builders.why_sights import RUN
from workflows import labels
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight, Member, PlaneSight
from workflows.model.components import InstalledComponent
from workflows.model.host_facts import Leftovers, Unread

Json = dict[str, Any]
NEW = "1.36.3"
PLANE_PODS = ("apiserver", "controller-manager", "scheduler")


def node(name: str, version: str = NEW, ready: str = "True", *, cordoned: str = "") -> Json:
    """`cordoned`: by `us` or by `somebody`."""
    marks = {labels.BOOTSTRAP_CORDON: "true"} if cordoned == "us" else {}
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {
        "metadata": {"name": name, "labels": marks},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"conditions": conditions, "nodeInfo": {"kubeletVersion": f"v{version}"}},
    }


def pods(host: str, version: str = NEW) -> tuple[Json, ...]:
    return tuple(
        {
            "metadata": {"name": f"kube-{name}-{host}"},
            "spec": {"containers": [{"image": f"registry.k8s.io/kube-{name}:v{version}"}]},
        }
        for name in PLANE_PODS
    )


def seen(nodes: Sequence[Json] | None, plane_pods: tuple[Json, ...] = (), members: Sequence[str] = ()) -> BuildingSight:
    """`nodes` None: no control plane tells."""
    hosts = host_sights.sight_of(host_sights.profile(), pairs=False)
    if nodes is None:
        return BuildingSight(1.0, hosts, ControlSight({}, {"c1": "it is silent"}))
    known = tuple(Member(name) for name in members)
    plane = PlaneSight("c1", there=True, own="", endpoint="", nodes=tuple(nodes), pods=plane_pods, members=known)
    return BuildingSight(1.0, hosts, ControlSight({"c1": plane}))


@pytest.mark.parametrize(
    ("sight", "word", "said"),
    [
        (seen([node("w1")]), "pass", f"{NEW}, Ready"),
        (seen(None), "unknown", "no control plane tells"),
        (seen([node("w2")]), "fail", "no such node"),
        (seen([node("w1", "1.35.9")]), "fail", "its kubelet is 1.35.9"),
        (seen([node("w1", ready="False")]), "fail", "it is not Ready"),
        (seen([node("w1", ready="Unknown")]), "unknown", "it is not Ready"),
        (seen([node("w1", ready="")]), "unknown", "it is not Ready"),
        (seen([node("w1", cordoned="us")]), "fail", "still cordoned"),
        (seen([node("w1", cordoned="somebody")]), "pass", "cordoned by somebody"),
    ],
)
def test_a_node_is_upgraded_once_its_kubelet_serves(sight: BuildingSight, word: str, said: str) -> None:
    proof = upgrade_proof("w1", NEW, sight)
    assert proof.word == word
    assert said in proof.why


def test_a_control_plane_is_upgraded_once_its_own_pods_are() -> None:
    assert upgrade_proof("c1", NEW, seen([node("c1")], pods("c1"))).word == "pass"
    old = upgrade_proof("c1", NEW, seen([node("c1")], pods("c1", "1.35.9")))
    assert old.word == "fail"
    assert "it still runs registry.k8s.io/kube-apiserver:v1.35.9" in old.why


def with_leftovers(sight: BuildingSight, left: Leftovers | Unread) -> BuildingSight:
    host = sight.hosts.hosts["w1"]
    changed = replace(host, facts=replace(host.facts, leftovers=left))
    return replace(sight, hosts=replace(sight.hosts, hosts={**sight.hosts.hosts, "w1": changed}))


CLEAN = Leftovers((), (), (), ())


@pytest.mark.parametrize(
    ("sight", "dead", "word", "said"),
    [
        (with_leftovers(seen([], members=["c1"]), CLEAN), False, "pass", "nothing is left on it"),
        (seen([node("w1")], members=["c1"]), False, "fail", "has its node"),
        (seen([], members=["c1", "w1"]), False, "fail", "member of etcd"),
        (seen(None), False, "unknown", "no control plane tells"),
        (seen(None), True, "unknown", "no control plane tells"),
        (with_leftovers(seen([]), Unread("permission denied")), False, "unknown", "permission denied"),
        (with_leftovers(seen([]), replace(CLEAN, mounts=("/var/lib/kubelet",))), False, "fail", "/var/lib/kubelet"),
        (seen([node("w1")]), True, "fail", "has its node"),
        (with_leftovers(seen([]), replace(CLEAN, files=("/etc/kubernetes",))), True, "pass", "was not asked itself"),
    ],
)
def test_a_host_has_left_once_neither_knows_the_other(sight: BuildingSight, dead: bool, word: str, said: str) -> None:
    proof = leave_proof("w1", sight, dead=dead)
    assert proof.word == word
    assert said in proof.why


def test_a_component_is_gone_once_it_is_not_there_and_somebody_could_look() -> None:
    there = {"registry": InstalledComponent("registry", "3.1", "w")}
    assert removal_proof("registry", replace(seen([]), components=there)).word == "fail"
    assert removal_proof("kueue", replace(seen([]), components=there)).word == "pass"
    assert removal_proof("kueue", replace(seen([]), components=Unread("silent"))).word == "unknown"


@pytest.mark.parametrize("state", [None, *RunState])
def test_only_a_run_that_succeeded_proves_a_cluster(state: RunState | None) -> None:
    run = None if state is None else replace(RUN, state=state, why="so")
    assert run_proof(replace(seen([]), proof=run)).word == ("pass" if state is RunState.SUCCEEDED else "fail")
