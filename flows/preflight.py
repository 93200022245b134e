"""Preflight: no run on an unproven node. Nodes are tested by a workflow of short pods and judged together.

What failed once by a figure that varies is measured again before the node is blamed; a node that told nothing is
unknown, and unknown is not healthy. Verdicts stand in the ledger when this returns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from prefect import flow

from flows.decisions.grading.grade import records_of
from flows.decisions.grading.history import DAY_SECONDS, DAYS, history_of
from flows.decisions.grading.model import NodeGrade
from flows.decisions.preflight import NodeAnswer, again, judge, rule_of
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.load import load_cluster, load_hardware, load_suite
from profiles.suite import SuiteProfile
from profiles.suite_check import Check
from profiles.suite_words import DEPTHS, Depth
from profiles.vocabulary import VerdictWord
from tasks.cluster import using
from tasks.clusters import open_cluster
from tasks.node_actions import stream_nodes
from tasks.nodes import busy_nodes
from tasks.opening import localised
from tasks.preflighting import (
    Told,
    count_preflight,
    forget_preflight,
    keep_verdicts,
    plan_of,
    run_preflight,
)
from tasks.session import session
from tasks.settings import Settings
from tasks.world import world
from workflows.preflight import MOST
from workflows.preflight_calls import calls_of, left_out, node_checks

Tell = Callable[[str], None]
ANYWHERE, SMOKE = "any-machine", "smoke"
"""Suites where none is named: on an embedded cluster there are no GPUs to look at."""


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


def suite_of(profile: ClusterProfile, name: str) -> SuiteProfile:
    """The suite of that name or path; without one the one for any machine, or on a living cluster the smoke test.

    Raises:
        ProfileError: there is none, or it does not fit the cluster's hardware.
    """
    return load_suite(name or (ANYWHERE if profile.engine == "embedded" else SMOKE), cluster=profile)


def depths_of(suite: SuiteProfile, profile: ClusterProfile, wanted: str) -> tuple[Depth, ...]:
    """The depths of which nodes of this cluster make checks, the shallowest first; or the one that is asked for.

    Raises:
        ProfileError: no such depth, or the suite has no check of it for these nodes.
    """
    if wanted and wanted not in DEPTHS:
        raise ProfileError("depth", f"must be one of {', '.join(DEPTHS)}, got {wanted!r}")
    kinds: list[HardwareProfile] = [load_hardware(pool.hardware) for pool in profile.pools]
    made: tuple[Depth, ...] = tuple(depth for depth in DEPTHS if any(node_checks(suite, depth, kind) for kind in kinds))
    found: list[Depth] = [depth for depth in made if not wanted or str(depth) == wanted]
    if not found:
        what = f"of depth {wanted} " if wanted else ""
        raise ProfileError("suite", f"{suite.name} has no check {what}of single nodes for this cluster's hardware")
    return tuple(found)


def pools_of(profile: ClusterProfile, wanted: Sequence[str], *, idle_only: bool = False) -> dict[str, str]:
    """The nodes that are to be tested, with their pool; `idle_only` leaves out those on which something trains.

    Raises:
        ProfileError: one of them is no node of the cluster.
    """
    known = {node.name: node.pool for node in stream_nodes(profile)}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise ProfileError("nodes", f"{', '.join(missing)}: no such node; there are {', '.join(list(known)[:8])}")
    busy = busy_nodes("", 0) if idle_only else {}
    return {name: known[name] for name in wanted or known if name not in busy}


def in_words(tests: Sequence[Outcome]) -> str:
    """Tests in one line."""
    said: list[str] = []
    for test in tests:
        bad = [f"{node}: {grade.verdict}" for node, grade in test.grades.items() if grade.verdict != VerdictWord.PASS]
        told = ", ".join(bad[:8]) + (" …" if len(bad) > 8 else "")
        passed = len(test.grades) - len(bad)
        said.append(f"{test.depth}: {passed} of {len(test.grades)} pass" + (f" ({told})" if told else ""))
    return "; ".join(said) or "no node was to be tested"


@flow(name="preflight", flow_run_name="preflight {cluster} {suite}")
async def preflight(
    suite: str = "",
    cluster: str = "",
    depth: Literal["", "smoke", "device", "fabric", "storage", "training"] = "",
    nodes: list[str] | None = None,
    idle_only: bool = False,
) -> str:
    """Test nodes: what was measured, against which limit, with the evidence. Verdicts stand in the ledger.

    Args:
        suite: Name or path of a suite; empty: any-machine on an embedded cluster, smoke elsewhere.
        cluster: Name of the cluster profile; empty: the one of the environment.
        depth: Only this depth; empty: all that the suite has for these nodes.
        nodes: Names of nodes; empty: all.
        idle_only: Leave out nodes on which something trains.

    Returns:
        What was found, in one line.

    Raises:
        ProfileError: no such cluster, suite, depth or node; the suite does not fit the hardware.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen = suite_of(profile, suite)
    with session(settings), using(open_cluster(profile, settings.home)):
        pools = pools_of(profile, nodes or (), idle_only=idle_only)
        wanted = depths_of(chosen, profile, depth) if pools else ()
        tests = [try_nodes(profile, chosen, one, pools, logging.getLogger("primus").info) for one in wanted]
    return in_words(tests)
