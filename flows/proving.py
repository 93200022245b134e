"""Nodes proven, depth by depth: held where a test needs them for itself, tested, given back, and dealt with.

What is found stands in the ledger first; then it is written on the nodes, and failures go to the brake, which takes
nodes out or asks. Whoever dies in between leaves verdicts that the monitor acts upon, and holds that end by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from flows.decisions.grading.model import DEEP
from flows.decisions.grading.model import Depth as Level
from flows.decisions.node_conditions import held
from flows.node_sentinel import Line, Sentinel
from flows.node_tests import Outcome, Tell, try_nodes
from flows.proofs import failed_tests, tests_now, told_of
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, PrimusError
from profiles.suite import SuiteProfile
from profiles.suite_words import Depth, Launcher
from profiles.vocabulary import VerdictWord
from tasks.cluster import current
from tasks.lease import driving
from tasks.node_actions import stream_nodes
from tasks.node_holds import give_nodes_back, hold_nodes
from tasks.node_marks import Marker
from tasks.preflighting import Wanted
from tasks.verdict_marks import tell_nodes
from tasks.world import world
from workflows.node_sight import watcher_of
from workflows.preflight import PREFLIGHT

NAMED = 8
"""Nodes that a line names."""


def prove(
    profile: ClusterProfile,
    suite: SuiteProfile,
    depths: Sequence[Depth],
    pools: Mapping[str, str],
    tell: Tell,
    launcher: Launcher = "kubernetes",
    owner: str = "",
) -> list[Outcome]:
    """Test nodes at each of these depths, and deal with what was found.

    A node that fails is not tested more deeply: that would cost hours, and it is out already.

    Args:
        profile: of the cluster.
        suite: what is looked at.
        depths: the shallowest first.
        pools: nodes in the order in which they are tested, with their pool.
        tell: gets a line whenever something changes.
        launcher: who starts the programs.
        owner: of holds; "": the test itself, so that whoever goes on with it finds its own.

    Raises:
        Conflict: somebody else makes the same test now.
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take the workflow.
    """
    left: Mapping[str, str] = pools
    tests: list[Outcome] = []
    for depth in depths:
        if not left:
            break
        tests.append(_at_depth(Wanted(profile, suite, depth, left, launcher), tell, owner))
        grades = tests[-1].grades
        left = {node: pools[node] for node in grades if grades[node].verdict is not VerdictWord.FAIL}
    if launcher == "kubernetes" and tests:
        deal_with(profile, list(pools), tell)
    return tests


def _at_depth(wanted: Wanted, tell: Tell, owner: str) -> Outcome:
    """One depth; a deep one on nodes that nobody uses, and that are held meanwhile."""
    profile, depth = wanted.cluster, wanted.depth
    if wanted.launcher != "kubernetes" or Level(depth) not in DEEP:
        return _try(wanted, tell)
    held_by = owner or f"{PREFLIGHT}-{wanted.key}"
    busy = hold_nodes(profile, list(wanted.pools), held_by)
    free = {node: pool for node, pool in wanted.pools.items() if node not in busy}
    if busy:
        named = ", ".join(f"{node} ({why})" for node, why in list(busy.items())[:NAMED])
        tell(f"{len(busy)} nodes are not tested at depth {depth}, which needs them for itself: {named}")
    try:
        found = Outcome(wanted.suite.name, depth, {}, 0.0, 0)
        if free:
            found = _try(replace(wanted, pools=free), tell)
    finally:
        with suppress(PrimusError):  # if not, the holds end by themselves
            give_nodes_back(list(free), held_by)
    return replace(found, busy=busy)


def _try(wanted: Wanted, tell: Tell) -> Outcome:
    return try_nodes(wanted.cluster, wanted.suite, wanted.depth, wanted.pools, tell, wanted.launcher)


def deal_with(profile: ClusterProfile, nodes: Sequence[str], tell: Tell) -> None:
    """Write on these nodes what is to be believed of them, and let the brake settle what failed.

    Where a monitor watches over the cluster it is the one to settle: it reads the same ledger.

    Raises:
        Unavailable, Refused.
    """
    here = world()
    proofs = tests_now(here.ledger, profile, here.now())
    told = [told_of(node, proofs[node]) for node in nodes if node in proofs]
    tell_nodes(told, lambda node, why: tell(f"{node}: its verdict could not be written on it: {why}"))
    if any(proofs[node].standing.failures for node in nodes if node in proofs):
        _settle(profile, tell)


def _settle(profile: ClusterProfile, tell: Tell) -> None:
    lines: list[Line] = []
    try:
        with driving(watcher_of(profile.name)), Marker(current()) as marker:
            sentinel = Sentinel(profile, profile.monitor.mode, marker, lines.append)
            nodes = {node.name: node for node in stream_nodes(profile)}
            found = failed_tests(profile, {name: node.pool for name, node in nodes.items() if not held(node)})
            sentinel.settle(found, nodes.get)
            sentinel.told(marker.wait())
    except Conflict:
        tell("the monitor of this cluster takes out what failed")
    for line in lines:
        tell(f"{line.node or profile.name}: {line.event}: {line.why}")
