"""Which nodes are lost: by their condition, or by two silences that agree; and what is only silent.

Every way to the nodes is read once, since a gang may have thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flows.decisions.diagnosis.clues import Clue
from profiles.vocabulary import FaultClass
from workflows.model.attempt import Evidence, Signal
from workflows.model.nodes import Node

NODE_LOST = "node-lost"
"""The witness of nodes: conditions and two silent paths prove the loss, not a text."""
ONE_PATH = 0.75
"""Its kubelet is not reached and its ranks are silent: lost, or cut off from the API server alone."""

F = FaultClass


def lost_nodes(evidence: Evidence) -> dict[str, str]:
    """Nodes that are lost, with the proof in words. Two paths must agree where no condition says so."""
    news = _news(evidence)
    lost: dict[str, str] = {}
    for node in evidence.nodes:
        proof = _proof_of_loss(news, node)
        if proof:
            lost[node.name] = proof
    if news.observer_suspect:
        return lost
    known = {node.name for node in evidence.nodes}
    for name in evidence.silent_nodes:
        if name not in lost and name not in known and name in news.left_nothing:
            lost[name] = "its launchers are silent and its pods are gone without an exit code"
    return lost


@dataclass(frozen=True)
class _News:
    """What each way to the nodes says, by their names."""

    taken: frozenset[str]
    """The cluster says that their pods were lost with them."""
    silent: frozenset[str]
    unreached: frozenset[str]
    answering: frozenset[str]
    reported: frozenset[str]
    """Ranks there reported how they ended."""
    left_nothing: frozenset[str]
    """Their pods are gone, and nothing says how they ended."""
    observer_suspect: bool
    not_ready: bool
    """Somebody looked because a node is not ready."""


def _news(evidence: Evidence) -> _News:
    reported = frozenset(item.node for item in evidence.terminations if item.ranks)
    ended = {pod.node for pod in evidence.pods if pod.phase not in ("Gone", "Failed") or pod.exit_code is not None}
    return _News(
        taken=frozenset(pod.node for pod in evidence.pods if pod.reason == "NodeLost"),
        silent=frozenset(evidence.silent_nodes),
        unreached=frozenset(evidence.unreached_nodes),
        answering=frozenset(evidence.answering_nodes),
        reported=reported,
        left_nothing=frozenset(pod.node for pod in evidence.pods) - reported - ended,
        observer_suspect=observer_suspect(evidence),
        not_ready=evidence.signal is Signal.NODE_NOT_READY,
    )


def _proof_of_loss(news: _News, node: Node) -> str:
    name, named = node.name, f" ({node.reason})" if node.reason else ""
    if name in news.taken:
        return "the cluster says its pods were lost with it"
    silent, unreached, left_nothing = name in news.silent, name in news.unreached, name in news.left_nothing
    # A kubelet that calls itself not ready lives, and so may what it started: its container runtime is down, say.
    if node.ready is False and (silent or unreached or left_nothing):
        return f"condition Ready is False{named} and nothing on it answers"
    # Nodes that lived through an absence of the API server are Unknown for seconds as well: one whose kubelet answers,
    # or whose ranks reported how they ended, is none on which nothing answers.
    untold = news.not_ready and name not in news.reported
    if node.ready is None and name not in news.answering and (silent or unreached or left_nothing or untold):
        return f"condition Ready is Unknown{named} and nothing on it answers"
    if silent and not news.observer_suspect:
        if unreached:
            return "nothing is heard from its launchers or its kubelet"
        if left_nothing:
            return "its launchers are silent and its pods are gone without an exit code"
    return ""


def observer_suspect(evidence: Evidence) -> bool:
    """More than half of the gang is silent at once: the observer is the more likely cause."""
    gang = {pod.node for pod in evidence.pods if pod.node}
    return len(gang & set(evidence.silent_nodes)) * 2 > len(gang) > 1


def lost(evidence: Evidence) -> Iterator[Clue]:
    """Nodes that are lost, as clues; where many are silent at once, the observer is suspected instead."""
    for name, proof in lost_nodes(evidence).items():
        yield Clue(F.NODE_LOST, 0.97, f"{name}: {proof}", NODE_LOST, "node", node=name,
                   supersedes=("process_killed", "collective_timeout", "rendezvous", "unknown", "fabric",
                               "launcher-signalled"))  # fmt: skip
    if observer_suspect(evidence) and not lost_nodes(evidence):
        text = f"{len(evidence.silent_nodes)} nodes silent at once: the observer is the likelier cause"
        yield Clue(F.CONTROL_PLANE, 0.8, text, "observer-suspect", supersedes=("node_lost",))


def unreached(evidence: Evidence) -> Iterator[Clue]:
    """One path only: the gang failed, and from what ran on the node there is no news, not even that it ended."""
    lost = lost_nodes(evidence)
    gang = {pod.node for pod in evidence.pods if pod.node}
    away = [name for name in evidence.unreached_nodes if name not in lost and name in gang]
    if len(away) * 2 > len(gang) > 1:
        return
    for name in away:
        yield Clue(F.NODE_LOST, ONE_PATH, f"{name}: its kubelet is not reachable, and its ranks reported no end",
                   "node-unreached", "node", node=name,
                   supersedes=("process_killed", "collective_timeout", "rendezvous", "unknown", "fabric"))  # fmt: skip


def not_ready(evidence: Evidence) -> Iterator[Clue]:
    """A node of a failed gang that calls itself not ready and answers: it is in trouble, and what it runs may live."""
    lost = lost_nodes(evidence)
    gang = {pod.node for pod in evidence.pods if pod.node}
    for node in evidence.nodes:
        if node.ready is False and node.name in gang and node.name not in lost:
            named = f" ({node.reason})" if node.reason else ""
            text = f"{node.name}: condition Ready is False{named}, though its kubelet answers"
            yield Clue(F.NODE_LOST, ONE_PATH, text, "node-not-ready", "node", node=node.name,
                       supersedes=("process_killed", "collective_timeout", "rendezvous", "unknown"))  # fmt: skip
