"""The flow runner of a cluster: `python -m deployments.runner`.

It serves the deployment `train/<cluster>` of a Prefect server, starts a driver for each flow run that was asked for,
and drives again whatever run of the ledger has lost its driver: so a runner that is killed or replaced loses no run.
All that it knows stands in the ledger and on the server; the runner itself may be killed at any line.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, assert_never

from deployments.flow_run import conclude
from deployments.runner_drivers import Drivers
from deployments.runner_page import Tally, serve_page
from flows.decisions.undriven import AskToStop, Conclude, Drive, Drop, Move, Reopen, Sight, Tries, look_after
from profiles.errors import NotFound, PrimusError, Transient
from profiles.load import load_cluster
from tasks.flow_runs import FlowRuns, Offer, flow_runs
from tasks.lease import is_alive
from tasks.ledger import Ledger
from tasks.settings import Settings
from workflows.driven import ENDS, Phase
from workflows.records import RequestRecord

LOOK_SECONDS = 1.0
"""Between two looks: what a person waits at most until a run begins. Three requests and one query each."""
AWAY_SECONDS = 3.0
"""Between two looks while a neighbour is away."""
FORGET_SECONDS = 600.0
"""A driver that lived so long did not die at once: its run's next driver starts without a pause."""
ENTRYPOINT = "flows.train.train"
PORT = "PRIMUS_RUNNER_PORT"
"""Variable with the port of /healthz and /metrics; empty: none is opened."""


def offer(cluster: str) -> Offer:
    """The deployment of a cluster: the train flow with its flat request, which the server checks when it is made."""
    from prefect.utilities.callables import parameter_schema

    from flows.train import train

    schema: dict[str, Any] = parameter_schema(train.fn).model_dump(mode="json")
    says = f"Start a training run on {cluster}, or continue the one with this name."
    return Offer("train", cluster, schema, ENTRYPOINT, says)


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
    tries: dict[str, Tries] = field(default_factory=lambda: {})
    asked: set[str] = field(default_factory=set[str])

    def look(self) -> None:
        """Start what waits, then look after runs without a driver.

        Raises:
            Unavailable: server or ledger do not answer; nothing is concluded from that.
        """
        working = self.drivers.working()
        for flow_run in self.server.waiting():
            if flow_run not in working and self.server.claim(flow_run):
                self._start(flow_run)
        # The server is read first: a run that ends in between is seen as open once more, never as lost.
        flow_runs = tuple(self.server.open())
        runs = tuple(self.ledger.open_runs(is_alive))
        working = self.drivers.working()
        sight = Sight(self.now(), self.cluster, runs, flow_runs, working, frozenset(self.asked))
        for move in look_after(sight, self.tries):
            try:
                self._make(move)
            except NotFound as error:
                _say(f"{move}: {error}")  # somebody deleted it meanwhile
        self.tally.saw(runs, flow_runs, len(working), sight.now)

    def _start(self, flow_run: str) -> None:
        pid = self.drivers.start(flow_run)
        self.tally.started += 1
        _say(f"flow run {flow_run}: driven by process {pid}")

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
            case Drop(flow_run):
                self.server.drop(flow_run, "cancelled before anything was started")
            case _:
                assert_never(move)

    def _drive_again(self, run: str, why: str) -> None:
        """By the flow run it had, so that one page tells the whole run; the next look claims it."""
        before = self.tries.get(run)
        fresh = before is None or self.now() - before.last_at > FORGET_SECONDS
        self.tries[run] = Tries(1 if before is None or fresh else before.number + 1, self.now())
        belonging = self.server.of_run(run)
        known = next((one for one in belonging if one.phase not in ENDS), belonging[-1] if belonging else None)
        if known is None:
            self.server.create(run, why)
        else:
            if known.phase is Phase.CANCELLED:
                self._ask_to_stop(known.id, run)
            self.server.again(known.id, why)
        self.tally.taken_over += 1
        _say(f"{run} is driven again: {why}")

    def _ask_to_stop(self, flow_run: str, run: str) -> None:
        request = RequestRecord(f"{run}-stop-{flow_run[:8]}", run, "stop", self.now(), "its flow run was cancelled")
        self.ledger.request(request)
        self.asked.add(flow_run)


def _end(ended: threading.Event, _number: int, _frame: FrameType | None) -> None:
    ended.set()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def run_until(ended: threading.Event, drivers: Drivers, settings: Settings, tally: Tally) -> None:
    """Look again and again until the event; a neighbour that is away is waited for."""
    cluster = load_cluster(settings.cluster).name
    ledger = Ledger(settings.ledger_url)
    while not ended.is_set():
        try:
            with flow_runs() as server:
                server.serve(offer(cluster))
                tally.ready = True
                _say(f"serves train/{cluster}")
                runner = Runner(cluster, ledger, server, drivers, ledger.database.clock, tally)
                while not ended.is_set():
                    _look_once(runner, ended)
        except Transient as error:
            tally.waits(str(error))
            _say(f"{error}; waiting for it")
            ended.wait(AWAY_SECONDS)
    ledger.close()


def _look_once(runner: Runner, ended: threading.Event) -> None:
    try:
        runner.look()
        runner.tally.waits("")
        ended.wait(LOOK_SECONDS)
    except Transient as error:
        if runner.tally.waiting_for != str(error):
            _say(f"{error}; waiting for it, training goes on")
        runner.tally.waits(str(error))
        ended.wait(AWAY_SECONDS)


def main() -> int:
    """Until SIGTERM: then every driver lets go of its run, which the next runner takes up at once."""
    importlib.import_module("flows.train")  # warms the process that forks drivers
    gc.collect()
    gc.freeze()  # keeps the shared pages shared
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_end, ended))
    try:
        settings = Settings.from_environment(os.environ)
        drivers, tally = Drivers(), Tally()
        port = os.environ.get(PORT, "")
        with serve_page(tally, int(port) if port else None):
            run_until(ended, drivers, settings, tally)
            clean = drivers.let_go()
        drivers.close()
    except PrimusError as error:
        _say(str(error))
        return 1
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
