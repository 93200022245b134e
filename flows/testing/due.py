"""Tests that are due, and what finished tests left behind; both are looked after by the monitor.

A test is due for what happened to a node, as the cluster profile wishes for each occasion. A test acts on its own
findings; a process that died before that left verdicts in the ledger and perhaps held nodes. So holds whose time is up
are freed, failures go to the brake, and a pass that has run out is removed from its node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.monitoring.node_conditions import out_of_service
from flows.decisions.node_tests.grading.admission import Candidate, NodeTest, Occasion, Wishes, due_tests
from flows.decisions.node_tests.grading.model import Depth as Level
from flows.decisions.node_tests.grading.standing import NodeProof, findings_of, released_at
from flows.decisions.node_tests.joining import depths_to_join
from flows.testing.joining import with_partners
from flows.testing.nodes import Outcome, Tell
from flows.testing.proofs import standings_now, suite_of, tests_now, verdict_mark_of
from flows.testing.prove import Manner, prove
from flows.watching.nodes import NodeNotice, TellNode
from profiles.admission import Occasions
from profiles.checks.catalogue import DEPTHS, Depth
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.loading.load import check_admission
from profiles.vocabulary import FINISHED
from tasks.cluster import current
from tasks.context import world
from tasks.nodes.holds import free_expired, users
from tasks.nodes.marks import VerdictMark, tell_nodes
from tasks.observe.nodes import stream_nodes
from workflows import labels
from workflows.model.nodes import Node, NodeFinding
from workflows.model.runs import IncidentQuery

Happening = tuple[str, Occasion, float]
"""Node, what happened to it, and when (Unix seconds)."""

LOOK_BACK_SECONDS = 2 * 86400.0
"""What happened longer ago and was not tested for since then has been tested for at night."""
FIELDS: Mapping[Occasion, str] = {
    occasion: occasion.value.replace("-", "_") for occasion in Occasion if occasion is not Occasion.START_UP
}
"""Names of the occasions in the profile; what nodes with the start-up taint must pass is no wish but the gate."""

LOOK_SECONDS = 60.0
"""Between two looks where no verdict is new: passes run out by the hour."""
STRICTLY = Manner(strict=True)
AT_ONCE = 512
"""Nodes that are written on in one round: of a fleet whose passes run out together the rest waits for the next."""


def prove_due(profile: ClusterProfile, tell: Tell, *, nightly: bool) -> list[Outcome]:
    """Test the nodes whose turn it is, at most the wished share of a pool deeply at once.

    `nightly`: also idle nodes whose proofs have run out.

    Raises:
        ProfileError: the suite has no test of a depth that the profile wants.
        Conflict, Unavailable, Refused: as `prove` says.
    """
    suite = suite_of(profile)
    check_admission(profile, suite)
    wishes = wishes_of(profile)
    nodes = {node.name: node for node in stream_nodes(profile)}
    wished_depths = tuple({depth: None for depths in wishes.depths.values() for depth in depths})
    standings = standings_now(profile, tuple(nodes), wished_depths)
    happened, used = _happenings(profile, nodes, nightly=nightly), users(profile)
    candidates = [
        Candidate(
            name,
            node.pool,
            standings[name],
            happened[name],
            idle=name not in used,
            testing=any(taint.key == labels.HOLD_TAINT for taint in node.taints),
        )
        for name, node in nodes.items()
        if not node.cordoned and not node.leaving
    ]
    plan = due_tests(candidates, wishes, {pool.name: pool.nodes for pool in profile.pools})
    for test, why in plan.waiting:
        tell(f"{test.node} is not tested yet ({test.why}): {why}")
    joins = frozenset(name for name, node in nodes.items() if node.joining)
    return [
        outcome
        for depths, pools in _groups(plan.tests, tell).items()
        for outcome in _prove(profile, suite, depths, pools, joins, tell)
    ]


def _groups(tests: Iterable[NodeTest], tell: Tell) -> dict[tuple[Level, ...], dict[str, str]]:
    """Depths -> nodes that are tested at them, with their pool."""
    found: dict[tuple[Level, ...], dict[str, str]] = {}
    for test in tests:
        tell(f"{test.node} is tested: {test.why}")
        found.setdefault(test.depths, {})[test.node] = test.pool
    return found


def _prove(
    profile: ClusterProfile,
    suite: SuiteProfile,
    depths: Sequence[Level],
    pools: Mapping[str, str],
    joins: Collection[str],
    tell: Tell,
) -> list[Outcome]:
    """One test; where one of the nodes joins (`joins`), with a partner for who would meet nobody."""
    beside = with_partners(profile, suite, depths, pools, tell) if any(name in joins for name in pools) else pools
    return prove(profile, suite, _words(depths), beside, tell, STRICTLY)


def wishes_of(profile: ClusterProfile) -> Wishes:
    """What the profile wants of each occasion."""
    wanted: Occasions = profile.admission.depths
    depths = {occasion: tuple(Level(depth) for depth in getattr(wanted, field)) for occasion, field in FIELDS.items()}
    gate = {Occasion.START_UP: tuple(Level(depth) for depth in depths_to_join(profile.admission))}
    return Wishes(depths | gate, profile.admission.max_testing_share)


def _words(depths: Sequence[Level]) -> tuple[Depth, ...]:
    found: list[Depth] = [depth for depth in DEPTHS if Level(depth) in depths]
    return tuple(found)


def _happenings(
    profile: ClusterProfile, nodes: Mapping[str, Node], *, nightly: bool
) -> dict[str, dict[Occasion, float]]:
    """What happened to each node lately, and when (Unix seconds)."""
    since = world().now() - LOOK_BACK_SECONDS
    found: dict[str, dict[Occasion, float]] = {name: {} for name in nodes}
    events = [*_joined(nodes.values()), *_given_back(profile), *_suspected(since), *_left_by_runs(profile, since)]
    # Tested until the taint is off, whatever was passed before: only tests of that moment take it away.
    events += [(name, Occasion.START_UP, world().now()) for name, node in nodes.items() if node.joining]
    if nightly:
        events += [(name, Occasion.NIGHTLY, world().now()) for name in nodes]
    for name, occasion, at in events:
        if name in found and at >= since:
            found[name][occasion] = max(at, found[name].get(occasion, 0.0))
    return found


def _joined(nodes: Iterable[Node]) -> Iterable[Happening]:
    return [(node.name, Occasion.JOIN, node.created_at) for node in nodes if node.created_at is not None]


def _given_back(profile: ClusterProfile) -> Iterable[Happening]:
    back = released_at(world().ledger.nodes(profile.name))
    return [(name, Occasion.AFTER_REPAIR, at) for name, at in back.items()]


def _suspected(since: float) -> Iterable[Happening]:
    lines, _ = world().ledger.incident_lines(IncidentQuery(since=since))
    incidents = [line.incident for line in lines]
    return [(name, Occasion.SUSPECT, item.detected_at) for item in incidents for name, _ in item.culprits]


def _left_by_runs(profile: ClusterProfile, since: float) -> Iterable[Happening]:
    """The nodes of the last attempt of each run that ended."""
    ledger = world().ledger
    ended = [run for run in ledger.run_lines(tuple(FINISHED), since) if run.cluster == profile.name]
    return [
        (name, Occasion.POST_FLIGHT, run.ended_at)
        for run in ended
        if run.ended_at is not None
        for attempt in ledger.attempts(run.name)[-1:]
        for name in attempt.nodes
    ]


@dataclass
class AfterTests:
    """Looks after the tests of one cluster, a moment at a time."""

    profile: ClusterProfile
    tell: TellNode
    _seen: int = -1
    """Number of the newest verdict that was looked at."""
    _looked_at: float = -LOOK_SECONDS
    _open: list[NodeFinding] = field(default_factory=list[NodeFinding])
    """Failures that were found last: a pause or a brake may have kept them from being acted upon."""

    def take(self, nodes: Sequence[Node]) -> list[NodeFinding]:
        """Release holds whose time is up; returns failures of tests against nodes without a hold.

        Raises:
            Unavailable, Refused.
        """
        marked = [node.name for node in nodes if any(taint.key == labels.HOLD_TAINT for taint in node.taints)]
        if marked:
            found = [item for name in marked if (item := current().get("Node", name)) is not None]
            for name in free_expired(found):
                self.tell(NodeNotice(world().now(), "released", name, "its hold for a test had run out"))
        here = world()
        newest, now = here.ledger.last_verdict_number(), here.now()
        if newest != self._seen or self._open or now - self._looked_at >= LOOK_SECONDS:
            proofs = tests_now(here.ledger, self.profile, now)
            free = [node for node in nodes if not out_of_service(node)]
            self._write(outdated(free, proofs))
            self._open = findings_of(proofs, {node.name: node.pool for node in free})
            self._seen, self._looked_at = newest, now
        return list(self._open)

    def _write(self, marks: Sequence[VerdictMark]) -> None:
        """Write some on their nodes; what cannot be written now is tried with the next look."""
        now = world().now()
        tell_nodes(marks[:AT_ONCE], lambda node, why: self.tell(NodeNotice(now, "failed", node, f"its verdict: {why}")))


def outdated(nodes: Sequence[Node], proofs: Mapping[str, NodeProof]) -> list[VerdictMark]:
    """Marks for nodes whose own say something else than what is to be believed of them now."""
    found: list[VerdictMark] = []
    for node in nodes:
        if (proof := proofs.get(node.name)) is not None:
            mark = verdict_mark_of(node.name, proof)
            if node.verdict != mark.word or node.verdict_at != int(mark.at):
                found.append(mark)
    return found
