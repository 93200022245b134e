"""`primus verdict`: what is to be believed of a node now, and by which test."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from deployments.edge import FAILED, GOOD, UNKNOWN, out, out_json
from deployments.people import open_ledger
from flows.decisions.spans import age, timestamp
from flows.proofs import proofs_now
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
    if as_json:
        told = verdict_row(deciding) if deciding else {}
        out_json({"node": node, "cluster": profile.name, **told, "verdict": str(word), "why": why})
    else:
        out("\n".join([f"{node}: {word} ({why})", *(verdict_lines(deciding, now) if deciding else ())]))
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED}.get(word, UNKNOWN)


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
        unit, measured = f" {reason['unit']}" if reason.get("unit") else "", reason.get("measured")
        figures = "" if measured is None else f": {measured}{unit}, limit {reason.get('limit')}"
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
