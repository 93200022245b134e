"""Which event a row of the ledger's history becomes: its fields, its sentence, the command to answer with. Pure.

Events are made of the history alone. Names and fields are a promise: `docs/events.md` has the tables, and a test
compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.decisions.recovery.liveness import last_end
from flows.decisions.text import blame, timestamp
from profiles.vocabulary import FINISHED, Action, VerdictWord
from workflows.model.events import SCHEMA_VERSION, ConsoleEvent, EventGround, Json, Place
from workflows.model.nodes import WATCHER
from workflows.model.records import TOLD, Actor, IncidentRecord
from workflows.model.runs import HistoryRow

FIELDS: Mapping[str, Any] = {
    "schema_version": SCHEMA_VERSION,
    "ledger": "",
    "seq": 0,
    "at": "",
    "cluster": "",
    "run": "",
    "attempt": None,
    "node": "",
    "nodes": [],
    "id": "",
    "incident": "",
    "signal": "",
    "class": None,
    "confidence": None,
    "culprits": [],
    "action": None,
    "subject": "",
    "state": "",
    "outcome": None,
    "step": None,
    "ratio": None,
    "why": "",
    "evidence": [],
    "would_change": "",
    "question": "",
    "expires_at": None,
    "by": "",
    "known_by": "",
    "claim": "",
    "who": "",
    "link": "",
    "command": "",
    "message": "",
}
"""Every field of every payload, with what stands there where an event has nothing to say."""
NODE_EVENTS = {"quarantined": "quarantined", "schedulable": "released", "testing": "testing", "unknown": "unknown"}
MOST_NODES = 50
"""That an event is related to: the server takes 100 related resources."""
ATTEMPT_MOMENTS = (
    ("ended_at", "ended"),
    ("first_step", "training"),
    ("running_at", "running"),
    ("applied_at", "applied"),
    ("submitted_at", "submitted"),
)
"""Field that a change sets -> event; one change may set several, the last moment counts."""


EVIDENCE_LINES = 10
EVIDENCE_CHARACTERS = 500
"""What an event repeats of an incident's evidence; `primus status` has all of it."""
_COMMANDS: Mapping[str, str] = {
    "primus.approval.asked": 'primus approve {id} --why "..."',
    "primus.run.failed": 'primus resume {run} --why "..."',
    "primus.run.stopped": 'primus resume {run} --why "..."',
    "primus.run.paused": "primus unpause {run}",
    "primus.automation.paused": "primus unpause --all",
    "primus.run.succeeded": "primus report {run}",
    "primus.run.waiting": "primus why {run}",
    "primus.finding.opened": "primus monitor --once --cluster {cluster}",
    "primus.run.throughput_fell": "primus logs {run}",
}


def command_of(name: str, payload: Json) -> str:
    """The command that a person types after reading the event."""
    fallback = "primus status {run}" if payload["run"] else "primus nodes {node}" if payload["node"] else "primus runs"
    return _COMMANDS.get(name, fallback).format_map(payload)


def message_of(name: str, payload: Json) -> str:
    """The event as one line: its object, what happened, the culprit, what is done, and why."""
    about = payload["run"] or payload["node"] or payload["cluster"] or "everything"
    return f"{about}: {_sentence(name.removeprefix('primus.'), payload)}"


def _sentence(what: str, payload: Json) -> str:
    subject, _, verb = what.partition(".")
    if subject == "incident":
        return _of_incident(verb, payload)
    sentences = {
        "approval.asked": "waits for an answer: {question}",
        "approval.answered": "{who} answered, {state}: {why}",
        "approval.expired": "no answer came, {why}: {question}",
        "run.throughput_fell": "steps take {ratio} times as long since step {step} of attempt {attempt}",
        "run.succeeded": "succeeded: {why}",
        "run.failed": "failed: {why}",
        "run.stopped": "stopped: {why}",
        "finding.opened": "{subject}: {why}; {action}",
        "verdict.given": "{node} was tested, {state}: {why}",
        "attempt.ended": "attempt {attempt} ended as {outcome} at step {step}",
    }
    if what in sentences:
        return sentences[what].format_map(payload)
    if subject == "attempt":
        return f"attempt {payload['attempt']} is {verb}"
    if subject == "action":
        return f"{payload['action']} {payload['node']} {verb}: {payload['why']}".replace("  ", " ")
    who = f" by {payload['who']}" if payload["who"] else ""
    return f"{subject} {verb.replace('_', ' ')}{who}: {payload['why']}"


def _of_incident(verb: str, payload: Json) -> str:
    if verb == "opened":
        return f"attempt {payload['attempt']}: {payload['signal']}: {payload['why']}"
    if verb == "told":
        return f"{payload['class']}: {payload['why']}"
    if verb == "over":
        return f"{payload['signal']} is over: {next(iter(payload['evidence']), payload['class'])}"
    blamed = ", ".join(blame(item) for item in payload["culprits"]) or "nobody"
    known = f"{payload['class']} ({payload['confidence'] or 0.0:.2f}), blamed: {blamed}"
    return known if verb == "diagnosed" else f"{known}; {payload['action']}: {payload['why']}"


@dataclass(frozen=True)
class _Line:
    """A line of the history, read."""

    row: HistoryRow
    data: Json
    ground: EventGround

    @property
    def cluster(self) -> str:
        if self.ground.story is not None:
            return self.ground.story.run.cluster
        # A finding that closes says no more than its id, which begins with the cluster's name.
        named = self.row.subject.partition("/")[0] if self.row.kind == "finding" else ""
        return str(self.data.get("cluster") or named or self.row.run.removeprefix(f"{WATCHER}/"))

    @property
    def run(self) -> str:
        return "" if self.row.run.startswith(f"{WATCHER}/") else self.row.run

    @property
    def incident(self) -> IncidentRecord | None:
        """The incident that the line is about, or belongs to."""
        if self.ground.story is None:
            return None
        incident_id = self.data.get("incident") or (self.ground.approval.incident if self.ground.approval else "")
        known = (item for item in self.ground.story.incidents if item.id in (self.row.subject, incident_id))
        return next(known, None)


@dataclass(frozen=True)
class _EventParts:
    """What a line says: the end of the event's name, the fields that differ from `FIELDS`, and about whom."""

    name: str
    fields: Json
    node: str = ""
    """"" : it is about the run, or the cluster where there is no run."""


def event_of(row: HistoryRow, ground: EventGround) -> ConsoleEvent | None:
    """The event that a line of the history becomes; None for one that does not go outside.

    A line of a kind that this program does not know, as a newer one may write, is none either.
    """
    read = _TELLERS.get(row.kind)
    line = _Line(row, _object(row.data), ground)
    parts = read(line) if read is not None else None
    if parts is None:
        return None
    name = f"primus.{parts.name}"
    payload = {**FIELDS, **_common(line), **parts.fields, "node": parts.node}
    payload |= {"command": command_of(name, payload)}
    payload |= {"message": message_of(name, payload)}
    return ConsoleEvent(name, row.at, _place(line, parts.node), payload, _nodes(line.cluster, payload))


def _object(text: str) -> Json:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _common(line: _Line) -> Json:
    row, ground = line.row, line.ground
    return {
        "ledger": ground.ledger,
        "seq": row.seq,
        "at": timestamp(row.at),
        "cluster": line.cluster,
        "run": line.run,
        "id": row.subject,
        "why": row.why,
        "link": ground.link,
        **_person(row.by),
    }


def _person(by: Actor | None) -> Json:
    return {} if by is None else {"by": by.name, "known_by": str(by.known_by), "claim": by.claim, "who": str(by)}


def _place(line: _Line, node: str) -> Place:
    if node:
        return Place("node", line.cluster, node)
    return Place("run", line.cluster, line.run) if line.run else Place("cluster", line.cluster)


def _nodes(cluster: str, payload: Json) -> tuple[Place, ...]:
    named = {item["node"] for item in payload["culprits"]} | {payload["node"]}
    return tuple(Place("node", cluster, node) for node in sorted(node for node in named if node)[:MOST_NODES])


def _run(line: _Line) -> _EventParts | None:
    state = str(line.data.get("state", ""))
    if "created_at" in line.data:
        return _EventParts("run.opened", {"state": state})
    if "resumed_at" in line.data:
        return _EventParts("run.resumed", {"state": state})
    if line.data.get("waits_for"):
        return _EventParts("run.waiting", {"state": state})
    if not state:
        return None
    attempt = line.ground.story.attempt if line.ground.story else None
    last = {} if attempt is None else {"attempt": attempt.number, "step": attempt.last_step}
    last_incident = _last_incident(line) if state in FINISHED else {}
    return _EventParts(f"run.{state.replace('-', '_')}", {**last_incident, **last, "state": state})


def _last_incident(line: _Line) -> Json:
    """Of a run that failed: what it failed of."""
    last = last_end(line.ground.story) if line.ground.story else None
    if line.data.get("state") != "failed" or last is None:
        return {}
    return {**_incident_fields(last), "why": line.row.why}


def _attempt(line: _Line) -> _EventParts | None:
    last = line.row.subject.rpartition("/")[2]
    number = int(last) if last.isascii() and last.isdigit() else 0
    fields: Json = {"attempt": number}
    record = (
        next((item for item in line.ground.story.attempts if item.number == number), None)
        if (line.ground.story)
        else None
    )
    if record is not None:
        fields |= {"nodes": list(record.nodes), "step": record.last_step, "incident": record.incident}
        fields |= {"why": line.row.why or record.why}
    if "planned_at" in line.data:
        return _EventParts("attempt.planned", fields)
    moment = next((name for field, name in ATTEMPT_MOMENTS if line.data.get(field) is not None), None)
    if moment is None:
        return None
    return _EventParts(f"attempt.{moment}", fields | {"outcome": line.data.get("outcome")})


def _incident(line: _Line) -> _EventParts | None:
    record = line.incident
    fields = {} if record is None else _incident_fields(record)
    if line.data.get("over_at") is not None:
        return _EventParts("incident.over", fields)
    if str(line.data.get("signal")) in TOLD:
        return _EventParts("incident.told", fields)
    if "signal" in line.data and line.data.get("action") == Action.RESTART_IN_PLACE:
        return _EventParts("incident.restarted_in_place", fields)
    if "signal" in line.data:
        # What came of it is an event of its own.
        fields |= {"class": None, "confidence": None, "culprits": [], "action": None, "would_change": ""}
        seen = fields.get("evidence", [])[:1]
        return _EventParts("incident.opened", fields | {"evidence": seen, "why": seen[0] if seen else line.row.why})
    if line.data.get("resumed_at") is not None:
        return _EventParts("incident.resumed", fields)
    if line.data.get("action") is not None:
        return _EventParts("incident.decided", fields)
    if line.data.get("fault_class") is not None:
        return _EventParts("incident.diagnosed", fields | {"action": None, "would_change": ""})
    return None


def _incident_fields(record: IncidentRecord) -> Json:
    return {
        "incident": record.id,
        "attempt": record.attempt,
        "signal": record.signal,
        "class": None if record.fault_class is None else str(record.fault_class),
        "confidence": round(record.confidence, 3),
        "culprits": [{"node": node, "rank": rank} for node, rank in record.culprits],
        "action": None if record.action is None else str(record.action),
        "step": record.step,
        "why": record.why,
        "evidence": [text[:EVIDENCE_CHARACTERS] for text in record.evidence[:EVIDENCE_LINES]],
        "would_change": record.would_change,
    }


def _action(line: _Line) -> _EventParts:
    record = (
        next((item for item in line.ground.story.actions if item.id == line.row.subject), None)
        if (line.ground.story)
        else None
    )
    state = str(line.data.get("state") or _word_of(line.row.why))
    target = record.target if record else str(line.data.get("target", ""))
    kind = str(record.kind) if record else str(line.data.get("kind") or line.row.subject.rpartition("-")[2])
    fields = _incident_fields(line.incident) if line.incident else {}
    fields |= {"action": kind, "state": state, "why": line.row.why}
    return _EventParts(f"action.{state}", fields, node=target)


def _word_of(why: str) -> str:
    """State of an action of which the line holds only words: those of the node watch."""
    return "done" if why == "done" else "planned" if why.startswith("planned") else "refused"


def _approval(line: _Line) -> _EventParts:
    approval = line.ground.approval
    fields = _incident_fields(line.incident) if line.incident else {}
    fields |= {"why": line.row.why, "state": str(line.data.get("state") or "waiting")}
    if approval is not None:
        fields |= {
            "incident": approval.incident,
            "question": approval.question,
            "expires_at": timestamp(approval.expires_at),
        }
    if fields["state"] == "waiting":
        return _EventParts("approval.asked", fields)
    fields |= {"why": str(line.data.get("why", line.row.why)), **_person(approval.answerer if approval else None)}
    return _EventParts("approval.expired" if fields["state"] == "expired" else "approval.answered", fields)


def _verdict(line: _Line) -> _EventParts | None:
    if line.data.get("verdict") == VerdictWord.PASS:
        return None  # a gate writes one a node: thousands that concern nobody
    reasons = _object_list(line.data.get("reasons"))
    bad = [item for item in reasons if item.get("verdict") != VerdictWord.PASS]
    evidence = [f"{item.get('check')}: {item.get('evidence', '')}"[:EVIDENCE_CHARACTERS] for item in bad]
    state = str(line.data.get("verdict", "unknown"))
    fields: Json = {"state": state, "evidence": evidence[:EVIDENCE_LINES], "id": str(line.data.get("source", ""))}
    return _EventParts("verdict.given", fields, node=str(line.data.get("node", "")))


def _object_list(text: Any) -> list[Json]:
    try:
        found: Any = json.loads(text or "[]")
    except (ValueError, TypeError):
        return []
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []  # pyright: ignore


def _node(line: _Line) -> _EventParts:
    state = str(line.data.get("state", "unknown"))
    fields: Json = {"state": state, "incident": str(line.data.get("incident", ""))}
    return _EventParts(f"node.{NODE_EVENTS.get(state, 'unknown')}", fields, node=str(line.data.get("node", "")))


def _finding(line: _Line) -> _EventParts:
    if line.data.get("closed_at") is not None:
        return _EventParts("finding.closed", {})
    named = {"signal": str(line.data.get("kind", "")), "action": line.data.get("action")}
    return _EventParts("finding.opened", {**named, "subject": str(line.data.get("subject", ""))})


def _request(line: _Line) -> _EventParts | None:
    return _EventParts("run.stop_asked", {}) if line.data.get("kind") == "stop" else None


def _throughput(line: _Line) -> _EventParts:
    taken = {name: line.data.get(name) for name in ("attempt", "step", "ratio")}
    return _EventParts("run.throughput_fell", {**taken, "nodes": list(line.data.get("nodes", []))})


def _paused(line: _Line) -> _EventParts:
    return _EventParts(f"{'run' if line.run else 'automation'}.{line.row.kind}", {})


def _mode(line: _Line) -> _EventParts:
    return _EventParts("run.mode_changed", {"state": str(line.data.get("mode", ""))})


_TELLERS: Mapping[str, Callable[[_Line], _EventParts | None]] = {
    "run": _run,
    "attempt": _attempt,
    "incident": _incident,
    "action": _action,
    "approval": _approval,
    "verdict": _verdict,
    "node": _node,
    "finding": _finding,
    "request": _request,
    "throughput": _throughput,
    "paused": _paused,
    "unpaused": _paused,
    "mode": _mode,
}
"""Leases and checkpoints are no events: they come with every driver and every save."""
