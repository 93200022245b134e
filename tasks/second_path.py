"""Asking the second path: where the coordinator of a gang that runs is not heard, its launchers' own logs and kubelets.

Rarely, a few pods, the newest lines, and in a thread of its own: whoever watches never waits for a log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from profiles.errors import PrimusError
from profiles.resolve import Resolved
from tasks.cluster import Cluster
from tasks.reaching import reached
from workflows.evidence import AttemptView, PodFacts
from workflows.records import AttemptRecord
from workflows.second_path import LOG_LINES, Look, after, pace_seconds, runs, sample, sign_of, unheard_since
from workflows.second_sight import LogSign, SecondSight


class SecondPath:
    """What the second path says of one attempt.

    Args:
        cluster: who is asked.
        resolved: the run's profile.
    """

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
        """What was asked for before the coordinator was heard meanwhile says nothing of now."""
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

    def _answer(self, asked_at: float, pods: Sequence[PodFacts]) -> None:
        self._found.append((asked_at, _look(self._cluster, pods)))


def _look(cluster: Cluster, pods: Sequence[PodFacts]) -> Look:
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
    """What changes about the attempt's record where its logs tell of a later step than the ledger knows."""
    step = None if view.second is None else view.second.step
    return {"last_step": step} if step is not None and step > (attempt.last_step or 0) else {}
