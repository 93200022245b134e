"""Which nodes must be tested and how deeply, and which a run may have: what holds against what is wanted. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from flows.decisions.node_tests.grading.model import DEEP, Depth
from flows.decisions.node_tests.grading.standing import NodeStanding, depth_of, failed_test
from flows.decisions.recovery.nodes import NOT_PROVEN, NodeChoice, natural
from profiles.vocabulary import VerdictWord
from workflows.model.fleet import NodeCandidate


class Occasion(StrEnum):
    """Why a node is tested, the most urgent first."""

    BEFORE_RUN = "before-run"
    SUSPECT = "suspect"
    AFTER_REPAIR = "after-repair"
    START_UP = "start-up"
    """It carries the taint with which nodes join: nothing but a test takes that away."""
    JOIN = "join"
    POST_FLIGHT = "post-flight"
    NIGHTLY = "nightly"


AFRESH = frozenset({Occasion.SUSPECT, Occasion.AFTER_REPAIR, Occasion.START_UP, Occasion.JOIN, Occasion.POST_FLIGHT})
"""Only a proof that is younger than the occasion counts: what was before speaks of another state of the node."""
UNBRAKED = frozenset({Occasion.BEFORE_RUN, Occasion.START_UP})
"""These nodes are set aside for the run already, or take no work yet: testing all of them at once takes none from
anybody."""


@dataclass(frozen=True)
class Wishes:
    """What the cluster profile wants."""

    depths: Mapping[Occasion, tuple[Depth, ...]]
    """Depths that must be proven on each occasion; none: nothing is tested then."""
    max_share: float = 0.1
    """Of a pool's nodes at most this share is tested deeply at once, before runs excepted (one node always may be)."""


@dataclass(frozen=True)
class Candidate:
    """A node that may have to be tested."""

    node: str
    pool: str
    standing: NodeStanding
    """With the proofs of all depths that any wish names."""
    occasions: Mapping[Occasion, float] = field(default_factory=dict[Occasion, float])
    """What happened to it, and when (Unix seconds)."""
    idle: bool = True
    """Nobody uses its GPUs."""
    testing: bool = False
    """A test runs there now."""


@dataclass(frozen=True)
class NodeTest:
    """A test that is due."""

    node: str
    pool: str
    occasion: Occasion
    depths: tuple[Depth, ...]
    """The shallowest first: it saves the deeper ones where it fails."""
    why: str


@dataclass(frozen=True)
class Admission:
    """What is tested now, and what waits."""

    tests: tuple[NodeTest, ...] = ()
    waiting: tuple[tuple[NodeTest, str], ...] = ()
    """With what they wait for."""


@dataclass(frozen=True)
class Schedulable:
    """Which nodes a run may use."""

    fit: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    """(node, why not)."""


def due_tests(candidates: Sequence[Candidate], wishes: Wishes, pool_sizes: Mapping[str, int]) -> Admission:
    """What is tested now and what waits; the most urgent occasion first, then the proof that is oldest, then by name.

    A test that holds shallow and deep depths is one test: it waits as a whole.
    """
    tests = [found for item in candidates if (found := _due(item, wishes)) is not None]
    by_name = {item.node: item for item in candidates}
    tests.sort(
        key=lambda test: (list(Occasion).index(test.occasion), _oldest(test, by_name[test.node]), natural(test.node))
    )
    busy: dict[str, int] = {}
    for item in candidates:
        busy[item.pool] = busy.get(item.pool, 0) + item.testing
    now: list[NodeTest] = []
    waiting: list[tuple[NodeTest, str]] = []
    for test in tests:
        if why := _reason_to_wait(test, by_name[test.node], busy, wishes, pool_sizes):
            waiting.append((test, why))
            continue
        now.append(test)
        if _braked(test):
            busy[test.pool] = busy.get(test.pool, 0) + 1
    return Admission(tuple(now), tuple(waiting))


def schedulable(standings: Iterable[NodeStanding], named: Collection[str] = ()) -> Schedulable:
    """Which nodes may be used, by their names. A node that failed never may.

    `named`: nodes that somebody named and takes though they are unknown.
    """
    fit: list[str] = []
    refused: list[tuple[str, str]] = []
    for item in sorted(standings, key=lambda one: natural(one.node)):
        match item.word:
            case VerdictWord.PASS:
                fit.append(item.node)
            case VerdictWord.UNKNOWN if item.node in named:
                fit.append(item.node)
            case VerdictWord.UNKNOWN:
                refused.append((item.node, f"not proven: {item.why}"))
            case VerdictWord.FAIL:
                refused.append((item.node, item.why))
    return Schedulable(tuple(fit), tuple(refused))


def _due(item: Candidate, wishes: Wishes) -> NodeTest | None:
    """The most urgent test that the node needs, with the depths that its other occasions want too; None: none."""
    wanted = {occasion: _lacking(item, occasion, wishes) for occasion in Occasion if occasion in item.occasions}
    first = next((occasion for occasion, depths in wanted.items() if depths), None)
    if first is None:
        return None
    reasons = {depth: why for depths in reversed(wanted.values()) for depth, why in depths.items()}
    depths = tuple(depth for depth in Depth if depth in reasons)
    return NodeTest(item.node, item.pool, first, depths, f"{first}: {depths[0]}: {reasons[depths[0]]}")


def _lacking(item: Candidate, occasion: Occasion, wishes: Wishes) -> dict[Depth, str]:
    """Depth -> why it is not proven as the occasion wants it."""
    failures = item.standing.failures
    depths = set(wishes.depths.get(occasion, ()))
    if failures:
        repaired_at = item.occasions[occasion] if occasion is Occasion.AFTER_REPAIR else -math.inf
        if any(failure.at > repaired_at for failure in failures):
            return {}  # it is out until it is repaired; a test would only find the same
        # A test that is shallower than what failed would leave the failure standing.
        depths |= {depth_of(failure) or Depth.TRAINING for failure in failures}
    since = item.occasions[occasion] if occasion in AFRESH else -math.inf
    return {depth: why for depth in depths if (why := _unproven(item, depth, since))}


def _unproven(item: Candidate, depth: Depth, since: float) -> str:
    """Why a depth is not proven since then; "" where it is."""
    proof = item.standing.proofs.get(depth)
    if proof is None:
        return "nothing is known"
    if proof.word is not VerdictWord.PASS:
        return proof.why
    return "" if proof.at is not None and proof.at > since else "its proof is older than what happened"


def _oldest(test: NodeTest, item: Candidate) -> float:
    """When the oldest proof that the test renews was given; never is the oldest of all."""
    proof_times = [proof.at for depth in test.depths if (proof := item.standing.proofs.get(depth)) is not None]
    return min((-math.inf if at is None else at for at in proof_times), default=-math.inf)


def _braked(test: NodeTest) -> bool:
    return test.occasion not in UNBRAKED and bool(DEEP & set(test.depths))


def _reason_to_wait(
    test: NodeTest, item: Candidate, busy: Mapping[str, int], wishes: Wishes, pool_sizes: Mapping[str, int]
) -> str:
    """Why a test waits; "" where it begins."""
    if item.testing:
        return "a test runs there now"
    if DEEP & set(test.depths) and not item.idle:
        return "its GPUs are in use, and the test needs them for itself"
    allowed = max(1, int(wishes.max_share * pool_sizes.get(test.pool, 0)))
    if _braked(test) and busy.get(test.pool, 0) >= allowed:
        size = pool_sizes.get(test.pool, 0)
        return f"{busy[test.pool]} of {size} nodes of pool {test.pool} are tested now, at most {allowed} may be"
    return ""


def judged(
    candidates: Sequence[NodeCandidate],
    standings: Mapping[str, NodeStanding],
    allowed: Collection[str],
    tried: Mapping[str, str],
) -> list[NodeCandidate]:
    """The candidates with what tests say of them.

    `standings`: where proofs are wanted or a test has failed; a node that is missing is left to the gate. `allowed`:
    nodes that somebody named: they may be used though they are unknown, never where they failed. `tried`: nodes that
    were tested for this choice already, and what came of it where that is no verdict ("": one).
    """
    return [_judged(node, standings.get(node.name), allowed, tried) for node in candidates]


def _judged(
    node: NodeCandidate, standing: NodeStanding | None, allowed: Collection[str], tried: Mapping[str, str]
) -> NodeCandidate:
    if standing is None:
        return node
    if (failed := failed_test(standing)) is not None:
        return replace(node, verdict=VerdictWord.FAIL, verdict_why=failed)
    if not standing.proofs or node.name in allowed:
        return node
    if standing.word is VerdictWord.PASS:
        return replace(node, verdict=standing.word)
    # Also where a gate's or a sweep's failure stands: a test that passed would have cleared it.
    return replace(node, unproven=tried[node.name] or standing.why) if node.name in tried else node


def to_test(
    choice: NodeChoice, standings: Mapping[str, NodeStanding], allowed: Collection[str], tried: Collection[str]
) -> tuple[str, ...]:
    """The chosen nodes of which too little is known, in the order of ranks; those that failed are never chosen."""
    return tuple(
        node
        for node in choice.nodes
        if node not in allowed
        and node not in tried
        and (standing := standings.get(node)) is not None
        and standing.proofs
        and standing.word is not VerdictWord.PASS
    )


def waits_for_proofs(choice: NodeChoice) -> str:
    """Why nothing is begun yet: there were enough nodes if those were proven of which too little is known; else ""."""
    unproven = [node for node, why in choice.refused if why.startswith(NOT_PROVEN)]
    if not choice.missing or len(unproven) < choice.missing:
        return ""
    return f"waits for proven nodes: {choice.why}"
