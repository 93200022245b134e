"""Preflight: no run on an unproven node. Nodes are tested by a workflow of short pods and judged together.

What failed once by a figure that varies is measured again before the node is blamed; a node that told nothing is
unknown, and unknown is not healthy. Verdicts stand in the ledger when this returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.grading.grade import records_of
from flows.decisions.grading.history import DAY_SECONDS, DAYS, history_of
from flows.decisions.grading.model import NodeGrade
from flows.decisions.preflight import NodeAnswer, again, judge, rule_of
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from profiles.suite_check import Check
from profiles.suite_words import Depth
from tasks.preflighting import Told, count_preflight, forget_preflight, keep_verdicts, plan_of, run_preflight
from tasks.world import world
from workflows.preflight import MOST
from workflows.preflight_calls import calls_of, left_out, node_checks

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a test found."""

    suite: str
    depth: Depth
    grades: Mapping[str, NodeGrade]
    """By node."""
    seconds: float
    """Wall time of all of it."""
    checks: int
    """Checks of the kind of node that makes most."""
    why: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes that told nothing, and why."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Checks that nobody makes, and why."""


@dataclass(frozen=True)
class _Ground:
    """What is tested."""

    profile: ClusterProfile
    suite: SuiteProfile
    depth: Depth
    pools: Mapping[str, str]
    """Node -> its pool."""

    @property
    def hardware_of(self) -> dict[str, HardwareProfile]:
        """By pool."""
        return {pool.name: load_hardware(pool.hardware) for pool in self.profile.pools}

    @property
    def kinds(self) -> dict[str, HardwareProfile]:
        """By name."""
        return {hardware.name: hardware for hardware in self.hardware_of.values()}

    @property
    def checks(self) -> dict[str, tuple[Check, ...]]:
        """By name of the hardware; checks of one node only: links between nodes are another test."""
        return {name: node_checks(self.suite, self.depth, kind) for name, kind in self.kinds.items()}


def try_nodes(
    profile: ClusterProfile, suite: SuiteProfile, depth: Depth, pools: Mapping[str, str], tell: Tell
) -> Outcome:
    """Test nodes, judge them, and keep the verdicts.

    Args:
        profile: of the cluster.
        suite: what is looked at.
        depth: which of its depths.
        pools: nodes in the order in which they are tested, with their pool.
        tell: gets a line whenever something changes.

    Raises:
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take the workflow.
    """
    ground, began = _Ground(profile, suite, depth, pools), world().now()
    told = _tell_all(ground, pools, tell)
    grades = _judged(ground, told, frozenset(told))
    repeat = again(grades)
    if repeat:
        tell(f"{len(repeat)} of {len(pools)} nodes are measured again: {', '.join(repeat[:8])}")
        told |= _tell_all(ground, {node: pools[node] for node in repeat}, tell)
        # Beside all others again: peers of a few would be too few to say anything.
        grades |= _judged(ground, told, frozenset(repeat))
    return Outcome(
        suite=suite.name,
        depth=depth,
        grades={node: grades[node] for node in pools},
        seconds=world().now() - began,
        checks=max((len(own) for own in ground.checks.values()), default=0),
        why={node: item.why for node, item in told.items() if not item.at},
        left_out={check: why for kind in ground.kinds.values() for check, why in left_out(suite, depth, kind).items()},
    )


def _tell_all(ground: _Ground, pools: Mapping[str, str], tell: Tell) -> dict[str, Told]:
    """What every node told, in workflows of at most `MOST` nodes."""
    found: dict[str, Told] = {}
    names = list(pools)
    for begin in range(0, len(names), MOST):
        part = names[begin : begin + MOST]
        number = count_preflight(ground.profile.name)
        plan = plan_of(ground.profile, ground.suite, ground.depth, {node: pools[node] for node in part}, number)
        before = len(found)
        seen = -1

        def progress(phase: str, told: int, before: int = before) -> None:
            nonlocal seen
            if told != seen:
                seen = told
                tell(f"{before + told} of {len(names)} nodes have told ({phase.lower() or 'not started yet'})")

        found |= {item.node: item for item in run_preflight(plan, progress)}
        forget_preflight(plan.name)
    return found


def _judged(ground: _Ground, told: Mapping[str, Told], about: frozenset[str]) -> dict[str, NodeGrade]:
    """Judge what was told beside the nodes' past; keep and return what it says about the nodes of `about`."""
    cluster, now = ground.profile.name, world().now()
    rules = {name: [rule_of(check, ground.kinds[name]) for check in own] for name, own in ground.checks.items()}
    every = list({rule.name: rule for own in rules.values() for rule in own}.values())
    past = world().ledger.verdicts(cluster, since=now - DAYS * DAY_SECONDS)
    history = history_of(past, every, sorted(told), now)
    found = judge(ground.checks, ground.kinds, [_answer(ground, item) for item in told.values()], history)
    grades = {node: grade for node, grade in found.items() if node in about}
    for name, own in rules.items():
        for node, grade in grades.items():
            if ground.hardware_of[ground.pools[node]].name == name:
                at = told[node].at or now
                keep_verdicts(records_of(grade, own, cluster, min(at, now), f"preflight {ground.suite.name}"))
    return grades


def _answer(ground: _Ground, told: Told) -> NodeAnswer:
    """A node's answers by check."""
    hardware = ground.hardware_of[ground.pools[told.node]]
    number_of = calls_of(ground.checks[hardware.name]).number_of
    return NodeAnswer(
        told.node,
        hardware.name,
        {check: tuple(told.answers[number]) for check, number in number_of.items() if number in told.answers},
    )


def select(nodes: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The wanted nodes, or all.

    Raises:
        ValueError: one of them is no node of the cluster.
    """
    missing = [name for name in wanted if name not in set(nodes)]
    if missing:
        raise ValueError(f"--nodes: {', '.join(missing)}: no such node; there are {', '.join(list(nodes)[:8])}")
    return list(wanted) or list(nodes)
