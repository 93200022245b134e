"""What is done about nodes against which something was found: taken out, asked about, written down, or left. Pure.

The order of the reasons is fixed: what was settled before, what is held already, pause, mode, brake. Each node counts
for the brake by itself, the certain and the oldest first; what it does not allow goes to a person, one question a pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.text import first_names
from profiles.cluster import Brake
from profiles.vocabulary import Mode, VerdictWord
from workflows.model.fleet import beyond
from workflows.model.nodes import LedgerGround, NodeFinding, NodeQuestion, Settled, Settlement

NAMES = 12
"""Nodes that a question names; the ledger holds all of them."""
SETTLED = {
    "planned": "it is being taken out",
    "waiting": "a person was asked",
    "done": "it was taken out for this before",
    "refused": "a person said no",
}
"""Why nothing is done again, by the state of the action that was planned for the same finding."""


@dataclass(frozen=True)
class NodePolicy:
    """What may be done."""

    mode: Mode
    brake: Brake = field(default_factory=Brake)
    pool_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    approval_seconds: float = 86400.0
    """How long a question waits for its answer."""


@dataclass
class _BrakeUse:
    """How far the brake of each pool is used, this settlement included."""

    ground: LedgerGround
    policy: NodePolicy
    new: dict[str, int] = field(default_factory=dict[str, int])

    def trips(self, pool: str) -> str:
        """Why one more node of the pool goes too far; "" where it does not, and then it is counted."""
        new = self.new.get(pool, 0)
        out, evictions = self.ground.quarantined.get(pool, 0) + new, self.ground.evictions.get(pool, 0) + new
        reason = beyond(self.policy.brake, self.policy.pool_sizes.get(pool, 1), out, evictions, 1)
        if not reason:
            self.new[pool] = new + 1
        return reason


def settle(findings: Sequence[NodeFinding], ground: LedgerGround, policy: NodePolicy) -> Settlement:
    """What becomes of each finding. Total and deterministic; only faults may lead to anything."""
    taken = _BrakeUse(ground, policy)
    settled: list[Settled] = []
    by_pool: dict[str, list[Settled]] = {}
    for finding in sorted(findings, key=lambda item: (not item.certain, item.since or 0.0, item.node)):
        one = _settle(finding, ground, policy, taken)
        settled.append(one)
        if one.step == "ask":
            by_pool.setdefault(finding.pool, []).append(one)
    questions = tuple(_question(pool, items) for pool, items in by_pool.items())
    return Settlement(tuple(settled), questions, policy.approval_seconds)


def _settle(finding: NodeFinding, ground: LedgerGround, policy: NodePolicy, taken: _BrakeUse) -> Settled:
    if why := _reason_to_leave(finding, ground, policy.mode):
        return Settled(finding, "leave", why)
    if policy.mode is Mode.OBSERVE:
        return Settled(finding, "record", f"mode observe: {finding.why}")
    reason = "mode ask" if policy.mode is Mode.ASK else taken.trips(finding.pool)
    if not reason:
        return Settled(finding, "quarantine", finding.why)
    if finding.pool in ground.asked:
        return Settled(finding, "leave", f"{reason}; a question about pool {finding.pool} waits for a person")
    return Settled(finding, "ask", reason)


def _reason_to_leave(finding: NodeFinding, ground: LedgerGround, mode: Mode) -> str:
    """Why the finding is left alone; "" where it is not."""
    if finding.verdict is not VerdictWord.FAIL:
        return f"not known: {finding.why}"
    state = ground.states.get(finding.key, "")
    if state in SETTLED:
        return SETTLED[state]
    if state == "recorded" and mode is Mode.OBSERVE:
        return "recorded only"
    if finding.node in ground.out:
        return "we hold it out of service"
    return f"paused: {ground.paused}" if ground.paused is not None else ""


def _question(pool: str, items: Sequence[Settled]) -> NodeQuestion:
    nodes = tuple(item.finding.node for item in items)
    named = first_names([f"{item.finding.node} ({item.finding.condition})" for item in items], NAMES)
    why = items[0].why
    begin = "" if why == "mode ask" else f"The brake tripped: {why}. "
    return NodeQuestion(pool, f"{begin}Take out {named} of pool {pool}?", nodes)
