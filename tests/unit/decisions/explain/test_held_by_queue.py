"""What holds a workload in Kueue, with Kueue's own words, and the order of the waiting line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.explain.queue_reasons import NamespaceQueues, in_order, pending, position, queue_reasons
from flows.decisions.explain.reasons import Hold
from tests.support.builders.why_sights import ADMITTED, GPU, LOCAL, NOW, QUOTA, RESEARCH, refused, told, workload
from workflows.model.queues import AdmissionCheck, Workload

NONE = "couldn't assign flavors to pod set trainer: "
SHORT = f"{NONE}insufficient unused quota for {GPU} in flavor h200, 8 more needed"
NEVER = (
    f"{NONE}insufficient quota for {GPU} in flavor h200, previously considered podsets requests (0) + current podset "
    "request (64) > maximum capacity (32)"
)
TAKEN = (
    "Preempted to accommodate a workload (UID: 4a1b, JobUID: 7c2d) due to prioritization in the ClusterQueue; "
    "preemptor path: /research; preemptee path: /research"
)
OTHER = workload("jobset-big", owner="big-a1", uid="4a1b", priority=10, gpus=24, conditions=ADMITTED.conditions)
OTHER = replace(OTHER, cluster_queue="research")
RESERVED = (told("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue research"),)

CASES: list[tuple[Hold, Workload, str]] = [
    (Hold.QUEUED, workload(), "in line at queue team, place 1 of 1; Kueue has not decided yet"),
    (Hold.QUOTA, refused(SHORT), f"8 more {GPU} of flavor h200 (24 of 32 used), place 1 of 1"),
    (Hold.QUOTA, refused("not enough", "WaitingForQuota"), "too little is free"),
    (
        Hold.QUOTA,
        refused(f"{SHORT}, untolerated taint {{spot yes NoSchedule <nil>}} in flavor spot"),
        "waits for quota in ClusterQueue research",
    ),
    (Hold.QUOTA_NEVER, refused(NEVER), f"{GPU} of flavor h200: 64 is more than 32"),
    (Hold.QUOTA_NEVER, refused(NEVER, "ExceedsMaxQuota"), "can ever give"),
    (Hold.QUOTA, refused(f"{NEVER}; {SHORT}"), f"8 more {GPU}"),  # what may become free is nearer than what never fits
    (Hold.FLAVOR, refused(f"{NONE}flavor h200 doesn't match node affinity"), "h200: its labels do not match"),
    (
        Hold.TOPOLOGY,
        refused(f'{NONE}topology "default" allows to fit only 3 out of 4 pod(s)'),
        "topology default allows to fit only 3 out of 4 pod(s)",
    ),
    (
        Hold.TOPOLOGY,
        refused(
            f'{NONE}topology "default" doesn\'t allow to fit any of 4 pod(s). Total nodes: 8; '
            f'excluded: resource "{GPU}": 8'
        ),
        f'left out: resource "{GPU}": 8',
    ),
    (Hold.PREEMPTING, refused(f"{SHORT}. Pending the preemption of 2 workload(s)"), "2 preempted workload(s)"),
    (
        Hold.PODS_READY,
        refused("waiting for all admitted workloads to be in PodsReady condition", "Waiting"),
        "are ready",
    ),
    (Hold.QUEUE_MISSING, refused("LocalQueue team doesn't exist", "Inadmissible"), "LocalQueue team does not exist"),
    (Hold.QUEUE_MISSING, workload(queue="teem"), "LocalQueue teem does not exist"),
    (Hold.QUEUE_STOPPED, refused("ClusterQueue research is inactive", "Inadmissible"), "research is inactive"),
    (Hold.QUEUE_STOPPED, refused("something", "Suspended"), "something"),
    (
        Hold.PREEMPTED,
        refused(
            TAKEN,
            more=(told("Evicted", "True", "Preempted", TAKEN), told("Preempted", "True", "InClusterQueue", TAKEN)),
        ),
        "its quota went to Workload jobset-big (priority 10), prioritization in the ClusterQueue",
    ),
    (
        Hold.REQUEUE_LATER,
        workload(
            conditions=(told("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout default/j"),),
            requeue_at=NOW + 45,
            requeues=3,
        ),
        "evicted 3 times; Kueue looks at it again in 45 s",
    ),
    (Hold.DEACTIVATED, workload(active=False), "the workload is deactivated"),
    (
        Hold.DEACTIVATED,
        workload(
            active=False,
            requeues=5,
            conditions=(
                told(
                    "Evicted",
                    "True",
                    "DeactivatedDueToRequeuingLimitExceeded",
                    "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
                ),
            ),
        ),
        "Kueue gave up after 5 tries",
    ),
    (
        Hold.ADMISSION_CHECK,
        workload(
            conditions=RESERVED,
            checks=(AdmissionCheck("dws", "Pending", "waiting for nodes"), AdmissionCheck("ok", "Ready")),
        ),
        "not passed: dws (Pending)",
    ),
    (Hold.ADMISSION_CHECK, workload(conditions=RESERVED), "admission is pending"),
]


def line(*more: Workload, **fields: object) -> NamespaceQueues:
    values = {"workloads": more, "local_queues": (LOCAL,), "cluster_queues": (RESEARCH,)}
    return NamespaceQueues(NOW, **(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("hold", "held", "words"), CASES, ids=[f"{hold}-{i}" for i, (hold, _, _) in enumerate(CASES)])
def test_kueue_s_words_become_a_reason(hold: Hold, held: Workload, words: str) -> None:
    reasons = queue_reasons(held, line(held, OTHER))
    first = reasons[0]
    assert first.hold is hold, reasons
    assert words in first.sentence, first.sentence
    assert first.advice
    assert all(witness.kind in ("Workload", "ClusterQueue", "LocalQueue") for witness in first.witnesses)


def test_what_runs_or_has_ended_is_held_by_nothing() -> None:
    assert queue_reasons(ADMITTED, line(ADMITTED)) == ()
    over = workload(conditions=(told("Finished", "True", "Succeeded"),))
    assert queue_reasons(over, line(over)) == ()


def test_who_holds_the_quota_is_named() -> None:
    held = refused(SHORT)
    [reason] = queue_reasons(held, line(held, OTHER))
    assert "wait for big-a1 (24 GPUs) to end" in reason.advice
    assert any(item.condition == "flavor h200" and "nominal 32, used 24" in item.message for item in reason.witnesses)


def test_what_is_borrowed_is_told() -> None:
    lent = replace(RESEARCH, quotas=(replace(QUOTA, used="40", borrowed="8"),))
    held = refused(SHORT)
    [reason] = queue_reasons(held, line(held, cluster_queues=(lent,)))
    assert "(40 of 32 used, 8 of it borrowed)" in reason.sentence


def test_preempted_and_now_short_of_quota_tells_both_the_present_first() -> None:
    held = refused(
        SHORT, more=(told("Evicted", "True", "Preempted", TAKEN), told("Preempted", "True", "InClusterQueue", TAKEN))
    )
    assert [reason.hold for reason in queue_reasons(held, line(held))] == [Hold.QUOTA, Hold.PREEMPTED]


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_a_stopped_queue_admits_nobody(kind: str) -> None:
    quiet = told("Active", "False", "Stopped", "Can't admit new workloads: is stopped.")
    queues = {"local_queues": (replace(LOCAL, conditions=(quiet,)) if kind == "LocalQueue" else LOCAL,)}
    queues |= {"cluster_queues": (replace(RESEARCH, conditions=(quiet,)) if kind == "ClusterQueue" else RESEARCH,)}
    first = queue_reasons(workload(), line(workload(), **queues))[0]
    assert first.hold is Hold.QUEUE_STOPPED
    assert first.sentence.startswith(kind)
    assert "is stopped" in first.sentence


def test_a_queue_that_may_not_be_read_is_not_missing() -> None:
    blind = line(workload(), local_queues=(), cluster_queues=(), unread=frozenset({"LocalQueue", "ClusterQueue"}))
    assert [reason.hold for reason in queue_reasons(workload(), blind)] == [Hold.QUEUED]


def test_priority_comes_before_age_and_a_late_one_goes_behind() -> None:
    old, young = workload("old", created_at=1.0), workload("young", created_at=2.0)
    high = workload("high", created_at=3.0, priority=5)
    late = replace(old, name="late", conditions=(told("Evicted", "True", "PodsReadyTimeout", at=900.0),))
    assert [item.name for item in in_order([late, young, high, old])] == ["high", "old", "young", "late"]
    assert position(young, line(late, young, high, old, ADMITTED)) == (3, 4)
    assert position(ADMITTED, line(young, ADMITTED)) == (0, 1)


WORKLOADS = st.lists(
    st.builds(
        lambda name, priority, at, admitted: workload(
            f"w{name}",
            priority=priority,
            created_at=at,
            conditions=ADMITTED.conditions if admitted else (),
            cluster_queue="research" if admitted else "",
        ),
        st.integers(0, 99),
        st.integers(-5, 5),
        st.floats(0, 100),
        st.booleans(),
    ),
    max_size=8,
    unique_by=lambda item: item.name,
)


@given(WORKLOADS)
def test_places_are_given_once_and_without_gaps(workloads: list[Workload]) -> None:
    here = line(*workloads)
    waiting = [item for item in workloads if pending(item)]
    assert sorted(position(item, here)[0] for item in waiting) == list(range(1, len(waiting) + 1))
    assert all(position(item, here) == (0, len(waiting)) for item in workloads if not pending(item))
