"""From node conditions to marks on nodes: found, settled in the ledger, carried out and reported, in one place.

The node watch (`WatchRounds`) takes one turn at a time: nodes that changed, what is due, and every node again now and
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flows.decisions.monitoring.node_conditions import find, out_of_service, rules_of
from flows.decisions.monitoring.node_decisions import NodePolicy, settle
from profiles.cluster import ClusterProfile
from profiles.errors import Transient
from profiles.vocabulary import Mode, VerdictWord
from tasks.context import world
from tasks.nodes.actions import (
    carry_answers_over,
    finish_orders,
    is_paused,
    left_over_orders,
    orders_of,
    settle_findings,
)
from tasks.nodes.marks import Marked, Marker
from tasks.observe.reflector import NodeWatch
from workflows.model.nodes import LedgerGround, Node, NodeFinding, Settlement

BATCH = 64
"""Findings in one transaction (about 10 ms): the first of many nodes is not kept waiting for the last."""

RECONCILE_SECONDS = 30.0
"""Everything is looked at again so often: the second path to each reaction."""
AGAIN = 64
"""Nodes that are looked at again in one turn: what changes meanwhile waits for no more than those."""
FINISH_SECONDS = 0.25
"""What was carried out is written down together after so long: a bad node does not wait for the book-keeping of others.
Whoever is killed in between does the same patches once more."""


@dataclass(frozen=True)
class NodeNotice:
    """One thing that happened, for people and programs."""

    at: float
    event: str
    """`quarantined`, `recorded`, `asked`, `answered`, `gone`, `failed`, `away`, `back`; `found`, `mended`, `over`,
    `removed`."""
    node: str
    why: str
    subject: str = ""
    """What it is about where that is no node."""


TellNode = Callable[[NodeNotice], None]


@dataclass
class NodeReport:
    """What one pass found and did."""

    nodes: int = 0
    faults: list[NodeFinding] = field(default_factory=list[NodeFinding])
    unknown: list[NodeFinding] = field(default_factory=list[NodeFinding])
    held: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Nodes out of service already, and by whom."""
    lines: list[NodeNotice] = field(default_factory=list[NodeNotice])
    settlement: Settlement = field(default_factory=Settlement)


def policy_of(profile: ClusterProfile, mode: Mode) -> NodePolicy:
    """What may be done on a cluster."""
    sizes = {pool.name: pool.nodes for pool in profile.pools}
    return NodePolicy(mode, profile.brake, sizes, profile.monitor.approval_timeout_seconds)


@dataclass
class Sentinel:
    """Looks at nodes, settles what it finds and sees that it is done."""

    profile: ClusterProfile
    mode: Mode
    marker: Marker
    tell: Callable[[NodeNotice], None]

    def __post_init__(self) -> None:
        self._rules = rules_of(self.profile.monitor.conditions)
        self._policy = policy_of(self.profile, self.mode)

    def finding_for(self, node: Node, watch: NodeWatch | None = None) -> NodeFinding | None:
        """What is wrong with a node that is in service."""
        if out_of_service(node):
            return None
        return find(node, self._rules, world().now(), watch.turned(node.name) if watch else {})

    def nodes_with_findings(self, nodes: Iterable[Node], report: NodeReport) -> Iterator[Node]:
        """The nodes with something against them; all are counted in the report, each once: a list may begin anew."""
        names: set[str] = set()
        for node in nodes:
            if node.name in names:
                continue
            names.add(node.name)
            report.nodes += 1
            if why := out_of_service(node):
                report.held.append((node.name, why))
            elif (finding := self.finding_for(node)) is not None:
                known = finding.verdict is VerdictWord.FAIL
                (report.faults if known else report.unknown).append(finding)
                yield node

    def settle(self, findings: list[NodeFinding], nodes: Callable[[str], Node | None]) -> Settlement:
        """Settle faults, batch by batch, and have what was decided carried out in the background."""
        settled: list[Settlement] = []
        for begin in range(0, len(findings), BATCH):
            batch = findings[begin : begin + BATCH]
            one = settle_findings(self.profile, batch, partial(self._decide, batch))
            for order in orders_of(one, nodes):
                self.marker.submit(order)
            self._tell_settled(one)
            settled.append(one)
        return Settlement(
            tuple(item for one in settled for item in one.settled),
            tuple(item for one in settled for item in one.questions),
        )

    def _decide(self, batch: list[NodeFinding], ground: LedgerGround) -> Settlement:
        return settle(batch, ground, self._policy)

    def carry_out_left_overs(self) -> None:
        """Apply people's answers, and carry out what a killed process had planned."""
        now = world().now()
        for question in carry_answers_over(self.profile):
            self.tell(NodeNotice(now, "answered", "", f"{question.id}: {question.state} {question.why}".strip()))
        if self.mode is Mode.OBSERVE or is_paused(self.profile):
            return
        for order in left_over_orders(self.profile):
            self.marker.submit(order)

    def record_marks(self, marked: list[Marked]) -> None:
        """Write down and report what became of marks."""
        finish_orders(self.profile, marked)
        now = world().now()
        for item in marked:
            node = item.order.node
            if item.error is not None:
                self.tell(NodeNotice(now, "failed", node, f"{item.error}; it is tried again"))
            elif item.there:
                self.tell(NodeNotice(now, "quarantined", node, item.order.mark.why))
            else:
                self.tell(NodeNotice(now, "gone", node, "the node no longer exists"))

    def _tell_settled(self, settlement: Settlement) -> None:
        now = world().now()
        for item in settlement.of("record"):
            self.tell(NodeNotice(now, "recorded", item.finding.node, item.why))
        for question in settlement.questions:
            self.tell(NodeNotice(now, "asked", "", question.text))


@dataclass
class WatchRounds:
    """The loop's state between two turns."""

    sentinel: Sentinel
    watch: NodeWatch
    due: dict[str, float] = field(default_factory=dict[str, float])
    """Nodes whose bad condition has not stood long enough, and when it will have."""
    again: list[str] = field(default_factory=list[str])
    """Names of the nodes of the present reconciliation that are still to be looked at."""
    reconciled_at: float | None = None
    ended: list[Marked] = field(default_factory=list[Marked])
    """Orders that came to an end, and are not written down yet."""
    finish_at: float = 0.0
    """When they will be."""
    trouble: str = ""
    """Who did not answer, as last reported."""
    queue_swept: list[NodeFinding] = field(default_factory=list[NodeFinding])
    """What sweeps found and was not settled yet."""

    def take(self) -> float:
        """Take one turn; returns for how many seconds there is nothing to do unless the bell rings.

        Raises:
            Fenced: another monitor has taken over.
        """
        nodes: list[Node] = []
        try:
            self._reconcile()
            nodes = self._next()
            self._look_at(nodes)
            self._settle_swept()
            self._finish(FINISH_SECONDS)
        except Transient as error:
            self.watch.look_again([node.name for node in nodes])
            self._troubled(str(error))
            return error.retry_after_seconds
        away = self.watch.away
        self._troubled(away[1] if away else "")
        return self._rest()

    def end(self) -> None:
        """Wait for what is under way, and write it down.

        Raises:
            Fenced, Unavailable.
        """
        self.ended += self.sentinel.marker.wait()
        self._finish(0.0)

    def _finish(self, within_seconds: float) -> None:
        now, fresh = world().now(), self.sentinel.marker.finished()
        if fresh and not self.ended:
            self.finish_at = now + within_seconds
        self.ended += fresh
        if self.ended and (now >= self.finish_at or not within_seconds):
            self.sentinel.record_marks(self.ended)
            self.ended = []

    def _reconcile(self) -> None:
        now = world().now()
        if self.reconciled_at is not None and now < self.reconciled_at + RECONCILE_SECONDS:
            return
        self._finish(0.0)  # what is done is not left over
        self.sentinel.carry_out_left_overs()
        self.again, self.reconciled_at = self.watch.names(), now

    def _next(self) -> list[Node]:
        """What changed, what is due, and some of those that are looked at again; each node once."""
        found = {node.name: node for node in self.watch.changed(BATCH)}
        now = world().now()
        for name in [name for name, at in self.due.items() if at <= now][:BATCH]:
            del self.due[name]
            if (node := self.watch.node(name)) is not None:
                found[name] = node
        some, self.again = self.again[:AGAIN], self.again[AGAIN:]
        for name in some:
            if name not in found and (node := self.watch.node(name)) is not None:
                found[name] = node
        return list(found.values())

    def _look_at(self, nodes: list[Node]) -> None:
        faults: list[NodeFinding] = []
        for node in nodes:
            finding = self.sentinel.finding_for(node, self.watch)
            self.due.pop(node.name, None)
            if finding is None:
                continue
            if finding.verdict is VerdictWord.FAIL:
                faults.append(finding)
            elif finding.due_at is not None:
                self.due[node.name] = finding.due_at
        self.sentinel.settle(faults, self.watch.node)

    def _settle_swept(self) -> None:
        """Settle what sweeps found, without nodes that are out of service already."""
        seen = [(finding, self.watch.node(finding.node)) for finding in self.queue_swept]
        self.sentinel.settle([finding for finding, node in seen if node and not out_of_service(node)], self.watch.node)
        self.queue_swept = []

    def _rest(self) -> float:
        """Seconds until the next thing is due: none while nodes are left to be looked at."""
        if self.again or self.watch.has_changed:
            return 0.0
        now = world().now()
        next_pass = (self.reconciled_at or now) + RECONCILE_SECONDS
        finish = [self.finish_at] if self.ended else []
        return max(0.0, min([next_pass, *finish, *self.due.values()]) - now)

    def _troubled(self, why: str) -> None:
        """Report once that the cluster or the ledger does not answer, and once that both do again."""
        if why and not self.trouble:
            self.sentinel.tell(NodeNotice(world().now(), "away", "", f"{why}; nothing is done meanwhile"))
        elif self.trouble and not why:
            self.sentinel.tell(NodeNotice(world().now(), "back", "", "everything answers again"))
        self.trouble = why
