"""What holds a run before the cluster is asked: its end, people, modes, its driver, a decision to wait. Pure."""

from __future__ import annotations

from typing import assert_never

from flows.decisions.explain.reasons import Hold, Reason, Witness
from flows.decisions.recovery.liveness import last_end
from flows.decisions.recovery.moves import AwaitAnswer, CarryOut, Done, Finish, Move, Plan, Recover, Rest, Submit, Watch
from flows.decisions.text import blame
from profiles.vocabulary import Mode, RunState
from workflows.model.records import IncidentRecord, Story
from workflows.model.why import RunSight

_EVIDENCE_LINES = 5


def ledger_reasons(view: RunSight, move: Move) -> tuple[Reason, ...]:
    """Why nothing goes on, as far as the ledger shows it; empty where the attempt itself is watched."""
    story = view.story
    match move:
        case Done():
            return (ended(story),)
        case AwaitAnswer():
            return (*_approval(view, move), *_undriven(view, "nobody would carry the answer out"))
        case Rest():
            return (_resting(view, move), *_undriven(view, "nobody would go on once it is allowed"))
        case Watch():
            return _away(view)
        case Plan() | Submit() | Recover() | CarryOut() | Finish():
            return _undriven(view, f"nobody {_doing(move)}") or (*_away(view), _working(view, move))
        case _:
            assert_never(move)


def ended(story: Story) -> Reason:
    """How it ended, with the incident that ended it."""
    run, last = story.run, last_end(story)
    witnesses: tuple[Witness, ...] = (Witness("Run", run.name, f"state={run.state}", at=run.ended_at),)
    if run.state is not RunState.SUCCEEDED and last is not None:
        witnesses += incident_witnesses(last, run.why)
    advice = {
        RunState.SUCCEEDED: f"nothing: see primus report {run.name}",
        RunState.FAILED: f"read the incident, correct the cause, then: primus resume {run.name} --why …",
        RunState.STOPPED: f"go on with: primus resume {run.name}",
    }.get(run.state, "")
    return Reason(Hold.ENDED, f"{run.state}: {run.why}", advice, witnesses)


def incident_witnesses(incident: IncidentRecord, told_already: str = "") -> tuple[Witness, ...]:
    """What an incident says of itself; its decision is left out where `told_already` holds it."""
    blamed = ", ".join(blame({"node": node, "rank": rank}) for node, rank in incident.culprits) or "nobody"
    diagnosis = f"{incident.fault_class or 'not diagnosed yet'} ({incident.confidence:.2f}), blamed: {blamed}"
    lines = tuple(
        Witness("Incident", incident.id, "evidence", "", text) for text in incident.evidence[:_EVIDENCE_LINES]
    )
    why = "" if incident.why in told_already else incident.why
    return (Witness("Incident", incident.id, incident.signal, diagnosis, why, incident.detected_at), *lines)


def _approval(view: RunSight, move: AwaitAnswer) -> tuple[Reason, ...]:
    item = move.approval
    left = item.expires_at - view.now
    ends = f"; without an answer in {left:.0f} s nothing is done" if left > 0 else "; the time to answer is over"
    incident = next((found for found in view.story.incidents if found.id == item.incident), None)
    return (
        Reason(
            Hold.APPROVAL,
            f"waiting for a person: {item.question}{ends}",
            f"primus approve {item.id} --why …, or primus deny {item.id} --why …",
            (
                Witness("Approval", item.id, f"state={item.state}", "", item.question, item.asked_at),
                *(incident_witnesses(incident) if incident else ()),
            ),
        ),
    )


def _resting(view: RunSight, move: Rest) -> Reason:
    story, run = view.story, view.story.run
    incident = last_end(story)
    is_decided = incident is not None and incident.action is not None
    decided = incident_witnesses(incident, incident.why) if incident is not None and is_decided else ()
    held = f"; decided but not carried out: {incident.action}: {incident.why}" if incident and incident.action else ""
    if story.paused:
        since = next((mark.at for mark in reversed(story.marks) if mark.kind == "paused"), None)
        command = f"primus unpause {run.name}" if run.paused else "primus unpause --all"
        witness = Witness("Run", run.name, "automation=paused", "", run.why, since)
        return Reason(Hold.PAUSED, f"automation is paused{held}", command, (witness, *decided))
    witness = Witness("Run", run.name, f"mode={run.mode}", "", move.why)
    advice = f"do it yourself, or let it act: primus resume {run.name} --mode {Mode.ACT}"
    return Reason(Hold.OBSERVE, f"mode observe: nothing is done{held}", advice, (witness, *decided))


def _undriven(view: RunSight, lacking: str) -> tuple[Reason, ...]:
    if view.driver.alive:
        return ()
    end = view.driver.told_end(view.story.lease)
    return (
        Reason(
            Hold.NO_DRIVER,
            f"no driver is alive: {lacking}{f'; {end}' if end else ''}",
            f"primus resume {view.story.run.name} starts one; it goes on where the last one was",
            (driver_witness(view),),
        ),
    )


def driver_witness(view: RunSight) -> Witness:
    """What is known of the run's driver."""
    lease, driver = view.story.lease, view.driver
    log = f"its log: {driver.log}" if driver.log and not driver.alive else ""
    end = driver.told_end(lease)
    if lease is None and driver.pid is None:
        message = "; ".join(part for part in ("no process holds its lease", log) if part)
        return Witness("Lease", view.story.run.name, "holder=nobody", "", message)
    held = "" if lease is None else f"its lease {'ran out' if lease.expires_at <= view.now else 'runs'}"
    alive = "alive" if driver.alive else "gone"
    message = "; ".join(part for part in (held, end, log) if part)
    return Witness("Lease", view.story.run.name, f"holder={driver.host}/{driver.pid}", alive, message)


def _away(view: RunSight) -> tuple[Reason, ...]:
    """The cluster is silent, to us or to the driver. Training is left alone meanwhile."""
    run = view.story.run
    outage = view.away or ("" if run.goes_on else run.waits_for)
    if not outage:
        return ()
    name = view.resolved.cluster.name
    return (
        Reason(
            Hold.CONTROL_PLANE,
            f"the cluster or a service does not answer, so the state of the run is not known: {outage}",
            f"wait: the training is not touched; to check the cluster: primus doctor --cluster {name}",
            (Witness("Cluster", name, "answers=False", "", outage),),
        ),
    )


def _working(view: RunSight, move: Plan | Submit | Recover | CarryOut | Finish) -> Reason:
    until = _wait_until(move)
    if isinstance(move, CarryOut) and until is not None and until > view.now:
        return Reason(
            Hold.BACK_OFF,
            f"waits {until - view.now:.0f} s more before the next attempt, as decided: {move.incident.why}",
            "wait; the pause grows with each failure of the same kind",
            incident_witnesses(move.incident, move.incident.why),
        )
    incident = move.incident if isinstance(move, Recover | CarryOut) else None
    return Reason(
        Hold.DRIVER_WORKS,
        f"its driver {_doing(move)}",
        "wait: this takes seconds; primus status shows what changes",
        (driver_witness(view), *(incident_witnesses(incident) if incident else ())),
    )


def _wait_until(move: Plan | Submit | Recover | CarryOut | Finish) -> float | None:
    if not isinstance(move, CarryOut):
        return None
    waits = [item.constraints.wait_until for item in move.actions if not item.target]
    return next((until for until in waits if until), None)


def _doing(move: Plan | Submit | Recover | CarryOut | Finish) -> str:
    """What is to be done next."""
    match move:
        case Plan(number):
            return f"plans attempt {number}"
        case Submit(attempt):
            return f"submits attempt {attempt.number}"
        case Recover(incident):
            return f"diagnoses {incident.signal} of attempt {incident.attempt}"
        case CarryOut(incident):
            return f"carries out {incident.action}: {incident.why}"
        case Finish(state):
            return f"records the end ({state})"
        case _:
            assert_never(move)
