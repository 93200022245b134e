"""Tests between nodes and their rounds: workflows begun or adopted, followed and read. Decides nothing about nodes.

A test is known by what it tests, and its rounds are written down so that the next flow continues after a kill. Each
round is written before its workflows are submitted, and again with what its pods reported. Rounds are asked for in one
order, since what is asked next follows from what was reported: the next flow asks for the same ones, reads those that
ended, and adopts the workflows of the one that was under way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_hardware
from tasks.cluster import Manifest, current, each
from tasks.context import world
from tasks.lease import is_taken, our_ledger, ours
from tasks.nodes.sweep import take_number
from tasks.workflow_runs import follow_workflow, submit_workflow
from workflows.model.node_results import PodTold, RoundRecord, asked_of, pack, unpack
from workflows.model.nodes import node_of
from workflows.model.ownership import signed
from workflows.model.workflow import workflow_pods
from workflows.node_tests.links import (
    LINKS,
    MEMBER,
    Demand,
    LinksPlan,
    PairDemand,
    group_seats,
    links_name,
    links_workflow,
    parted,
    round_name,
    waves,
)

Report = TypeVar("Report")
Read = Callable[[str], Report]
"""From the text of a report to it. Raises ValueError: it is something else."""

RESUMED_SECONDS = 6 * 3600.0
"""A test that was begun longer ago is begun anew: what its rounds told says nothing of these nodes now."""
SUSPECTED_SECONDS = 30 * 86400.0
"""A link that missed in a test is looked at by itself for so long."""
MOST_SUSPECTED = 64
"""Such links, the newest ones."""


@dataclass(frozen=True)
class Asked:
    """What is the same in all rounds of a test."""

    cluster: ClusterProfile
    suite: str
    demand: Demand | PairDemand
    pools: Mapping[str, str]
    """Node -> its pool."""
    most: Mapping[str, int]
    """Pool -> so many of its nodes are measured at once, but for a group that is larger; missing: any number."""


@dataclass(frozen=True)
class GroupTold(Generic[Report]):
    """What the members of one group or pair reported."""

    group: tuple[str, ...]
    reports: Mapping[str, Report]
    """By node; missing: its pod left none."""
    silent: Mapping[str, str]
    """Nodes whose pod left none, and why."""


def run_round(
    asked: Asked,
    test: LinksTest,
    groups: Sequence[Sequence[str]],
    tell: Callable[[int, int], None],
    read: Read[Report],
) -> list[GroupTold[Report]]:
    """Measure these groups, as many at once as may be, and read what every member reported.

    What a flow that was killed had measured is not measured again.

    Args:
        asked: what is measured, and where.
        test: of which this is the next round.
        groups: names of the members, each node in one group at most.
        tell: gets how many nodes have ended, of how many, after each change.
        read: what a pod leaves, as a report.

    Raises:
        Unavailable, Refused.
        NotFound: somebody deleted a workflow meanwhile.
    """
    found: dict[int, GroupTold[Report]] = {}
    nodes, before = sum(len(group) for group in groups), 0
    for numbers in waves(groups, asked.pools, asked.most):
        own = [groups[number] for number in numbers]
        ended = before

        def progress(told: int, ended: int = ended) -> None:
            tell(ended + told, nodes)

        found |= dict(zip(numbers, told_by(_pods(asked, test, own, progress), own, read), strict=True))
        before += sum(len(group) for group in own)
    return [found[number] for number in range(len(groups))]


def _pods(
    asked: Asked, test: LinksTest, groups: Sequence[Sequence[str]], tell: Callable[[int], None]
) -> dict[str, PodTold]:
    """What the pods of the next round left. Its workflows are deleted once that is written down."""
    one, begun_before = test.next_round(asked_of(groups, asked.demand))
    if begun_before and not one.told:
        one = _adopted(asked, test, groups, one)
    while not one.told and any(
        is_taken("Workflow", plan.name) for plan in plans_of(asked, groups, one.number, our_ledger())
    ):
        one = test.begin_anew(one)  # another ledger's, whose identity begins as ours
    plans = plans_of(asked, groups, one.number, our_ledger())
    found = unpack(one.told) if one.told else pods_of(_run(plans, tell))
    if not one.told:
        test.keep(one, found)
    if not one.told or test.is_last(one):
        for plan in plans:
            if ours("Workflow", plan.name) is not None:
                current().delete("Workflow", plan.name)
    return found


def _adopted(asked: Asked, test: LinksTest, groups: Sequence[Sequence[str]], one: RoundRecord) -> RoundRecord:
    """The round as it goes on: where one of its workflows is missing, members of the others have waited in vain."""
    names = [plan.name for plan in plans_of(asked, groups, one.number, our_ledger())]
    there = [name for name in names if ours("Workflow", name) is not None]
    if len(there) == len(names):
        return one
    for name in there:
        current().delete("Workflow", name)
    return test.begin_anew(one)


def _run(plans: Sequence[LinksPlan], tell: Callable[[int], None]) -> list[Manifest]:
    """Begin all, or adopt them, then follow each to its end: they wait for each other's pods."""
    manifests: list[Manifest] = [signed(links_workflow(plan).to_dict(), our_ledger()) for plan in plans]
    for manifest in manifests:
        submit_workflow(current(), manifest)
    ended: list[Manifest] = []
    before = 0
    for plan, manifest in zip(plans, manifests, strict=True):
        last = manifest
        for last in follow_workflow(current(), plan.name):
            tell(before + sum(pod.finished_at is not None for pod in workflow_pods(last)))
        ended.append(last)
        before += len(plan.seats)
    return ended


def told_by(
    pods: Mapping[str, PodTold], groups: Sequence[Sequence[str]], read: Read[Report]
) -> list[GroupTold[Report]]:
    """What the members of each group reported, by what their pods left, in the groups' order."""
    reports: dict[str, Report] = {}
    silent: dict[str, str] = {}
    for name, one in pods.items():
        try:
            reports[name] = read(one.text)
        except ValueError:
            silent[name] = one.ended
    return [
        GroupTold(
            tuple(group),
            {node: reports[node] for node in group if node in reports},
            {node: silent.get(node, "its pod was never started") for node in group if node not in reports},
        )
        for group in groups
    ]


def pods_of(manifests: Sequence[Manifest]) -> dict[str, PodTold]:
    """What the pods of these workflows left, by node."""
    found: dict[str, PodTold] = {}
    for manifest in manifests:
        for pod in workflow_pods(manifest, MEMBER):
            found[pod.inputs.get("node", "")] = PodTold(pod.outputs.get("report") or "{}", pod.without_report)
    return found


def plans_of(asked: Asked, groups: Sequence[Sequence[str]], number: int, ledger: str = "") -> list[LinksPlan]:
    """The workflows in which these groups are measured at the same time.

    Raises:
        ValueError: a group of fewer than two, or a node in two groups.
    """
    hardware = {pool.name: load_hardware(pool.hardware) for pool in asked.cluster.pools}
    name = round_name(asked.cluster.name, number, ledger)
    return [
        LinksPlan(asked.cluster, hardware, asked.suite, asked.demand, name, links_name(name, index), seats)
        for index, seats in enumerate(parted(group_seats(groups, asked.pools)))
    ]


def racks_of_nodes(profile: ClusterProfile) -> dict[str, str]:
    """Rack of each node whose pool says that racks have several nodes, and that carries the rack's label.

    Raises:
        Unavailable, Refused.
    """
    shared = {pool.name for pool in profile.pools if pool.topology.nodes_per_rack > 1}
    if not shared:
        return {}
    return {node.name: node.rack for node in map(node_of, each(current(), "Node")) if node.rack}


@dataclass(frozen=True)
class WantedLinks:
    """What is tested, before it has a number."""

    cluster: str
    suite: SuiteProfile
    pools: Mapping[str, str]
    """The nodes, with their pool."""
    share: float
    """Of a pool, at most, that is measured at the same time."""
    seed: int | None
    """None: by the clock."""

    @property
    def key(self) -> str:
        """The same for the same test, in any process."""
        asked = [self.suite.model_dump_json(), list(self.pools.items()), self.share, self.seed]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


class LinksTest:
    """A test that was begun, and its rounds in the order in which they are asked for. Lives as long as its flow."""

    def __init__(self, wanted: WantedLinks, number: int, begun_at: float) -> None:
        self.wanted, self.number, self.begun_at = wanted, number, begun_at
        self.suspects = _suspects(wanted.cluster, begun_at)
        self._kept = {one.step: one for one in world().ledger.link_rounds(wanted.cluster, number)}
        self._step = 0

    @property
    def seed(self) -> int:
        """Determines which partners meet; the same for a flow that continues the test."""
        return int(self.begun_at) if self.wanted.seed is None else self.wanted.seed

    @property
    def told_at(self) -> float:
        """Unix seconds when its newest round was known; the same for a flow that continues the test."""
        return max((one.at for one in self._kept.values() if one.told), default=self.begun_at)

    def next_round(self, asked: str) -> tuple[RoundRecord, bool]:
        """The next round, and whether it was begun before; then its results may be there already.

        Raises:
            Unavailable: the ledger does not answer.
        """
        self._step += 1
        known = self._kept.get(self._step)
        if known is not None and known.asked == asked:
            return known, True
        return self._write(self._step, asked), False

    def is_last(self, one: RoundRecord) -> bool:
        """No later round was begun: a killed flow may have left its workflows."""
        return one.step == max(self._kept)

    def begin_anew(self, one: RoundRecord) -> RoundRecord:
        """The same round under a number of its own: what is in the old one's folder is half a measurement.

        Raises:
            Unavailable: the ledger does not answer.
        """
        return self._write(one.step, one.asked)

    def keep(self, one: RoundRecord, told: Mapping[str, PodTold]) -> None:
        """Write down what its pods reported.

        Raises:
            Unavailable: the ledger does not answer.
        """
        self._keep(replace(one, told=pack(told), at=world().now()))

    def _write(self, step: int, asked: str) -> RoundRecord:
        cluster = self.wanted.cluster
        record = RoundRecord(cluster, self.number, step, take_number(f"{LINKS}/{cluster}"), asked, world().now())
        self._keep(record)
        return record

    def _keep(self, record: RoundRecord) -> None:
        world().ledger.keep_link_round(record)
        self._kept[record.step] = record


def open_links(wanted: WantedLinks) -> LinksTest:
    """Begin the test, or go on with the one that was begun and whose verdicts do not stand.

    Raises:
        Unavailable: the ledger does not answer.
    """
    ledger, own, now = world().ledger, cursor_of(wanted), world().now()
    begun, read = ledger.cursor(own), ledger.cursor(f"{own}/read")
    is_open = begun is not None and (read is None or read.position < begun.position)
    if begun is not None and is_open and now - begun.at < RESUMED_SECONDS:
        return LinksTest(wanted, begun.position, begun.at)
    number = take_number(f"{LINKS}/{wanted.cluster}")
    ledger.move_cursor(own, number, now)
    return LinksTest(wanted, number, now)


def close_links(test: LinksTest, missed: Sequence[tuple[str, str]] = ()) -> None:
    """Its verdicts stand: it is closed, and its rounds are forgotten; links that missed are remembered.

    Raises:
        Unavailable: the ledger does not answer.
    """
    wanted = test.wanted
    names = [f"{_missed(wanted.cluster)}{left} {right}" for left, right in missed]
    world().ledger.end_link_test(wanted.cluster, test.number, f"{cursor_of(wanted)}/read", world().now(), names)


def cursor_of(wanted: WantedLinks) -> str:
    """Name of the cursor that holds the test's number."""
    return f"{LINKS}/{wanted.cluster}/{wanted.key}"


def _missed(cluster: str) -> str:
    """Beginning of the names of cursors that count in how many tests a link missed; both its ends follow."""
    return f"{LINKS}/{cluster}/missed/"


def _suspects(cluster: str, at: float) -> tuple[tuple[str, str], ...]:
    """Links that missed in tests that ended before, the newest first; what the test itself finds is not among them."""
    found = world().ledger.cursors(_missed(cluster))
    recent = {name: one.at for name, one in found.items() if at - SUSPECTED_SECONDS <= one.at <= at}
    pairs = (name.partition(" ") for name in sorted(recent, key=lambda name: (-recent[name], name))[:MOST_SUSPECTED])
    return tuple((left, right) for left, _, right in pairs)
