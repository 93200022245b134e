"""Every path of the node daemon and its answer, as text in Autopilot's words or typed where JSON is asked for.

Standard library only, Python 3.9. No sockets here: `server` carries requests in and answers out.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Mapping, Tuple

from workflows.programs.health import iperf
from workflows.programs.health.daemon import Daemon
from workflows.programs.health.fleet_status import Fleet, StatusQuery, json_of_all, text_of_all
from workflows.programs.health.peers import Peer, fetch
from workflows.programs.health.query import (
    NONE,
    QueryError,
    Status,
    job_from,
    label_from,
    level_from,
    read_query,
    status_from,
)
from workflows.programs.health.results import Report, metrics_text, report_to_json, result_to_json, text_of
from workflows.programs.runtime.bounded import SharedResult

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
READY = {"Name": "readinessProbe", "Body": "ready"}
HEADINGS: Mapping[str, str] = {
    "pciebw": "Requesting pcie test with bw: {bw}\n",
    "remapped": "Requesting Remapped Rows check on all GPUs\n",
    "gpupower": "GPU Power Measurement test\n",
    "gpumem": "GPU Memory DGEMM+DAXPY test\n",
    "dcgm": "DCGM test\n",
    "ping": "Ping test",
    "pvc": "PVC create-delete test\n",
}
"""First line of each check's own path; that of ping has no end."""
LAUNCHED = (
    "Launching invasive health checks. Results will be added to 'autopilot.ibm.com/gpuhealth' and "
    "'autopilot.ibm.com/dcgm.level.3' node labels"
)
WORKING = ("/gpumem", "/pvc", "/iperf", "/iperfservers", "/iperfstopservers", "/iperfclients", "/invasive")
"""Paths that start work, whatever their parameters are."""


@dataclass(frozen=True)
class PageRequest:
    """What came."""

    path: str
    query: Mapping[str, str]
    authorization: str = ""
    typed: bool = False
    """JSON is asked for."""


@dataclass(frozen=True)
class PageResponse:
    """What goes back."""

    status: int
    body: str
    kind: str = TEXT


class Gate:
    """Authorises requests that start work: those with the bearer `token` ("": none), or all if `compatible`."""

    def __init__(self, token: str, compatible: bool) -> None:
        self._token, self._compatible = token, compatible

    def refusal(self, authorization: str) -> str:
        """Why a request may not start work; "": it may. Takes as long for a wrong token as for a right one."""
        if self._compatible:
            return ""
        if not self._token:
            return "this daemon was started without a token, so nobody may start work: set PRIMUS_TOKEN_FILE"
        scheme, _, given = authorization.partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())
        if scheme.lower() == "bearer" and right:
            return ""
        return "starting work needs the header Authorization: Bearer with the daemon's token"


class Pages:
    """Answers requests.

    `token` is sent to other daemons that start work for us ("": none); models of GPUs are added when they are known.
    """

    def __init__(self, daemon: Daemon, fleet: Fleet, gate: Gate, token: str = "", cpu_model: str = "") -> None:
        self._daemon, self._fleet, self._gate = daemon, fleet, gate
        self._token, self._cpu_model = token, cpu_model
        self._once = SharedResult()
        self._pages: Dict[str, Callable[[PageRequest], PageResponse]] = {
            "/status": self._status,
            "/healthz": lambda _: PageResponse(200, "ok\n"),
            "/readinessprobe": lambda _: PageResponse(201, json.dumps(READY, separators=(",", ":")) + "\n", JSON),
            "/metrics": self._metrics,
            "/iperf": self._iperf,
            "/iperfservers": lambda request: PageResponse(200, iperf.start_servers(request.query)),
            "/iperfstopservers": lambda request: PageResponse(200, iperf.stop_servers(request.query)),
            "/iperfclients": self._iperfclients,
            "/invasive": self._invasive,
            **{f"/{check}": self._check for check in HEADINGS},
        }

    def known(self, path: str) -> bool:
        """Whether there is such a path."""
        return path in self._pages

    def answer(self, path: str, query: str, authorization: str = "", typed: bool = False) -> PageResponse:
        """The answer to one request; a parameter that makes no sense is 400, work without a token 401."""
        if path not in self._pages:
            return PageResponse(404, f"no such path: known are {', '.join(sorted(self._pages))}\n")
        try:
            request = PageRequest(path, read_query(query), authorization, typed)
            why = self._gate.refusal(authorization) if _works(request) else ""
            if why:
                return PageResponse(401, f"{path}: {why}\n")
            return self._pages[path](request)
        except (QueryError, ValueError) as error:
            return PageResponse(400, f"{path}: {error}\n")

    def _status(self, request: PageRequest) -> PageResponse:
        status = status_from(request.query)
        parts = [f"Running iperf3 on hosts {','.join(status.hosts)} or job {status.job}\n\n"] if status.iperf else []
        parts += [self._matrix(status, request.query)] if status.iperf else []
        if not status.checks:
            text = "".join(parts)
            return _json({"text": text}) if request.typed else PageResponse(200, text)
        if self._is_mine(status, request.query):
            report = self._report(status)
            body = {**report_to_json(report), **({"iperf": "".join(parts)} if parts else {})}
            return _json(body) if request.typed else PageResponse(200, "".join(parts) + report.text)
        text, typed = self._once.do(replace(status, iperf=False), lambda: self._everybody(status))
        return (
            _json({**typed, "text": "".join(parts) + text})
            if request.typed
            else PageResponse(200, "".join(parts) + text)
        )

    def _is_mine(self, status: Status, query: Mapping[str, str]) -> bool:
        """Whether this node alone is meant: by name, or by another daemon's question, whose job says whom to ping."""
        alone = "pingnodes" in query or status.job == status.nodelabel == NONE
        return alone and status.named == (self._daemon.plan.node,)

    def _report(self, status: Status) -> Report:
        return self._once.do(("own", status), lambda: self._daemon.report(status))

    def _everybody(self, status: Status) -> Tuple[str, Dict[str, Any]]:
        began = time.monotonic()
        request = self._fleet.select_peers(status)
        answers = self._fleet.ask_all(status, request.peers)
        seconds = time.monotonic() - began
        return text_of_all(status, request, answers, seconds), json_of_all(request, answers, seconds)

    def _check(self, request: PageRequest) -> PageResponse:
        name = request.path[1:]
        status = Status(checks=(name,))
        if name == "dcgm":
            status = replace(status, level=level_from(request.query))
        if name == "ping":
            whom = status_from({"host": request.query.get("host", "")}).hosts
            status = replace(status, pingnodes=whom, job=job_from(request.query), nodelabel=label_from(request.query))
        (result,) = self._report(status).results
        if request.typed:
            return _json({"node": self._daemon.plan.node, **result_to_json(result)})
        heading = HEADINGS[name].format(bw=f"{self._daemon.plan.limits.pcie_gb_per_second:g}")
        return PageResponse(200, heading + text_of(result))

    def _iperf(self, request: PageRequest) -> PageResponse:
        status = status_from(
            {name: request.query[name] for name in ("host", "job", "nodelabel") if name in request.query}
        )
        return PageResponse(200, self._matrix(status, request.query))

    def _matrix(self, status: Status, query: Mapping[str, str]) -> str:
        found: StatusQuery = self._fleet.select_peers(status)
        problems = "".join(f"{one}\n" for one in found.problems)
        if problems and not found.peers:
            return problems
        key = ("iperf", tuple(peer.url for peer in found.peers), tuple(sorted(query.items())))
        own = self._daemon.plan.node
        return self._once.do(key, lambda: iperf.iperf_matrix(own, found.peers, query, self._ask)) + problems

    def _iperfclients(self, request: PageRequest) -> PageResponse:
        # Its text is JSON as Autopilot's is, which calls it plain text.
        return PageResponse(200, iperf.run_clients(request.query), JSON if request.typed else TEXT)

    def _ask(self, peer: Peer, path: str) -> str:
        if not peer.host:
            raise OSError(f"no running daemon of node {peer.node} is known")
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        fetched = fetch(peer, path, iperf.ASK_SECONDS, headers)
        if fetched.status != 200:
            raise OSError(f"{peer.node} refused with {fetched.status}: {fetched.text[:200].strip()}")
        return fetched.text

    def _invasive(self, request: PageRequest) -> PageResponse:
        why = self._daemon.busy()
        if not why:
            threading.Thread(target=self._daemon.deep, daemon=True).start()
        if request.typed:
            return _json({"node": self._daemon.plan.node, "started": not why, "why": why})
        return PageResponse(200, LAUNCHED + (f"\nCannot run invasive health checks: {why}\n" if why else "\n"))

    def _metrics(self, _: PageRequest) -> PageResponse:
        known, models = self._daemon.known, (self._cpu_model, self._daemon.tools.model)
        text = metrics_text(self._daemon.plan.node, models, known.results(), known.requests(), time.time())
        return PageResponse(200, text + iperf.newest_metrics(), METRICS)


def _works(request: PageRequest) -> bool:
    """Whether it loads something: then the token is needed."""
    if request.path in WORKING:
        return True
    if request.path == "/dcgm":
        return level_from(request.query) > 1
    return request.path == "/status" and status_from(request.query).works()


def _json(body: Mapping[str, Any]) -> PageResponse:
    return PageResponse(200, json.dumps(body, separators=(",", ":")) + "\n", JSON)
