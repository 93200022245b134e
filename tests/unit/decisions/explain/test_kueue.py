"""Kueue's messages, taken apart: wording of 0.19."""

from __future__ import annotations

from flows.decisions.explain.queue_reasons import Refusal, read_refusal
from tests.support.cases.rows import rows

GPU = "nvidia.com/gpu"


@rows("explain/kueue")
def test_a_message_is_taken_apart(message: str, expected: Refusal) -> None:
    assert read_refusal(message) == expected


def test_several_pod_sets_and_flavors_are_all_told() -> None:
    found = read_refusal(
        f"couldn't assign flavors to pod set a: insufficient unused quota for {GPU} in flavor h200, 8 more needed, "
        f"insufficient quota for {GPU} in flavor mi300x, previously considered podsets requests (0) + current podset "
        "request (64) > maximum capacity (32); couldn't assign flavors to pod set b: "
        "flavor cpu doesn't match node affinity"
    )
    assert [item.flavor for item in found.shortages] == ["h200"]
    assert [item.flavor for item in found.ceilings] == ["mi300x"]
    assert [item.flavor for item in found.misfits] == ["cpu"]
