"""`primus profiles` and `primus render`: what is wanted and what would be sent, without touching anything."""

from __future__ import annotations

import os
from typing import Any

from deployments.edge import GOOD, out, out_json
from deployments.tables import table
from profiles import load
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.values import Value
from tasks.opening import resolve_request
from tasks.settings import Settings


def list_profiles(*, as_json: bool) -> int:
    """All shipped profiles."""
    rows: list[dict[str, Any]] = [
        {"kind": item.kind, "name": item.name, "verified": item.verified, "description": item.description}
        for item in load.list_profiles()
    ]
    if as_json:
        out_json(rows)
    else:
        out(table(rows, ("kind", "name", "verified", "description")))
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
    else:
        value = load.load_hardware(name) if "hardware" in kinds else load.load_recovery(name)
    if as_json:
        out_json(value.model_dump(mode="json"))
    else:
        out(load.dump(value))
    return GOOD


def validate_profile(profile: str, cluster: str, *, as_json: bool) -> int:
    """Whether it is right and fits; an error names the field."""
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


def render(profile: str, cluster: str, overrides: tuple[str, ...], form: str, *, as_json: bool) -> int:
    """The manifests of a first attempt."""
    settings = Settings.from_environment(os.environ)
    resolved = resolve_request(TrainRequest(profile=profile, cluster=cluster, overrides=overrides), settings)
    return render_resolved(resolved, form, as_json=as_json)


def render_workspace(profile: str, *, with_control: bool, as_json: bool) -> int:
    """Everything a workspace needs in a cluster; with what the runner needs once, before it."""
    from workflows.workspace import control, workspace

    wanted = load.load_workspace(profile)
    documents = [*(control(wanted.runner_namespace) if with_control else []), *workspace(wanted)]
    if as_json:
        out_json(documents)
    else:
        import yaml

        out(yaml.safe_dump_all(documents, sort_keys=False, width=120))
    return GOOD


def render_resolved(resolved: Resolved, form: str, *, as_json: bool) -> int:
    """Print what would be sent for attempt 1; `dry-run` asks the cluster whether it would take it."""
    from workflows.gang_news import lent_restarts
    from workflows.manifests import gang, manifests
    from workflows.plan import AttemptPlan

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
