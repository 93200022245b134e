"""What is to be believed of nodes now: the ledger's verdicts, and how long the cluster's suite lets them hold."""

from __future__ import annotations

from contextlib import suppress

from flows.decisions.node_tests.grading.model import Depth
from flows.decisions.node_tests.grading.standing import (
    NodeProof,
    NodeStanding,
    counting,
    depth_of,
    findings_of,
    hours_of,
    is_test,
    proofs_of,
    released_at,
    standing_of,
    standings,
)
from profiles.admission import own_suite
from profiles.checks.suite import Lifetimes, SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_suite
from tasks.context import world
from tasks.ledger.ledger import Ledger
from tasks.nodes.marks import VerdictMark
from workflows.model.nodes import NodeFinding


def suite_of(profile: ClusterProfile, name: str = "") -> SuiteProfile:
    """The suite of that name or path; without one the cluster's, else the one that fits its engine.

    Raises:
        ProfileError: there is none, or it does not fit the cluster's hardware.
    """
    return load_suite(name or profile.admission.suite or own_suite(profile.engine), cluster=profile)


def lifetimes_of(profile: ClusterProfile) -> dict[Depth, float]:
    """How many hours a pass of each depth is good for; the shipped hours where the cluster's suite cannot be read."""
    lifetimes = Lifetimes()
    with suppress(ProfileError):  # who looks at nodes learns of it from whoever tests them
        lifetimes = suite_of(profile).good_for_hours
    return hours_of(lifetimes)


def proofs_now(ledger: Ledger, profile: ClusterProfile, now: float) -> dict[str, NodeProof]:
    """What is known of each node that was ever tested.

    Raises:
        Unavailable: the ledger does not answer.
    """
    records = ledger.deciding_verdicts(profile.name)
    return proofs_of(records, released_at(ledger.nodes(profile.name)), lifetimes_of(profile), now)


def tests_now(ledger: Ledger, profile: ClusterProfile, now: float) -> dict[str, NodeProof]:
    """The same by tests alone, as it is written on nodes: a gate speaks for its own attempt only.

    Raises:
        Unavailable: the ledger does not answer.
    """
    records = [item for item in ledger.deciding_verdicts(profile.name) if is_test(item)]
    return proofs_of(records, released_at(ledger.nodes(profile.name)), lifetimes_of(profile), now)


def verdict_mark_of(node: str, proof: NodeProof) -> VerdictMark:
    """What is written on a node."""
    standing, record = proof.standing, proof.deciding
    bad = [item for item in record.reasons if item.get("verdict") != "pass"] if record is not None else []
    check = str(bad[0].get("check", "")) if bad else ""
    depth, at = (record.depth, record.at) if record is not None else ("", 0.0)
    return VerdictMark(node, standing.word, depth, standing.why, at, check)


def depths_now(ledger: Ledger, profile: ClusterProfile, node: str, now: float) -> NodeStanding:
    """What each depth that was ever tested says of a node.

    Raises:
        Unavailable: the ledger does not answer.
    """
    records = counting(ledger.deciding_verdicts(profile.name, node), released_at(ledger.nodes(profile.name)))
    tested = tuple(depth for depth in Depth if any(depth_of(item) is depth for item in records))
    return standing_of(node, records, tested, lifetimes_of(profile), now)


def standings_now(
    profile: ClusterProfile, nodes: tuple[str, ...], wanted: tuple[Depth, ...]
) -> dict[str, NodeStanding]:
    """What holds for these nodes where these depths are wanted.

    Raises:
        Unavailable: the ledger does not answer.
    """
    ledger, now = world().ledger, world().now()
    records = counting(ledger.deciding_verdicts(profile.name), released_at(ledger.nodes(profile.name)))
    return standings(nodes, records, wanted, lifetimes_of(profile), now)


def failed_tests(profile: ClusterProfile, pools: dict[str, str]) -> list[NodeFinding]:
    """Failures of tests that stand against these nodes (name -> pool), for the brake to settle.

    Raises:
        Unavailable: the ledger does not answer.
    """
    here = world()
    return findings_of(tests_now(here.ledger, profile, here.now()), pools)
