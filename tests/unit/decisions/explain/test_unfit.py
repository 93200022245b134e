"""The scheduler's message, taken apart: as kube-scheduler 1.36 and the embedded cluster write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.explain.pod_reasons import Unfit, read_unfit

GPU = "nvidia.com/gpu"
NO_HELP = "preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            f"0/6 nodes are available: 2 Insufficient {GPU}, 4 node(s) had untolerated taint(s). preemption: "
            "0/6 nodes are available: 2 No preemption victims found for incoming pod, "
            "4 Preemption is not helpful for scheduling.",
            Unfit(6, lacking={GPU: 2}, taints={"": 4}),
        ),
        (
            f"0/3 nodes are available: 3 Insufficient {GPU}, 3 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            Unfit(3, lacking={GPU: 3, "cpu": 3}),
        ),
        (
            f'0/6 nodes are available: persistentvolumeclaim "datasets" not found. {NO_HELP}',
            Unfit(6, problem='persistentvolumeclaim "datasets" not found'),
        ),
        (
            f"0/6 nodes are available: pod has unbound immediate PersistentVolumeClaims. {NO_HELP}",
            Unfit(6, problem="pod has unbound immediate PersistentVolumeClaims"),
        ),
        (
            "0/8 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node "
            "affinity/selector, 2 node(s) didn't match pod anti-affinity rules, "
            "3 node(s) had untolerated taint {amd.com/gpu: present}. "
            f"{NO_HELP}",
            Unfit(8, taints={"amd.com/gpu=present": 3}, cordoned=1, selector=2, neighbours=2),
        ),
        (
            "0/2 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, "
            "1 node(s) had untolerated taint {primus-flows.io/quarantine: xid}.",
            Unfit(2, taints={"primus-flows.io/quarantine=xid": 1}, not_ready=1),
        ),
        (
            "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, "
            "1 node(s) had volume node affinity conflict.",
            Unfit(2, volumes=2),
        ),
        ("0/1 nodes are available: 1 Too many pods.", Unfit(1, lacking={"pods": 1})),
        (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
            Unfit(1, other={"node(s) didn't have free ports for the requested pod ports": 1}),
        ),
        ("0/0 nodes are available: no nodes.", Unfit(0, problem="no nodes")),
    ],
)
def test_a_message_is_taken_apart(message: str, expected: Unfit) -> None:
    assert read_unfit(message) == expected


@pytest.mark.parametrize("message", ["", "no nodes available to schedule pods", "Scheduling is blocked due to gates"])
def test_other_words_are_no_message_of_that_kind(message: str) -> None:
    assert read_unfit(message) is None


REASONS = {
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
