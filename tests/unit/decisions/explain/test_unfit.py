"""The scheduler's message, taken apart: as kube-scheduler 1.36 and the embedded cluster write it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.explain.pod_reasons import Unfit, read_unfit
from tests.support.cases.rows import rows

GPU = "nvidia.com/gpu"
NO_HELP = "preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."


@rows("explain/unfit")
def test_a_message_is_taken_apart(message: str, expected: Unfit) -> None:
    assert read_unfit(message) == expected


@pytest.mark.parametrize("message", ["", "no nodes available to schedule pods", "Scheduling is blocked due to gates"])
def test_other_words_are_no_message_of_that_kind(message: str) -> None:
    assert read_unfit(message) is None


REASONS: dict[str, Callable[[Unfit], int]] = {
    "Insufficient cpu": lambda unfit: unfit.lacking.get("cpu", 0),
    f"Insufficient {GPU}": lambda unfit: unfit.lacking.get(GPU, 0),
    "node(s) were unschedulable": lambda unfit: unfit.cordoned,
    "node(s) had untolerated taint(s)": lambda unfit: unfit.taints.get("", 0),
    "node(s) didn't match Pod's node affinity/selector": lambda unfit: unfit.selector,
    "node(s) didn't match pod topology spread constraints": lambda unfit: unfit.neighbours,
}


@given(st.dictionaries(st.sampled_from(sorted(REASONS)), st.integers(1, 9999), min_size=1))
def test_every_count_arrives_where_it_belongs(counts: dict[str, int]) -> None:
    # The scheduler sorts its entries as text.
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    found = read_unfit(f"0/9999 nodes are available: {listed}. {NO_HELP}")
    assert found is not None
    assert found.nodes == 9999
    assert {reason: read(found) for reason, read in REASONS.items() if read(found)} == counts
