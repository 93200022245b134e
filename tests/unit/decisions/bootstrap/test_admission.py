"""The join gate of a bootstrap: where it stands in the plan, and what node objects say of who takes work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.building.components import wanted_components
from flows.decisions.bootstrap.admission import adopted_proof, can_be_tested, node_proof, waiting_note
from flows.decisions.bootstrap.components import before_admission
from flows.decisions.bootstrap.judge import Wanted, judged
from flows.decisions.bootstrap.next_move import CarryOutSteps, next_steps
from flows.decisions.bootstrap.plans import plan_of
from profiles.bootstrap.request import BootstrapRequest
from profiles.loading.load import load_hardware, load_run
from profiles.vocabulary import VerdictWord
from tests.support.builders import host_sights
from tests.support.builders.components import chosen_of, cluster_with
from tests.support.builders.kubeadm_cluster import HOSTS, kubeadm_cluster, release, sight_of
from workflows import labels
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight, PlaneSight
from workflows.model.bootstrap import Stage, Step, StepProof, StepRecord

Json = dict[str, Any]
PASS, FAIL, UNKNOWN = VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN
MI300X = load_hardware("mi300x")
FIRST = {f"components/{name}" for name in ("argo-workflows", "jobset", "kueue")}
WORKING = [name for name, host in HOSTS.items() if host.get("role") != "control-plane"]
WAITS = "still tainted, no preflight has passed it"


def node(*taints: str, ready: str = "True", gpus: str | None = "8", said: Json | None = None, **marks: str) -> Json:
    """A node with these taints of ours and a team's."""
    notes = {labels.VERDICT_EVIDENCE: json.dumps(said)} if said else {}
    allocatable = {} if gpus is None else {"allocatable": {"cpu": "8", **({"amd.com/gpu": gpus} if gpus else {})}}
    listed = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    return {
        "metadata": {"name": "n1", "labels": marks, "annotations": notes},
        "spec": {"taints": [*listed, *({"key": f"{labels.PREFIX}/{key}", "effect": "NoSchedule"} for key in taints)]},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady"}], **allocatable},
    }


SLOW = {"verdict": "fail", "depth": "smoke", "check": "gpu-count", "evidence": "gpu-count: 7 of 8"}


@pytest.mark.parametrize(
    ("found", "word", "why"),
    [
        (node(), PASS, "Ready, 8 amd.com/gpu, admitted"),
        (node("quarantine"), PASS, "Ready, 8 amd.com/gpu, admitted"),
        (node("startup"), FAIL, WAITS),
        (node("startup", said=SLOW), FAIL, f"{WAITS} (fail: smoke: gpu-count: 7 of 8)"),
        (node("startup", said={}), FAIL, WAITS),
        (node(gpus="7"), FAIL, "7 of 8 amd.com/gpu in allocatable"),
        (node(gpus="16"), FAIL, "16 of 8 amd.com/gpu in allocatable"),
        (node(gpus=""), FAIL, "0 of 8 amd.com/gpu in allocatable"),
        (node("startup", gpus=""), FAIL, f"{WAITS}; 0 of 8 amd.com/gpu in allocatable"),
        (node(gpus=None), UNKNOWN, "the Node has no status.allocatable: its kubelet has not told yet what it offers"),
        (node(gpus="many"), UNKNOWN, "status.allocatable[amd.com/gpu] reads 'many', which is no whole number"),
        (node(ready="False"), FAIL, "it is not Ready: KubeletNotReady"),
        (node(ready="Unknown"), UNKNOWN, "its kubelet tells nothing"),
        (node("startup", ready="Unknown"), FAIL, f"{WAITS}; its kubelet tells nothing"),
    ],
)
def test_what_a_node_says_of_itself(found: Json, word: VerdictWord, why: str) -> None:
    assert node_proof(found, MI300X) == StepProof(word, why)


def test_a_node_without_gpus_is_asked_for_none() -> None:
    assert node_proof(node(gpus=None), load_hardware("cpu")) == StepProof(PASS, "Ready, admitted")
    assert node_proof(node("startup"), load_hardware("cpu")).word is FAIL


@given(
    st.sets(st.sampled_from(["startup", "quarantine", "hold"])),
    st.sampled_from(["True", "False", "Unknown"]),
    st.sampled_from(["8", "7", "0", "x", "", None]),
)
def test_no_node_with_the_taint_or_without_its_gpus_holds(taints: set[str], ready: str, gpus: str | None) -> None:
    proof = node_proof(node(*taints, ready=ready, gpus=gpus), MI300X)
    assert (proof.word is PASS) == ("startup" not in taints and ready == "True" and gpus == "8")


def adopted(nodes: Mapping[str, Json] | None) -> StepProof:
    profile = cluster_with([])
    kinds = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    return adopted_proof(profile, kinds, nodes, "connection refused")


def test_of_a_cluster_that_was_there_only_nodes_with_the_taint_are_judged() -> None:
    pool = next(pool for pool in cluster_with([]).pools if pool.hardware == "mi300x")
    assert pool.labels, "else every node is of the pool"
    marks: Any = dict(pool.labels)
    bare, broken = node(**marks), node(gpus="", **marks)
    assert adopted({"n1": bare, "n2": broken}) == StepProof(PASS, "no node waits to be admitted")
    tainted = node("startup", **marks)
    assert adopted({"n1": bare, "n3": tainted}) == StepProof(FAIL, f"n3: {WAITS}")
    other = node("startup", **{"site/of": "others"})
    assert adopted({"n4": other}).word is PASS
    assert adopted({"n4": other}).why.endswith("n4: of no pool of the profile, left alone")
    assert adopted(None) == StepProof(UNKNOWN, "connection refused")
    many = adopted({f"n{index}": tainted for index in range(9)})
    assert many.why.endswith("; and 5 more")


def wanted(*components: str, **more: Any) -> Wanted:
    cluster = kubeadm_cluster(components=[{"name": name} for name in components], **more)
    brings = cluster.bootstrap is not None and cluster.bootstrap.install_components
    chosen, run = (wanted_components(cluster), load_run("demo")) if brings else ((), None)
    return Wanted(cluster, release(), {"cpu": load_hardware("cpu")}, chosen, run=run)


def plan(made: Wanted, verb: str = "build", records: Mapping[str, StepRecord] | None = None, **more: Any) -> list[Step]:
    return list(plan_of(made, BootstrapRequest(cluster="made", verb=verb, **more), records or {}))  # type: ignore[arg-type]


def test_each_host_that_works_is_admitted_behind_the_first_components_and_before_all_others() -> None:
    steps = plan(wanted("metrics-server"))
    after = {step.id: set(step.after) for step in steps}
    gates = {f"admission/{name}" for name in WORKING}
    assert {step.id for step in steps if step.stage is Stage.ADMISSION} == gates
    assert all(after[gate] == FIRST for gate in gates)
    assert after["components/metrics-server"] == gates
    assert gates <= after["proof/cluster"]
    assert not any(gates & after[name] for name in FIRST)
    places = {step.id: place for place, step in enumerate(steps)}
    assert all(places[before] < places[step.id] for step in steps for before in step.after)


def test_what_nodes_need_for_their_tests_comes_before_with_all_that_it_needs() -> None:
    chosen = chosen_of(cluster_with(["amd-gpu-operator", "metrics-server", "juicefs-csi"]), "amd")
    early = before_admission(chosen)
    first = {name.partition("/")[2] for name in FIRST}
    assert early == first | {"amd-gpu-operator", "cert-manager", "juicefs-csi"}
    assert {one.name for one in chosen if one.to_new_nodes} == early
    alone = chosen_of(cluster_with(["cert-manager"]))
    assert before_admission(alone) == first


def test_components_that_stand_before_admission_are_other_ones_than_those_that_do_not() -> None:
    one = next(one for one in chosen_of(cluster_with([])) if one.name == "jobset")
    assert one.to_new_nodes
    assert replace(one, to_new_nodes=False).wanted != one.wanted


def test_without_components_there_is_no_gate_and_that_is_told() -> None:
    steps = plan(wanted(install_components=False))
    assert {step.stage for step in steps} <= {Stage.PRECHECKS, Stage.HOSTS, Stage.CONTROL_PLANE, Stage.WORKERS} | {
        Stage.CONFIGURATION,
        Stage.NETWORK,
    }
    nodes = {"n1": node("startup"), "n2": node()}
    [note] = waiting_note("./made.yaml", steps, nodes)
    assert note == "no work comes to n1 until a preflight has passed: primus preflight --cluster ./made.yaml"
    assert waiting_note("made", steps, {"n2": node()}) == ()
    assert waiting_note("made", plan(wanted()), nodes) == (), "there is a gate, which tells by itself"


def record(stage: Stage, subject: str, state: str = "proven", at: float = 10.0) -> dict[str, StepRecord]:
    made = StepRecord("made", stage, subject, "w", state, 1, at, at + 1.0, "it holds")  # type: ignore[arg-type]
    return {made.id: made}


ARGO = record(Stage.COMPONENTS, "argo-workflows")


@pytest.mark.parametrize(
    ("records", "can"),
    [
        ({}, False),
        (ARGO, True),
        (record(Stage.COMPONENTS, "argo-workflows", "failed"), False),
        (record(Stage.COMPONENTS, "argo-workflows", "began"), False),
        (ARGO | record(Stage.REMOVAL, "argo-workflows", at=20.0), False),
        (ARGO | record(Stage.REMOVAL, "argo-workflows", at=5.0), True),
    ],
)
def test_who_joins_is_admitted_too_where_argo_serves(records: dict[str, StepRecord], can: bool) -> None:
    assert can_be_tested(records) == can
    steps = plan(wanted(), "join", records, hosts=("w1",))
    gates = [step for step in steps if step.stage is Stage.ADMISSION]
    assert [gate.id for gate in gates] == (["admission/w1"] if can else [])
    for gate in gates:
        assert set(gate.after) == {"hosts/w1", "workers/w1", "configuration/w1", "network/w1"}


def test_a_control_plane_without_work_that_joins_has_no_gate() -> None:
    steps = plan(wanted(), "join", ARGO, hosts=("c1", "c2"))
    assert [step.id for step in steps if step.stage is Stage.ADMISSION] == ["admission/c2"]


def test_all_nodes_that_join_are_tested_together() -> None:
    steps = [Step(Stage.ADMISSION, f"n{index}", "w", "passes a preflight") for index in range(80)]
    move = next_steps(steps, {step.id: StepProof(FAIL, WAITS) for step in steps}, {}, 0.0, at_once=50)
    assert isinstance(move, CarryOutSteps)
    assert len(move.steps) == 80


def test_hosts_are_judged_by_their_nodes_alone() -> None:
    made = wanted("metrics-server")
    steps = [step for step in plan(made) if step.stage is Stage.ADMISSION]
    cluster = sight_of(made.cluster, release())
    hosts = host_sights.sight_of(made.cluster, pairs=False)
    seen = BuildingSight(1.0, hosts, cluster)
    assert {proof.word for proof in judged(made, steps, seen).values()} == {FAIL}
    bare = {name: {**one, "spec": {"taints": []}} for name, one in (cluster.nodes or {}).items()}
    plane = PlaneSight("c1", there=True, own="", endpoint="", nodes=tuple(bare.values()), members=())
    proofs = judged(made, steps, replace(seen, cluster=ControlSight({"c1": plane})))
    assert {proof.word for proof in proofs.values()} == {PASS}
    gone = ControlSight({"c1": replace(plane, nodes=tuple(one for name, one in bare.items() if name != "w1"))})
    assert judged(made, steps, replace(seen, cluster=gone))["admission/w1"] == StepProof(
        FAIL, "the cluster knows no such node"
    )
    silent = judged(made, steps, replace(seen, cluster=ControlSight({}, {"c1": "no answer"})))
    assert {(proof.word, proof.why) for proof in silent.values()} == {(UNKNOWN, "c1: no answer")}
