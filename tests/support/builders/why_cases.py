"""What holds runs: each reason with the objects that tell it. The table of
tests/unit/decisions/explain/test_waiting.py."""

from __future__ import annotations

from dataclasses import replace

from flows.decisions.explain.reasons import Hold
from profiles.vocabulary import Action, FaultClass, Mode, RunState
from tests.support.builders.nodes import a_node
from tests.support.builders.why_sights import (
    ADMITTED,
    GPU,
    JOBSET,
    LEASE,
    LIVE,
    NOW,
    PLANNED,
    RUN,
    TRAINING,
    cluster,
    event,
    pod,
    queued,
    running,
    sight,
    unplaced,
    waiting,
    workload,
)
from workflows.model.cluster import Claim
from workflows.model.records import ActionRecord, ApprovalRecord, Constraints, IncidentRecord, Story
from workflows.model.why import ClusterSight, DriverSight, RunSight
from workflows.model.workflow import Workflow, WorkflowStep
from workflows.programs.progress.pace import StepRate

DEAD = DriverSight(alive=False, log="/home/me/.primus/runs/demo-1/driver.log")
SEEN = IncidentRecord("demo-1-a1-i1", "demo-1", 1, 900.0, 900.1, "node-not-ready", evidence=("node-1 is gone",))
DECIDED = replace(
    SEEN, fault_class=FaultClass.NODE_LOST, confidence=0.98, action=Action.NEW_ATTEMPT, why="node-1 is lost"
)
NEXT = ActionRecord("a", "demo-1", SEEN.id, Action.NEW_ATTEMPT, "", "planned", "w", 901.0)
ASKED = ApprovalRecord("demo-1-a1-i1-approval", "demo-1", SEEN.id, "take node-1 out?", "waiting", 902.0, 1900.0)
LATER = replace(NEXT, detail=Constraints(wait_until=NOW + 60))
ENDED = replace(LIVE, ended_at=905.0, outcome="node_lost")
FAILED = replace(RUN, state=RunState.FAILED, why="user_code: it would fail again", ended_at=990.0)
HELP = "preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."
NO_ROOM = f"0/6 nodes are available: 2 Insufficient {GPU}, 4 node(s) had untolerated taint(s). {HELP}"
PULL = 'Back-off pulling image "registry.local/train:v9": ErrImagePull: rpc error: code = NotFound desc = not found'
WORKFLOW = Workflow("demo-1-a1", "Running", created_at=21.0)
GATE = WorkflowStep("gate(0:node-0)", "Pod", "Pending", "Unschedulable")


def story(run: object = RUN, **fields: object) -> Story:
    return Story(run, **({"attempts": (LIVE,), "lease": LEASE} | fields))  # type: ignore[arg-type]


def before(found: Workflow | None, **fields: object) -> ClusterSight:
    """An attempt whose JobSet does not exist yet."""
    return cluster(jobset=None, workflow=found, **fields)


CASES: list[tuple[Hold, RunSight, str]] = [
    # The ledger.
    (Hold.ENDED, sight(story=story(FAILED, incidents=(DECIDED,))), "failed: user_code"),
    (Hold.APPROVAL, sight(story=story(incidents=(DECIDED,), approvals=(ASKED,), actions=(NEXT,))), "take node-1 out?"),
    (
        Hold.PAUSED,
        sight(story=story(incidents=(DECIDED,), actions=(NEXT,), paused=True)),
        "new-attempt: node-1 is lost",
    ),
    (Hold.PAUSED, sight(story=story(attempts=(PLANNED,), paused=True)), "automation is paused"),
    (
        Hold.OBSERVE,
        sight(story=story(replace(RUN, mode=Mode.OBSERVE), incidents=(DECIDED,), actions=(NEXT,))),
        "mode observe: nothing is done; decided but not carried out: new-attempt",
    ),
    (
        Hold.DRIVER_WORKS,
        sight(story=story(replace(RUN, mode=Mode.OBSERVE), attempts=(PLANNED,))),
        "its driver submits attempt 1",
    ),
    (Hold.NO_DRIVER, sight(None, None, driver=DEAD), "nobody plans attempt 1"),
    (Hold.NO_DRIVER, sight(None, PLANNED, driver=DEAD), "nobody submits attempt 1"),
    (Hold.DRIVER_WORKS, sight(None, PLANNED), "its driver submits attempt 1"),
    (Hold.DRIVER_WORKS, sight(story=story(incidents=(SEEN,))), "diagnoses node-not-ready of attempt 1"),
    (Hold.BACK_OFF, sight(story=story(incidents=(DECIDED,), actions=(LATER,))), "waits 60 s more"),
    (Hold.CONTROL_PLANE, sight(away="list pods: the cluster does not answer"), "does not answer"),
    (Hold.CONTROL_PLANE, sight(story=story(replace(RUN, waits_for="the API is away"))), "the API is away"),
    (
        Hold.LEFTOVERS,
        sight(
            cluster(leftovers=(pod(1, node="node-9", deleted_at=960.0),), nodes=(a_node("node-9", None),)),
            story=story(incidents=(DECIDED,), actions=(NEXT,)),
        ),
        "on node-9",
    ),
    # Argo.
    (Hold.WORKFLOW_UNSEEN, sight(before(replace(WORKFLOW, phase=""))), "Argo has not started on workflow"),
    (Hold.WORKFLOW_SUSPENDED, sight(before(replace(WORKFLOW, suspended=True))), "spec.suspend"),
    (
        Hold.WORKFLOW_SUSPENDED,
        sight(before(replace(WORKFLOW, steps=(WorkflowStep("wait", "Suspend", "Running"),)))),
        "step wait",
    ),
    (
        Hold.WORKFLOW_FAILED,
        sight(before(replace(WORKFLOW, phase="Failed", steps=(WorkflowStep("gate", "Pod", "Error", "pod deleted"),)))),
        "gate: pod deleted",
    ),
    (Hold.WORKFLOW_WORKS, sight(before(replace(WORKFLOW, steps=(GATE,)))), "gate(0:node-0) (Pending)"),
    (Hold.RESOURCES, sight(before(WORKFLOW, pods=(unplaced(NO_ROOM, role=""),))), f"2 lack {GPU}"),
    (Hold.UNKNOWN, sight(before(None)), "neither exists"),
    # Kueue; more of it in tests/unit/decisions/explain/test_held_by_queue.py.
    (Hold.UNQUEUED, sight(queued(None)), "Kueue has made no Workload"),
    (Hold.QUEUED, sight(queued(workload())), "in line at queue team, place 1 of 1"),
    (Hold.SUSPENDED, sight(queued(ADMITTED)), "though Kueue admits it"),
    (Hold.SUSPENDED, sight(cluster(jobset=replace(JOBSET, queue=""))), "by hand"),
    # JobSet and Job.
    (
        Hold.PODS_REFUSED,
        sight(
            cluster(
                events=(
                    event(
                        "FailedCreate",
                        'Error creating: pods "demo-1-a1-trainer-0-0-" is forbidden: exceeded quota: team, requested: '
                        f"requests.{GPU}=8, used: requests.{GPU}=64, limited: requests.{GPU}=64",
                        "demo-1-a1-trainer-0",
                        "Job",
                    ),
                )
            )
        ),
        "3 of 3 pods are refused: Error creating",
    ),
    (Hold.NO_PODS, sight(cluster()), "has no pods yet"),
    (Hold.DRIVER_WORKS, sight(cluster(jobset=replace(JOBSET, state="Completed"))), "has completed"),
    # The scheduler.
    (Hold.RESOURCES, sight(cluster(pods=(unplaced(NO_ROOM), unplaced(NO_ROOM, 1)))), "no node for 2 pods"),
    (
        Hold.TAINTS,
        sight(cluster(pods=(unplaced(f"0/2 nodes are available: 2 node(s) had untolerated taint(s). {HELP}"),))),
        "2 carry a taint",
    ),
    (
        Hold.SELECTOR,
        sight(
            cluster(pods=(unplaced("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),))
        ),
        "2 do not match the pods' node selector",
    ),
    (
        Hold.NEIGHBOURS,
        sight(
            cluster(
                pods=(
                    unplaced(
                        f"0/4 nodes are available: 1 Insufficient {GPU}, "
                        "3 node(s) didn't match pod anti-affinity rules."
                    ),
                )
            )
        ),
        "3 are excluded by pod anti-affinity",
    ),
    (
        Hold.CORDONED,
        sight(cluster(pods=(unplaced("0/2 nodes are available: 2 node(s) were unschedulable."),))),
        "2 are cordoned",
    ),
    (
        Hold.CLAIM,
        sight(
            cluster(
                pods=(unplaced(f'0/6 nodes are available: persistentvolumeclaim "datasets" not found. {HELP}'),),
                claims=(Claim("datasets", "Pending", storage_class="fast"),),
            )
        ),
        'persistentvolumeclaim "datasets" not found',
    ),
    (Hold.SCHEDULING_GATE, sight(cluster(pods=(pod(gates=("kueue.x-k8s.io/topology",)),))), "kueue.x-k8s.io/topology"),
    (Hold.NO_NODE, sight(cluster(pods=(unplaced("running PreBind plugin: timed out"),))), "timed out"),
    (Hold.UNPLACED, sight(cluster(pods=(pod(),))), "no message from the scheduler yet"),
    (Hold.RESOURCES, sight(cluster(pods=(pod(),), events=(event("FailedScheduling", NO_ROOM),))), f"2 lack {GPU}"),
    # kubelet.
    (Hold.IMAGE, sight(cluster(pods=(waiting("ImagePullBackOff", PULL),))), "code = NotFound"),
    (
        Hold.CONTAINER_CONFIG,
        sight(cluster(pods=(waiting("CreateContainerConfigError", 'secret "hub" not found'),))),
        'secret "hub" not found',
    ),
    (
        Hold.CONTAINER_CONFIG,
        sight(
            cluster(
                pods=(waiting("ContainerCreating"),),
                events=(
                    event("FailedMount", 'MountVolume.SetUp failed for volume "data-key" : secret "hub" not found'),
                ),
            )
        ),
        'secret "hub" not found',
    ),
    (
        Hold.STARTING,
        sight(
            cluster(
                pods=(replace(waiting("ContainerCreating"), run="demo-1"),),
                events=(
                    event(
                        "FailedMount",
                        'MountVolume.SetUp failed for volume "token" : secret "demo-1-a1-token" not found',
                    ),
                ),
            )
        ),
        "waits for its token, which it gets when no pod of the attempt before lives any more",
    ),
    (
        Hold.CRASH_LOOP,
        sight(cluster(pods=(waiting("CrashLoopBackOff", restarts=4, last_exit="exit code 1 (Error)"),))),
        "4 restarts, last time: exit code 1",
    ),
    (
        Hold.MOUNT,
        sight(
            cluster(
                pods=(waiting("ContainerCreating"),),
                events=(
                    event("FailedMount", 'MountVolume.SetUp failed for volume "storage-0": hostPath type check failed'),
                ),
            )
        ),
        "hostPath type check failed",
    ),
    (
        Hold.SANDBOX,
        sight(
            cluster(
                pods=(waiting("ContainerCreating"),),
                events=(event("FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: no network"),),
            )
        ),
        "no network",
    ),
    (
        Hold.NODE_SILENT,
        sight(cluster(pods=(waiting("ContainerCreating"),), nodes=(a_node("node-0", None, "NodeStatusUnknown"),))),
        "node-0 is not ready",
    ),
    (
        Hold.STARTING,
        sight(
            cluster(
                pods=(waiting("ContainerCreating"),),
                events=(event("Pulling", 'Pulling image "registry.local/train:v9"'),),
            )
        ),
        "is pulling image",
    ),
    # Pods run.
    (
        Hold.INITIALISING,
        sight(cluster(pods=running()), replace(LIVE, running_at=940.0)),
        "no step is completed yet after 60 s",
    ),
    (
        Hold.RUNNING,
        sight(cluster(pods=running()), TRAINING, step=120, last_step_at=999.0, pace=StepRate(2.0, 2.0)),
        "step 120 of 300, 2 steps/s, 90 s to go",
    ),
    (
        Hold.RUNNING,
        sight(
            cluster(pods=running()),
            story=story(
                replace(RUN, waits_for="rank 0 is at step 90 by its own log: training continues", goes_on=True)
            ),
            step=20,
            last_step_at=900.0,
        ),
        "rank 0 is at step 90 by its own log: training continues",
    ),
    (
        Hold.CONTROL_PLANE,
        sight(
            cluster(pods=running()),
            story=story(replace(RUN, waits_for="the coordinator has not been heard for 99 s")),
        ),
        "the state of the run is not known: the coordinator has not been heard for 99 s",
    ),
    (Hold.NO_PROGRESS, sight(cluster(pods=running()), TRAINING, step=120, last_step_at=900.0), "for 100 s"),
    (Hold.UNWATCHED, sight(cluster(pods=running()), TRAINING, step=120, driver=DEAD), "no driver watches them"),
]
