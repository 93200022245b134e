"""Tests of groups of nodes: they measure a collective, and a few rounds find the node, link, switch or rail at fault.

What is measured next and who is to blame is decided by `flows.decisions.fabric`; here it is measured, round after
round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from flows.decisions.fabric.verdicts import Tested, judging
from flows.pairs import DEPTH
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from profiles.suite_check import Check
from tasks.link_tests import LinksTest
from tasks.linking import Asked, run_round
from workflows.links import Demand
from workflows.programs.gang_report import report_from

Tell = Callable[[str], None]
NOT_BY_GPUS = "measured by sockets, not between GPUs: the pods' image has no torch, or they see no GPUs"

PROOFS = 2
"""Times that everybody together must be good. What is bad in a share p of its looks is caught by one of k with 1 -
(1 - p)^k: with 2 in 19, 51, 75, 99 of 100 cases where p is 0.1, 0.3, 0.5, 0.9."""


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


def try_gangs(ground: GangGround) -> FabricTested:
    """Measure groups until it is known what is bad between these nodes. Keeps nothing.

    Raises:
        Unavailable: cluster or ledger do not answer.
        Refused: the cluster does not take a workflow.
    """
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


def _begin(ground: GangGround) -> tuple[list[GroupRead], list[GroupRead], Limit]:
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
    pairs = _measured(ground, first_groups(ground.nodes, ground.test.seed), 1)
    limit = peers_limit([one.measurement for one in pairs], least)
    ground.tell(f"limit: {limit.why}")
    return [*before, *pairs], pairs, limit


def _fabric(ground: GangGround, rails: int, limit: Limit) -> Fabric:
    """Racks are leaf switches where every node's rack is known; half a map would make a bad switch look like nodes."""
    known = all(node in ground.racks for node in ground.nodes) and len(set(ground.racks.values())) > 1
    nodes = tuple(Node(node, (ground.racks[node],) * rails if known else ()) for node in ground.nodes)
    floors: tuple[Floor, ...] = limit.floors
    return Fabric(nodes, floors, rails, ground.test.seed, PROOFS, ground.test.suspects)


def _measured(ground: GangGround, groups: Sequence[Group], number: int) -> list[GroupRead]:
    """What these groups told."""
    seen = -1

    def progress(ended: int, nodes: int) -> None:
        nonlocal seen
        if ended != seen:
            seen = ended
            ground.tell(f"round {number}: {ended} of {nodes} nodes have ended, {len(groups)} groups")

    return [
        read(told.group, told.reports, told.silent)
        for told in run_round(ground.asked, ground.test, groups, progress, report_from)
    ]


def _with_all(answer: Answer, nodes: Sequence[str]) -> Answer:
    """The answer; whoever it does not speak of is unknown, never proven."""
    named = {*answer.proven, *(one.node for one in answer.unknown), *(n for f in answer.findings for n in f.members)}
    silent = tuple(Untold(node, "the answer does not name it") for node in nodes if node not in named)
    return replace(answer, unknown=(*answer.unknown, *silent))


def judged_by(tested: FabricTested) -> str:
    """Name of the check whose limit counted."""
    return judging(tested.tested.checks).name
