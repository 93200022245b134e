"""Which pairs of nodes meet next, and what their meetings say about each node. Pure.

In the first round each node meets one other by chance. A node that was good with some other is proven. The others meet
proven ones, a new one each round: a node that misses with two of them is to blame, and they are not. A pair that missed
although both are good with others has a bad link between them, or had a bad moment: it blames no node.

A gang's rounds (`plan`) search groups of any size; here two nodes are all that a tool can take, and a meeting answers
several checks, or some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from flows.decisions.node_tests.fabric.model import circle, shuffled
from flows.decisions.node_tests.grading.comparisons import History
from flows.decisions.node_tests.grading.grade import grade, worst
from flows.decisions.node_tests.grading.model import CheckRule, NodeGrade, NodeReadings
from flows.decisions.node_tests.judge import rule_of
from flows.decisions.text import first_names
from profiles.checks.check import Check
from profiles.hardware import HardwareProfile
from profiles.vocabulary import VerdictWord
from workflows.programs.fabric.report import PairReport
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.run import unpack_answers

Pair = tuple[str, str]
Json = dict[str, Any]
ParsedByCheck = Mapping[str, tuple[ParsedOutput, ...]]
"""By check, the values of each attempt of the node that started the measurement."""

PARTNERS = 2
"""With so many proven ones a node must miss before it is blamed; one alone may be on a bad link to it."""
ROUNDS = 6
"""At most: the first, and five in which whoever is not proven meets another one. What is open then is unknown."""
STRANGERS = 3
"""So many rounds may pass without anybody proven: three nodes need them all to have met each other."""
MANY = 3
"""Where so many pairs have reported nothing at all for a check, e.g. since no image has the tool, nobody asks again."""
NAMED = 4
"""Partners that are named."""
OF_A_FAILURE = ("class", "what_to_do")


@dataclass(frozen=True)
class Meeting:
    """Two nodes that were measured with each other."""

    pair: Pair
    verdicts: Mapping[str, VerdictWord]
    """By check, the worse of both directions; a check that is missing was not made."""


@dataclass(frozen=True)
class View:
    """What all meetings say of one check."""

    proven: frozenset[str]
    """Good with somebody."""
    missed: Mapping[str, tuple[str, ...]]
    """Node -> with whom it missed."""
    unanswered: Mapping[str, tuple[str, ...]]
    """Node -> with whom nothing was known."""

    def blamed(self, node: str) -> tuple[str, ...]:
        """Proven ones with whom it missed."""
        return tuple(one for one in self.missed.get(node, ()) if one in self.proven)

    def word(self, node: str) -> VerdictWord:
        """Of a node: proven, to blame, or neither."""
        if node in self.proven:
            return VerdictWord.PASS
        return VerdictWord.FAIL if len(self.blamed(node)) >= PARTNERS else VerdictWord.UNKNOWN

    def is_settled(self, node: str) -> bool:
        """Whether another meeting would say nothing new."""
        silent = sum(one in self.proven for one in self.unanswered.get(node, ()))
        return self.word(node) is not VerdictWord.UNKNOWN or silent >= PARTNERS


@dataclass(frozen=True)
class Pairs:
    """All meetings, round by round. Nothing else is remembered."""

    nodes: tuple[str, ...]
    checks: tuple[str, ...]
    """Those that count: what misses in others is reported, and never measured again."""
    seed: int = 0
    """Which partners meet: with the same seed and the same meetings the same ones."""
    rounds: tuple[tuple[Meeting, ...], ...] = field(default=())

    def after(self, meetings: Sequence[Meeting]) -> Pairs:
        """The state one round later."""
        return Pairs(self.nodes, self.checks, self.seed, (*self.rounds, tuple(meetings)))

    @cached_property
    def views(self) -> dict[str, View]:
        """Of each check that counts."""
        return {check: view_of(check, self.rounds) for check in self.checks}

    @cached_property
    def partners(self) -> dict[str, frozenset[str]]:
        """Whom each node has met."""
        found: dict[str, set[str]] = {node: set() for node in self.nodes}
        for meeting in (one for meetings in self.rounds for one in meetings):
            left, right = meeting.pair
            found[left].add(right)
            found[right].add(left)
        return {node: frozenset(others) for node, others in found.items()}


def view_of(check: str, rounds: Sequence[Sequence[Meeting]]) -> View:
    """What the meetings say of a check."""
    proven: set[str] = set()
    missed: dict[str, tuple[str, ...]] = {}
    untold: dict[str, tuple[str, ...]] = {}
    for meeting in (one for meetings in rounds for one in meetings if check in one.verdicts):
        word = meeting.verdicts[check]
        if word is VerdictWord.PASS:
            proven.update(meeting.pair)
            continue
        kept = missed if word is VerdictWord.FAIL else untold
        for node, other in (meeting.pair, meeting.pair[::-1]):
            kept[node] = (*kept.get(node, ()), other)
    return View(frozenset(proven), missed, untold)


def next_pairs(state: Pairs) -> tuple[Pair, ...]:
    """Disjoint pairs that have not met yet, to be measured side by side; empty: everything is said that can be."""
    if not state.rounds:
        order = shuffled(range(len(state.nodes)), state.seed)
        return tuple((state.nodes[left], state.nodes[right]) for left, right in circle(order, 0))
    if len(state.rounds) >= ROUNDS:
        return ()
    open_of = _open(state)
    waiting = _shuffled(state, [node for node in state.nodes if node in open_of])
    waiting.sort(key=lambda node: len(state.partners[node]))
    free = _shuffled(state, [node for node in state.nodes if node not in open_of])[::-1]
    pairs: list[Pair] = []
    left_over: list[str] = []
    for node in waiting:
        wanted = [state.views[check].proven for check in open_of[node] if state.views[check].proven]
        met = state.partners[node]
        partner = _taken(free, lambda one: one not in met and all(one in proven for proven in wanted))  # noqa: B023
        if partner is None:
            left_over.append(node)
        else:
            pairs.append((node, partner))
    return (*pairs, *_strangers(state, left_over))


def checks_for(state: Pairs) -> tuple[str, ...]:
    """Checks that count and that the next round is about."""
    if not state.rounds:
        return state.checks
    unsettled = {check for checks in _open(state).values() for check in checks}
    return tuple(check for check in state.checks if check in unsettled)


def _open(state: Pairs) -> dict[str, tuple[str, ...]]:
    """Node -> checks of which another meeting may say something; also each node that has met none yet."""
    live = [check for check in state.checks if not _is_over(state, state.views[check])]
    found: dict[str, tuple[str, ...]] = {}
    for node in state.nodes:
        own = tuple(check for check in live if not state.views[check].is_settled(node))
        if own or not state.partners[node]:
            found[node] = own
    return found


def _is_over(state: Pairs, view: View) -> bool:
    """No node was good, and none will be."""
    if view.proven:
        return False
    return len(state.rounds) >= STRANGERS or (not view.missed and len(state.rounds[0]) >= MANY)


def _strangers(state: Pairs, nodes: Sequence[str]) -> list[Pair]:
    """Pairs among nodes for which no proven partner is left."""
    pairs: list[Pair] = []
    rest = list(reversed(nodes))
    while rest:
        node = rest.pop()
        met = state.partners[node]
        other = _taken(rest, lambda one: one not in met)  # noqa: B023
        if other is not None:
            pairs.append((node, other))
    return pairs


def _taken(rest: list[str], fits: Callable[[str], bool]) -> str | None:
    """The last of them that fits, taken out; None: none does. From the end, where taking one out moves few others."""
    for place in range(len(rest) - 1, -1, -1):
        if fits(rest[place]):
            return rest.pop(place)
    return None


def _shuffled(state: Pairs, nodes: Sequence[str]) -> list[str]:
    return [nodes[index] for index in shuffled(range(len(nodes)), state.seed, len(state.rounds))]


@dataclass(frozen=True)
class PairResult:
    """A meeting with what it was judged by."""

    meeting: Meeting
    reasons: Mapping[str, Mapping[str, Json]]
    """Check -> node -> what was said when that one asked the other."""


def pair_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Those of two nodes."""
    return tuple(check for check in checks if check.spans == "pair")


def pair_rules(checks: Sequence[Check], hardware: HardwareProfile) -> tuple[CheckRule, ...]:
    """How they are judged. A miss is not repeated with the same partner: others show whose it is."""
    return tuple(replace(rule_of(check, hardware), noisy=False) for check in checks)


def halves(
    pair: Pair, reports: Mapping[str, PairReport], silent: Mapping[str, str], number_of: Mapping[str, int]
) -> dict[str, ParsedByCheck]:
    """What each of the two reported, by check; what one did not report is unknown with its reason.

    `silent`: nodes that did not answer, and why. `number_of`: check -> number of the call that answers it.
    """
    found: dict[str, ParsedByCheck] = {}
    for node in pair:
        report = reports.get(node)
        answers, why = _answers(report) if report is not None else ({}, silent.get(node, "it reported nothing"))
        late = (ParsedOutput(unknown=why or "the call was not made"),)
        found[node] = {check: tuple(answers.get(number) or late) for check, number in number_of.items()}
    return found


def pair_reasons(
    rules: Sequence[CheckRule], hardware: str, parsed: Mapping[str, ParsedByCheck], history: History | None = None
) -> dict[str, dict[str, Json]]:
    """Node -> check -> the reason that says how it did when it asked its partner.

    A node that did not make a check now may bring its earlier values in `parsed`.
    """
    grades = grade(rules, [NodeReadings(node, hardware, own) for node, own in parsed.items()], history)
    return {node: {str(one["check"]): one for one in found.reasons} for node, found in grades.items()}


def pair_result_of(pair: Pair, checks: Sequence[str], reasons: Mapping[str, Mapping[str, Json]]) -> PairResult:
    """The meeting of a pair: in each check the worse of both directions counts."""
    own = {check: {node: reasons[node][check] for node in pair} for check in checks}
    verdicts = {check: worst([VerdictWord(one["verdict"]) for one in both.values()]) for check, both in own.items()}
    return PairResult(Meeting(pair, verdicts), own)


def pair_verdicts(state: Pairs, results: Sequence[PairResult], checks: Sequence[Check]) -> dict[str, NodeGrade]:
    """A verdict about each node, with a reason for each check; warnings change none."""
    views = {check.name: view_of(check.name, state.rounds) for check in checks}
    common = {check.name: _everywhere(check.name, views[check.name], results) for check in checks}
    by_node: dict[str, list[PairResult]] = {node: [] for node in state.nodes}
    for one in results:
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


def _answers(report: PairReport) -> tuple[dict[int, list[ParsedOutput]], str]:
    try:
        return (unpack_answers(report.answers) if report.answers else {}), report.why
    except ValueError as error:
        return {}, str(error)


def _everywhere(check: str, view: View, results: Sequence[PairResult]) -> str:
    """The rail on which all pairs missed, where none was good, as a sentence; "" where some pair was good."""
    own = [one for one in results if check in one.meeting.verdicts]
    missed = [one for one in own if one.meeting.verdicts[check] is VerdictWord.FAIL]
    if view.proven or len(missed) < MANY:
        return ""
    subjects = [{_subject(reason) for reason in one.reasons[check].values()} for one in missed]
    same = sorted(subjects[0].intersection(*subjects[1:]) - {""})
    where = f" on {', '.join(same)}, the same rail everywhere," if same else ""
    return f"no pair of {len(own)} reached the limit{where} so that nobody is there to compare with"


def _subject(reason: Json) -> str:
    """The rail that a failure names: before the first colon, where it is one word."""
    before, colon, _ = str(reason["evidence"]).partition(": ")
    return before if colon and reason["verdict"] == "fail" and " " not in before else ""


def _reason(node: str, check: Check, view: View, results: Sequence[PairResult], everywhere: str) -> Json:
    """The reason of one check: of a good meeting where there is one, of the last one with a proven partner else."""
    own = [one for one in results if check.name in one.meeting.verdicts]
    if not own:
        return _nothing(check)
    word = own[-1].meeting.verdicts[check.name] if check.severity == "warning" else view.word(node)
    blamed = view.blamed(node)
    fitting = [one for one in own if one.meeting.verdicts[check.name] is word]
    if word is VerdictWord.FAIL and blamed:
        fitting = [one for one in fitting if _other(one, node) in blamed] or fitting
    reason = _worse(node, (fitting or own)[-1], check.name)
    if word is VerdictWord.FAIL and check.severity == "fatal":
        reason["evidence"] = (
            f"missed with {first_names(blamed, NAMED)}, each of which is good with others; {reason['evidence']}"
        )
    elif word is VerdictWord.UNKNOWN and reason["verdict"] == "fail":
        reason = {key: value for key, value in reason.items() if key not in OF_A_FAILURE}
        partners = first_names(view.missed.get(node, ()), NAMED)
        why = everywhere or f"missed with {partners}, which does not show which end is at fault"
        reason["evidence"] = f"{why}; {reason['evidence']}"
    return {**reason, "verdict": str(word)}


def _links(node: str, check: Check, view: View, results: Sequence[PairResult]) -> list[Json]:
    """Warnings of a good node about misses with others that are good, too."""
    found: list[Json] = []
    for one in results:
        other = _other(one, node)
        if (
            check.severity == "fatal"
            and one.meeting.verdicts.get(check.name) is VerdictWord.FAIL
            and {node, other} <= view.proven
        ):
            reason = _worse(node, one, check.name)
            kept = {key: value for key, value in reason.items() if key not in OF_A_FAILURE}
            evidence = f"missed its limit once with {other}, and both are good with others; {reason['evidence']}"
            found.append({**kept, "check": f"{check.name}-link", "severity": "warning", "evidence": evidence})
    return found


def _worse(node: str, result: PairResult, check: str) -> Json:
    """Of both directions the worse one, of equals the one in which the node asked."""
    left, right = result.meeting.pair
    directions = (node, _other(result, node))
    order = (VerdictWord.FAIL, VerdictWord.UNKNOWN, VerdictWord.PASS)
    asking = min(directions, key=lambda one: order.index(VerdictWord(result.reasons[check][one]["verdict"])))
    reason = result.reasons[check][asking]
    return {**reason, "evidence": f"{asking} -> {right if asking == left else left}: {reason['evidence']}"}


def _other(result: PairResult, node: str) -> str:
    left, right = result.meeting.pair
    return right if node == left else left


def _nothing(check: Check) -> Json:
    return {
        "check": check.name,
        "verdict": "unknown",
        "measured": None,
        "limit": None,
        "unit": check.unit,
        "evidence": "it was measured with no partner",
        **({"severity": "warning"} if check.severity == "warning" else {}),
    }
