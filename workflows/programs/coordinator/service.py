"""The coordinator at work: requests become events of its mind, and what that knows becomes answers.

What launchers send, as values of the coordinator; what is missing or of the wrong kind raises (answered 400).
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Union
from urllib.parse import unquote_plus

from workflows.programs.coordinator import journal, rank_reports
from workflows.programs.coordinator.metrics import Uses, exposed
from workflows.programs.coordinator.progress import StepRow
from workflows.programs.coordinator.reducer import meeting_of, orders_for
from workflows.programs.coordinator.state import (
    Cleared,
    Joined,
    Key,
    Meeting,
    Member,
    Published,
    RefusedError,
    Reported,
    RightSaid,
    State,
    StopAsked,
)
from workflows.programs.coordinator.status import finite
from workflows.programs.coordinator.store import ExpectedGang, Mind
from workflows.programs.runtime.http_server import Later, Request, Response, Server
from workflows.programs.runtime.report_token import same
from workflows.programs.stacks.values import from_json
from workflows.status import plain

LONGEST_WAIT_SECONDS = 60.0
LENT = "lent"
"""What the flow says with a look at `/status` while the right that it has lent holds; else it says why not."""


def key_of(body: Mapping[str, Any]) -> Key:
    """Whose request it is."""
    return str(body["role"]), int(body["pod_index"])


def member_of(body: Mapping[str, Any]) -> Member:
    """The launcher that presents itself."""
    role, index = key_of(body)
    step = body.get("resume_step")
    return Member(
        role=role,
        pod_index=index,
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
        resume_step=None if step is None else int(step),
    )


def meeting_in(body: Mapping[str, Any]) -> Meeting:
    """Where ranks meet."""
    return Meeting(int(body["incarnation"]), str(body["master_addr"]), int(body["master_port"]))


def reported_of(body: Mapping[str, Any], at: float, following: int) -> Reported:
    """A batch of reports.

    Args:
        body: of the request.
        at: Unix time in seconds.
        following: its number, where it has none.
    """
    return Reported(
        at=at,
        key=key_of(body),
        sequence=int(body.get("sequence") or following),
        reports=tuple(journal.reports_of(body.get("reports"))),
        state=str(body.get("state") or ""),
        why=str(body.get("why") or ""),
        pids=dict(body.get("pids") or {}),
        incarnation=int(body.get("incarnation", 1)),
    )


def wait_of(query: Mapping[str, str]) -> float:
    """Seconds for which the one who asks waits for an answer."""
    return min(LONGEST_WAIT_SECONDS, max(0.0, float(query.get("wait") or 0)))


ROWS_AN_ANSWER = 5000
WITHHELD_CHARACTERS = 200


class Coordinator:
    """Answers requests; the state is `coordination.State`, the rest is what an answer needs beside it."""

    def __init__(self, gang: ExpectedGang, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._token = environment.get("PRIMUS_TOKEN", "")
        self.mind = Mind(gang, self._wake)
        self._uses = Uses()
        self._server: Optional[Server] = None

    def remember(self, path: str) -> None:
        """Read the journal at `path` and write to it from now on."""
        self.mind.remember(path)

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
        return self.mind.patience_seconds

    def tick(self) -> None:
        """Decide what time alone decides."""
        self.mind.tick()

    def close(self) -> None:
        """Write what is left of the journal."""
        self.mind.close()

    def handle(self, request: Request) -> Union[Response, Later]:
        """The answer to one request."""
        if request.path == "/healthz":
            return Response(200, {"ok": True})
        answer = _ROUTES.get((request.method, request.path))
        if answer is not Coordinator.progress and not same(self._token, request.token):  # that one knows more tokens
            return Response(401, {"error": "the token is missing or wrong"})
        if answer is None:
            return Response(404, {"error": f"{request.method} {request.path}: no such thing here"})
        try:
            return answer(self, request)
        except RefusedError as error:
            return Response(error.status, {"error": str(error)})
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            return Response(400, {"error": f"the request is not understood: {error!r}"})

    @property
    def state(self) -> State:
        """What is known of all gangs together."""
        return self.mind.state

    def _wake(self) -> None:
        if self._server is not None:
            self._server.wake()

    def join(self, request: Request) -> Response:
        """POST /v1/join."""
        member = member_of(request.body)
        self.mind.take(Joined(time.time(), member))
        self.mind.heard[member.key] = time.time()
        state = self.mind.gangs.of(member.key)
        known = state.members[member.key]
        return Response(
            200,
            {
                "member": f"{member.role}-{member.pod_index}",
                "incarnation": state.incarnation,
                "sequence": known.sequence,
            },
        )

    def rendezvous(self, request: Request) -> Later:
        """GET /v1/rendezvous."""
        role, index = request.query["role"], request.query.get("pod_index")
        pod_index = None if index is None else int(index)
        key = (role, pod_index or 0)

        def look() -> Optional[Response]:
            found = meeting_of(self.mind.gangs.of(key), role, pod_index)
            return None if found is None else Response(200, found)

        return Later(look, wait_of(request.query), Response(200, {"incarnation": None}))

    def publish(self, request: Request) -> Response:
        """POST /v1/publish."""
        role = str(request.body.get("role") or self.mind.gangs.main.deciding_role)
        index = int(request.body.get("pod_index") or 0)
        self.mind.take(Published(time.time(), role, meeting_in(request.body), index))
        return Response(200, {})

    def clear(self, request: Request) -> Response:
        """POST /v1/clear."""
        self.mind.take(Cleared(time.time(), key_of(request.body), int(request.body["incarnation"])))
        return Response(200, {})

    def report(self, request: Request) -> Response:
        """POST /v1/report."""
        key, now = key_of(request.body), time.time()
        member = self.mind.gangs.of(key).members.get(key)
        if member is None:
            raise RefusedError(404, f"{key[0]} {key[1]} has not joined")
        told = reported_of(request.body, now, member.sequence + 1)
        self.mind.heard[key] = now
        self._uses.hear(key, request.body.get("use"))
        if told.reports or told.state or told.pids:
            self.mind.take(told)
        return Response(200, {})

    def progress(self, request: Request) -> Response:
        """POST /v1/progress."""
        told = self.mind.sifted(rank_reports.read(request, self._token, self.mind.gangs, time.time()))
        if told.reports:
            self.mind.take(told)
        return Response(200, {"counted": bool(told.reports)})

    def stacks(self, request: Request) -> Response:
        """POST /v1/stacks."""
        self.mind.answer(from_json(request.body))
        return Response(200, {})

    def orders(self, request: Request) -> Later:
        """GET /v1/orders."""
        role = request.query.get("role") or self.mind.gangs.main.deciding_role
        key = (role, int(request.query["pod_index"]))
        since = int(request.query.get("since") or 0)

        def look() -> Optional[Response]:
            found = orders_for(self.mind.gangs.of(key), key, since)
            return Response(200, {"orders": [order.told() for order in found]}) if found else None

        return Later(look, wait_of(request.query), Response(200, {"orders": []}))

    def steps(self, request: Request) -> Response:
        """GET /v1/steps."""
        since = max(0, int(request.query.get("since") or 0))
        following, rows = self.mind.rows.since(since, ROWS_AN_ANSWER)
        answer: Dict[str, Any] = {"next": following, "steps": [_row(row) for row in rows]}
        if "moments_since" in request.query:
            since = max(0, int(request.query["moments_since"] or 0))
            answer["next_moment"], answer["moments"] = self.mind.moments.since(since, ROWS_AN_ANSWER)
        return Response(200, answer)

    def stop(self, request: Request) -> Response:
        """POST /v1/stop."""
        body = request.body
        self.mind.take(StopAsked(time.time(), str(body.get("why") or "asked to stop"), bool(body.get("save", True))))
        return Response(200, {})

    def status(self, request: Request) -> Response:
        """GET /status; `right=lent` or `right=<why not>` says whether the right that was lent holds now."""
        if "right" in request.query:
            said = unquote_plus(request.query["right"])[:WITHHELD_CHARACTERS]
            self._right("" if said == LENT else said)
        return Response(200, plain(self.mind.status(self._environment)))

    def _right(self, withheld: str) -> None:
        """Only a change is an event: the flow says it with every look."""
        if withheld != self.mind.gangs.main.withheld:
            said = f"is withheld: {withheld}" if withheld else "holds again"
            print(f"coordinator: the right to restart in place {said}", flush=True)
            self.mind.take(RightSaid(time.time(), withheld))

    def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        state, slow = self.mind.state, self.mind.stragglers()
        return Response(200, exposed(state, self.mind.heard, self._uses, self.mind.quietest, slow, time.time()))

    def use(self, _request: Request) -> Response:
        """GET /v1/use."""
        return Response(200, self._uses.told(self.mind.state.members.values()))


_ROUTES = {
    ("POST", "/v1/join"): Coordinator.join,
    ("GET", "/v1/rendezvous"): Coordinator.rendezvous,
    ("POST", "/v1/publish"): Coordinator.publish,
    ("POST", "/v1/clear"): Coordinator.clear,
    ("POST", "/v1/report"): Coordinator.report,
    ("POST", rank_reports.PATH): Coordinator.progress,
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
