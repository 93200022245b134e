"""Gathering what is known about an incident. Facts only; what they mean is decided in `flows.decisions`."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection
from dataclasses import replace

from profiles.errors import NotFound, PrimusError, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import Action
from tasks.cluster import Cluster, current
from tasks.context import touch, world
from tasks.runs.liveness import Asker, Silence, out_of_reach, silence, unready
from tasks.runs.submit import attempt_token
from workflows import labels
from workflows.model.attempt import AttemptView, Evidence, LogLine, PastIncident, Signal
from workflows.model.cluster import Pod, jobset_of, pod_of
from workflows.model.incidents import ended_by, fact_of, spell_of
from workflows.model.nodes import Node, node_of
from workflows.model.records import AttemptRecord, IncidentRecord, MarkRecord, Story
from workflows.model.workflow import workflow_of
from workflows.wire import RankEnd

SETTLE_SECONDS = 1.0
"""The other pods of a gang that lost one end within this time: their launchers are told so at once."""
LOG_PODS = 8
"""Logs of at most so many pods are read: those that failed first, then those that have not ended. A rank that has told
why it dies may take long to be gone, or never go; the end of its launcher is then still to come."""
LOG_LINES = 200
_BEGAN_AGAIN = re.compile(r"^\S+ launcher: incarnation \d+ begins ")
"""What ranks and launcher said before it is about a failure that was already dealt with."""
_RELAYED = re.compile(r"^(?:\d{4}-\d\d-\d\dT\S+ )?\[rank(\d+)\]: ?(.*)$")
"""How launchers begin the lines of ranks that they relay (`workflows.programs.launcher.output`)."""


@touch("gathers what is known of {incident.id}")
def gather(resolved: Resolved, attempt: AttemptRecord, incident: IncidentRecord, story: Story) -> Evidence:
    """Everything known about the incident, after the rest of the gang had a moment to end.

    Raises:
        Unavailable: the cluster does not answer; nothing was lost, ask again.
    """
    cluster = current()
    ours = {labels.RUN: attempt.run, labels.ATTEMPT: str(attempt.number)}
    signal = Signal(incident.signal)
    # How the rest of a gang ends tells nothing more of a node that is known to be lost.
    pods = _settled(cluster, resolved, ours, wait=signal in _ENDING and signal is not Signal.NODE_NOT_READY)
    gang = _gang(pods, resolved)
    used = {pod.node for pod in gang if pod.node} | set(attempt.nodes)
    nodes = [node_of(node) for node in cluster.list("Node")]
    said = workflow_of(cluster.get("Workflow", labels.attempt_name(attempt.run, attempt.number)) or {})
    quiet = _silence(attempt, gang, nodes) if signal in _ENDING else Silence()
    return Evidence(
        signal=signal,
        run=attempt.run,
        attempt=attempt.number,
        detected_at=incident.detected_at,
        pods=gang,
        nodes=tuple(node for node in nodes if node.name in used),
        terminations=tuple(pod.termination for pod in pods if pod.termination is not None),
        gate=said.gate,
        choice=said.choice,
        lines=tuple(line for pod in telling(gang, signal, nodes, quiet.kubelets) for line in lines_of(cluster, pod)),
        silent_nodes=quiet.launchers,
        unreached_nodes=quiet.kubelets,
        answering_nodes=quiet.answering,
        suspended=suspended(cluster, attempt),
        workflow_message="; ".join([said.message, *(f"{name}: {why}" for name, why in said.failed_steps)]).strip("; "),
        first_step=attempt.first_step,
        resume_step=attempt.resumed_from_step,
        last_step=attempt.last_step,
        steps=resolved.run.steps,
        first_nan_step=incident.step if signal is Signal.NUMERIC else None,
        past=past_incidents(story, before=incident),
        detail=incident.seen,
    )


def suspended(cluster: Cluster, attempt: AttemptRecord) -> str:
    """By which queue the gang was stopped after it had run; its pods are mostly gone before they can be asked."""
    if attempt.running_at is None and attempt.first_step is None:
        return ""  # it waits to be admitted
    jobset = jobset_of(cluster.get("JobSet", labels.attempt_name(attempt.run, attempt.number)) or {})
    if not jobset.suspended:
        return ""
    return f"its JobSet was suspended{f' in queue {jobset.queue}' if jobset.queue else ''}"


_ENDING = frozenset({Signal.POD_FAILED, Signal.ATTEMPT_FAILED, Signal.PREEMPTION_NOTICE, Signal.NODE_NOT_READY})


def _silence(attempt: AttemptRecord, pods: tuple[Pod, ...], nodes: list[Node]) -> Silence:
    cluster, here = current(), world()

    def token() -> str:
        try:
            return attempt_token(cluster, attempt)
        except PrimusError:
            return ""

    asker = Asker(cluster, token, here.now, time.sleep)
    heard = silence(asker, pods, frozenset(node.name for node in nodes if node.ready is not False))
    away = tuple(sorted({*heard.kubelets, *out_of_reach(cluster, pods, unready(nodes))}))
    return replace(heard, kubelets=away)


def _gang(pods: list[Pod], resolved: Resolved) -> tuple[Pod, ...]:
    role = resolved.run.deciding_role
    return tuple(pod.ranked(role) for pod in pods if pod.role)


def _settled(cluster: Cluster, resolved: Resolved, ours: dict[str, str], *, wait: bool) -> list[Pod]:
    def unfinished() -> bool:
        ready = {node.name for node in map(node_of, cluster.list("Node")) if node.ready is True}
        return any(pod.phase == "Running" and pod.ranks and pod.node in ready for pod in _gang(pods, resolved))

    pods = list(map(pod_of, cluster.list("Pod", ours)))
    if wait and unfinished():
        deadline = world().now() + SETTLE_SECONDS
        for _ in cluster.watch("Pod", ours, timeout_seconds=SETTLE_SECONDS):
            pods = list(map(pod_of, cluster.list("Pod", ours)))
            if not unfinished() or world().now() >= deadline:
                break
    return pods


def telling(pods: tuple[Pod, ...], signal: Signal, nodes: list[Node], unreached: Collection[str] = ()) -> list[Pod]:
    """Pods whose logs may show why the attempt ended; pods that will not answer are left out.

    `unreached` are nodes whose kubelets do not answer. One that lost its power is still called ready for most of a
    minute, and the API server tries for half a minute to reach it.
    """
    own = [pod for pod in pods if pod.role != labels.COORDINATOR_ROLE and pod.node not in unreached]
    failed = [pod for pod in own if pod.phase == "Failed"]
    first = sorted(failed, key=lambda pod: (pod.finished_at is None, pod.finished_at or 0.0, pod.name))
    ready = {node.name for node in nodes if node.ready is True and signal in (Signal.POD_FAILED, Signal.ATTEMPT_FAILED)}
    unended = [pod for pod in own if pod.phase == "Running" and pod.ranks and pod.node in ready]
    return [*first, *unended][:LOG_PODS]


def lines_of(cluster: Cluster, pod: Pod) -> list[LogLine]:
    """The newest lines of a pod's present incarnation; none where it or its log is gone."""
    try:
        text = cluster.logs(pod.name, "", tail_lines=LOG_LINES)
    except (NotFound, Unavailable):
        return []
    lines: list[LogLine] = []
    numbered = list(enumerate(text.splitlines(), 1))
    began = max((number for number, raw in numbered if _BEGAN_AGAIN.match(raw)), default=0)
    for number, raw in numbered[began:]:
        relayed = _RELAYED.match(raw)
        rank = int(relayed.group(1)) if relayed else None
        lines.append(
            LogLine(
                text=relayed.group(2) if relayed else raw,
                source="rank" if relayed else "launcher",
                rank=rank,
                node=pod.node,
                file=pod.name,
                line=number,
            )
        )
    return lines


def past_incidents(story: Story, before: IncidentRecord | None = None) -> tuple[PastIncident, ...]:
    """Decided incidents of the run, oldest first, as the decisions want them."""
    last_steps = {attempt.number: attempt.last_step for attempt in story.attempts}
    return tuple(
        PastIncident(
            fault_class=str(item.fault_class or ""),
            fingerprint=item.fingerprint,
            step=item.step,
            nodes=tuple(node for node, _ in item.culprits if node),
            at=item.at,
            action=str(item.action),
            charged=item.charged,
            last_step=item.step if item.action is Action.RESTART_IN_PLACE else last_steps.get(item.attempt),
        )
        for item in story.troubles
        if item.action is not None and (before is None or item.id != before.id)
    )


@touch("notes {signal} of attempt {attempt.number}")
def open_incident(attempt: AttemptRecord, signal: Signal, why: str, view: AttemptView) -> IncidentRecord:
    """Write the incident down, before anything is done about it; the one that another observer wrote is taken over."""
    here = world()
    story = here.ledger.story(attempt.run)
    number = 1 + len(ended_by(story, attempt.number))
    now, coordinator = here.now(), view.coordinator
    nan_step = coordinator.first_nan_step if coordinator and signal is Signal.NUMERIC else None
    incident = IncidentRecord(
        id=f"{attempt.run}-a{attempt.number}-i{number}",
        run=attempt.run,
        attempt=attempt.number,
        at=min(_happened(story, attempt, signal, view), now),
        detected_at=now,
        signal=str(signal),
        step=attempt.last_step if nan_step is None else nan_step,
        evidence=(why,),
        fact=fact_of(
            attempt.run, attempt.number, signal, number=spell_of(story, attempt.number, signal), step=nan_step
        ),
    )
    noticed = MarkRecord(attempt.run, attempt.number, "detected", now, why)
    return here.ledger.open_incident(here.fencing, incident, (noticed,))


def _happened(story: Story, attempt: AttemptRecord, signal: Signal, view: AttemptView) -> float:
    """When it happened: when a drill caused it, where one did since the ranks began last; else as the evidence says."""
    restarts = (item for item in story.incidents if item.attempt == attempt.number)
    begun = max((one.detected_at for one in restarts if one.action is Action.RESTART_IN_PLACE), default=-math.inf)
    caused = [mark.at for mark in story.marks if mark.kind == "fault" and mark.attempt == attempt.number]
    if any(at > begun for at in caused):
        return max(caused)
    if signal is Signal.HANG:
        hang = view.coordinator.news.hang if view.coordinator is not None else None
        waited = None if view.coordinator is None or hang is None else view.coordinator.at - hang.waited_seconds
        moments = [waited, attempt.last_step_at]
    else:
        failed = [pod for pod in view.pods if pod.phase == "Failed"]
        ranks = [end.at for pod in failed if pod.termination for end in pod.termination.ranks if _failed(end)]
        moments = [*ranks, *(pod.finished_at for pod in failed)]
    known: list[float] = [at for at in moments if at is not None]
    return min(known, default=math.inf)


def _failed(end: RankEnd) -> bool:
    return not end.requested and (end.signal is not None or end.exit_code != 0)


@touch("notes that attempt {attempt.number} was refused: {why}")
def refuse(attempt: AttemptRecord, why: str) -> None:
    """The cluster does not take the attempt: an incident, and nothing to watch."""
    here = world()
    now = here.now()
    open_incident.fn(attempt, Signal.SUBMIT_REFUSED, why, AttemptView(attempt.run, attempt.number, now))
