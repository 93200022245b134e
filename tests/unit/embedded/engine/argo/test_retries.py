"""Retries of workflows."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.embedded.engine.argo.names import fnv32a
from tasks.embedded.engine.argo.state import PodFacts
from tests.support.fakes.workflow_simulator import (
    World,
    container,
    node_of,
    workflow,
)


def retried(exits: list[int | PodFacts], **strategy: Any) -> World:
    """A workflow of one retried container whose attempts end like this, one after the other."""
    ends = iter(exits)
    template = container("t", "{{retries}}", "{{lastRetry.exitCode}}", "{{lastRetry.status}}", retryStrategy=strategy)
    world = World(workflow("t", templates=[template]), lambda pod: next(ends))
    world.run()
    return world


BRIEF = PodFacts("Failed", reason="Error", exit_code=1, started_at=1_000_000.2, finished_at=1_000_000.478494)
LOST = PodFacts("Failed", reason="NodeLost", message="n1")


@pytest.mark.parametrize(
    ("exits", "strategy", "phase", "attempts", "message"),
    [
        ([0], {"limit": 2}, "Succeeded", 1, ""),
        ([1, 0], {"limit": 2}, "Succeeded", 2, ""),
        ([1, 1, 1], {"limit": "2"}, "Failed", 3, "No more retries left"),
        ([1], {"limit": 0}, "Failed", 1, "No more retries left"),
        ([1, 1, 1, 1, 0], {}, "Succeeded", 5, ""),
        ([1], {"limit": 2, "retryPolicy": "OnError"}, "Failed", 1, "main: Error (exit code 1)"),
        ([1, 0], {"limit": 2, "retryPolicy": "Always"}, "Succeeded", 2, ""),
        ([1], {"limit": 2, "retryPolicy": "OnTransientError"}, "Failed", 1, "main: Error (exit code 1)"),
        (
            [3, 4],
            {"limit": 5, "expression": "asInt(lastRetry.exitCode) == 3"},
            "Failed",
            2,
            "retryStrategy.expression evaluated to false",
        ),
        (
            [BRIEF, 0],
            {"limit": 5, "expression": "asInt(lastRetry.duration) == 0 && retries == '0'"},
            "Succeeded",
            2,
            "",
        ),
        ([LOST, 0], {"limit": 5, "expression": "lastRetry.message contains 'NodeLost'"}, "Succeeded", 2, ""),
        (
            [3],
            {"limit": 5, "retryPolicy": "OnError", "expression": "true"},
            "Failed",
            1,
            "main: Error (exit code 3)",
        ),
        ([1], {"limit": 1, "expression": "lastRetry.exitCode > 1"}, "Error", 1, "error in entry template execution"),
    ],
)
def test_policy_limit_and_expression_must_all_allow_another_attempt(
    exits: list[Any], strategy: dict[str, Any], phase: str, attempts: int, message: str
) -> None:
    world = retried(exits, **strategy)
    assert (world.phase, len(world.manifests)) == (phase, attempts)
    assert world.message.startswith(message)
    assert [name for name in world.nodes if name != "wf"] == [f"wf({index})" for index in range(attempts)]
    assert world.nodes["wf"]["type"] == "Retry"
    assert world.nodes["wf(0)"]["nodeFlag"] == {"retried": True}


def test_an_attempt_knows_the_one_before() -> None:
    world = retried([7, 0], limit=3)
    assert world.args() == {"wf(0)": ["0", "0", ""], "wf(1)": ["1", "7", "Failed"]}
    assert world.nodes["wf"]["outputs"]["exitCode"] == "0"


def test_backoff_counts_from_the_end_of_the_last_attempt() -> None:
    ends = iter([1, 1, 1, 0])
    backoff = {"duration": "10", "factor": 2, "cap": "25s"}
    template = container("t", retryStrategy={"limit": 5, "backoff": backoff})
    world = World(workflow("t", templates=[template]), lambda pod: next(ends))
    waits: list[float] = []
    for _ in range(3):
        world.step()
        world.now += 1
        world.end(world.living()[0], next(ends))
        ended = world.now
        found = world.step()
        assert found.wake_at is not None
        assert world.nodes["wf"]["message"].startswith("Backoff for ")
        waits.append(found.wake_at - ended)
        world.now = found.wake_at - 0.01
        assert not world.step().create_pods
        world.now = found.wake_at
    assert waits == pytest.approx([10.0, 20.0, 25.0])
    world.run()
    assert world.phase == "Succeeded"


def test_backoff_ends_at_its_longest_duration() -> None:
    world = retried([1, 1], limit=10, backoff={"duration": "10", "factor": "2", "maxDuration": "25"})
    assert (world.phase, world.message) == ("Failed", "Backoff would exceed max duration limit")
    assert len(world.manifests) == 2
    assert world.manifests[f"wf-t-{fnv32a('wf(1)')}"]["spec"]["activeDeadlineSeconds"] == 14


def test_endless_attempts_do_not_wait_longer_than_their_cap() -> None:
    world = retried([1] * 40 + [0], backoff={"duration": "1", "factor": "1000000000", "cap": "2"})
    assert (world.phase, len(world.manifests)) == ("Succeeded", 41)


def test_attempts_keep_away_from_nodes_where_one_failed() -> None:
    world = retried([1, 0], limit=3, affinity={"nodeAntiAffinity": {}})
    (second,) = [pod for pod in world.manifests.values() if node_of(pod) == "wf(1)"]
    required = second["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n0"]}]}
    ]


def test_a_whole_dag_is_tried_again() -> None:
    templates = [
        {"name": "main", "dag": {"tasks": [{"name": "a", "template": "t"}]}, "retryStrategy": {"limit": 1}},
        container("t"),
    ]
    world = World(workflow(templates=templates), lambda pod: int("(0)" in node_of(pod)))
    world.run()
    assert world.phases() == {
        "wf": "Succeeded",
        "wf(0)": "Failed",
        "wf(0).a": "Failed",
        "wf(1)": "Succeeded",
        "wf(1).a": "Succeeded",
    }


def test_a_retry_for_the_whole_workflow() -> None:
    ends = iter([1, 0])
    world = World(workflow("t", templates=[container("t")], retryStrategy={"limit": 1}), lambda pod: next(ends))
    world.run()
    assert (world.phase, world.nodes["wf"]["type"]) == ("Succeeded", "Retry")
