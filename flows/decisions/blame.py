"""Who is blamed: by clues that were not discounted, and only by those."""

from __future__ import annotations

from collections.abc import Sequence

from flows.decisions.clues import Weighed
from flows.decisions.gang import Gang
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.evidence import Evidence, Signal

BLAME_SHARE = 0.5
"""Only clues with at least this share of the strongest one's weight blame anybody."""
OWN_DOING = frozenset(
    {FaultClass.USER_CODE, FaultClass.DATA, FaultClass.GPU_OOM, FaultClass.NUMERIC, FaultClass.UNKNOWN}
)
"""Classes where the one rank that failed while all others only suffered is worth naming. Its node is not to blame."""


def culprits_of(evidence: Evidence, weighed: Weighed, gang: Gang) -> tuple[tuple[str, int | None], ...]:
    """Who is blamed by clues that were not discounted. A name that the evidence does not hold is not blamed."""
    found: dict[tuple[str, int | None], None] = {}
    known = {pod.node for pod in evidence.pods} | {node.name for node in evidence.nodes}
    places = {rank: pod.node for pod in evidence.pods for rank in pod.ranks}
    best = weighed.telling[0].weight if weighed.telling else 0.0
    for clue in weighed.telling:
        node = clue.node or (places.get(clue.rank, "") if clue.rank is not None else "")
        if clue.weight < BLAME_SHARE * best:
            continue
        if clue.blames == "node" and node:
            found[(node, None)] = None
        elif clue.blames == "rank" and clue.rank is not None:
            found[(node, clue.rank)] = None
        elif clue.blames == "peer":
            found.update(_named(clue.peer, known, places, evidence.signal is Signal.LOGS))
    if not found and evidence.signal is Signal.LOGS and weighed.fault_class in OWN_DOING and gang.alone is not None:
        found[("", gang.alone)] = None
    whole = {node for node, rank in found if rank is None}
    kept = (item for item in found if item[1] is None or item[0] not in whole)
    return tuple(sorted(kept, key=lambda item: (item[0], -1 if item[1] is None else item[1])))


def _named(peer: str, known: set[str], places: dict[int, str], anybody: bool) -> dict[tuple[str, int | None], None]:
    """Ranks or a node that a line names. In foreign logs nobody knows the nodes, so `anybody` may be named."""
    words = [word for word in peer.replace(",", " ").split() if word.isdigit()]
    if peer and (peer in known or (anybody and not words)):
        return {(peer, None): None}
    return {(places.get(int(word), ""), int(word)): None for word in words}


def scene(weighed: Weighed, gang: Gang) -> tuple[str, ...]:
    """Where it happened: the nodes of the strongest clues, else that of the first failing rank."""
    best = weighed.telling[0].weight if weighed.telling else 0.0
    places = {clue.node for clue in weighed.telling if clue.node and clue.weight >= BLAME_SHARE * best}
    if not places and gang.node:
        places = {gang.node}
    return tuple(sorted(places))


def unfit(evidence: Evidence) -> tuple[str, ...]:
    """Nodes told to leave or cordoned, and those that did not pass the gate, unless most of them did not."""
    told = {pod.node for pod in evidence.pods if pod.node and pod.disrupted}
    told |= {node.name for node in evidence.nodes if node.unschedulable}
    bad = {report.node for report in evidence.gate if report.verdict != VerdictWord.PASS}
    return tuple(sorted(told | (bad if len(bad) * 2 <= len(evidence.gate) else set())))


def suspect(weighed: Weighed, culprits: Sequence[tuple[str, int | None]]) -> bool:
    """True where a node is to blame."""
    blamed = any(clue.blames in ("node", "peer") for clue in weighed.telling)
    return blamed and any(node for node, rank in culprits if rank is None)
