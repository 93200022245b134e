"""What is gathered about an incident, as far as stories do not show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.evidence import suspended
from workflows.records import AttemptRecord

RAN = AttemptRecord("demo", 1, 1.0, "first", submitted_at=2.0, running_at=3.0)


class OneJobSet:
    """A cluster with one JobSet, or none."""

    def __init__(self, jobset: dict[str, Any] | None) -> None:
        self._jobset = jobset

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        assert (kind, name) == ("JobSet", "demo-a1")
        return self._jobset


def jobset(suspend: bool, **marks: str) -> dict[str, Any]:
    return {"metadata": {"name": "demo-a1", "labels": marks}, "spec": {"suspend": suspend}}


@pytest.mark.parametrize(
    ("found", "attempt", "words"),
    [
        (jobset(True, **{"kueue.x-k8s.io/queue-name": "team"}), RAN, "its JobSet was suspended in queue team"),
        (jobset(True), RAN, "its JobSet was suspended"),
        (jobset(True), replace(RAN, running_at=None, first_step=1), "its JobSet was suspended"),
        (jobset(True), replace(RAN, running_at=None), ""),
        (jobset(False), RAN, ""),
        (None, RAN, ""),
    ],
)
def test_a_gang_that_was_suspended_after_it_had_run(
    found: dict[str, Any] | None, attempt: AttemptRecord, words: str
) -> None:
    cluster: Any = OneJobSet(found)
    assert suspended(cluster, attempt) == words
