"""Which nodes a run may have by what tests say of them, and which of them must be tested first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flows.decisions.grading.proofs import failed_test
from flows.decisions.grading.standing import NodeStanding
from flows.decisions.nodes import NOT_PROVEN, NodeChoice
from profiles.vocabulary import VerdictWord
from workflows.fleet import NodeCandidate


def judged(
    candidates: Sequence[NodeCandidate],
    standings: Mapping[str, NodeStanding],
    allowed: Collection[str],
    tried: Mapping[str, str],
) -> list[NodeCandidate]:
    """The candidates with what tests say of them.

    Args:
        candidates: of the pool.
        standings: of them, where proofs are wanted or a test has failed; a node that is missing is left to the gate.
        allowed: nodes that somebody named: they may be used though they are unknown, never where they failed.
        tried: nodes that were tested for this choice already, and what came of it where that is no verdict ("": one).
    """
    return [_judged(node, standings.get(node.name), allowed, tried) for node in candidates]


def _judged(
    node: NodeCandidate, standing: NodeStanding | None, allowed: Collection[str], tried: Mapping[str, str]
) -> NodeCandidate:
    if standing is None:
        return node
    if (failed := failed_test(standing)) is not None:
        return replace(node, verdict=VerdictWord.FAIL, verdict_why=failed)
    if not standing.proofs or node.name in allowed:
        return node
    if standing.word is VerdictWord.PASS:
        return replace(node, verdict=standing.word)
    # Also where a gate's or a sweep's failure stands: a test that passed would have cleared it.
    return replace(node, unproven=tried[node.name] or standing.why) if node.name in tried else node


def to_test(
    choice: NodeChoice, standings: Mapping[str, NodeStanding], allowed: Collection[str], tried: Collection[str]
) -> tuple[str, ...]:
    """The chosen nodes of which too little is known, in the order of ranks; those that failed are never chosen."""
    return tuple(
        node
        for node in choice.nodes
        if node not in allowed
        and node not in tried
        and (standing := standings.get(node)) is not None
        and standing.proofs
        and standing.word is not VerdictWord.PASS
    )


def waits_for_proofs(choice: NodeChoice) -> str:
    """Why nothing is begun yet: there were enough nodes if those were proven of which too little is known; else ""."""
    unproven = [node for node, why in choice.refused if why.startswith(NOT_PROVEN)]
    if not choice.missing or len(unproven) < choice.missing:
        return ""
    return f"waits for proven nodes: {choice.why}"
