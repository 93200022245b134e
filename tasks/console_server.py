"""The Prefect server as a console: events it keeps, artifacts it shows. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterName,
)
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import SettingsContext, get_settings_context
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    Settings,
    temporary_settings,
)
from prefect.utilities.urls import url_for

from profiles.errors import Unavailable
from tasks.flow_runs import reached
from tasks.prefect_server import password_of, server_url
from workflows.console import Sheet

Json = dict[str, Any]
ANSWER_SECONDS = 5.0
"""A server that takes longer counts as away: whoever asks comes back, and must not be held up meanwhile."""
PAGE = 50
"""Events in one answer of the server: its own limit."""
OLDEST_DAYS, NEWEST_DAYS = 400, 2
"""An event may be old when it is told at last, and a clock ahead of ours."""


@contextmanager
def patience() -> Generator[None]:
    """Inside the block a call of Prefect's client is tried once and not for long."""
    context = get_settings_context()
    with SettingsContext(profile=context.profile, settings=_short(context.settings)):
        yield


_REMEMBERED: list[tuple[Settings, Settings]] = []
"""The settings that were copied last, and their copy: Prefect reads files and the environment for each, 20 ms."""


def _short(settings: Settings) -> Settings:
    for known, copy in _REMEMBERED:
        if known is settings:
            return copy
    made = settings.copy_with_update(
        updates={PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: ANSWER_SECONDS}
    )
    _REMEMBERED[:] = [(settings, made)]
    return made


@contextmanager
def speaking_to_server_of(home: Path) -> Generator[None]:
    """Inside the block Prefect's clients speak to the server that the environment names, else to that of this home.

    Raises:
        Unavailable: there is neither.
    """
    url = PREFECT_API_URL.value() or server_url(home)
    if url is None:
        raise Unavailable("no Prefect server is known here: `primus up` starts one, PREFECT_API_URL names one")
    known: str | None = PREFECT_API_AUTH_STRING.value()
    password = known or password_of(home) or None
    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: password}):
        yield


@contextmanager
def console_server() -> Generator[ConsoleServer]:
    """The server that the environment names, for the length of the block.

    Raises:
        Unavailable: none is named, or it does not answer.
    """
    with patience():
        server = open_console()
        try:
            yield server
        finally:
            server.close()


def open_console() -> ConsoleServer:
    """The same for a caller that keeps it, closes it, and calls it inside `patience()`.

    Raises:
        Unavailable.
    """
    if not PREFECT_API_URL.value():
        # Prefect's client would start a server of its own, which nobody looks at.
        raise Unavailable("no Prefect server is named: `primus up` starts one, or set PREFECT_API_URL")
    with patience(), reached():
        client = get_client(sync_client=True)
        return ConsoleServer(client.__enter__())


class ConsoleServer:
    """Every method raises Unavailable where nobody answers; each may be called twice."""

    def __init__(self, client: SyncPrefectClient) -> None:
        self.client = client
        """Prefect's own, for what is asked of the same server beside events and artifacts."""

    def close(self) -> None:
        """Give the connection back."""
        self.client.__exit__(None, None, None)

    def send(self, events: Sequence[Json]) -> None:
        """Give events to the server; one that it has already is dropped there."""
        with reached():
            self._ask("/events", list(events))

    def has(self, ids: Sequence[str]) -> set[str]:
        """Which of these events the server has written down."""
        now, found = datetime.now(UTC), set[str]()
        span = {
            "since": (now - timedelta(days=OLDEST_DAYS)).isoformat(),
            "until": (now + timedelta(days=NEWEST_DAYS)).isoformat(),
        }
        for begin in range(0, len(ids), PAGE):
            wanted = {"id": {"id": list(ids[begin : begin + PAGE])}, "occurred": span}
            with reached():
                answer = self._ask("/events/filter", {"filter": wanted, "limit": PAGE})
            found |= {str(item["id"]) for item in answer["events"]}
        return found

    def flow_runs_of(self, runs: Sequence[str]) -> dict[str, str]:
        """Run -> id of the newest flow run that trains it, for those that have one."""
        found: dict[str, str] = {}
        for begin in range(0, len(runs), PAGE):
            names = {f"train {run}": run for run in runs[begin : begin + PAGE]}
            wanted = FlowRunFilter(name=FlowRunFilterName(any_=list(names)))
            with reached():
                # The newest first: of a run that was resumed often, only the newest is of interest.
                page = self.client.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_DESC)
            for item in page:
                found.setdefault(names[item.name], str(item.id))
        return found

    def put(self, flow_run: str | None, sheet: Sheet, known: str = "") -> str:
        """Write an artifact, or write over the one that stands there; its id.

        Args:
            flow_run: that it belongs to; None: it stands by itself.
            sheet: what it says.
            known: its id, where the caller remembers it.
        """
        with reached():
            identity = known or self._artifact(flow_run, sheet.key)
            if identity:
                change = ArtifactUpdate(data=_data(sheet), description=sheet.description)
                # Not `update_artifact`: it tells an event of its own for every change.
                self.client.request(
                    "PATCH",
                    "/artifacts/{id}",
                    path_params={"id": identity},
                    json=change.model_dump(mode="json", exclude_unset=True),
                )
                return identity
            made = self.client.create_artifact(
                ArtifactCreate(
                    key=sheet.key,
                    type=sheet.kind,
                    description=sheet.description,
                    data=_data(sheet),
                    flow_run_id=UUID(flow_run) if flow_run else None,
                )
            )
        return str(made.id)

    def _artifact(self, flow_run: str | None, key: str) -> str:
        owner = ArtifactFilterFlowRunId(any_=[UUID(flow_run)]) if flow_run else None
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[key]), flow_run_id=owner)
        found = self.client.read_artifacts(artifact_filter=wanted, limit=1)
        return str(found[0].id) if found else ""

    def _ask(self, path: Any, body: Any) -> Any:
        answer = self.client.request("POST", path, json=body)
        return answer.json() if answer.content else None


def flow_run_link(flow_run: str) -> str:
    """Address of a flow run's page; "" where no server is named."""
    return url_for("flow-run", UUID(flow_run)) or "" if flow_run else ""


def _data(sheet: Sheet) -> Any:
    return json.dumps(sheet.data) if sheet.kind == "table" else sheet.data
