"""The Prefect server as a console, and the outbox that sends it every event of the ledger's history at least once.

The history is the queue and a cursor in the ledger is the only memory, so nothing is lost while the server or this
process is away. An event's id comes from the ledger's id and the line's place: sent twice, it is one event. The server
takes events before it writes them down, so the cursor follows only what is read back from there. Decides nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import NAMESPACE_OID, UUID, uuid5

from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterName,
)
from prefect.client.schemas.objects import StateType
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
from prefect.states import Running
from prefect.utilities.urls import url_for

from profiles.errors import NotFound, Transient, Unavailable
from tasks.ledger.ledger import Ledger
from tasks.prefect.flow_runs import reached
from tasks.prefect.server import password_of, server_url
from tasks.prefect_clients import SyncPrefectClient, get_client
from workflows.model.events import ConsoleEvent, EventGround, Place, Sheet
from workflows.model.records import ApprovalRecord, Story
from workflows.model.runs import HistoryRow
from workflows.programs.runtime.text import uncoloured

Json = dict[str, Any]
Page = Callable[[ApprovalRecord], Sheet]
Tell = Callable[[HistoryRow, EventGround], ConsoleEvent | None]

ANSWER_SECONDS = 5.0
"""A server that takes longer counts as away: whoever asks comes back, and must not be held up meanwhile."""
PAGE = 50
"""Events in one answer of the server: its own limit."""
OLDEST_DAYS, NEWEST_DAYS = 400, 2
"""An event may be old when it is told at last, and a clock ahead of ours."""
CURSOR = "events"
LINES = 2000
"""Of the history that are looked at in one go."""
BATCH = 50
"""Events in one request, and in one question whether they were written down."""
CALL_SECONDS = 1.0
"""After which a call of `send` begins nothing more: what is left goes out with the next."""
BEGIN_SECONDS = 3600.0
"""Who never sent begins with what is no older: a console opened on an old ledger does not tell its whole life."""
LOOK_BACK_SECONDS = 15.0
"""The cursor stays so far behind: on PostgreSQL a slower transaction may write a line at a lower place than seen."""
AGAIN_SECONDS = 20.0
"""After which an event that the server took and did not write down is sent again; it writes every 5 s."""
CONFIRM_SECONDS = 1.0
AWAY_SECONDS = 3.0
"""Between two tries while a neighbour is away."""
LINK_SECONDS = 30.0
"""How long it is remembered which flow run trains a run."""


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

    def tag(self, flow_run: str, tags: Iterable[str], instead: Collection[str]) -> None:
        """Tags of a flow run beside those that it has, in place of others."""
        with reached():
            known = self.client.read_flow_run(UUID(flow_run)).tags
            kept = {tag for tag in known if tag not in instead}
            self.client.update_flow_run(UUID(flow_run), tags=sorted({*kept, *tags}))

    def form(self, deployment: str) -> str:
        """Address of the form that starts a deployment (`approve/<cluster>`); "" where it is not served."""
        try:
            with reached():
                found = self.client.read_deployment_by_name(deployment)
        except NotFound:
            return ""
        address = url_for("deployment", found.id) or ""
        return f"{address}/run" if address else ""

    def stand(self, flow_run: str, name: str, why: str) -> None:
        """Name the state of a flow run that runs; one that does not is left alone."""
        with reached():
            state = self.client.read_flow_run(UUID(flow_run)).state
            if (
                state is not None
                and state.type is StateType.RUNNING
                and (state.name, state.message or "") != (name, why)
            ):
                self.client.set_flow_run_state(UUID(flow_run), Running(name=name, message=why))

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

        It belongs to `flow_run` (None: it stands by itself); `known` is its id, where the caller remembers it.
        """
        with reached():
            identity = known or self._artifact(flow_run, sheet.key)
            if identity:
                change = ArtifactUpdate(data=_data(sheet), description=uncoloured(sheet.description))
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
                    description=uncoloured(sheet.description),
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
    if isinstance(sheet.data, list):
        return json.dumps(_shown(sheet.data))
    return _shown(sheet.data)


def _shown(value: Any) -> Any:
    """Others' words without what steers a terminal; whoever reads a page copies from it."""
    if isinstance(value, Mapping):
        return {_shown(name): _shown(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in cast("Sequence[Any]", value)]
    return uncoloured(value) if isinstance(value, str) else value


@dataclass
class _Sent:
    """A line that was read."""

    event: Json | None
    """None: it is no event, or the server has it."""
    at: float = 0.0
    """When it went out; 0: it waits."""


@dataclass
class Outbox:
    """One sender. `send` may be called as often as one likes; two senders at once do no harm.

    Args:
        ledger: whose history is told.
        tell: what a line of the history is (`flows.decisions.views.events.event_of`).
        page: a question about nodes as a page; those about runs are written by the runs' drivers.
        now: Unix seconds.
    """

    ledger: Ledger
    tell: Tell
    page: Page
    now: Callable[[], float] = time.time
    _sent: dict[int, _Sent] = field(default_factory=dict[int, _Sent])
    _links: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    _cursor: int = -1
    _identity: str = ""
    _quiet_until: float = 0.0
    _confirmed_at: float = 0.0
    _server: ConsoleServer | None = None

    def send(self) -> int:
        """Send the server the events that it has not got yet.

        Returns:
            How many events went out; 0 also while server or ledger are away: then they go later, and one line of the
            log says so.
        """
        if self.now() < self._quiet_until:
            return 0
        try:
            return self._send()
        except Transient as error:
            self.close()
            if not self._quiet_until:
                logging.getLogger("primus").warning("%s; events wait in the ledger", error)
            self._quiet_until = self.now() + AWAY_SECONDS
            return 0

    def close(self) -> None:
        """Give the connection back; `send` opens a new one."""
        opened, self._server = self._server, None
        if opened is not None:
            opened.close()

    def _send(self) -> int:
        server = self._reached()
        self._find_place()
        rows = self.ledger.history_after(self._cursor, LINES)
        unread = [row for row in rows if row.seq not in self._sent]
        number = 0
        if unread or any(item.event for item in self._sent.values()):
            with patience():
                self._read(unread, server)
                number = self._send_waiting(server)
                self._confirm(server)
        self._move(rows)
        self._quiet_until = 0.0
        return number

    def _send_waiting(self, server: ConsoleServer) -> int:
        """Events that did not go out yet, or that the server took and lost; how many went out for the first time."""
        begun, late = time.monotonic(), self.now() - AGAIN_SECONDS
        waiting = [item for item in self._sent.values() if item.event is not None and item.at < late]
        first = 0
        for begin in range(0, len(waiting), BATCH):
            part = waiting[begin : begin + BATCH]
            server.send([item.event for item in part if item.event is not None])
            for item in part:
                first += not item.at
                item.at = self.now()
            if time.monotonic() - begun > CALL_SECONDS:
                break
        return first

    def _reached(self) -> ConsoleServer:
        if self._server is None:
            self._server = open_console()
        return self._server

    def _find_place(self) -> None:
        """Where the last sender stood; without one, the place of an hour ago."""
        if self._cursor >= 0:
            return
        self._identity = self.ledger.identity()
        known = self.ledger.cursor(CURSOR)
        self._cursor = known.position if known else place_before(self.ledger, self.now() - BEGIN_SECONDS)

    def _read(self, rows: list[HistoryRow], server: ConsoleServer) -> None:
        stories: dict[str, Story | None] = {}
        for run in sorted({row.run for row in rows}):
            stories[run] = self._story(run)
        self._look_up([run for run, story in stories.items() if story is not None], server)
        for row in rows:
            ground = self._ground(row, stories[row.run])
            if ground.approval is not None and ground.story is None:
                server.put(None, self.page(ground.approval))
            event = self.tell(row, ground)
            body = None if event is None else body_of(event, self._identity, row.seq, self._flow_run(row.run))
            self._sent[row.seq] = _Sent(body)

    def _story(self, run: str) -> Story | None:
        try:
            return self.ledger.story(run) if run else None
        except NotFound:
            return None  # the monitor's own lines belong to no run

    def _ground(self, row: HistoryRow, story: Story | None) -> EventGround:
        approval = self.ledger.approval(row.subject) if row.kind == "approval" else None
        return EventGround(self._identity, story, approval, flow_run_link(self._flow_run(row.run)))

    def _look_up(self, runs: list[str], server: ConsoleServer) -> None:
        """Which flow runs train these runs, where that was not asked lately."""
        now = self.now()
        known = {run: self._links.get(run, ("", 0.0)) for run in runs}
        # One that has none yet is about to get one.
        unknown = [run for run, (found, at) in known.items() if now - at > (LINK_SECONDS if found else CONFIRM_SECONDS)]
        if unknown:
            found = server.flow_runs_of(unknown)
            self._links |= {run: (found.get(run, ""), now) for run in unknown}

    def _flow_run(self, run: str) -> str:
        return self._links.get(run, ("", 0.0))[0]

    def _confirm(self, server: ConsoleServer) -> None:
        """Ask which of the longest waiting ones the server wrote down."""
        begun = time.monotonic()
        if self.now() - self._confirmed_at < CONFIRM_SECONDS:
            return
        self._confirmed_at = self.now()
        out = {str(item.event["id"]): item for item in self._sent.values() if item.event is not None and item.at}
        for begin in range(0, len(out), BATCH):
            wanted = list(out)[begin : begin + BATCH]
            kept = server.has(wanted)
            for identity in kept:
                out[identity].event = None
            if len(kept) < len(wanted) or time.monotonic() - begun > CALL_SECONDS:
                return  # it writes in order: what came later is not there either

    def _move(self, rows: list[HistoryRow]) -> None:
        done = self._cursor
        for row in rows:
            if self._sent[row.seq].event is not None or row.at > self.now() - LOOK_BACK_SECONDS:
                break
            done = row.seq
        if done > self._cursor:
            self.ledger.move_cursor(CURSOR, done, self.now())
            self._sent = {seq: item for seq, item in self._sent.items() if seq > done}
            self._cursor = done


def place_before(ledger: Ledger, at: float) -> int:
    """The last place of the history that is older than `at`; 0 where none is."""
    low, high = 0, ledger.history_end()
    while low < high:
        middle = (low + high) // 2
        row = next(iter(ledger.history_after(middle, 1)), None)
        if row is not None and row.at < at:
            low = row.seq
        else:
            high = middle
    return low


def body_of(event: ConsoleEvent, ledger: str, seq: int, flow_run: str) -> Json:
    """The event as the server takes it."""
    related = [{**_resource(place), "prefect.resource.role": "node"} for place in event.nodes]
    related.append({**_resource(Place("cluster", event.place.cluster)), "prefect.resource.role": "cluster"})
    if flow_run:
        related.append({"prefect.resource.id": f"prefect.flow-run.{flow_run}", "prefect.resource.role": "flow-run"})
    return {
        "id": str(event_id(ledger, seq)),
        "occurred": datetime.fromtimestamp(event.at, UTC).isoformat(),
        "event": event.name,
        # Automations that tell people are debounced by label: by this one, none of them is.
        "resource": {**_resource(event.place), "primus.event": str(seq)},
        "related": related,
        "payload": _shown(event.payload),
    }


def event_id(ledger: str, seq: int) -> UUID:
    """The same for the same line of the same ledger, in any process."""
    return uuid5(uuid5(NAMESPACE_OID, f"primus-flows:{ledger}"), str(seq))


def _resource(place: Place) -> dict[str, str]:
    return {
        "prefect.resource.id": place.id,
        "prefect.resource.name": place.name or place.cluster,
        "primus.kind": place.kind,
        "primus.cluster": place.cluster,
    }
