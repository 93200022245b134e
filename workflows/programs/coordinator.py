"""The coordinator at work: requests become events of `coordination`, its effects become answers and a journal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Union

from workflows.programs import coordination_journal as journal
from workflows.programs.appender import Appender
from workflows.programs.coordination import advance, meeting_of, orders_for
from workflows.programs.coordination_model import (
    AppendMoment,
    AppendStep,
    Cleared,
    Event,
    Joined,
    Key,
    Meeting,
    Member,
    Published,
    RefusedError,
    ReplaceStep,
    Reported,
    State,
    StopAsked,
    Ticked,
)
from workflows.programs.coordination_status import finite, status
from workflows.programs.gang_progress import Moment, StepRow
from workflows.programs.numbered_rows import NumberedRows
from workflows.programs.serve import Later, Request, Response, Server

LONGEST_WAIT_SECONDS = 60.0
STEP_ROWS = 200_000
"""Rows of steps kept in memory (20 MB); older ones are in the journal and in the launchers' `steps.jsonl`."""
MOMENT_ROWS = 50_000
"""Moments kept in memory (10 MB), two for each checkpoint."""
ROWS_AN_ANSWER = 5000
JOURNAL_SECONDS = 1.0
"""How long the storage may take to write down a restart in place before launchers hear of it."""
IDLE_SECONDS = 3600.0


@dataclass(frozen=True)
class Gang:
    """The gang that is expected."""

    role: str
    pods: int = 1
    processes_per_node: int = 1
    steps: int = 0
    """Planned steps; 0: not known."""
    restarts: int = 0
    """Restarts in place that are lent to the attempt."""


class Coordinator:
    """Answers requests; the state is `coordination.State`, the rest is what an answer needs beside it."""

    def __init__(self, gang: Gang, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._token = environment.get("PRIMUS_TOKEN", "")
        self.state = State(
            deciding_role=gang.role,
            pods=gang.pods,
            processes=gang.processes_per_node,
            steps=gang.steps,
            started_at=time.time(),
            restarts_lent=gang.restarts,
        )
        self._heard: Dict[Key, float] = {}
        """Last word of each launcher; not part of the state, since a heartbeat changes nothing else."""
        self._rows: NumberedRows[StepRow] = NumberedRows(STEP_ROWS)
        self._moments: NumberedRows[Moment] = NumberedRows(MOMENT_ROWS)
        self._journal = ""
        self._appender: Optional[Appender] = None
        self._server: Optional[Server] = None

    def remember(self, path: str) -> None:
        """Read the journal at `path` and write to it from now on."""
        self._journal = path
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                for event in journal.read(file):
                    self._apply(event)
                    if isinstance(event, (Joined, Reported)):
                        self._heard[event.member.key if isinstance(event, Joined) else event.key] = event.at
        except FileNotFoundError:
            pass
        except OSError as error:
            print(f"coordinator: {path} cannot be read: {error.strerror}; starting without memory", flush=True)
        self._appender = Appender()

    def serve(self, address: str, port: int) -> Server:
        """A server that asks this coordinator.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server = Server(address, port, self.handle)
        return self._server

    @property
    def patience_seconds(self) -> float:
        """How long nothing has to be decided unless something is heard."""
        settling = self.state.settling
        return IDLE_SECONDS if settling is None else max(0.0, settling.until - time.time())

    def tick(self) -> None:
        """Decide what time alone decides."""
        if self.state.settling is not None:
            self.take(Ticked(time.time()))

    def close(self) -> None:
        """Write what is left of the journal."""
        if self._appender is not None:
            self._appender.close(2.0)

    def handle(self, request: Request) -> Union[Response, Later]:
        """The answer to one request."""
        if request.path == "/healthz":
            return Response(200, {"ok": True})
        if not self._trusted(request.token):
            return Response(401, {"error": "the token is missing or wrong"})
        answer = _ROUTES.get((request.method, request.path))
        if answer is None:
            return Response(404, {"error": f"{request.method} {request.path}: no such thing here"})
        try:
            return answer(self, request)
        except RefusedError as error:
            return Response(error.status, {"error": str(error)})
        except (KeyError, ValueError, TypeError) as error:
            return Response(400, {"error": f"the request is not understood: {error!r}"})

    def _trusted(self, token: str) -> bool:
        import hmac

        return bool(self._token) and hmac.compare_digest(token.encode(), self._token.encode())

    def take(self, event: Event) -> None:
        """Carry out one event and remember it.

        Raises:
            RefusedError: the event contradicts what is known.
        """
        kept = journal.worth_keeping(self.state, event)
        orders = len(self.state.orders)
        self._apply_strictly(event)
        if kept is not None and self._appender is not None:
            self._appender.append(self._journal, (journal.to_line(kept) + "\n").encode())
            if len(self.state.orders) > orders and self.state.restarts_lent:
                # Killed between an order and its record, we would count a restart too few.
                self._appender.flush(JOURNAL_SECONDS)

    def _apply(self, event: Event) -> None:
        try:
            self._apply_strictly(event)
        except RefusedError:
            return  # a journal of an older program may hold what is refused today

    def _apply_strictly(self, event: Event) -> None:
        self.state, effects = advance(self.state, event)
        for effect in effects:
            if isinstance(effect, AppendStep):
                self._rows.append(effect.row)
            elif isinstance(effect, ReplaceStep):
                self._rows.replace_last(effect.row)
            elif isinstance(effect, AppendMoment):
                self._moments.append(effect.moment)
            elif self._server is not None:
                self._server.wake()

    def join(self, request: Request) -> Response:
        """POST /v1/join."""
        body = request.body
        member = Member(
            role=str(body["role"]),
            pod_index=int(body["pod_index"]),
            pod=str(body.get("pod", "")),
            node=str(body.get("node", "")),
            address=str(body.get("address", "")),
            pods=int(body.get("pods", 1)),
            processes=int(body.get("processes", 1)),
            essential=bool(body.get("essential", True)),
            pids=dict(body.get("pids") or {}),
            incarnation=int(body.get("incarnation", 1)),
            heard_order=int(body.get("heard_order", 0)),
            resume_from=str(body.get("resume_from") or ""),
            resume_step=None if body.get("resume_step") is None else int(body["resume_step"]),
        )
        self.take(Joined(time.time(), member))
        self._heard[member.key] = time.time()
        known = self.state.members[member.key]
        return Response(
            200,
            {
                "member": f"{member.role}-{member.pod_index}",
                "incarnation": self.state.incarnation,
                "sequence": known.sequence,
            },
        )

    def rendezvous(self, request: Request) -> Later:
        """GET /v1/rendezvous."""
        role, index = request.query["role"], request.query.get("pod_index")
        pod_index = None if index is None else int(index)

        def look() -> Optional[Response]:
            found = meeting_of(self.state, role, pod_index)
            return None if found is None else Response(200, found)

        return Later(look, _wait(request), Response(200, {"incarnation": None}))

    def publish(self, request: Request) -> Response:
        """POST /v1/publish."""
        body = request.body
        meeting = Meeting(int(body["incarnation"]), str(body["master_addr"]), int(body["master_port"]))
        self.take(Published(time.time(), str(body.get("role") or self.state.deciding_role), meeting))
        return Response(200, {})

    def clear(self, request: Request) -> Response:
        """POST /v1/clear."""
        body = request.body
        key = (str(body["role"]), int(body["pod_index"]))
        self.take(Cleared(time.time(), key, int(body["incarnation"])))
        return Response(200, {})

    def report(self, request: Request) -> Response:
        """POST /v1/report."""
        body = request.body
        key = (str(body["role"]), int(body["pod_index"]))
        reports = tuple(journal.reports_of(body.get("reports")))
        member = self.state.members.get(key)
        sequence = int(body.get("sequence") or (member.sequence + 1 if member else 1))
        state, pids = str(body.get("state") or ""), dict(body.get("pids") or {})
        if member is None:
            raise RefusedError(404, f"{key[0]} {key[1]} has not joined")
        self._heard[key] = time.time()
        if reports or state or pids:
            why, incarnation = str(body.get("why") or ""), int(body.get("incarnation", 1))
            self.take(Reported(time.time(), key, sequence, reports, state, why, pids, incarnation))
        return Response(200, {})

    def orders(self, request: Request) -> Later:
        """GET /v1/orders."""
        key = (request.query.get("role") or self.state.deciding_role, int(request.query["pod_index"]))
        since = int(request.query.get("since") or 0)

        def look() -> Optional[Response]:
            found = orders_for(self.state, key, since)
            return Response(200, {"orders": [order.told() for order in found]}) if found else None

        return Later(look, _wait(request), Response(200, {"orders": []}))

    def steps(self, request: Request) -> Response:
        """GET /v1/steps."""
        since = max(0, int(request.query.get("since") or 0))
        following, rows = self._rows.since(since, ROWS_AN_ANSWER)
        answer: Dict[str, Any] = {"next": following, "steps": [_row(row) for row in rows]}
        if "moments_since" in request.query:
            since = max(0, int(request.query["moments_since"] or 0))
            answer["next_moment"], answer["moments"] = self._moments.since(since, ROWS_AN_ANSWER)
        return Response(200, answer)

    def stop(self, request: Request) -> Response:
        """POST /v1/stop."""
        body = request.body
        self.take(StopAsked(time.time(), str(body.get("why") or "asked to stop"), bool(body.get("save", True))))
        return Response(200, {})

    def status(self, _request: Request) -> Response:
        """GET /status."""
        return Response(200, status(self.state, self._heard, self._environment, time.time()))


_ROUTES = {
    ("POST", "/v1/join"): Coordinator.join,
    ("GET", "/v1/rendezvous"): Coordinator.rendezvous,
    ("POST", "/v1/publish"): Coordinator.publish,
    ("POST", "/v1/clear"): Coordinator.clear,
    ("POST", "/v1/report"): Coordinator.report,
    ("GET", "/v1/orders"): Coordinator.orders,
    ("GET", "/v1/steps"): Coordinator.steps,
    ("POST", "/v1/stop"): Coordinator.stop,
    ("GET", "/status"): Coordinator.status,
}


def _wait(request: Request) -> float:
    return min(LONGEST_WAIT_SECONDS, max(0.0, float(request.query.get("wait") or 0)))


def _row(row: StepRow) -> List[Any]:
    return [row[0], row[1], row[2], finite(row[3])]
