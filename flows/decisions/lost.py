"""Which nodes are lost, and by what proof: conditions, and silences of which two must agree."""

from __future__ import annotations

from collections.abc import Iterator

from flows.decisions.clues import Clue
from profiles.vocabulary import FaultClass
from workflows.evidence import Evidence, NodeFacts, Signal

F = FaultClass
NODE_LOST = "node-lost"
"""The witness of nodes: conditions and two silent paths prove the loss, not a text."""

ONE_PATH = 0.75
"""Its kubelet is not reached and its ranks are silent: lost, or cut off from the API server alone."""


def lost_nodes(evidence: Evidence) -> dict[str, str]:
    """Nodes that are lost, with the proof in words. Two paths must agree where no condition says so."""
    lost: dict[str, str] = {}
    for node in evidence.nodes:
        proof = _proof_of_loss(evidence, node)
        if proof:
            lost[node.name] = proof
    if observer_suspect(evidence):
        return lost
    known = {node.name for node in evidence.nodes}
    for name in evidence.silent_nodes:
        if name not in lost and name not in known and _left_nothing(evidence, name):
            lost[name] = "its launchers are silent and its pods are gone without an exit code"
    return lost


def _proof_of_loss(evidence: Evidence, node: NodeFacts) -> str:
    named = f" ({node.reason})" if node.reason else ""
    if not node.exists:
        return "the node object is gone"
    if any(pod.node == node.name and pod.reason == "NodeLost" for pod in evidence.pods):
        return "the cluster says its pods were lost with it"
    silent = node.name in evidence.silent_nodes
    unreached = node.name in evidence.unreached_nodes
    # A kubelet that calls itself not ready lives, and so may what it started: its container runtime is down, say.
    if node.ready is False and (silent or unreached or _left_nothing(evidence, node.name)):
        return f"condition Ready is False{named} and nothing on it answers"
    # Nodes that lived through an absence of the API server are Unknown for seconds as well: one whose kubelet answers,
    # or whose ranks told how they ended, is none on which nothing answers.
    untold = evidence.signal is Signal.NODE_NOT_READY and not _told_its_end(evidence, node.name)
    answers = node.name in evidence.answering_nodes
    if node.ready is None and not answers and (silent or unreached or _left_nothing(evidence, node.name) or untold):
        return f"condition Ready is Unknown{named} and nothing on it answers"
    if silent and not observer_suspect(evidence):
        if unreached:
            return "neither its launchers nor its kubelet are heard"
        if _left_nothing(evidence, node.name):
            return "its launchers are silent and its pods are gone without an exit code"
    return ""


def unreached(evidence: Evidence) -> Iterator[Clue]:
    """One path only: the gang failed, and of what stood on the node nothing is heard, not even that it ended."""
    lost = lost_nodes(evidence)
    gang = {pod.node for pod in evidence.pods if pod.node}
    away = [name for name in evidence.unreached_nodes if name not in lost and name in gang]
    if len(away) * 2 > len(gang) > 1:
        return
    for name in away:
        yield Clue(F.NODE_LOST, ONE_PATH, f"{name}: its kubelet is not reached and its ranks told nothing of an end",
                   "node-unreached", "node", node=name,
                   supersedes=("process_killed", "collective_timeout", "rendezvous", "unknown", "fabric"))  # fmt: skip


def not_ready(evidence: Evidence) -> Iterator[Clue]:
    """A node of a failed gang that calls itself not ready and answers: it is in trouble, and what it runs may live."""
    lost = lost_nodes(evidence)
    gang = {pod.node for pod in evidence.pods if pod.node}
    for node in evidence.nodes:
        if node.ready is False and node.name in gang and node.name not in lost:
            named = f" ({node.reason})" if node.reason else ""
            told = f"{node.name}: condition Ready is False{named}, though its kubelet answers"
            yield Clue(F.NODE_LOST, ONE_PATH, told, "node-not-ready", "node", node=node.name,
                       supersedes=("process_killed", "collective_timeout", "rendezvous", "unknown"))  # fmt: skip


def observer_suspect(evidence: Evidence) -> bool:
    """More than half of the gang silent at once: whoever looks is the more likely cause."""
    gang = {pod.node for pod in evidence.pods if pod.node}
    return len(gang & set(evidence.silent_nodes)) * 2 > len(gang) > 1


def _told_its_end(evidence: Evidence, node: str) -> bool:
    return any(item.node == node and item.ranks for item in evidence.terminations)


def _left_nothing(evidence: Evidence, node: str) -> bool:
    mine = [pod for pod in evidence.pods if pod.node == node]
    told = _told_its_end(evidence, node)
    return bool(mine) and not told and all(p.phase in ("Gone", "Failed") and p.exit_code is None for p in mine)


def lost(evidence: Evidence) -> Iterator[Clue]:
    """Nodes that are lost, as clues; many silent ones at once speak against whoever looks."""
    for name, proof in lost_nodes(evidence).items():
        yield Clue(F.NODE_LOST, 0.97, f"{name}: {proof}", NODE_LOST, "node", node=name,
                   supersedes=("process_killed", "collective_timeout", "rendezvous", "unknown", "fabric",
                               "launcher-signalled"))  # fmt: skip
    if observer_suspect(evidence) and not lost_nodes(evidence):
        text = f"{len(evidence.silent_nodes)} nodes silent at once: the observer is the likelier cause"
        yield Clue(F.CONTROL_PLANE, 0.8, text, "observer-suspect", supersedes=("node_lost",))
