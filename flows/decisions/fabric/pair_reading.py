"""From what the two of a pair told to meetings, and from meetings to a verdict about each node. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flows.decisions.fabric.pairs import MANY, Meeting, Pair, Pairs, View, view_of
from flows.decisions.grading.grade import grade, worst
from flows.decisions.grading.history import History
from flows.decisions.grading.model import CheckRule, NodeGrade, NodeReadings
from flows.decisions.preflight import rule_of
from profiles.hardware import HardwareProfile
from profiles.suite_check import Check
from profiles.vocabulary import VerdictWord
from workflows.programs.gang_report import PairReport
from workflows.programs.probe import unpacked
from workflows.programs.readings import Parsed

Json = dict[str, Any]
Told = Mapping[str, tuple[Parsed, ...]]
"""By check, what each attempt of a node told as the one that asked."""
NAMED = 4
"""Partners that are named."""
OF_A_FAILURE = ("class", "what_to_do")


@dataclass(frozen=True)
class Met:
    """A meeting with what it was judged by."""

    meeting: Meeting
    reasons: Mapping[str, Mapping[str, Json]]
    """Check -> node -> what was said when that one asked the other."""


def pair_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Those of two nodes."""
    return tuple(check for check in checks if check.spans == "pair")


def pair_rules(checks: Sequence[Check], hardware: HardwareProfile) -> tuple[CheckRule, ...]:
    """How they are judged. A miss is not repeated with the same partner: others tell whose it is."""
    return tuple(replace(rule_of(check, hardware), noisy=False) for check in checks)


def halves(
    pair: Pair, reports: Mapping[str, PairReport], silent: Mapping[str, str], number_of: Mapping[str, int]
) -> dict[str, Told]:
    """What each of the two told, by check; what one did not tell is unknown with its reason.

    Args:
        pair: both nodes.
        reports: of those that told something, by node.
        silent: nodes that told nothing, and why.
        number_of: check -> number of the call that answers it.
    """
    found: dict[str, Told] = {}
    for node in pair:
        report = reports.get(node)
        answers, why = _answers(report) if report is not None else ({}, silent.get(node, "it told nothing"))
        late = (Parsed(unknown=why or "the call was not made"),)
        found[node] = {check: tuple(answers.get(number) or late) for check, number in number_of.items()}
    return found


def judged(
    rules: Sequence[CheckRule], hardware: str, told: Mapping[str, Told], history: History | None = None
) -> dict[str, dict[str, Json]]:
    """Node -> check -> the reason that says how it did when it asked its partner.

    Args:
        rules: of the checks.
        hardware: name of the profile of all these nodes: they are each other's peers.
        told: by node; a node that did not make a check now may bring what it told of it before.
        history: the nodes' past.
    """
    grades = grade(rules, [NodeReadings(node, hardware, own) for node, own in told.items()], history)
    return {node: {str(one["check"]): one for one in found.reasons} for node, found in grades.items()}


def met_of(pair: Pair, checks: Sequence[str], reasons: Mapping[str, Mapping[str, Json]]) -> Met:
    """The meeting of a pair: in each check the worse of both directions counts."""
    own = {check: {node: reasons[node][check] for node in pair} for check in checks}
    said = {check: worst([VerdictWord(one["verdict"]) for one in both.values()]) for check, both in own.items()}
    return Met(Meeting(pair, said), own)


def verdicts(state: Pairs, met: Sequence[Met], checks: Sequence[Check]) -> dict[str, NodeGrade]:
    """A verdict about each node, with a reason for each check; warnings change none.

    Args:
        state: after the last round.
        met: all meetings, oldest first.
        checks: all of the pairs' checks, in their order.
    """
    views = {check.name: view_of(check.name, state.rounds) for check in checks}
    common = {check.name: _everywhere(check.name, views[check.name], met) for check in checks}
    by_node: dict[str, list[Met]] = {node: [] for node in state.nodes}
    for one in met:
        for node in one.meeting.pair:
            by_node[node].append(one)
    found: dict[str, NodeGrade] = {}
    for node in state.nodes:
        reasons = [_reason(node, check, views[check.name], by_node[node], common[check.name]) for check in checks]
        beside = [one for check in checks for one in _links(node, check, views[check.name], by_node[node])]
        fatal = [VerdictWord(one["verdict"]) for one in reasons if one.get("severity") != "warning"]
        # Without a check that counts nothing is said against what others found.
        found[node] = NodeGrade(node, worst(fatal) if fatal else VerdictWord.PASS, (*reasons, *beside))
    return found


def _answers(report: PairReport) -> tuple[dict[int, list[Parsed]], str]:
    try:
        return (unpacked(report.answers) if report.answers else {}), report.why
    except ValueError as error:
        return {}, str(error)


def _everywhere(check: str, view: View, met: Sequence[Met]) -> str:
    """What to say where pairs missed and nobody was good: on which rail they all did; "" where somebody was good."""
    own = [one for one in met if check in one.meeting.said]
    missed = [one for one in own if one.meeting.said[check] is VerdictWord.FAIL]
    if view.proven or len(missed) < MANY:
        return ""
    subjects = [{_subject(reason) for reason in one.reasons[check].values()} for one in missed]
    same = sorted(subjects[0].intersection(*subjects[1:]) - {""})
    where = f" on {', '.join(same)}, the same rail everywhere," if same else ""
    return f"no pair of {len(own)} reached the limit{where} so that nobody is there to compare with"


def _subject(reason: Json) -> str:
    """The rail of which a failure tells: before the first colon, where it is one word."""
    before, colon, _ = str(reason["evidence"]).partition(": ")
    return before if colon and reason["verdict"] == "fail" and " " not in before else ""


def _reason(node: str, check: Check, view: View, met: Sequence[Met], everywhere: str) -> Json:
    """The reason of one check: of a good meeting where there is one, of the last one with a proven partner else."""
    own = [one for one in met if check.name in one.meeting.said]
    if not own:
        return _nothing(check)
    word = own[-1].meeting.said[check.name] if check.severity == "warning" else view.word(node)
    blamed = view.blamed(node)
    fitting = [one for one in own if one.meeting.said[check.name] is word]
    if word is VerdictWord.FAIL and blamed:
        fitting = [one for one in fitting if _other(one, node) in blamed] or fitting
    reason = _worse(node, (fitting or own)[-1], check.name)
    if word is VerdictWord.FAIL and check.severity == "fatal":
        reason["evidence"] = f"missed with {_named(blamed)}, each of which is good with others; {reason['evidence']}"
    elif word is VerdictWord.UNKNOWN and reason["verdict"] == "fail":
        reason = {key: value for key, value in reason.items() if key not in OF_A_FAILURE}
        partners = _named(view.missed.get(node, ()))
        why = everywhere or f"missed with {partners}, which does not tell whose fault it is"
        reason["evidence"] = f"{why}; {reason['evidence']}"
    return {**reason, "verdict": str(word)}


def _links(node: str, check: Check, view: View, met: Sequence[Met]) -> list[Json]:
    """Warnings of a good node about misses with others that are good, too."""
    found: list[Json] = []
    for one in met:
        other = _other(one, node)
        if (
            check.severity == "fatal"
            and one.meeting.said.get(check.name) is VerdictWord.FAIL
            and {node, other} <= view.proven
        ):
            reason = _worse(node, one, check.name)
            kept = {key: value for key, value in reason.items() if key not in OF_A_FAILURE}
            said = f"missed its limit once with {other}, and both are good with others; {reason['evidence']}"
            found.append({**kept, "check": f"{check.name}-link", "severity": "warning", "evidence": said})
    return found


def _worse(node: str, met: Met, check: str) -> Json:
    """Of both directions the worse one, of equals the one in which the node asked."""
    left, right = met.meeting.pair
    asked = (node, _other(met, node))
    order = (VerdictWord.FAIL, VerdictWord.UNKNOWN, VerdictWord.PASS)
    asking = min(asked, key=lambda one: order.index(VerdictWord(met.reasons[check][one]["verdict"])))
    reason = met.reasons[check][asking]
    return {**reason, "evidence": f"{asking} -> {right if asking == left else left}: {reason['evidence']}"}


def _other(met: Met, node: str) -> str:
    left, right = met.meeting.pair
    return right if node == left else left


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more


def _nothing(check: Check) -> Json:
    return {
        "check": check.name,
        "verdict": "unknown",
        "measured": None,
        "limit": None,
        "unit": check.unit,
        "evidence": "it met nobody",
        **({"severity": "warning"} if check.severity == "warning" else {}),
    }
