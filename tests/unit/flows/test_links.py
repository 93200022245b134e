"""Tests between nodes, from the first round to verdicts in the ledger: simulated fabrics behind a made-up cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.cli.preflight import links_document, links_text
from flows.decisions.node_tests.fabric.groups import joined
from flows.decisions.node_tests.fabric.model import FabricFault
from flows.decisions.node_tests.grading.model import NodeGrade
from flows.testing.links import LinksOutcome, demand_of, gangs_of, try_links
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_suite
from profiles.vocabulary import VerdictWord
from tasks.cluster import using
from tasks.context import at_hand
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.cases.rows import rows
from tests.support.fakes.fabrics import ORDINARY, Fault, World, leaf_spine, untold, world_of
from tests.support.fakes.linked_nodes import LinkedNodes
from tests.support.faults.node_faults import local
from workflows.node_tests.links import MOST
from workflows.programs.fabric.report import GPUS

ONE_RAIL = (0,)
SLOW, SILENT = Fault(ONE_RAIL, 0.2), Fault(ONE_RAIL, None)
SUITE = load_suite("any-machine")


class Stage:
    """A home with its ledger, and nodes n0, n1, … of one pool."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.said: list[str] = []

    def test(
        self,
        cluster: LinkedNodes,
        *,
        profile: ClusterProfile | None = None,
        suite: str = "any-machine",
        beside: Mapping[str, NodeGrade] | None = None,
        share: float = 1.0,
    ) -> LinksOutcome:
        chosen = profile or local()
        pools = {node.name: chosen.pools[0].name for node in cluster.world.fabric.nodes}
        with at_hand(self.settings), using(cluster):  # type: ignore[arg-type]
            return try_links(chosen, load_suite(suite), pools, self.said.append, beside=beside, share=share, seed=7)

    def kept(self, cluster: str = "local") -> dict[str, str]:
        ledger = Ledger(self.settings.ledger_url)
        try:
            return {item.node: str(item.verdict) for item in ledger.verdicts(cluster) if item.depth == "fabric"}
        finally:
            ledger.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def nodes(world: World) -> list[str]:
    return [node.name for node in world.fabric.nodes]


def linked(world: World, **more: str) -> LinkedNodes:
    racks = {node.name: node.switches[0] for node in world.fabric.nodes if node.switches}
    return LinkedNodes(world, racks, **more)  # type: ignore[arg-type]


def named(outcome: LinksOutcome) -> set[tuple[FabricFault, str | tuple[str, ...]]]:
    found = [finding for one in outcome.fabrics for finding in one.tested.answer.findings]
    return {(finding.kind, finding.switch or finding.members) for finding in found}


def words(outcome: LinksOutcome) -> dict[str, str]:
    return {node: str(grade.verdict) for node, grade in outcome.grades.items()}


def test_good_nodes_are_proven_by_pairs_and_two_rounds_of_all(stage: Stage) -> None:
    cluster = linked(world_of(leaf_spine(8, 4, 1), rails=1))
    outcome = stage.test(cluster)
    assert [sorted(map(len, groups)) for groups in cluster.rounds] == [[2, 2, 2, 2], [8], [8]]
    assert words(outcome) == stage.kept() == {f"n{number}": "pass" for number in range(8)}
    assert named(outcome) == set()
    assert "half of the median 48 GB/s" in outcome.fabrics[0].tested.limit.why
    assert cluster.objects == {}, "what was read is deleted"
    assert any("4 groups" in line for line in stage.said)


def test_an_odd_number_leaves_nobody_out(stage: Stage) -> None:
    cluster = linked(world_of(untold(7), rails=1))
    outcome = stage.test(cluster)
    assert sorted(map(len, cluster.rounds[0])) == [2, 2, 3]
    assert set(words(outcome).values()) == {"pass"}


@pytest.mark.parametrize("fault", [SLOW, SILENT], ids=["slow", "silent"])
@pytest.mark.parametrize("count", [5, 8, 40])
def test_a_bad_node_fails_and_all_others_are_proven(stage: Stage, fault: Fault, count: int) -> None:
    world = replace(world_of(leaf_spine(count, 4, 1), rails=1), nodes={"n2": fault})
    outcome = stage.test(linked(world))
    assert named(outcome) == {(FabricFault.NODE, ("n2",))}
    assert words(outcome) == stage.kept() == {name: "fail" if name == "n2" else "pass" for name in nodes(world)}
    [reason, *_] = outcome.grades["n2"].reasons
    assert (reason["check"], reason["verdict"], reason["class"]) == ("gang-all-reduce", "fail", "fabric")
    assert "partners, each of which reaches its own with others" in reason["evidence"]


def test_a_pod_that_is_lost_in_every_round_is_a_silent_node_with_its_reason(stage: Stage) -> None:
    cluster = linked(world_of(leaf_spine(8, 4, 1), rails=1))
    cluster.silent["n5"] = "Failed"
    outcome = stage.test(cluster)
    assert words(outcome) == {name: "fail" if name == "n5" else "pass" for name in nodes(cluster.world)}
    assert "gave no answer" in outcome.grades["n5"].reasons[0]["evidence"]
    whys = [one.why for one in outcome.fabrics[0].tested.reads if one.why]
    assert all("n5: its pod failed: OOMKilled" in why for why in whys)


def test_a_node_that_computes_wrong_values_is_found_as_one_that_moves_nothing(stage: Stage) -> None:
    cluster = linked(world_of(leaf_spine(8, 4, 1), rails=1))
    cluster.wrong.add("n1")
    outcome = stage.test(cluster)
    assert words(outcome) == {name: "fail" if name == "n1" else "pass" for name in nodes(cluster.world)}
    reasons = {reason["check"]: reason for reason in outcome.grades["n1"].reasons}
    assert (reasons["gang-all-reduce-correct"]["verdict"], reasons["gang-all-reduce-correct"]["limit"]) == ("fail", 0)


def test_a_bad_link_fails_nobody_and_both_ends_are_warned(stage: Stage) -> None:
    world = replace(world_of(leaf_spine(16, 4, 1), rails=1), links={("n1", "n9"): SLOW})
    outcome = stage.test(linked(world))
    assert named(outcome) == {(FabricFault.LINK, ("n1", "n9"))}
    assert set(words(outcome).values()) == {"pass"}
    warned = {
        node: reason["evidence"]
        for node, grade in outcome.grades.items()
        for reason in grade.reasons
        if reason["check"].endswith("-link")
    }
    assert set(warned) == {"n1", "n9"}
    assert all("link n1 - n9: missed its limit" in evidence for evidence in warned.values())
    assert "bad: link n1 - n9" in links_text(outcome, 120)


def test_nodes_behind_a_bad_switch_are_unknown(stage: Stage) -> None:
    world = world_of(leaf_spine(24, 4, 1), rails=1)
    world = replace(world, switches={"leaf2": replace(SLOW, uplink=True)})
    outcome = stage.test(linked(world))
    assert named(outcome) == {(FabricFault.SWITCH, "leaf2")}
    behind = {f"n{number}" for number in range(8, 12)}
    assert words(outcome) == {name: "unknown" if name in behind else "pass" for name in nodes(world)}
    assert "only its switch" in outcome.grades["n8"].reasons[0]["evidence"]


def test_where_nobody_answers_nobody_passes_and_nobody_fails(stage: Stage) -> None:
    world = replace(world_of(untold(6), rails=1), everywhere=SILENT)
    outcome = stage.test(linked(world))
    assert set(words(outcome).values()) == {"unknown"}
    assert "no first group answered" in outcome.fabrics[0].tested.limit.why


@given(seed=st.integers(0, 10_000), bad=st.integers(0, 11), silent=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_noise_a_good_node_is_never_blamed(tmp_path: Path, seed: int, bad: int, silent: bool) -> None:
    world = world_of(leaf_spine(12, 4, 1), rails=1, noise=ORDINARY)
    world = replace(world, nodes={f"n{bad}": SILENT if silent else SLOW})
    racks = {node.name: node.switches[0] for node in world.fabric.nodes}
    outcome = Stage(tmp_path).test(LinkedNodes(world, racks, seed))
    failed = {node for node, word in words(outcome).items() if word == "fail"}
    assert failed <= {f"n{bad}"}
    assert words(outcome)[f"n{bad}"] != "pass"


def test_a_round_of_many_nodes_is_several_workflows_whose_groups_may_span_them(stage: Stage) -> None:
    world = replace(world_of(leaf_spine(MOST * 2 + 20, 16, 1), rails=1), nodes={f"n{MOST}": SLOW})
    cluster = linked(world)
    outcome = stage.test(cluster)
    assert max(len(group) for groups in cluster.rounds for group in groups) > MOST
    assert words(outcome) == {name: "fail" if name == f"n{MOST}" else "pass" for name in nodes(world)}
    assert len(cluster.deleted) > len(cluster.rounds)


def test_no_more_than_the_wished_share_of_a_pool_is_measured_at_once(stage: Stage) -> None:
    cluster = linked(world_of(untold(6), rails=1))
    stage.test(cluster, share=0.34)  # 3 of 6 nodes: one pair
    assert [[len(group) for group in groups] for groups in cluster.rounds] == [[2], [2], [2], [6], [6]]


def gpu_world(count: int = 8, **more: object) -> World:
    return replace(world_of(leaf_spine(count, 4), rails=8), **more)  # type: ignore[arg-type]


def test_gpus_are_judged_by_the_suites_limit_on_every_rail(stage: Stage) -> None:
    profile = load_cluster("kubernetes-example")
    cluster = linked(gpu_world(nodes={"n3": Fault((5,), 0.2)}), by=GPUS)
    outcome = stage.test(cluster, profile=profile, suite="fabric")
    assert [len(group) for group in cluster.rounds[0]] == [8], "everybody begins together: the limit is known"
    assert words(outcome) == {name: "fail" if name == "n3" else "pass" for name in nodes(cluster.world)}
    assert outcome.fabrics[0].tested.answer.findings[0].rails == (5,)
    assert "on each of 8 rails" in outcome.fabrics[0].tested.limit.why
    assert stage.kept(profile.name)["n3"] == "fail"


def test_where_a_rail_is_bad_everywhere_all_are_unknown_with_this_reason(stage: Stage) -> None:
    profile = load_cluster("kubernetes-example")
    cluster = linked(gpu_world(everywhere=Fault((5,), 0.2)), by=GPUS)
    outcome = stage.test(cluster, profile=profile, suite="fabric")
    assert named(outcome) == {(FabricFault.RAIL, tuple(nodes(cluster.world)))}
    assert set(words(outcome).values()) == {"unknown"}
    for grade in outcome.grades.values():
        evidence = grade.reasons[0]["evidence"]
        assert evidence.startswith("rail 5 everywhere: no group reached its limit on it")
        assert "9.6 GB/s on rail 5" in evidence


def test_a_link_that_missed_is_looked_at_by_itself_in_the_next_test(stage: Stage) -> None:
    good = world_of(leaf_spine(16, 4, 1), rails=1)
    stage.test(linked(replace(good, links={("n1", "n9"): SLOW})))
    again = linked(good)
    assert set(words(stage.test(again)).values()) == {"pass"}
    assert again.rounds.count([("n1", "n9")]) == 8
    assert named(stage.test(linked(replace(good, links={("n1", "n9"): replace(SLOW, shows=0.6)})))) == {
        (FabricFault.LINK, ("n1", "n9"))
    }


def test_sockets_in_place_of_gpus_find_bad_nodes_and_prove_nobody(stage: Stage) -> None:
    profile = load_cluster("kubernetes-example")
    cluster = linked(replace(world_of(leaf_spine(8, 4, 1), rails=1), nodes={"n3": SLOW}))
    outcome = stage.test(cluster, profile=profile, suite="fabric")
    assert words(outcome) == {name: "fail" if name == "n3" else "unknown" for name in nodes(cluster.world)}
    assert "not between GPUs" in outcome.grades["n0"].reasons[0]["evidence"]
    said = {reason["verdict"] for reason in outcome.grades["n0"].reasons if reason["check"].startswith("gang")}
    assert said == {"unknown"}


def test_what_single_nodes_showed_is_not_forgotten(stage: Stage) -> None:
    reason = {"check": "loopback", "verdict": "fail", "measured": 0.1, "limit": 1, "unit": "GB/s", "evidence": "slow"}
    cluster = linked(world_of(untold(4), rails=1))
    beside = {"n1": NodeGrade("n1", VerdictWord.FAIL, (reason,))}
    outcome = stage.test(cluster, beside=beside)
    assert words(outcome)["n1"] == "pass", "between nodes it is good"
    assert stage.kept()["n1"] == "fail"
    assert stage.kept()["n0"] == "pass"


@rows("flows/links")
def test_two_grades_of_a_node_are_the_worse_one(one: str, other: str, both: str) -> None:
    grades = [NodeGrade("n", VerdictWord(word), ({"check": word},)) for word in (one, other)]
    assert str(joined(grades[0], grades[1]).verdict) == str(joined(grades[1], grades[0]).verdict) == both
    assert len(joined(grades[0], grades[1]).reasons) == 2
    assert joined(grades[0], None) is grades[0]


def test_one_node_alone_has_nobody_to_be_measured_with(stage: Stage) -> None:
    cluster = linked(world_of(untold(1), rails=1))
    outcome = stage.test(cluster)
    assert cluster.rounds == []
    assert words(outcome) == stage.kept() == {"n0": "unknown"}
    assert outcome.grades["n0"].reasons[0]["evidence"] == "no partner to measure with"


def test_a_suite_without_gangs_is_refused_by_name(stage: Stage) -> None:
    with pytest.raises(ProfileError, match="smoke has no check of a gang"):
        stage.test(linked(world_of(untold(4), rails=1)), suite="smoke")


def test_what_is_asked_of_groups_comes_from_the_suite() -> None:
    profile = load_cluster("kubernetes-example")
    checks = gangs_of(profile, load_suite("fabric"))
    assert {check.name for check in checks["mi300x"]} == {
        "gang-all-reduce", "gang-all-reduce-correct", "gang-all-to-all",
    }  # fmt: skip
    demand = demand_of(checks["mi300x"], profile)
    assert (demand.all_reduce_bytes, demand.all_to_all_bytes, demand.iterations) == (4 << 30, 1 << 30, 20)
    assert (demand.gpus, demand.deadline_seconds) == (True, 300)
    own = gangs_of(local(), SUITE)["cpu"]
    assert demand_of(own, local()).gpus is False


def test_programs_and_people_read_the_same(stage: Stage) -> None:
    world = replace(world_of(leaf_spine(8, 4, 1), rails=1), nodes={"n2": SLOW})
    outcome = stage.test(linked(world))
    plain = json.loads(json.dumps(links_document(outcome)))
    [fabric] = plain["fabrics"]
    assert (plain["depth"], plain["kind"], fabric["by"], fabric["hardware"]) == ("fabric", "links", "sockets", "cpu")
    [finding] = fabric["findings"]
    assert (finding["kind"], finding["members"]) == ("node", ["n2"])
    assert {node["node"]: node["verdict"] for node in plain["nodes"]} == words(outcome)
    shown = links_text(outcome, 100)
    assert "7 pass, 1 fail" in shown or "1 fail, 7 pass" in shown
    assert "bad: node n2" in shown
    assert max(map(len, shown.splitlines()[3:])) <= 100
