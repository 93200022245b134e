"""`primus verdict`: what is to be believed of a node now, and by which test."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from deployments.edge import FAILED, GOOD, UNKNOWN, out, out_json
from deployments.people import open_ledger
from deployments.verdict_rows import figure
from flows.decisions.grading.standing import Proof
from flows.decisions.spans import age, timestamp
from flows.proofs import depths_now, proofs_now
from profiles.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.settings import Settings
from workflows.records import VerdictRecord

Json = dict[str, Any]


def show_verdict(node: str, cluster: str, *, as_json: bool) -> int:
    """What is to be believed of a node now, by which test, with its evidence.

    Returns:
        0 where it is proven, 1 where a failure stands, 3 where nobody knows.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the ledger does not answer.
    """
    settings, now = Settings.from_environment(os.environ), time.time()
    profile, ledger = load_cluster(cluster or settings.cluster), open_ledger()
    proof = proofs_now(ledger, profile, now).get(node)
    word = proof.standing.word if proof else VerdictWord.UNKNOWN
    deciding = whole(proof.deciding, ledger.verdicts(profile.name, node)) if proof else None
    why = proof.standing.why if proof else "it was never tested"
    by_depth = depths_now(ledger, profile, node, now).proofs
    if as_json:
        told = verdict_row(deciding) if deciding else {}
        depths = {depth: depth_row(one) for depth, one in by_depth.items()}
        out_json({"node": node, "cluster": profile.name, **told, "verdict": str(word), "why": why, "depths": depths})
    else:
        shown = [f"  {depth}: {one.word}: {one.why}" for depth, one in by_depth.items()] if len(by_depth) > 1 else []
        lines = verdict_lines(deciding, now) if deciding else []
        out("\n".join([f"{node}: {word} ({why})", *shown, *lines]))
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED}.get(word, UNKNOWN)


def depth_row(proof: Proof) -> Json:
    """What one depth says, as JSON."""
    return {"verdict": str(proof.word), "why": proof.why, "at": timestamp(proof.at), "until": timestamp(proof.until_at)}


def whole(record: VerdictRecord | None, every: Sequence[VerdictRecord]) -> VerdictRecord | None:
    """The record with all its reasons: of what decides only those of failures are read at first."""
    if record is None:
        return None
    key = (record.depth, record.at, record.source, record.verdict)
    return next((item for item in every if (item.depth, item.at, item.source, item.verdict) == key), record)


def verdict_lines(verdict: VerdictRecord, now: float) -> list[str]:
    """A verdict with its evidence."""
    by = f", by {verdict.source}" if verdict.source else ""
    lines = [f"{verdict.verdict} ({verdict.depth}, {age(now - verdict.at)} ago{by})"]
    for reason in verdict.reasons:
        unit, measured = str(reason.get("unit") or ""), reason.get("measured")
        limit = figure(reason.get("limit"), unit)
        figures = "" if measured is None else f": {figure(measured, unit)}, limit {limit}"
        said = f": {reason['evidence']}" if reason.get("evidence") else ""
        lines.append(f"  {reason.get('check', 'test')}  {reason.get('verdict', '')}{figures}{said}")
        if reason.get("what_to_do"):
            lines.append(f"    {reason['what_to_do']}")
    return lines


def verdict_row(verdict: VerdictRecord) -> Json:
    """A verdict as JSON."""
    return {
        "depth": verdict.depth,
        "tested_at": timestamp(verdict.at),
        "source": verdict.source,
        "verdict": str(verdict.verdict),
        "reasons": [dict(reason) for reason in verdict.reasons],
    }
