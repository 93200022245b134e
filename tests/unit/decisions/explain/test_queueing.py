"""Who waits and who runs, in which order: from Workloads where Kueue is, else from JobSets."""

from __future__ import annotations

from dataclasses import replace

from flows.decisions.explain.queue import entries
from flows.decisions.explain.reasons import Hold
from tests.support.builders.why_sights import (
    ADMITTED,
    GPU,
    JOBSET,
    LOCAL,
    NOW,
    RESEARCH,
    pod,
    refused,
    running,
    told,
    unplaced,
    waiting,
    workload,
)
from workflows.model.cluster import JobSet
from workflows.model.why import QueueSight

NO_ROOM = f"0/6 nodes are available: 6 Insufficient {GPU}."
SHORT = f"couldn't assign flavors to pod set trainer: insufficient unused quota for {GPU} in flavor h200, 8 more needed"


def jobset(name: str, created_at: float, **fields: object) -> JobSet:
    return replace(JOBSET, **({"name": name, "queue": "", "suspended": False, "created_at": created_at} | fields))  # type: ignore[arg-type]


def test_workloads_stand_in_kueue_s_order_and_say_what_blocks_them() -> None:
    low = refused(SHORT, name="w-low", owner="low-a1", created_at=1.0)
    high = refused(SHORT, name="w-high", owner="high-a1", created_at=2.0, priority=100)
    runs = replace(ADMITTED, owner="runs-a1")
    off = workload("w-off", owner="off-a1", active=False)
    over = workload("w-over", owner="over-a1", conditions=(told("Finished", "True", "Succeeded"),))
    pods = running(2)
    found = entries(
        QueueSight(
            jobsets=(jobset("runs-a1", 0.0, run="runs", queue="team"), jobset("over-a1", 0.0, state="Completed")),
            pods=pods,
            owners={item.name: "runs-a1" for item in pods},
            workloads=(low, high, runs, off, over),
            local_queues=(LOCAL,),
            cluster_queues=(RESEARCH,),
        ),
        NOW,
    )
    assert [(item.name, item.state, item.position) for item in found] == [
        ("high-a1", "waiting", 1),
        ("low-a1", "waiting", 2),
        ("off-a1", "suspended", 0),
        ("runs-a1", "running", 0),
    ]
    assert [item.reasons[0].hold for item in found[:3]] == [Hold.QUOTA, Hold.QUOTA, Hold.DEACTIVATED]
    assert "place 2 of 2" in found[1].reasons[0].sentence
    assert found[3].reasons == ()
    assert (found[3].run, found[3].cluster_queue, found[3].gpus) == ("runs", "research", 16)


def test_an_admitted_one_whose_pods_find_no_node_is_not_called_running() -> None:
    held = replace(unplaced(NO_ROOM), name="p")
    sight = QueueSight(workloads=(ADMITTED,), pods=(held,), owners={"p": "demo-1-a1"}, local_queues=(LOCAL,))
    [found] = entries(sight, NOW)
    assert (found.state, found.reasons[0].hold) == ("starting", Hold.RESOURCES)


def test_without_kueue_the_scheduler_s_order_counts() -> None:
    names = {"late": 3.0, "early": 1.0, "high": 2.0, "runs": 0.0, "pulls": 0.5, "held": 0.2}
    sets = {name: jobset(name, at) for name, at in names.items()}
    sets["high"] = replace(sets["high"], priority=10, priority_class="high")
    sets["held"] = replace(sets["held"], suspended=True)
    pods = {
        "late": replace(unplaced(NO_ROOM), name="late-0"),
        "early": replace(unplaced(NO_ROOM), name="early-0"),
        "high": replace(unplaced(NO_ROOM), name="high-0"),
        "runs": replace(running(1)[0], name="runs-0"),
        "pulls": replace(waiting("ErrImagePull", "not found"), name="pulls-0"),
    }
    sight = QueueSight(
        jobsets=(*sets.values(), jobset("done", 0.0, state="Failed")),
        pods=tuple(pods.values()),
        owners={item.name: name for name, item in pods.items()},
    )
    found = entries(sight, NOW)
    assert [(item.name, item.state, item.position) for item in found] == [
        ("high", "waiting", 1),
        ("early", "waiting", 2),
        ("late", "waiting", 3),
        ("held", "suspended", 0),
        ("pulls", "starting", 0),
        ("runs", "running", 0),
    ]
    holds = {item.name: [reason.hold for reason in item.reasons] for item in found}
    assert holds["pulls"] == [Hold.IMAGE]
    assert holds["held"] == [Hold.SUSPENDED]
    assert holds["runs"] == []


def test_a_jobset_that_kueue_does_not_see_says_so() -> None:
    [found] = entries(QueueSight(jobsets=(JOBSET,), local_queues=(LOCAL,)), NOW)
    assert (found.state, found.reasons[0].hold) == ("suspended", Hold.UNQUEUED)


def test_pods_that_are_being_deleted_hold_nothing() -> None:
    leaving = replace(pod(deleted_at=5.0), name="p")
    [found] = entries(QueueSight(jobsets=(jobset("a", 1.0),), pods=(leaving,), owners={"p": "a"}), NOW)
    assert found.reasons == ()
