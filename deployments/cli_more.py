"""Commands to look at things, to answer, to drill; imported by `deployments.cli` for their registration."""

from __future__ import annotations

from typing import Annotated

import typer

from deployments.cli_options import (
    Cluster,
    Json,
    Profile,
    Run,
    Set,
    Since,
    Why,
    app,
    profiles_app,
    render_app,
    workflow_app,
)


@app.command()
def why(run: Run, as_json: Json = False) -> int:
    """Why a run waits, where it stands, what blocks it: from the ledger and the cluster's own objects.

    Exit code 0: the answer is known; 3: it is not, since the cluster or the ledger does not answer.

    Example: primus why demo-1
    """
    from deployments.why import show_why

    return show_why(run, as_json=as_json)


@app.command()
def queue(cluster: Cluster = "", as_json: Json = False) -> int:
    """What waits and what runs on a cluster: place, priority, age, GPUs, what blocks each, and the quotas.

    Example: primus queue --cluster local
    """
    from deployments.queue import show_queue

    return show_queue(cluster, as_json=as_json)


@app.command()
def doctor(cluster: Cluster = "", as_json: Json = False) -> int:
    """Whether a cluster is fit for runs: versions, kinds, rights, GPUs, storage, clock, controllers; what to do.

    Exit code 0: everything passed; 1: something failed; 3: something could not be found out.

    Example: primus doctor --cluster local
    """
    from deployments.doctor import show_doctor

    return show_doctor(cluster, as_json=as_json)


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
    run: Annotated[str, typer.Argument(help="Name of the run; empty: all runs of a cluster.")] = "",
    since: Annotated[
        str, typer.Option("--since", help="All runs since then: 2026-01-31T12:00, or 30m, 6h, 7d ago (7d).")
    ] = "",
    cluster: Cluster = "",
    html: Annotated[str, typer.Option("--html", help="Write a page with plots to this file.")] = "",
    as_json: Json = False,
) -> int:
    """Where every second of a run went, or of all runs of a cluster: goodput, causes, failures, cost.

    The page holds everything it shows and can be mailed (docs/reports.md says what each number means).

    Example: primus report demo-1 --html report.html
    Example: primus report --since 7d
    """
    from deployments.report import ReportQuery, show_report

    return show_report(ReportQuery(run, since, cluster, html), as_json=as_json)


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
    since: Since = "",
    limit: Annotated[int, typer.Option("--limit", help="At most so many lines, the newest; 0: all.")] = 0,
    as_json: Json = False,
) -> int:
    """The raw history, oldest first.

    Example: primus ledger --run demo-1 --since 1h
    """
    from deployments.people import show_ledger

    return show_ledger(run, since, limit, as_json=as_json)


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
    form: Annotated[
        str, typer.Option("--as", metavar="jobset|trainjob|pytorchjob", help="The gang alone, in this form.")
    ] = "",
    as_json: Json = False,
) -> int:
    """The manifests of the first attempt.

    Example: primus render train demo --as trainjob
    """
    from deployments.profiles_view import render

    return render(profile, cluster, tuple(overrides or ()), form, as_json=as_json)


@render_app.command("workspace")
def render_workspace(
    profile: Annotated[str, typer.Argument(help="Workspace profile: a shipped one by name, or a path.")],
    with_control: Annotated[bool, typer.Option("--with-control", help="Also what the runner needs once.")] = False,
    as_json: Json = False,
) -> int:
    """Namespace, rights, queue, quotas and priorities of a workspace, for `kubectl apply --server-side -f -`.

    Example: primus render workspace ./my-team.yaml
    """
    from deployments.profiles_view import render_workspace as show

    return show(profile, with_control=with_control, as_json=as_json)


@workflow_app.command("run")
def workflow_run(
    file: Annotated[str, typer.Argument(help="Manifest of an Argo Workflow, YAML or JSON; - for standard input.")],
    cluster: Cluster = "",
    parameters: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", help="Workflow parameter as NAME=VALUE; may be repeated.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the workflow instead of the file's.")] = "",
    as_json: Json = False,
) -> int:
    """Run any Argo Workflow manifest: checked first, submitted, watched to its end, shown as a tree.

    What the embedded cluster does not run is refused by its path before anything starts (exit code 2). Ctrl-C stops
    watching, never the workflow. Exit code 0: Succeeded; 1: Failed or Error; 3: its end could not be found out.

    Example: primus workflow run hello.yaml -p message=hi
    """
    from deployments.workflow_run import RunOptions, run_workflow

    return run_workflow(RunOptions(file, cluster, tuple(parameters or ()), name, as_json))
