"""Nodes proven, depth by depth: held where a test needs them alone, tested, released, and acted upon.

Findings stand in the ledger first; then they are written on the nodes, and failures go to the brake, which takes nodes
out or asks. A process that dies in between leaves verdicts that the monitor acts upon, and holds that expire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from flows.decisions.monitoring.node_conditions import out_of_service
from flows.decisions.node_tests.grading.model import DEEP
from flows.decisions.node_tests.grading.model import Depth as Level
from flows.testing.joining import admit
from flows.testing.links import DEPTH as LINKS
from flows.testing.links import gangs_of, pairs_of, try_links
from flows.testing.nodes import Outcome, Tell, try_nodes
from flows.testing.proofs import failed_tests, tests_now, verdict_mark_of
from flows.testing.trials import try_run
from flows.watching.nodes import NodeNotice, Sentinel
from profiles.checks.catalogue import Depth, Launcher
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, PrimusError
from profiles.loading.load import load_hardware
from profiles.run import RunProfile
from profiles.vocabulary import VerdictWord
from tasks.cluster import current
from tasks.context import world
from tasks.lease import driving
from tasks.node_tests.preflight import Wanted
from tasks.nodes.holds import give_nodes_back, hold_nodes
from tasks.nodes.marks import Marker, tell_nodes
from tasks.observe.nodes import joining_nodes, stream_nodes, unready
from tasks.slurm.nodes import act_by_slurm
from workflows.model.nodes import identity_of, watcher_of
from workflows.node_tests.pods import sees_gpus
from workflows.node_tests.preflight import PREFLIGHT, node_checks

NAMED = 8
"""Nodes that a line names."""


@dataclass(frozen=True)
class Manner:
    """How nodes are tested."""

    launcher: Launcher = "kubernetes"
    """Who starts the programs."""
    owner: str = ""
    """Of holds; "": the test itself, which whoever goes on with it finds."""
    strict: bool = False
    """What is unknown is not tested more deeply either: a deep pass must not stand for what nobody could see."""
    trial: RunProfile | None = None
    """A run that is tried on the nodes at the end; None: none is."""

    @property
    def out(self) -> frozenset[VerdictWord]:
        """Verdicts after which a node is not tested more deeply."""
        return frozenset({VerdictWord.FAIL, VerdictWord.UNKNOWN} if self.strict else {VerdictWord.FAIL})


PLAINLY = Manner()


def prove(
    profile: ClusterProfile,
    suite: SuiteProfile,
    depths: Sequence[Depth],
    pools: Mapping[str, str],
    tell: Tell,
    manner: Manner = PLAINLY,
) -> list[Outcome]:
    """Test nodes at each of these depths, and deal with what was found.

    `depths`: the shallowest first; `pools`: nodes in their order, with their pool.
    A node that fails is not tested more deeply: that would cost hours, and it is out already. A node that joins loses
    its start-up taint where it passed all that admission asks for (`flows.testing.joining`).

    Raises:
        ProfileError: the run that is to be tried does not fit; nothing of it was begun.
        Conflict: somebody else makes the same test now.
        Unavailable: cluster or ledger do not answer; what was kept stands.
        Refused: the cluster does not take the workflow.
    """
    left: Mapping[str, str] = pools
    by_pods = manner.launcher == "kubernetes"
    away = _unready(profile, pools, manner.launcher, tell)
    joining = {name: identity_of(node) for name, node in (joining_nodes() if by_pods else {}).items() if name in pools}
    tests: list[Outcome] = []
    for depth in depths:
        if left and has_checks(profile, suite, depth, manner.launcher):
            tests.append(_at_depth(Wanted(profile, suite, depth, left, manner.launcher), away, tell, manner.owner))
            left = {node: pools[node] for node, word in tests[-1].words.items() if word not in manner.out}
    there = {node: pool for node, pool in left.items() if node not in away}
    if there and manner.trial is not None:
        tests.append(try_run(profile, manner.trial, there, tell, manner.owner))
    if by_pods and tests:
        deal_with(profile, list(pools), tell)
        if joining:
            admit(profile, suite, tests, joining, pools, tell)
    if manner.launcher == "slurm" and tests:
        _deal_with_slurm(profile, list(pools), tell)
    return tests


def _unready(profile: ClusterProfile, pools: Mapping[str, str], launcher: Launcher, tell: Tell) -> dict[str, str]:
    """Nodes on which nothing can be started now: to wait for their pods would only end with their deadline."""
    found = unready(profile, pools) if launcher == "kubernetes" else {}
    if found:
        named = "; ".join(f"{node}: {why}" for node, why in list(found.items())[:NAMED])
        tell(f"{len(found)} of {len(pools)} nodes cannot be tested: {named}")
    return found


def has_checks(profile: ClusterProfile, suite: SuiteProfile, depth: Depth, launcher: Launcher) -> bool:
    """Whether nodes of this cluster make any check of the depth, by themselves or with others."""
    return has_own_checks(profile, suite, depth, launcher) or meets(profile, suite, depth, launcher)


def has_own_checks(profile: ClusterProfile, suite: SuiteProfile, depth: Depth, launcher: Launcher) -> bool:
    """Whether nodes make checks of the depth by themselves."""
    kinds = [load_hardware(pool.hardware) for pool in profile.pools]
    return any(node_checks(suite, depth, kind, launcher) for kind in kinds)


def meets(profile: ClusterProfile, suite: SuiteProfile, depth: Depth, launcher: Launcher) -> bool:
    """Whether nodes are tested with each other: pods of several nodes must run at the same time for that."""
    between = depth == LINKS and launcher == "kubernetes"
    return between and bool(gangs_of(profile, suite) or pairs_of(profile, suite))


def _at_depth(wanted: Wanted, away: Mapping[str, str], tell: Tell, owner: str) -> Outcome:
    """One depth; a deep one on idle nodes, which are held meanwhile."""
    profile, depth = wanted.cluster, wanted.depth
    if wanted.launcher != "kubernetes" or (Level(depth) not in DEEP and not _takes_gpus(profile)):
        return _try(wanted, away, tell)
    held_by = owner or f"{PREFLIGHT}-{wanted.key}"
    busy = hold_nodes(profile, list(wanted.pools), held_by)
    free = {node: pool for node, pool in wanted.pools.items() if node not in busy}
    try:
        if busy:
            named = ", ".join(f"{node} ({why})" for node, why in list(busy.items())[:NAMED])
            tell(f"{len(busy)} nodes are not tested at depth {depth}, which needs them for itself: {named}")
        found = Outcome(wanted.suite.name, depth, {}, 0.0, 0)
        if free:
            found = _try(replace(wanted, pools=free), away, tell)
    finally:
        with suppress(PrimusError):  # if not, the holds end by themselves
            give_nodes_back(list(free), held_by)
    return replace(found, busy=busy)


def _takes_gpus(profile: ClusterProfile) -> bool:
    """Whether each test takes the GPUs of its node: on a node in use its pod would wait and report nothing."""
    return any(sees_gpus(profile, load_hardware(pool.hardware)) for pool in profile.pools)


def _try(wanted: Wanted, away: Mapping[str, str], tell: Tell) -> Outcome:
    """Test nodes by themselves first: a node that fails alone would only disturb the others."""
    profile, suite, depth, launcher = wanted.cluster, wanted.suite, wanted.depth, wanted.launcher
    found = Outcome(suite.name, depth, {}, 0.0, 0)
    if has_own_checks(profile, suite, depth, launcher):
        found = try_nodes(profile, suite, depth, wanted.pools, tell, launcher, away)
    if not meets(profile, suite, depth, launcher):
        return found
    there = {node: pool for node, pool in wanted.pools.items() if node not in away}
    fit = {node: pool for node, pool in there.items() if found.words.get(node) is not VerdictWord.FAIL}
    return replace(found, links=try_links(profile, suite, fit, tell, beside=found.grades)) if fit else found


def deal_with(profile: ClusterProfile, nodes: Sequence[str], tell: Tell) -> None:
    """Write on these nodes what is to be believed of them, and let the brake settle what failed.

    Where a monitor watches over the cluster it is the one to settle: it reads the same ledger.

    Raises:
        Unavailable, Refused.
    """
    here = world()
    proofs = tests_now(here.ledger, profile, here.now())
    marks = [verdict_mark_of(node, proofs[node]) for node in nodes if node in proofs]
    tell_nodes(marks, lambda node, why: tell(f"{node}: its verdict could not be written on it: {why}"))
    if any(proofs[node].standing.failures for node in nodes if node in proofs):
        _settle(profile, tell)


def _deal_with_slurm(profile: ClusterProfile, nodes: Sequence[str], tell: Tell) -> None:
    """The same through Slurm, where the profile lets us: verdict files for the prolog, drains under the brake."""
    if profile.slurm is None:
        return
    here, size = world(), sum(pool.nodes for pool in profile.pools)
    proofs = tests_now(here.ledger, profile, here.now())
    marks = [verdict_mark_of(node, proofs[node]) for node in nodes if node in proofs]
    most = max(1, int(profile.brake.max_quarantined_share * size))
    with driving(f"slurm/{profile.name}"):
        act_by_slurm(profile.slurm, marks, tell, most=most)


def _settle(profile: ClusterProfile, tell: Tell) -> None:
    lines: list[NodeNotice] = []
    try:
        with driving(watcher_of(profile.name)), Marker(current()) as marker:
            sentinel = Sentinel(profile, profile.monitor.mode, marker, lines.append)
            sentinel.carry_out_left_overs()  # what was planned by whoever was killed
            sentinel.record_marks(marker.wait())
            nodes = {node.name: node for node in stream_nodes(profile)}
            found = failed_tests(profile, {name: node.pool for name, node in nodes.items() if not out_of_service(node)})
            sentinel.settle(found, nodes.get)
            sentinel.record_marks(marker.wait())
    except Conflict:
        tell("the monitor of this cluster takes out what failed")
    for line in lines:
        tell(f"{line.node or profile.name}: {line.event}: {line.why}")
