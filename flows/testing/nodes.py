"""Tests of nodes at one depth: measured by a launcher, judged together, kept in the ledger.

What failed once by a figure that varies is measured again before the node is blamed; a node that reported nothing is
unknown, and unknown is not healthy. Verdicts stand in the ledger when `try_nodes` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property

from flows.decisions.node_tests.actions import with_action
from flows.decisions.node_tests.grading.comparisons import laid, reach_days
from flows.decisions.node_tests.grading.grade import records_of, worst
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import NodeGrade
from flows.decisions.node_tests.judge import NodeAnswer, again, judge, rule_of
from flows.testing.links import LinksOutcome
from profiles.checks.catalogue import Depth, Launcher
from profiles.checks.check import Check
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware
from profiles.vocabulary import VerdictWord
from tasks.context import world
from tasks.lease import driving
from tasks.node_tests.launchers import runner_of
from tasks.node_tests.preflight import Opened, Wanted, close_preflight, keep_verdicts, open_preflight, with_node_objects
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import MOST, calls_of, left_out, node_checks

Tell = Callable[[str], None]
LONGEST_SECONDS = 6 * 3600.0
"""No test takes longer."""


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
    """Nodes that reported nothing, and why."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Checks that nobody makes, and why."""
    busy: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes that were not tested because somebody uses them, and who."""
    links: LinksOutcome | None = None
    """What was found between them."""

    @property
    def words(self) -> dict[str, VerdictWord]:
        """What is said of each node: the worse of its own checks and of those between nodes."""
        found: dict[str, list[VerdictWord]] = {}
        between: Mapping[str, NodeGrade] = self.links.grades if self.links is not None else {}
        for node, grade in (*self.grades.items(), *between.items()):
            found.setdefault(node, []).append(grade.verdict)
        return {node: worst(words) for node, words in found.items()}


@dataclass(frozen=True)
class _Ground:
    """What is tested."""

    profile: ClusterProfile
    suite: SuiteProfile
    depth: Depth
    pools: Mapping[str, str]
    """Node -> its pool."""
    launcher: Launcher

    @cached_property
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
        return {name: node_checks(self.suite, self.depth, kind, self.launcher) for name, kind in self.kinds.items()}

    def parts(self, nodes: Sequence[str], turn: int) -> list[Wanted]:
        """The tests of these nodes, of at most `MOST` each."""
        groups = [nodes[begin : begin + MOST] for begin in range(0, len(nodes), MOST)]
        return [
            Wanted(
                self.profile, self.suite, self.depth, {node: self.pools[node] for node in group}, self.launcher, turn
            )
            for group in groups
        ]


def try_nodes(
    profile: ClusterProfile,
    suite: SuiteProfile,
    depth: Depth,
    pools: Mapping[str, str],
    tell: Tell,
    launcher: Launcher = "kubernetes",
    away: Mapping[str, str] | None = None,
) -> Outcome:
    """Test nodes, judge them, and keep the verdicts. After a kill, the next call continues where the last one stopped.

    `pools` gives the nodes in the order in which they are tested, with their pool; `away` those of them where nothing
    can be started, with the reason: they are not asked, and unknown.

    Raises:
        Conflict: somebody else makes the same test now.
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take the workflow.
    """
    ground, began = _Ground(profile, suite, depth, pools, launcher), world().now()
    with _sole(ground):
        absent = away or {}
        results, opened = _collect_results(ground, [node for node in pools if node not in absent], 1, tell)
        results |= {node: NodeResult(node, why=why) for node, why in absent.items()}
        grades = _judged(ground, results, frozenset(results))
        if repeat := again(grades):
            tell(f"{len(repeat)} of {len(pools)} nodes are measured again: {', '.join(repeat[:8])}")
            retold, reopened = _collect_results(ground, repeat, 2, tell)
            results, opened = results | retold, [*opened, *reopened]
            # Beside all others again: peers of a few would be too few to say anything.
            grades |= _judged(ground, results, frozenset(repeat))
        for one in opened:
            close_preflight(one)
    why = {node: item.why for node, item in results.items() if not item.at}
    return _outcome(ground, {node: grades[node] for node in pools}, why, world().now() - began)


def _outcome(ground: _Ground, grades: Mapping[str, NodeGrade], why: Mapping[str, str], seconds: float) -> Outcome:
    missing = [left_out(ground.suite, ground.depth, kind).items() for kind in ground.kinds.values()]
    most = max((len(own) for own in ground.checks.values()), default=0)
    unmade = {check: said for one in missing for check, said in one}
    return Outcome(ground.suite.name, ground.depth, grades, seconds, most, why, unmade)


def _sole(ground: _Ground) -> AbstractContextManager[object]:
    """The lease of this very test: two who read and close one workflow would take it from each other."""
    whole = Wanted(ground.profile, ground.suite, ground.depth, ground.pools, ground.launcher)
    return driving(f"preflight/{ground.profile.name}/{whole.key}")


def _collect_results(
    ground: _Ground, nodes: Sequence[str], turn: int, tell: Tell
) -> tuple[dict[str, NodeResult], list[Opened]]:
    """What every node reported, in tests of at most `MOST` nodes; they stay open until their verdicts stand."""
    found: dict[str, NodeResult] = {}
    opened: list[Opened] = []
    run = runner_of(ground.profile, ground.launcher)
    for wanted in ground.parts(nodes, turn):
        one = open_preflight(wanted)
        before, seen = len(found), -1

        def progress(phase: str, reported: int, before: int = before) -> None:
            nonlocal seen
            if reported != seen:
                seen = reported
                tell(f"{before + reported} of {len(nodes)} nodes have reported ({phase.lower() or 'not started yet'})")

        found |= {item.node: item for item in with_node_objects(one.plan, run(one.plan, progress))}
        opened.append(one)
    return found, opened


def _judged(ground: _Ground, results: Mapping[str, NodeResult], about: frozenset[str]) -> dict[str, NodeGrade]:
    """Judge the reports beside the nodes' past; keep and return what it says about the nodes of `about`."""
    cluster, now = ground.profile.name, world().now()
    rules = {name: [rule_of(check, ground.kinds[name]) for check in own] for name, own in ground.checks.items()}
    every = list({rule.name: rule for own in rules.values() for rule in own}.values())
    since = now - reach_days(every) * DAY_SECONDS
    history = laid(
        world().ledger.looks(cluster, sorted(results), since), every, sorted(results), _before(results, about, now)
    )
    found = judge(ground.checks, ground.kinds, [_answer(ground, item) for item in results.values()], history)
    kind_of = {node: ground.hardware_of[ground.pools[node]].name for node in about}
    grades = {node: with_action(grade, ground.checks[kind_of[node]]) for node, grade in found.items() if node in about}
    source = f"preflight {ground.suite.name}"
    records = [
        record
        for node, grade in grades.items()
        for record in records_of(grade, rules[kind_of[node]], cluster, min(results[node].at or now, now), source)
    ]
    keep_verdicts(records)
    return grades


def _before(results: Mapping[str, NodeResult], about: frozenset[str], now: float) -> float:
    """Where the past ends: a continued test must not take its own verdicts, kept before, for an earlier test.

    A node whose clock is far behind shortens the past of the others by `LONGEST_SECONDS` at most.
    """
    first = min((results[node].at for node in about if results[node].at), default=now)
    return max(min(first, now) - 0.001, now - LONGEST_SECONDS)


def _answer(ground: _Ground, result: NodeResult) -> NodeAnswer:
    """A node's answers by check."""
    hardware = ground.hardware_of[ground.pools[result.node]]
    number_of = calls_of(ground.checks[hardware.name]).number_of
    return NodeAnswer(
        result.node,
        hardware.name,
        {check: tuple(result.answers[number]) for check, number in number_of.items() if number in result.answers},
    )
