"""`primus verdict`: what the last test said about a node."""

from __future__ import annotations

import os
import time
from typing import Any

from deployments.edge import FAILED, GOOD, UNKNOWN, out, out_json
from deployments.people import open_ledger
from flows.decisions.spans import age, timestamp
from profiles.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.settings import Settings
from workflows.records import VerdictRecord

Json = dict[str, Any]


def show_verdict(node: str, cluster: str, *, as_json: bool) -> int:
    """The newest verdict about a node, with its evidence.

    Returns:
        0 where it passed, 1 where it failed, 3 where nobody knows.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the ledger does not answer.
    """
    settings = Settings.from_environment(os.environ)
    name, ledger = load_cluster(cluster or settings.cluster).name, open_ledger()
    found = ledger.verdicts(name, node)
    newest = found[-1] if found else None
    word = newest.verdict if newest else VerdictWord.UNKNOWN
    if as_json:
        out_json({"node": node, "cluster": name, "verdict": str(word), **(verdict_row(newest) if newest else {})})
    else:
        out("\n".join(verdict_lines(newest, time.time())) if newest else f"{node}: unknown: it was never tested")
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED}.get(word, UNKNOWN)


def verdict_lines(verdict: VerdictRecord, now: float) -> list[str]:
    """A verdict with its evidence."""
    by = f", by {verdict.source}" if verdict.source else ""
    lines = [f"{verdict.node}: {verdict.verdict} ({verdict.depth}, {age(now - verdict.at)} ago{by})"]
    for reason in verdict.reasons:
        unit, measured = f" {reason['unit']}" if reason.get("unit") else "", reason.get("measured")
        figures = "" if measured is None else f": {measured}{unit}, limit {reason.get('limit')}"
        said = f": {reason['evidence']}" if reason.get("evidence") else ""
        lines.append(f"  {reason.get('check', 'test')}  {reason.get('verdict', '')}{figures}{said}")
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
