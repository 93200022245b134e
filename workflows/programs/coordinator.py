"""The coordinator at work: requests become events of `coordination`, its effects become answers and a journal."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Union

from workflows.programs import coordination_journal as journal
from workflows.programs import straggler
from workflows.programs.coordination import advance, meeting_of, orders_for
from workflows.programs.coordination_hang import TICK_SECONDS, HangWatch
from workflows.programs.coordination_memory import Memory, undisturbed
from workflows.programs.coordination_metrics import exposed
from workflows.programs.coordination_model import (
    AppendMoment,
    AppendStep,
    Cleared,
    Event,
    HangFound,
    Joined,
    Key,
    Published,
    RefusedError,
    ReplaceStep,
    Reported,
    State,
    StopAsked,
    Ticked,
)
from workflows.programs.coordination_requests import key_of, meeting_in, member_of, reported_of, wait_of
from workflows.programs.coordination_status import finite, place_of, status
from workflows.programs.coordination_use import Uses
from workflows.programs.gang_numbers import Numbers
from workflows.programs.gang_progress import Moment, StepRow
from workflows.programs.hang_budget import Limits
from workflows.programs.numbered_rows import NumberedRows
from workflows.programs.serve import Later, Request, Response, Server
from workflows.programs.stack_wire import from_json

STEP_ROWS = 200_000
"""Rows of steps kept in memory (20 MB); older ones are in the journal and in the launchers' `steps.jsonl`."""
MOMENT_ROWS = 50_000  # kept in memory (10 MB), two for each checkpoint
ROWS_AN_ANSWER = 5000
IDLE_SECONDS = 3600.0


@dataclass(frozen=True)
class Gang:
    """The gang that is expected."""

    role: str
    pods: int = 1
    processes_per_node: int = 1
    steps: int = 0
    """Planned steps; 0: not known."""
    restarts: int = 0  # in place, lent to the attempt
    mttf_seconds: float = 0.0  # of the whole gang; 0: not known
    hang: Limits = field(default_factory=Limits)
    straggler: straggler.Limits = field(default_factory=straggler.Limits)


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
            mttf_seconds=gang.mttf_seconds,
        )
        self._heard: Dict[Key, float] = {}
        """Last word of each launcher; not part of the state, since a heartbeat changes nothing else."""
        self._uses = Uses()
        self._rows: NumberedRows[StepRow] = NumberedRows(STEP_ROWS)
        self._moments: NumberedRows[Moment] = NumberedRows(MOMENT_ROWS)
        self.hang = HangWatch(gang.hang)
        self.numbers = Numbers(gang.pods * gang.processes_per_node, gang.straggler)
        self._memory: Optional[Memory] = None
        self._server: Optional[Server] = None

    def remember(self, path: str) -> None:
        """Read the journal at `path` and write to it from now on."""
        memory, self.numbers.remembering = Memory(path), True
        with undisturbed():
            for event in memory.read():
                try:
                    self._apply(event)
                except RefusedError:
                    continue  # a journal of an older program may hold what is refused today
                if isinstance(event, (Joined, Reported)):
                    self._heard[event.member.key if isinstance(event, Joined) else event.key] = event.at
        self._memory, self.numbers.remembering = memory, False

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
        waits = IDLE_SECONDS if settling is None else max(0.0, settling.until - time.time())
        return min(waits, TICK_SECONDS) if self.hang.watching else waits

    def tick(self) -> None:
        """Decide what time alone decides."""
        if self.state.settling is not None:
            self.take(Ticked(time.time()))
        found = self.hang.tick(self.state, self._heard, time.time())
        if found is not None:
            print(f"coordinator: {found.why}" + (": hung" if isinstance(found, HangFound) else ""), flush=True)
            self.take(found)

    def close(self) -> None:
        """Write what is left of the journal."""
        if self._memory is not None:
            self._memory.close()

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
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            return Response(400, {"error": f"the request is not understood: {error!r}"})

    def _trusted(self, token: str) -> bool:
        import hmac

        return bool(self._token) and hmac.compare_digest(token.encode(), self._token.encode())

    def take(self, event: Event) -> None:
        """Carry out one event and remember it.

        Raises:
            RefusedError: the event contradicts what is known.
        """
        kept, last = journal.worth_keeping(self.state, event), self.state.orders[-1:]
        self._apply(event)
        if kept is not None and self._memory is not None:
            # Killed between an order and its record, we would count a restart too few, or use a number twice.
            self._memory.write(kept, self.state.orders[-1:] != last and self.state.restarts_lent > 0)
        voted = self.numbers.take_vote()
        if voted is not None and self._memory is not None:
            self._memory.write(voted, False)

    def _apply(self, event: Event) -> None:
        before = self.state
        self.state, effects = advance(before, event)
        self.hang.heard(before, self.state, event)
        self.numbers.heard(self.state, event, effects)
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
        member = member_of(request.body)
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

        return Later(look, wait_of(request.query), Response(200, {"incarnation": None}))

    def publish(self, request: Request) -> Response:
        """POST /v1/publish."""
        role = str(request.body.get("role") or self.state.deciding_role)
        self.take(Published(time.time(), role, meeting_in(request.body)))
        return Response(200, {})

    def clear(self, request: Request) -> Response:
        """POST /v1/clear."""
        self.take(Cleared(time.time(), key_of(request.body), int(request.body["incarnation"])))
        return Response(200, {})

    def report(self, request: Request) -> Response:
        """POST /v1/report."""
        key, now = key_of(request.body), time.time()
        member = self.state.members.get(key)
        if member is None:
            raise RefusedError(404, f"{key[0]} {key[1]} has not joined")
        told = reported_of(request.body, now, member.sequence + 1)
        self._heard[key] = now
        self._uses.hear(key, request.body.get("use"))
        if told.reports or told.state or told.pids:
            self.take(told)
        return Response(200, {})

    def stacks(self, request: Request) -> Response:
        """POST /v1/stacks."""
        self.hang.answer(from_json(request.body), self.state)
        return Response(200, {})

    def orders(self, request: Request) -> Later:
        """GET /v1/orders."""
        key = (request.query.get("role") or self.state.deciding_role, int(request.query["pod_index"]))
        since = int(request.query.get("since") or 0)

        def look() -> Optional[Response]:
            found = orders_for(self.state, key, since)
            return Response(200, {"orders": [order.told() for order in found]}) if found else None

        return Later(look, wait_of(request.query), Response(200, {"orders": []}))

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
        told = status(self.state, self._heard, self._environment, time.time())
        return Response(200, {**told, "hang": self.hang.status(), **self._numbers()})

    def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        watch, stragglers = self.hang.watch, self._numbers()["stragglers"]
        return Response(200, exposed(self.state, self._heard, self._uses, watch, stragglers, time.time()))

    def use(self, _request: Request) -> Response:
        """GET /v1/use."""
        return Response(200, self._uses.told(self.state.members.values()))

    def _numbers(self) -> Dict[str, Any]:
        told = self.numbers.stragglers(lambda rank: place_of(self.state, rank))
        return {"stragglers": told, "slower": self.numbers.slower(), "numeric": self.numbers.numeric()}


_ROUTES = {
    ("POST", "/v1/join"): Coordinator.join,
    ("GET", "/v1/rendezvous"): Coordinator.rendezvous,
    ("POST", "/v1/publish"): Coordinator.publish,
    ("POST", "/v1/clear"): Coordinator.clear,
    ("POST", "/v1/report"): Coordinator.report,
    ("POST", "/v1/stacks"): Coordinator.stacks,
    ("GET", "/v1/orders"): Coordinator.orders,
    ("GET", "/v1/steps"): Coordinator.steps,
    ("POST", "/v1/stop"): Coordinator.stop,
    ("GET", "/v1/use"): Coordinator.use,
    ("GET", "/status"): Coordinator.status,
    ("GET", "/metrics"): Coordinator.metrics,
}


def _row(row: StepRow) -> List[Any]:
    return [row[0], row[1], row[2], finite(row[3])]
