"""What a trial of a run says about its nodes. Pure.

All steps, a finite loss, a rate that is not below its limit: every node of the gang passes. Anything else blames no
node until evidence names one: that node fails, and of the others nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.node_tests.grading.comparisons import History
from flows.decisions.node_tests.grading.grade import grade, worst
from flows.decisions.node_tests.grading.model import (
    AtLeast,
    CheckRule,
    Depth,
    Fall,
    Limit,
    NodeGrade,
    NodeReadings,
    Peers,
)
from flows.decisions.policy import POLICY
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.model.records import Json, StepRow
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.progress.pace import stretches

STEPS, LOSS, RATE = "trial-steps", "trial-loss", "trial-rate"
CHECKS = (STEPS, LOSS, RATE)
QUANTITY = "steps_per_second"
WORSE_BY_PERCENT, PAST_DAYS = 10.0, 90
"""A gang slower by so much than its first node's last good trials; twice SuperBench's 5 %, for others' traffic, as
`gang-training-rate` of the shipped suite."""
UNCOMPARED = "reported only: no limit is set, and there are too few other gangs and too little history to compare with"
NAMED = 4

WHAT_TO_DO = "Test the nodes at depth device and fabric to find what is slow."


@dataclass(frozen=True)
class Blame:
    """Evidence against one node."""

    fault_class: str
    why: str


@dataclass(frozen=True)
class TrialObservation:
    """What was seen of the trial of one gang."""

    run: str
    """Name of the run's profile: figures of different ones are never compared."""
    nodes: tuple[str, ...]
    """In the order of ranks."""
    steps: int
    """That were to be seen."""
    rows: tuple[StepRow, ...] = ()
    """In the order in which they were reported."""
    every_steps: int = 1
    """From one reported step to the next."""
    skip_steps: int = 0
    """First steps that do not count for the rate."""
    ended: str = ""
    """Why it ended before all steps were seen; "": it did not."""
    blamed: Mapping[str, Blame] = field(default_factory=dict[str, Blame])
    """Nodes with evidence against them."""
    lost: str = ""
    """What its ranks print of numbers that are none; "": nothing. Some trainers tell a loss of 0 then."""


@dataclass(frozen=True)
class Rate:
    """How fast a gang was, judged."""

    verdict: VerdictWord
    measured: float | None
    """Steps a second; None: too few were seen."""
    limit: float | None
    evidence: str


def steps_done(rows: Sequence[StepRow], every_steps: int) -> int:
    """Steps that were seen, counted from the first one: a trial begins from nothing, whatever its counter says."""
    counters = [row.step for row in rows]
    return max(counters) - min(counters) + every_steps if counters else 0


def rate_of(seen: TrialObservation) -> float | None:
    """Steps a second after those that do not count; None: fewer than two reports, or no time between them."""
    if not seen.rows:
        return None
    first = min(row.step for row in seen.rows) - seen.every_steps
    at = {row.step - first: row.at for row in reversed(seen.rows)}  # a step that was reported twice: the first time
    counted = sorted(step for step in at if step >= max(seen.skip_steps, 1))
    found = [mine for mine in stretches((step, at[step]) for step in counted) if len(mine) > 1]
    seconds = sum(mine[-1].at - mine[0].at for mine in found)
    return sum(mine[-1].step - mine[0].step for mine in found) / seconds if seconds > 0 else None


def not_finite(rows: Sequence[StepRow]) -> int | None:
    """The first step whose loss is no number; None: there is none."""
    return min((row.step for row in rows if row.loss is not None and not math.isfinite(row.loss)), default=None)


def rule_of(run: str, floor: float | None) -> CheckRule:
    """How the rate of a gang of this run profile is judged: by its limit, other gangs, the past of its first node."""
    limits: tuple[Limit, ...] = (AtLeast(floor),) if floor is not None else ()
    limits += (Peers(), Fall(percent=WORSE_BY_PERCENT, days=PAST_DAYS))
    return CheckRule(
        name=f"{RATE}-{run}",
        depth=Depth.TRAINING,
        quantity=QUANTITY,
        unit="1/s",
        limits=limits,
        noisy=False,  # it is a mean over many steps
        fault_class=str(FaultClass.STRAGGLER),
        what_to_do=WHAT_TO_DO,
    )


def rates(seen: Sequence[TrialObservation], floor: float | None, history: History | None = None) -> list[Rate]:
    """How fast each gang was; a gang without anything to be compared with passes with its figure.

    `seen`: one a gang, of one run profile on one kind of hardware; `floor`: steps a second.
    """
    if not seen:
        return []
    rule = rule_of(seen[0].run, floor)
    readings = [NodeReadings(one.nodes[0], "", {rule.name: (_parsed(rate_of(one)),)}) for one in seen]
    grades = grade([rule], readings, history)
    return [_rate(grades[one.nodes[0]].reasons[0], rate_of(one)) for one in seen]


def _parsed(rate: float | None) -> ParsedOutput:
    if rate is None:
        return ParsedOutput(unknown="fewer than two steps were reported after the first ones")
    return ParsedOutput((Reading(QUANTITY, rate, "1/s"),))


def _rate(reason: Json, rate: float | None) -> Rate:
    word = VerdictWord(reason["verdict"])
    if word is VerdictWord.UNKNOWN and rate is not None:
        return Rate(VerdictWord.PASS, rate, None, UNCOMPARED)
    return Rate(word, rate, reason["limit"], str(reason["evidence"]))


def slow_alone(seen: TrialObservation, rate: Rate, floor: float | None) -> dict[str, Blame]:
    """The node of a gang of one that is slower than other gangs or than before: no other node can hold it up.

    Missing the profile's own limit alone says nothing: it may ask for too much.
    """
    kept = rate.measured is not None and (floor is None or rate.measured >= floor)
    if len(seen.nodes) != 1 or rate.verdict is not VerdictWord.FAIL or not kept:
        return {}
    return {seen.nodes[0]: Blame(str(FaultClass.STRAGGLER), "its gang has no other node")}


def is_good(seen: TrialObservation, rate: Rate) -> bool:
    """Whether every node of the gang passes."""
    return all(reason["verdict"] == VerdictWord.PASS for reason in _reasons(seen, rate))


def grades_of(seen: TrialObservation, rate: Rate) -> dict[str, NodeGrade]:
    """The verdict about each node of the gang."""
    reasons = _reasons(seen, rate)
    named = tuple(seen.blamed)[:NAMED]
    found: dict[str, NodeGrade] = {}
    for node in seen.nodes:
        node_reasons = tuple(_about(reason, seen.blamed.get(node), named) for reason in reasons)
        found[node] = NodeGrade(node, worst([VerdictWord(one["verdict"]) for one in node_reasons]), node_reasons)
    return found


def blamed_by(diagnosis: Diagnosis, nodes: Sequence[str], homes: Mapping[int, str]) -> dict[str, Blame]:
    """Nodes of the gang that a diagnosis names for their hardware, or because they hold up the others.

    `homes`: node of each rank.
    """
    kind = diagnosis.fault_class
    if not POLICY[kind].trial_condemns_node:
        return {}
    named = [homes.get(rank, "") if rank is not None else node for node, rank in diagnosis.culprits]
    text = diagnosis.evidence[0].text if diagnosis.evidence else diagnosis.why
    found = {node: Blame(str(kind), text) for node in named if node in nodes}
    return {} if len(found) == len(nodes) > 1 else found  # who holds up everybody holds up nobody


def in_a_line(diagnosis: Diagnosis) -> str:
    """A diagnosis in one line."""
    text = diagnosis.evidence[0].text if diagnosis.evidence else diagnosis.why
    return " ".join(f"{diagnosis.fault_class}: {text}".split())[:400]


def _reasons(seen: TrialObservation, rate: Rate) -> list[Json]:
    return [_of_steps(seen), _of_loss(seen), _of_rate(seen, rate)]


def _of_steps(seen: TrialObservation) -> Json:
    count = steps_done(seen.rows, seen.every_steps)
    good = not seen.ended and count >= seen.steps
    why = "" if good else seen.ended or f"only {count} of {seen.steps} steps were seen"
    return _reason(STEPS, VerdictWord.PASS if good else VerdictWord.UNKNOWN, count, seen.steps, "count", why)


def _of_loss(seen: TrialObservation) -> Json:
    bad = not_finite(seen.rows)
    losses = [row.loss for row in seen.rows if row.loss is not None]
    if bad is not None or seen.lost:
        why = seen.lost if bad is None else f"loss not finite at step {bad}"
        return _reason(LOSS, VerdictWord.UNKNOWN, None, "finite", "", why)
    if not losses:
        why = "no step was seen" if not seen.rows else "the program reports no loss: `progress.pattern` may read it"
        return _reason(LOSS, VerdictWord.UNKNOWN, None, "finite", "", why)
    return _reason(LOSS, VerdictWord.PASS, losses[-1], "finite", "", f"{len(losses)} losses, the last {losses[-1]:g}")


def _of_rate(seen: TrialObservation, rate: Rate) -> Json:
    if rate.verdict is VerdictWord.FAIL:
        reason = rate.evidence or "below its limit"
        why = reason if seen.blamed else f"{reason}; nothing shows which node is slow"
        return _reason(f"{RATE}-{seen.run}", VerdictWord.UNKNOWN, rate.measured, rate.limit, "1/s", why)
    return _reason(f"{RATE}-{seen.run}", rate.verdict, rate.measured, rate.limit, "1/s", rate.evidence)


def _reason(check: str, word: VerdictWord, measured: float | None, limit: object, unit: str, why: str) -> Json:
    return {
        "check": check,
        "verdict": str(word),
        "measured": measured,
        "limit": limit,
        "unit": unit,
        "evidence": why,
    }


def _about(reason: Json, blame: Blame | None, named: tuple[str, ...]) -> Json:
    """The reason for one node: a failure where evidence names it; for the others, which node was named."""
    if reason["verdict"] == VerdictWord.PASS or not named:
        return reason
    if blame is None:
        why = f"{reason['evidence']}; the evidence names {', '.join(named)}"
        return {**reason, "named": list(named), "evidence": why}
    mark = {"verdict": str(VerdictWord.FAIL), "class": blame.fault_class, "what_to_do": WHAT_TO_DO}
    return {**reason, **mark, "evidence": f"{reason['evidence']}; {blame.why}"}


@dataclass(frozen=True)
class Seating:
    """Which nodes are tried with which."""

    gangs: tuple[tuple[str, ...], ...]
    rest: tuple[str, ...] = ()
    """Nodes that fill no gang."""


def seat(nodes: Sequence[str], size: int) -> Seating:
    """Consecutive gangs of `size` nodes each, and the nodes that are left."""
    full = len(nodes) // size * size
    gangs = tuple(tuple(nodes[begin : begin + size]) for begin in range(0, full, size))
    return Seating(gangs, tuple(nodes[full:]))


def seat_again(grades: Mapping[str, NodeGrade], rest: Sequence[str], size: int) -> Seating:
    """Gangs of nodes without an answer so far: those left over, and those beside a node that failed.

    The last one is filled up with nodes that passed.
    """
    innocent = [node for node, one in grades.items() if _beside_a_culprit(one)]
    found = seat([*rest, *innocent], size)
    if not found.rest:
        return found
    proven = [node for node, one in grades.items() if one.verdict is VerdictWord.PASS]
    lacking = size - len(found.rest)
    if len(proven) < lacking:
        return found
    return replace(found, gangs=(*found.gangs, (*found.rest, *proven[:lacking])), rest=())


def _beside_a_culprit(grade: NodeGrade) -> bool:
    return grade.verdict is VerdictWord.UNKNOWN and any(reason.get("named") for reason in grade.reasons)


def merged(before: Mapping[str, NodeGrade], later: Mapping[str, NodeGrade]) -> dict[str, NodeGrade]:
    """The verdicts of both rounds: a node that passed once and did not fail later has passed."""
    found = dict(before)
    for node, one in later.items():
        earlier = before.get(node)
        if earlier is None or earlier.verdict is not VerdictWord.PASS or one.verdict is VerdictWord.FAIL:
            found[node] = one
    return found


def not_seated(node: str, why: str) -> NodeGrade:
    """Of a node that was in no gang."""
    return NodeGrade(node, VerdictWord.UNKNOWN, (_reason(STEPS, VerdictWord.UNKNOWN, None, None, "count", why),))
