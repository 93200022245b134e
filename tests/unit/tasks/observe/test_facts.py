"""What is taken over from programs into the ledger."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.observe.objects import coordinator_facts, moments
from tests.support.cases.rows import rows
from workflows.model.cluster import pod_of
from workflows.model.gang_status import PROGRAM_MARKS
from workflows.model.records import MarkRecord
from workflows.programs.coordinator.progress import STALLS
from workflows.status import read_status


def test_moments_of_loading_and_saving_are_marks() -> None:
    told = [["restore-begin", 1.5, "why"], ["checkpoint-end", 2, ""]]
    assert moments("r", 3, told) == [
        MarkRecord("r", 3, "restore-begin", 1.5, "why"),
        MarkRecord("r", 3, "checkpoint-end", 2.0, ""),
    ]
    assert frozenset(f"{name}-{edge}" for name in STALLS for edge in ("begin", "end")) == PROGRAM_MARKS


@rows("tasks/observe/facts")
def test_anything_else_is_left_out(told: object) -> None:
    assert moments("r", 1, told) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=4), max_leaves=20
)


@given(JSON)
def test_nothing_that_is_told_breaks_it(told: object) -> None:
    assert all(mark.kind in PROGRAM_MARKS for mark in moments("r", 1, told))


def ended(reason: str, message: str) -> dict[str, Any]:
    state = {"terminated": {"reason": reason, "exitCode": 128, "message": message}}
    return {"metadata": {"name": "p"}, "status": {"phase": "Failed", "containerStatuses": [{"state": state}]}}


def test_a_container_that_never_started_is_told_of_by_the_runtime() -> None:
    said = 'failed to create containerd task: exec: "python3": executable file not found in $PATH: unknown'
    assert pod_of(ended("StartError", said)).message == said


def test_what_a_launcher_left_is_no_message_of_the_runtime() -> None:
    assert pod_of(ended("Error", '{"pod": "p"}')).message == ""


@rows("tasks/observe/facts")
def test_ranks_that_failed_are_known_from_the_coordinator(ended: list[object], failed: tuple[int, ...]) -> None:
    whole: list[Any] = [item | {"local_rank": 0, "at": 1.0} if isinstance(item, dict) else item for item in ended]
    status = read_status(json.dumps({"ended": whole}).encode())
    assert status is not None
    assert coordinator_facts(status, 1.0).failed_ranks == failed


def test_a_launcher_whose_ranks_have_ended_is_no_silent_one() -> None:
    members = [{"pod": f"p{n}", "node": f"n{n}", "state": state, "last_heard_at": float(n)} for n, state in enumerate(
        ("ended", "failed", "running", "joined"))]  # fmt: skip
    status = read_status(json.dumps({"members": members}).encode())
    assert status is not None
    assert coordinator_facts(status, 1.0).heard == (("p2", "n2", 2.0), ("p3", "n3", 3.0))
