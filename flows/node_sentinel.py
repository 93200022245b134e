"""From nodes as they are seen to marks on them: found, settled in the ledger, carried out, told. One place for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from flows.decisions.node_conditions import find, held
from flows.decisions.node_decisions import NodePolicy, settle
from flows.decisions.node_faults import rules_of
from profiles.cluster import ClusterProfile
from profiles.vocabulary import Mode, VerdictWord
from tasks.node_actions import (
    carry_answers_over,
    finish_orders,
    is_paused,
    left_over_orders,
    orders_of,
    settle_findings,
)
from tasks.node_marks import Marked, Marker
from tasks.node_watch import NodeWatch
from tasks.world import world
from workflows.node_sight import LedgerGround, NodeFinding, NodeSeen, Settlement

BATCH = 64
"""Findings in one transaction (about 10 ms): the first of many nodes is not kept waiting for the last."""


@dataclass(frozen=True)
class Line:
    """One thing that happened, for people and programs."""

    at: float
    event: str
    """`quarantined`, `recorded`, `asked`, `answered`, `gone`, `failed`, `away`, `back`; `found`, `mended`, `over`."""
    node: str
    why: str
    subject: str = ""
    """What it is about where that is no node."""


Tell = Callable[[Line], None]


@dataclass
class NodeReport:
    """What one pass found and did."""

    nodes: int = 0
    faults: list[NodeFinding] = field(default_factory=list[NodeFinding])
    unknown: list[NodeFinding] = field(default_factory=list[NodeFinding])
    held: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Nodes out of service already, and by whom."""
    lines: list[Line] = field(default_factory=list[Line])
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
    tell: Callable[[Line], None]

    def __post_init__(self) -> None:
        self._rules = rules_of(self.profile.monitor.conditions)
        self._policy = policy_of(self.profile, self.mode)

    def found(self, node: NodeSeen, watch: NodeWatch | None = None) -> NodeFinding | None:
        """What is to be said against a node that nobody holds."""
        if held(node):
            return None
        return find(node, self._rules, world().now(), watch.turned(node.name) if watch else {})

    def judged(self, nodes: Iterable[NodeSeen], report: NodeReport) -> Iterator[NodeSeen]:
        """The nodes with something against them; all are counted in the report, each once: a list may begin anew."""
        names: set[str] = set()
        for node in nodes:
            if node.name in names:
                continue
            names.add(node.name)
            report.nodes += 1
            if why := held(node):
                report.held.append((node.name, why))
            elif (finding := self.found(node)) is not None:
                known = finding.verdict is VerdictWord.FAIL
                (report.faults if known else report.unknown).append(finding)
                yield node

    def settle(self, findings: list[NodeFinding], nodes: Callable[[str], NodeSeen | None]) -> Settlement:
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

    def left_overs(self) -> None:
        """Answers of people count, and what was planned by whoever was killed is carried out."""
        now = world().now()
        for question in carry_answers_over(self.profile):
            self.tell(Line(now, "answered", "", f"{question.id}: {question.state} {question.why}".strip()))
        if self.mode is Mode.OBSERVE or is_paused(self.profile):
            return
        for order in left_over_orders(self.profile):
            self.marker.submit(order)

    def told(self, marked: list[Marked]) -> None:
        """Write down and tell what became of marks."""
        finish_orders(self.profile, marked)
        now = world().now()
        for item in marked:
            node = item.order.node
            if item.error is not None:
                self.tell(Line(now, "failed", node, f"{item.error}; it is tried again"))
            elif item.there:
                self.tell(Line(now, "quarantined", node, item.order.mark.why))
            else:
                self.tell(Line(now, "gone", node, "the node no longer exists"))

    def _tell_settled(self, settlement: Settlement) -> None:
        now = world().now()
        for item in settlement.of("record"):
            self.tell(Line(now, "recorded", item.finding.node, item.why))
        for question in settlement.questions:
            self.tell(Line(now, "asked", "", question.text))
