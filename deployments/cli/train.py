"""`primus train`, `stop`, `resume`, `status` and `runs`: requests written to the ledger and views of it.

The run's driver does the work. `primus runs` reads all runs in one query.
"""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from deployments.api import ask_to_stop, ensure_driver, opened, prepared, reopened, server, taken
from deployments.cli.app import (
    MOST,
    AsJson,
    ClusterName,
    Owner,
    Run,
    Set,
    Tags,
    Why,
    app,
    named,
    named_mode,
    named_tags,
)
from deployments.cli.approvals import open_ledger, tell_pause, who
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, goes_on, out, out_json, say
from deployments.processes.driver import Driver, driver_of, prepare_driver
from deployments.screen.live import follow
from deployments.screen.tables import fitted, terminal_columns, terminal_lines
from deployments.screen.views import status_document, status_text
from flows.decisions.text import since_seconds
from flows.decisions.views.status import document, headline, row
from profiles.errors import ProfileError
from profiles.loading.validation import asked_for
from profiles.request import TrainRequest
from profiles.values import did_you_mean
from profiles.vocabulary import FINISHED, RunState
from tasks.ledger.ledger import Ledger
from tasks.processes import own_user
from tasks.runs.open import owner_of, resolve_request
from tasks.settings import Settings
from workflows.model.records import RunRecord

COLUMNS = ("run", "state", "profile", "cluster", "owner", "tags", "age", "step", "attempts", "why")
LEFT_OUT = ("tags", "owner", "cluster", "profile", "age", "attempts")
FOUND_BY = ("owner", "tags")
"""Left out where no run has any."""
FURNITURE_LINES = 4
"""Of a screen: headings, a blank line, the number of runs, the prompt."""


@app.command()
def train(  # noqa: PLR0913, PLR0917 - each is a flag that was promised
    profile: Annotated[str, typer.Argument(help="Shipped run profile by name, or a path.")],
    name: Annotated[str, typer.Option("--name", help="Name of the run; the same name continues it.")] = "",
    cluster: ClusterName = "",
    overrides: Set = None,
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act; outranks the recovery profile.")] = "",
    tags: Tags = None,
    owner: Owner = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as a driver has it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and print what would be sent.")] = False,
    as_json: AsJson = False,
) -> int:
    """Submit a run and watch it; the same --name again continues or adopts it.

    Example: primus train demo --name demo-1 --set steps=100
    """
    options = TrainOptions(profile, name, cluster, tuple(overrides or ()), mode, tuple(tags or ()), owner)
    return train_run(
        _request(options), lambda run: same_again(options, run), detach=detach, dry_run=dry_run, as_json=as_json
    )


@app.command("stop")
def stop_run(run: Run, why: Why = "", *, as_json: AsJson = False) -> int:
    """End the training: every rank may save, then the run is stopped. `primus resume` continues it.

    Example: primus stop demo-1 --why "new data tomorrow"
    """
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    record = ledger.story(run).run
    if record.state in FINISHED:
        say(f"{run} has {record.state} already")
        return GOOD
    ask_to_stop(run, why, settings, ledger, who())
    goes_on(f"stopped waiting; {run} is stopped all the same. See it: primus status {run}")
    ensure_driver(run, settings, ledger)
    state = follow(run, settings, ledger)
    if as_json:
        out_json(status_document(run, settings, ledger))
    return GOOD if state is RunState.STOPPED else FAILED


@app.command("resume")
def resume_run(
    run: Run,
    why: Why = "",
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act from now on; else as before.")] = "",
    *,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as a driver has it.")] = False,
    as_json: AsJson = False,
) -> int:
    """Continue a stopped or failed run with the same history, after your fix; one that rests, in another mode.

    It needs no profile: the ledger has it as it was.

    Example: primus resume demo-1 --why "fixed the data loader"
    """
    wanted = named_mode(mode)
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    record = ledger.story(run).run
    record = reopened(record, why, settings, ledger, who())
    if wanted is not None and wanted is not record.mode:
        record = ledger.set_mode(run, wanted, why, by=who())
    again = f"primus resume {run}"
    return _carry_on(record, settings, ledger, None, again, detach=detach, as_json=as_json)


@app.command("status")
def show_status(
    run: Run,
    *,
    watch: Annotated[bool, typer.Option("--follow", "-f", help="Watch it until it ends; Ctrl-C stops that.")] = False,
    as_json: AsJson = False,
) -> int:
    """Where a run stands, what happened to it, and what we did about it.

    Example: primus status demo-1 --follow
    """
    # Watched: as `primus train`, 0 where it succeeded, 1 where it did not, 3 where nobody drives it any more.
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


@app.command()
def runs(  # noqa: PLR0913, PLR0917 - each is a filter
    words: Annotated[list[str] | None, typer.Argument(help="Nothing, or rm and names of ended runs.")] = None,
    state: Annotated[str, typer.Option("--state", help="Only in these states, e.g. running,recovering.")] = "",
    since: Annotated[str, typer.Option("--since", help="That lived later: 2026-01-31T12:00, or 6h, 7d ago.")] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, max=MOST, help="The newest so many; 0: all. Else a screenful.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only with this tag, as name=value; repeated: with each of them.")
    ] = None,
    owner: Annotated[str, typer.Option("--owner", help="Only of this owner; me: yours.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With rm: say what would go.")] = False,
    as_json: AsJson = False,
) -> int:
    """Every run of this ledger, the newest last; at a terminal as many as it holds. Or remove the files of ended ones.

    Example: primus runs --state running,waiting-for-approval
    Example: primus runs rm first --dry-run
    """
    if words:
        from deployments.cli.checkpoints import remove_runs

        if words[0] != "rm" or len(words) < 2 or state or since or tags or owner or limit is not None:
            raise ProfileError(
                "RUN", f"say rm and names of ended runs, or nothing; got {' '.join(words)} (and no filter)"
            )
        return remove_runs(words[1:], dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise ProfileError("--dry-run", "goes with rm: primus runs rm RUN --dry-run")
    mine = (Settings.from_environment(os.environ).owner or owner_of(own_user())) if owner == "me" else owner
    return list_runs(state, since, limit, owner=mine, tags=named_tags(tags), as_json=as_json)


@dataclass(frozen=True)
class TrainOptions:
    """What `primus train` was given."""

    profile: str
    name: str
    cluster: str
    overrides: tuple[str, ...]
    mode: str
    tags: tuple[str, ...] = ()
    owner: str = ""


def _request(options: TrainOptions) -> TrainRequest:
    asked = {"profile": options.profile, "name": options.name, "cluster": options.cluster}
    chosen: dict[str, Any] = {"mode": options.mode} if options.mode else {}
    chosen |= {"tags": named_tags(options.tags), "owner": options.owner, "overrides": list(options.overrides)}
    return asked_for(TrainRequest, asked | chosen)


def train_run(
    request: TrainRequest,
    again: Callable[[str], str],
    notes: Sequence[str] = (),
    *,
    detach: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Check, write the run down, give it to a driver, watch.

    `again`: the command that continues the run of a name; `notes`: what is said when the run stands.
    """
    settings = Settings.from_environment(os.environ)
    if dry_run:
        from deployments.cli.profiles import render_resolved

        return render_resolved(resolve_request(request, settings), "dry-run", as_json=as_json)
    ledger = Ledger(settings.ledger_url)
    driver = prepared(request, settings, ledger, _starts_server)
    run = opened(request, settings, ledger, driver, who())
    for note in notes:
        say(note)
    return _carry_on(run, settings, ledger, driver, again(run.name), detach=detach, as_json=as_json)


def _starts_server() -> None:
    say("starting the Prefect server in the background (once; `primus down` stops it)")
    goes_on("no run was begun; the Prefect server goes on. Stop it: primus down")


def finding_words(tags: Sequence[str], owner: str) -> list[str]:
    """The flags by which a run is given tags and owner."""
    return [word for tag in tags for word in ("--tag", tag)] + (["--owner", owner] if owner else [])


def same_again(options: TrainOptions, run: str) -> str:
    """The command that continues this run, with the same overrides and mode: others would be refused."""
    cluster = ("--cluster", options.cluster) if options.cluster else ()
    changes = [word for change in options.overrides for word in ("--set", change)]
    mode = ("--mode", options.mode) if options.mode else ()
    found_by = finding_words(options.tags, options.owner)
    return shlex.join(["primus", "train", options.profile, "--name", run, *cluster, *changes, *mode, *found_by])


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
    goes_on(f"{run.name} stands in the ledger and nobody was asked to drive it. Go on: {again}. {_hints(run.name)}")
    present = driver_of(run.name, ledger.lease(run.name), settings.home, time.time())
    living, where = present.pid, present.host
    if run.state in FINISHED or present.alive:
        if driver:
            driver.dismiss()
        if run.state in (RunState.FAILED, RunState.STOPPED):
            say(f"{run.name} has {run.state}: {run.why}\ncontinue it: primus resume {run.name}")
            return FAILED
    else:
        say(f"{run.name} is written down; it is given to a driver")
        living, where = _driven(run.name, settings, ledger, driver), socket.gethostname()
        if living is None:
            return FAILED
    if run.state not in FINISHED:
        say(f"{run.name} is driven by process {living}{_at(where)}; watch or continue it: {again}")
    if detach:
        if as_json:
            out_json({"run": run.name, "driver": living})
        return GOOD
    return _watch(run.name, settings, ledger, as_json=as_json)


def _driven(run: str, settings: Settings, ledger: Ledger, ready: Driver | None) -> int | None:
    """Pid of the driver that the run was given; None where it has ended, which was told."""
    driver = ready or prepare_driver(settings.home, server(settings, _starts_server))
    goes_on(f"{run} was being given to a driver, so it may go on. {_hints(run)}")
    pid = driver.drive(run)
    goes_on(f"stopped watching; the training continues. {_hints(run)}")
    complaint, lost = taken(run, pid, settings, ledger)
    if complaint:
        say(complaint)
    return None if lost else pid


def _watch(run: str, settings: Settings, ledger: Ledger, *, as_json: bool) -> int:
    from deployments.screen.live import teller

    goes_on(f"stopped watching; the training continues. {_hints(run)}")
    with teller(settings, ledger) as view:
        state = follow(run, settings, ledger, view)
    if as_json:
        out_json(status_document(run, settings, ledger))
    return {RunState.SUCCEEDED: GOOD, RunState.FAILED: FAILED, RunState.STOPPED: FAILED}.get(state, UNKNOWN)


def _hints(run: str) -> str:
    return f"Stop it: primus stop {run}. See it: primus status {run}"


def _at(host: str) -> str:
    return "" if host == socket.gethostname() else f" on {host}"


def list_runs(
    states: str, since: str, limit: int | None, *, owner: str = "", tags: Mapping[str, str] | None = None, as_json: bool
) -> int:
    """Runs, the newest last; at a terminal as many as it holds, else all.

    Raises:
        ProfileError: no such state, or a time that is none.
        Unavailable: the ledger does not answer.
    """
    wanted = _states(states)
    now, screen = time.time(), 0 if as_json else max(0, terminal_lines() - FURNITURE_LINES)
    most = screen if limit is None else limit
    ledger = open_ledger()
    lines = ledger.run_lines(wanted, since_seconds(since, now), most + 1 if most else 0, owner=owner, tags=tags)
    older = max(0, len(lines) - most) if most else 0
    lines = lines[older:]
    if as_json:
        out_json([document(line) for line in lines])
    elif not lines:
        out("no runs yet" if not (states or since or owner or tags) else "no such run")
    else:
        rows = [row(line, now) for line in lines]
        said = [name for name in COLUMNS if name not in FOUND_BY or any(one[name] for one in rows)]
        out(fitted(rows, said, terminal_columns(), giving="why", dropped=LEFT_OUT))
        out("\n" + headline(lines, more=bool(older)))
        tell_pause(ledger)
    return GOOD


def _states(text: str) -> tuple[RunState, ...]:
    words = named(text, "--state")
    for word in words:
        if word not in tuple(RunState):
            raise ProfileError("--state", f"{word!r} is unknown{did_you_mean(word, RunState, 'states')}")
    return tuple(RunState(word) for word in words)
