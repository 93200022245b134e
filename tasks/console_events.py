"""The outbox of events: what stands in the ledger's history goes to the Prefect server, each line at least once.

The history is the queue and a cursor in the ledger is the only memory, so nothing is lost while the server or this
process is away. An event's id comes from the ledger's id and the line's place: sent twice, it is one event. The server
takes events before it writes them down, so the cursor follows only what is read back from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import NAMESPACE_OID, UUID, uuid5

from profiles.errors import NotFound, Transient
from tasks.console_server import ConsoleServer, flow_run_link, open_console, patience
from tasks.ledger import Ledger
from workflows.console import ConsoleEvent, EventGround, Json, Place, Sheet
from workflows.monitored import HistoryRow
from workflows.records import ApprovalRecord, Story

Page = Callable[[ApprovalRecord], Sheet]
Tell = Callable[[HistoryRow, EventGround], ConsoleEvent | None]
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
        tell: what a line of the history is (`flows.decisions.console_events.event_of`).
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
        """Tell the server what it was not told yet.

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
        """Where the last sender stood; who never sent begins an hour ago."""
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
        "payload": event.payload,
    }


def event_id(ledger: str, seq: int) -> UUID:
    """The same for the same line of the same ledger, whoever sends it."""
    return uuid5(uuid5(NAMESPACE_OID, f"primus-flows:{ledger}"), str(seq))


def _resource(place: Place) -> dict[str, str]:
    return {
        "prefect.resource.id": place.id,
        "prefect.resource.name": place.name or place.cluster,
        "primus.kind": place.kind,
        "primus.cluster": place.cluster,
    }
