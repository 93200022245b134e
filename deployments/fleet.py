"""`primus fleet`: thousands of nodes on one screen; what pods may not go to, and why."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.edge import GOOD, UNKNOWN, out, out_json, say
from deployments.people import open_ledger
from deployments.tables import fitted, terminal_columns, terminal_lines
from flows.decisions.fleet import (
    FILTERS,
    GROUPS,
    FleetNode,
    Remembered,
    Standing,
    counts,
    grouped,
    only,
    seen_by_cluster,
    told_by_ledger,
)
from flows.decisions.fleet_map import MEANINGS, FleetMap, fleet_map, symbol
from flows.decisions.spans import timestamp
from flows.proofs import proofs_now
from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError, ProfileError
from profiles.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.clusters import open_cluster
from tasks.fleet import cluster_nodes, gpus_of
from tasks.ledger import Ledger
from tasks.opening import localised
from tasks.settings import Settings

Json = dict[str, Any]
PIPED_COLUMNS = 120
FURNITURE_LINES = 8
"""Of a screen: headline, legend, headings, blank lines, the prompt."""
LISTED_LINES = 8
"""Of a screen, kept for the list of what pods may not go to."""


@dataclass(frozen=True)
class Fleet:
    """What is known of a cluster's nodes."""

    profile: ClusterProfile
    nodes: tuple[FleetNode, ...]
    away: str = ""
    """Why the cluster does not say; "": it does."""


def see(cluster: str) -> Fleet:
    """The nodes of a cluster; where it is away, those that the ledger knows.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the ledger does not answer.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    known = remembered(open_ledger(), profile)
    try:
        nodes = seen_by_cluster(cluster_nodes(open_cluster(profile, settings.home), profile), known)
    except PrimusError as error:
        gpus = {pool.name: gpus_of(pool) for pool in profile.pools}
        return Fleet(profile, tuple(told_by_ledger(known, gpus)), str(error) or type(error).__name__)
    return Fleet(profile, tuple(nodes))


def remembered(ledger: Ledger, profile: ClusterProfile) -> Remembered:
    """What the ledger knows of the cluster's nodes."""
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
    fleet = see(cluster)
    nodes = only(fleet.nodes, wanted)
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
        ProfileError: no such field, or no value.
    """
    parsed: list[tuple[str, tuple[str, ...]]] = []
    for text in texts:
        field, _, values = text.partition("=")
        if field not in FILTERS or not values:
            raise ProfileError("--only", f"must be FIELD=VALUE with one of {', '.join(FILTERS)}, got {text!r}")
        parsed.append((field, tuple(values.split(","))))
    return parsed


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
    """How many there are, by state and by verdict."""
    found = counts(nodes)
    gpus = sum(node.gpus or 0 for node in nodes)
    states = ", ".join(f"{number:,} {word}" for word, number in found["state"].items() if number)
    words = ", ".join(f"{number:,} {word}" for word, number in found["verdict"].items() if number)
    share = f" of {of:,}" if len(nodes) != of else ""
    return f"{cluster}: {len(nodes):,}{share} nodes, {gpus:,} GPUs" + (
        f": {states}; verdicts: {words}" if nodes else ""
    )


def notes(drawn: FleetMap, nodes: Sequence[FleetNode]) -> list[str]:
    """What the symbols mean, those that are there, and what was left out."""
    present = {symbol(node) for node in nodes}
    legend = "   ".join(f"{sign} {meaning}" for sign, meaning in MEANINGS.items() if sign in present)
    folded = f"{drawn.folded_nodes:,} nodes of {drawn.folded_groups:,} groups are not drawn: every one is good"
    return ["", legend, *([folded] if drawn.folded_groups else [])]


def out_of_service(bad: Sequence[FleetNode], width: int, lines: int) -> str:
    """The nodes that pods may not go to or should not, in at most `lines` lines."""
    shown = bad if len(bad) <= lines else bad[: max(1, lines - 1)]
    rows = [
        {
            "node": node.name,
            "pool": node.pool,
            "rack": node.rack,
            "state": str(node.state),
            "verdict": str(node.word),
            "why": "; ".join(node.why) or "; ".join(failed_checks(node)),
        }
        for node in shown
    ]
    columns = ("node", "pool", "rack", "state", "verdict", "why")
    text = fitted(rows, columns, width, giving="why", dropped=("pool", "rack", "verdict"))
    left = len(bad) - len(shown)
    more = sorted({str(node.state) for node in bad if node.state is not Standing.SCHEDULABLE})
    hint = f"primus fleet --only state={','.join(more)}" if more else "primus fleet --only verdict=fail"
    return text + (f"\nand {left:,} more: {hint} | less" if left else "")


def failed_checks(node: FleetNode) -> list[str]:
    """What its newest verdict holds against it."""
    reasons = node.verdict.reasons if node.verdict else ()
    bad = [reason for reason in reasons if reason.get("verdict") != "pass"]
    return [f"{reason.get('check', 'test')}: {reason.get('evidence') or reason.get('measured')}" for reason in bad]


STYLES = {".": "green", "-": "bright_black", "x": "bold red", "Q": "bold red", "T": "cyan", "C": "yellow"} | {
    "t": "magenta",
    "!": "bold red",
    "?": "bold yellow",
}


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
