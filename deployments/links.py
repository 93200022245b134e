"""Tests between nodes as people and programs read them: what is bad, what was measured, who passed."""

from __future__ import annotations

from typing import Any

from deployments.tables import fitted
from deployments.verdict_rows import rows_of
from flows.decisions.fabric.model import Finding, Measurement
from flows.decisions.fabric.verdicts import finding_text
from flows.gangs import FabricTested, judged_by
from flows.links import LinksOutcome
from flows.pairs import PairsTested
from profiles.vocabulary import VerdictWord

Json = dict[str, Any]


def document(outcome: LinksOutcome) -> Json:
    """A test between nodes as JSON; bandwidths of groups in GB/s, one a rail; pairs' figures in their checks' units."""
    return {
        "suite": outcome.suite,
        "depth": "fabric",
        "kind": "links",
        "seconds": round(outcome.seconds, 3),
        "seed": outcome.seed,
        "fabrics": [_fabric(one) for one in outcome.fabrics],
        "pairs": [_pairs(one) for one in outcome.pairs],
        "nodes": [
            {"node": node, "verdict": str(grade.verdict), "reasons": list(grade.reasons)}
            for node, grade in outcome.grades.items()
        ],
    }


def text(outcome: LinksOutcome, columns: int) -> str:
    """What is bad first, then a line a node."""
    words = [grade.verdict for grade in outcome.grades.values()]
    counted = ", ".join(f"{words.count(word)} {word}" for word in VerdictWord if word in words)
    lines = [f"{outcome.suite}, between nodes: {counted}; {outcome.seconds:.1f} s"]
    for one in outcome.fabrics:
        groups = len(one.tested.reads)
        lines.append(
            f"{one.hardware}: {one.rounds} rounds, {groups} groups by {one.by or 'nobody'}; {one.tested.limit.why}"
        )
        lines += [f"bad: {finding_text(finding)}" for finding in one.tested.answer.findings] or [
            "nothing bad was found"
        ]
        notes = dict.fromkeys(note for item in one.tested.reads for note in item.notes)
        lines += [f"note: {note}" for note in notes]
        if one.tested.answer.spent:
            lines.append("the rounds were used up before everything was known")
    for two in outcome.pairs:
        met = f"{len(two.met)} pairs of {len(two.grades)} nodes in {two.rounds} round{'s' if two.rounds > 1 else ''}"
        lines.append(f"{two.hardware}: {met}: {', '.join(two.checks)}")
        lines += [f"bad: {line}" for line in _missing(two)]
        lines += [f"note: {note}" for note in two.notes]
    rows = [row for node, grade in outcome.grades.items() for row in rows_of(node, str(grade.verdict), grade.reasons)]
    shown = ("node", "verdict", "check", "measured", "limit", "evidence")
    return "\n".join([*lines, fitted(rows, shown, columns, giving="evidence", dropped=("limit",))])


def _fabric(one: FabricTested) -> Json:
    answer = one.tested.answer
    return {
        "hardware": one.hardware,
        "check": judged_by(one),
        "by": one.by,
        "rounds": one.rounds,
        "groups": len(one.tested.reads),
        "limit": one.tested.limit.floors[0].gigabytes_per_second,
        "limit_from": one.tested.limit.why,
        "spent": answer.spent,
        "findings": [_finding(finding) for finding in answer.findings],
        "proven": list(answer.proven),
        "unknown": [{"node": item.node, "why": item.why} for item in answer.unknown],
        "unexplained": [_measurement(item) for item in answer.unexplained],
    }


def _missing(two: PairsTested) -> list[str]:
    """Nodes that failed a check of pairs."""
    return [
        f"{node}: {reason['check']}: {reason['evidence']}"
        for node, grade in two.grades.items()
        for reason in grade.reasons
        if reason["verdict"] == "fail" and reason.get("severity") != "warning"
    ]


def _pairs(two: PairsTested) -> Json:
    """Every meeting with what each of the two measured when it asked the other."""
    return {
        "hardware": two.hardware,
        "checks": list(two.checks),
        "rounds": two.rounds,
        "meetings": [
            {
                "pair": list(one.meeting.pair),
                "said": {check: str(word) for check, word in one.meeting.said.items()},
                "measured": {
                    check: {node: reason["measured"] for node, reason in both.items()}
                    for check, both in one.reasons.items()
                },
            }
            for one in two.met
        ],
    }


def _finding(finding: Finding) -> Json:
    return {
        "kind": str(finding.kind),
        "members": list(finding.members),
        "switch": finding.switch,
        "rails": list(finding.rails),
        "confidence": finding.confidence,
        "why": finding.why,
        "evidence": [_measurement(item) for item in finding.evidence],
    }


def _measurement(measurement: Measurement) -> Json:
    rails = measurement.gigabytes_per_second
    return {"group": list(measurement.group), "gigabytes_per_second": None if rails is None else list(rails)}
