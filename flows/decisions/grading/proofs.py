"""What is to be believed of each node now, for those who show it and those who act on it. Pure.

Standing looks at one node's verdicts; this adds what people said meanwhile, how long passes are good for, and what a
failure that stands leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.grading.model import Depth
from flows.decisions.grading.standing import NodeStanding, depth_of, standing_of
from flows.decisions.nodes import natural
from profiles.suite import Lifetimes
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.node_sight import NodeFinding
from workflows.records import NodeRecord, VerdictRecord

TESTS = frozenset(Depth) - {Depth.GATE}
"""Depths of preflight. A gate's failure is the failure of the attempt that it guarded, and dealt with there."""
BY_TEST = "preflight-"
"""Beginning of a finding's condition where it was a test that failed; the depth follows."""


@dataclass(frozen=True)
class Proof:
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
    """Without the failures from before a node was given back: whoever did that has answered for them.

    They are gone, and not turned into passes: what they failed is not proven until a test passes.
    """
    return [item for item in records if item.verdict is not VerdictWord.FAIL or item.at > released.get(item.node, -1.0)]


def proof_of(node: str, own: Sequence[VerdictRecord], hours: Mapping[Depth, float], now: float) -> Proof:
    """What is known of a node by its own counting verdicts, at the depth that was tested last."""
    newest = max(own, key=lambda item: item.at, default=None)
    if newest is None:
        return Proof(NodeStanding(node, VerdictWord.UNKNOWN, "it was never tested"))
    depth = depth_of(newest)
    standing = standing_of(node, own, () if depth is None else (depth,), hours, now)
    return Proof(standing, standing.failures[0] if standing.failures else newest)


def proofs_of(
    records: Iterable[VerdictRecord], released: Mapping[str, float], hours: Mapping[Depth, float], now: float
) -> dict[str, Proof]:
    """The same for every node with a verdict.

    Args:
        records: those that can matter (`Ledger.deciding_verdicts`), of one cluster.
        released: `released_at`.
        hours: `hours_of`.
        now: Unix seconds.
    """
    by_node: dict[str, list[VerdictRecord]] = {}
    for item in counting(records, released):
        by_node.setdefault(item.node, []).append(item)
    return {node: proof_of(node, own, hours, now) for node, own in by_node.items()}


def findings_of(proofs: Mapping[str, Proof], pools: Mapping[str, str]) -> list[NodeFinding]:
    """Failed tests that stand, as what the brake decides about; nodes without a pool of ours are left out.

    What sweeps and conditions found comes by itself and is not told twice.
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
    said = f"{bad[0].get('check')}: {bad[0].get('evidence', '')}".rstrip(": ") if bad else "it failed its test"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return NodeFinding(
        node=record.node,
        pool=pool,
        condition=f"{BY_TEST}{record.depth}",
        verdict=VerdictWord.FAIL,
        fault_class=known,
        why=f"{said}{more}",
        since=record.at,
        certain=bool(bad[0].get("certain", True)) if bad else True,
        judged=True,
    )
