"""Whose kubelet is not reached: asked only about nodes in doubt, and nothing is concluded where nobody can say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from profiles.errors import Unavailable
from tasks.cluster import Cluster
from tasks.runs.liveness import MOST, out_of_reach, unready
from tests.support.builders.nodes import a_node
from workflows.model.cluster import Pod


@dataclass
class Kubelets:
    """A cluster whose kubelets answer or not."""

    told: dict[str, bool | None]
    """By pod; a pod that is missing raises Unavailable."""
    asked: list[str] = field(default_factory=list[str])

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool | None:
        assert timeout_seconds > 0
        self.asked.append(pod)
        if pod not in self.told:
            raise Unavailable("no answer")
        return self.told[pod]


def gang(size: int, phase: str = "Running") -> list[Pod]:
    return [Pod(f"p-{index}", "trainer", index, f"n-{index}", phase, ranks=(index,)) for index in range(size)]


@pytest.mark.parametrize(
    ("told", "away"),
    [({"p-1": False}, ("n-1",)), ({"p-1": True}, ()), ({"p-1": None}, ()), ({}, ())],
    ids=["not reached", "reached", "the cluster cannot say", "the cluster does not answer"],
)
def test_only_a_kubelet_that_is_not_reached_counts(told: dict[str, bool | None], away: tuple[str, ...]) -> None:
    cluster = Kubelets(told)
    assert out_of_reach(cast(Cluster, cluster), gang(2), frozenset({"n-1"})) == away
    assert cluster.asked == ["p-1"]


def test_pods_that_were_about_to_start_are_asked_for_too() -> None:
    cluster = Kubelets({"p-0": False})
    assert out_of_reach(cast(Cluster, cluster), gang(1, "Pending"), frozenset({"n-0"})) == ("n-0",)
    unplaced = [Pod("p-1", "trainer", 1, "", "Pending")]
    assert out_of_reach(cast(Cluster, cluster), unplaced, frozenset({"", "n-0"})) == ()


def test_nobody_is_asked_about_well_nodes_ended_pods_or_a_crowd() -> None:
    cluster = Kubelets({})
    everyone = frozenset(f"n-{index}" for index in range(MOST + 1))
    assert out_of_reach(cast(Cluster, cluster), gang(2), frozenset()) == ()
    assert out_of_reach(cast(Cluster, cluster), gang(2, "Failed"), everyone) == ()
    assert out_of_reach(cast(Cluster, cluster), gang(MOST + 1), everyone, MOST) == ()
    assert cluster.asked == []


def test_a_whole_rack_is_asked_about_where_its_pods_must_go() -> None:
    rack = gang(72)
    cluster = Kubelets({pod.name: False for pod in rack})
    everyone = frozenset(pod.node for pod in rack)
    assert out_of_reach(cast(Cluster, cluster), rack, everyone) == tuple(sorted(everyone))


def test_a_node_of_which_nothing_is_known_is_not_called_unready() -> None:
    assert unready([a_node("a", True), a_node("b", False), a_node("c", None)]) == {"b"}
