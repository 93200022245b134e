"""What runs is changed in turns, what does not run yet is made side by side, and nobody upgrades what is no node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.next_move import CarryOutSteps, Halt, next_steps
from flows.decisions.bootstrap.plan import network_steps, steps_of
from flows.decisions.bootstrap.rollout import plan_as_seen, rolled_out, standing
from profiles.bootstrap.inventory import Bootstrap
from profiles.vocabulary import VerdictWord
from tests.support.builders import host_sights
from tests.support.builders.kubeadm_cluster import HOSTS, facts_of, kubeadm_cluster, release, sight_of
from workflows.bootstrap import leaving
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.host_state import sections
from workflows.model.bootstrap import Stage, Step, StepProof, StepRecord
from workflows.model.host_facts import Unread

CLUSTER, RELEASE = kubeadm_cluster(), release()
BOOTSTRAP = sections(CLUSTER)[0]
PLAN = steps_of(CLUSTER, RELEASE)
PASS, FAIL = StepProof(VerdictWord.PASS, ""), StepProof(VerdictWord.FAIL, "it differs")


def racks(workers: int, share: float) -> Bootstrap:
    hosts: dict[str, Any] = {f"n{index}": {"address": f"10.0.0.{index}", "role": "both"} for index in (1, 2, 3)}
    hosts |= {f"w{index}": {"address": f"10.0.1.{index}", "rack": f"r{index % 3}"} for index in range(1, workers + 1)}
    made = {"hosts": hosts, "endpoint": {"address": "10.0.9.1"}, "batch_share": share}
    return sections(kubeadm_cluster(**made))[0]


def moves(plan: tuple[Step, ...], wrong: set[str]) -> list[list[str]]:
    """Which steps are carried out together, one move after the other, where each holds afterwards."""
    found: list[list[str]] = []
    while wrong:
        proofs = {step.id: FAIL if step.id in wrong else PASS for step in plan}
        move = next_steps(plan, proofs, {}, 0.0, 50)
        assert isinstance(move, CarryOutSteps)
        found.append([step.id for step in move.steps])
        wrong = wrong - {step.id for step in move.steps}
    return found


@given(st.integers(1, 30), st.floats(0.0, 1.0), st.sampled_from([Stage.HOSTS, Stage.CONFIGURATION]))
def test_nodes_are_changed_one_control_plane_or_one_batch_of_a_rack_at_a_time(
    workers: int, share: float, stage: Stage
) -> None:
    bootstrap = racks(workers, share)
    plan = rolled_out([Step(stage, name, "", "") for name in bootstrap.hosts], bootstrap, set(bootstrap.hosts))
    told = moves(plan, {step.id for step in plan})
    names = [[name.partition("/")[2] for name in move] for move in told]
    assert names[:3] == [["n1"], ["n2"], ["n3"]]
    assert sorted(name for move in names for name in move) == sorted(bootstrap.hosts)
    for move in names[3:]:
        assert len({bootstrap.hosts[name].rack for name in move}) == 1
        assert len(move) <= max(1, int(share * workers))


def test_hosts_that_are_no_nodes_yet_are_made_side_by_side() -> None:
    assert rolled_out(PLAN, BOOTSTRAP, ()) == PLAN
    hosts = {step.id for step in PLAN if step.stage is Stage.HOSTS}
    assert moves(PLAN, hosts) == [[f"hosts/{name}" for name in HOSTS]]
    some = rolled_out(PLAN, BOOTSTRAP, {"c1", "c2"})
    assert moves(some, hosts) == [["hosts/c1", "hosts/c3", "hosts/w1", "hosts/w2"], ["hosts/c2"]]


def test_settings_come_before_what_joins_and_wait_for_no_node_to_be_ready() -> None:
    plan = rolled_out(PLAN, BOOTSTRAP, set(HOSTS))
    seen: set[str] = set()
    for step in plan:
        assert set(step.after) <= seen, step
        seen.add(step.id)
    assert {step.id for step in plan} == {step.id for step in PLAN}
    wrong = {"configuration/cluster", "configuration/c1", "control-plane/c1", "configuration/w1", "workers/w1"}
    assert moves(plan, wrong) == [
        ["configuration/cluster"],
        ["configuration/c1"],
        ["configuration/w1"],
        ["control-plane/c1"],
        ["workers/w1"],
    ]


def test_behind_one_that_fails_nobody_is_touched() -> None:
    plan = rolled_out(PLAN, BOOTSTRAP, set(HOSTS))
    wrong = {f"configuration/{name}" for name in HOSTS}
    proofs = {step.id: FAIL if step.id in wrong else PASS for step in plan}
    tried = StepRecord("made", Stage.CONFIGURATION, "c1", "", "failed", 2, 5.0, 6.0, "")
    own = next(step for step in plan if step.id == "configuration/c1")
    move = next_steps(plan, proofs, {own.id: replace(tried, wanted=own.wanted)}, 1.0, 50)
    assert isinstance(move, Halt)
    assert list(move.failed) == ["configuration/c1"]
    assert set(move.waiting) == wrong - {"configuration/c1"}


def test_a_node_is_what_kubeadm_has_finished_or_the_cluster_knows_of_a_silent_host() -> None:
    facts: dict[str, Any] = {name: facts_of(CLUSTER, RELEASE, name) for name in ("c1", "w1", "w2")}
    facts["w1"] = replace(facts["w1"], files={**facts["w1"].files, leaving.MARK: ""})
    facts["w2"] = replace(facts["w2"], files={})
    facts |= {"c2": Unread("no route"), "c3": Unread("no route")}
    assert standing(facts, {"c1", "c2", "w1", "w2"}) == {"c1", "c2", "w2"}, "w1 was killed amid its join"


def seen(*nodes: str) -> BuildingSight:
    """The hosts, of which the cluster knows these."""
    sight = sight_of(CLUSTER, RELEASE)
    kept = tuple(node for node in sight.planes["c1"].nodes or () if node["metadata"]["name"] in nodes)
    planes = {name: replace(plane, nodes=kept) for name, plane in sight.planes.items()}
    return BuildingSight(1.0, host_sights.sight_of(CLUSTER, pairs=False), ControlSight(planes))


def test_who_is_no_node_is_neither_upgraded_nor_told_of_a_leave() -> None:
    upgrade = tuple(Step(Stage.UPGRADE, name, "", "") for name in HOSTS)
    assert [step.subject for step in plan_as_seen(upgrade, BOOTSTRAP, seen("c1", "w2"))] == ["c1", "w2"]
    leave = (Step(Stage.LEAVE, "w1", "", ""), *network_steps(CLUSTER))
    assert [step.id for step in plan_as_seen(leave, BOOTSTRAP, seen("c1", "w1"))] == [
        "leave/w1",
        "network/c1",
        "network/w1",
    ]
    blind = replace(seen(), cluster=ControlSight({}))
    assert plan_as_seen(upgrade, BOOTSTRAP, blind) == upgrade, "who cannot be seen is not left out"
    assert plan_as_seen(network_steps(CLUSTER), BOOTSTRAP, seen("c1")) == tuple(network_steps(CLUSTER))
