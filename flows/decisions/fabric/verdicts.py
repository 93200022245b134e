"""From the answer about a fabric to a verdict about each node, with the measurements that say so. Pure.

A node that is to blame fails. Whoever stands behind a bad switch, never answered, or could be measured by a weaker
means only, is unknown. A bad link fails nobody: both its ends are good with others, and are told as a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flows.decisions.fabric.model import Answer, Finding, Group, Kind, Measurement
from flows.decisions.fabric.reading import GroupRead, Limit
from flows.decisions.grading.model import NodeGrade
from profiles.suite_check import Check
from profiles.vocabulary import VerdictWord

Json = dict[str, Any]
SHOWN = 4
"""Measurements of a finding that stand in a node's evidence."""
NAMED = 4
"""Members of a group that are named."""


@dataclass(frozen=True)
class Tested:
    """All that a test of a fabric said."""

    answer: Answer
    reads: tuple[GroupRead, ...]
    """Every group, round by round."""
    limit: Limit
    checks: tuple[Check, ...]
    """The suite's checks of gangs; the first that is told in GB/s and is no warning is the one that judges."""
    weaker: str = ""
    """Why a pass is none: it was measured by something weaker than the checks ask for."""


def verdicts(tested: Tested, nodes: Sequence[str]) -> dict[str, NodeGrade]:
    """A verdict about each of `nodes`, in their order."""
    faults = {name: one for one in tested.answer.findings if one.kind is Kind.NODE for name in one.members}
    unknown = {one.node: one.why for one in tested.answer.unknown}
    for one in tested.answer.findings:
        if one.kind in (Kind.RAIL, Kind.FABRIC):
            why = f"{finding_text(one)}; {_listed(one.evidence)}"
            unknown |= {name: why for name in one.members if name not in faults}
    return {node: _grade(tested, node, faults.get(node), unknown.get(node, "")) for node in nodes}


def missed_links(tested: Tested) -> tuple[tuple[str, str], ...]:
    """Links that are bad, and those that missed more than once between two good nodes: the next test looks at them."""
    answer, floor = tested.answer, tested.limit.floors[0].gigabytes_per_second
    off = {rail for one in answer.findings if one.kind is Kind.RAIL for rail in one.rails}
    missed: Counter[Group] = Counter()
    for one in (read.measurement for read in tested.reads):
        rails = one.gigabytes_per_second
        if len(one.group) == 2 and (
            rails is None or any(speed < floor for rail, speed in enumerate(rails) if rail not in off)
        ):
            missed[one.group] += 1
    proven = set(answer.proven)
    twice = [group for group, times in missed.items() if times > 1 and proven.issuperset(group)]
    found = [one.members for one in answer.findings if one.kind is Kind.LINK]
    return tuple(dict.fromkeys((left, right) for left, right in (*found, *twice)))


def judging(checks: Sequence[Check]) -> Check:
    """The check whose limit counts.

    Raises:
        ValueError: there is none.
    """
    fitting = [check for check in checks if check.unit == "GB/s" and check.severity == "fatal"]
    if not fitting:
        raise ValueError("checks: a suite that tests gangs needs a fatal check of a gang in GB/s")
    return fitting[0]


def joined(one: NodeGrade, other: NodeGrade | None) -> NodeGrade:
    """Two grades of one node as one: the worse word, and the reasons of both."""
    if other is None:
        return one
    words = (one.verdict, other.verdict)
    worst = next((word for word in (VerdictWord.FAIL, VerdictWord.UNKNOWN) if word in words), VerdictWord.PASS)
    return NodeGrade(one.node, worst, (*other.reasons, *one.reasons))


def untested(node: str, why: str) -> NodeGrade:
    """Of a node that was measured with nobody."""
    reason = {"check": "gang", "verdict": "unknown", "measured": None, "limit": None, "unit": "", "evidence": why}
    return NodeGrade(node, VerdictWord.UNKNOWN, (reason,))


def told(measurement: Measurement) -> str:
    """A measurement in a few words."""
    group, rails = measurement.group, measurement.gigabytes_per_second
    names = "+".join(group[:NAMED]) + (f"+{len(group) - NAMED} more" if len(group) > NAMED else "")
    if rails is None:
        return f"{names}: no answer"
    slowest = min(rails)
    rail = f" on rail {rails.index(slowest)}" if len(rails) > 1 else ""
    return f"{names}: {slowest:.3g} GB/s{rail}"


def finding_text(finding: Finding) -> str:
    """What is bad, in a line."""
    rails = f" (rail {', '.join(map(str, finding.rails))})" if finding.rails != (0,) else ""
    match finding.kind:
        case Kind.NODE:
            what = f"node {finding.members[0]}{rails}"
        case Kind.LINK:
            what = f"link {finding.members[0]} - {finding.members[1]}{rails}"
        case Kind.SWITCH:
            what = f"switch {finding.switch} with {len(finding.members)} nodes{rails}"
        case Kind.RAIL:
            what = f"rail {', '.join(map(str, finding.rails))} everywhere"
        case Kind.FABRIC:
            what = "the whole fabric"
    return f"{what}: {finding.why}"


def _grade(tested: Tested, node: str, fault: Finding | None, untold: str) -> NodeGrade:
    check = judging(tested.checks)
    word = VerdictWord.FAIL if fault else VerdictWord.UNKNOWN if untold or tested.weaker else VerdictWord.PASS
    own = [one for one in tested.reads if node in one.measurement.group]
    reason: Json = {
        "check": check.name,
        "verdict": str(word),
        "measured": _figure(own, best=fault is None),
        "limit": tested.limit.floors[0].gigabytes_per_second,
        "unit": "GB/s",
        "evidence": _evidence(tested, own, fault, untold),
    }
    if fault:
        reason |= {"class": str(check.fault_class), "what_to_do": check.what_to_do}
    others = [_other(one, own, tested) for one in tested.checks if one is not check]
    warnings = [_link(check, one) for one in tested.answer.findings if one.kind is Kind.LINK and node in one.members]
    fatal = [VerdictWord(one["verdict"]) for one in (reason, *others) if one.get("severity") != "warning"]
    worst = next((one for one in (VerdictWord.FAIL, VerdictWord.UNKNOWN) if one in fatal), VerdictWord.PASS)
    return NodeGrade(node, worst, (reason, *others, *warnings))


def _evidence(tested: Tested, own: Sequence[GroupRead], fault: Finding | None, untold: str) -> str:
    if fault:
        return f"{fault.why}: {_listed(fault.evidence)}; limit: {tested.limit.why}"
    if untold:
        silent = [one.why for one in own if one.why][-2:]
        return "; ".join([untold, *silent])
    good = [one.measurement for one in own if one.measurement.gigabytes_per_second is not None]
    shown = _listed(sorted(good, key=lambda one: -len(one.group))[:1])
    return "; ".join(part for part in (tested.weaker, shown, f"limit: {tested.limit.why}") if part)


def _listed(measurements: Iterable[Measurement]) -> str:
    ordered = sorted(measurements, key=lambda one: len(one.group))
    return ", ".join(told(one) for one in ordered[:SHOWN])


def _figure(own: Sequence[GroupRead], *, best: bool) -> float | None:
    """GB/s of the slowest rail: of the best group of a good node, of the worst of a bad one."""
    figures = [min(one.measurement.gigabytes_per_second or (0.0,)) for one in own if one.by]
    return (max(figures) if best else min(figures)) if figures else None


def _other(check: Check, own: Sequence[GroupRead], tested: Tested) -> Json:
    """A check that stands beside: values that came wrong, or a figure that is told and not judged."""
    answered = [one for one in own if one.measurement.gigabytes_per_second is not None]
    reason: Json = {"check": check.name, "verdict": "unknown", "measured": None, "limit": None, "unit": check.unit}
    if check.unit == "count":
        wrong = min((one.wrong for one in answered), default=None)
        small = min(answered, key=lambda one: len(one.measurement.group), default=None)
        word = "fail" if wrong else "unknown" if wrong is None or tested.weaker else "pass"
        evidence = f"{told(small.measurement)}: {small.wrong} wrong" if small else "no group with it answered"
        reason |= {"verdict": word, "measured": wrong, "limit": 0, "evidence": evidence}
        if word == "fail":
            # All groups with it were wrong: whose fault it is, the judging check says.
            reason |= {"class": str(check.fault_class), "what_to_do": check.what_to_do, "severity": "warning"}
    else:
        figures = [one for one in answered if one.all_to_all is not None]
        largest = max(figures, key=lambda one: len(one.measurement.group), default=None)
        said = "not measured" if largest is None else f"in a group of {len(largest.measurement.group)}"
        reason |= {
            "measured": None if largest is None else largest.all_to_all,
            "evidence": f"{said}; told, not judged: groups of other sizes are no peers",
            "severity": "warning",
        }
    return reason


def _link(check: Check, finding: Finding) -> Json:
    return {
        "check": f"{check.name}-link",
        "verdict": "fail",
        "severity": "warning",
        "measured": min((min(one.gigabytes_per_second or (0.0,)) for one in finding.evidence), default=None),
        "limit": None,
        "unit": "GB/s",
        "evidence": f"{finding_text(finding)}; {_listed(finding.evidence)}",
    }
