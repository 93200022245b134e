"""From a request to a run in the ledger, without Prefect: the command line calls this directly."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from profiles.admission import own_suite
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, Permanent
from profiles.loading import load
from profiles.loading.load import check_admission
from profiles.loading.validation import explained
from profiles.request import TrainRequest
from profiles.resolve import Resolved, differences, digest
from profiles.run import RunProfile
from profiles.vocabulary import KnownBy, RunState
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings, localised, make_own_storage
from workflows.labels import run_directory
from workflows.model.records import UNVERIFIED, Actor, RunRecord
from workflows.programs.checkpoints.inventory import SurveyRequest


def resolve_request(request: TrainRequest, settings: Settings) -> Resolved:
    """The frozen value a request stands for.

    Raises:
        ProfileError: the field is named.
    """
    overrides = request.overrides
    if request.inline is not None:
        run = load.run_from_mapping(request.inline, overrides=overrides)
    else:
        run = load.load_run(request.profile, overrides=overrides)
    cluster = localised(load.load_cluster(request.cluster or settings.cluster), settings.home)
    if cluster.admission.depths.before_run:
        suite = load.load_suite(cluster.admission.suite or own_suite(cluster.engine), cluster=cluster)
        check_admission(cluster, suite)
    return load.resolve(run, cluster)


def free_name(ledger: Ledger, profile: RunProfile) -> str:
    """The profile's name and the next free number."""
    stem = profile.name[:24].rstrip("-")
    taken = [re.fullmatch(rf"{re.escape(stem)}-(\d+)", name) for name in ledger.run_names()]
    numbers = [int(match.group(1)) for match in taken if match]
    return f"{stem}-{max(numbers, default=0) + 1}"


def owner_of(by: Actor | None) -> str:
    """Whose a run is that somebody asks for without naming anybody: his own, on whichever machine he does."""
    return by.name.partition("@")[0] if by and by.known_by is not KnownBy.SERVER_PASSWORD else ""


def open_run(
    request: TrainRequest, settings: Settings, ledger: Ledger, now: float, by: Actor | None = None
) -> RunRecord:
    """The run a request names: created, or found with the same resolved profile; `by` is who asks.

    Raises:
        Conflict: a run of this name exists with another profile; the differences are named.
        ProfileError: the request is wrong; nothing was written.
        Unavailable: the run's storage in PRIMUS_HOME cannot be made.
    """
    resolved = resolve_request(request, settings)
    make_own_storage(resolved.cluster, settings.home)
    record = RunRecord(
        name=request.name or free_name(ledger, resolved.run),
        state=RunState.PENDING,
        why="waits for its driver",
        profile=resolved.run.name,
        resolved=resolved.model_dump(mode="json"),
        digest=digest(resolved),
        cluster=resolved.cluster.name,
        mode=request.mode or settings.mode or resolved.run.recovery.mode,
        created_at=now,
        owner=request.owner or settings.owner or owner_of(by),
        tags=dict(request.tags),
    )
    stored = ledger.open_run(record, by)
    if stored.digest != record.digest:
        changed = differences(resolved_of(stored), resolved)
        raise Conflict(
            f"a run called {record.name} exists with another profile; choose another name, or undo: "
            + "; ".join(changed[:20])
        )
    if request.mode is not None and request.mode is not stored.mode:
        ledger.set_mode(record.name, request.mode, by=by or UNVERIFIED)
    if request.owner or request.tags:
        ledger.set_tags(record.name, request.owner, request.tags, by=by or UNVERIFIED)
    return ledger.run(record.name) or stored


def resolved_of(record: RunRecord) -> Resolved:
    """The resolved profile stored with the run.

    Raises:
        Permanent: it is not what this version of ours reads.
    """
    try:
        return Resolved.model_validate(record.resolved)
    except ValidationError as error:
        wrong = explained(Resolved, record.resolved, error, f"the profile of {record.name} in the ledger", {})
        raise Permanent(f"{wrong}; another version wrote it, or it was changed by hand: use that version") from error


def run_folder(resolved: Resolved, run: str) -> Path:
    """The run's folder as this machine sees it (embedded: the same path as the pods')."""
    return Path(run_directory(str(storage_root(resolved.cluster)), run))


def storage_root(profile: ClusterProfile) -> Path:
    """Where this machine sees the storage that holds the runs' folders."""
    storage = profile.storage[0]
    return Path(storage.source if storage.kind == "host_path" else storage.mount_path)


def checkpoint_folder(resolved: Resolved, run: str) -> Path:
    """The folder of the run's checkpoints as this machine sees it."""
    folder = run_folder(resolved, run)
    text = resolved.run.checkpoint.directory.replace("{run_dir}", str(folder)).replace("{run}", run)
    return Path(text)


def survey_request(resolved: Resolved, run: str) -> SurveyRequest:
    """How the run's checkpoints are looked at from this machine."""
    policy = resolved.run.checkpoint
    return SurveyRequest(
        str(checkpoint_folder(resolved, run)),
        str(run_folder(resolved, run)),
        policy.format,
        policy.pattern,
        counter_restarts=policy.counter_restarts,
    )
