"""Runs from Python: what `primus train`, `runs`, `status`, `stop` and `resume` do, as functions (docs/python-api.md).

They read the same environment, write the same ledger and start the same drivers as the command line, which stands on
the second half of this module. Nothing is printed but what `wait` says of a lost driver; log `primus` tells the rest.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

from deployments.processes.console import ensure_console, warm_up
from deployments.processes.driver import CLAIM_SECONDS, Driver, driver_of, driver_that_took, prepare_driver
from profiles.errors import Conflict, Permanent, Unavailable
from profiles.request import TrainRequest
from profiles.vocabulary import FINISHED, Mode, RunState
from tasks.addresses import prepare
from tasks.ledger.ledger import Ledger
from tasks.prefect.server import named_server, own_url, server_url
from tasks.processes import own_user
from tasks.runs.open import open_run, resolve_request
from tasks.settings import Settings
from workflows.model.records import Actor, RequestRecord, RunRecord, Story

__all__ = ["Mode", "RunState", "TrainRequest", "resume", "runs", "status", "stop", "train", "wait"]

Json = dict[str, Any]
_LOG = logging.getLogger("primus")


def train(request: TrainRequest) -> str:
    """Start the run of the request, or continue the one of its name; its name, as soon as a driver has it.

    A run that has succeeded, or that somebody drives, is left as it is.

    Raises:
        ProfileError: profile, cluster or request are wrong; nothing was written.
        Conflict: a run of that name has another profile, or has failed or been stopped.
        Unavailable: the ledger or the server does not answer, or the driver ended at once.
    """
    with _here() as (settings, ledger):
        driver = prepared(request, settings, ledger, _starts_server)
        run = opened(request, settings, ledger, driver, own_user())
        if run.state in (RunState.FAILED, RunState.STOPPED):
            if driver:
                driver.dismiss()
            raise Conflict(f"{run.name} has {run.state}: {run.why}; resume() continues it")
        _drive(run, settings, ledger, driver)
        return run.name


def runs(
    states: Sequence[RunState] = (),
    *,
    since: float = 0.0,
    limit: int = 0,
    owner: str = "",
    tags: Mapping[str, str] | None = None,
) -> list[Json]:
    """Runs, the newest last, each as in `primus runs --json`.

    In one of these states (none: in any), that lived at `since` (Unix seconds) or later, of this owner, with all of
    these tags; the newest `limit` of them (0: all).
    """
    from flows.decisions.views.status import document

    with _here() as (_, ledger):
        return [document(line) for line in ledger.run_lines(states, since, limit, owner=owner, tags=tags)]


def status(run: str) -> Json:
    """Where a run stands and what happened to it, as in `primus status RUN --json`.

    Raises:
        NotFound: no such run.
    """
    from deployments.screen.views import status_document

    with _here() as (settings, ledger):
        return status_document(run, settings, ledger)


def wait(run: str) -> RunState:
    """Wait until a run has ended; the state it ended in, UNKNOWN where nobody drives it any more.

    Raises:
        NotFound: no such run.
    """
    from deployments.screen.live import follow

    with _here() as (settings, ledger):
        ledger.story(run)
        return follow(run, settings, ledger, _Silent())


def stop(run: str, why: str = "") -> RunState:
    """End the training: every rank may save; the state in which the run is then. `resume` continues it.

    Raises:
        NotFound: no such run.
        Unavailable: the ledger or the server does not answer.
    """
    with _here() as (settings, ledger):
        state = ledger.story(run).run.state
        if state in FINISHED:
            return state
        ask_to_stop(run, why, settings, ledger, own_user())
        ensure_driver(run, settings, ledger)
    return wait(run)


def resume(run: str, why: str = "") -> None:
    """Continue a stopped or failed run with the same history; it has a driver when this returns.

    Raises:
        NotFound: no such run.
        Conflict: it has succeeded, or its files were removed.
        Permanent: it is in an unknown state: stop it first.
        Unavailable: the ledger or the server does not answer, or the driver ended at once.
    """
    with _here() as (settings, ledger):
        record = reopened(ledger.story(run).run, why, settings, ledger, own_user())
        _drive(record, settings, ledger, None)


class _Silent:
    """Shows nothing."""

    def tell(self, story: Story) -> None:
        """Nothing is shown of what happened."""

    def beat(self) -> None:
        """Nothing is shown of time that passes."""


@contextmanager
def _here() -> Generator[tuple[Settings, Ledger]]:
    prepare(os.environ)
    settings = Settings.from_environment(os.environ)
    with closing(Ledger(settings.ledger_url)) as ledger:
        yield settings, ledger


def _starts_server() -> None:
    _LOG.info("starting the Prefect server in the background; `primus down` stops it")


def _drive(run: RunRecord, settings: Settings, ledger: Ledger, driver: Driver | None) -> None:
    if run.state in FINISHED or is_driven(run.name, settings, ledger):
        if driver:
            driver.dismiss()
        return
    driver = driver or prepare_driver(settings.home, server(settings, _starts_server))
    complaint, lost = taken(run.name, driver.drive(run.name), settings, ledger)
    if lost:
        raise Unavailable(complaint)
    if complaint:
        _LOG.warning(complaint)


# What the command line does with words for people between.


def prepared(
    request: TrainRequest, settings: Settings, ledger: Ledger, starts_server: Callable[[], None]
) -> Driver | None:
    """A driver that is being made ready; None where the run needs none.

    The server answers before anything is written down, so that nothing is left pending where it cannot be reached.
    """
    known = named_server(settings.home) or own_url(settings.home)
    if not known:
        before = ledger.run(request.name) if request.name else None
        if before is not None and (before.state in FINISHED or is_driven(before.name, settings, ledger)):
            return None
        resolve_request(request, settings)  # no server is started for what is wrong by itself
        known = server(settings, starts_server)
    return prepare_driver(settings.home, known)


def opened(request: TrainRequest, settings: Settings, ledger: Ledger, driver: Driver | None, by: Actor) -> RunRecord:
    """The run of a request, written down; where that fails its driver is let go."""
    try:
        return open_run(request, settings, ledger, time.time(), by)
    except BaseException:
        if driver:
            driver.dismiss()
        raise


def server(settings: Settings, starts_server: Callable[[], None]) -> str:
    """Address of a server that answers; `starts_server` is told before one is started."""
    if server_url(settings.home) is None:
        starts_server()
    return ensure_console(settings.home)


def is_driven(run: str, settings: Settings, ledger: Ledger) -> bool:
    """Whether somebody drives the run."""
    return driver_of(run, ledger.lease(run), settings.home, time.time()).alive


def ensure_driver(run: str, settings: Settings, ledger: Ledger) -> None:
    """A driver for a run that has none."""
    if not is_driven(run, settings, ledger):
        prepare_driver(settings.home, ensure_console(settings.home)).drive(run)


def taken(run: str, pid: int, settings: Settings, ledger: Ledger) -> tuple[str, bool]:
    """What is to be said of the process that was given a run ("": it has taken it), and whether nobody drives it."""
    warm_up(settings.home)
    seen, took = driver_that_took(run, ledger, settings.home)
    story = ledger.story(run)
    if took or story.run.state in FINISHED:
        return "", False
    if seen.alive:
        return f"process {pid} was started for {run} and has not taken it within {CLAIM_SECONDS:g} s", False
    end = seen.told_end(story.lease) or "its driver is gone"
    return f"nobody drives {run}: {end}\nits log: {seen.log}\nwhen that is mended, go on: primus resume {run}", True


def ask_to_stop(run: str, why: str, settings: Settings, ledger: Ledger, by: Actor) -> None:
    """Leave the request for its driver."""
    if not is_driven(run, settings, ledger):
        named_server(settings.home)  # a driver is started: a wrong address is told before the request stands
    why = why or "stopped by a person"
    ledger.request(RequestRecord(f"{run}-stop-{uuid4().hex[:8]}", run, "stop", time.time(), why), by)


def reopened(record: RunRecord, why: str, settings: Settings, ledger: Ledger, by: Actor) -> RunRecord:
    """The run, ready to be driven again.

    Raises:
        Conflict: it has succeeded, or its files were removed.
        Permanent: its state is unknown.
    """
    if record.state is RunState.SUCCEEDED:
        raise Conflict(f"{record.name} has succeeded; there is nothing to resume")
    named_server(settings.home)  # a wrong address is told before the run is opened again
    if record.state in FINISHED:
        return ledger.resume_run(record.name, why or "resumed by a person", time.time(), by=by)
    if record.state is RunState.UNKNOWN:
        raise Permanent(f"{record.name} is in an unknown state: {record.why}; stop it first: primus stop {record.name}")
    ledger.act(record.name, "resume", why or "it had not ended: it goes on as it is", by)
    return record
