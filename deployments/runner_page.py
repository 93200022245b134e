"""What a runner tells about itself over HTTP: /healthz for the kubelet, /metrics for Prometheus. It holds no secret."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from workflows.driven import FlowRunSeen, OpenRun

STUCK_SECONDS = 120.0
"""A look whose neighbours do not answer takes at most half of that: longer means that the runner stands still."""


@dataclass
class Tally:
    """What the runner did and saw; written by its one thread, read by others."""

    ready: bool = False
    """The deployment is served."""
    started: int = 0
    taken_over: int = 0
    drivers: int = 0
    waiting_for: str = ""
    """What does not answer; "" where all do."""
    runs: Counter[str] = field(default_factory=Counter[str])
    flow_runs: Counter[str] = field(default_factory=Counter[str])
    looked_at: float = 0.0
    """Time of the last complete look, Unix seconds."""
    beat: float = field(default_factory=time.monotonic)
    """When the thread last came by, whether a neighbour answered or not."""

    def saw(self, runs: Sequence[OpenRun], flow_runs: Sequence[FlowRunSeen], drivers: int, now: float) -> None:
        """One complete look."""
        self.runs = Counter(run.state.value for run in runs)
        self.flow_runs = Counter(one.phase.value for one in flow_runs)
        self.drivers, self.looked_at = drivers, now

    def waits(self, what: str) -> None:
        """The thread came by."""
        self.waiting_for, self.beat = what, time.monotonic()

    def healthy(self) -> bool:
        """Whether the thread moves. A neighbour that is away makes no runner unhealthy: a new one would wait too."""
        return time.monotonic() - self.beat < STUCK_SECONDS

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        lines = [
            *_metric("drivers", "gauge", "Living drivers of this runner.", {"": self.drivers}),
            *_metric("drivers_started_total", "counter", "Drivers started.", {"": self.started}),
            *_metric("runs_taken_over_total", "counter", "Runs that had lost their driver.", {"": self.taken_over}),
            *_metric("open_runs", "gauge", "Runs of the ledger that have not ended.", self.runs, "state"),
            *_metric("open_flow_runs", "gauge", "Flow runs of the deployment.", self.flow_runs, "phase"),
            *_metric("waiting", "gauge", "1 while server or ledger do not answer.", {"": int(bool(self.waiting_for))}),
            *_metric("look_timestamp_seconds", "gauge", "Time of the last complete look.", {"": self.looked_at}),
        ]
        return "\n".join([*lines, ""])


def _metric(name: str, kind: str, what: str, values: dict[str, int] | dict[str, float], label: str = "") -> list[str]:
    full = f"primus_runner_{name}"
    rows = [f'{full}{{{label}="{key}"}} {value}' if label else f"{full} {value}" for key, value in values.items()]
    return [f"# HELP {full} {what}", f"# TYPE {full} {kind}", *rows]


@contextmanager
def serve_page(tally: Tally, port: int | None) -> Generator[int]:
    """Answer on all addresses in the background; the port (0 asks for any free one). None: nothing is opened."""
    if port is None:
        yield 0
        return

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = _answer(tally, self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds: nobody reads that."""

    server = ThreadingHTTPServer(("", port), Page)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(tally: Tally, path: str) -> tuple[int, str]:
    match path.partition("?")[0]:
        case "/healthz":
            return (200, "ok\n") if tally.healthy() else (503, "stands still\n")
        case "/readyz":
            return (200, "ok\n") if tally.ready else (503, f"not yet: {tally.waiting_for}\n")
        case "/metrics":
            return 200, tally.text()
        case _:
            return 404, "there is /healthz, /readyz and /metrics\n"
