"""`primus profiles`, `render train` and `render workspace`: shipped profiles and manifests; nothing is touched."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, ClusterName, Profile, Set, profiles_app, render_app
from deployments.exit_codes import GOOD, out, out_json
from deployments.screen.tables import table
from profiles.errors import ProfileError
from profiles.loading import load
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.values import Value
from tasks.runs.open import resolve_request
from tasks.settings import Settings


@profiles_app.command("list")
def list_profiles(*, as_json: AsJson = False) -> int:
    """The shipped profiles, and which of them were run for real.

    Example: primus profiles list
    """
    rows: list[dict[str, Any]] = [
        {"kind": item.kind, "name": item.name, "verified": item.verified, "description": item.description}
        for item in load.list_profiles()
    ]
    if as_json:
        out_json(rows)
    else:
        out(table(rows, ("kind", "name", "verified", "description")))
    return GOOD


@profiles_app.command("show")
def profiles_show(profile: Profile, overrides: Set = None, as_json: AsJson = False) -> int:
    """The whole value of a run, cluster, hardware or recovery profile.

    Example: primus profiles show demo --set steps=100
    """
    return show_profile(profile, tuple(overrides or ()), as_json=as_json)


@profiles_app.command("validate")
def validate_profile(profile: Profile, cluster: ClusterName = "", *, as_json: AsJson = False) -> int:
    """Whether a run profile is right and fits the cluster: field, reason, what to do.

    Example: primus profiles validate ./my-run.yaml
    """
    settings = Settings.from_environment(os.environ)
    resolved = resolve_request(TrainRequest(profile=profile, cluster=cluster), settings)
    verdict = {
        "profile": resolved.run.name,
        "cluster": resolved.cluster.name,
        "pool": resolved.pool.name,
        "hardware": resolved.hardware.name,
        "gpus": resolved.gpus,
        "verified": resolved.run.verified,
    }
    if as_json:
        out_json(verdict)
    else:
        known = "" if resolved.run.verified else " (unverified: nobody has run it yet)"
        out(f"{resolved.run.name} is right and fits {resolved.cluster.name}, pool {resolved.pool.name}{known}")
    return GOOD


@render_app.command("train")
def render_train(
    profile: Profile,
    cluster: ClusterName = "",
    overrides: Set = None,
    form: Annotated[
        str, typer.Option("--as", metavar="jobset|trainjob|pytorchjob", help="The gang alone, in this form.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """The manifests of the first attempt.

    Example: primus render train demo --as trainjob
    """
    return print_run(profile, cluster, tuple(overrides or ()), form, as_json=as_json)


@render_app.command("workspace")
def print_workspace(
    profile: Annotated[str, typer.Argument(help="Workspace profile: a shipped one by name, or a path.")],
    *,
    with_control: Annotated[bool, typer.Option("--with-control", help="Also what the runner needs once.")] = False,
    as_json: AsJson = False,
) -> int:
    """Namespace, rights, queue, quotas and priorities of a workspace, for `kubectl apply --server-side -f -`.

    Example: primus render workspace ./my-team.yaml
    """
    from workflows.platform.workspace import control, workspace

    wanted = load.load_workspace(profile)
    documents = [*(control(wanted.runner_namespace) if with_control else []), *workspace(wanted)]
    if as_json:
        out_json(documents)
    else:
        import yaml

        out(yaml.safe_dump_all(documents, sort_keys=False, width=120))
    return GOOD


def show_profile(name: str, overrides: tuple[str, ...], *, as_json: bool) -> int:
    """One profile as a whole: of a run, else of a cluster, a workspace, a suite, hardware or recovery of that name."""
    kinds = {item.kind for item in load.list_profiles() if item.name == name}
    value: Value
    if not kinds or "run" in kinds:
        value = load.load_run(name, overrides=overrides)
    elif "cluster" in kinds:
        value = load.load_cluster(name, overrides=overrides)
    elif "workspace" in kinds:
        value = load.load_workspace(name, overrides=overrides)
    elif "suite" in kinds:
        value = load.load_suite(name, overrides=overrides)
    elif overrides:
        raise ProfileError("--set", f"changes runs, clusters, workspaces and suites; {name} is none of them")
    else:
        value = load.load_hardware(name) if "hardware" in kinds else load.load_recovery(name)
    if as_json:
        out_json(value.model_dump(mode="json"))
    else:
        out(load.dump(value))
    return GOOD


def print_run(profile: str, cluster: str, overrides: tuple[str, ...], form: str, *, as_json: bool) -> int:
    """The manifests of a first attempt."""
    settings = Settings.from_environment(os.environ)
    resolved = resolve_request(TrainRequest(profile=profile, cluster=cluster, overrides=overrides), settings)
    return render_resolved(resolved, form, as_json=as_json)


def render_resolved(resolved: Resolved, form: str, *, as_json: bool) -> int:
    """Print what would be sent for attempt 1; `dry-run` asks the cluster whether it would take it."""
    from workflows.attempt.plan import AttemptPlan
    from workflows.attempt.training import gang, manifests
    from workflows.model.gang_status import lent_restarts

    recovery, ours = resolved.run.recovery, form in ("", "dry-run")
    plan = AttemptPlan(
        resolved=resolved,
        run=f"{resolved.run.name[:24].rstrip('-')}-1",
        attempt=1,
        restarts_in_place=lent_restarts(recovery, recovery.mode, paused=False) if ours else 0,
    )
    documents = manifests(plan) if ours else gang(plan, form)
    if form == "dry-run":
        from tasks.clusters import open_cluster

        cluster = open_cluster(resolved.cluster, Settings.from_environment(os.environ).home)
        for document in documents:
            cluster.apply(document, dry_run=True)
    if as_json:
        out_json(documents)
    else:
        import yaml

        out(yaml.safe_dump_all(documents, sort_keys=False, width=120))
    return GOOD
