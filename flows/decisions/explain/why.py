"""Why a run stands where it stands: `primus why`. Pure; from the objects, never from a workflow's phase alone.

The ledger is asked first (its end, people, modes, the driver), then what the cluster has of the living attempt: Kueue,
the scheduler, the pods. Every reason found is listed; `Hold` says which blocks first.
"""

from __future__ import annotations

from flows.decisions.explain.ledger_reasons import driver_witness, incident_witnesses, ledger_reasons
from flows.decisions.explain.pod_reasons import cordoned_notes, node_reasons, pod_reasons
from flows.decisions.explain.queue_reasons import NamespaceQueues, queue_reasons
from flows.decisions.explain.reasons import (
    BLOCKS_FIRST,
    Explanation,
    Hold,
    Reason,
    Standing,
    Witness,
    of_condition,
    of_event,
)
from flows.decisions.recovery.moves import CarryOut, Plan, Submit, Watch, next_move
from workflows.model.cluster import JobSet, Pod
from workflows.model.records import AttemptRecord
from workflows.model.why import ClusterSight, RunSight
from workflows.model.workflow import Workflow

REFUSED = frozenset({"FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed"})
UNDRIVEN = frozenset({Hold.NO_DRIVER, Hold.UNWATCHED})
RUNNING = frozenset({Hold.RUNNING, Hold.UNWATCHED, Hold.INITIALISING, Hold.NO_PROGRESS})


def explain(view: RunSight) -> Explanation:
    """Why the run stands where it stands."""
    move = next_move(view.story)
    reasons = [*ledger_reasons(view, move)]
    attempt, cluster = view.story.attempt, view.cluster
    if cluster is not None and isinstance(move, CarryOut | Plan | Submit):
        reasons += _leftovers(view, cluster)
    watched = isinstance(move, Watch)
    living = attempt is not None and attempt.submitted_at is not None and attempt.ended_at is None
    notes = _notes(view)
    if cluster is not None and attempt is not None and living:
        found = _attempt_reasons(view, cluster, attempt)
        if watched and (good := _trains(view, cluster, attempt)):
            notes += tuple(reason.sentence for reason in found if reason.hold not in RUNNING)
            found = [good]
        reasons += found if watched else [reason for reason in found if reason.hold not in RUNNING]
    if watched and not view.driver.alive and not {reason.hold for reason in reasons} & UNDRIVEN:
        reasons.append(_unwatched(view, "no driver watches the attempt"))
    reasons = reasons or [
        Reason(Hold.UNKNOWN, "no cause was found in what could be read", f"see primus status {view.story.run.name}")
    ]
    ordered = tuple(sorted(reasons, key=lambda reason: BLOCKS_FIRST[reason.hold]))
    since = next((item.at for item in ordered[0].witnesses if item.at is not None), None)
    return Explanation(_standing(ordered[0].hold), ordered, since, notes)


def _standing(hold: Hold) -> Standing:
    if hold is Hold.ENDED:
        return "finished"
    if hold in RUNNING:
        return "running"
    return "unknown" if hold in (Hold.UNKNOWN, Hold.CONTROL_PLANE) else "waiting"


def _notes(view: RunSight) -> tuple[str, ...]:
    """What does not hold it and is worth knowing."""
    unread = view.cluster.unread if view.cluster else ()
    notes = [f"{kind} could not be read: {why}" for kind, why in unread]
    notes += cordoned_notes(view.cluster) if view.cluster else ()
    if view.story.paused and isinstance(next_move(view.story), Watch):
        notes.append("automation is paused: training continues, but no failure would be recovered")
    return tuple(notes)


def _leftovers(view: RunSight, cluster: ClusterSight) -> list[Reason]:
    if not cluster.leftovers:
        return []
    names = ", ".join(f"{pod.name} on {pod.node or 'no node'}" for pod in cluster.leftovers[:4])
    silent = {node.name for node in cluster.nodes if node.ready is not True}
    dead = sorted({pod.node for pod in cluster.leftovers} & silent)
    advice = (
        f"nobody can confirm their end: {', '.join(dead)} is not ready; prove the node dead (taint "
        "node.kubernetes.io/out-of-service) or bring it back"
        if dead
        else "wait for their grace period; old and new ranks must not overlap"
    )
    witnesses = tuple(
        Witness(
            "Pod", pod.name, f"phase {pod.phase}", "Terminating" if pod.deleted_at else "", pod.node, pod.deleted_at
        )
        for pod in cluster.leftovers[:8]
    )
    return [Reason(Hold.LEFTOVERS, f"pods of an earlier attempt do not end: {names}", advice, witnesses)]


def _attempt_reasons(view: RunSight, cluster: ClusterSight, attempt: AttemptRecord) -> list[Reason]:
    """What the cluster has of the attempt, from its workflow to its pods."""
    if cluster.jobset is not None and cluster.jobset.state != "Running":
        return [_over(view, cluster.jobset)]
    pods = [pod for pod in cluster.pods if pod.deleted_at is None]
    held: list[Reason] = []
    if cluster.jobset is None:
        held += _workflow_reasons(cluster, attempt)
    else:
        held += _jobset_reasons(view, cluster, cluster.jobset)
    unplaced = [pod for pod in pods if pod.phase == "Pending" and not pod.node]
    placed = [pod for pod in pods if pod.phase in ("Pending", "Running") and pod.node]
    held += node_reasons(cluster, unplaced, attempt.avoid_nodes)
    held += pod_reasons(cluster, placed)
    return held or _started(view, cluster, attempt)


def _over(view: RunSight, jobset: JobSet) -> Reason:
    conditions = tuple(of_condition("JobSet", jobset.name, item) for item in jobset.conditions if item.status == "True")
    conditions = conditions or (Witness("JobSet", jobset.name, f"state {jobset.state}"),)
    sentence = f"JobSet {jobset.name} has {jobset.state.lower()}"
    if not view.driver.alive:
        return Reason(Hold.NO_DRIVER, f"{sentence}, and no driver is alive to go on", _resume(view), conditions)
    return Reason(
        Hold.DRIVER_WORKS, f"{sentence}; its driver is about to judge it", "wait: this takes seconds", conditions
    )


def _resume(view: RunSight) -> str:
    return f"primus resume {view.story.run.name} starts a driver; what runs is adopted as it is"


def _workflow_reasons(cluster: ClusterSight, attempt: AttemptRecord) -> list[Reason]:
    workflow = cluster.workflow
    if workflow is None:
        unread = any(kind in ("Workflow", "JobSet") for kind, _ in cluster.unread)
        state = "could not be read" if unread else "are gone: neither exists"
        sentence = f"workflow and JobSet of attempt {attempt.number} {state}"
        return [Reason(Hold.UNKNOWN, sentence, "wait: its driver will notice and start a new attempt")]
    held = _held_workflow(workflow)
    if held is not None:
        return [held]
    steps = [step for step in workflow.steps if step.kind == "Pod" and step.phase in ("Pending", "Running")]
    names = ", ".join(f"{step.name} ({step.phase})" for step in steps[:6])
    witnesses = tuple(Witness("Workflow", workflow.name, f"step {s.name}", s.phase, s.message) for s in steps[:8])
    own = Witness("Workflow", workflow.name, f"phase {workflow.phase}", "", workflow.message, workflow.created_at)
    return [
        Reason(
            Hold.WORKFLOW_WORKS,
            f"the gate and the check of the checkpoint come before the JobSet: {names or workflow.phase}",
            "wait; for a step that stays Pending its pod is shown",
            (own, *witnesses),
        )
    ]


def _held_workflow(workflow: Workflow) -> Reason | None:
    own = Witness("Workflow", workflow.name, f"phase {workflow.phase or '(none)'}", "", workflow.message)
    stopped = next((step for step in workflow.steps if step.kind == "Suspend" and step.phase == "Running"), None)
    if workflow.suspended or stopped is not None:
        what = f"step {stopped.name}" if stopped else "spec.suspend"
        return Reason(
            Hold.WORKFLOW_SUSPENDED,
            f"workflow {workflow.name} is suspended ({what})",
            f"go on with: argo resume {workflow.name}",
            (own,),
        )
    if not workflow.phase:
        return Reason(
            Hold.WORKFLOW_UNSEEN,
            f"Argo has not started on workflow {workflow.name} yet",
            "wait a moment; if it stays so, the workflow-controller is away or does not watch this namespace",
            (Witness("Workflow", workflow.name, "phase (none)", at=workflow.created_at),),
        )
    if workflow.phase in ("Failed", "Error"):
        failed = [step for step in workflow.steps if step.phase in ("Failed", "Error") and step.kind == "Pod"]
        messages = "; ".join(f"{step.name}: {step.message}" for step in failed[:4]) or workflow.message
        witnesses = tuple(Witness("Workflow", workflow.name, f"step {s.name}", s.phase, s.message) for s in failed[:8])
        return Reason(
            Hold.WORKFLOW_FAILED,
            f"the attempt's workflow ended as {workflow.phase} before the JobSet: {messages}",
            "its driver makes an incident of it; correct what the step says",
            (own, *witnesses),
        )
    return None


def _jobset_reasons(view: RunSight, cluster: ClusterSight, jobset: JobSet) -> list[Reason]:
    workload = cluster.workload
    line = NamespaceQueues(
        now=view.now,
        workloads=cluster.others,
        local_queues=cluster.local_queues,
        cluster_queues=cluster.cluster_queues,
        unread=frozenset(kind for kind, _ in cluster.unread),
    )
    if workload is not None and (held := queue_reasons(workload, line)):
        return list(held)
    if jobset.suspended:
        return [_suspended(cluster, jobset)]
    training = [pod for pod in cluster.pods if pod.role]
    refused = [event for event in cluster.events if event.reason in REFUSED and event.warning]
    if len(training) < jobset.pods and refused:
        newest = refused[-1]
        return [
            Reason(
                Hold.PODS_REFUSED,
                f"{jobset.pods - len(training)} of {jobset.pods} pods are refused: {newest.message}",
                "free or raise the namespace's quota, or correct what the policy or webhook says",
                tuple(of_event(event) for event in refused[-3:]),
            )
        ]
    if not training and jobset.state == "Running":
        witness = Witness("JobSet", jobset.name, f"state {jobset.state}", at=jobset.created_at)
        return [
            Reason(
                Hold.NO_PODS,
                f"JobSet {jobset.name} is to run and has no pods yet",
                "wait a moment; if it stays so, the JobSet or the Job controller is away",
                (witness, *(of_event(event) for event in cluster.events[-3:])),
            )
        ]
    return []


def _suspended(cluster: ClusterSight, jobset: JobSet) -> Reason:
    conditions = tuple(
        of_condition("JobSet", jobset.name, item) for item in jobset.conditions if item.type == "Suspended"
    )
    witness = conditions or (Witness("JobSet", jobset.name, "spec.suspend=true", at=jobset.created_at),)
    if jobset.queue and cluster.workload is None:
        why = next((why for kind, why in cluster.unread if kind == "Workload"), "")
        return Reason(
            Hold.UNQUEUED,
            f"it waits for queue {jobset.queue}, but Kueue has made no Workload of JobSet {jobset.name}"
            + (f" that we may read ({why})" if why else ""),
            "look whether Kueue runs, handles JobSets and this namespace, and whether the LocalQueue exists",
            witness,
        )
    return Reason(
        Hold.SUSPENDED,
        f"JobSet {jobset.name} is suspended" + (", though Kueue admits it" if jobset.queue else " by hand"),
        "wait a moment: its controller resumes it" if jobset.queue else f"set spec.suspend of {jobset.name} to false",
        witness,
    )


def _trains(view: RunSight, cluster: ClusterSight, attempt: AttemptRecord) -> Reason | None:
    """It makes steps under a living driver: nothing else that is pending holds it."""
    if view.driver.alive and view.story.run.goes_on:
        progress = view.story.run.waits_for
        return Reason(Hold.RUNNING, progress, "look at the coordinator's pod", _gang(cluster, attempt))
    if view.pace is None or attempt.first_step is None or not view.driver.alive:
        return None
    total = view.resolved.run.steps
    left = (total - (view.step or 0)) / view.pace.whole if total else 0.0
    eta = f", {max(0.0, left):.0f} s to go" if total else ""
    of = f" of {total}" if total else ""
    return Reason(
        Hold.RUNNING,
        f"step {view.step}{of}, {view.pace.steps_per_second:.4g} steps/s{eta}",
        "",
        _gang(cluster, attempt),
    )


def _gang(cluster: ClusterSight, attempt: AttemptRecord) -> tuple[Witness, ...]:
    pods = [pod for pod in cluster.pods if pod.role]
    running = [pod for pod in pods if pod.phase == "Running"]
    own = (Witness("JobSet", cluster.jobset.name, f"state {cluster.jobset.state}"),) if cluster.jobset else ()
    nodes = ", ".join(attempt.nodes) or ", ".join(sorted({pod.node for pod in pods if pod.node}))
    message = f"{len(running)} of {len(pods)} running on {nodes or 'no node'}"
    return (*own, Witness("Pods", f"attempt {attempt.number}", "phase", "", message, attempt.running_at))


def _started(view: RunSight, cluster: ClusterSight, attempt: AttemptRecord) -> list[Reason]:
    """Nothing holds the pods: they start, or they run and their steps show it."""
    training: list[Pod] = [pod for pod in cluster.pods if pod.role]
    if not training:
        return []
    gang = _gang(cluster, attempt)
    if not view.driver.alive:
        step = "" if view.step is None else f"; the last step that the ledger knows is {view.step}"
        return [_unwatched(view, f"its pods run, and no driver watches them{step}")]
    if view.story.run.goes_on:
        progress = view.story.run.waits_for
        return [Reason(Hold.RUNNING, progress, "look at the coordinator's pod; nothing else is touched", gang)]
    limits = view.resolved.run.recovery.hang
    if attempt.first_step is None or view.last_step_at is None:
        since = view.now - (attempt.running_at or attempt.applied_at or view.now)
        sentence = f"all {len(training)} pods run; no step is completed yet after {since:.0f} s"
        advice = f"wait: the ranks find each other and load; more than {limits.init_seconds:g} s counts as a hang"
        return [Reason(Hold.INITIALISING, sentence, advice, gang)]
    quiet = view.now - view.last_step_at
    if quiet <= limits.step_floor_seconds:
        return [Reason(Hold.RUNNING, f"step {view.step} was completed {quiet:.0f} s ago", "", gang)]
    incident = view.story.troubles[-1] if view.story.troubles else None
    witnesses = incident_witnesses(incident) if incident and incident.attempt == attempt.number else ()
    sentence = f"its pods run, but no step was completed for {quiet:.0f} s (the last was {view.step})"
    advice = f"look at the ranks: primus logs {view.story.run.name} --follow; a save or an evaluation may last so long"
    return [Reason(Hold.NO_PROGRESS, sentence, advice, (*gang, *witnesses))]


def _unwatched(view: RunSight, consequence: str) -> Reason:
    return Reason(Hold.UNWATCHED, f"no driver is alive: {consequence}", _resume(view), (driver_witness(view),))
