"""Tests between nodes: groups measure a collective, and a few rounds find the node, link, switch or rail that is bad.

What is measured next and who is to blame is decided by `flows.decisions.fabric`; here it is measured, round after
round, and the verdicts are kept. Nodes of one kind of hardware are one fabric. What tools measure between two nodes
(`flows.pairs`) follows, and a node's verdict is the worse of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.fabric.model import Answer, Fabric, Floor, Group, Node, Untold
from flows.decisions.fabric.plan import next_round
from flows.decisions.fabric.reading import (
    GroupRead,
    Limit,
    by_gpus,
    first_groups,
    gang_checks,
    peers_limit,
    rails_of,
    read,
    stated_limit,
    was_by_gpus,
)
from flows.decisions.fabric.state import State
from flows.decisions.fabric.verdicts import Tested, joined, judging, untested, verdicts
from flows.decisions.grading.model import NodeGrade
from flows.decisions.preflight_actions import with_action
from flows.pairs import DEPTH, PairGround, PairsTested, pairs_of, try_pairs
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from profiles.suite_check import Check
from tasks.linking import Asked, racks_of_nodes, run_round
from tasks.preflighting import keep_verdicts
from tasks.world import world
from workflows.links import Demand
from workflows.programs.gang_report import report_from
from workflows.records import VerdictRecord

Tell = Callable[[str], None]
NOT_BY_GPUS = "measured by sockets, not between GPUs: the pods' image has no torch, or they see no GPUs"


@dataclass(frozen=True)
class FabricTested:
    """What was found in the fabric of one kind of hardware."""

    hardware: str
    tested: Tested
    rounds: int
    """That were measured, the first one too where its figures only gave the limit."""
    by: str
    """`gpus`, `sockets`, or "" where nobody answered."""


@dataclass(frozen=True)
class LinksOutcome:
    """What a test between nodes found."""

    suite: str
    fabrics: tuple[FabricTested, ...]
    grades: Mapping[str, NodeGrade]
    """By node, in the order in which they were given."""
    seconds: float
    """Wall time of all of it."""
    seed: int
    """Which partners met: with the same seed and the same figures the same rounds are planned."""
    untested: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes that met nobody, and why."""
    pairs: tuple[PairsTested, ...] = ()
    """What pairs of nodes of each kind of hardware found."""


@dataclass(frozen=True)
class _Asking:
    """What `try_links` was asked for."""

    profile: ClusterProfile
    suite: SuiteProfile
    pools: Mapping[str, str]
    tell: Tell
    share: float
    seed: int

    @property
    def most(self) -> dict[str, int]:
        """Pool -> so many of its nodes at once, a pair at least; empty: any number."""
        return {pool.name: max(2, math.ceil(self.share * pool.nodes)) for pool in self.profile.pools if self.share < 1}


@dataclass(frozen=True)
class _Ground:
    """One fabric that is tested."""

    asked: Asked
    hardware: HardwareProfile
    checks: tuple[Check, ...]
    nodes: tuple[str, ...]
    racks: Mapping[str, str]
    seed: int
    tell: Tell


def gangs_of(profile: ClusterProfile, suite: SuiteProfile) -> dict[str, tuple[Check, ...]]:
    """Checks of gangs that nodes of each kind of hardware of this cluster take part in; kinds without are left out."""
    kinds = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    made = {name: gang_checks(suite.checks_of(DEPTH, kind)) for name, kind in kinds.items()}
    return {name: checks for name, checks in made.items() if checks}


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

    Args:
        profile: of the cluster.
        suite: its checks that span gangs and pairs say what is measured.
        pools: the nodes, with their pool.
        tell: gets a line whenever something changes.
        beside: what checks of single nodes of this depth said of them: the verdict that is kept is of both.
        share: at most this share of a pool is measured at the same time, but for a group that is larger.
        seed: which partners meet; none: by the clock.

    Raises:
        ProfileError: the suite has no check of a gang or a pair for these nodes.
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take a workflow.
    """
    began = world().now()
    asked = _Asking(profile, suite, dict(pools), tell, share, int(began) if seed is None else seed)
    fabrics, pairs, alone = _found(asked)
    grades = _graded(asked, fabrics, pairs, alone)
    _keep(asked, grades, beside or {})
    return LinksOutcome(suite.name, tuple(fabrics), grades, world().now() - began, asked.seed, alone, tuple(pairs))


def _found(asking: _Asking) -> tuple[list[FabricTested], list[PairsTested], dict[str, str]]:
    """What was found, one kind of hardware after the other; and nodes that met nobody, and why."""
    profile, suite = asking.profile, asking.suite
    gangs, twos = gangs_of(profile, suite), pairs_of(profile, suite)
    kind_of = {pool.name: pool.hardware for pool in profile.pools}
    by_kind: dict[str, list[str]] = {}
    for node, pool in asking.pools.items():
        by_kind.setdefault(kind_of[pool], []).append(node)
    if not any(kind in gangs or kind in twos for kind in by_kind):
        raise ProfileError("suite", f"{suite.name} has no check of a gang or a pair for the hardware of these nodes")
    racks = racks_of_nodes(profile)
    fabrics: list[FabricTested] = []
    pairs: list[PairsTested] = []
    alone: dict[str, str] = {}
    for kind, nodes in by_kind.items():
        if len(nodes) < 2 or not (kind in gangs or kind in twos):
            alone |= dict.fromkeys(
                nodes, "nobody to be measured with" if len(nodes) < 2 else "no check of a gang or a pair for it"
            )
            continue
        places, hardware = {node: asking.pools[node] for node in nodes}, load_hardware(kind)
        if own := gangs.get(kind):
            asked = Asked(profile, suite.name, demand_of(own, profile), places, asking.most)
            fabrics.append(_test(_Ground(asked, hardware, own, tuple(nodes), racks, asking.seed, asking.tell)))
        if own := twos.get(kind):
            ground = PairGround(profile, suite, hardware, own, places, asking.most, asking.seed, asking.tell)
            pairs.append(try_pairs(ground))
    return fabrics, pairs, alone


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


def _test(ground: _Ground) -> FabricTested:
    reads, first, limit = _begin(ground)
    state = State(_fabric(ground, rails_of([one.measurement for one in first]), limit))
    state = state.after(tuple(one.measurement for one in first))
    while not isinstance(groups := next_round(state), Answer):
        more = _measured(ground, groups, len(state.rounds) + 1)
        reads += more
        state = state.after(tuple(one.measurement for one in more))
    by = next((one.by for one in reads if one.by), "")
    weaker = NOT_BY_GPUS if by_gpus(ground.checks) and not was_by_gpus(reads) else ""
    answer = _with_all(groups, ground.nodes)
    return FabricTested(
        ground.hardware.name, Tested(answer, tuple(reads), limit, ground.checks, weaker), len(state.rounds), by
    )


def _begin(ground: _Ground) -> tuple[list[GroupRead], list[GroupRead], Limit]:
    """All groups so far, those that the decision begins with, and what a group must reach.

    Where the suite's limit is meant for these groups, everybody begins together. Else pairs come first: they give the
    figure by which all others are judged.
    """
    stated = stated_limit(ground.checks, ground.hardware)
    before: list[GroupRead] = []
    if stated is not None and by_gpus(ground.checks) and ground.asked.demand.gpus:
        first = _measured(ground, (ground.nodes,), 1)
        # Where nobody answers nothing is known of how they measure: the decision goes on from there.
        if was_by_gpus(first) or not any(one.by for one in first):
            return list(first), first, stated
        ground.tell(NOT_BY_GPUS)
        before = first
    least = None if by_gpus(ground.checks) else stated
    pairs = _measured(ground, first_groups(ground.nodes, ground.seed), 1)
    limit = peers_limit([one.measurement for one in pairs], least)
    ground.tell(f"limit: {limit.why}")
    return [*before, *pairs], pairs, limit


def _fabric(ground: _Ground, rails: int, limit: Limit) -> Fabric:
    """Racks are leaf switches where every node's rack is known; half a map would make a bad switch look like nodes."""
    known = all(node in ground.racks for node in ground.nodes) and len(set(ground.racks.values())) > 1
    nodes = tuple(Node(node, (ground.racks[node],) * rails if known else ()) for node in ground.nodes)
    floors: tuple[Floor, ...] = limit.floors
    return Fabric(nodes, floors, rails, ground.seed)


def _measured(ground: _Ground, groups: Sequence[Group], number: int) -> list[GroupRead]:
    """What these groups told."""
    seen = -1

    def progress(ended: int, nodes: int) -> None:
        nonlocal seen
        if ended != seen:
            seen = ended
            ground.tell(f"round {number}: {ended} of {nodes} nodes have ended, {len(groups)} groups")

    return [
        read(told.group, told.reports, told.silent) for told in run_round(ground.asked, groups, progress, report_from)
    ]


def _with_all(answer: Answer, nodes: Sequence[str]) -> Answer:
    """The answer; whoever it does not speak of is unknown, never proven."""
    named = {*answer.proven, *(one.node for one in answer.unknown), *(n for f in answer.findings for n in f.members)}
    silent = tuple(Untold(node, "the answer does not name it") for node in nodes if node not in named)
    return replace(answer, unknown=(*answer.unknown, *silent))


def _graded(
    asking: _Asking, fabrics: Sequence[FabricTested], pairs: Sequence[PairsTested], alone: Mapping[str, str]
) -> dict[str, NodeGrade]:
    """What is said of each node, in their order: the worse of what its groups and its pairs say."""
    told: dict[str, NodeGrade] = {}
    for one in fabrics:
        groups = {node for item in one.tested.reads for node in item.measurement.group}
        told |= verdicts(one.tested, [node for node in asking.pools if node in groups])
    for two in pairs:
        told |= {node: joined(grade, told.get(node)) for node, grade in two.grades.items()}
    checks = [check for check in asking.suite.checks if check.depth == DEPTH]
    every = {node: told.get(node) or untested(node, alone.get(node, "it was in no group")) for node in asking.pools}
    return {node: with_action(grade, checks) for node, grade in every.items()}


def _keep(asking: _Asking, grades: Mapping[str, NodeGrade], beside: Mapping[str, NodeGrade]) -> None:
    """Write the verdicts down, with what checks of single nodes said."""
    now, profile = world().now(), asking.profile
    records: list[VerdictRecord] = []
    for node, grade in grades.items():
        own = joined(grade, beside.get(node))
        source = f"preflight {asking.suite.name}"
        records.append(VerdictRecord(profile.name, node, own.verdict, DEPTH, now, own.reasons, source))
    keep_verdicts(records)


def judged_by(tested: FabricTested) -> str:
    """Name of the check whose limit counted."""
    return judging(tested.tested.checks).name
