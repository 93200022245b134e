"""When the coordinator's pod is removed from a lost node: only where everything says that it went with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders.nodes import a_node
from workflows.model.attempt import AttemptView
from workflows.model.cluster import Pod
from workflows.model.liveness import stranded_coordinator

RANK = Pod("r-a1-trainer-0-0-x", "trainer", 0, "node-0", "Running", ranks=(0,))
COORDINATOR = Pod("r-a1-coordinator-0-0-x", "coordinator", 0, "control-0", "Running")
LOST = AttemptView(
    "r",
    1,
    100.0,
    jobset="Running",
    pods=(RANK, COORDINATOR),
    nodes=(a_node("node-0", True), a_node("control-0", False, "PowerLost")),
    unheard_since=99.0,
    unreached=("control-0",),
)


def test_it_went_with_its_node() -> None:
    assert stranded_coordinator(LOST) == COORDINATOR.name
    pending = replace(LOST, pods=(RANK, replace(COORDINATOR, phase="Pending")))
    assert stranded_coordinator(pending) == COORDINATOR.name


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("it answers, or nobody could ask", {"unheard_since": None}),
        ("the kubelet answers", {"unreached": ()}),
        ("the node's condition is unknown", {"nodes": (a_node("control-0", None),)}),
        ("the node is ready", {"nodes": (a_node("control-0", True),)}),
        ("a rank is there too", {"pods": (replace(RANK, node="control-0"), COORDINATOR)}),
        ("it has ended", {"pods": (RANK, replace(COORDINATOR, phase="Failed"))}),
        ("it is gone", {"pods": (RANK, replace(COORDINATOR, phase="Gone"))}),
        ("there is none", {"pods": (RANK,)}),
    ],
)
def test_it_is_left_where_it_is(said: str, changes: dict[str, Any]) -> None:
    assert stranded_coordinator(replace(LOST, **changes)) == "", said
