"""What earlier incidents of the run change about the odds of this one."""

from __future__ import annotations

from collections.abc import Sequence

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.policy import POLICY
from profiles.vocabulary import FaultClass
from workflows.model.attempt import PastIncident

SAME_NODE = "history-same-node"
OTHER_NODES = "history-other-nodes"


def memories(
    fault_class: FaultClass,
    fingerprint: str,
    step: int | None,
    nodes: Sequence[str],
    gang: int,
    past: Sequence[PastIncident],
) -> tuple[Clue, ...]:
    """Clues from the past, for a failure whose class alone does not say who is to blame.

    Args:
        fault_class: what the evidence of this incident alone says.
        fingerprint: of this failure.
        step: where it happened, None where that is not known.
        nodes: nodes on which it happened.
        gang: nodes of the whole gang; where there is only one, "always on this node" says nothing.
        past: earlier incidents, oldest first.
    """
    policy = POLICY[fault_class]
    same = [item for item in past if fingerprint and item.fingerprint == fingerprint]
    if not policy.several_owners or not same:
        return ()
    before = {node for item in same for node in item.nodes}
    here = set(nodes)
    same_step = step is not None and any(item.failed_at(step) for item in same)
    if policy.may_be_code and here and before and not here & before and same_step:
        text = f"the same failure at step {step} on other nodes before ({', '.join(sorted(before)[:4])})"
        return (Clue(FaultClass.USER_CODE, 0.85, text, OTHER_NODES, "code"),)
    if len(here) == 1 and before == here and gang > 1:
        node = next(iter(here))
        text = f"the same failure {len(same) + 1} times, always on {node}"
        return (Clue(fault_class, 0.6, text, SAME_NODE, "node", node=node),)
    return ()
