"""`primus nodes`: what tests said of each node and what we did to it; taking one out, giving it back."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.edge import GOOD, UNKNOWN, out, out_json, say
from deployments.fleet import Fleet, headline, node_row, parse_filters, see
from deployments.people import open_ledger, who
from deployments.tables import fitted, terminal_columns
from deployments.verdicts import verdict_lines, verdict_row
from flows.decisions.fleet import FleetNode, only
from flows.decisions.spans import age, timestamp
from profiles.errors import NotFound, ProfileError
from profiles.load import load_cluster
from tasks.opening import localised
from tasks.settings import Settings
from workflows.records import NodeRecord

Json = dict[str, Any]
BY_HAND = ("cordon", "release")
COLUMNS = ("node", "pool", "rack", "gpus", "state", "verdict", "depth", "tested", "why")
LEFT_OUT = ("rack", "gpus", "depth", "pool", "tested")


def show_nodes(words: Sequence[str], why: str, cluster: str, filters: Sequence[str], *, as_json: bool) -> int:
    """`nodes`, `nodes NODE`, `nodes cordon NODE`, `nodes release NODE`.

    Raises:
        ProfileError: too many words, no such filter, or no reason for what a person does.
        NotFound: no such node.
        Unavailable: the ledger does not answer; what a person does also needs the cluster.
    """
    if words and words[0] in BY_HAND:
        if len(words) != 2:
            raise ProfileError("NODE", f"name one node: primus nodes {words[0]} NODE --why TEXT")
        return _by_hand(words[0], words[1], why, cluster)
    if len(words) > 1:
        raise ProfileError("NODE", f"name one node, or say cordon or release before it; got {' '.join(words)}")
    wanted = parse_filters(filters)
    fleet = see(cluster)
    if words:
        _show_one(_find(fleet, words[0]), fleet.profile.name, as_json=as_json)
    else:
        _list(fleet, only(fleet.nodes, wanted), as_json=as_json)
    if fleet.away:
        say(f"{fleet.profile.name} does not answer, this is what the ledger knows: {fleet.away}")
    return UNKNOWN if fleet.away else GOOD


def _find(fleet: Fleet, name: str) -> FleetNode:
    for node in fleet.nodes:
        if node.name == name:
            return node
    where = "the ledger" if fleet.away else fleet.profile.name
    raise NotFound(f"{where} knows no node {name}: `primus nodes` lists those it knows")


def _list(fleet: Fleet, nodes: Sequence[FleetNode], *, as_json: bool) -> None:
    if as_json:
        out_json([node_row(node) for node in nodes])
        return
    now = time.time()
    rows = [_line(node, now) for node in nodes]
    out(headline(fleet.profile.name, nodes, of=len(fleet.nodes)))
    if rows:
        out("\n" + fitted(rows, COLUMNS, terminal_columns(), giving="why", dropped=LEFT_OUT))


def _line(node: FleetNode, now: float) -> Mapping[str, Any]:
    verdict = node.verdict
    return {
        "node": node.name,
        "pool": node.pool,
        "rack": node.rack,
        "gpus": node.gpus,
        "state": str(node.state),
        "verdict": str(node.word),
        "depth": verdict.depth if verdict else "",
        "tested": f"{age(now - verdict.at)} ago" if verdict else "never",
        "why": "; ".join(node.why),
    }


def _show_one(node: FleetNode, cluster: str, *, as_json: bool) -> None:
    ledger, now = open_ledger(), time.time()
    verdicts, history = ledger.verdicts(cluster, node.name), ledger.node_history(cluster, node.name)
    if as_json:
        tests = [verdict_row(item) for item in verdicts]
        out_json({**node_row(node), "verdicts": tests, "history": [_history_row(item) for item in history]})
        return
    where = " ".join(part for part in (f"pool {node.pool}" if node.pool else "", node.rack) if part)
    out(f"{node.name} on {cluster}{': ' + where if where else ''}: {node.state}, verdict {node.word}")
    for said in node.why:
        out(f"  {said}")
    for verdict in reversed(verdicts[-5:]):
        out("\n" + "\n".join(verdict_lines(verdict, now)))
    if history:
        out("\nwhat we did to it:")
    for item in history:
        out(f"  {timestamp(item.since)}  {item.state}: {item.why}")


def _history_row(item: NodeRecord) -> Json:
    return {"state": item.state, "why": item.why, "since": timestamp(item.since), "incident": item.incident or None}


def _by_hand(what: str, node: str, why: str, cluster: str) -> int:
    if not why:
        raise ProfileError("--why", "say why in a few words; it stands beside the node for ever")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # read when Prefect is imported, which otherwise talks of itself
    from tasks.cluster import using
    from tasks.clusters import open_cluster
    from tasks.nodes_by_hand import cordon, release
    from tasks.session import at_hand

    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    act = {"cordon": cordon, "release": release}[what]
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        say(act(profile, node, f"{why} ({who()})"))
    return GOOD
