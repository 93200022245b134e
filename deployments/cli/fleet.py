"""`primus fleet` and `primus nodes --drift`: every node on one screen, and in what nodes of a pool differ.

Drift compares what the newest tests reported of nodes that should be alike and names those that differ from most. It
takes no node out of service.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, ClusterName, Only, app, named
from deployments.cli.approvals import open_ledger
from deployments.exit_codes import GOOD, UNKNOWN, out, out_json, say
from deployments.screen.tables import cut, fitted, terminal_columns, terminal_lines
from flows.decisions.node_tests.grading.drift import DriftRow, Shift, drift_table, facts_of, shifts
from flows.decisions.recovery.nodes import natural
from flows.decisions.text import age, timestamp
from flows.decisions.views.fleet import (
    FILTERS,
    GROUPS,
    MEANINGS,
    FleetMap,
    FleetNode,
    Pools,
    Remembered,
    Schedulability,
    counts,
    fleet_map,
    grouped,
    nodes_of_cluster,
    nodes_of_ledger,
    only,
    symbol,
)
from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError, ProfileError
from profiles.loading.load import load_cluster
from profiles.values import did_you_mean
from profiles.vocabulary import VerdictWord
from tasks.clusters import open_cluster
from tasks.ledger.ledger import Ledger
from tasks.observe.nodes import cluster_nodes, gpus_of
from tasks.settings import Settings, localised

Json = dict[str, Any]

PIPED_COLUMNS = 120
FURNITURE_LINES = 8
"""Of a screen: headline, legend, headings, blank lines, the prompt."""
LISTED_LINES = 8
"""Of a screen, kept for the list of what pods may not go to."""

STYLES = {".": "green", "-": "bright_black", "x": "bold red", "Q": "bold red", "T": "cyan", "C": "yellow"} | {
    "t": "magenta",
    "!": "bold red",
    "?": "bold yellow",
}

DEPTH = "smoke"
"""The test that looks at versions and settings; a gate looks at none, and deeper ones are rare."""
COLUMNS = ("pool", "property", "majority", "share", "different")
NO_POOL = "no pool"
WORD_CHARACTERS = 60
"""Of a word that most nodes tell: boot arguments are longer than a screen is wide; `--json` has the whole."""
NAMES = 8
"""Nodes that a line names; `--json` has all of them."""


@app.command()
def fleet(
    by: Annotated[str, typer.Option("--by", metavar="rack|pool|verdict|state", help="What stands together.")] = "rack",
    only: Only = None,
    cluster: ClusterName = "",
    as_json: AsJson = False,
) -> int:
    """Every node on one screen: a cell a node, how many are in service, and why the others are not.

    Exit code 3: the cluster does not answer, and what is shown is what the ledger knows.

    Example: primus fleet --only state=quarantined,cordoned
    """
    return show_fleet(cluster, by, tuple(only or ()), as_json=as_json)


@dataclass(frozen=True)
class Fleet:
    """What is known of a cluster's nodes."""

    profile: ClusterProfile
    nodes: tuple[FleetNode, ...]
    away: str = ""
    """Why the cluster does not say; "": it does."""


def read_fleet(cluster: str) -> Fleet:
    """The nodes of a cluster; where it is away, those that the ledger knows.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the ledger does not answer.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    known = remembered(open_ledger(), profile)
    gpus = {pool.name: gpus_of(pool) for pool in profile.pools}
    pools = Pools(gpus, {pool.name: pool.taints for pool in profile.pools})
    try:
        nodes = nodes_of_cluster(cluster_nodes(open_cluster(profile, settings.home), profile), known, pools)
    except PrimusError as error:
        return Fleet(profile, tuple(nodes_of_ledger(known, pools)), str(error) or type(error).__name__)
    return Fleet(profile, tuple(nodes))


def remembered(ledger: Ledger, profile: ClusterProfile) -> Remembered:
    """What the ledger knows of the cluster's nodes."""
    from flows.testing.proofs import proofs_now

    states = {record.node: record for record in ledger.nodes(profile.name)}
    return Remembered(states, proofs_now(ledger, profile, time.time()))


def show_fleet(cluster: str, by: str, filters: Sequence[str], *, as_json: bool) -> int:
    """The map, the numbers, and what pods may not go to; the ledger's where the cluster is away.

    Raises:
        ProfileError: no such cluster profile, grouping or filter.
        Unavailable: the ledger does not answer.
    """
    if by not in GROUPS:
        raise ProfileError("--by", f"{by!r} is unknown; choose one of {', '.join(GROUPS)}")
    wanted = parse_filters(filters)
    fleet = read_fleet(cluster)
    nodes = chosen(fleet, wanted)
    if as_json:
        out_json([node_row(node) for node in nodes])
    else:
        _print(fleet, nodes, by)
    if fleet.away:
        say(f"{fleet.profile.name} does not answer, this is what the ledger knows: {fleet.away}")
    return UNKNOWN if fleet.away else GOOD


def parse_filters(texts: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """`state=quarantined,cordoned` and the like.

    Raises:
        ProfileError: no such field, or no such state or verdict.
    """
    parsed: list[tuple[str, tuple[str, ...]]] = []
    for text in texts:
        field, _, values = text.partition("=")
        if field not in FILTERS or not values:
            raise ProfileError("--only", f"must be FIELD=VALUE with one of {', '.join(FILTERS)}, got {text!r}")
        patterns = named(values, "--only")
        for word in patterns:
            if field in CLOSED:
                _check_known(field, word, CLOSED[field])
        parsed.append((field, patterns))
    return parsed


CLOSED: Mapping[str, Sequence[str]] = {"state": tuple(Schedulability), "verdict": tuple(VerdictWord)}
"""Fields of a filter whose words are known before any node is."""


def chosen(fleet: Fleet, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> list[FleetNode]:
    """The nodes that all filters let through.

    Raises:
        ProfileError: the cluster, where it answers, has no such node, rack or pool at all.
    """
    for key, words in wanted:
        there = {FILTERS[key](node) for node in fleet.nodes}
        there |= {pool.name for pool in fleet.profile.pools} if key == "pool" else set()
        for word in words if key not in CLOSED and not fleet.away else ():
            _check_known(key, word, there)
    return only(fleet.nodes, wanted)


def _check_known(field: str, word: str, there: Iterable[str]) -> None:
    if not any(fnmatchcase(one, word) for one in there):
        raise ProfileError("--only", f"{field} {word!r} is unknown{did_you_mean(word, there, 'there are')}")


def node_row(node: FleetNode) -> Json:
    """One entry of `primus nodes --json`."""
    verdict = node.verdict
    return {
        "node": node.name,
        "pool": node.pool or None,
        "rack": node.rack or None,
        "gpus": node.gpus,
        "state": str(node.state),
        "why": list(node.why),
        "since": timestamp(node.since),
        "spare": node.spare,
        "verdict": str(node.word),
        "proven_until": timestamp(proven_until(node)),
        "depth": verdict.depth if verdict else None,
        "tested_at": timestamp(verdict.at) if verdict else None,
        "reasons": [dict(reason) for reason in verdict.reasons] if verdict else [],
    }


def proven_until(node: FleetNode) -> float | None:
    """When the pass that holds runs out, Unix seconds; None: none does."""
    proofs = node.proven.proofs.values() if node.proven is not None and node.word is VerdictWord.PASS else ()
    return min((proof.until_at for proof in proofs if proof.until_at is not None), default=None)


def _print(fleet: Fleet, nodes: Sequence[FleetNode], by: str) -> None:
    width, height = terminal_columns(), terminal_lines()
    room = max(LISTED_LINES, height - FURNITURE_LINES - LISTED_LINES) if height else 0
    drawn = fleet_map(grouped(nodes, by), width or PIPED_COLUMNS, room)
    out(headline(fleet.profile.name, nodes, of=len(fleet.nodes)))
    if nodes:
        out("")
        _draw(drawn, colours=bool(width))
        out("\n".join(notes(drawn, nodes)))
    bad = [node for node in nodes if node.why or node.word is VerdictWord.FAIL]
    lines = max(LISTED_LINES, height - FURNITURE_LINES - len(drawn.lines)) if height else len(bad)
    if bad:
        out("\n" + out_of_service(bad, width, lines))


def headline(cluster: str, nodes: Sequence[FleetNode], *, of: int) -> str:
    """How many nodes there are, by state and by verdict."""
    found = counts(nodes)
    gpus = sum(node.gpus or 0 for node in nodes)
    states = ", ".join(f"{number:,} {word}" for word, number in found["state"].items() if number)
    words = ", ".join(f"{number:,} {word}" for word, number in found["verdict"].items() if number)
    share = f" of {of:,}" if len(nodes) != of else ""
    return f"{cluster}: {len(nodes):,}{share} nodes, {gpus:,} GPUs" + (
        f": {states}; verdicts: {words}" if nodes else ""
    )


def notes(drawn: FleetMap, nodes: Sequence[FleetNode]) -> list[str]:
    """The legend of the symbols on the map, and what was left out."""
    present = {symbol(node) for node in nodes}
    legend = "   ".join(f"{sign} {meaning}" for sign, meaning in MEANINGS.items() if sign in present)
    folded = f"{drawn.folded_nodes:,} nodes of {drawn.folded_groups:,} groups are not drawn: every one is good"
    return ["", legend, *([folded] if drawn.folded_groups else [])]


def out_of_service(bad: Sequence[FleetNode], width: int, lines: int) -> str:
    """The nodes that pods may not go to or should not, in at most `lines` lines."""
    visible = bad if len(bad) <= lines else bad[: max(1, lines - 1)]
    rows = [
        {
            "node": node.name,
            "pool": node.pool,
            "rack": node.rack,
            "state": str(node.state),
            "verdict": str(node.word),
            "why": "; ".join(node.why) or "; ".join(failed_checks(node)),
        }
        for node in visible
    ]
    columns = ("node", "pool", "rack", "state", "verdict", "why")
    text = fitted(rows, columns, width, giving="why", dropped=("pool", "rack", "verdict"))
    left = len(bad) - len(visible)
    more = sorted({str(node.state) for node in bad if node.state is not Schedulability.SCHEDULABLE})
    hint = f"primus fleet --only state={','.join(more)}" if more else "primus fleet --only verdict=fail"
    return text + (f"\nand {left:,} more: {hint} | less" if left else "")


def failed_checks(node: FleetNode) -> list[str]:
    """The checks that its newest verdict says failed."""
    reasons = node.verdict.reasons if node.verdict else ()
    bad = [reason for reason in reasons if reason.get("verdict") != "pass"]
    return [f"{reason.get('check', 'test')}: {reason.get('evidence') or reason.get('measured')}" for reason in bad]


def _draw(drawn: FleetMap, *, colours: bool) -> None:
    if not colours:
        out("\n".join(line.text for line in drawn.lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in drawn.lines:
        text = Text()
        for part, is_cells in line.parts:
            if is_cells:
                for sign in part:
                    text.append(sign, STYLES.get(sign, ""))
            else:
                text.append(part)
        console.print(text)


@dataclass(frozen=True)
class NodeProperties:
    """What the newest tests reported of the nodes of a cluster."""

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
    """What nodes of each pool have in common, and which nodes differ from most of them.

    Returns:
        0, also where nodes differ: a difference is no failure; 3 where nothing is known, or the cluster is away.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the ledger does not answer.
    """
    fleet = read_fleet(cluster)
    found = drift_of(fleet, properties_from_tests(open_ledger(), fleet.profile.name))
    if as_json:
        out_json(drift_document(fleet.profile.name, found))
    else:
        out("\n".join(drift_lines(fleet.profile.name, found, time.time(), terminal_columns())))
    if fleet.away:
        say(f"{fleet.profile.name} does not answer, this is what the ledger knows: {fleet.away}")
    return GOOD if found.rows and not fleet.away else UNKNOWN


def properties_from_tests(ledger: Ledger, cluster: str) -> NodeProperties:
    """What the newest test of each node reported, and the one before.

    Raises:
        Unavailable.
    """
    facts: tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]] = ({}, {})
    at: dict[str, float] = {}
    for turn, record in ledger.last_tests(cluster, DEPTH):
        facts[turn][record.node] = facts_of(record.reasons)
        if turn == 0:
            at[record.node] = record.at
    return NodeProperties(facts[0], facts[1], at)


def drift_of(fleet: Fleet, properties: NodeProperties) -> Drift:
    """The drift of each pool's nodes; pools are not compared: they may differ on purpose, even on the same hardware."""
    hardware = {pool.name: pool.hardware for pool in fleet.profile.pools}
    kinds = {
        node.name: f"{node.pool} ({hardware[node.pool]})" if node.pool in hardware else node.pool or NO_POOL
        for node in fleet.nodes
    }
    tested = {node: kind for node, kind in kinds.items() if node in properties.at}
    rows = drift_table(properties.now, tested)
    before = drift_table(properties.before, {node: kind for node, kind in kinds.items() if node in properties.before})
    return Drift(
        rows=rows,
        moved=shifts(rows, before),
        at={node: properties.at[node] for node in tested},
        racks={node.name: node.rack for node in fleet.nodes},
        silent=tuple(sorted((node for node in kinds if node not in tested), key=natural)),
    )


def drift_lines(cluster: str, found: Drift, now: float, width: int) -> list[str]:
    """The drift for people, in at most `width` characters a row of the table; 0: no limit."""
    if not found.rows:
        return [f"{cluster}: no node reported anything in a test of depth {DEPTH}: primus preflight --suite smoke"]
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
        f"not known: {row.fact} of {len(row.missing):,} nodes in {row.hardware}: {_node_list(row.missing)}"
        for row in found.rows
        if row.missing
    ]
    if found.silent:
        notes.append(f"never tested: {len(found.silent):,} nodes: {_node_list(found.silent)}")
    return [*lines, *(["", *notes] if notes else [])]


def drift_document(cluster: str, found: Drift) -> Json:
    """The document of `primus nodes --drift --json`."""
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
        "share": f"{100.0 * row.share:.4g} % of {row.reporting:,}",
        "different": _different(row, racks),
    }


def _different(row: DriftRow, racks: Mapping[str, str]) -> str:
    """The nodes that differ, word by word and rack by rack; without names, how many reported what."""
    if not row.outliers:
        return ", ".join(f"{word} on {count:,}" for word, count in row.counts[:NAMES]) if len(row.counts) > 1 else ""
    parts: dict[str, dict[str, list[str]]] = {}
    for node, word in row.outliers[:NAMES]:
        parts.setdefault(word, {}).setdefault(racks.get(node, ""), []).append(node)
    lines = [
        f"{word} on " + "; ".join(f"{rack}: {', '.join(names)}" if rack else ", ".join(names) for rack, names in own)
        for word, own in ((word, places.items()) for word, places in parts.items())
    ]
    left = len(row.outliers) - NAMES
    return f"{len(row.outliers):,}: " + " / ".join(lines) + (f" and {left:,} more" if left > 0 else "")


def _node_list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES:,} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
