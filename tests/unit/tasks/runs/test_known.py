"""What a watch keeps of nodes: little of each, and only news wakes whoever waits."""

from __future__ import annotations

from typing import Any

from tasks.runs.watch import OURS, Known
from workflows import labels


def node(name: str, ready: str = "True", heard: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": heard}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition]}}


def wakes(known: Known, change: str, manifest: dict[str, Any]) -> bool:
    known.changed.clear()
    known.note_node(change, manifest)
    return known.changed.is_set()


def test_only_news_of_a_node_wakes() -> None:
    known = Known()
    assert wakes(known, "ADDED", node("b"))
    assert not wakes(known, "MODIFIED", node("b", heard="2026-01-01T00:05:00Z")), "it lives, which is no news"
    assert wakes(known, "MODIFIED", node("b", ready="Unknown"))
    assert wakes(known, "MODIFIED", node("b", ready="Unknown", unschedulable=True))
    assert wakes(known, "DELETED", node("b"))
    assert known.nodes == {}


def test_nodes_are_told_by_name_as_far_as_they_are_known() -> None:
    known = Known()
    for name in ("c", "a", "b"):
        known.note_node("ADDED", node(name))
    assert [item.name for item in known.nodes_of({"c", "a", "elsewhere"})] == ["a", "c"]
    known.listed.add("Node")
    assert wakes(known, "SYNC", {})
    assert (known.nodes, known.listed) == ({}, set()), "the list is told anew"


def of_run(kind: str, name: str, **status: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "labels": {labels.RUN: "r"}}, "status": status}


def test_a_jobset_that_has_ended_asks_once_for_its_pods_and_the_view_is_partial_meanwhile() -> None:
    known = Known()
    known.listed |= set(OURS)
    assert not known.note("JobSet", "ADDED", of_run("JobSet", "r-a1"), "r")
    assert not known.is_partial
    done = of_run("JobSet", "r-a1", terminalState="Completed")
    assert known.note("JobSet", "MODIFIED", done, "r")
    assert known.is_partial, "its pods' own news may be on its way"
    assert not known.note("JobSet", "MODIFIED", done, "r")
    known.listed.add("Pod")
    assert known.is_partial, "a watch of pods that ends meanwhile told nothing of the end"
    known.changed.clear()
    known.told_the_end()
    assert (known.is_partial, known.changed.is_set()) == (False, True)


def test_a_stranger_of_another_run_is_not_taken_in() -> None:
    known = Known()
    assert not known.note("JobSet", "ADDED", of_run("JobSet", "other", terminalState="Failed"), "another")
    assert known.objects == {"JobSet": {}}
    assert not known.end_untold
