"""`primus nodes` and `primus verdict`: each node's state and verdict, and taking a node out of service by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from deployments.cli.app import All, AsJson, ClusterName, Only, Why, app
from deployments.cli.approvals import open_ledger, who
from deployments.cli.fleet import Fleet, chosen, headline, node_row, parse_filters, read_fleet
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, out, out_json, say
from deployments.screen.tables import figure, fitted, folded, terminal_columns
from flows.decisions.node_tests.grading.standing import DepthProof
from flows.decisions.text import age, timestamp
from flows.decisions.views.fleet import FleetNode, Schedulability
from flows.decisions.views.status import person_row
from profiles.errors import NotFound, ProfileError
from profiles.loading.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.settings import Settings, localised
from workflows.model.records import NodeRecord, VerdictRecord

Json = dict[str, Any]

Drift = Annotated[bool, typer.Option("--drift", help="In what nodes of a pool differ from most others.")]
BY_HAND = ("cordon", "release", "power-on")
COLUMNS = ("node", "pool", "rack", "gpus", "state", "verdict", "depth", "tested", "why")
LEFT_OUT = ("rack", "gpus", "depth", "pool", "tested")


@app.command()
def nodes(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE | cordon NODE | release NODE | power-on NODE]")
    ] = None,
    why: Why = "",
    only: Only = None,
    drift: Drift = False,
    cluster: ClusterName = "",
    every: All = False,
    as_json: AsJson = False,
) -> int:
    """Each node with its verdict, or everything about one; take one out of service, or give it back.

    Many nodes that pods may go to and that are proven are only counted, unless --all or --only is said.

    `cordon` keeps new pods away, what runs there goes on; `release` takes back what we set, nothing else. Both want
    --why. `power-on` puts back what drills broke on a node of the embedded cluster: its power, its cordon, and what our
    flows set on it because of that. --drift shows in what nodes of a pool differ: kernel, driver, firmware, libraries,
    clocks. Exit code 3: the cluster does not answer, and what is shown is what the ledger knows.

    Example: primus nodes cordon node-3 --why "fan is loud"
    """
    if drift:
        from deployments.cli.fleet import show_drift

        if words or only or why:
            raise ProfileError("--drift", "compares all nodes of a cluster: leave the other words out")
        return show_drift(cluster, as_json=as_json)

    return show_nodes(tuple(words or ()), why, cluster, tuple(only or ()), every=every, as_json=as_json)


@app.command("verdict")
def show_verdict(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    cluster: ClusterName = "",
    *,
    as_json: AsJson = False,
) -> int:
    """What is to be believed of a node now, by which test, with its evidence.

    Exit code 0: it is proven; 1: a failure stands; 2: there is no such node; 3: nobody knows.

    Example: primus verdict node-3
    """
    # 0 where it is proven, 1 where a failure stands, 3 where nobody knows.
    from flows.testing.proofs import depths_now, proofs_now

    settings, now = Settings.from_environment(os.environ), time.time()
    profile, ledger = load_cluster(cluster or settings.cluster), open_ledger()
    proof = proofs_now(ledger, profile, now).get(node)
    if proof is None and not (fleet := read_fleet(cluster)).away:
        _find(fleet, node)
    word = proof.standing.word if proof else VerdictWord.UNKNOWN
    deciding = whole(proof.deciding, ledger.verdicts(profile.name, node)) if proof else None
    why = proof.standing.why if proof else "it was never tested"
    by_depth = depths_now(ledger, profile, node, now).proofs
    if as_json:
        deciding_row = verdict_row(deciding) if deciding else {}
        depths = {depth: depth_row(one) for depth, one in by_depth.items()}
        out_json(
            {"node": node, "cluster": profile.name, **deciding_row, "verdict": str(word), "why": why, "depths": depths}
        )
    else:
        depth_lines = (
            [f"  {depth}: {one.word}: {one.why}" for depth, one in by_depth.items()] if len(by_depth) > 1 else []
        )
        lines = verdict_lines(deciding, now) if deciding else []
        out("\n".join([f"{node}: {word} ({why})", *depth_lines, *lines]))
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED}.get(word, UNKNOWN)


def depth_row(proof: DepthProof) -> Json:
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


def show_nodes(
    words: Sequence[str], why: str, cluster: str, filters: Sequence[str], *, every: bool, as_json: bool
) -> int:
    """`nodes`, `nodes NODE`, `nodes cordon NODE`, `nodes release NODE`, `nodes power-on NODE`.

    Raises:
        ProfileError: too many words, no such filter, or no reason for what a person does.
        NotFound: no such node.
        Unavailable: the ledger does not answer; what a person does also needs the cluster.
    """
    _check_words(words, why, filters)
    if words and words[0] in BY_HAND:
        return _by_hand(words[0], words[1], why, cluster)
    wanted = parse_filters(filters)
    fleet = read_fleet(cluster)
    if words:
        _show_one(_find(fleet, words[0]), fleet.profile.name, as_json=as_json)
    else:
        _list(fleet, chosen(fleet, wanted), every=every or bool(wanted), as_json=as_json)
    if fleet.away:
        say(f"{fleet.profile.name} does not answer, this is what the ledger knows: {fleet.away}")
    return UNKNOWN if fleet.away else GOOD


def _check_words(words: Sequence[str], why: str, filters: Sequence[str]) -> None:
    if words and filters:
        raise ProfileError("--only", f"goes with a list of all nodes: leave it out, or {' '.join(words)}")
    if words and words[0] in BY_HAND:
        if len(words) != 2:
            raise ProfileError("NODE", f"name one node: primus nodes {words[0]} NODE --why TEXT")
        return
    if len(words) > 1:
        raise ProfileError("NODE", f"name one node, or say {', '.join(BY_HAND)} before it; got {' '.join(words)}")
    if why:
        raise ProfileError("--why", f"goes with what is done to a node: {', '.join(BY_HAND)}")


def _find(fleet: Fleet, name: str) -> FleetNode:
    for node in fleet.nodes:
        if node.name == name:
            return node
    where = "the ledger" if fleet.away else fleet.profile.name
    raise NotFound(f"{where} knows no node {name}: `primus nodes` lists those it knows")


def _list(fleet: Fleet, nodes: Sequence[FleetNode], *, every: bool, as_json: bool) -> None:
    if as_json:
        out_json([node_row(node) for node in nodes])
        return
    now = time.time()
    shown, count = folded(nodes, _is_good, every=every)
    rows = [_line(node, now) for node in shown]
    out(headline(fleet.profile.name, nodes, of=len(fleet.nodes)))
    if rows:
        out("\n" + fitted(rows, COLUMNS, terminal_columns(), giving="why", dropped=LEFT_OUT))
    if count:
        out(f"\n{count:,} nodes may be used and are proven; --all shows each")


def _is_good(node: FleetNode) -> bool:
    return node.state is Schedulability.SCHEDULABLE and node.word is VerdictWord.PASS and not node.why


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
        out("\nwhat was done to it:")
    for item in history:
        out(f"  {timestamp(item.since)}  {item.state}{f' by {item.by}' if item.by else ''}: {item.why}")


def _history_row(item: NodeRecord) -> Json:
    done = {"state": item.state, "why": item.why, "since": timestamp(item.since), "incident": item.incident or None}
    return {**done, **person_row(item.by)}


def _by_hand(what: str, node: str, why: str, cluster: str) -> int:
    why = why or ("what drills broke is put back" if what == "power-on" else "")
    if not why:
        raise ProfileError("--why", "say why in a few words; it stands beside the node for ever")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # read when Prefect is imported, which otherwise talks of itself
    from tasks.cluster import using
    from tasks.clusters import open_cluster
    from tasks.context import at_hand
    from tasks.nodes.by_hand import cordon, release_by_hand
    from tasks.runs.put_back import power_on

    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    act = {"cordon": cordon, "release": release_by_hand, "power-on": power_on}[what]
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        say(act(profile, node, why, who()))
    return GOOD
