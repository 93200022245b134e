"""`primus monitor`: one pass over the nodes, or the loop in the foreground."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from deployments.edge import FAILED, GOOD, INTERRUPTED, UNKNOWN, out, out_json, say
from deployments.views import table
from flows.decisions.status import timestamp
from flows.monitor import in_words, keep_watch, look
from flows.node_sentinel import Line, NodeReport
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import using
from tasks.clusters import open_cluster
from tasks.node_watch import Bell
from tasks.opening import localised
from tasks.session import at_hand
from tasks.settings import Settings
from workflows.node_sight import NodeFinding

Json = dict[str, Any]
SWITCH_SECONDS = 0.0005
"""One thread reads, one decides, several write: each waits no longer for its turn than a fraction of a patch. Python's
own 5 ms would be the larger part of a reaction."""


def show_monitor(cluster: str, mode: str, *, once: bool, as_json: bool) -> int:
    """Look once, or watch until Ctrl-C.

    Returns:
        Once: 0 where nothing is wrong, 1 where a node has a fault, 3 where only something is not known. Else 130.

    Raises:
        ProfileError: no such cluster profile, or no such mode.
        Conflict: a monitor of this cluster lives.
        Unavailable: the cluster or the ledger does not answer at the beginning.
    """
    settings = Settings.from_environment(os.environ)
    settings.make_home()
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen = _mode(mode) or profile.monitor.mode
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        if not once:
            return _watch(profile, chosen, as_json=as_json)
        report = look(profile, chosen)
    if as_json:
        out_json(document(profile.name, chosen, report))
    else:
        out(text(profile.name, chosen, report))
    return FAILED if report.faults else UNKNOWN if report.unknown else GOOD


def _mode(word: str) -> Mode | None:
    if not word:
        return None
    if word not in tuple(Mode):
        raise ProfileError("--mode", f"must be one of {', '.join(Mode)}, got {word!r}")
    return Mode(word)


def _watch(profile: ClusterProfile, mode: Mode, *, as_json: bool) -> int:
    ended, bell = threading.Event(), Bell()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()
        bell.ring()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    turn_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        say(f"watching the nodes of {profile.name}, mode {mode}; Ctrl-C ends it")
        keep_watch(profile, mode, _print_json if as_json else _print_line, ended.is_set, bell)
    finally:
        sys.setswitchinterval(turn_seconds)
        for number, handler in before.items():
            signal.signal(number, handler)
    return INTERRUPTED


def _print_json(line: Line) -> None:
    out(json.dumps({"at": timestamp(line.at), "event": line.event, "node": line.node or None, "why": line.why}))


def _print_line(line: Line) -> None:
    at = datetime.fromtimestamp(line.at, UTC).astimezone().strftime("%H:%M:%S")
    out(" ".join(part for part in (at, line.node, f"{line.event}:", line.why) if part))


def document(cluster: str, mode: Mode, report: NodeReport) -> Json:
    """The document of `primus monitor --once --json`."""
    steps = {item.finding.key: item for item in report.settlement.settled}
    faults: list[Json] = []
    for finding in report.faults:
        step = steps.get(finding.key)
        faults.append({**_row(finding), "step": step.step if step else None, "because": step.why if step else ""})
    return {
        "cluster": cluster,
        "mode": str(mode),
        "nodes": report.nodes,
        "faults": faults,
        "unknown": [_row(finding) for finding in report.unknown],
        "held": [{"node": node, "why": why} for node, why in report.held],
        "events": [{"event": line.event, "node": line.node or None, "why": line.why} for line in report.lines],
    }


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


def text(cluster: str, mode: Mode, report: NodeReport) -> str:
    """The same for people: one line, what was found, what was done."""
    lines = [f"{cluster}, mode {mode}: {in_words(report)}"]
    steps = {item.finding.key: item.step for item in report.settlement.settled}
    found = [{**_row(item), "step": steps.get(item.key, "")} for item in [*report.faults, *report.unknown]]
    if found:
        lines += ["", table(found, ("node", "verdict", "condition", "class", "step", "why"))]
    lines += [f"{item.finding.node}: {item.why}" for item in report.settlement.of("leave")]
    lines += [f"{line.node}: {line.event}: {line.why}".removeprefix(": ") for line in report.lines]
    return "\n".join(lines)
