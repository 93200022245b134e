"""`primus monitor` and `primus render monitor`: one pass over nodes, runs and objects, or the loop."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deployments.cli.app import AsJson, ClusterName, app, named_mode, named_nodes, render_app
from deployments.cli.approvals import note_act
from deployments.exit_codes import FAILED, GOOD, INTERRUPTED, UNKNOWN, out, out_json, say
from deployments.screen.tables import table
from flows.decisions.text import timestamp
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, ProfileError
from profiles.loading.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import using
from tasks.clusters import open_cluster
from tasks.settings import Settings, localised
from workflows.model.nodes import NodeFinding, people_of
from workflows.model.runs import FindingRecord

if TYPE_CHECKING:
    from flows.decisions.monitoring.reconcile import ReconcileFinding
    from flows.watching.nodes import NodeNotice, NodeReport

Json = dict[str, Any]

SWITCH_SECONDS = 0.0005
"""One thread reads, one decides, several write: each waits no longer for its turn than a fraction of a patch. Python's
own 5 ms would be the larger part of a reaction."""


@app.command()
def monitor(
    cluster: ClusterName = "",
    once: Annotated[bool, typer.Option("--once", help="One pass over nodes, runs and objects, then return.")] = False,
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act; outranks the cluster profile.")] = "",
    as_json: AsJson = False,
) -> int:
    """Watch nodes, runs and objects of a cluster, and mend what was lost; in the foreground until Ctrl-C.

    Bad nodes are taken out, within the brake; runs without a driver get one; what nobody wants is removed. With --json
    the loop prints one JSON document a line. Exit code of one pass: 0: nothing is wrong; 1: a node has a fault, or
    something is to be mended; 3: something is not known. Where a loop lives, one pass only shows what stands.

    Example: primus monitor --once --mode observe
    """
    return show_monitor(cluster, mode, once=once, as_json=as_json)


@render_app.command("monitor")
def print_monitor_workflow(
    cluster: ClusterName = "",
    nodes: Annotated[str, typer.Option("--nodes", metavar="A,B", help="Names of nodes; else a share of all.")] = "",
    *,
    as_json: AsJson = False,
) -> int:
    """The workflow of one sweep: a short read-only pod on each of some nodes.

    Example: primus render monitor --cluster local
    """
    from tasks.nodes.sweep import plan_of
    from workflows.node_tests.pods import places_of
    from workflows.node_tests.sweep import MOST, sweep_workflow

    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    names = named_nodes(nodes)
    if len(names) > MOST:
        raise ProfileError("--nodes", f"one sweep is of {MOST} nodes at the most, got {len(names)}")
    places = places_of(profile, names, profile.monitor.sweep_share)
    if not names and profile.engine == "kubernetes":
        say("the names of nodes stand for the cluster's own; --nodes names some")
    document = sweep_workflow(plan_of(profile, dict(list(places.items())[:MOST]), 1, 0.0, 0.0)).to_dict()
    if as_json:
        out_json([document])
    else:
        import yaml

        out(yaml.safe_dump(document, sort_keys=False, width=120))
    return GOOD


def show_monitor(cluster: str, mode: str, *, once: bool, as_json: bool) -> int:
    """Look once, or watch until Ctrl-C.

    Returns:
        Once: 0 where nothing is wrong, 1 where a node has a fault or something is to be mended, 3 where only something
        is not known. Else 130.

    Raises:
        ProfileError: no such cluster profile, or no such mode.
        Conflict: a monitor of this cluster lives; one pass only shows then what stands.
        Unavailable: the cluster or the ledger does not answer at the beginning.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen = named_mode(mode) or profile.monitor.mode
    from tasks.context import at_hand  # Prefect, which takes seconds

    settings.make_home()
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        if chosen is not Mode.OBSERVE:
            note_act(
                people_of(profile.name), "monitor", f"mode {chosen}, {'one pass' if once else 'until it is ended'}"
            )
        if not once:
            return _watch(profile, chosen, as_json=as_json)
        seen = _once(profile, chosen)
    if as_json:
        out_json(document(profile.name, chosen, seen))
    else:
        out(text(profile.name, chosen, seen))
    wrong = seen.report.faults or any(not item.action.startswith("none:") for item in seen.findings)
    return FAILED if wrong else UNKNOWN if seen.report.unknown or seen.unread else GOOD


@dataclass(frozen=True)
class Once:
    """What one pass saw."""

    report: NodeReport
    findings: tuple[FindingRecord, ...] = ()
    """Open ones, as the ledger has them."""
    young: tuple[ReconcileFinding, ...] = ()
    unread: tuple[str, ...] = ()
    loop: str = ""
    """The loop that lives; then nothing was done here."""


def _once(profile: ClusterProfile, mode: Mode) -> Once:
    from flows.monitor import glance, look, look_around
    from tasks.context import world

    try:
        report = look(profile, mode)
    except Conflict as error:
        standing = world().ledger.findings(profile.name)
        return Once(glance(profile), tuple(standing), loop=str(error).removeprefix("run "))
    around = look_around(profile, mode, report.lines.append)
    return Once(report, tuple(world().ledger.findings(profile.name)), around.young, around.away)


def _watch(profile: ClusterProfile, mode: Mode, *, as_json: bool) -> int:
    from flows.monitor import keep_watch
    from tasks.observe.reflector import Bell

    ended, bell = threading.Event(), Bell()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()
        bell.ring()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    turn_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        say(f"watching {profile.name}, mode {mode}; Ctrl-C ends it")
        keep_watch(profile, mode, _print_json if as_json else _print_line, ended.is_set, bell)
    finally:
        sys.setswitchinterval(turn_seconds)
        for number, handler in before.items():
            signal.signal(number, handler)
    return INTERRUPTED


def _print_json(line: NodeNotice) -> None:
    out(json.dumps({"at": timestamp(line.at), **_event(line)}))


def _print_line(line: NodeNotice) -> None:
    at = datetime.fromtimestamp(line.at, UTC).astimezone().strftime("%H:%M:%S")
    out(" ".join(part for part in (at, line.node or line.subject, f"{line.event}:", line.why) if part))


def document(cluster: str, mode: Mode, seen: Once) -> Json:
    """The document of `primus monitor --once --json`."""
    report = seen.report
    steps = {item.finding.key: item for item in report.settlement.settled}
    faults: list[Json] = []
    for finding in report.faults:
        step = steps.get(finding.key)
        faults.append({**_row(finding), "step": step.step if step else None, "because": step.why if step else ""})
    return {
        "cluster": cluster,
        "mode": str(mode),
        "loop": seen.loop or None,
        "nodes": report.nodes,
        "faults": faults,
        "unknown": [_row(finding) for finding in report.unknown],
        "held": [{"node": node, "why": why} for node, why in report.held],
        "findings": [_finding(item) for item in seen.findings],
        "young": [{"kind": str(item.kind), "subject": item.subject, "why": item.why} for item in seen.young],
        "unread": list(seen.unread),
        "events": [_event(line) for line in report.lines],
    }


def _event(line: NodeNotice) -> Json:
    subject = {"subject": line.subject} if line.subject else {}
    return {"event": line.event, "node": line.node or None, **subject, "why": line.why}


def _row(finding: NodeFinding) -> Json:
    return {
        "node": finding.node,
        "pool": finding.pool,
        "condition": finding.condition,
        "verdict": str(finding.verdict),
        "class": str(finding.fault_class),
        "since": timestamp(finding.since),
        "why": finding.why,
    }


def _finding(item: FindingRecord) -> Json:
    known = {"kind": item.kind, "subject": item.subject, "run": item.run or None, "why": item.why}
    return {**known, "action": item.action, "since": timestamp(item.first_at)}


def text(cluster: str, mode: Mode, seen: Once) -> str:
    """The same for people: one line, what was found, what was done."""
    from flows.monitor import in_words

    report = seen.report
    lines = [f"{cluster}, mode {mode}: {in_words(report)}"]
    if seen.loop:
        lines.append(f"nothing was done here: {seen.loop}")
    steps = {item.finding.key: item.step for item in report.settlement.settled}
    found = [{**_row(item), "step": steps.get(item.key, "")} for item in [*report.faults, *report.unknown]]
    if found:
        lines += ["", table(found, ("node", "verdict", "condition", "class", "step", "why"))]
    if seen.findings:
        lines += ["", table([_finding(item) for item in seen.findings], ("kind", "subject", "why", "action"))]
    lines += [f"{item.subject}: {item.kind}: {item.why}; too young for a judgement" for item in seen.young]
    lines += [f"not read: {item}" for item in seen.unread]
    lines += [f"{item.finding.node}: {item.why}" for item in report.settlement.of("leave")]
    lines += [f"{line.node or line.subject}: {line.event}: {line.why}".removeprefix(": ") for line in report.lines]
    return "\n".join(lines)
