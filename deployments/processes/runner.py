"""The flow runner of a cluster: `python -m deployments.processes.runner`.

It serves the deployments of its cluster on a Prefect server, starts a process for each flow run that is due, and drives
again every run of the ledger that has lost its driver. All that it knows stands in the ledger and on the server, so a
runner that is killed at any line, or replaced, loses no run.

Over HTTP it answers /healthz for the kubelet and /metrics for Prometheus; neither shows a secret.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import assert_never

from deployments.processes.flow_run import conclude
from deployments.processes.offers import offers_of
from deployments.processes.prefork import Drivers, warm
from flows.decisions.monitoring.flow_runs import (
    Again,
    AskToStop,
    Cancel,
    Conclude,
    Drive,
    Drop,
    FlowRunSnapshot,
    GiveUp,
    LetGo,
    Move,
    PauseRun,
    Reopen,
    Skip,
    Start,
    Tries,
    choose,
    look_after,
    look_after_plain,
)
from profiles.errors import NotFound, PrimusError, Transient
from profiles.loading.load import load_cluster
from tasks.addresses import prepare
from tasks.embedded.runtime.inherited import reset_inherited
from tasks.lease import is_alive
from tasks.ledger.ledger import Ledger
from tasks.prefect.automations import server_caller
from tasks.prefect.deployments import Offer
from tasks.prefect.flow_runs import FlowRuns, flow_runs
from tasks.prefect.run_page import PAUSED_NAME
from tasks.prefect.services import is_ready
from tasks.settings import Settings
from workflows.model.records import RequestRecord
from workflows.model.runs import Due, FlowRunSeen, OpenRun, Phase

STUCK_SECONDS = 120.0
"""A look whose neighbours do not answer takes at most half of that: longer means that the runner stands still."""

LOOK_SECONDS = 1.0
"""Between two looks: what a person waits at most until a run begins. Three requests and one query each."""
AWAY_SECONDS = 3.0
"""Between two looks while a neighbour is away."""
FORGET_SECONDS = 600.0
"""A driver that lived so long did not die at once: its run's next driver starts without a pause."""
TIDY_LOOKS, KEPT_OF_OFTEN = 60, 5
"""Every so many looks the server's list is rid of what timetables start every few minutes, but for the newest."""
PLAIN_LOOKS = 5
"""Every so many looks flow runs that train nothing are looked after: they last for seconds."""
PORT = "PRIMUS_RUNNER_PORT"
"""Variable with the port of /healthz and /metrics; empty: none is opened."""


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
        """Record that the thread still runs."""
        self.waiting_for, self.beat = what, time.monotonic()

    def healthy(self) -> bool:
        """Whether the thread still runs. It is healthy while a neighbour is away: a new runner would wait too."""
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


@dataclass
class Runner:
    """One look after the other; see `look`."""

    cluster: str
    """Name of the cluster profile that is served."""
    ledger: Ledger
    server: FlowRuns
    drivers: Drivers
    now: Callable[[], float]
    tally: Tally
    offered: Mapping[str, Offer]
    """By the ids of their deployments."""
    tries: dict[str, Tries] = field(default_factory=lambda: {})
    asked: set[str] = field(default_factory=set[str])
    looks: int = 0

    def look(self) -> None:
        """Start what is due, then look after runs without a driver, and after flow runs without a process.

        Raises:
            Unavailable: server or ledger do not answer; nothing is concluded from that.
        """
        self._begin(self.server.waiting())
        if self.looks % PLAIN_LOOKS == 0:
            self._look_after_plain()
        if self.looks % TIDY_LOOKS == 0:
            for often in (one for one, offer in self.offered.items() if offer.often):
                self.server.tidy(often, KEPT_OF_OFTEN)
        self.looks += 1
        # The server is read first: a run that ends in between is seen as open once more, never as lost.
        flow_runs = tuple(self.server.open())
        runs = tuple(self.ledger.open_runs(is_alive))
        working = self.drivers.working()
        unseen = working - {one.id for one in flow_runs} - self.drivers.working_plain()
        deleted = frozenset(one for one in unseen if self.server.is_deleted(one))
        sight = FlowRunSnapshot(self.now(), self.cluster, runs, flow_runs, working, frozenset(self.asked), deleted)
        for move in look_after(sight, self.tries):
            try:
                self._make(move)
            except NotFound as error:
                _say(f"{move}: {error}")  # somebody deleted it meanwhile
        self.tally.saw(runs, flow_runs, len(working), sight.now)

    def _begin(self, due: Sequence[Due]) -> None:
        """Claim and start what is due, but what would overlap or was missed more than once."""
        working = self.drivers.working()
        fresh = {item.id: item for item in due if item.id not in working}
        alone = frozenset(one for one, offer in self.offered.items() if offer.alone)
        watched = any(item.deployment in alone for item in fresh.values())
        busy = frozenset(one.deployment for one in self.server.plain()) if watched else frozenset[str]()
        for choice in choose(tuple(fresh.values()), alone, busy):
            match choice:
                case Start(flow_run):
                    if self.server.claim(flow_run):
                        self._start(flow_run, self.offered[fresh[flow_run].deployment])
                case Skip(flow_run, why):
                    self.server.skip(flow_run, why)
                    _say(f"flow run {flow_run} is skipped: {why}")
                case _:
                    assert_never(choice)

    def _start(self, flow_run: str, offer: Offer) -> None:
        pid = self.drivers.start(flow_run, "" if offer.trains else offer.entrypoint)
        self.tally.started += 1
        _say(f"flow run {flow_run}: driven by process {pid}")

    def _look_after_plain(self) -> None:
        """What trains nothing and lost its process is begun again, or given up."""
        fleeting = frozenset(one for one, offer in self.offered.items() if offer.timetables)
        seen, working = self.server.plain(), self.drivers.working_plain()
        for fate in look_after_plain(seen, working, fleeting, self.now()):
            match fate:
                case Again(flow_run, why):
                    self.server.again(flow_run, why)
                case GiveUp(flow_run, why):
                    self.server.crash(flow_run, why)
                case Cancel(flow_run):
                    self.drivers.end(flow_run)
                    self.server.drop(flow_run, "a person cancelled it")
                case _:
                    assert_never(fate)
            _say(str(fate))

    def _make(self, move: Move) -> None:
        match move:
            case Drive(run, why):
                self._drive_again(run, why)
            case Reopen(flow_run, why):
                self.server.again(flow_run, why)
            case Conclude(flow_run, run):
                conclude(flow_run, run, self.ledger)
            case AskToStop(flow_run, run):
                self._ask_to_stop(flow_run, run)
            case PauseRun(flow_run, run):
                self._hold(flow_run, run)
            case LetGo(flow_run):
                _say(f"flow run {flow_run} was deleted: its driver lets go, and its run gets another one")
                self.drivers.let_go_of(flow_run)
            case Drop(flow_run):
                self.server.drop(flow_run, "cancelled before anything was started")
            case _:
                assert_never(move)

    def _drive_again(self, run: str, why: str) -> None:
        """Use the flow run that the run had, so that one page shows the whole run; the next look claims it."""
        before = self.tries.get(run)
        fresh = before is None or self.now() - before.last_at > FORGET_SECONDS
        self.tries[run] = Tries(1 if before is None or fresh else before.number + 1, self.now())
        known = self.server.present(run)
        if known is None:
            self.server.create(run, why)
        else:
            if known.phase is Phase.CANCELLED:
                self._ask_to_stop(known.id, run)
            self.server.again(known.id, why)
        self.tally.taken_over += 1
        _say(f"{run} is driven again: {why}")

    def _hold(self, flow_run: str, run: str) -> None:
        """A flow run that is paused on the server would be nobody's: the pause is ours, and the page says so."""
        if not self.ledger.paused(run):
            self.ledger.pause(run, "its flow run was paused on the server's pages", by=server_caller())
        went_on = f"automatic actions are halted, training goes on; allow them again: primus unpause {run}"
        self.server.goes_on(flow_run, PAUSED_NAME, went_on)

    def _ask_to_stop(self, flow_run: str, run: str) -> None:
        request = RequestRecord(f"{run}-stop-{flow_run[:8]}", run, "stop", self.now(), "its flow run was cancelled")
        self.ledger.request(request, server_caller())
        self.asked.add(flow_run)


@dataclass(frozen=True)
class Bells:
    """What wakes the runner between two looks."""

    ended: threading.Event = field(default_factory=threading.Event)
    rung: threading.Event = field(default_factory=threading.Event)

    def end(self, _number: int, _frame: FrameType | None) -> None:
        """SIGTERM: look no more."""
        self.ended.set()
        self.rung.set()

    def ring(self, _number: int, _frame: FrameType | None) -> None:
        """SIGUSR1: a run was asked for just now."""
        self.rung.set()

    def wait(self, seconds: float) -> None:
        """Until the next look."""
        self.rung.wait(seconds)
        self.rung.clear()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def run_until(bells: Bells, drivers: Drivers, settings: Settings, tally: Tally) -> None:
    """Look again and again until the bell for the end; a neighbour that is away is waited for."""
    cluster = load_cluster(settings.cluster)
    offers = offers_of(cluster)
    ledger = Ledger(settings.ledger_url)
    while not bells.ended.is_set():
        try:
            with flow_runs() as server:
                offered = server.serve(offers)
                runner = Runner(cluster.name, ledger, server, drivers, ledger.database.clock, tally, offered)
                is_ready(settings.home, next(one for one, offer in offered.items() if offer.trains))
                tally.ready = True
                _say(f"serves {', '.join(f'{offer.flow}/{offer.name}' for offer in offers)}")
                while not bells.ended.is_set():
                    _look_once(runner, bells)
        except Transient as error:
            tally.waits(str(error))
            _say(f"{error}; waiting for it")
            bells.wait(AWAY_SECONDS)
    ledger.close()


def _look_once(runner: Runner, bells: Bells) -> None:
    try:
        runner.look()
        runner.tally.waits("")
        bells.wait(LOOK_SECONDS)
    except Transient as error:
        if runner.tally.waiting_for != str(error):
            _say(f"{error}; waiting for it, training goes on")
        runner.tally.waits(str(error))
        bells.wait(AWAY_SECONDS)


def main() -> int:
    """Until SIGTERM: then every driver lets go of its run, which the next runner takes up at once."""
    reset_inherited()
    prepare(os.environ)
    warm("flows.train", "flows.failover", "flows.monitor")
    bells = Bells()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, bells.end)
    signal.signal(signal.SIGUSR1, bells.ring)
    try:
        settings = Settings.from_environment(os.environ)
        drivers, tally = Drivers(), Tally()
        port = os.environ.get(PORT, "")
        with serve_page(tally, int(port) if port else None):
            run_until(bells, drivers, settings, tally)
            clean = drivers.let_go()
        drivers.close()
    except PrimusError as error:
        _say(str(error))
        return 1
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
