"""Tests between nodes: groups measure a collective, and a few rounds find the node, link, switch or rail that is bad.

What is measured next and who is to blame is decided by `flows.decisions.fabric`; here it is measured, round after
round, and the verdicts are kept. Nodes of one kind of hardware are one fabric. What tools measure between two nodes
(`flows.pairs`) follows, and a node's verdict is the worse of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.fabric.verdicts import joined, missed_links, untested, verdicts
from flows.decisions.grading.model import NodeGrade
from flows.decisions.preflight_actions import with_action
from flows.gangs import FabricTested, GangGround, demand_of, gangs_of, try_gangs
from flows.pairs import DEPTH, PairGround, PairsTested, pairs_of, try_pairs
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from tasks.lease import driving
from tasks.link_tests import LinksTest, WantedLinks, close_links, open_links
from tasks.linking import Asked, racks_of_nodes
from tasks.preflighting import keep_verdicts
from tasks.world import world
from workflows.links import LINKS
from workflows.records import VerdictRecord

Tell = Callable[[str], None]


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

    Whoever was killed in between goes on where he was: rounds that ended are not measured again.

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
        Conflict: somebody else makes the same test now.
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take a workflow.
    """
    began, own = world().now(), beside or {}
    wanted = WantedLinks(profile.name, suite, dict(pools), share, seed)
    with driving(f"preflight/{profile.name}/{LINKS}-{wanted.key}"):
        asked = _Asking(profile, suite, wanted.pools, tell, share, open_links(wanted))
        fabrics, pairs, alone = _found(asked)
        grades = _graded(asked, fabrics, pairs, alone)
        _keep(asked, grades, own)
        close_links(asked.test, [link for one in fabrics for link in missed_links(one.tested)])
    seconds = world().now() - began
    return LinksOutcome(suite.name, tuple(fabrics), grades, seconds, asked.test.seed, alone, tuple(pairs))


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
            fabrics.append(try_gangs(GangGround(asked, asking.test, hardware, own, tuple(nodes), racks, asking.tell)))
        if own := twos.get(kind):
            ground = PairGround(profile, suite, hardware, own, places, asking.most, asking.test, asking.tell)
            pairs.append(try_pairs(ground))
    return fabrics, pairs, alone


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
    # The time is the test's, so that whoever does this again adds nothing.
    at, profile = asking.test.told_at, asking.profile
    records: list[VerdictRecord] = []
    for node, grade in grades.items():
        own = joined(grade, beside.get(node))
        source = f"preflight {asking.suite.name}"
        records.append(VerdictRecord(profile.name, node, own.verdict, DEPTH, at, own.reasons, source))
    keep_verdicts(records)
