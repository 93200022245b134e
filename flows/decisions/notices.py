"""A notice that only a part of a gang was given: its ranks pass it on, and the whole gang saves and ends by it.

Launchers tell each other of a notice through the coordinator. It may be away, or on the very node that is emptied: then
the ranks of the other pods end as if by themselves.
"""

from __future__ import annotations

from dataclasses import replace

from flows.decisions.told_ends import first_failed, notice_of
from workflows.evidence import Evidence
from workflows.programs.termination import EXIT_TERMINATED
from workflows.reports import RankEnd, Termination

ANSWERS = (0, EXIT_TERMINATED)
"""How a program may end that heeds a notice. One that ends with 0 before its last step has failed otherwise."""
CLOCKS_SECONDS = 0.5
"""Clocks of two nodes differ by less."""


def with_passed_notices(evidence: Evidence) -> Evidence:
    """The evidence in which ranks that ended by another pod's notice count as asked to end, which they were."""
    began = _noticed_at(evidence)
    if began is None:
        return evidence
    return replace(evidence, terminations=tuple(_passed(record, began) for record in evidence.terminations))


def _noticed_at(evidence: Evidence) -> float | None:
    """Since when a part of the gang was on its way out (Unix seconds; 0: nobody says); None where none was."""
    if any(node.unschedulable and _is_emptied(node.name, evidence) for node in evidence.nodes):
        return 0.0
    said = [noticed[1] for line in evidence.lines if (noticed := notice_of(line)) is not None]
    # Whoever is stopped by the gang's end is killed; only a notice lets a rank end as it wants to.
    ended = [
        end.at
        for record in evidence.terminations
        for end in record.ranks
        if end.requested and end.exit_code == EXIT_TERMINATED
    ]
    return min([*said, *ended], default=None)


def _is_emptied(node: str, evidence: Evidence) -> bool:
    """Whether all of the gang that was on the node leaves it, or has left: an evicted pod that has ended is gone."""
    return all(pod.deleted or pod.disrupted for pod in evidence.pods if pod.node == node)


def _passed(record: Termination, began: float) -> Termination:
    if record.reason != "rank-failed" or not any(_by_notice(end, began) for end in record.ranks):
        return record
    ranks = [replace(end, requested=True) if _by_notice(end, began) else end for end in record.ranks]
    first = first_failed(ranks)
    if first is None:
        return replace(record, ranks=ranks, reason="told-to-stop", first_failing_rank=None)
    return replace(record, ranks=ranks, first_failing_rank=first.rank)


def _by_notice(end: RankEnd, began: float) -> bool:
    return not end.requested and end.exit_code in ANSWERS and end.at >= began - CLOCKS_SECONDS
