"""The coordinator's HTTP service: requests become events for the store, and its state becomes answers.

The `parse_` functions raise where something is missing or of the wrong type, which is answered with status 400.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Optional, Union
from urllib.parse import unquote_plus

from workflows.programs.coordinator import journal, rank_reports
from workflows.programs.coordinator.metrics import UsageByLauncher, render_metrics
from workflows.programs.coordinator.reducer import meeting_of, orders_for
from workflows.programs.coordinator.state import (
    Key,
    LauncherJoined,
    Meeting,
    MeetingPublished,
    Member,
    PodCleared,
    RefusedError,
    ReportsReceived,
    RightChanged,
    State,
    StopRequested,
)
from workflows.programs.coordinator.status import json_number
from workflows.programs.coordinator.store import AttemptStore, ExpectedGang
from workflows.programs.runtime.http_server import DeferredResponse, Request, Response, Server
from workflows.programs.runtime.report_token import same
from workflows.programs.stacks.values import from_json
from workflows.status import plain

LONGEST_WAIT_SECONDS = 60.0
LENT = "lent"
"""Value of `right=` in `GET /status` while the flow allows restarts in place; any other value is the reason why not."""

RELEASE_SECONDS = 5.0
"""The flow's word that checkpoints may go holds so long: it says it with each look."""
RELEASE_EACH_SECONDS = 1.0
"""So often it is passed on."""

ROWS_AN_ANSWER = 5000
WITHHELD_CHARACTERS = 200


def parse_key(body: Mapping[str, Any]) -> Key:
    """Role and pod index of the sender."""
    return str(body["role"]), int(body["pod_index"])


def parse_member(body: Mapping[str, Any]) -> Member:
    """The launcher that joins."""
    role, index = parse_key(body)
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


def parse_meeting(body: Mapping[str, Any]) -> Meeting:
    """The rendezvous that a launcher publishes."""
    return Meeting(int(body["incarnation"]), str(body["master_addr"]), int(body["master_port"]))


def parse_reports(body: Mapping[str, Any], at: float, following: int) -> ReportsReceived:
    """A batch of reports received `at` (Unix time in seconds); `following` is its number where it carries none."""
    return ReportsReceived(
        at=at,
        key=parse_key(body),
        sequence=int(body.get("sequence") or following),
        reports=tuple(journal.parse_reports(body.get("reports"))),
        state=str(body.get("state") or ""),
        why=str(body.get("why") or ""),
        pids=dict(body.get("pids") or {}),
        incarnation=int(body.get("incarnation", 1)),
    )


def parse_wait_seconds(query: Mapping[str, str]) -> float:
    """How long a poll waits for news, at most `LONGEST_WAIT_SECONDS`."""
    return min(LONGEST_WAIT_SECONDS, max(0.0, float(query.get("wait") or 0)))


class SurplusRelease:
    """The flow's word that checkpoints which nobody needs may go; Unix times in seconds."""

    def __init__(self) -> None:
        self._ledger = ""
        self._until = 0.0
        self._taken_at = 0.0

    def note(self, ledger: str, now: float) -> None:
        """The ledger of this identity says so now."""
        self._ledger, self._until = ledger, now + RELEASE_SECONDS

    def take(self, now: float) -> str:
        """The identity of the ledger, to be passed on; "": nothing may go, or it was passed on a moment ago."""
        if now >= self._until or abs(now - self._taken_at) < RELEASE_EACH_SECONDS:
            return ""
        self._taken_at = now
        return self._ledger


class Coordinator:
    """Answers requests from the state of an `AttemptStore`."""

    def __init__(self, gang: ExpectedGang, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._token = environment.get("PRIMUS_TOKEN", "")
        self.store = AttemptStore(gang, self._wake)
        self._usage = UsageByLauncher()
        self._release = SurplusRelease()
        self._server: Optional[Server] = None

    def open_journal(self, path: str) -> None:
        """Read the journal at `path` and write to it from now on."""
        self.store.open_journal(path)

    def serve(self, address: str, port: int) -> Server:
        """A server whose requests this coordinator answers; raises OSError where the address cannot be bound."""
        self._server = Server(address, port, self.handle)
        return self._server

    @property
    def idle_seconds(self) -> float:
        """Seconds until the next decision that no request triggers."""
        return self.store.idle_seconds

    def tick(self) -> None:
        """Make the decisions that are due."""
        self.store.tick()

    def close(self) -> None:
        """Flush the journal."""
        self.store.close()

    def handle(self, request: Request) -> Union[Response, DeferredResponse]:
        """The answer to one request."""
        if request.path == "/healthz":
            return Response(200, {"ok": True})
        answer = _ROUTES.get((request.method, request.path))
        # Ranks post progress with their pod's own token, which `rank_reports` checks.
        if answer is not Coordinator.progress and not same(self._token, request.token):
            return Response(401, {"error": "the token is missing or wrong"})
        if answer is None:
            return Response(404, {"error": f"{request.method} {request.path}: the coordinator has no such route"})
        try:
            return answer(self, request)
        except RefusedError as error:
            return Response(error.status, {"error": str(error)})
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            return Response(400, {"error": f"the request is not understood: {error!r}"})

    @property
    def state(self) -> State:
        """The state of all gangs, merged."""
        return self.store.state

    def _wake(self) -> None:
        if self._server is not None:
            self._server.wake()

    def join(self, request: Request) -> Response:
        """POST /v1/join."""
        member = parse_member(request.body)
        self.store.take(LauncherJoined(time.time(), member))
        self.store.last_heard_at[member.key] = time.time()
        state = self.store.gangs.of(member.key)
        known = state.members[member.key]
        return Response(
            200,
            {
                "member": f"{member.role}-{member.pod_index}",
                "incarnation": state.incarnation,
                "sequence": known.sequence,
            },
        )

    def rendezvous(self, request: Request) -> DeferredResponse:
        """GET /v1/rendezvous."""
        role, index = request.query["role"], request.query.get("pod_index")
        pod_index = None if index is None else int(index)
        key = (role, pod_index or 0)

        def look() -> Optional[Response]:
            found = meeting_of(self.store.gangs.of(key), role, pod_index)
            return None if found is None else Response(200, found)

        return DeferredResponse(look, parse_wait_seconds(request.query), Response(200, {"incarnation": None}))

    def publish(self, request: Request) -> Response:
        """POST /v1/publish."""
        role = str(request.body.get("role") or self.store.gangs.main.deciding_role)
        index = int(request.body.get("pod_index") or 0)
        self.store.take(MeetingPublished(time.time(), role, parse_meeting(request.body), index))
        return Response(200, {})

    def clear(self, request: Request) -> Response:
        """POST /v1/clear."""
        self.store.take(PodCleared(time.time(), parse_key(request.body), int(request.body["incarnation"])))
        return Response(200, {})

    def report(self, request: Request) -> Response:
        """POST /v1/report."""
        key, now = parse_key(request.body), time.time()
        member = self.store.gangs.of(key).members.get(key)
        if member is None:
            raise RefusedError(404, f"{key[0]} {key[1]} has not joined")
        batch = parse_reports(request.body, now, member.sequence + 1)
        self.store.last_heard_at[key] = now
        self._usage.record(key, request.body.get("use"))
        self.store.note_life(key, request.body.get("life"), now)
        if batch.reports or batch.state or batch.pids:
            self.store.take(batch)
        answer: Dict[str, Any] = {"life": True} if self.store.wants_life(key) else {}
        proves, gangs = key == self.store.gangs.main.first_key, self.store.gangs.trainers
        if proves and all(one.trains_on for one in gangs) and (ledger := self._release.take(now)):
            answer["surplus"] = ledger
        return Response(200, answer)

    def progress(self, request: Request) -> Response:
        """POST /v1/progress."""
        kept = self.store.without_duplicates(
            rank_reports.parse_report(request, self._token, self.store.gangs, time.time())
        )
        if kept.reports:
            self.store.take(kept)
        return Response(200, {"counted": bool(kept.reports)})

    def stacks(self, request: Request) -> Response:
        """POST /v1/stacks."""
        self.store.add_stacks(from_json(request.body), time.time())
        return Response(200, {})

    def orders(self, request: Request) -> DeferredResponse:
        """GET /v1/orders."""
        role = request.query.get("role") or self.store.gangs.main.deciding_role
        key = (role, int(request.query["pod_index"]))
        since = int(request.query.get("since") or 0)

        def look() -> Optional[Response]:
            found = orders_for(self.store.gangs.of(key), key, since)
            return Response(200, {"orders": [order.to_json() for order in found]}) if found else None

        return DeferredResponse(look, parse_wait_seconds(request.query), Response(200, {"orders": []}))

    def steps(self, request: Request) -> Response:
        """GET /v1/steps."""
        since = max(0, int(request.query.get("since") or 0))
        following, rows = self.store.rows.since(since, ROWS_AN_ANSWER)
        answer: Dict[str, Any] = {
            "next": following,
            "steps": [[row[0], row[1], row[2], json_number(row[3])] for row in rows],
        }
        if "moments_since" in request.query:
            since = max(0, int(request.query["moments_since"] or 0))
            answer["next_moment"], answer["moments"] = self.store.moments.since(since, ROWS_AN_ANSWER)
        return Response(200, answer)

    def stop(self, request: Request) -> Response:
        """POST /v1/stop."""
        body = request.body
        self.store.take(
            StopRequested(time.time(), str(body.get("why") or "asked to stop"), bool(body.get("save", True)))
        )
        return Response(200, {})

    def status(self, request: Request) -> Response:
        """GET /status; with `right=lent` or `right=<why not>` the flow allows or forbids restarts in place.

        With `surplus=<ledger>` it says that checkpoints which nobody needs may go now.
        """
        if "surplus" in request.query:
            self._release.note(unquote_plus(request.query["surplus"])[:WITHHELD_CHARACTERS], time.time())
        if "right" in request.query:
            right = unquote_plus(request.query["right"])[:WITHHELD_CHARACTERS]
            self._set_right("" if right == LENT else right)
        return Response(200, plain(self.store.status(self._environment)))

    def _set_right(self, withheld: str) -> None:
        """Take an event only for a change, because the flow repeats the right in every request."""
        if withheld != self.store.gangs.main.withheld:
            change = f"is withheld: {withheld}" if withheld else "holds again"
            print(f"coordinator: the right to restart in place {change}", flush=True)
            self.store.take(RightChanged(time.time(), withheld))

    def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        state, slow = self.store.state, self.store.stragglers()
        return Response(
            200,
            render_metrics(state, self.store.last_heard_at, self._usage, self.store.quietest_watch, slow, time.time()),
        )

    def use(self, _request: Request) -> Response:
        """GET /v1/use."""
        return Response(200, self._usage.to_json(self.store.state.members.values()))


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
