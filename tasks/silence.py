"""Who has gone silent: nodes that neither their launchers nor their kubelets are heard from, before conditions say so.

Kubernetes takes most of a minute to call a node lost. When a gang has failed and a pod of it is still said to run, two
paths are asked: the coordinator, when it last heard that pod's launcher, and the API server, whether it reaches the
node's kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from profiles.errors import PrimusError
from tasks.cluster import Cluster
from tasks.reaching import MOST, reached
from workflows import labels
from workflows.evidence import PodFacts

BEAT_SECONDS = 1.0
"""A launcher is heard so often."""
SILENT_SECONDS = 4 * BEAT_SECONDS
"""A launcher that was not heard for so long is silent."""
PATIENCE_SECONDS = 6.0
"""The coordinator is asked again for at most so long, until a silence is long enough to be one."""


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
    """Who asks."""

    cluster: Cluster
    token: Callable[[], str]
    """The attempt's token, "" where there is none."""
    now: Callable[[], float]
    sleep: Callable[[float], None]


def silence(asker: Asker, pods: tuple[PodFacts, ...], undecided: frozenset[str]) -> Silence:
    """Ask both paths about every pod that is still said to run on a node that no condition calls lost.

    Args:
        asker: who asks.
        pods: the pods of the gang, the coordinator's too.
        undecided: names of nodes whose condition is fine or not known.

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


def _silent_launchers(asker: Asker, pods: tuple[PodFacts, ...], nodes: tuple[str, ...]) -> tuple[str, ...]:
    coordinator = next((pod for pod in pods if pod.role == labels.COORDINATOR_ROLE and pod.phase == "Running"), None)
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
        told: Any = json.loads(answer.body) if answer.status == 200 else None
        status = cast("dict[str, Any]", told)
        now = float(status["now"])
        ages = [(str(item["node"]), now - float(item["last_heard_at"])) for item in status["members"]]
    except (PrimusError, ValueError, KeyError, TypeError):
        return None
    return {node: min(age for on, age in ages if on == node) for node, _ in ages}
