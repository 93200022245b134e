"""Tests of pairs, from the first round to verdicts in the ledger: made-up pods that tell what tools would say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.cli.preflight import links_document, links_text
from flows.testing.links import LinksOutcome, pairs_of, try_links
from profiles.checks.suite import SuiteProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_suite
from tasks.cluster import using
from tasks.context import at_hand
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.fabrics import untold, world_of
from tests.linked_nodes import LinkedNodes, good
from workflows.programs.fabric.pair_member import PairCall
from workflows.programs.parsers.text import ParsedOutput, Reading


def taken_in() -> SuiteProfile:
    """The shipped suite, as in a site whose image has perftest."""
    suite = load_suite("fabric")
    checks = [item.model_copy(update={"left_out": ""}) if item.name == "rdma-write" else item for item in suite.checks]
    return suite.model_copy(update={"checks": tuple(checks)})


FABRIC = taken_in()


def only_pairs(suite: SuiteProfile = FABRIC) -> SuiteProfile:
    return suite.model_copy(update={"checks": tuple(check for check in suite.checks if check.spans == "pair")})


class Stage:
    """A home with its ledger, and so many nodes with fast NICs."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = load_cluster("kubernetes-example")

    def test(self, cluster: LinkedNodes, suite: SuiteProfile | None = None) -> LinksOutcome:
        pools = {node.name: self.profile.pools[0].name for node in cluster.world.fabric.nodes}
        with at_hand(self.settings), using(cluster):  # type: ignore[arg-type]
            return try_links(self.profile, suite or only_pairs(), pools, lambda _: None, seed=7)

    def kept(self) -> dict[str, str]:
        ledger = Ledger(self.settings.ledger_url)
        try:
            return {item.node: str(item.verdict) for item in ledger.verdicts(self.profile.name)}
        finally:
            ledger.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def nodes_of(count: int) -> LinkedNodes:
    return LinkedNodes(world_of(untold(count), rails=1), {})


def words(outcome: LinksOutcome) -> dict[str, str]:
    return {node: str(grade.verdict) for node, grade in outcome.grades.items()}


def only(count: int, node: str, word: str) -> dict[str, str]:
    return {f"n{number}": word if f"n{number}" == node else "pass" for number in range(count)}


def reason_of(outcome: LinksOutcome, node: str, check: str) -> dict[str, object]:
    return next(reason for reason in outcome.grades[node].reasons if reason["check"] == check)


def slow_rail(node: str, rail: str, gigabits: float) -> object:
    """One RDMA device of a node is slow, whoever asks."""

    def told(asking: str, asked: str, call: PairCall) -> ParsedOutput:
        if "rdma_bandwidth" not in call.quantities:
            return good(asking, asked, call)
        rate = {nic: 391.0 for nic in ("mlx5_0", "mlx5_1")}
        if node in (asking, asked):
            rate[rail] = gigabits
        return ParsedOutput(
            tuple(Reading("rdma_bandwidth", one, "Gb/s", nic, line="a row") for nic, one in rate.items())
        )

    return told


def test_good_nodes_pass_in_one_round_in_which_each_meets_one_other(stage: Stage) -> None:
    cluster = nodes_of(8)
    outcome = stage.test(cluster)
    assert words(outcome) == stage.kept() == only(8, "", "")
    assert [[len(pair) for pair in pairs] for pairs in cluster.pair_rounds] == [[2, 2, 2, 2]]
    assert cluster.rounds == [], "a suite without gangs measures none"
    assert cluster.objects == {}, "what was read is deleted"
    assert {reason["check"] for reason in outcome.grades["n0"].reasons} == {"reach", "rdma-write", "rdma-latency"}


def test_an_odd_node_meets_a_proven_one_in_a_second_round(stage: Stage) -> None:
    cluster = nodes_of(5)
    assert set(words(stage.test(cluster)).values()) == {"pass"}
    [first, second] = cluster.pair_rounds
    [pair] = second
    assert len(first) == 2
    assert set(pair) - {node for both in first for node in both}, "the one that rested"


def test_where_a_rail_is_slow_everywhere_nobody_is_blamed_and_the_rail_is_named(stage: Stage) -> None:
    def told(asking: str, asked: str, call: PairCall) -> ParsedOutput:
        if "rdma_bandwidth" not in call.quantities:
            return good(asking, asked, call)
        rate = {"mlx5_0": 391.0, "mlx5_1": 120.0}
        return ParsedOutput(
            tuple(Reading("rdma_bandwidth", one, "Gb/s", nic, line="a row") for nic, one in rate.items())
        )

    cluster = nodes_of(6)
    cluster.asked = told
    outcome = stage.test(cluster)
    assert set(words(outcome).values()) == {"unknown"}
    for node in words(outcome):
        reason = reason_of(outcome, node, "rdma-write")
        assert "on mlx5_1, the same rail everywhere" in str(reason["evidence"])
        assert (reason["verdict"], "class" in reason) == ("unknown", False)


def test_a_slow_rail_is_the_fault_of_its_node_and_every_partner_is_proven(stage: Stage) -> None:
    cluster = nodes_of(8)
    cluster.asked = slow_rail("n3", "mlx5_1", 120.0)  # type: ignore[assignment]
    outcome = stage.test(cluster)
    assert words(outcome) == stage.kept() == only(8, "n3", "fail")
    reason = reason_of(outcome, "n3", "rdma-write")
    assert (reason["measured"], reason["limit"], reason["class"]) == (120.0, 380.0, "fabric")
    assert "mlx5_1" in str(reason["evidence"])
    assert "each of which is good with others" in str(reason["evidence"])
    assert reason["action"] == "quarantine"
    assert cluster.pair_calls[0] == ("ping", "ib_write_bw", "ib_write_lat")
    assert set(cluster.pair_calls[1:]) == {("ib_write_bw",)}, "only what missed is measured again"
    warned = {node for node in outcome.grades for one in outcome.grades[node].reasons if one["check"].endswith("-link")}
    assert warned == set(), "a good node is not warned of a bad one"


def test_one_bad_moment_of_two_good_nodes_is_told_and_fails_nobody(stage: Stage) -> None:
    cluster, missed = nodes_of(6), []

    def told(asking: str, asked: str, call: PairCall) -> ParsedOutput:
        if "packet_loss" in call.quantities and (not missed or {asking, asked} == missed[0]):
            missed.append({asking, asked})
            return ParsedOutput((Reading("packet_loss", 10.0, "%", line="10% packet loss"),))
        return good(asking, asked, call)

    cluster.asked = told
    outcome = stage.test(cluster)
    assert set(words(outcome).values()) == {"pass"}
    for node in missed[0]:
        reason = reason_of(outcome, node, "reach-link")
        assert (reason["severity"], reason["measured"]) == ("warning", 10.0)
        assert "both are good with others" in str(reason["evidence"])


@pytest.mark.parametrize("phase", ["Failed", "Error"])
def test_a_node_whose_pod_is_lost_is_unknown_with_its_reason(stage: Stage, phase: str) -> None:
    cluster = nodes_of(6)
    cluster.silent["n2"] = phase
    outcome = stage.test(cluster)
    assert words(outcome) == stage.kept() == only(6, "n2", "unknown")
    assert f"its pod {phase.lower()}: OOMKilled" in str(reason_of(outcome, "n2", "reach")["evidence"])


def test_a_tool_that_nobody_has_is_unknown_everywhere_and_asked_for_once(stage: Stage) -> None:
    cluster = nodes_of(8)

    def told(asking: str, asked: str, call: PairCall) -> ParsedOutput:
        missing = ParsedOutput(unknown="ib_write_bw cannot be started: No such file or directory")
        return missing if call.title == "ib_write_bw" else good(asking, asked, call)

    cluster.asked = told
    outcome = stage.test(cluster)
    assert set(words(outcome).values()) == {"unknown"}
    assert len(cluster.pair_rounds) == 1
    reason = reason_of(outcome, "n0", "rdma-write")
    assert (reason["verdict"], reason["measured"]) == ("unknown", None)
    assert "No such file" in str(reason["evidence"])
    assert reason_of(outcome, "n0", "reach")["verdict"] == "pass"


def test_a_server_that_one_node_lacks_leaves_that_node_unknown_and_no_other(stage: Stage) -> None:
    cluster = nodes_of(8)

    def told(asking: str, asked: str, call: PairCall) -> ParsedOutput:
        if call.title == "ib_write_bw" and asked == "n5":
            return ParsedOutput(unknown="n5: ib_write_bw cannot be started")
        return good(asking, asked, call)

    cluster.asked = told
    assert words(stage.test(cluster)) == only(8, "n5", "unknown")


def test_a_figure_far_from_those_of_other_pairs_is_measured_again_and_then_blamed(stage: Stage) -> None:
    cluster = nodes_of(12)

    def told(asking: str, asked: str, call: PairCall) -> ParsedOutput:
        found = good(asking, asked, call)
        if "n7" not in (asking, asked):
            return found
        slow = [Reading(one.quantity, 400.0 if one.unit == "us" else one.value, one.unit) for one in found.readings]
        return ParsedOutput(tuple(slow))

    cluster.asked = told
    outcome = stage.test(cluster, only_pairs(load_suite("any-machine")))
    assert words(outcome) == only(12, "n7", "fail")
    assert reason_of(outcome, "n7", "pair-round-trip")["measured"] == 400.0
    assert "peers" in str(reason_of(outcome, "n7", "pair-round-trip")["evidence"])


def test_what_gangs_and_pairs_say_is_one_verdict_and_the_worse_of_both(stage: Stage) -> None:
    cluster = nodes_of(8)
    cluster.asked = slow_rail("n1", "mlx5_0", 50.0)  # type: ignore[assignment]
    outcome = stage.test(cluster, FABRIC)
    assert words(outcome)["n1"] == "fail"
    checks = [reason["check"] for reason in outcome.grades["n1"].reasons]
    assert {"gang-all-reduce", "rdma-write", "reach"} <= set(checks)
    shown = links_text(outcome, 160)
    assert "bad: n1: rdma-write" in shown
    assert "pairs of " in shown
    told = json.loads(json.dumps(links_document(outcome)))
    [pairs] = told["pairs"]
    row = next(one for one in pairs["meetings"] if "n1" in one["pair"])
    assert row["said"]["rdma-write"] == "fail"
    assert row["measured"]["rdma-write"]["n1"] == 50.0


def test_two_nodes_alone_that_miss_are_unknown_both(stage: Stage) -> None:
    cluster = nodes_of(2)
    cluster.asked = slow_rail("n1", "mlx5_0", 50.0)  # type: ignore[assignment]
    outcome = stage.test(cluster)
    assert set(words(outcome).values()) == {"unknown"}
    assert "does not show which end is at fault" in str(reason_of(outcome, "n0", "rdma-write")["evidence"])
    assert "what_to_do" not in reason_of(outcome, "n0", "rdma-write")


def test_a_suite_without_anything_between_nodes_is_refused(stage: Stage) -> None:
    assert set(pairs_of(stage.profile, FABRIC)) == {"cpu", "h200", "mi300x"}
    with pytest.raises(ProfileError, match="no check of a gang or a pair"):
        stage.test(nodes_of(2), load_suite("storage"))
