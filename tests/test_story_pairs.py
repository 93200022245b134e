"""Stories of pairs on the embedded cluster: real processes that meet two by two, made-up tools, faults from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.preflight import links_text
from flows.testing.links import LinksOutcome, try_links
from profiles.checks.check import Attempts
from profiles.checks.suite import SuiteProfile
from profiles.loading.load import load_suite
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.settings import Settings, localised
from tests.embedded_stage import gone
from tests.node_faults import local
from tests.pair_tools import tool

pytestmark = [pytest.mark.story, pytest.mark.alone]  # it measures times and losses

SUITE = load_suite("any-machine")
NODES = {f"node-{number}": "cpu" for number in range(6)}


class Scene:
    """A home with an embedded cluster of six nodes."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = localised(local(), home)
        self.cluster: Any = embedded_cluster(self.profile, home)

    def test(self, suite: SuiteProfile) -> LinksOutcome:
        with at_hand(self.settings), using(self.cluster):
            return try_links(self.profile, suite, NODES, lambda _: None, seed=3)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()


def words(outcome: LinksOutcome) -> dict[str, str]:
    return {node: str(grade.verdict) for node, grade in outcome.grades.items()}


def rails(program: Path) -> SuiteProfile:
    """RDMA writes on two rails by this program."""
    [pattern] = [check for check in load_suite("fabric").checks if check.name == "rdma-write"]
    limit = pattern.limits.absolute[0].model_copy(update={"hardware": (), "at_least": 150.0})
    limits = pattern.limits.model_copy(update={"absolute": (limit,), "percent_of_peak": ()})
    checks = [
        pattern.model_copy(
            update={
                "name": f"rail-{rail}",
                "command": (str(program), "-p", "{port}", "-d", f"mlx5_{rail}", "{peer}"),
                "peer_command": (str(program), "-p", "{port}", "-d", f"mlx5_{rail}"),
                "limits": limits,
                "attempts": Attempts(),
                "deadline_seconds": 20.0,
                "vendors": (),
                "left_out": "",
                "peak": "",
            }
        )
        for rail in range(2)
    ]
    return SUITE.model_copy(update={"checks": tuple(checks)})


def test_good_nodes_of_any_machine_pass_with_figures_of_their_own(scene: Scene) -> None:
    own = tuple(check for check in SUITE.checks if check.spans == "pair")
    outcome = scene.test(SUITE.model_copy(update={"checks": own}))
    assert words(outcome) == dict.fromkeys(NODES, "pass")
    [pairs] = outcome.pairs
    assert sorted(node for one in pairs.results[:3] for node in one.meeting.pair) == sorted(NODES)
    for grade in outcome.grades.values():
        measured = {reason["check"]: reason["measured"] for reason in grade.reasons}
        assert 0 < measured["pair-round-trip"] < 20000
        assert measured["pair-lost-datagrams"] <= 1
    assert "one machine stands for both nodes" in links_text(outcome, 120)
    for workflow in scene.cluster.list("Workflow"):  # what was read is deleted
        gone(scene.cluster, "Workflow", workflow["metadata"]["name"])


def test_a_node_with_a_slow_rail_is_named_and_its_partners_are_proven(scene: Scene, tmp_path: Path) -> None:
    program = tool(
        tmp_path / "tools", "ib_write_bw", "ib-write-bw/6-duration-gbits.txt", slow='{"node-4/mlx5_1": 37.5}'
    )
    outcome = scene.test(rails(program))
    assert words(outcome) == {node: "fail" if node == "node-4" else "pass" for node in NODES}
    reasons = {reason["check"]: reason for reason in outcome.grades["node-4"].reasons}
    assert (reasons["rail-0"]["verdict"], reasons["rail-0"]["measured"]) == ("pass", 181.32)
    assert (reasons["rail-1"]["verdict"], reasons["rail-1"]["measured"]) == ("fail", 37.5)
    assert "each of which is good with others" in reasons["rail-1"]["evidence"]
    [pairs] = outcome.pairs
    partners = {node for one in pairs.results if "node-4" in one.meeting.pair for node in one.meeting.pair} - {"node-4"}
    assert len(partners) == 2, "the fault was injected and met twice"
    assert "bad: node-4: rail-1" in links_text(outcome, 160)


def test_where_no_node_has_the_tool_all_are_unknown_and_say_why(scene: Scene, tmp_path: Path) -> None:
    outcome = scene.test(rails(tmp_path / "nowhere" / "ib_write_bw"))
    assert words(outcome) == dict.fromkeys(NODES, "unknown")
    assert outcome.pairs[0].rounds == 1
    assert "cannot be started: No such file" in outcome.grades["node-0"].reasons[0]["evidence"]
