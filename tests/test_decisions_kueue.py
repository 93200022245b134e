"""Kueue's messages, taken apart: wording of 0.19."""

from __future__ import annotations

import pytest

from flows.decisions.explain.queue_reasons import Ceiling, Misfit, NoPlace, Preemption, Refusal, Shortage, read_refusal

GPU = "nvidia.com/gpu"
NONE = "couldn't assign flavors to pod set trainer: "
SHORT = f"insufficient unused quota for {GPU} in flavor h200, 8 more needed"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            f"{NONE}{SHORT}",
            Refusal(shortages=(Shortage(GPU, "h200", "8"),)),
        ),
        (
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor on-demand, "
            "5 more needed, untolerated taint {key val NoSchedule <nil>} in flavor spot-tainted",
            Refusal(
                shortages=(Shortage("cpu", "on-demand", "5"),),
                misfits=(Misfit("spot-tainted", "its taint key=val:NoSchedule is not tolerated"),),
            ),
        ),
        (
            f"{NONE}insufficient quota for {GPU} in flavor h200, "
            "previously considered podsets requests (0) + current podset request (64) > maximum capacity (32)",
            Refusal(ceilings=(Ceiling(GPU, "h200", "64", "32"),)),
        ),
        (
            f"{NONE}insufficient quota for {GPU} in flavor h200, request > maximum capacity (32)",
            Refusal(ceilings=(Ceiling(GPU, "h200", "", "32"),)),
        ),
        (
            f"{NONE}flavor h200 doesn't match node affinity",
            Refusal(misfits=(Misfit("h200", "its labels do not match the pods' selector"),)),
        ),
        (
            'couldn\'t assign flavors to pod set trainer: Flavor "h200" does not contain the requested level',
            Refusal(misfits=(Misfit("h200", "it does not have the requested topology"),)),
        ),
        (
            'couldn\'t assign flavors to pod set trainer: topology "default" allows to fit only 3 out of 4 pod(s)',
            Refusal(places=(NoPlace("default", "allows to fit only 3 out of 4 pod(s)"),)),
        ),
        (
            "couldn't assign flavors to pod set trainer: topology \"default\" doesn't allow to fit any of 1 pod(s). "
            f'Total nodes: 4; excluded: resource "{GPU}": 4',
            Refusal(places=(NoPlace("default", "doesn't allow to fit any of 1 pod(s)", f'resource "{GPU}": 4'),)),
        ),
        (
            f"{NONE}{SHORT}. Pending the preemption of 2 workload(s)",
            Refusal(shortages=(Shortage(GPU, "h200", "8"),), preempting=2),
        ),
        ("LocalQueue team doesn't exist", Refusal(queue=("LocalQueue", "team", "doesn't exist"))),
        ("ClusterQueue research is inactive", Refusal(queue=("ClusterQueue", "research", "is inactive"))),
        ("LocalQueue team is stopped", Refusal(queue=("LocalQueue", "team", "is stopped"))),
        ("waiting for all admitted workloads to be in PodsReady condition", Refusal(pods_ready=True)),
        (
            "Preempted to accommodate a workload (UID: 4a1b, JobUID: 7c2d) due to prioritization in the ClusterQueue; "
            "preemptor path: /research; preemptee path: /research",
            Refusal(preempted=Preemption("4a1b", "7c2d", "prioritization in the ClusterQueue")),
        ),
        ("Quota reserved in ClusterQueue research", Refusal()),
        ("", Refusal()),
    ],
)
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
