"""A round of tests between nodes: its workflows begun or adopted, followed and read. Decides nothing about nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from profiles.cluster import ClusterProfile
from profiles.load import load_hardware
from tasks.cluster import Manifest, current
from tasks.link_tests import LinksTest
from tasks.ownership import is_taken, our_ledger, ours
from tasks.sights import part
from tasks.streaming import each
from tasks.workflow_nodes import nodes_of, parameter_of
from tasks.workflow_runs import follow_workflow, submit_workflow
from workflows import labels
from workflows.link_rounds import PodTold, RoundRecord, asked_of, unpack
from workflows.links import (
    MEMBER,
    Demand,
    LinksPlan,
    links_name,
    links_workflow,
    parted,
    round_name,
    seated,
    waves,
)
from workflows.ownership import signed
from workflows.pair_calls import PairDemand

Report = TypeVar("Report")
Read = Callable[[str], Report]
"""From the text of a report to it. Raises ValueError: it is something else."""


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
    """What the members of one group or pair told."""

    group: tuple[str, ...]
    reports: Mapping[str, Report]
    """By node; missing: its pod left none."""
    silent: Mapping[str, str]
    """Nodes whose pod left none, and why."""


def plans_of(asked: Asked, groups: Sequence[Sequence[str]], number: int) -> list[LinksPlan]:
    """The workflows in which these groups are measured at the same time.

    Raises:
        ValueError: a group of fewer than two, or a node in two groups.
    """
    hardware = {pool.name: load_hardware(pool.hardware) for pool in asked.cluster.pools}
    name = round_name(asked.cluster.name, number)
    return [
        LinksPlan(asked.cluster, hardware, asked.suite, asked.demand, name, links_name(name, index), seats)
        for index, seats in enumerate(parted(seated(groups, asked.pools)))
    ]


def run_round(
    asked: Asked,
    test: LinksTest,
    groups: Sequence[Sequence[str]],
    tell: Callable[[int, int], None],
    read: Read[Report],
) -> list[GroupTold[Report]]:
    """Measure these groups, as many at once as may be, and read what every member told.

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


def told_by(
    pods: Mapping[str, PodTold], groups: Sequence[Sequence[str]], read: Read[Report]
) -> list[GroupTold[Report]]:
    """What the members of each group told, by what their pods left, in the groups' order."""
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
        for node in nodes_of(manifest):
            if node.get("type") == "Pod" and str(node.get("templateName", "")).startswith(MEMBER):
                ended = f"its pod {str(node.get('phase', '')).lower()}: {node.get('message') or 'it left no report'}"
                text = parameter_of(node.get("outputs"), "report") or "{}"
                found[parameter_of(node.get("inputs"), "node")] = PodTold(text, ended)
    return found


def racks_of_nodes(profile: ClusterProfile) -> dict[str, str]:
    """Rack of each node whose pool says that racks have several nodes, and that carries the rack's label.

    Raises:
        Unavailable, Refused.
    """
    shared = {pool.name for pool in profile.pools if pool.topology.nodes_per_rack > 1}
    if not shared:
        return {}
    found: dict[str, str] = {}
    for node in each(current(), "Node"):
        metadata = part(node, "metadata")
        rack = str(part(metadata, "labels").get(labels.RACK, ""))
        if rack:
            found[str(metadata.get("name", ""))] = rack
    return found


def _pods(
    asked: Asked, test: LinksTest, groups: Sequence[Sequence[str]], tell: Callable[[int], None]
) -> dict[str, PodTold]:
    """What the pods of the next round left. Its workflows are deleted once that is written down."""
    one, begun_before = test.next_round(asked_of(groups, asked.demand))
    if begun_before and not one.told:
        one = _adopted(asked, test, groups, one)
    while not one.told and any(is_taken("Workflow", plan.name) for plan in plans_of(asked, groups, one.number)):
        one = test.begin_anew(one)  # another ledger counts on this cluster too
    plans = plans_of(asked, groups, one.number)
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
    names = [plan.name for plan in plans_of(asked, groups, one.number)]
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
            tell(before + _ended(last))
        ended.append(last)
        before += len(plan.seats)
    return ended


def _ended(manifest: Manifest) -> int:
    return sum(node.get("type") == "Pod" and bool(node.get("finishedAt")) for node in nodes_of(manifest))
