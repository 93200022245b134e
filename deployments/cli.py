"""The command line: one function a command, each importing what it needs, so that `--help` stays fast.

Exit codes: 0 done and good; 1 the work itself failed; 2 wrong usage or an invalid profile, nothing was changed;
3 could not find out; 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from deployments import cli_clusters, cli_console, cli_health, cli_monitor, cli_more, cli_on_call, cli_preflight
from deployments.cli_options import Cluster, Json, Run, Set, Why, app

__all__ = [
    "cli_clusters",
    "cli_console",
    "cli_health",
    "cli_monitor",
    "cli_more",
    "cli_on_call",
    "cli_preflight",
    "main",
]


@app.command()
def demo(
    as_json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running for a look at its pages.")] = False,
) -> int:
    """Train, lose a node, resume from the proven checkpoint, compare with an unfailed run.

    Example: primus demo
    """
    from deployments.demo import run_demo

    return run_demo(as_json=as_json, keep=keep)


@app.command()
def up(
    cluster: Cluster = "",
    password: Annotated[bool, typer.Option("--password", help="Ask for one, also on this machine.")] = False,
    as_json: Json = False,
) -> int:
    """Start server, flow runner and monitor in the background and say where the pages are. Safe to repeat.

    Whatever of it dies is started again until `primus down`. On a machine that others use too, say --password.

    Example: primus up
    """
    from deployments.background import start

    return start(cluster, password=password, as_json=as_json)


@app.command()
def down(as_json: Json = False) -> int:
    """Stop what `primus up` started. Training goes on. Safe to repeat.

    Example: primus down
    """
    from deployments.background import halt

    return halt(as_json=as_json)


@app.command()
def train(  # noqa: PLR0913, PLR0917 - each is a flag that was promised
    profile: Annotated[str, typer.Argument(help="Shipped run profile by name, or a path.")],
    name: Annotated[str, typer.Option("--name", help="Name of the run; the same name continues it.")] = "",
    cluster: Cluster = "",
    overrides: Set = None,
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act; outranks the recovery profile.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as a driver has it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and print what would be sent.")] = False,
    as_json: Json = False,
) -> int:
    """Submit a run and watch it; the same --name again continues or adopts it.

    Example: primus train demo --name demo-1 --set steps=100
    """
    from deployments.commands import TrainOptions, train_run

    options = TrainOptions(profile, name, cluster, tuple(overrides or ()), mode, detach, dry_run, as_json)
    return train_run(options)


@app.command()
def runs(
    state: Annotated[str, typer.Option("--state", help="Only in these states, e.g. running,recovering.")] = "",
    since: Annotated[str, typer.Option("--since", help="That lived later: 2026-01-31T12:00, or 6h, 7d ago.")] = "",
    limit: Annotated[int | None, typer.Option("--limit", help="The newest so many; 0: all. Else a screenful.")] = None,
    as_json: Json = False,
) -> int:
    """Every run of this ledger, the newest last; at a terminal as many as it holds.

    Example: primus runs --state running,waiting-for-approval
    """
    from deployments.runs import list_runs

    return list_runs(state, since, limit, as_json=as_json)


@app.command()
def status(
    run: Run,
    watch: Annotated[bool, typer.Option("--follow", "-f", help="Watch it until it ends; Ctrl-C stops that.")] = False,
    as_json: Json = False,
) -> int:
    """Where a run stands, what happened to it, and what we did about it.

    Example: primus status demo-1 --follow
    """
    from deployments.commands import show_status

    return show_status(run, watch=watch, as_json=as_json)


@app.command()
def logs(
    run: Run,
    attempt: Annotated[int, typer.Option("--attempt", help="Number of the attempt; 0: the newest.")] = 0,
    rank: Annotated[int, typer.Option("--rank", help="One rank's output; -1: the launchers'.")] = -1,
    incarnation: Annotated[
        int, typer.Option("--incarnation", help="Only what ranks printed since they began for the Nth time; 0: all.")
    ] = 0,
    first_failing: Annotated[bool, typer.Option("--first-failing", help="The rank that failed first.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the attempt ends.")] = False,
) -> int:
    """What the processes of a run printed, also after their node is gone.

    Example: primus logs demo-1 --attempt 1 --first-failing
    """
    from deployments.logs import show_logs

    return show_logs(run, attempt, rank, incarnation, first_failing=first_failing, follow=follow)


@app.command()
def stop(run: Run, why: Why = "", as_json: Json = False) -> int:
    """End the training: every rank may save, then the run is stopped. `primus resume` continues it.

    Example: primus stop demo-1 --why "new data tomorrow"
    """
    from deployments.commands import stop_run

    return stop_run(run, why, as_json=as_json)


@app.command()
def resume(
    run: Run,
    why: Why = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as a driver has it.")] = False,
    as_json: Json = False,
) -> int:
    """Continue a stopped or failed run with the same history, after your fix.

    Example: primus resume demo-1 --why "fixed the data loader"
    """
    from deployments.commands import resume_run

    return resume_run(run, why, detach=detach, as_json=as_json)


NOT_BUILT = {
    "bootstrap": "setting a cluster up",
}
"""Commands promised and not built yet; each says so in one line and exits 2."""


def main() -> None:
    """Entry point of `primus`."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if words and words[0] in NOT_BUILT:
        sys.stderr.write(f"primus {words[0]}: {NOT_BUILT[words[0]]} is not built yet\n")
        sys.exit(2)
    sys.exit(_run())


def _run() -> int:
    from deployments.edge import shown

    with shown() as outcome:
        code = app(standalone_mode=False)
        outcome.code = code if isinstance(code, int) else 0
    return outcome.code


if __name__ == "__main__":
    main()
