"""Nodes and coordinators that have gone silent: asked by two paths before any node condition says so.

Kubernetes takes most of a minute to call a node lost. When a gang has failed and a pod of it is still said to run, the
coordinator is asked when it last heard that pod's launcher, and the API server whether it reaches the node's kubelet;
the few nodes in doubt are asked about all at once.

Where the coordinator of a running gang is not heard, `SecondPath` reads its launchers' own logs: rarely, of a few pods,
the newest lines, in a thread of its own, so that no watcher waits for a log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from profiles.errors import PrimusError
from profiles.resolve import Resolved
from tasks.cluster import Cluster
from workflows import labels
from workflows.model.attempt import AttemptView, LogSign, SecondSight
from workflows.model.cluster import Pod, running_coordinator
from workflows.model.liveness import LOG_LINES, Look, after, pace_seconds, runs, sample, sign_of, unheard_since
from workflows.model.nodes import Node
from workflows.model.records import AttemptRecord
from workflows.status import read_status

REACH_SECONDS = 2.0
"""Limit of the question to a kubelet."""
MOST = 16
"""Nodes about which a healthy gang's supervisor asks; where more are in doubt, not the nodes are the trouble."""
LANES = 32
"""Questions at a time: a rack that lost its power is asked about within seconds."""

BEAT_SECONDS = 1.0
"""A launcher is heard so often."""
SILENT_SECONDS = 4 * BEAT_SECONDS
"""A launcher that was not heard for so long is silent."""
PATIENCE_SECONDS = 6.0
"""The coordinator is asked again for at most so long, until a silence is long enough to be one."""


def reached(cluster: Cluster, pods: Mapping[str, str]) -> dict[str, bool | None]:
    """By node: whether its kubelet answers; None where the cluster cannot say.

    `pods` names, by node, a pod on it.
    """

    def ask(pod: str) -> bool | None:
        try:
            return cluster.reaches(pod, timeout_seconds=REACH_SECONDS)
        except PrimusError:
            return None

    if not pods:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(pods), LANES)) as threads:
        return dict(zip(pods, threads.map(ask, pods.values()), strict=True))


def said_to_live(pods: Iterable[Pod]) -> dict[str, str]:
    """By node, a pod that is still said to run there, or to be about to."""
    return {pod.node: pod.name for pod in pods if pod.phase in ("Pending", "Running") and pod.node}


def unready(nodes: Iterable[Node]) -> frozenset[str]:
    """Nodes whose condition says that they are not ready; one of which nothing is known is another matter."""
    return frozenset(node.name for node in nodes if node.ready is False)


def out_of_reach(
    cluster: Cluster, pods: Iterable[Pod], doubted: frozenset[str], most: int | None = None
) -> tuple[str, ...]:
    """Nodes that are said not to be well, where pods are said to live, and whose kubelets do not answer.

    A kubelet that calls itself not ready, because its container runtime is down for instance, lives, and so may what it
    started; one of which nothing is known may have lived through an absence of the API server. Only one that does not
    answer either went with its node.

    `doubted` are nodes that their conditions do not call ready; where more than `most` are, nobody is asked (None: all
    are).
    """
    doubtful = {node: pod for node, pod in said_to_live(pods).items() if node in doubted}
    if not doubtful or (most is not None and len(doubtful) > most):
        return ()
    return tuple(sorted(node for node, told in reached(cluster, doubtful).items() if told is False))


@dataclass(frozen=True)
class Silence:
    """What two paths say of nodes."""

    launchers: tuple[str, ...] = ()
    """Nodes whose launchers the coordinator has not heard for `SILENT_SECONDS`; or, where the coordinator itself stood
    on it, which does not answer either."""
    kubelets: tuple[str, ...] = ()
    """Nodes whose kubelet the cluster does not reach."""
    answering: tuple[str, ...] = ()
    """Nodes whose kubelet was asked and answered: they live, whatever their conditions say."""


@dataclass(frozen=True)
class Asker:
    """What the questions need: the cluster, the token of the attempt, and a clock."""

    cluster: Cluster
    token: Callable[[], str]
    """The attempt's token, "" where there is none."""
    now: Callable[[], float]
    sleep: Callable[[float], None]


def silence(asker: Asker, pods: tuple[Pod, ...], undecided: frozenset[str]) -> Silence:
    """Ask both paths about every pod that is still said to run on a node that no condition calls lost.

    `pods` are those of the gang, the coordinator's too; `undecided` names nodes whose condition is fine or not known.

    Returns:
        Nothing silent where any pod that ended is not reached either: then the path is broken, not its nodes.
    """
    doubtful = {pod.node: pod.name for pod in pods if pod.phase == "Running" and pod.ranks and pod.node in undecided}
    if not doubtful or len(doubtful) > MOST:
        return Silence()
    ended = {pod.node: pod.name for pod in pods if pod.phase in ("Failed", "Succeeded") and pod.node not in doubtful}
    control = dict(list(ended.items())[:2])
    told = _told(asker, {**doubtful, **control})
    kubelets = tuple(sorted(node for node in doubtful if told[node] is False))
    answering = tuple(sorted(node for node in doubtful if told[node]))
    if not kubelets or (control and not any(told[node] for node in control)):
        return Silence(answering=answering)
    return Silence(_silent_launchers(asker, pods, kubelets), kubelets, answering)


def _told(asker: Asker, pods: dict[str, str]) -> dict[str, bool | None]:
    """By node, asked again for a while where the cluster cannot say: one that has just started can say little."""
    deadline = asker.now() + PATIENCE_SECONDS
    told = reached(asker.cluster, pods)
    while None in told.values() and asker.now() < deadline:
        asker.sleep(BEAT_SECONDS / 2)
        told |= reached(asker.cluster, {node: pods[node] for node, said in told.items() if said is None})
    return told


def _silent_launchers(asker: Asker, pods: tuple[Pod, ...], nodes: tuple[str, ...]) -> tuple[str, ...]:
    coordinator = running_coordinator(pods)
    if coordinator is None:
        return ()
    deadline = asker.now() + PATIENCE_SECONDS
    silent: tuple[str, ...] = ()
    while True:
        heard = _heard(asker, coordinator.name)
        if heard is None:
            # It stood on one of these nodes and went with it: that node's second path. Of the others nobody tells.
            silent = (coordinator.node,) if coordinator.node in nodes else ()
        else:
            silent = tuple(node for node in nodes if heard.get(node, SILENT_SECONDS) >= SILENT_SECONDS)
            if len(silent) == len(nodes):
                return silent
        if asker.now() >= deadline:
            return silent
        asker.sleep(BEAT_SECONDS / 2)


def _heard(asker: Asker, coordinator: str) -> dict[str, float] | None:
    """Seconds since a launcher of each node was heard, by the coordinator's own clock; None: it does not answer."""
    token = asker.token()
    if not token:
        return None
    try:
        answer = asker.cluster.call(coordinator, labels.COORDINATOR_PORT, "GET", "/status", token=token)
    except PrimusError:
        return None
    status = read_status(answer.body) if answer.status == 200 else None
    if status is None or status.now is None:
        return None
    ages: dict[str, float] = {}
    for member in status.members:
        if not member.node or member.last_heard_at is None:
            return None
        age = status.now - member.last_heard_at
        ages[member.node] = min(age, ages.get(member.node, age))
    return ages


class SecondPath:
    """What the second path has found about one attempt."""

    def __init__(self, cluster: Cluster, resolved: Resolved) -> None:
        self._cluster, self._silence_seconds = cluster, resolved.run.recovery.observer_silence_seconds
        self._began: float | None = None
        """Since when the gang is seen to run without a break."""
        self._sight: SecondSight | None = None
        self._asked_at = float("-inf")
        self._asking: threading.Thread | None = None
        self._found: deque[tuple[float, Look]] = deque()
        """What was found, with when it was asked for."""

    def look(self, view: AttemptView) -> AttemptView:
        """The view with what the second path has shown so far, while it is needed; asks again where it is time."""
        since = self._unheard_since(view)
        if since is None:
            self._sight = None
            return view
        self._sight = self._sight or SecondSight(since)
        deaf = view.coordinator is not None and view.coordinator.at > self._sight.unheard_since
        self._sight = self._with_answers(replace(self._sight, deaf=deaf), view.now)
        if view.now - self._asked_at >= pace_seconds(self._sight, self._silence_seconds):
            self._ask(view, self._sight)
        return replace(view, second=self._sight)

    def _unheard_since(self, view: AttemptView) -> float | None:
        if not runs(view):
            self._began = None
            return None
        self._began = view.now if self._began is None else self._began
        return unheard_since(view, self._began, self._silence_seconds)

    def _with_answers(self, sight: SecondSight, now: float) -> SecondSight:
        """Take in the answers; one that was asked for before the coordinator was heard again no longer counts."""
        while self._found:
            asked_at, look = self._found.popleft()
            sight = after(sight, now, look) if asked_at >= sight.unheard_since else sight
        return sight

    def _ask(self, view: AttemptView, sight: SecondSight) -> None:
        """Ask once, unless the last question is not answered yet."""
        if self._asking is not None and self._asking.is_alive():
            return
        self._asked_at = view.now
        asked = (view.now, sample(view.pods, sight))
        self._asking = threading.Thread(target=self._answer, args=asked, name="second path", daemon=True)
        self._asking.start()

    def _answer(self, asked_at: float, pods: Sequence[Pod]) -> None:
        self._found.append((asked_at, _look(self._cluster, pods)))


def _look(cluster: Cluster, pods: Sequence[Pod]) -> Look:
    """One look at these pods. A log is not asked of a kubelet that is not reached: that would take half a minute."""
    there = reached(cluster, {pod.node: pod.name for pod in pods})
    unreached = tuple(sorted(node for node, told in there.items() if told is False))
    signs: dict[str, LogSign] = {}
    mute: list[str] = []
    unread = {pod.name: f"the kubelet of {pod.node} is not reached" for pod in pods if pod.node in unreached}
    for pod in pods:
        if pod.name in unread:
            continue
        try:
            sign = sign_of(cluster.logs(pod.name, "", tail_lines=LOG_LINES))
        except PrimusError as error:
            unread[pod.name] = str(error)
            continue
        if sign is None:
            mute.append(pod.name)
        else:
            signs[pod.name] = sign
    return Look(signs, tuple(mute), unread, unreached)


def further(attempt: AttemptRecord, view: AttemptView) -> dict[str, object]:
    """Fields of the attempt's record that change where its logs show a later step than the ledger knows."""
    step = None if view.second is None else view.second.step
    return {"last_step": step} if step is not None and step > (attempt.last_step or 0) else {}
