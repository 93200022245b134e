"""From the reports of a preflight's pods to verdicts: the suite's checks as rules, by kind of node. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.node_tests.grading.comparisons import History
from flows.decisions.node_tests.grading.grade import grade
from flows.decisions.node_tests.grading.model import (
    AtLeast,
    AtMost,
    CheckRule,
    Depth,
    Equals,
    Fall,
    Limit,
    Majority,
    NodeGrade,
    NodeReadings,
    Peers,
    ToolJudges,
    Word,
)
from profiles.checks.check import Check
from profiles.checks.limits import Bound
from profiles.hardware import HardwareProfile
from workflows.programs.parsers.text import ParsedOutput

STEADY_UNITS = ("count", "")
"""Counters, states and versions: one bad reading is bad. Everything else is measured again before it counts."""
TELL_OF_EACH = ("amd-smi", "nvidia-smi", "rocm-smi", "rvs", "transferbench", "nvbandwidth")
"""Parsers of tools that look at all GPUs and name each: who is not in the list was not looked at."""


@dataclass(frozen=True)
class NodeAnswer:
    """The report of one node's pod."""

    node: str
    hardware: str
    parsed: Mapping[str, tuple[ParsedOutput, ...]]
    """Name of a check -> the values of each attempt; empty: the pod said nothing."""


def rule_of(check: Check, hardware: HardwareProfile) -> CheckRule:
    """A check of a suite as it is judged on one kind of hardware."""
    limits: list[Limit] = [_limit(bound) for bound in check.bounds_on(hardware)]
    peers, history = check.limits.peers, check.limits.history
    if check.limits.tool_judges is not None:
        limits.append(ToolJudges())
    if peers is not None:
        limits.append(Majority(peers.nodes) if peers.robust_z is None else Peers(peers.robust_z, least=peers.nodes))
    if history is not None:
        limits.append(Fall(percent=history.worse_by_percent, days=math.ceil(history.days)))
    gpus = "{gpu}" in " ".join((*check.command, *(check.probe.arguments.values() if check.probe else ())))
    return CheckRule(
        name=check.name,
        depth=Depth(check.depth),
        quantity=check.quantity,
        unit=check.unit,
        direction=check.direction,
        limits=tuple(limits),
        attempts=check.attempts.count,
        combine=check.attempts.combine,
        severity=check.severity,
        noisy=check.unit not in STEADY_UNITS,
        subjects={hardware.name: hardware.gpus_per_node} if gpus else {},
        gpus={hardware.name: hardware.gpus_per_node} if gpus or check.parser in TELL_OF_EACH else {},
        fault_class=str(check.fault_class),
        what_to_do=check.what_to_do,
    )


def _limit(bound: Bound) -> Limit:
    """Raises ValueError: a bound without a figure or a word, which a suite never has."""
    if bound.direction == "text_equal":
        return Word(bound.words[0], bound.words[1:])
    if bound.figure is None:
        raise ValueError(f"{bound.field}: has neither figure nor word")
    kinds = {"higher_is_better": AtLeast, "lower_is_better": AtMost, "equal": Equals}
    return kinds[bound.direction](bound.figure)


def judge(
    checks: Mapping[str, Sequence[Check]],
    kinds: Mapping[str, HardwareProfile],
    answers: Sequence[NodeAnswer],
    history: History | None = None,
) -> dict[str, NodeGrade]:
    """The verdict about each node; one whose pod said nothing is unknown.

    `checks` are by name of the hardware profile.
    """
    found: dict[str, NodeGrade] = {}
    for name, own in checks.items():
        rules = [rule_of(check, kinds[name]) for check in own]
        readings = [NodeReadings(item.node, name, item.parsed) for item in answers if item.hardware == name]
        found |= grade(rules, readings, history)
    return found


def again(found: Mapping[str, NodeGrade]) -> tuple[str, ...]:
    """Nodes of which something must be measured once more before they are blamed."""
    return tuple(name for name, item in found.items() if item.repeat)
