"""The sweep: which nodes are looked at next, when, and what their reports say against them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.policy import POLICY
from flows.decisions.recovery.nodes import natural
from flows.decisions.recovery.situation import with_examination
from profiles.cluster import Monitor
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.model.attempt import Evidence, Signal
from workflows.model.nodes import Node, NodeFinding
from workflows.node_tests.sweep import MOST
from workflows.wire import GateReport

BY_CHECK: Mapping[str, FaultClass] = {"tools": FaultClass.GPU_DRIVER, "mounts": FaultClass.STORAGE}
"""Checks whose failure is the node's fault; a wrong clock is reported, and no node is taken out for it."""
KERNEL_CONFIDENCE = 0.8
"""A kernel's words count from this confidence on."""
CERTAIN = 0.95
COMMON_CAUSE_NODES = 3
"""So many nodes with the same trouble, and more than half of those looked at, have it from elsewhere."""
FIRST_SECONDS = 3600.0
"""Of a node that was never looked at so much of its kernel's past counts."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep's reports say."""

    faults: tuple[NodeFinding, ...] = ()
    shared: tuple[str, ...] = ()
    """Troubles that most nodes have: no node is blamed."""
    notes: tuple[tuple[str, str], ...] = ()
    """(node, what) of everything else that is not well or not known."""


def next_nodes(nodes: Sequence[Node], looked_at: Mapping[str, float], monitor: Monitor) -> tuple[Node, ...]:
    """The nodes of the next sweep, in the order of their names: those that were not looked at for the longest time.

    Nodes that are not ready are left out: their pods would only wait.
    """
    ready = [node for node in nodes if not node.leaving and is_ready(node)]
    count = min(MOST, math.ceil(monitor.sweep_share * len(ready)))
    oldest = sorted(ready, key=lambda node: (looked_at.get(node.name, 0.0), natural(node.name)))[:count]
    return tuple(sorted(oldest, key=lambda node: (node.pool, natural(node.name))))


def is_ready(node: Node) -> bool:
    """Whether its kubelet says so."""
    return node.ready is True


def pause_seconds(swept: int, nodes: int, monitor: Monitor) -> float:
    """From the beginning of one sweep to that of the next: so that in `sweep_seconds` the share is looked at."""
    quota = max(1.0, monitor.sweep_share * nodes)
    return monitor.sweep_seconds * min(1.0, swept / quota)


def judge(reports: Sequence[GateReport], pools: Mapping[str, str], since: Mapping[str, float]) -> SweepResult:
    """What reports say against their nodes.

    `since`: by node, Unix seconds; what its kernel said before was judged by an earlier sweep.
    """
    found = [item for report in reports if report.node in pools for item in _against(report, pools, since)]
    same = Counter(item.fault_class for item in found)
    common = {kind for kind, count in same.items() if count >= COMMON_CAUSE_NODES and 2 * count > len(reports)}
    faults = tuple(item for item in found if item.fault_class not in common)
    shared = tuple(
        f"{same[kind]} of {len(reports)} nodes report {kind}: they share the cause, so none of them is blamed"
        for kind in sorted(common)
    )
    return SweepResult(faults, shared, tuple(_notes(reports)))


def _against(report: GateReport, pools: Mapping[str, str], since: Mapping[str, float]) -> list[NodeFinding]:
    pool, found = pools[report.node], list[NodeFinding]()
    for check in report.checks:
        kind = BY_CHECK.get(str(check.get("check")))
        if kind is not None and check.get("verdict") == VerdictWord.FAIL:
            why = f"sweep: {check.get('check')}: {check.get('evidence')}"
            condition = f"Sweep{str(check.get('check')).capitalize()}"
            found.append(NodeFinding(report.node, pool, condition, VerdictWord.FAIL, kind, why, report.at))
    kernel = _kernel(report, pool, since.get(report.node, report.at - FIRST_SECONDS))
    return [*found, kernel] if kernel is not None else found


def _kernel(report: GateReport, pool: str, since: float) -> NodeFinding | None:
    """What the node's kernel said, judged by the same rules as logs of failures."""
    blank = Evidence(Signal.LOGS, "", 0, report.at)
    lines = tuple(
        line
        for line in with_examination(blank, (report,)).lines
        if line.at is not None and since < line.at <= report.at
    )
    if not lines:
        return None
    diagnosis = diagnose(Evidence(Signal.LOGS, "", 0, report.at, lines=lines))
    condemned = POLICY[diagnosis.fault_class].kernel_condemns_node and diagnosis.node_suspect
    if not condemned or diagnosis.confidence < KERNEL_CONFIDENCE or not diagnosis.evidence:
        return None
    why = f"sweep: its kernel says {diagnosis.evidence[0].text!r}"
    at = max(line.at for line in lines if line.at is not None)
    certain = diagnosis.confidence >= CERTAIN
    return NodeFinding(report.node, pool, "SweepKernel", VerdictWord.FAIL, diagnosis.fault_class, why, at, certain)


def _notes(reports: Sequence[GateReport]) -> list[tuple[str, str]]:
    return [
        (report.node, f"sweep: {check.get('check')}: {check.get('verdict')}: {check.get('evidence')}")
        for report in reports
        for check in report.checks
        if check.get("verdict") != VerdictWord.PASS and check.get("check") != "kernel"
    ]
