"""Flow runs of a cluster's deployments on the Prefect server: what is asked for, and how it ended. Decides nothing.

A flow run belongs to a run from the moment it carries the tag `run:<name>`: a driver that takes it up later goes on
with that run, whatever the request's profile would say by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.responses import FlowRunResponse
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Completed, Crashed, Failed, Pending, Running, Scheduled
from prefect.types._datetime import now

from profiles.errors import NotFound, Unavailable
from profiles.vocabulary import RunState
from tasks.prefect.deployments import Offer, served, siblings
from tasks.prefect_clients import SyncPrefectClient, get_client
from workflows.model.runs import ENDS, Due, FlowRunSeen, Phase, Plain
from workflows.programs.runtime.text import uncoloured

__all__ = ["TAG", "FlowRun", "FlowRuns", "Offer", "flow_runs", "reached", "run_of"]

TAG = "run:"
"""Prefix of the tag that says which run a flow run belongs to."""
PAGE = 200
"""The server's own limit for one answer."""
BUSY = (429, 503)
"""What it answers while it has too much to do; SQLite says so wherever two write at once."""
BUSY_SECONDS = (0.1, 0.3, 0.9)
"""Between one question and the next while the server is busy; whoever asks comes back anyhow."""
P = ParamSpec("P")
T = TypeVar("T")

_PHASES = {
    StateType.SCHEDULED: Phase.WAITING,
    StateType.PENDING: Phase.CLAIMED,
    StateType.RUNNING: Phase.RUNNING,
    StateType.PAUSED: Phase.PAUSED,
    StateType.CANCELLING: Phase.CANCELLING,
    StateType.CANCELLED: Phase.CANCELLED,
}
_OPEN = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_CONCLUSIONS = {RunState.SUCCEEDED: Completed, RunState.FAILED: Failed, RunState.STOPPED: Cancelled}


class _Busy(Unavailable):
    """The server answers that it is busy: another client has its database for a moment."""


def patiently(method: Callable[P, T]) -> Callable[P, T]:
    """The same, asked again a few times while the server is busy; only for what may be done twice."""

    @wraps(method)
    def asked(*words: P.args, **named: P.kwargs) -> T:
        for seconds in BUSY_SECONDS:
            try:
                return method(*words, **named)
            except _Busy:
                time.sleep(seconds)
        return method(*words, **named)

    return asked


@contextmanager
def flow_runs() -> Generator[FlowRuns]:
    """The server that the environment names; a call that fails is not tried again inside the client.

    Raises:
        Unavailable: it does not answer.
    """
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), get_client(sync_client=True) as client:
        yield FlowRuns(client)


@contextmanager
def reached() -> Generator[None]:
    """Errors of the client leave the block as ours."""
    try:
        yield
    except ObjectNotFound as error:
        raise NotFound(f"the Prefect server does not know it: {error}") from error
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        raise (_Busy if code in BUSY else Unavailable)(f"the Prefect server answers {code}: {error}") from error
    except (httpx.HTTPError, OSError, RuntimeError) as error:
        raise Unavailable(f"the Prefect server does not answer: {type(error).__name__}: {error}") from error


class FlowRuns:
    """Flow runs of a cluster's deployments; see `flow_runs`. Every method raises Unavailable where nobody answers."""

    def __init__(self, client: SyncPrefectClient, train: Sequence[UUID] = ()) -> None:
        self._client = client
        self._train = list(train)
        self._plain: list[UUID] = []

    @patiently
    def serve(self, offers: Sequence[Offer]) -> dict[str, Offer]:
        """Make the deployments what is offered; the offers by the ids of their deployments.

        The first of those that train gets the runs that nobody asked the server for.
        """
        with reached():
            ids = [served(self._client, offer) for offer in offers]
        self._train = [one for one, offer in zip(ids, offers, strict=True) if offer.trains]
        self._plain = [one for one, offer in zip(ids, offers, strict=True) if not offer.trains]
        return {str(one): offer for one, offer in zip(ids, offers, strict=True)}

    @patiently
    def waiting(self) -> list[Due]:
        """Flow runs whose time has come, the longest due first."""
        with reached():
            ids = [*self._train, *self._plain]
            found = self._client.get_scheduled_flow_runs_for_deployments(ids, now("UTC"), PAGE)
        return [_due(item) for item in found]

    @patiently
    def plain(self) -> list[Plain]:
        """Flow runs that train nothing and were claimed but have not ended."""
        if not self._plain:
            return []
        kinds = FlowRunFilterState(type=FlowRunFilterStateType(any_=_OPEN[1:]))
        return [_plain(item) for item in self._read(FlowRunFilter(state=kinds), 0, self._plain)]

    @patiently
    def open(self) -> list[FlowRunSeen]:
        """Flow runs that have not ended."""
        kinds = FlowRunFilterState(type=FlowRunFilterStateType(any_=_OPEN))
        found: list[FlowRun] = []
        while len(page := self._read(FlowRunFilter(state=kinds), len(found), self._train)) == PAGE:
            found += page
        return [_seen(item) for item in (*found, *page)]

    @patiently
    def of_run(self, run: str) -> list[FlowRunSeen]:
        """Flow runs that belong to a run, the one that was asked for first stands first; ended ones too."""
        found = self._read(FlowRunFilter(tags=FlowRunFilterTags(all_=[TAG + run])), 0, self._train)
        return [_seen(item) for item in sorted(found, key=_asked_for)]

    def present(self, run: str) -> FlowRunSeen | None:
        """The flow run that stands for a run: the first one that has not ended, else the last; None: there is none."""
        belonging = self.of_run(run)
        return next((one for one in belonging if one.phase not in ENDS), belonging[-1] if belonging else None)

    @patiently
    def read(self, flow_run: str) -> FlowRun:
        """One flow run as Prefect's engine wants it.

        Raises:
            NotFound.
        """
        with reached():
            return self._client.read_flow_run(UUID(flow_run))

    @patiently
    def entrypoint(self, flow_run: FlowRun) -> str:
        """Module path of its flow, as its deployment names it; "" where it is of none."""
        if flow_run.deployment_id is None:
            return ""
        with reached():
            return self._client.read_deployment(flow_run.deployment_id).entrypoint or ""

    @patiently
    def stand_at(self, flow_run: FlowRun) -> None:
        """Speak of the deployment that this flow run is of, and of its cluster's others that train."""
        if flow_run.deployment_id is not None:
            with reached():
                self._train = siblings(self._client, flow_run.deployment_id)

    @patiently
    def stand_by(self, deployment: str) -> None:
        """Speak of the deployment of this name (`train/<cluster>`), and of its cluster's others that train.

        Raises:
            NotFound: nobody ever served it.
        """
        with reached():
            found = self._client.read_deployment_by_name(deployment)
            self._train = siblings(self._client, found.id)

    def claim(self, flow_run: str) -> bool:
        """Become the one that starts its driver; False where another did, or it was cancelled."""
        with reached():
            told = self._client.set_flow_run_state(UUID(flow_run), Pending())
        return told.status.value == "ACCEPT"

    @patiently
    def belongs(self, flow_run: FlowRun, run: str) -> None:
        """Write down which run it belongs to. Safe to repeat."""
        with reached():
            self._client.update_flow_run(flow_run.id, tags=sorted({*flow_run.tags, TAG + run}))

    @patiently
    def leaves(self, flow_run: FlowRun) -> None:
        """It belongs to no run. Safe to repeat."""
        with reached():
            self._client.update_flow_run(flow_run.id, tags=[tag for tag in flow_run.tags if not tag.startswith(TAG)])

    def again(self, flow_run: str, why: str) -> None:
        """Let it be claimed again, whatever state it is in."""
        self._set(flow_run, Scheduled(name="TakenOver", message=why))

    @patiently
    def create(self, run: str, why: str) -> str:
        """A flow run for a run of the ledger, or the one that was made for it before; its id."""
        wanted = {"request": {"name": run, "profile": ""}}
        with reached():
            made = self._client.create_flow_run_from_deployment(
                self._train[0],
                parameters=wanted,
                state=Scheduled(message=why),
                name=f"train {run}",
                tags=[TAG + run],
                # The server knows keys by flow, and every cluster's deployment is of the same one.
                idempotency_key=f"{run}@{self._train[0]}",
            )
        return str(made.id)

    def goes_on(self, flow_run: str, name: str, why: str) -> None:
        """Whoever paused it sees that it runs, and what that means."""
        self._set(flow_run, Running(name=name, message=why))

    def is_deleted(self, flow_run: str) -> bool:
        """Whether the server does not have it any more."""
        try:
            self.read(flow_run)
        except NotFound:
            return True
        return False

    @patiently
    def tidy(self, deployment: str, keep: int) -> None:
        """Delete flow runs that a timetable made and that went well or were skipped, but for the newest.

        They come every minute, and tell nothing; what went wrong stays.
        """
        well = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.COMPLETED]))
        skipped = FlowRunFilterState(name=FlowRunFilterStateName(any_=["Skipped"]))
        for state in (well, skipped):
            for one in self._read(FlowRunFilter(state=state), keep, [UUID(deployment)]):
                if one.auto_scheduled:
                    with reached(), suppress(ObjectNotFound):
                        self._client.delete_flow_run(one.id)

    def conclude(self, flow_run: str, state: RunState, why: str) -> None:
        """Say how its run ended."""
        self._set(flow_run, _CONCLUSIONS[state](message=why))

    def refuse(self, flow_run: str, why: str) -> None:
        """What was asked cannot be done."""
        self._set(flow_run, Failed(name="Refused", message=why))

    def drop(self, flow_run: str, why: str) -> None:
        """Nothing is done for it."""
        self._set(flow_run, Cancelled(message=why))

    def skip(self, flow_run: str, why: str) -> None:
        """A timetable made it, and it is not run."""
        self._set(flow_run, Cancelled(name="Skipped", message=why))

    def crash(self, flow_run: str, why: str) -> None:
        """Its process is gone and it is not begun again."""
        self._set(flow_run, Crashed(message=why))

    @patiently
    def _set(self, flow_run: str, state: State[Any]) -> None:
        state.message = uncoloured(state.message or "")
        with reached():
            self._client.set_flow_run_state(UUID(flow_run), state, force=True)

    def _read(self, wanted: FlowRunFilter, offset: int, deployments: list[UUID]) -> list[FlowRun]:
        ours = DeploymentFilter(id=DeploymentFilterId(any_=deployments))
        with reached():
            return self._client.read_flow_runs(
                flow_run_filter=wanted,
                deployment_filter=ours,
                sort=FlowRunSort.START_TIME_DESC,
                limit=PAGE,
                offset=offset,
            )


def _asked_for(flow_run: FlowRun) -> tuple[float, str]:
    return (0.0 if flow_run.created is None else flow_run.created.timestamp(), str(flow_run.id))


def run_of(flow_run: FlowRun) -> str:
    """The run it belongs to; "" where it was not opened yet."""
    return next((tag.removeprefix(TAG) for tag in flow_run.tags if tag.startswith(TAG)), "")


def _seen(flow_run: FlowRun) -> FlowRunSeen:
    state = flow_run.state
    if state is None:
        return FlowRunSeen(str(flow_run.id), Phase.ENDED, 0.0, run_of(flow_run))
    phase = _PHASES.get(state.type, Phase.ENDED)
    return FlowRunSeen(str(flow_run.id), phase, state.timestamp.timestamp(), run_of(flow_run))


def _plain(flow_run: FlowRun) -> Plain:
    seen = _seen(flow_run)
    return Plain(seen.id, str(flow_run.deployment_id), seen.phase, seen.since, flow_run.run_count)


def _due(flow_run: FlowRunResponse) -> Due:
    at = flow_run.expected_start_time or flow_run.next_scheduled_start_time or flow_run.created
    begins = 0.0 if at is None else at.timestamp()
    return Due(str(flow_run.id), str(flow_run.deployment_id), begins, bool(flow_run.auto_scheduled))
