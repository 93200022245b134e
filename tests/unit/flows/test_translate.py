"""What an incident keeps of its diagnosis: a text may be sure that a node is lost, only facts prove it."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.failover import finding_of
from profiles.vocabulary import FaultClass
from tests.support.builders.nodes import a_node
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import Pod
from workflows.model.nodes import Node

LINE = LogLine(
    "compute001  1  main*  down*  12  12:1:1  64267  0  1  (null) Not responding", "kernel", None, "compute001", 9.0
)
PODS = (Pod("pod-0", "trainer", 0, "compute001", "Running"),)
SILENT = {"silent_nodes": ("compute001",)}
UNREACHED = {"unreached_nodes": ("compute001",)}


def evidence(*nodes: Node, **facts: tuple[str, ...]) -> Evidence:
    return Evidence(Signal.POD_FAILED, "demo", 1, 10.0, PODS, nodes, lines=(LINE,), **facts)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        (evidence(a_node("compute001", True)), ()),
        (evidence(a_node("compute001", True), **UNREACHED), ()),
        (evidence(a_node("compute001", True), **SILENT, **UNREACHED), ("compute001",)),
        (evidence(a_node("compute001", False, "ContainerRuntimeDown")), ()),
        (evidence(a_node("compute001", False, "PowerLost"), **UNREACHED), ("compute001",)),
    ],
    ids=["a line alone", "a line and one path", "both paths", "its condition", "its condition and one path"],
)
def test_pods_of_a_node_are_removed_unwaited_only_where_facts_prove_it_lost(
    seen: Evidence, lost: tuple[str, ...]
) -> None:
    diagnosis = diagnose(seen)
    assert diagnosis.fault_class is FaultClass.NODE_LOST
    assert diagnosis.confidence > 0.7
    assert finding_of(diagnosis, seen).lost_nodes == lost
