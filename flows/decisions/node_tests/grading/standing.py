"""What holds now for a node, from all verdicts about it and what people said meanwhile. Pure.

A failure stays until a newer pass of an equal or deeper test; fabric and storage do not speak for each other. A pass is
good for so many hours; then the node is unknown, and unknown is never healthy. The newest verdict alone does not
decide: a shallow test that passes says nothing against a deep test that failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.node_tests.grading.model import DEEPER, Depth
from flows.decisions.recovery.nodes import natural
from flows.decisions.text import age
from profiles.checks.suite import Lifetimes
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.model.nodes import NodeFinding
from workflows.model.records import NodeRecord, VerdictRecord

SKEW_SECONDS = 300.0
"""A pass dated further ahead than this is not believed: it would be good for ever. Clocks of nodes are allowed less."""
DEPTHS: Mapping[str, Depth] = {**{str(depth): depth for depth in Depth}, "sweep": Depth.GATE, "condition": Depth.SMOKE}
"""The words of the ledger. Two are no test of a suite: a sweep runs the gate's program; a condition is what the node's
own watchers found, of which a gate sees nothing."""

TESTS = frozenset(Depth) - {Depth.GATE}
"""Depths of preflight. A gate's failure is the failure of the attempt that it guarded, and dealt with there."""
BY_TEST = "preflight-"
"""Beginning of a finding's condition where it was a test that failed; the depth follows."""


@dataclass(frozen=True)
class DepthProof:
    """What one depth of tests says about a node now."""

    depth: Depth
    word: VerdictWord
    why: str
    at: float | None = None
    """When the verdict was given that decides, Unix seconds; None: there is none."""
    until_at: float | None = None
    """A pass: when it stops to hold."""


@dataclass(frozen=True)
class NodeStanding:
    """What holds for a node."""

    node: str
    word: VerdictWord
    why: str
    """One sentence; of a failure the oldest that stands."""
    proofs: Mapping[Depth, DepthProof] = field(default_factory=dict[Depth, DepthProof])
    """Of each depth that is wanted, the shallowest first."""
    failures: tuple[VerdictRecord, ...] = ()
    """Those that stand, the oldest first."""


def standing_of(
    node: str, records: Iterable[VerdictRecord], wanted: Iterable[Depth], hours: Mapping[Depth, float], now: float
) -> NodeStanding:
    """What holds now for a node.

    It fails where any failure stands, of whatever depth. It passes where each wanted depth has a pass that still holds;
    where none is wanted nothing is proven, which is unknown. `records` may be of any nodes and in any order; `wanted`:
    depths that must be proven. `hours`: how long a pass of each depth is good for; a depth that is missing is good for
    nothing.
    """
    own = [item for item in records if item.node == node]
    passes, silent = _newest(own, VerdictWord.PASS, now), _newest(own, VerdictWord.UNKNOWN, now)
    failures = tuple(_standing_failures(own, passes, now))
    known = _Verdicts(failures, passes, silent, hours, now)
    proofs = {depth: _proof(depth, known) for depth in Depth if depth in set(wanted)}
    if failures:
        return NodeStanding(node, VerdictWord.FAIL, _failed(failures[0], now), proofs, failures)
    lacking = next((proof for proof in proofs.values() if proof.word is not VerdictWord.PASS), None)
    if lacking is not None:
        return NodeStanding(node, VerdictWord.UNKNOWN, f"{lacking.depth}: {lacking.why}", proofs)
    if not proofs:
        return NodeStanding(node, VerdictWord.UNKNOWN, "no test is asked of it, so nothing is proven")
    return NodeStanding(node, VerdictWord.PASS, "; ".join(f"{d}: {proof.why}" for d, proof in proofs.items()), proofs)


def standings(
    nodes: Iterable[str],
    records: Iterable[VerdictRecord],
    wanted: Iterable[Depth],
    hours: Mapping[Depth, float],
    now: float,
) -> dict[str, NodeStanding]:
    """The same for many nodes, in their order; a node without a verdict is unknown."""
    by_node: dict[str, list[VerdictRecord]] = {}
    for record in records:
        by_node.setdefault(record.node, []).append(record)
    depths = tuple(wanted)
    return {node: standing_of(node, by_node.get(node, ()), depths, hours, now) for node in nodes}


def depth_of(record: VerdictRecord) -> Depth | None:
    """The depth of a verdict; None: a word that is not known here."""
    return DEPTHS.get(record.depth)


@dataclass(frozen=True)
class _Verdicts:
    """What counts of all verdicts about a node."""

    failures: tuple[VerdictRecord, ...]
    passes: Mapping[Depth, VerdictRecord]
    """The newest of each depth."""
    silent: Mapping[Depth, VerdictRecord]
    """The newest of each depth that could not tell."""
    hours: Mapping[Depth, float]
    now: float


def _newest(own: Iterable[VerdictRecord], word: VerdictWord, now: float) -> dict[Depth, VerdictRecord]:
    """By depth; one that is dated ahead only where there is no other."""
    found: dict[Depth, VerdictRecord] = {}
    for record in own:
        if record.verdict is word and (depth := depth_of(record)) is not None:
            before = found.get(depth)
            if before is None or _weight(record, now) > _weight(before, now):
                found[depth] = record
    return found


def _weight(record: VerdictRecord, now: float) -> tuple[bool, float]:
    return (record.at <= now + SKEW_SECONDS, record.at)


def _standing_failures(
    own: Iterable[VerdictRecord], passes: Mapping[Depth, VerdictRecord], now: float
) -> list[VerdictRecord]:
    """Failures that no newer pass of an equal or deeper test has cleared, the oldest first."""
    passed = {depth: item.at for depth, item in passes.items() if item.at <= now + SKEW_SECONDS}
    stands: list[VerdictRecord] = []
    for record in own:
        if record.verdict is VerdictWord.FAIL:
            # A failure of an unknown depth is cleared by the deepest test alone: nothing less surely covers it.
            clearing = DEEPER[depth_of(record) or Depth.TRAINING]
            if not any(passed[depth] > record.at for depth in clearing if depth in passed):
                stands.append(record)
    return sorted(stands, key=lambda item: (item.at, item.depth))


def _proof(depth: Depth, known: _Verdicts) -> DepthProof:
    """What a depth says: its failure, else the pass that holds longest, else why nothing is known.

    A test that could not tell takes back the older passes of its depth: what they found may no longer be so.
    """
    now, silent = known.now, known.silent.get(depth)
    failed = next((item for item in known.failures if depth_of(item) is depth), None)
    if failed is not None:
        return DepthProof(depth, VerdictWord.FAIL, _failed(failed, now), failed.at)
    since = silent.at if silent is not None else -math.inf
    speaking = [known.passes[own] for own in Depth if own in DEEPER[depth] and own in known.passes]
    passes = [_passed(depth, item, known.hours, now) for item in speaking if item.at >= since]
    best = max(passes, key=lambda item: (item.word is VerdictWord.PASS, item.until_at or 0.0), default=None)
    if best is not None:
        return best
    if silent is not None:
        why = f"its last test, {age(now - since)} ago, {_could_not(silent)}"
        return DepthProof(depth, VerdictWord.UNKNOWN, why, since)
    return DepthProof(depth, VerdictWord.UNKNOWN, "it was never tested")


def _passed(depth: Depth, record: VerdictRecord, hours: Mapping[Depth, float], now: float) -> DepthProof:
    """What a pass of this or a deeper depth is worth now. It is good for the shorter of both depths' times."""
    own = depth_of(record) or depth
    good_seconds = 3600.0 * min(hours.get(own, 0.0), hours.get(depth, 0.0))
    until_at = record.at + good_seconds
    by = "" if own is depth else f" in test {own}"
    if record.at > now + SKEW_SECONDS:
        why = f"its pass{by} is dated {age(record.at - now)} ahead"
        return DepthProof(depth, VerdictWord.UNKNOWN, why, record.at, now)
    if not now < until_at:
        why = f"its pass{by}, {age(now - record.at)} ago, was good for {age(good_seconds)}"
        return DepthProof(depth, VerdictWord.UNKNOWN, why, record.at, until_at)
    return DepthProof(depth, VerdictWord.PASS, f"passed{by} {age(now - record.at)} ago", record.at, until_at)


def _could_not(record: VerdictRecord) -> str:
    return f"could not tell ({reason})" if (reason := _reason(record, VerdictWord.UNKNOWN)) else "could not tell"


def _failed(record: VerdictRecord, now: float) -> str:
    reason = _reason(record, VerdictWord.FAIL)
    return (
        f"failed test {record.depth} {age(now - record.at)} ago{f' ({reason})' if reason else ''}, and none cleared it"
    )


def _reason(record: VerdictRecord, word: VerdictWord) -> str:
    """The first check that said so; a warning decided nothing."""
    for reason in record.reasons:
        if reason.get("verdict") == word and reason.get("severity") != "warning":
            return f"{reason.get('check', 'test')}: {reason.get('evidence', '')}".rstrip(": ")
    return ""


@dataclass(frozen=True)
class NodeProof:
    """What is known of a node."""

    standing: NodeStanding
    deciding: VerdictRecord | None = None
    """The verdict that decides: the oldest failure that stands, else the newest verdict. None: never tested."""


def hours_of(lifetimes: Lifetimes) -> dict[Depth, float]:
    """How long a pass of each depth is good for; a gate looks at what a smoke test looks at."""
    own = {depth: lifetimes.of(str(depth)) for depth in TESTS}  # type: ignore[arg-type]
    return {Depth.GATE: own[Depth.SMOKE], **own}


def released_at(states: Iterable[NodeRecord]) -> dict[str, float]:
    """Node -> when it was given back last, of those that are in service."""
    return {item.node: item.since for item in states if item.state == "schedulable"}


def counting(records: Iterable[VerdictRecord], released: Mapping[str, float]) -> list[VerdictRecord]:
    """Without failures from before a node was released: the person who released it has answered for them.

    They are gone, and not turned into passes: what they failed is not proven until a test passes.
    """
    return [item for item in records if item.verdict is not VerdictWord.FAIL or item.at > released.get(item.node, -1.0)]


def proof_of(node: str, own: Sequence[VerdictRecord], hours: Mapping[Depth, float], now: float) -> NodeProof:
    """What is known of a node by its own counting verdicts, at the depth that was tested last."""
    newest = max(own, key=lambda item: item.at, default=None)
    if newest is None:
        return NodeProof(NodeStanding(node, VerdictWord.UNKNOWN, "it was never tested"))
    depth = depth_of(newest)
    standing = standing_of(node, own, () if depth is None else (depth,), hours, now)
    return NodeProof(standing, standing.failures[0] if standing.failures else newest)


def proofs_of(
    records: Iterable[VerdictRecord], released: Mapping[str, float], hours: Mapping[Depth, float], now: float
) -> dict[str, NodeProof]:
    """The same for every node with a verdict.

    `records`: those that can matter (`Ledger.deciding_verdicts`), of one cluster.
    """
    by_node: dict[str, list[VerdictRecord]] = {}
    for item in counting(records, released):
        by_node.setdefault(item.node, []).append(item)
    return {node: proof_of(node, own, hours, now) for node, own in by_node.items()}


def findings_of(proofs: Mapping[str, NodeProof], pools: Mapping[str, str]) -> list[NodeFinding]:
    """Failed tests that stand, as what the brake decides about; nodes without a pool of ours are left out.

    What sweeps and conditions found comes by itself and is not reported twice.
    """
    found: list[NodeFinding] = []
    for node in sorted(set(proofs) & set(pools), key=natural):
        failed = next((item for item in proofs[node].standing.failures if is_test(item)), None)
        if failed is not None:
            found.append(_finding(failed, pools[node]))
    return found


def failed_test(standing: NodeStanding) -> str | None:
    """What failed, where a test did whose failure stands; None: none did. A gate's failure is no test's."""
    failed = next((item for item in standing.failures if is_test(item)), None)
    return None if failed is None else f"{failed.depth}: {_finding(failed, '').why}"


def is_test(record: VerdictRecord) -> bool:
    """Whether it comes from a test of a suite."""
    return record.depth in {str(depth) for depth in TESTS}


def _finding(record: VerdictRecord, pool: str) -> NodeFinding:
    failed = (item for item in record.reasons if item.get("verdict") == "fail" and item.get("severity") != "warning")
    bad = sorted(failed, key=lambda item: not item.get("decides"))
    word = str(bad[0].get("class", "")) if bad else ""
    known = FaultClass(word) if word in tuple(FaultClass) else FaultClass.UNKNOWN
    evidence = f"{bad[0].get('check')}: {bad[0].get('evidence', '')}".rstrip(": ") if bad else "it failed its test"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return NodeFinding(
        node=record.node,
        pool=pool,
        condition=f"{BY_TEST}{record.depth}",
        verdict=VerdictWord.FAIL,
        fault_class=known,
        why=f"{evidence}{more}",
        since=record.at,
        certain=bool(bad[0].get("certain", True)) if bad else True,
        judged=True,
    )
