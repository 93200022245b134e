"""Which nodes to examine after a first diagnosis, and what their examination adds to the evidence.

An examination costs seconds, so it is made only where looking decides something: the class may be the hardware's fault,
and the evidence alone does not say surely whose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from flows.decisions.diagnose import Diagnosis
from flows.decisions.lost import lost_nodes
from profiles.vocabulary import FaultClass, Mode, VerdictWord
from workflows.evidence import Evidence, LogLine
from workflows.records import IncidentRecord, Story
from workflows.reports import GateReport

F = FaultClass

MAY_BE_HARDWARE = frozenset(
    {F.GPU_HARDWARE, F.GPU_DRIVER, F.FABRIC, F.COLLECTIVE_TIMEOUT, F.STORAGE, F.THERMAL_POWER, F.UNKNOWN}
)
"""Classes of which a look at the node can confirm or change the diagnosis. In all others it decides nothing."""
SURE = 0.9
"""From this confidence on, with somebody to blame, the evidence has decided already."""
MOST = 8
"""Nodes examined at most: more suspects are no suspects but a gang."""
KERNEL = "kernel"
"""Name of the check that carries lines."""
TOLD_CHARACTERS = 300


def suspects(diagnosis: Diagnosis, evidence: Evidence) -> tuple[str, ...]:
    """Nodes worth a look, most suspicious first, at most `MOST`; empty where looking decides nothing.

    Only living nodes of the attempt whose own gate has not spoken against them: a lost node cannot be examined, and the
    gate looks at the same things.
    """
    if diagnosis.fault_class not in MAY_BE_HARDWARE or (diagnosis.confidence >= SURE and diagnosis.culprits):
        return ()
    refused = {report.node for report in evidence.gate if report.verdict != VerdictWord.PASS}
    living = {node.name for node in evidence.nodes if node.exists and node.ready is True}
    worth = living - refused - set(lost_nodes(evidence)) - set(evidence.unreached_nodes)
    return tuple(node for node in _named(diagnosis, evidence) if node in worth)[:MOST]


def _named(diagnosis: Diagnosis, evidence: Evidence) -> tuple[str, ...]:
    """The nodes of the culprits, else where it happened, else that of the rank that failed first."""
    rank = diagnosis.first_failing_rank
    first = next((pod.node for pod in evidence.pods if pod.node and rank in pod.ranks), "")
    known = {node.name for node in evidence.nodes}
    blamed = tuple(dict.fromkeys(node for node, _ in diagnosis.culprits if node in known))
    scene = tuple(sorted((node for node in diagnosis.nodes if node in known), key=lambda node: node != first))
    return blamed or scene or tuple(node for node in (first,) if node in known)


def held(story: Story) -> str:
    """Why nothing may be touched now, in words; "" where it may."""
    if story.paused:
        return "paused: nothing is touched"
    return "mode observe: nothing is touched" if story.run.mode is Mode.OBSERVE else ""


def ordinal(incident: IncidentRecord, story: Story) -> int:
    """Number of the incident within its attempt, from 1: it names the examination."""
    return 1 + [item.id for item in story.troubles if item.attempt == incident.attempt].index(incident.id)


def with_examination(evidence: Evidence, reports: tuple[GateReport, ...]) -> Evidence:
    """The evidence with what the examination found: its reports, and the lines of the nodes' kernels."""
    lines = tuple(line for report in reports for line in _kernel_lines(report))
    return replace(evidence, examined=reports, lines=(*evidence.lines, *lines))


def told(report: GateReport) -> str:
    """One examined node in words: `examined node-1: pass; …`."""
    why = "; ".join(
        f"{check.get('check')}: {check.get('evidence')}"
        for check in report.checks
        if check.get("verdict") == report.verdict != VerdictWord.PASS and check.get("check") != KERNEL
    )
    parts = (f"examined {report.node}: {report.verdict}", why, *(_kernel(check) for check in _kernel_checks(report)))
    return "; ".join(part for part in parts if part)[:TOLD_CHARACTERS]


def _kernel(check: dict[str, Any]) -> str:
    if check.get("verdict") == VerdictWord.PASS:
        return "its kernel said nothing telling"
    lines = check.get("lines")
    said = f"its kernel said {len(lines)} telling {'line' if len(lines) == 1 else 'lines'}" if lines else ""
    return said or f"its kernel's log was not read ({check.get('evidence')})"


def _kernel_checks(report: GateReport) -> Iterator[dict[str, Any]]:
    return (check for check in report.checks if check.get("check") == KERNEL)


def _kernel_lines(report: GateReport) -> Iterator[LogLine]:
    """Lines as the gate program reports them: [Unix seconds, text]; what has another form is left out."""
    for check in _kernel_checks(report):
        found = check.get("lines")
        for item in cast("list[object]", found) if isinstance(found, list) else ():
            match item:
                case [float() | int() as at, str() as text]:
                    yield LogLine(text, KERNEL, node=report.node, at=float(at))
                case _:
                    pass
