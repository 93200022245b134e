"""Whether steps of the engine kubeadm hold: all of them on a sound cluster, none that something is wrong with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.bootstrap.join_reasons import REASONS, why_not_joined
from flows.decisions.bootstrap.plan import steps_of
from flows.decisions.bootstrap.proofs import kubeadm_proofs, questions
from flows.decisions.bootstrap.services import tried_services
from profiles.vocabulary import VerdictWord
from tests.support.builders.kubeadm_cluster import facts_of, kubeadm_cluster, release, sight_of
from tests.support.cases.rows import rows
from workflows.bootstrap import fallback, leaving, pod_network
from workflows.bootstrap.control_sight import ControlSight, Member, plane_sight
from workflows.bootstrap.host_file import PENDING
from workflows.model.bootstrap import Stage, StepProof
from workflows.model.host_facts import HostFacts, HostRoute, Unread

CLUSTER, RELEASE = kubeadm_cluster(), release()
HOSTS = tuple(CLUSTER.bootstrap.hosts) if CLUSTER.bootstrap else ()
FACTS = {name: facts_of(CLUSTER, RELEASE, name) for name in HOSTS}
SIGHT = sight_of(CLUSTER, RELEASE)


def proofs(
    facts: dict[str, Any] | None = None, sight: ControlSight = SIGHT, made: Any = RELEASE
) -> dict[str, StepProof]:
    return kubeadm_proofs(steps_of(CLUSTER, made), CLUSTER, made, FACTS if facts is None else facts, sight)


def with_node(name: str, change: Callable[[dict[str, Any]], object]) -> ControlSight:
    """The sight, with the object of one node changed."""
    fresh = sight_of(CLUSTER, RELEASE)
    nodes = fresh.planes["c1"].nodes or ()
    node: Any = next(one for one in nodes if one["metadata"]["name"] == name)
    change(node)
    return fresh


def test_every_step_of_a_sound_cluster_holds() -> None:
    told = proofs()
    assert len(told) == 5 + 3 + 2 + 1 + 5 + 5
    assert {name: proof.why for name, proof in told.items() if proof.word is not VerdictWord.PASS} == {}


def test_steps_stand_behind_those_that_they_come_after() -> None:
    steps = steps_of(CLUSTER, RELEASE)
    seen: set[str] = set()
    for step in steps:
        assert set(step.after) <= seen
        seen.add(step.id)
    alone = [step.subject for step in steps if step.alone]
    assert alone == ["c1", "c2", "c3"], "control planes come one after the other"
    assert "control-plane/c2" in next(step for step in steps if step.id == "control-plane/c3").after


@pytest.mark.parametrize("stage", [Stage.HOSTS, Stage.CONTROL_PLANE, Stage.WORKERS])
def test_another_release_is_another_step(stage: Stage) -> None:
    old, new = ({s.id: s.wanted for s in steps_of(CLUSTER, made)} for made in (RELEASE, release("1.36.4")))
    assert all(old[name] != new[name] for name in old if name.startswith(stage))


def test_one_host_more_is_another_network_for_all() -> None:
    hosts = {**(CLUSTER.model_dump()["bootstrap"]["hosts"]), "w3": {"address": "192.0.2.23"}}
    more = {s.id: s.wanted for s in steps_of(kubeadm_cluster(hosts=hosts), RELEASE)}
    old = {s.id: s.wanted for s in steps_of(CLUSTER, RELEASE)}
    changed = [name for name in old if old[name] != more[name]]
    assert [name for name in changed if name.startswith("network")] == [f"network/{name}" for name in HOSTS]
    assert not [name for name in changed if name.startswith("hosts/")], "nothing else of a host is touched"


def test_who_is_silent_is_unknown_and_never_holds() -> None:
    told = proofs({"w1": Unread("no route")}, ControlSight({}, {"c1": "time was up"}))
    assert {proof.word for proof in told.values()} == {VerdictWord.UNKNOWN}
    assert told["hosts/w1"].why == "no route"
    assert "time was up" in told["workers/w1"].why
    blank = proofs({name: HostFacts() for name in HOSTS})
    assert {blank[f"hosts/{name}"].word for name in HOSTS} == {VerdictWord.UNKNOWN}


@pytest.mark.parametrize("field", ["files", "sysctls", "units"])
def test_a_host_on_which_one_thing_differs_fails_by_its_name(field: str) -> None:
    for key in getattr(questions(CLUSTER, RELEASE, ["c1"]), field):
        others = (pod_network.CONFLIST, pod_network.ROUTES, pod_network.TIMER, leaving.MARK, fallback.BEGUN)
        if key in (*others, "kubelet.service"):
            continue  # of other stages; without a network only a look for drift sees whether kubelet begins at boot
        facts = FACTS["c1"]
        told = getattr(facts, field)
        other: Any = replace(told[key], active="failed") if field == "units" else "7"
        changed: Any = {field: {**told, key: other}}
        proof = proofs({**FACTS, "c1": replace(facts, **changed)})["hosts/c1"]
        assert proof.word is VerdictWord.FAIL
        assert key in proof.why


def test_what_is_not_in_force_yet_does_not_hold_although_every_file_is_right() -> None:
    facts = replace(FACTS["w1"], files={**FACTS["w1"].files, PENDING: "7"})
    proof = proofs({**FACTS, "w1": facts})["hosts/w1"]
    assert (proof.word, "not begun anew" in proof.why) == (VerdictWord.FAIL, True)
    unread = {key: value for key, value in FACTS["w1"].files.items() if key != PENDING}
    assert proofs({**FACTS, "w1": replace(FACTS["w1"], files=unread)})["hosts/w1"].word is VerdictWord.UNKNOWN


def test_another_version_is_said_only_where_it_was_read() -> None:
    path = "/usr/local/bin/kubelet"
    silent: Any = {"files": {**FACTS["w1"].files, path: "7"}, "versions": {"kubelet": Unread("time was up")}}
    proof = proofs({**FACTS, "w1": replace(FACTS["w1"], **silent)})["hosts/w1"]
    assert (proof.word, proof.why) == (VerdictWord.FAIL, f"{path} differs from what is wanted")


def test_a_missing_image_fails_its_host() -> None:
    proof = proofs({**FACTS, "w2": replace(FACTS["w2"], images=())})["hosts/w2"]
    assert (proof.word, "kube-apiserver" in proof.why) == (VerdictWord.FAIL, True)


def test_a_node_of_another_version_is_told_to_be_upgraded() -> None:
    told = proofs(made=release("1.36.4"))
    for name in ("hosts/w1", "workers/w1", "control-plane/c2"):
        assert (told[name].word, "upgrade it" in told[name].why) == (VerdictWord.FAIL, True), name


WRONG_NODES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "not ready": (
        lambda node: node["status"].update(conditions=[{"type": "Ready", "status": "False", "message": "no network"}]),
        "it is not ready: no network",
    ),
    "silent": (lambda node: node["status"].update(conditions=[]), "its kubelet tells nothing"),
    "without a label": (lambda node: node["metadata"]["labels"].pop("primus-flows.io/rack"), "primus-flows.io/rack=r2"),
    "without its taint": (lambda node: node["spec"].update(taints=[]), "it lacks the taint team=a:NoSchedule"),
    "gone": (lambda node: node["metadata"].update(name="other"), "there is no node of its name"),
}


@pytest.mark.parametrize("case", WRONG_NODES)
def test_a_node_that_something_is_wrong_with_fails_with_the_reason(case: str) -> None:
    change, why = WRONG_NODES[case]
    proof = proofs(sight=with_node("w2", change))["workers/w2"]
    assert (proof.word, why in proof.why) == (VerdictWord.FAIL, True), proof.why


def test_the_start_up_taint_is_not_asked_for() -> None:
    def lift(node: dict[str, Any]) -> None:
        node["spec"]["taints"] = [one for one in node["spec"]["taints"] if "startup" not in one["key"]]

    assert proofs(sight=with_node("w2", lift))["workers/w2"].word is VerdictWord.PASS


def pods_that(status: str, message: str) -> tuple[Any, ...]:
    """The pods of the control plane, whose condition Ready is this."""
    ready = {"type": "Ready", "status": status, "message": message}
    return tuple({**pod, "status": {"conditions": [ready]}} for pod in SIGHT.planes["c1"].pods or ())


WRONG_PLANES = {
    "API": ({"own": "connection refused"}, "its API server: connection refused"),
    "endpoint": ({"endpoint": "no route"}, "the API through 192.0.2.10:6443: no route"),
    "no plane": ({"there": False}, "there is no control plane on it"),
    "no member": ({"members": (Member("c2"), Member("c3"))}, "it is no member of etcd"),
    "learner": ({"members": (Member("c1", learner=True),)}, "still learns"),
    "sick member": ({"members": (Member("c1", why="NOSPACE"),)}, "its member of etcd: NOSPACE"),
    "pod": ({"pods": ()}, "etcd does not run there"),
    "crashing pod": ({"pods": pods_that("False", "containers with unready status")}, "etcd is not ready: containers"),
    "pod of a silent kubelet": (
        {"pods": pods_that("Unknown", "")},
        "kube-scheduler is not ready: nothing is told of it",
    ),
    "DNS": ({"dns": ("CriticalAddonsOnly",)}, "DNS does not tolerate the taint primus-flows.io/startup"),
    "no DNS": ({"dns": ()}, "DNS does not tolerate"),
}


@pytest.mark.parametrize("case", WRONG_PLANES)
def test_a_control_plane_that_something_is_wrong_with_fails_with_the_reason(case: str) -> None:
    change, why = WRONG_PLANES[case]
    changed: Any = change
    sight = replace(SIGHT, planes={**SIGHT.planes, "c1": replace(SIGHT.planes["c1"], **changed)})
    proof = proofs(sight=sight)["control-plane/c1"]
    assert (proof.word, why in proof.why) == (VerdictWord.FAIL, True), proof.why


@pytest.mark.parametrize(
    ("ready", "why"),
    [
        ({"status": "False", "message": "PLEG is not healthy"}, "it is not ready: PLEG is not healthy"),
        ({"status": "Unknown", "message": "Kubelet stopped posting node status."}, "it is not ready: Kubelet stopped"),
        ({"status": "False", "message": "network: cni plugin not initialized"}, ""),
    ],
)
def test_a_control_plane_whose_node_is_not_ready_fails_but_for_its_network(ready: dict[str, str], why: str) -> None:
    sight = with_node("c1", lambda node: node["status"].update(conditions=[{"type": "Ready", **ready}]))
    proof = proofs(sight=sight)["control-plane/c1"]
    assert (proof.word is VerdictWord.PASS, why in proof.why) == (not why, True), proof.why


@pytest.mark.parametrize("field", ["members", "pods", "nodes", "dns"])
def test_a_control_plane_that_does_not_tell_is_unknown(field: str) -> None:
    blind: Any = {field: None}
    sight = replace(SIGHT, planes={**SIGHT.planes, "c1": replace(SIGHT.planes["c1"], **blind)})
    assert proofs(sight=sight)["control-plane/c1"].word is VerdictWord.UNKNOWN


def test_a_network_lacks_a_route_or_a_file() -> None:
    bare = replace(FACTS["w1"], routes=(FACTS["w1"].routes[0],) if not isinstance(FACTS["w1"].routes, Unread) else ())
    proof = proofs({**FACTS, "w1": bare})["network/w1"]
    assert (proof.word, "no route to the pods of c2" in proof.why) == (VerdictWord.FAIL, True)
    other = replace(FACTS["w1"], files={**FACTS["w1"].files, pod_network.CONFLIST: ""})
    assert pod_network.CONFLIST in proofs({**FACTS, "w1": other})["network/w1"].why


def test_a_route_to_pods_of_a_node_that_left_does_not_hold() -> None:
    routes = FACTS["w1"].routes
    assert not isinstance(routes, Unread)
    left = (HostRoute("10.244.9.0/24", "eth0", "192.0.2.29"), HostRoute("0.0.0.0/0", "eth0", "192.0.2.1"))
    proof = proofs({**FACTS, "w1": replace(FACTS["w1"], routes=(*routes, *left))})["network/w1"]
    assert (proof.word, proof.why) == (VerdictWord.FAIL, "a route to pods of no node: 10.244.9.0/24 via 192.0.2.29")


@pytest.mark.parametrize(
    ("told", "word", "settings"),
    [("timed out", "fail", "unknown"), (Unread("no answer"), "unknown", "unknown"), ("", "pass", "pass")],
)
def test_a_node_that_does_not_reach_services_holds_neither_its_network_nor_its_settings(
    told: str | Unread, word: str, settings: str
) -> None:
    [service] = tried_services(CLUSTER)
    proof = proofs({**FACTS, "w1": replace(FACTS["w1"], services={service: told})})
    assert (proof["network/w1"].word, proof["configuration/w1"].word) == (word, settings)
    assert (service in proof["network/w1"].why) is (word != "pass")
    assert proof["workers/w1"].word is VerdictWord.PASS, "its pods may still be on their way"


@pytest.mark.parametrize("engine", [{"kind": "kubeadm", "network": "none"}, {"kind": "adopt"}])
def test_services_that_somebody_else_brings_are_not_tried(engine: dict[str, str]) -> None:
    assert tried_services(kubeadm_cluster(engine=engine)) == ()
    assert tried_services(kubeadm_cluster(networks={"services": "10.32.0.0/16"})) == ("10.32.0.1:443",)


@pytest.mark.parametrize(("told", "word"), [("its plug-in cri has failed", "fail"), (Unread("no ctr"), "unknown")])
def test_a_container_runtime_that_does_not_serve_kubelet_does_not_hold(told: str | Unread, word: str) -> None:
    proof = proofs({**FACTS, "w1": replace(FACTS["w1"], container_runtime=told)})["hosts/w1"]
    assert (proof.word, "containerd: " in proof.why) == (word, True)


def test_whether_a_node_that_does_not_hold_bears_its_settings_is_unknown() -> None:
    sight = with_node("w2", lambda node: node["status"].update(conditions=[]))
    assert proofs(sight=sight)["configuration/w2"].word is VerdictWord.UNKNOWN
    assert proofs(sight=sight)["configuration/w1"].word is VerdictWord.PASS


@pytest.mark.parametrize(
    ("change", "why"), [({"enabled": "disabled"}, "not begun at boot"), ({"active": "failed"}, "")]
)
def test_a_kubelet_that_does_not_run_or_not_after_a_reboot_fails_its_network(change: dict[str, str], why: str) -> None:
    units = FACTS["w1"].units
    changed: Any = replace(units["kubelet.service"], **change)  # type: ignore[type-var, arg-type]
    facts = replace(FACTS["w1"], units={**units, "kubelet.service": changed})
    proof = proofs({**FACTS, "w1": facts})["network/w1"]
    assert (proof.word, "kubelet.service is " in proof.why, why in proof.why) == (VerdictWord.FAIL, True, True)


@rows("decisions/bootstrap/join_reasons")
def test_why_a_host_does_not_join_stands_in_its_newest_telling_line(word: str, line: str) -> None:
    told = why_not_joined(HostFacts(), ["I1128 09:00:00.000000 1 server.go:1] Started kubelet", line, "kubelet exited"])
    assert told.partition(":")[0] == word
    assert "\n" not in told


def test_every_reason_has_its_line_and_nothing_is_made_up() -> None:
    assert len(REASONS) == 10
    assert why_not_joined(HostFacts(), ["kubelet exited", "Started kubelet"]) == ""
    units: Any = replace(FACTS["w1"].units["containerd.service"], active="failed")
    assert "containerd.service is failed" in why_not_joined(HostFacts(units={"containerd.service": units}), [])
    assert why_not_joined(Unread("silent"), []) == ""


def test_what_a_control_plane_prints_is_read_or_nothing() -> None:
    assert plane_sight("c1", "nonsense") is None
    assert plane_sight("c1", "[]") is None
    bare = plane_sight("c1", '{"there": false}')
    assert bare is not None
    assert not bare.there
    text = '{"there": true, "own": "", "endpoint": "", "members": [{"name": "c1"}], "nodes": null, "dns": ["a/b"]}'
    seen = plane_sight("c1", text)
    assert seen is not None
    assert (seen.members, seen.nodes, seen.dns) == ((Member("c1"),), None, ("a/b",))
