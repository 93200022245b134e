"""The end of an attempt in the cluster: nothing of it is left that could still train."""

from __future__ import annotations

import logging
from contextlib import suppress

from profiles.errors import Conflict, PrimusError, Unavailable
from profiles.resolve import Resolved
from tasks.cluster import Cluster, current
from tasks.context import touch, world
from tasks.lease import our_ledger
from tasks.nodes.by_hand import not_ready
from tasks.runs.liveness import out_of_reach
from workflows import labels
from workflows.attempt.examination import EXAMINATION
from workflows.model.attempt import AttemptView
from workflows.model.cluster import Pod, pod_of
from workflows.model.liveness import stranded_coordinator
from workflows.model.ownership import is_foreign
from workflows.model.records import AttemptRecord


@touch("begins to clear attempt {attempt.number} away")
def begin_to_clear(attempt: AttemptRecord, dead_nodes: tuple[str, ...]) -> str:
    """End everything of the attempt without waiting; before new ranks start, `clear_attempt` waits for its end.

    Pods of nodes that are known to be dead already are removed; nobody is asked about other nodes here.

    Raises:
        Conflict: the objects of that name are not ours.
    """
    cluster = current()
    if other := _end_objects(cluster, attempt, 0.0):
        return other
    _forget_the_dead(cluster, _selector(attempt), frozenset(dead_nodes))
    return f"attempt {attempt.number} ends"


@touch("clears attempt {attempt.number} away")
def clear_attempt(resolved: Resolved, attempt: AttemptRecord, grace_seconds: float, dead_nodes: tuple[str, ...]) -> str:
    """End everything of the attempt and wait until its pods are gone or their nodes are proven dead.

    Its pods get `grace_seconds` to save. Nodes that are not ready and do not answer count as dead, beside those known
    to be.

    Raises:
        Conflict: the objects of that name are not ours.
        Unavailable: pods are still there after their grace and a margin; asking again continues.
    """
    here, cluster, ours = world(), current(), _selector(attempt)
    deadline = here.now() + grace_seconds + 30.0
    if other := _end_objects(cluster, attempt, grace_seconds):
        return other
    dead = frozenset(dead_nodes) | _found_dead(cluster, resolved, ours)
    _forget_the_dead(cluster, ours, dead)
    while left := _alive(cluster, resolved, ours, dead):
        if here.now() > deadline:
            raise Unavailable(f"pods of attempt {attempt.number} do not end: {', '.join(left[:5])}", 5.0)
        for _ in cluster.watch("Pod", ours, timeout_seconds=1.0):
            if not _alive(cluster, resolved, ours, dead):
                break
        else:
            # Conditions speak later than whoever found the node dead, or after a node that died only now.
            dead |= _found_dead(cluster, resolved, ours)
            _forget_the_dead(cluster, ours, dead)
    return f"attempt {attempt.number} is gone"


def let_coordinator_move(cluster: Cluster, view: AttemptView) -> None:
    """Remove the coordinator's pod where it went with its node and no rank did: its Job makes another one elsewhere.

    A cluster that does not answer is asked again with the next look.
    """
    stranded = stranded_coordinator(view)
    if stranded:
        with suppress(PrimusError):
            cluster.delete("Pod", stranded, grace_seconds=0)
            logging.getLogger("primus").warning("%s went with its node and begins again elsewhere", stranded)


def _selector(attempt: AttemptRecord) -> dict[str, str]:
    return {labels.RUN: attempt.run, labels.ATTEMPT: str(attempt.number)}


def _end_objects(cluster: Cluster, attempt: AttemptRecord, grace_seconds: float) -> str:
    """Ask for the end of each; why not, where what has the attempt's name belongs to another ledger: so do its pods."""
    world().fencing  # noqa: B018 - raises Fenced before anything is deleted
    name = labels.attempt_name(attempt.run, attempt.number)
    jobset = cluster.get("JobSet", name)
    if jobset is not None and jobset["metadata"].get("labels", {}).get(labels.RUN) != attempt.run:
        raise Conflict(f"JobSet {name} is not ours: it lacks the label {labels.RUN}={attempt.run}")
    ledger = our_ledger()
    for found in (jobset, cluster.get("Workflow", name)):
        if found is not None and is_foreign(found, ledger):
            return f"nothing was cleared away: {found.get('kind', 'object')} {name} belongs to another ledger"
    cluster.delete("Workflow", name, grace_seconds=0)
    cluster.delete("JobSet", name, grace_seconds=round(grace_seconds))
    for examination in cluster.list("Workflow", {**_selector(attempt), labels.PIPELINE: EXAMINATION}):
        if not is_foreign(examination, ledger):
            cluster.delete("Workflow", examination["metadata"]["name"], grace_seconds=0)
    return ""


def _alive(cluster: Cluster, resolved: Resolved, ours: dict[str, str], dead: frozenset[str]) -> list[str]:
    pods = _pods(cluster, resolved, ours)
    return [pod.name for pod in pods if pod.lives and pod.node not in dead and pod.role]


def _pods(cluster: Cluster, resolved: Resolved, ours: dict[str, str]) -> list[Pod]:
    role = resolved.run.deciding_role
    return [pod_of(pod).ranked(role) for pod in cluster.list("Pod", ours)]


def _found_dead(cluster: Cluster, resolved: Resolved, ours: dict[str, str]) -> frozenset[str]:
    """Nodes of the attempt that are dead by two paths: their condition, and a kubelet that is not reached."""
    return frozenset(out_of_reach(cluster, _pods(cluster, resolved, ours), frozenset(not_ready(resolved))))


def _forget_the_dead(cluster: Cluster, ours: dict[str, str], dead: frozenset[str]) -> None:
    """Remove the pods of nodes that are proven dead: no kubelet there will ever confirm their end.

    Until they are gone, their Job counts them as running and the queue holds their place.
    """
    for pod in map(pod_of, cluster.list("Pod", ours)):
        if pod.node in dead:
            cluster.delete("Pod", pod.name, grace_seconds=0)
