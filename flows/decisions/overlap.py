"""Whether the next attempt is made ready while pods of the last one still end. Pure.

Kubelets take seconds to end a pod and to tell of it, and the gate of the next attempt takes longer still: side by side
they cost only the longer of the two. Ranks of two attempts never run at once all the same, since the token that the new
ones need is handed out only when the old ones are gone.
"""

from __future__ import annotations

from profiles.vocabulary import Action, FaultClass
from workflows.evidence import Signal
from workflows.records import ActionRecord, IncidentRecord

BROKEN = frozenset({Signal.NODE_NOT_READY, Signal.POD_FAILED, Signal.ATTEMPT_FAILED})
"""A gang that has lost a pod makes no further step, and so no checkpoint worth waiting for."""


def overlaps(incident: IncidentRecord, action: ActionRecord, wait_until: float, *, tests_first: bool) -> bool:
    """Whether the attempt of this incident may still be ending while the next one is tested and placed.

    Not where its pods are given time to save or train on, where the next attempt waits or goes back to an older
    checkpoint anyway, nor where nodes are tested for it first: they would find the old ranks there. Nor where a node is
    only supposed to be lost: until that is known its pods may take most of a minute, and nodes are better chosen then.

    Args:
        incident: what ended the attempt.
        action: on the run, as it was decided.
        wait_until: Unix seconds; the next attempt begins no sooner.
        tests_first: nodes are tested before each attempt.
    """
    if Action(action.kind) is not Action.NEW_ATTEMPT or incident.signal not in BROKEN:
        return False
    saves = incident.fault_class is FaultClass.PREEMPTED
    supposed = incident.fault_class is FaultClass.NODE_LOST and not incident.lost_nodes
    waits = wait_until > action.planned_at
    return not (saves or supposed or waits or tests_first)
