"""A run in the ledger, as tasks: its begin, its states, and waiting for people.

A wait (an answer, a request, the end of a pause) only reads the ledger.
"""

from __future__ import annotations

import threading

from profiles.request import TrainRequest
from profiles.vocabulary import FINISHED, RunState
from tasks.context import patient, touch, world
from tasks.prefect.automations import asked_by
from tasks.runs.open import open_run
from workflows.model.records import TAKEN_BACK, TOLD, ApprovalRecord, IncidentRecord, RunRecord, Story

MEMORY_SECONDS = 30 * 86400.0
MEMORY_INCIDENTS = 2000
"""How far back, and how many of the newest incidents of all runs, say what a retry is worth."""

LOOK_SECONDS = 0.25
"""Between two looks at the ledger's version: below what a person notices."""


@patient
def version_of(run: str) -> int:
    """Grows with everything that is written about the run; read it before the story it is to be compared with."""
    return world().ledger.changes(run)


@patient
def read_story(run: str) -> Story:
    """Everything the ledger knows of the run.

    Raises:
        NotFound: no such run.
    """
    return world().ledger.story(run)


@patient
def recent_incidents(now: float) -> list[IncidentRecord]:
    """The newest incidents of all runs, in the order of detection, without those that ask for no action."""
    known = world().ledger.incidents(since=now - MEMORY_SECONDS)
    return [item for item in known if item.signal not in TOLD][-MEMORY_INCIDENTS:]


@touch("opens run {request.name}")
def begin(request: TrainRequest) -> RunRecord:
    """Create or find the run of a request."""
    here = world()
    known = here.ledger.run(request.name) if request.name else None
    if known is not None and request.profile == "":
        return known
    # A flow that is started over asks for nothing anew.
    return open_run(request, here.settings, here.ledger, here.now(), asked_by() if known is None else None)


@patient
def set_state(run: str, state: RunState, why: str) -> None:
    """Write down where the run stands."""
    here = world()
    ended_at = here.now() if state in FINISHED else None
    here.ledger.set_run_state(run, here.fencing, state, why, ended_at)
    if state in FINISHED:
        here.ledger.withdraw(run, here.now(), f"{TAKEN_BACK}the run has {state}: {why}")
    if state is RunState.STOPPED:
        for request in here.ledger.requests(run, open_only=True):
            here.ledger.finish_request(here.fencing, run, request.id, here.now())


@touch("waits for an answer: {approval.question}")
def await_answer(approval: ApprovalRecord) -> ApprovalRecord:
    """The approval once it was answered, or expired by the clock (the safe default)."""
    while True:
        version = world().ledger.changes(approval.run)
        said = look_for_answer(approval)
        if said is not None:
            return said
        _wait_for_change(approval.run, version, until=approval.expires_at)


def look_for_answer(approval: ApprovalRecord) -> ApprovalRecord | None:
    """The approval where it waits no more: it was answered, has expired, or the run is to stop. None: it still waits.

    Raises:
        Unavailable: the ledger does not answer.
    """
    here = world()
    asked = here.ledger.approval(approval.id) or approval
    if asked.state != "waiting":
        return asked
    if any(item.kind == "stop" for item in here.ledger.requests(approval.run)):
        return asked  # who stops the run needs no answer
    return here.ledger.expire(asked.id, here.now()) if here.now() >= asked.expires_at else None


@touch("takes the question about {incident.signal} back: {why}")
def take_back(incident: IncidentRecord, why: str) -> bool:
    """Write down that what a person was asked about is over; the run goes on. False: an answer came before."""
    here = world()
    if not here.ledger.take_back(here.fencing, incident, here.now(), f"{TAKEN_BACK}{why}"):
        return False
    here.ledger.set_run_state(incident.run, here.fencing, RunState.RUNNING, why)
    return True


@touch("rests: {why}")
def rest(run: str, why: str, version: int) -> None:
    """Return when the ledger's record of the run has changed since `version`."""
    _wait_for_change(run, version, until=None)


@touch("waits before {run} is tried again")
def wait_until(run: str, until: float) -> None:
    """Return at `until` (Unix seconds), or earlier when a person changed something."""
    _wait_for_change(run, world().ledger.changes(run), until=until)


def _wait_for_change(run: str, version: int, until: float | None) -> None:
    here = world()
    quiet = threading.Event()
    while here.ledger.changes(run) == version and (until is None or here.now() < until):
        here.fencing  # noqa: B018 - raises Fenced when another driver took over meanwhile
        quiet.wait(LOOK_SECONDS)
