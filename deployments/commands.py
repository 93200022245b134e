"""`primus train, runs, status, stop, resume`: thin over the ledger; the driver does the work."""

from __future__ import annotations

import os
import shlex
import socket
from dataclasses import dataclass
from uuid import uuid4

from deployments.console import ensure_console, warm_up
from deployments.driver import Driver, driver_of, prepare_driver
from deployments.edge import FAILED, GOOD, INTERRUPTED, UNKNOWN, WRONG_USAGE, out, out_json, say
from deployments.follow import follow
from deployments.views import status_document, status_text
from profiles.errors import Permanent, ProfileError
from profiles.request import TrainRequest
from profiles.vocabulary import FINISHED, Mode, RunState
from tasks.ledger import Ledger
from tasks.opening import open_run, resolve_request
from tasks.prefect_server import server_url
from tasks.settings import Settings
from workflows.records import RequestRecord, RunRecord


@dataclass(frozen=True)
class TrainOptions:
    """What `primus train` was given."""

    profile: str
    name: str
    cluster: str
    overrides: tuple[str, ...]
    mode: str
    detach: bool
    dry_run: bool
    as_json: bool


def _request(options: TrainOptions) -> TrainRequest:
    if options.mode and options.mode not in tuple(Mode):
        raise ProfileError("--mode", f"{options.mode!r} is unknown; choose observe, ask or act")
    return TrainRequest(
        profile=options.profile,
        name=options.name,
        cluster=options.cluster,
        mode=Mode(options.mode) if options.mode else None,
        overrides=options.overrides,
    )


def train_run(options: TrainOptions) -> int:
    """Check, write the run down, give it to a driver, watch."""
    settings = Settings.from_environment(os.environ)
    request = _request(options)
    if options.dry_run:
        from deployments.profiles_view import render_resolved

        return render_resolved(resolve_request(request, settings), "dry-run", as_json=options.as_json)
    known = server_url(settings.home)
    driver = prepare_driver(settings.home, known) if known else None
    ledger = Ledger(settings.ledger_url)
    try:
        run = open_run(request, settings, ledger, _now())
    except BaseException:
        if driver:
            driver.dismiss()
        raise
    again = same_again(options, run.name)
    return _carry_on(run, settings, ledger, driver, again, detach=options.detach, as_json=options.as_json)


def same_again(options: TrainOptions, run: str) -> str:
    """The command that continues this run: a profile with other changes would be refused."""
    cluster = ("--cluster", options.cluster) if options.cluster else ()
    changes = [word for change in options.overrides for word in ("--set", change)]
    return shlex.join(["primus", "train", options.profile, "--name", run, *cluster, *changes])


def _now() -> float:
    import time

    return time.time()


def _carry_on(
    run: RunRecord,
    settings: Settings,
    ledger: Ledger,
    driver: Driver | None,
    again: str,
    *,
    detach: bool,
    as_json: bool,
) -> int:
    """Give the run to a driver unless it has one or has ended; then watch."""
    present = driver_of(run.name, ledger.lease(run.name), settings.home, _now())
    living, where = present.pid, present.host
    if run.state in FINISHED or present.alive:
        if driver:
            driver.dismiss()
        if run.state in (RunState.FAILED, RunState.STOPPED):
            say(f"{run.name} has {run.state}: {run.why}\ncontinue it: primus resume {run.name}")
            return FAILED
    else:
        if driver is None:
            say("starting the Prefect server in the background (once; `primus down` stops it)")
            driver = prepare_driver(settings.home, ensure_console(settings.home))
        living, where = driver.drive(run.name), socket.gethostname()
        warm_up(settings.home)
    if run.state not in FINISHED:
        say(f"{run.name} is driven by process {living}{_at(where)}; watch or continue it: {again}")
    if detach:
        if as_json:
            out_json({"run": run.name, "driver": living})
        return GOOD
    return _watch(run.name, settings, ledger, as_json=as_json)


def _watch(run: str, settings: Settings, ledger: Ledger, *, as_json: bool) -> int:
    from deployments.live import teller

    try:
        with teller(settings, ledger) as shown:
            state = follow(run, settings, ledger, shown)
    except KeyboardInterrupt:
        say(f"\nstopped watching; the training goes on. Stop it: primus stop {run}. See it: primus status {run}")
        return INTERRUPTED
    if as_json:
        out_json(status_document(run, settings, ledger))
    return {RunState.SUCCEEDED: GOOD, RunState.FAILED: FAILED, RunState.STOPPED: FAILED}.get(state, UNKNOWN)


def show_status(run: str, *, watch: bool, as_json: bool) -> int:
    """One run, as it stands; or watched until it ends.

    Returns:
        Watched: as `primus train`, 0 where it succeeded, 1 where it did not, 3 where nobody drives it any more.

    Raises:
        NotFound: no such run.
    """
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    if watch:
        ledger.story(run)  # says that there is none, before anything is drawn
        return _watch(run, settings, ledger, as_json=as_json)
    document = status_document(run, settings, ledger)
    if as_json:
        out_json(document)
    else:
        out(status_text(document))
    return GOOD


def stop_run(run: str, why: str, *, as_json: bool) -> int:
    """Ask the run's driver to end it; a run without a driver gets one for that."""
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    record = ledger.story(run).run
    if record.state in FINISHED:
        say(f"{run} has {record.state} already")
        return GOOD
    asked = RequestRecord(
        id=f"{run}-stop-{uuid4().hex[:8]}", run=run, kind="stop", at=_now(), why=why or "a person asked for it"
    )
    ledger.request(asked)
    _ensure_driver(run, settings, ledger)
    state = follow(run, settings, ledger)
    if as_json:
        out_json(status_document(run, settings, ledger))
    return GOOD if state is RunState.STOPPED else FAILED


def _at(host: str) -> str:
    return "" if host == socket.gethostname() else f" on {host}"


def _ensure_driver(run: str, settings: Settings, ledger: Ledger) -> None:
    if not driver_of(run, ledger.lease(run), settings.home, _now()).alive:
        prepare_driver(settings.home, ensure_console(settings.home)).drive(run)


def resume_run(run: str, why: str, *, detach: bool, as_json: bool) -> int:
    """Continue a run that ended without success."""
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    record = ledger.story(run).run
    if record.state is RunState.SUCCEEDED:
        say(f"{run} has succeeded; there is nothing to resume")
        return WRONG_USAGE
    if record.state in FINISHED:
        record = ledger.resume_run(run, why or "a person resumed it", _now())
    elif record.state is RunState.UNKNOWN:
        raise Permanent(f"{run} is in an unknown state: {record.why}; stop it first: primus stop {run}")
    again = f"primus resume {run}"
    return _carry_on(record, settings, ledger, None, again, detach=detach, as_json=as_json)
