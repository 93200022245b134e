"""A round of tests between nodes: its workflows begun, followed and read. Decides nothing about nodes.

A round whose flow is killed is measured anew under the next number; its workflows end by their own deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from profiles.cluster import ClusterProfile
from profiles.load import load_hardware
from tasks.cluster import Manifest, current
from tasks.embedded.engine.json_values import as_map
from tasks.sights import items, part
from tasks.streaming import each
from tasks.sweeping import take_number
from tasks.workflow_nodes import nodes_of
from tasks.workflow_runs import follow_workflow, submit_workflow
from workflows import labels
from workflows.links import (
    LINKS,
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
    asked: Asked, groups: Sequence[Sequence[str]], tell: Callable[[int, int], None], read: Read[Report]
) -> list[GroupTold[Report]]:
    """Measure these groups, as many at once as may be, and read what every member told.

    Args:
        asked: what is measured, and where.
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
        plans = plans_of(asked, own, take_number(f"{LINKS}/{asked.cluster.name}"))
        ended = before

        def progress(told: int, ended: int = ended) -> None:
            tell(ended + told, nodes)

        found |= dict(zip(numbers, told_by(_run(plans, progress), own, read), strict=True))
        before += sum(len(group) for group in own)
    return [found[number] for number in range(len(groups))]


def told_by(
    manifests: Sequence[Manifest], groups: Sequence[Sequence[str]], read: Read[Report]
) -> list[GroupTold[Report]]:
    """What the members of each group told in these workflows, in the groups' order."""
    reports: dict[str, Report] = {}
    silent: dict[str, str] = {}
    for manifest in manifests:
        for node in nodes_of(manifest):
            if node.get("type") == "Pod" and str(node.get("templateName", "")).startswith(MEMBER):
                name = _parameter(node.get("inputs"), "node")
                try:
                    reports[name] = read(_parameter(node.get("outputs"), "report") or "{}")
                except ValueError:
                    ended = str(node.get("phase", "")).lower()
                    silent[name] = f"its pod {ended}: {node.get('message') or 'it left no report'}"
    return [
        GroupTold(
            tuple(group),
            {node: reports[node] for node in group if node in reports},
            {node: silent.get(node, "its pod was never started") for node in group if node not in reports},
        )
        for group in groups
    ]


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


def _run(plans: Sequence[LinksPlan], tell: Callable[[int], None]) -> list[Manifest]:
    """Begin all, then follow each to its end: they wait for each other's pods. What was read is deleted."""
    manifests: list[Manifest] = [links_workflow(plan).to_dict() for plan in plans]
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
    for plan in plans:
        current().delete("Workflow", plan.name)
    return ended


def _ended(manifest: Manifest) -> int:
    return sum(node.get("type") == "Pod" and bool(node.get("finishedAt")) for node in nodes_of(manifest))


def _parameter(found: object, name: str) -> str:
    listed = items(as_map(found), "parameters")
    return next((str(item.get("value", "")) for item in listed if item.get("name") == name), "")
