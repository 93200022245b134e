"""What reconciling does about a finding, and its findings in the ledger. Each step is safe to repeat.

An action says in words what came of it. A finding is opened once, touched now and then, and closed when it is over;
people's answers are read here too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from profiles.cluster import ClusterProfile
from profiles.vocabulary import FaultClass, VerdictWord
from tasks.cluster import current
from tasks.context import world
from tasks.lease import our_ledger
from tasks.nodes.marks import TAINT_VALUE_CHARACTERS, Mark, set_mark
from tasks.prefect.automations import server_caller
from tasks.prefect.events import speaking_to_server_of
from tasks.prefect.flow_runs import FlowRuns, flow_runs
from workflows import labels
from workflows.model.attempt import Signal
from workflows.model.incidents import ended_by, fact_of, spell_of
from workflows.model.manifest import part
from workflows.model.nodes import watcher_of
from workflows.model.ownership import is_foreign
from workflows.model.records import ApprovalRecord, IncidentRecord, MarkRecord, RequestRecord
from workflows.model.runs import CursorRecord, FindingRecord, FlowRunSeen, ObjectSeen, Phase

CLAIM_SECONDS = 15.0
"""Whoever took a flow run up a moment ago is about to drive its run."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")

TOUCH_SECONDS = 60.0
"""A finding that stands is written again so often: a thousand of them cost 17 writes a second."""


def drive_again(cluster: str, run: str, why: str) -> str:
    """Have the run driven again by a run of its train flow, which adopts whatever is there.

    Raises:
        Unavailable: no server, or none that answers.
        NotFound: nobody ever served runs of this cluster there.
    """
    with speaking_to_server_of(world().settings.home), flow_runs() as server:
        server.stand_by(f"train/{cluster}")
        known = server.present(run)
        if known is None:
            return f"flow run {server.create(run, why)} was made for it"
        return _again(server, known, run, why)


def _again(server: FlowRuns, known: FlowRunSeen, run: str, why: str) -> str:
    if known.phase is Phase.WAITING:
        return f"its flow run {known.id} waits for a runner"
    if known.phase in (Phase.CLAIMED, Phase.RUNNING) and world().now() - known.since < CLAIM_SECONDS:
        return f"its flow run {known.id} was taken up a moment ago"
    if known.phase in (Phase.CANCELLED, Phase.CANCELLING):
        # The same request as a runner leaves: the run may save and is stopped by whoever drives it.
        stop = RequestRecord(f"{run}-stop-{known.id[:8]}", run, "stop", world().now(), "its flow run was cancelled")
        world().ledger.request(stop, server_caller())
    server.again(known.id, why)
    return f"its flow run {known.id} was scheduled again"


def tell_driver(run: str, attempt: int, signal: Signal | None, why: str) -> str:
    """Have the living driver look anew; where something went wrong an incident is opened for it first.

    Raises:
        Unavailable, NotFound.
    """
    here = world()
    story = here.ledger.story(run)
    now, said = here.now(), ""
    if signal is not None:
        number = 1 + len(ended_by(story, attempt))
        incident = IncidentRecord(
            id=f"{run}-a{attempt}-i{number}",
            run=run,
            attempt=attempt,
            at=now,
            detected_at=now,
            signal=str(signal),
            step=story.attempt.last_step if story.attempt else None,
            evidence=(f"{why}; its driver did not tell",),
            fact=fact_of(run, attempt, signal, number=spell_of(story, attempt, signal)),
        )
        opened = here.ledger.open_incident(None, incident, [MarkRecord(run, attempt, "detected", now, why)])
        said = f"incident {opened.id} {'is open' if opened.action is None else 'was decided'}; "
    here.ledger.request(RequestRecord(f"{run}-a{attempt}-wake-{now:.0f}", run, "wake", now, why))
    return f"{said}its driver was told to look again"


def remove(thing: ObjectSeen) -> str:
    """Delete the object if it still is the one that was seen.

    Raises:
        Unavailable, Refused.
    """
    cluster = current()
    found = cluster.get(thing.kind, thing.name)
    if found is None:
        return f"{thing.subject} is gone"
    marks = part(found, "metadata", "labels")
    if (marks.get(labels.RUN), marks.get(labels.ATTEMPT)) != (thing.run, str(thing.attempt)):
        return f"{thing.subject} is another one now: it stays"
    if is_foreign(found, our_ledger()):
        return f"{thing.subject} belongs to another ledger: it stays"
    cluster.delete(thing.kind, thing.name)
    return f"{thing.subject} was deleted"


def let_lapse(approval: str) -> str:
    """Let a question lapse that is past its deadline.

    Raises:
        Unavailable, NotFound.
    """
    return f"it is {world().ledger.expire(approval, world().now()).state}"


def mark_again(profile: ClusterProfile, node: str, why: str) -> str:
    """Put our mark on a node that the ledger still holds out of service.

    Raises:
        Unavailable, Refused.
    """
    written = world().ledger.node(profile.name, node)
    if written is None or written.state == "schedulable":
        return f"{node} is not held out of service any more: it stays as it is"
    word = why.partition(":")[0]
    value = word if word in tuple(FaultClass) else _UNFIT.sub("-", written.incident).strip("-._") or "quarantined"
    mark = Mark(VerdictWord.FAIL, value[:TAINT_VALUE_CHARACTERS].strip("-._"), why=why)
    return f"{node} is marked again" if set_mark(current(), node, mark) else f"{node} no longer exists"


def standing(cluster: str) -> dict[str, FindingRecord]:
    """The open findings of a cluster, by kind and subject."""
    return {f"{item.kind}/{item.subject}": item for item in world().ledger.findings(cluster)}


def opened(cluster: str, record: FindingRecord) -> FindingRecord:
    """The finding as it stands in the ledger; one that is open already is returned as it is."""
    identity = f"{cluster}/{record.kind}/{record.subject}@{record.first_at:.0f}"
    return world().ledger.open_finding(replace(record, id=identity, cluster=cluster))


def touched(record: FindingRecord, now: float) -> FindingRecord:
    """It is still seen."""
    if now - record.last_at < TOUCH_SECONDS:
        return record
    return world().ledger.open_finding(replace(record, last_at=now))


def told(record: FindingRecord, action: str) -> None:
    """Write down what came of it."""
    world().ledger.tell_finding(record.id, action, world().now())


def close(record: FindingRecord) -> None:
    """It is over."""
    world().ledger.close_finding(record.id, world().now())


def ask_about(record: FindingRecord, question: str, seconds: float) -> ApprovalRecord:
    """Ask a person whether what the finding wants may be done."""
    here, run = world(), watcher_of(record.cluster)
    now = here.now()
    asked = ApprovalRecord(f"{record.id}-approval", run, record.id, question, "waiting", now, now + seconds)
    return here.ledger.ask(None, asked)


def answer_of(record: FindingRecord) -> ApprovalRecord | None:
    """What a person said; None: nobody was asked."""
    return world().ledger.approval(f"{record.id}-approval")


def beat(name: str) -> None:
    """Write that a loop turns."""
    now = world().now()
    world().ledger.move_cursor(name, int(now), now)


def last_beat(name: str) -> CursorRecord | None:
    """When a loop last turned; None: never."""
    return world().ledger.cursor(name)
