"""Nodes that join: which tests they must pass, and that nothing else takes their start-up taint away.

Whoever tests nodes comes by here: the bootstrap, the timetable, a person with `primus preflight`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from flows.decisions.node_tests.grading.grade import worst
from flows.decisions.node_tests.grading.model import Depth
from flows.decisions.node_tests.joining import SMOKE, Joiner, depths_to_join, why_it_stays
from flows.decisions.text import first_names
from flows.testing.links import DEPTH as LINKS
from flows.testing.links import gangs_of, pairs_of
from flows.testing.nodes import Outcome, Tell
from flows.testing.proofs import standings_now, suite_of
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware
from profiles.vocabulary import VerdictWord
from tasks.nodes.holds import users
from tasks.nodes.marks import admit_nodes
from tasks.observe.nodes import stream_nodes
from workflows import labels
from workflows.model.nodes import Node
from workflows.node_tests.preflight import node_checks

NAMED = 8
"""Nodes that a line names, and nodes that get a line of their own."""


def wanted_of(profile: ClusterProfile, suite: SuiteProfile, hardware: HardwareProfile) -> tuple[Depth, ...]:
    """Depths that a node of this hardware must pass before it takes work: those of which it makes checks, and smoke.

    A suite without a smoke test for it admits nothing.
    """
    return tuple(
        Depth(depth)
        for depth in depths_to_join(profile.admission)
        if depth == SMOKE
        or node_checks(suite, depth, hardware)
        or (depth == LINKS and _meets(profile, suite, hardware))
    )


def _meets(profile: ClusterProfile, suite: SuiteProfile, hardware: HardwareProfile) -> bool:
    return hardware.name in gangs_of(profile, suite) or hardware.name in pairs_of(profile, suite)


def with_partners(
    profile: ClusterProfile, suite: SuiteProfile, depths: Sequence[str], pools: Mapping[str, str], tell: Tell
) -> dict[str, str]:
    """The nodes that are tested (name -> pool), and a proven idle one beside each that would meet nobody.

    A test between nodes says nothing of a single one, and the next host that joins may never come.

    Raises:
        Unavailable, Refused.
    """
    kind_of = {pool.name: pool.hardware for pool in profile.pools}
    counts = Counter(kind_of[pool] for pool in pools.values())
    alone = [kind for kind, count in counts.items() if count == 1 and _meets(profile, suite, load_hardware(kind))]
    if LINKS not in depths or not alone:
        return dict(pools)
    used, found = users(profile), dict(pools)
    proven = [node for node in stream_nodes(profile) if _is_partner(node) and node.name not in {*used, *pools}]
    for kind in alone:
        partner = next((node for node in proven if kind_of[node.pool] == kind), None)
        if partner is not None:
            tell(f"{partner.name} is measured with beside it: it is proven and idle")
            found[partner.name] = partner.pool
    return found


def _is_partner(node: Node) -> bool:
    fit = node.ready and node.verdict == VerdictWord.PASS and not node.cordoned and not node.leaving
    return bool(fit) and not any(taint.key.startswith(labels.PREFIX) for taint in node.taints)


def admit(
    profile: ClusterProfile,
    suite: SuiteProfile,
    tests: Sequence[Outcome],
    joining: Mapping[str, str],
    pools: Mapping[str, str],
    tell: Tell,
) -> None:
    """Take the start-up taint from nodes that passed; say which ones keep it, and why.

    Args:
        profile: of the cluster.
        suite: by which nodes were tested.
        tests: of one preflight.
        joining: nodes that carried the taint when it began, with the identity of their object.
        pools: node -> its pool.
        tell: gets a line about those that are admitted, and one about each that is not.

    Raises:
        Unavailable: the ledger does not answer; every node keeps its taint.
        ProfileError: the cluster has no suite of its own that can be read.
    """
    own = suite_of(profile)
    if suite != own:
        named = first_names(list(joining), NAMED)
        tell(f"{named}: not admitted: tested by suite {suite.name}, admission asks for suite {own.name}")
        return
    joiners = _joiners(profile, suite, tests, joining, pools)
    kept = admit_nodes({node: partial(why_it_stays, joiner) for node, joiner in joiners.items()})
    if admitted := [node for node in joiners if node not in kept]:
        tell(f"{first_names(admitted, NAMED)}: admitted: the start-up taint is off")
    for node in list(kept)[:NAMED]:
        tell(f"{node} keeps its start-up taint: {kept[node]}")
    if len(kept) > NAMED:
        tell(f"{len(kept) - NAMED} more nodes keep their start-up taint")


def _joiners(
    profile: ClusterProfile,
    suite: SuiteProfile,
    tests: Sequence[Outcome],
    joining: Mapping[str, str],
    pools: Mapping[str, str],
) -> dict[str, Joiner]:
    """What the tests found of each node that joins."""
    kinds = {pool.name: load_hardware(pool.hardware) for pool in profile.pools}
    wanted = {name: wanted_of(profile, suite, kind) for name, kind in kinds.items()}
    said: dict[str, dict[Depth, list[VerdictWord]]] = {node: {} for node in joining}
    for test in tests:
        for node, word in test.words.items():
            if node in said and test.suite == suite.name:  # a trial of a run is no test of the suite
                said[node].setdefault(Depth(test.depth), []).append(word)
    found: dict[str, Joiner] = {}
    for pool, kind in kinds.items():
        nodes = tuple(node for node in joining if pools.get(node) == pool)
        standings = standings_now(profile, nodes, wanted[pool]) if nodes else {}
        for node in nodes:
            words = {depth: worst(words) for depth, words in said[node].items()}
            found[node] = Joiner(joining[node], kind, wanted[pool], words, standings.get(node))
    return found
