"""Commands to look at things, to answer, to drill; imported by `deployments.cli` for their registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import Cluster, Json, Profile, Run, Set, Why, app, profiles_app, render_app


@app.command()
def checkpoints(
    run_or_path: Annotated[str, typer.Argument(help="Name of a run, or a folder of anybody's checkpoints.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read everything again instead of trusting proofs.")] = False,
    as_json: Json = False,
) -> int:
    """Every checkpoint: complete or not, digest, and which one a resume would take and why.

    Example: primus checkpoints demo-1 --verify
    """
    from deployments.checkpoints import show_checkpoints

    return show_checkpoints(run_or_path, verify=verify, as_json=as_json)


@app.command()
def report(
    run: Run,
    html: Annotated[str, typer.Option("--html", help="Write a page with plots to this file.")] = "",
    as_json: Json = False,
) -> int:
    """Where every second went; attempts, incidents and decisions.

    Example: primus report demo-1 --html report.html
    """
    from deployments.report import show_report

    return show_report(run, html, as_json=as_json)


@app.command()
def approvals(as_json: Json = False) -> int:
    """Questions that wait for a person.

    Example: primus approvals
    """
    from deployments.people import list_approvals

    return list_approvals(as_json=as_json)


@app.command()
def approve(approval: Annotated[str, typer.Argument(help="Id of the question.")], why: Why = "") -> int:
    """Say yes: the decision is carried out.

    Example: primus approve demo-1-a1-i1-approval --why "the rack is back"
    """
    from deployments.people import answer

    return answer(approval, why, approved=True)


@app.command()
def deny(approval: Annotated[str, typer.Argument(help="Id of the question.")], why: Why = "") -> int:
    """Say no: nothing is done and the run stays stopped.

    Example: primus deny demo-1-a1-i1-approval --why "wait for Monday"
    """
    from deployments.people import answer

    return answer(approval, why, approved=False)


@app.command()
def pause(
    run: Annotated[str, typer.Argument(help="Name of the run; empty with --all.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of this ledger.")] = False,
    why: Why = "",
) -> int:
    """Halt every automatic action at once; training itself goes on.

    Example: primus pause --all --why "maintenance of the fabric"
    """
    from deployments.people import set_pause

    return set_pause(run, why, everything=everything, paused=True)


@app.command()
def unpause(
    run: Annotated[str, typer.Argument(help="Name of the run; empty with --all.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every run of this ledger.")] = False,
    why: Why = "",
) -> int:
    """Allow automatic actions again.

    Example: primus unpause --all
    """
    from deployments.people import set_pause

    return set_pause(run, why, everything=everything, paused=False)


@app.command()
def drill(
    run: Run,
    fault: Annotated[str, typer.Option("--fault", help="What to break, e.g. lose-node:node-1,step=50.")],
    as_json: Json = False,
) -> int:
    """Break one thing of a running run, for real, and measure detection, decision and recovery.

    Example: primus drill demo-1 --fault kill-rank:1,step=40
    """
    from deployments.drill import run_drill

    return run_drill(run, fault, as_json=as_json)


@app.command()
def diagnose(
    logs: Annotated[list[str], typer.Argument(help="Log files of any program, folders of them, - for standard input.")],
    as_json: Json = False,
) -> int:
    """What any log files say: class of the failure, who is to blame, the lines that tell it, what to do.

    Several ranks, kernel logs and events may be named together; .gz, .bz2 and .xz are read as they are.
    Exit code 0: an answer was given, whatever it says; 2: a named file cannot be read; 3: there was nothing to read.

    Example: primus diagnose rank-*.log dmesg-node-7.txt
    """
    from deployments.diagnose import diagnose_logs

    return diagnose_logs(logs, as_json=as_json)


@app.command()
def ledger(
    run: Annotated[str, typer.Option("--run", help="Only this run.")] = "",
    since: Annotated[str, typer.Option("--since", help="Only later: 2026-01-31T12:00, or 30m, 6h, 7d ago.")] = "",
    as_json: Json = False,
) -> int:
    """The raw history, oldest first.

    Example: primus ledger --run demo-1 --since 1h
    """
    from deployments.people import show_ledger

    return show_ledger(run, since, as_json=as_json)


@profiles_app.command("list")
def profiles_list(as_json: Json = False) -> int:
    """The shipped profiles, and which of them were run for real.

    Example: primus profiles list
    """
    from deployments.profiles_view import list_profiles

    return list_profiles(as_json=as_json)


@profiles_app.command("show")
def profiles_show(profile: Profile, overrides: Set = None, as_json: Json = False) -> int:
    """The whole value of a run, cluster, hardware or recovery profile.

    Example: primus profiles show demo --set steps=100
    """
    from deployments.profiles_view import show_profile

    return show_profile(profile, tuple(overrides or ()), as_json=as_json)


@profiles_app.command("validate")
def profiles_validate(profile: Profile, cluster: Cluster = "", as_json: Json = False) -> int:
    """Whether a run profile is right and fits the cluster: field, reason, what to do.

    Example: primus profiles validate ./my-run.yaml
    """
    from deployments.profiles_view import validate_profile

    return validate_profile(profile, cluster, as_json=as_json)


@render_app.command("train")
def render_train(
    profile: Profile,
    cluster: Cluster = "",
    overrides: Set = None,
    form: Annotated[str, typer.Option("--as", help="jobset.")] = "",
    as_json: Json = False,
) -> int:
    """The manifests of the first attempt.

    Example: primus render train demo
    """
    from deployments.profiles_view import render

    return render(profile, cluster, tuple(overrides or ()), form, as_json=as_json)
