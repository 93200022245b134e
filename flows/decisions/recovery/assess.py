"""Whether what is seen of a living attempt is worth acting on: a pure table of rules over its view.

Called by the train flow for every change. Nothing here concludes anything from the observer's own silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flows.decisions.recovery.liveness import Hung, broken, hung, judge, started_over
from flows.decisions.recovery.nodes import NAMES, choose_nodes, need_of
from flows.decisions.recovery.resume_rule import prove_resume
from flows.decisions.recovery.straggler import straggler_move
from flows.decisions.text import first_names
from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from workflows.labels import COORDINATOR_ROLE
from workflows.model.attempt import LIVING, AttemptView, Signal
from workflows.model.cluster import Pod, running_coordinator
from workflows.model.records import AttemptRecord, IncidentRecord
from workflows.programs.launcher.lifecycle import is_failure

LAUNCHER_SILENT_SECONDS = 5.0
"""A launcher that answered within this time lives, whatever the node's condition says; heartbeats come each second."""
IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "StartError"})
GONE = frozenset({"Failed", "Gone"})
TOLD_TO_STOP = "told-to-stop"
"""Reason in the record of a launcher whose ranks had to end because others did."""


@dataclass(frozen=True)
class WatchFinding:
    """Something that ends the watching."""

    signal: Signal | None
    """None: nothing is wrong, the attempt came to its end or a person stopped it."""
    why: str
    nodes: tuple[str, ...] = ()
    """Nodes it was seen on."""


@dataclass(frozen=True)
class Case:
    """What an assessment needs to know beside the view."""

    resolved: Resolved
    attempt: AttemptRecord


Rule = Callable[[AttemptView, Case], WatchFinding | None]


def assess(view: AttemptView, case: Case) -> WatchFinding | None:
    """The first rule that fires, or None: go on watching."""
    if view.jobset == "Completed" and (view.away or view.partial):
        return None  # how it ended is shown by pods that may not have been read yet
    for rule in RULES:
        finding = rule(view, case)
        if finding is not None:
            return finding
    return None


def _asked_to_stop(view: AttemptView, _: Case) -> WatchFinding | None:
    return WatchFinding(None, view.stop_requested) if view.stop_requested else None


def _completed(view: AttemptView, _: Case) -> WatchFinding | None:
    return WatchFinding(None, "all pods of the deciding role completed") if view.jobset == "Completed" else None


def _silent(view: AttemptView) -> Callable[[str], bool]:
    """Whether no launcher of a node was heard for `LAUNCHER_SILENT_SECONDS`, by an observer that listened.

    The coordinator listens to launchers, and we to it. While the cluster does not answer us, we are the ones who are
    deaf: what was heard last is then old, and says nothing.
    """
    coordinator = view.coordinator
    if coordinator is not None and view.now - coordinator.at <= LAUNCHER_SILENT_SECONDS:
        heard = {on for _, on, at in coordinator.heard if at > view.now - LAUNCHER_SILENT_SECONDS}
        return lambda node: node not in heard
    # Without a coordinator that runs there is none that could speak for a node.
    unheard = view.unheard_since is not None and view.now - view.unheard_since >= LAUNCHER_SILENT_SECONDS
    silent = running_coordinator(view.pods) is None or unheard
    return lambda _: silent


def _broken(view: AttemptView) -> bool:
    """A rank has failed and is not started again: there is nothing left that haste could spoil."""
    return view.coordinator is not None and broken(view.coordinator, view.now)


def _coordinator_unreachable(view: AttemptView) -> frozenset[str]:
    """Nodes on which the coordinator lives, where it does not answer us either while the cluster does.

    Three ways to such a node are then closed: what it says of itself, its kubelet, and the network of its pods.
    """
    there = frozenset(pod.node for pod in view.pods if pod.role == COORDINATOR_ROLE)
    return frozenset() if view.unheard_since is None else there


def _coordinator_only_nodes(view: AttemptView) -> frozenset[str]:
    """Nodes that carry the coordinator and no rank: it begins again elsewhere with its memory, and training goes on."""
    ranks = {pod.node for pod in view.pods if pod.role != COORDINATOR_ROLE}
    return frozenset({pod.node for pod in view.pods if pod.role == COORDINATOR_ROLE} - ranks)


def _node_lost(view: AttemptView, _: Case) -> WatchFinding | None:
    needed = {pod.node for pod in view.pods if pod.phase != "Succeeded"}
    doubted = {node.name for node in view.nodes if node.ready is not True and node.name in needed}
    doubted -= _coordinator_only_nodes(view)
    if not doubted:
        return None
    silent, broken_gang = _silent(view), _broken(view)
    dumb = {pod.node for pod in view.pods if pod.node in doubted and (pod.phase in GONE or silent(pod.node))}
    dumb |= {*view.unreached} if broken_gang else {*view.unreached} & _coordinator_unreachable(view)
    lost = [node.name for node in view.nodes if node.name in doubted and node.name in dumb]
    if not lost:
        return None
    why = f"not ready, and nothing on it answers: {first_names(lost, NAMES)}"
    return WatchFinding(Signal.NODE_NOT_READY, why, tuple(lost))


def _hung(view: AttemptView, _: Case) -> WatchFinding | None:
    why = "" if view.coordinator is None else hung(view.coordinator)
    return WatchFinding(Signal.HANG, why) if why else None


def _stands_still(view: AttemptView, case: Case) -> WatchFinding | None:
    """By either path: no news from the coordinator or of its launchers, and the launchers' own logs show no step."""
    judged = judge(view, case.resolved.run)
    return WatchFinding(Signal.HANG, judged.why) if isinstance(judged, Hung) else None


def _pod_failed(view: AttemptView, case: Case) -> WatchFinding | None:
    fatal = {role.name for role in case.resolved.run.roles if role.on_failure == "fail_attempt"}
    failed = [pod for pod in view.pods if pod.trains and pod.phase == "Failed"]
    if not any(pod.role in fatal for pod in failed):
        return None
    disrupted = [pod for pod in failed if pod.disrupted]
    signal = Signal.PREEMPTION_NOTICE if disrupted and len(disrupted) == len(failed) else Signal.POD_FAILED
    first_to_last = sorted(failed, key=_failed_at)
    names = ", ".join(f"{pod.name} ({_how(pod)})" for pod in first_to_last[:4])
    return WatchFinding(signal, f"failed: {names}", tuple(sorted({pod.node for pod in failed if pod.node})))


def _failed_at(pod: Pod) -> tuple[bool, float, str]:
    """When its first rank failed, else when it ended: whoever failed first is named first, who had to end last."""
    record = pod.termination
    ended = [end.at for end in record.ranks if is_failure(end)] if record is not None else []
    told = record is not None and record.reason == TOLD_TO_STOP
    return told and not ended, min(ended, default=math.inf if pod.finished_at is None else pod.finished_at), pod.name


def _how(pod: Pod) -> str:
    """In the launcher's words, which name a rank and its exception, its own or that for which it was told to stop."""
    record = pod.termination
    said = record.detail if record is not None and record.reason in ("rank-failed", TOLD_TO_STOP) else ""
    return said or pod.reason or str(pod.exit_code)


def _pods_gone(view: AttemptView, case: Case) -> WatchFinding | None:
    deciding = case.resolved.run.deciding_role.name
    gone = [pod for pod in view.pods if pod.role == deciding and pod.phase == "Gone"]
    if not gone:
        return None
    names = ", ".join(f"{pod.name}{' (' + pod.message + ')' if pod.message else ''}" for pod in gone[:4])
    return WatchFinding(Signal.PODS_GONE, f"pods were deleted from outside: {names}")


def _vanished(view: AttemptView, _: Case) -> WatchFinding | None:
    if not view.vanished or view.submitted_at is None:
        return None
    return WatchFinding(Signal.PODS_GONE, f"the attempt's workflow and JobSet no longer exist: {view.vanished}")


def _attempt_failed(view: AttemptView, _: Case) -> WatchFinding | None:
    return WatchFinding(Signal.ATTEMPT_FAILED, "the JobSet failed") if view.jobset == "Failed" else None


def _never_started(view: AttemptView, _: Case) -> WatchFinding | None:
    workflow = view.workflow
    if view.partial or view.jobset is not None or workflow.phase not in ("Succeeded", "Failed", "Error"):
        return None
    bad = [report for report in workflow.gate if report.verdict != "pass"]
    if bad:
        verdicts = ", ".join(f"{report.node}: {report.verdict}" for report in bad[:4])
        return WatchFinding(
            Signal.GATE_FAILED, f"the gate did not pass ({verdicts})", tuple(report.node for report in bad)
        )
    if workflow.choice is not None and workflow.choice.verdict != "pass":
        return WatchFinding(Signal.CHECKPOINT_UNUSABLE, workflow.choice.why)
    if workflow.phase == "Succeeded":
        return None  # the JobSet was applied; its event is on its way
    return WatchFinding(Signal.SUBMIT_REFUSED, workflow.message or "the attempt's workflow failed before the JobSet")


def _bad_image(view: AttemptView, _: Case) -> WatchFinding | None:
    bad = [pod for pod in view.pods if pod.phase == "Pending" and pod.reason in IMAGE_REASONS]
    if not bad:
        return None
    return WatchFinding(Signal.IMAGE, f"{bad[0].name}: {bad[0].reason} {bad[0].message}".strip())


def _unschedulable(view: AttemptView, case: Case) -> WatchFinding | None:
    limit = case.resolved.run.recovery.pending_timeout_seconds
    if view.pending_since is None or view.now - view.pending_since < limit:
        return None
    message = view.unplaced or "the scheduler found no room"
    return WatchFinding(Signal.UNSCHEDULABLE, f"not all pods were placed within {limit:g} s: {message}")


def _started_over(view: AttemptView, case: Case) -> WatchFinding | None:
    first = None if view.coordinator is None else view.coordinator.first_step
    run = case.resolved.run
    proof, why = prove_resume(case.attempt.resumed_from_step, first, run.checkpoint, run.progress.every_steps)
    if proof is VerdictWord.FAIL:
        return WatchFinding(Signal.STARTED_OVER, why)
    again = "" if view.coordinator is None else started_over(view.coordinator, run)
    return WatchFinding(Signal.STARTED_OVER, again) if again else None


def _numeric(view: AttemptView, _: Case) -> WatchFinding | None:
    step = None if view.coordinator is None else view.coordinator.first_nan_step
    return None if step is None else WatchFinding(Signal.NUMERIC, f"the loss is not a number since step {step}")


def _notice(view: AttemptView, _: Case) -> WatchFinding | None:
    disrupted = [pod for pod in view.pods if pod.disrupted and pod.phase in ("Running", "Pending")]
    leaving = [pod for pod in disrupted if pod.role != COORDINATOR_ROLE]
    if not leaving:
        return None
    return WatchFinding(
        Signal.PREEMPTION_NOTICE,
        f"eviction or preemption announced for {', '.join(pod.name for pod in leaving[:4])}",
        tuple(sorted({pod.node for pod in leaving if pod.node})),
    )


def _cordoned(view: AttemptView, case: Case) -> WatchFinding | None:
    """A node was cordoned, and the gang has room elsewhere.

    Whoever drains a node cordons it first, and while our disruption budget holds the pods that is all one sees: an
    eviction that was refused leaves no object. Pods that leave already are another matter.
    """
    wanted = {node.name for node in view.nodes if node.cordoned}
    living = [pod for pod in view.pods if pod.phase in ("Running", "Pending")]
    nodes = tuple(sorted((wanted & {pod.node for pod in living}) - _coordinator_only_nodes(view)))
    leaving = any(pod.deleted or pod.disrupted for pod in view.pods)
    if not nodes or leaving or not case.resolved.run.recovery.leave_cordoned_nodes:
        return None
    if view.pool is None or choose_nodes(view.pool, need_of(case.resolved, case.attempt.nodes)).missing:
        return None
    why = f"cordoned by somebody, and other nodes are free: {', '.join(nodes)}"
    return WatchFinding(Signal.NODE_CORDONED, why, nodes)


def _straggler(view: AttemptView, case: Case) -> WatchFinding | None:
    """Waiting for a slow node has cost as much as leaving it does, and the gang has room elsewhere."""
    run = case.resolved.run
    found = straggler_move(view.coordinator, case.attempt, run.steps or None) if run.recovery.straggler.leave else None
    if found is None or found.blocked_by or view.pool is None:
        return None
    node = found.straggler.node
    if choose_nodes(view.pool, need_of(case.resolved, case.attempt.nodes, (node,))).missing:
        return None
    return WatchFinding(Signal.STRAGGLER, found.words, (node,))


RULES: tuple[Rule, ...] = (
    _completed,
    _asked_to_stop,
    _node_lost,
    _started_over,
    _numeric,
    _hung,
    _pod_failed,
    _attempt_failed,
    _pods_gone,
    _vanished,
    _never_started,
    _stands_still,
    _notice,
    _cordoned,
    _straggler,
    _bad_image,
    _unschedulable,
)
"""In this order: what explains the others comes first."""


def settled(view: AttemptView, attempt: AttemptRecord, asked: IncidentRecord, case: Case) -> str:
    """Why nothing is left to ask a person about a living attempt; "": the question stands.

    Either the sign that was asked about is gone, or the attempt has ended by something else, which is then looked at by
    itself. An end that our own word brings about (the gang was told to stop, or a person stops the run) is neither.
    """
    finding = assess(view, case)
    if finding is not None and finding.signal not in LIVING:
        ours = view.stop_requested or (view.coordinator is not None and view.coordinator.news.stopping)
        return "" if ours else finding.why
    is_well = WELL_AGAIN.get(asked.signal)
    if is_well is None or view.away or view.partial or (finding is not None and finding.signal == asked.signal):
        return ""
    return is_well(view, attempt, asked)


def _steps_again(_: AttemptView, attempt: AttemptRecord, asked: IncidentRecord) -> str:
    step, at = attempt.last_step, attempt.last_step_at
    if step is None or at is None or step <= (-1 if asked.step is None else asked.step) or at <= asked.detected_at:
        return ""
    return f"it trains again by itself, step {step} was made"


def _placed(view: AttemptView, _: AttemptRecord, __: IncidentRecord) -> str:
    placed = view.jobset == "Running" and bool(view.pods) and all(pod.node for pod in view.pods)
    return "all its pods have found a node" if placed and view.pending_since is None else ""


def _uncordoned(view: AttemptView, _: AttemptRecord, __: IncidentRecord) -> str:
    theirs = {pod.node for pod in view.pods}
    known = [node for node in view.nodes if node.name in theirs]
    return "none of its nodes is cordoned any more" if known and not any(node.cordoned for node in known) else ""


def _as_fast_again(view: AttemptView, _: AttemptRecord, asked: IncidentRecord) -> str:
    slow = None if view.coordinator is None else view.coordinator.news.stragglers
    left = {node for node, _ in asked.culprits}
    if slow is None or not left or any(one.node in left for one in slow):
        return ""
    return f"{first_names(sorted(left), NAMES)} is as fast as the others again"


WELL_AGAIN: Mapping[str, Callable[[AttemptView, AttemptRecord, IncidentRecord], str]] = {
    Signal.HANG: _steps_again,
    Signal.UNSCHEDULABLE: _placed,
    Signal.NODE_CORDONED: _uncordoned,
    Signal.STRAGGLER: _as_fast_again,
}
"""By what was seen: why it is over, "" where it is not. What stands in no table is over when a person says so: numbers
that were lost and an announced end do not come back."""
