"""`primus nodes --drift`: what nodes of a pool should have in common, and who differs. Accuses nobody by itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.edge import GOOD, UNKNOWN, out, out_json, say
from deployments.fleet import Fleet, see
from deployments.people import open_ledger
from deployments.tables import cut, fitted, terminal_columns
from flows.decisions.grading.drift import DriftRow, Shift, drift_table, facts_of, shifts
from flows.decisions.nodes import natural
from flows.decisions.spans import age, timestamp
from tasks.ledger import Ledger

Json = dict[str, Any]
DEPTH = "smoke"
"""The test that looks at versions and settings; a gate looks at none, and deeper ones are rare."""
COLUMNS = ("pool", "property", "majority", "share", "different")
NO_POOL = "no pool"
WORD_CHARACTERS = 60
"""Of a word that most nodes tell: boot arguments are longer than a screen is wide; `--json` has the whole."""
NAMES = 8
"""Nodes that a line names; `--json` has all of them."""


@dataclass(frozen=True)
class Told:
    """What the newest tests told of the nodes of a cluster."""

    now: Mapping[str, Mapping[str, str]]
    """Node -> property -> word."""
    before: Mapping[str, Mapping[str, str]]
    """The same of the test before."""
    at: Mapping[str, float]
    """Node -> when its newest test was, Unix seconds."""


@dataclass(frozen=True)
class Drift:
    """What nodes have in common, by pool."""

    rows: tuple[DriftRow, ...]
    """By pool and property; `hardware` is the pool with its hardware."""
    moved: tuple[Shift, ...]
    at: Mapping[str, float]
    racks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> rack."""
    silent: tuple[str, ...] = ()
    """Nodes that were never tested."""


def show_drift(cluster: str, *, as_json: bool) -> int:
    """What nodes of each pool have in common, and who differs from most of them.

    Returns:
        0, also where nodes differ: a difference is no failure; 3 where nothing is known, or the cluster is away.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the ledger does not answer.
    """
    fleet = see(cluster)
    found = drift_of(fleet, told_by_tests(open_ledger(), fleet.profile.name))
    if as_json:
        out_json(drift_document(fleet.profile.name, found))
    else:
        out("\n".join(drift_lines(fleet.profile.name, found, time.time(), terminal_columns())))
    if fleet.away:
        say(f"{fleet.profile.name} does not answer, this is what the ledger knows: {fleet.away}")
    return GOOD if found.rows and not fleet.away else UNKNOWN


def told_by_tests(ledger: Ledger, cluster: str) -> Told:
    """What the newest test of each node told, and the one before.

    Raises:
        Unavailable.
    """
    facts: tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]] = ({}, {})
    at: dict[str, float] = {}
    for turn, record in ledger.last_tests(cluster, DEPTH):
        facts[turn][record.node] = facts_of(record.reasons)
        if turn == 0:
            at[record.node] = record.at
    return Told(facts[0], facts[1], at)


def drift_of(fleet: Fleet, told: Told) -> Drift:
    """Nodes that the cluster has, pool by pool: other pools differ rightly, also where their hardware is the same."""
    hardware = {pool.name: pool.hardware for pool in fleet.profile.pools}
    kinds = {
        node.name: f"{node.pool} ({hardware[node.pool]})" if node.pool in hardware else node.pool or NO_POOL
        for node in fleet.nodes
    }
    tested = {node: kind for node, kind in kinds.items() if node in told.at}
    rows = drift_table(told.now, tested)
    before = drift_table(told.before, {node: kind for node, kind in kinds.items() if node in told.before})
    return Drift(
        rows=rows,
        moved=shifts(rows, before),
        at={node: told.at[node] for node in tested},
        racks={node.name: node.rack for node in fleet.nodes},
        silent=tuple(sorted((node for node in kinds if node not in tested), key=natural)),
    )


def drift_lines(cluster: str, found: Drift, now: float, width: int) -> list[str]:
    """For people, in at most `width` characters a row of the table; 0: as wide as it is."""
    if not found.rows:
        return [f"{cluster}: no node told anything in a test of depth {DEPTH}: primus preflight --suite smoke"]
    apart = sum(1 for row in found.rows if len(row.counts) > 1)
    oldest = min(found.at, key=lambda node: found.at[node])
    lines = [
        f"{cluster}: {len(found.at):,} nodes, {len(found.rows)} properties, {apart} of them differ; the newest test of "
        f"{oldest} is the oldest, {age(now - found.at[oldest])} ago",
        "",
        fitted([_line(row, found.racks) for row in found.rows], COLUMNS, width, giving="different"),
    ]
    notes = [f"moved: {item.fact} in {item.hardware}: {item.why}" for item in found.moved]
    moved = {(item.hardware, item.fact) for item in found.moved}
    notes += [
        f"two groups: {row.fact} in {row.hardware}: an update is under way, or has stopped half way: "
        + ", ".join(f"{word} on {count:,}" for word, count in row.groups)
        for row in found.rows
        if row.changing and (row.hardware, row.fact) not in moved
    ]
    notes += [
        f"not known: {row.fact} of {len(row.missing):,} nodes in {row.hardware}: {_named(row.missing)}"
        for row in found.rows
        if row.missing
    ]
    if found.silent:
        notes.append(f"never tested: {len(found.silent):,} nodes: {_named(found.silent)}")
    return [*lines, *(["", *notes] if notes else [])]


def drift_document(cluster: str, found: Drift) -> Json:
    """For programs."""
    was = {(item.hardware, item.fact): item.was for item in found.moved}
    return {
        "cluster": cluster,
        "depth": DEPTH,
        "tested": len(found.at),
        "oldest_test_at": timestamp(min(found.at.values(), default=None)),
        "never_tested": list(found.silent),
        "properties": [
            {
                "pool": row.hardware,
                "property": row.fact,
                "majority": row.majority or None,
                "share": round(row.share, 4),
                "majority_before": was.get((row.hardware, row.fact)),
                "changing": row.changing,
                "counts": [{"word": word, "nodes": count} for word, count in row.counts],
                "different": [
                    {"node": node, "rack": found.racks.get(node) or None, "word": word} for node, word in row.outliers
                ],
                "not_known": list(row.missing),
            }
            for row in found.rows
        ],
    }


def _line(row: DriftRow, racks: Mapping[str, str]) -> Json:
    return {
        "pool": row.hardware,
        "property": row.fact,
        "majority": cut(row.majority or "none", WORD_CHARACTERS),
        "share": f"{100.0 * row.share:.4g} % of {row.told:,}",
        "different": _different(row, racks),
    }


def _different(row: DriftRow, racks: Mapping[str, str]) -> str:
    """Who differs, word by word and rack by rack; where nobody can be named, how many told what."""
    if not row.outliers:
        return ", ".join(f"{word} on {count:,}" for word, count in row.counts[:NAMES]) if len(row.counts) > 1 else ""
    parts: dict[str, dict[str, list[str]]] = {}
    for node, word in row.outliers[:NAMES]:
        parts.setdefault(word, {}).setdefault(racks.get(node, ""), []).append(node)
    told = [
        f"{word} on " + "; ".join(f"{rack}: {', '.join(names)}" if rack else ", ".join(names) for rack, names in own)
        for word, own in ((word, places.items()) for word, places in parts.items())
    ]
    left = len(row.outliers) - NAMES
    return f"{len(row.outliers):,}: " + " / ".join(told) + (f" and {left:,} more" if left > 0 else "")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES:,} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
