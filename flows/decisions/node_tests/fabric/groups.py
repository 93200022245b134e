"""From the reports of a group's members to measurements, the limit of a group, and a verdict for each node. Pure.

A node that is to blame fails. A node behind a bad switch, without an answer, or measured only by weaker means is
unknown. A bad link fails no node: both its ends are good with others, and get a warning.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.decisions.node_tests.fabric.model import (
    Answer,
    FabricFault,
    FabricFinding,
    Floor,
    Group,
    Measurement,
    circle,
    shuffled,
)
from flows.decisions.node_tests.grading.model import NodeGrade
from profiles.checks.check import Check
from profiles.hardware import HardwareProfile
from profiles.vocabulary import VerdictWord
from workflows.programs.fabric.report import GPUS, GangReport

Json = dict[str, Any]

PEERS_SHARE = 0.5
"""Of the median of the first groups; our own: two sound links of one network differ by less, a bad one by more."""
FEW = 3
"""So few nodes are measured all together at first: pairs of them would leave one alone."""
SHOWN = 4
"""Measurements of a finding that stand in a node's evidence."""
NAMED = 4
"""Members of a group that are named."""


@dataclass(frozen=True)
class GroupResult:
    """The reports of one group, all members together."""

    measurement: Measurement
    by: str = ""
    """`gpus` or `sockets`, as far as somebody reported it; "" where nobody did."""
    wrong: int = 0
    """Values that were not what they should be; then the group counts as one that moves nothing."""
    why: str = ""
    """Why there is no figure: whose answer is missing."""
    notes: tuple[str, ...] = ()
    all_to_all: float | None = None
    """GB/s of the slowest member."""


@dataclass(frozen=True)
class Limit:
    """What groups must reach on each rail."""

    floors: tuple[Floor, ...]
    why: str
    """Where it comes from, for people."""


def read_group(group: Group, reports: Mapping[str, GangReport], silent: Mapping[str, str]) -> GroupResult:
    """A group's measurement: its slowest member counts, and one silent member leaves it unknown.

    `silent`: nodes that did not answer, and why.
    """
    answers = [reports[node] for node in group if node in reports]
    notes = tuple(dict.fromkeys(note for one in answers if (note := one.notes)))
    by = Counter(one.by for one in answers if one.rails).most_common(1)
    word = by[0][0] if by else ""
    whys = [*(f"{node}: {why}" for node, why in silent.items()), *_missed(group, answers)]
    rails = [one.rails for one in answers if one.rails]
    if len(rails) < len(group) or len({len(one) for one in rails}) != 1:
        why = "; ".join(whys[:4]) or "its members report different rails"
        return GroupResult(Measurement(group, None), word, 0, why, notes)
    wrong = sum(one.wrong for one in answers)
    slowest = tuple(0.0 if wrong else min(rail) for rail in zip(*rails, strict=True))
    others = [one.all_to_all for one in answers if one.all_to_all is not None]
    return GroupResult(
        Measurement(group, slowest), word, wrong, "", notes, min(others) if len(others) == len(group) else None
    )


def _missed(group: Group, answers: Sequence[GangReport]) -> list[str]:
    """The nodes that most others missed, first."""
    missed = Counter(group[rank] for one in answers for rank in one.missed if 0 <= rank < len(group))
    named = [f"{node}: missed by {times} of {len(group)}" for node, times in missed.most_common()]
    return [*named, *(f"{one.node}: {one.why}" for one in answers if one.rails is None and not one.missed)]


def first_groups(nodes: Sequence[str], seed: int) -> tuple[Group, ...]:
    """Disjoint pairs by chance, with an odd number one of three; a few nodes all together."""
    if len(nodes) <= FEW:
        return (tuple(nodes),)
    order = shuffled(range(len(nodes)), seed)
    last = order.pop() if len(order) % 2 else None
    groups = [list(pair) for pair in circle(order, 0)]
    if last is not None:
        groups[-1].append(last)
    return tuple(tuple(nodes[member] for member in sorted(group)) for group in groups)


def gang_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Those of all nodes of a group."""
    return tuple(check for check in checks if check.spans == "gang")


def stated_limit(checks: Sequence[Check], hardware: HardwareProfile) -> Limit | None:
    """What the suite's own limits say for each rail of this hardware; None where none does."""
    for check in checks:
        if check.unit != "GB/s" or check.direction != "higher_is_better":
            continue
        figures = [bound.figure for bound in check.bounds_on(hardware) if bound.figure is not None]
        if figures:
            rails = max(1, hardware.gpus_per_node)
            floor = max(figures) / rails
            on = f" on each of {rails} rails" if rails > 1 else ""
            return Limit(
                (Floor(2, floor),), f"{check.name} of the suite asks for {max(figures):g} GB/s: {floor:.4g}{on}"
            )
    return None


def peers_limit(first: Sequence[Measurement], least: Limit | None) -> Limit:
    """Half of the median of the first groups' figures, on any rail; not below the suite's own floor.

    `least` is the suite's own limit.
    """
    figures = [rail for one in first for rail in one.gigabytes_per_second or () if rail > 0]
    floor = least.floors[0].gigabytes_per_second if least else 0.0
    if not figures:
        return Limit((Floor(2, floor),), f"no first group answered; whoever answers with {floor:.4g} GB/s is good")
    median = statistics.median(figures)
    if median * PEERS_SHARE <= floor and least is not None:
        return least
    source = f"half of the median {median:.4g} GB/s of the first {len(first)} groups: {median * PEERS_SHARE:.4g} GB/s"
    return Limit((Floor(2, median * PEERS_SHARE),), source)


def rails_of(first: Sequence[Measurement]) -> int:
    """How many rails most of the first groups reported; 1 where none answered."""
    counted = Counter(len(one.gigabytes_per_second) for one in first if one.gigabytes_per_second)
    return counted.most_common(1)[0][0] if counted else 1


def by_gpus(checks: Sequence[Check]) -> bool:
    """Whether the suite asks for collectives between GPUs."""
    return any("gpus" in check.needs for check in checks)


def was_by_gpus(groups: Sequence[GroupResult]) -> bool:
    """Whether any group was measured between GPUs."""
    return any(one.by == GPUS for one in groups)


@dataclass(frozen=True)
class FabricResult:
    """All that a test of a fabric said."""

    answer: Answer
    reads: tuple[GroupResult, ...]
    """Every group, round by round."""
    limit: Limit
    checks: tuple[Check, ...]
    """The suite's checks of gangs; the first that is measured in GB/s and is no warning is the one that judges."""
    weaker: str = ""
    """Why a pass is none: it was measured by something weaker than the checks ask for."""


def group_verdicts(tested: FabricResult, nodes: Sequence[str]) -> dict[str, NodeGrade]:
    """A verdict about each of `nodes`, in their order."""
    faults = {name: one for one in tested.answer.findings if one.kind is FabricFault.NODE for name in one.members}
    unknown = {one.node: one.why for one in tested.answer.unknown}
    for one in tested.answer.findings:
        if one.kind in (FabricFault.RAIL, FabricFault.FABRIC):
            why = f"{finding_text(one)}; {_listed(one.evidence)}"
            unknown |= {name: why for name in one.members if name not in faults}
    return {node: _grade(tested, node, faults.get(node), unknown.get(node, "")) for node in nodes}


def missed_links(tested: FabricResult) -> tuple[tuple[str, str], ...]:
    """Links that are bad, and those that missed more than once between two good nodes: the next test looks at them."""
    answer, floor = tested.answer, tested.limit.floors[0].gigabytes_per_second
    off = {rail for one in answer.findings if one.kind is FabricFault.RAIL for rail in one.rails}
    missed: Counter[Group] = Counter()
    for one in (read.measurement for read in tested.reads):
        rails = one.gigabytes_per_second
        if len(one.group) == 2 and (
            rails is None or any(speed < floor for rail, speed in enumerate(rails) if rail not in off)
        ):
            missed[one.group] += 1
    proven = set(answer.proven)
    twice = [group for group, times in missed.items() if times > 1 and proven.issuperset(group)]
    found = [one.members for one in answer.findings if one.kind is FabricFault.LINK]
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
    """The grade of a node that had no partner."""
    reason = {"check": "gang", "verdict": "unknown", "measured": None, "limit": None, "unit": "", "evidence": why}
    return NodeGrade(node, VerdictWord.UNKNOWN, (reason,))


def measurement_text(measurement: Measurement) -> str:
    """A measurement in a few words."""
    group, rails = measurement.group, measurement.gigabytes_per_second
    names = "+".join(group[:NAMED]) + (f"+{len(group) - NAMED} more" if len(group) > NAMED else "")
    if rails is None:
        return f"{names}: no answer"
    slowest = min(rails)
    rail = f" on rail {rails.index(slowest)}" if len(rails) > 1 else ""
    return f"{names}: {slowest:.3g} GB/s{rail}"


def finding_text(finding: FabricFinding) -> str:
    """What is bad, in a line."""
    rails = f" (rail {', '.join(map(str, finding.rails))})" if finding.rails != (0,) else ""
    match finding.kind:
        case FabricFault.NODE:
            what = f"node {finding.members[0]}{rails}"
        case FabricFault.LINK:
            what = f"link {finding.members[0]} - {finding.members[1]}{rails}"
        case FabricFault.SWITCH:
            what = f"switch {finding.switch} with {len(finding.members)} nodes{rails}"
        case FabricFault.RAIL:
            what = f"rail {', '.join(map(str, finding.rails))} everywhere"
        case FabricFault.FABRIC:
            what = "the whole fabric"
    return f"{what}: {finding.why}"


def _grade(tested: FabricResult, node: str, fault: FabricFinding | None, untold: str) -> NodeGrade:
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
    warnings = [
        _link(check, one) for one in tested.answer.findings if one.kind is FabricFault.LINK and node in one.members
    ]
    fatal = [VerdictWord(one["verdict"]) for one in (reason, *others) if one.get("severity") != "warning"]
    worst = next((one for one in (VerdictWord.FAIL, VerdictWord.UNKNOWN) if one in fatal), VerdictWord.PASS)
    return NodeGrade(node, worst, (reason, *others, *warnings))


def _evidence(tested: FabricResult, own: Sequence[GroupResult], fault: FabricFinding | None, untold: str) -> str:
    if fault:
        return f"{fault.why}: {_listed(fault.evidence)}; limit: {tested.limit.why}"
    if untold:
        silent = [one.why for one in own if one.why][-2:]
        return "; ".join([untold, *silent])
    good = [one.measurement for one in own if one.measurement.gigabytes_per_second is not None]
    examples = _listed(sorted(good, key=lambda one: -len(one.group))[:1])
    return "; ".join(part for part in (tested.weaker, examples, f"limit: {tested.limit.why}") if part)


def _listed(measurements: Iterable[Measurement]) -> str:
    ordered = sorted(measurements, key=lambda one: len(one.group))
    return ", ".join(measurement_text(one) for one in ordered[:SHOWN])


def _figure(own: Sequence[GroupResult], *, best: bool) -> float | None:
    """GB/s of the slowest rail: of the best group of a good node, of the worst of a bad one."""
    figures = [min(one.measurement.gigabytes_per_second or (0.0,)) for one in own if one.by]
    return (max(figures) if best else min(figures)) if figures else None


def _other(check: Check, own: Sequence[GroupResult], tested: FabricResult) -> Json:
    """A check that stands beside: values that came wrong, or a figure that is reported and not judged."""
    answered = [one for one in own if one.measurement.gigabytes_per_second is not None]
    reason: Json = {"check": check.name, "verdict": "unknown", "measured": None, "limit": None, "unit": check.unit}
    if check.unit == "count":
        wrong = min((one.wrong for one in answered), default=None)
        small = min(answered, key=lambda one: len(one.measurement.group), default=None)
        word = "fail" if wrong else "unknown" if wrong is None or tested.weaker else "pass"
        evidence = (
            f"{measurement_text(small.measurement)}: {small.wrong} wrong" if small else "no group with it answered"
        )
        reason |= {"verdict": word, "measured": wrong, "limit": 0, "evidence": evidence}
        if word == "fail":
            # All groups with it were wrong: whose fault it is, the judging check says.
            reason |= {"class": str(check.fault_class), "what_to_do": check.what_to_do, "severity": "warning"}
    else:
        figures = [one for one in answered if one.all_to_all is not None]
        largest = max(figures, key=lambda one: len(one.measurement.group), default=None)
        where = "not measured" if largest is None else f"in a group of {len(largest.measurement.group)}"
        reason |= {
            "measured": None if largest is None else largest.all_to_all,
            "evidence": f"{where}; reported, not judged: groups of other sizes are no peers",
            "severity": "warning",
        }
    return reason


def _link(check: Check, finding: FabricFinding) -> Json:
    return {
        "check": f"{check.name}-link",
        "verdict": "fail",
        "severity": "warning",
        "measured": min((min(one.gigabytes_per_second or (0.0,)) for one in finding.evidence), default=None),
        "limit": None,
        "unit": "GB/s",
        "evidence": f"{finding_text(finding)}; {_listed(finding.evidence)}",
    }
