"""Tests between nodes, round after round: groups measure a collective, pairs what a tool measures between two nodes.

`flows.decisions.node_tests.fabric` decides what is measured next and which node, link, switch or rail is to blame; here
it is measured and the verdicts are kept. Nodes of one kind of hardware are one fabric. A node's verdict is the worse of
its groups' and its pairs'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.node_tests.actions import with_action
from flows.decisions.node_tests.fabric.groups import (
    FabricResult,
    GroupResult,
    Limit,
    by_gpus,
    first_groups,
    gang_checks,
    group_verdicts,
    joined,
    judging,
    missed_links,
    peers_limit,
    rails_of,
    read_group,
    stated_limit,
    untested,
    was_by_gpus,
)
from flows.decisions.node_tests.fabric.knowledge import State
from flows.decisions.node_tests.fabric.model import Answer, Fabric, Floor, Group, Node, UnknownNode
from flows.decisions.node_tests.fabric.pairs import (
    Pair,
    PairResult,
    Pairs,
    ParsedByCheck,
    checks_for,
    halves,
    next_pairs,
    pair_checks,
    pair_reasons,
    pair_result_of,
    pair_rules,
    pair_verdicts,
)
from flows.decisions.node_tests.fabric.plan import next_round
from flows.decisions.node_tests.grading.comparisons import History, laid, reach_days
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import CheckRule, NodeGrade
from profiles.checks.check import Check
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware
from tasks.context import world
from tasks.lease import driving
from tasks.node_tests.links import Asked, LinksTest, WantedLinks, close_links, open_links, racks_of_nodes, run_round
from tasks.node_tests.preflight import keep_verdicts
from workflows.model.records import VerdictRecord
from workflows.node_tests.links import LINKS, Demand, PairCalls, pair_calls_of
from workflows.programs.fabric.report import PairReport, parse_pair_report, parse_report

Tell = Callable[[str], None]

DEPTH = "fabric"

NOT_BY_GPUS = "measured by sockets, not between GPUs: the pods' image has no torch, or they see no GPUs"

PROOFS = 2
"""Times that everybody together must be good. What is bad in a share p of its looks is caught by one of k with 1 -
(1 - p)^k: with 2 in 19, 51, 75, 99 of 100 cases where p is 0.1, 0.3, 0.5, 0.9."""


@dataclass(frozen=True)
class LinksOutcome:
    """What a test between nodes found."""

    suite: str
    fabrics: tuple[FabricTestResult, ...]
    grades: Mapping[str, NodeGrade]
    """By node, in the order in which they were given."""
    seconds: float
    """Wall time of all of it."""
    seed: int
    """Which partners met: with the same seed and the same figures the same rounds are planned."""
    untested: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes that met nobody, and why."""
    pairs: tuple[PairTestResult, ...] = ()
    """What pairs of nodes of each kind of hardware found."""


@dataclass(frozen=True)
class _LinkTestRequest:
    """What `try_links` was asked for."""

    profile: ClusterProfile
    suite: SuiteProfile
    pools: Mapping[str, str]
    tell: Tell
    share: float
    test: LinksTest
    """Of which all rounds are a part."""

    @property
    def most(self) -> dict[str, int]:
        """Pool -> so many of its nodes at once, a pair at least; empty: any number."""
        return {pool.name: max(2, math.ceil(self.share * pool.nodes)) for pool in self.profile.pools if self.share < 1}


def try_links(
    profile: ClusterProfile,
    suite: SuiteProfile,
    pools: Mapping[str, str],
    tell: Tell,
    *,
    beside: Mapping[str, NodeGrade] | None = None,
    share: float = 1.0,
    seed: int | None = None,
) -> LinksOutcome:
    """Measure between nodes until it is known what is bad, and keep a verdict of depth `fabric` about each node.

    Whoever was killed in between goes on where he was: rounds that ended are not measured again. `suite`: its checks
    that span gangs and pairs say what is measured. `tell` gets a line whenever something changes. `beside`: what checks
    of single nodes of this depth said: the verdict that is kept is of both. `share`: at most this share of a pool is
    measured at the same time, but for a group that is larger. `seed`: which partners meet; none: by the clock.

    Raises:
        ProfileError: the suite has no check of a gang or a pair for these nodes.
        Conflict: somebody else makes the same test now.
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take a workflow.
    """
    began, own = world().now(), beside or {}
    wanted = WantedLinks(profile.name, suite, dict(pools), share, seed)
    with driving(f"preflight/{profile.name}/{LINKS}-{wanted.key}"):
        request = _LinkTestRequest(profile, suite, wanted.pools, tell, share, open_links(wanted))
        fabrics, pairs, alone = _results_by_hardware(request)
        grades = _graded(request, fabrics, pairs, alone)
        _keep(request, grades, own)
        close_links(request.test, [link for one in fabrics for link in missed_links(one.tested)])
    seconds = world().now() - began
    return LinksOutcome(suite.name, tuple(fabrics), grades, seconds, request.test.seed, alone, tuple(pairs))


def _results_by_hardware(
    links: _LinkTestRequest,
) -> tuple[list[FabricTestResult], list[PairTestResult], dict[str, str]]:
    """The results, one kind of hardware after the other; and nodes without any partner, and why."""
    profile, suite = links.profile, links.suite
    gangs, twos = gangs_of(profile, suite), pairs_of(profile, suite)
    kind_of = {pool.name: pool.hardware for pool in profile.pools}
    by_kind: dict[str, list[str]] = {}
    for node, pool in links.pools.items():
        by_kind.setdefault(kind_of[pool], []).append(node)
    if not any(kind in gangs or kind in twos for kind in by_kind):
        raise ProfileError("suite", f"{suite.name} has no check of a gang or a pair for the hardware of these nodes")
    racks = racks_of_nodes(profile)
    fabrics: list[FabricTestResult] = []
    pairs: list[PairTestResult] = []
    alone: dict[str, str] = {}
    for kind, nodes in by_kind.items():
        if len(nodes) < 2 or not (kind in gangs or kind in twos):
            alone |= dict.fromkeys(
                nodes, "no partner to measure with" if len(nodes) < 2 else "no check of a gang or a pair for it"
            )
            continue
        places, hardware = {node: links.pools[node] for node in nodes}, load_hardware(kind)
        if own := gangs.get(kind):
            request = Asked(profile, suite.name, demand_of(own, profile), places, links.most)
            fabrics.append(try_gangs(GangGround(request, links.test, hardware, own, tuple(nodes), racks, links.tell)))
        if own := twos.get(kind):
            ground = PairGround(profile, suite, hardware, own, places, links.most, links.test, links.tell)
            pairs.append(try_pairs(ground))
    return fabrics, pairs, alone


def _graded(
    asking: _LinkTestRequest,
    fabrics: Sequence[FabricTestResult],
    pairs: Sequence[PairTestResult],
    alone: Mapping[str, str],
) -> dict[str, NodeGrade]:
    """What is said of each node, in their order: the worse of what its groups and its pairs say."""
    grades: dict[str, NodeGrade] = {}
    for one in fabrics:
        groups = {node for item in one.tested.reads for node in item.measurement.group}
        grades |= group_verdicts(one.tested, [node for node in asking.pools if node in groups])
    for two in pairs:
        grades |= {node: joined(grade, grades.get(node)) for node, grade in two.grades.items()}
    checks = [check for check in asking.suite.checks if check.depth == DEPTH]
    every = {node: grades.get(node) or untested(node, alone.get(node, "it was in no group")) for node in asking.pools}
    return {node: with_action(grade, checks) for node, grade in every.items()}


def _keep(asking: _LinkTestRequest, grades: Mapping[str, NodeGrade], beside: Mapping[str, NodeGrade]) -> None:
    """Write the verdicts down, with what checks of single nodes said."""
    # The time is the test's, so that whoever does this again adds nothing.
    at, profile = asking.test.told_at, asking.profile
    records: list[VerdictRecord] = []
    for node, grade in grades.items():
        own = joined(grade, beside.get(node))
        source = f"preflight {asking.suite.name}"
        records.append(VerdictRecord(profile.name, node, own.verdict, DEPTH, at, own.reasons, source))
    keep_verdicts(records)


@dataclass(frozen=True)
class PairTestResult:
    """What pairs of nodes of one kind of hardware found."""

    hardware: str
    checks: tuple[str, ...]
    results: tuple[PairResult, ...]
    """Every meeting, round by round."""
    rounds: int
    grades: Mapping[str, NodeGrade]
    """By node."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairGround:
    """Nodes of one kind of hardware, and what they measure with each other."""

    profile: ClusterProfile
    suite: SuiteProfile
    hardware: HardwareProfile
    checks: tuple[Check, ...]
    pools: Mapping[str, str]
    """Node -> its pool."""
    most: Mapping[str, int]
    """Pool -> so many of its nodes at once; missing: any number."""
    test: LinksTest
    """Of which its rounds are a part."""
    tell: Callable[[str], None]

    @property
    def fatal(self) -> tuple[str, ...]:
        """Checks that count."""
        return tuple(check.name for check in self.checks if check.severity == "fatal")


@dataclass
class _PairBook:
    """The reports and judgements so far."""

    parsed: dict[str, ParsedByCheck] = field(default_factory=dict[str, ParsedByCheck])
    """What each node reported first: the peers of whoever is measured again."""
    results: list[PairResult] = field(default_factory=list[PairResult])
    notes: dict[str, None] = field(default_factory=dict[str, None])


def pairs_of(profile: ClusterProfile, suite: SuiteProfile) -> dict[str, tuple[Check, ...]]:
    """Checks of pairs that nodes of each kind of hardware of this cluster make; kinds without are left out."""
    kinds = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    made = {name: pair_checks(suite.checks_of(DEPTH, kind)) for name, kind in kinds.items()}
    return {name: checks for name, checks in made.items() if checks}


def try_pairs(ground: PairGround) -> PairTestResult:
    """Measure pairs until it is known which node is to blame for what missed its limit. Keeps nothing.

    Raises:
        Unavailable: cluster or ledger do not answer.
        Refused: the cluster does not take a workflow.
    """
    rules = pair_rules(ground.checks, ground.hardware)
    state, book = Pairs(tuple(ground.pools), ground.fatal, ground.test.seed), _PairBook()
    history = _past(ground, rules)
    while pairs := next_pairs(state):
        wanted = ground.checks if not state.rounds else _again(ground, state, pairs)
        calls = pair_calls_of(wanted)
        measured = _measured_pairs(ground, pairs, calls, len(state.rounds) + 1, book)
        # Beside the reports of all others: peers of a few would be too few to say anything.
        beside = {node: {**book.parsed.get(node, {}), **measured.get(node, {})} for node in {**book.parsed, **measured}}
        names = [check.name for check in wanted]
        reasons = pair_reasons(rules, ground.hardware.name, beside, history)
        results = [pair_result_of(pair, names, reasons) for pair in pairs]
        for node, own in measured.items():
            book.parsed.setdefault(node, own)
        book.results += results
        state = state.after([one.meeting for one in results])
    grades = pair_verdicts(state, book.results, ground.checks)
    names = tuple(check.name for check in ground.checks)
    return PairTestResult(
        ground.hardware.name, names, tuple(book.results), len(state.rounds), grades, tuple(book.notes)
    )


def _again(ground: PairGround, state: Pairs, pairs: Sequence[Pair]) -> tuple[Check, ...]:
    """The checks that are still open; every check where a node has had no partner yet."""
    if any(not state.partners[node] for pair in pairs for node in pair):
        return ground.checks
    names = checks_for(state)
    return tuple(check for check in ground.checks if check.name in names)


def _measured_pairs(
    ground: PairGround, pairs: Sequence[Pair], calls: PairCalls, number: int, book: _PairBook
) -> dict[str, ParsedByCheck]:
    """What each node of these pairs reported."""
    seen = -1

    def progress(ended: int, nodes: int) -> None:
        nonlocal seen
        if ended != seen:
            seen = ended
            ground.tell(f"pairs, round {number}: {ended} of {nodes} nodes have ended")

    request = Asked(ground.profile, ground.suite.name, calls.demand, ground.pools, ground.most)
    found: dict[str, ParsedByCheck] = {}
    for pair, group in zip(pairs, run_round(request, ground.test, pairs, progress, parse_pair_report), strict=True):
        reports: Mapping[str, PairReport] = group.reports
        book.notes |= dict.fromkeys(one.notes for one in reports.values() if one.notes)
        found |= halves(pair, reports, group.silent, calls.number_of)
    return found


def _past(ground: PairGround, rules: Sequence[CheckRule]) -> History:
    """Earlier figures of these nodes, not how tests ended: other partners show whether a miss comes back.

    The past ends where the test was begun: whoever goes on with it must not take its own verdicts for an earlier one's.
    """
    now, nodes = ground.test.begun_at, sorted(ground.pools)
    looks = world().ledger.looks(ground.profile.name, nodes, now - reach_days(rules) * DAY_SECONDS)
    return replace(laid(looks, rules, nodes, now), outcomes=None)


@dataclass(frozen=True)
class FabricTestResult:
    """What was found in the fabric of one kind of hardware."""

    hardware: str
    tested: FabricResult
    rounds: int
    """That were measured, the first one too where its figures only gave the limit."""
    by: str
    """`gpus`, `sockets`, or "" where nobody answered."""


@dataclass(frozen=True)
class GangGround:
    """One fabric that is tested."""

    asked: Asked
    test: LinksTest
    """Of which its rounds are a part."""
    hardware: HardwareProfile
    checks: tuple[Check, ...]
    nodes: tuple[str, ...]
    racks: Mapping[str, str]
    tell: Tell


def gangs_of(profile: ClusterProfile, suite: SuiteProfile) -> dict[str, tuple[Check, ...]]:
    """Checks of gangs that nodes of each kind of hardware of this cluster take part in; kinds without are left out."""
    kinds = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    made = {name: gang_checks(suite.checks_of(DEPTH, kind)) for name, kind in kinds.items()}
    return {name: checks for name, checks in made.items() if checks}


def demand_of(checks: Sequence[Check], profile: ClusterProfile) -> Demand:
    """What a group measures for these checks."""
    sizes: dict[str, int] = {}
    iterations = 1
    for check in checks:
        arguments = check.probe.arguments if check.probe else {}
        operation = arguments.get("operation", "all-reduce")
        sizes[operation] = max(sizes.get(operation, 0), int(arguments.get("bytes", "0")))
        iterations = max(iterations, int(arguments.get("iterations", "1")))
    gpus = by_gpus(checks) and profile.engine == "kubernetes"
    demand = Demand(iterations=iterations, deadline_seconds=max(check.deadline_seconds for check in checks), gpus=gpus)
    return replace(
        demand,
        all_reduce_bytes=sizes.get("all-reduce", 0) or demand.all_reduce_bytes,
        all_to_all_bytes=sizes.get("all-to-all", 0),
    )


def try_gangs(ground: GangGround) -> FabricTestResult:
    """Measure groups until it is known what is bad between these nodes. Keeps nothing.

    Raises:
        Unavailable: cluster or ledger do not answer.
        Refused: the cluster does not take a workflow.
    """
    reads, first, limit = _begin(ground)
    state = State(_fabric(ground, rails_of([one.measurement for one in first]), limit))
    state = state.after(tuple(one.measurement for one in first))
    while not isinstance(groups := next_round(state), Answer):
        more = _measured_groups(ground, groups, len(state.rounds) + 1)
        reads += more
        state = state.after(tuple(one.measurement for one in more))
    by = next((one.by for one in reads if one.by), "")
    weaker = NOT_BY_GPUS if by_gpus(ground.checks) and not was_by_gpus(reads) else ""
    answer = _with_all(groups, ground.nodes)
    return FabricTestResult(
        ground.hardware.name, FabricResult(answer, tuple(reads), limit, ground.checks, weaker), len(state.rounds), by
    )


def _begin(ground: GangGround) -> tuple[list[GroupResult], list[GroupResult], Limit]:
    """All groups so far, those that the decision starts from, and the limit that a group must reach.

    Where the suite's limit is meant for these groups, everybody begins together. Else pairs come first: they give the
    figure by which all others are judged.
    """
    stated = stated_limit(ground.checks, ground.hardware)
    before: list[GroupResult] = []
    if stated is not None and by_gpus(ground.checks) and ground.asked.demand.gpus:
        first = _measured_groups(ground, (ground.nodes,), 1)
        # Where nobody answers nothing is known of how they measure: the decision goes on from there.
        if was_by_gpus(first) or not any(one.by for one in first):
            return list(first), first, stated
        ground.tell(NOT_BY_GPUS)
        before = first
    least = None if by_gpus(ground.checks) else stated
    pairs = _measured_groups(ground, first_groups(ground.nodes, ground.test.seed), 1)
    limit = peers_limit([one.measurement for one in pairs], least)
    ground.tell(f"limit: {limit.why}")
    return [*before, *pairs], pairs, limit


def _fabric(ground: GangGround, rails: int, limit: Limit) -> Fabric:
    """Racks are leaf switches where every node's rack is known: with half a map a bad switch looks like bad nodes."""
    known = all(node in ground.racks for node in ground.nodes) and len(set(ground.racks.values())) > 1
    nodes = tuple(Node(node, (ground.racks[node],) * rails if known else ()) for node in ground.nodes)
    floors: tuple[Floor, ...] = limit.floors
    return Fabric(nodes, floors, rails, ground.test.seed, PROOFS, ground.test.suspects)


def _measured_groups(ground: GangGround, groups: Sequence[Group], number: int) -> list[GroupResult]:
    """What these groups reported."""
    seen = -1

    def progress(ended: int, nodes: int) -> None:
        nonlocal seen
        if ended != seen:
            seen = ended
            ground.tell(f"round {number}: {ended} of {nodes} nodes have ended, {len(groups)} groups")

    return [
        read_group(report.group, report.reports, report.silent)
        for report in run_round(ground.asked, ground.test, groups, progress, parse_report)
    ]


def _with_all(answer: Answer, nodes: Sequence[str]) -> Answer:
    """The answer; nodes that it leaves out are unknown, never proven."""
    named = {*answer.proven, *(one.node for one in answer.unknown), *(n for f in answer.findings for n in f.members)}
    silent = tuple(UnknownNode(node, "the answer does not name it") for node in nodes if node not in named)
    return replace(answer, unknown=(*answer.unknown, *silent))


def judged_by(tested: FabricTestResult) -> str:
    """Name of the check whose limit counted."""
    return judging(tested.tested.checks).name
