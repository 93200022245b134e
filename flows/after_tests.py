"""What tests left behind, looked after by the monitor: holds whose time is up, failures, and what stands on nodes.

A test acts upon what it finds itself. Whoever died before that left its verdicts in the ledger, and perhaps held nodes;
and a pass that has run out must not stand on its node for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.grading.proofs import Proof, findings_of
from flows.decisions.node_conditions import held
from flows.node_sentinel import Line, Tell
from flows.proofs import tests_now, told_of
from profiles.cluster import ClusterProfile
from tasks.cluster import current
from tasks.node_holds import free_expired
from tasks.verdict_marks import Told, tell_nodes
from tasks.world import world
from workflows import labels
from workflows.node_sight import NodeFinding, NodeSeen

LOOK_SECONDS = 60.0
"""Between two looks where no verdict is new: passes run out by the hour."""
AT_ONCE = 512
"""Nodes that are written on in one round: of a fleet whose passes run out together the rest waits for the next."""


@dataclass
class AfterTests:
    """Looks after the tests of one cluster, a moment at a time."""

    profile: ClusterProfile
    tell: Tell
    _seen: int = -1
    """Number of the newest verdict that was looked at."""
    _looked_at: float = -LOOK_SECONDS
    _open: list[NodeFinding] = field(default_factory=list[NodeFinding])
    """Failures that were found last: a pause or a brake may have kept them from being acted upon."""

    def take(self, nodes: Sequence[NodeSeen]) -> list[NodeFinding]:
        """Free holds whose time is up; failures of tests against nodes that nobody holds.

        Raises:
            Unavailable, Refused.
        """
        marked = [node.name for node in nodes if any(taint.key == labels.HOLD_TAINT for taint in node.taints)]
        if marked:
            found = [item for name in marked if (item := current().get("Node", name)) is not None]
            for name in free_expired(found):
                self.tell(Line(world().now(), "released", name, "its hold for a test had run out"))
        here = world()
        newest, now = here.ledger.last_verdict_number(), here.now()
        if newest != self._seen or self._open or now - self._looked_at >= LOOK_SECONDS:
            proofs = tests_now(here.ledger, self.profile, now)
            free = [node for node in nodes if not held(node)]
            self._write(outdated(free, proofs))
            self._open = findings_of(proofs, {node.name: node.pool for node in free})
            self._seen, self._looked_at = newest, now
        return list(self._open)

    def _write(self, told: Sequence[Told]) -> None:
        """Write some on their nodes; what cannot be written now is tried with the next look."""
        now = world().now()
        tell_nodes(told[:AT_ONCE], lambda node, why: self.tell(Line(now, "failed", node, f"its verdict: {why}")))


def outdated(nodes: Sequence[NodeSeen], proofs: Mapping[str, Proof]) -> list[Told]:
    """What is to be written on nodes that tell something else than what is to be believed of them now."""
    found: list[Told] = []
    for node in nodes:
        if (proof := proofs.get(node.name)) is not None:
            told = told_of(node.name, proof)
            if node.verdict != told.word or node.verdict_at != int(told.at):
                found.append(told)
    return found
