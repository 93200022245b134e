"""A run's beginning and end, as tasks."""

from __future__ import annotations

from profiles.request import TrainRequest
from profiles.vocabulary import FINISHED, RunState
from tasks.opening import open_run
from tasks.world import patient, touch, world
from workflows.records import IncidentRecord, RunRecord, Story
from workflows.told import TOLD


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


MEMORY_SECONDS = 30 * 86400.0
MEMORY_INCIDENTS = 2000
"""How far back, and how many of the newest incidents of all runs, say what a retry is worth."""


@patient
def recent_incidents(now: float) -> list[IncidentRecord]:
    """The newest incidents of all runs, in the order of detection, without what was only told."""
    known = world().ledger.incidents(since=now - MEMORY_SECONDS)
    return [item for item in known if item.signal not in TOLD][-MEMORY_INCIDENTS:]


@touch("opens run {request.name}")
def begin(request: TrainRequest) -> RunRecord:
    """Create or find the run of a request."""
    here = world()
    found = here.ledger.run(request.name) if request.name and request.profile == "" else None
    return found or open_run(request, here.settings, here.ledger, here.now())


@patient
def set_state(run: str, state: RunState, why: str) -> None:
    """Write down where the run stands."""
    here = world()
    ended_at = here.now() if state in FINISHED else None
    here.ledger.set_run_state(run, here.fencing, state, why, ended_at)
    if state is RunState.STOPPED:
        for request in here.ledger.requests(run, open_only=True):
            here.ledger.finish_request(here.fencing, run, request.id, here.now())
