"""Folders and placeholders of a run, written so that they hold on every engine.

A folder on shared storage is never written by its mount path but by the variable of its mount, e.g.
`$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1`: Kubernetes expands it to the mount path, and the embedded cluster, where
mounts are forbidden, to the real folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from workflows import labels
from workflows.attempt.plan import AttemptPlan
from workflows.programs.launcher import options as launcher_options
from workflows.programs.launcher.options import fill

LEFT_TO_LAUNCHER = (
    "resume_from", "resume_dir", "resume_step", "remaining_steps", "steps_left", launcher_options.ATTEMPT_FOLDER
)  # fmt: skip
"""Placeholders that only the launcher can fill: their values are known when the attempt starts."""


def storage_volume(index: int) -> str:
    """Name of the volume of the cluster's storage number `index`."""
    return f"storage-{index}"


def folder_variable(volume: str) -> str:
    """Environment variable that holds where `volume` is mounted."""
    return "PRIMUS_FOLDER_" + volume.upper().replace("-", "_")


def in_pod(cluster: ClusterProfile, path: str) -> str:
    """`path` with the mount path it starts with, if any, replaced by that mount's variable."""
    by_length = sorted(enumerate(cluster.storage), key=lambda pair: len(pair[1].mount_path), reverse=True)
    for index, storage in by_length:
        mount = storage.mount_path.rstrip("/")
        if path == mount or path.startswith(mount + "/"):
            return f"$({folder_variable(storage_volume(index))}){path[len(mount) :]}"
    return path


def run_dir(plan: AttemptPlan) -> str:
    """The run's folder, for commands and environment variables of pods that mount the storage."""
    return in_pod(plan.resolved.cluster, labels.run_directory(plan.resolved.storage_path, plan.run))


def checkpoint_dir(plan: AttemptPlan) -> str:
    """The folder of the run's checkpoints, likewise."""
    return _of_the_run(plan, plan.resolved.run.checkpoint.directory)


def save_file(plan: AttemptPlan) -> str:
    """The file that asks for a save, likewise; "": there is none.

    Raises:
        ProfileError: it holds `{{`.
    """
    refuse_engine_tags(plan.resolved.run.checkpoint.save_file, "checkpoint.save_file")
    return _of_the_run(plan, plan.resolved.run.checkpoint.save_file)


def _of_the_run(plan: AttemptPlan, path: str) -> str:
    return in_pod(plan.resolved.cluster, fill(path, {"run_dir": run_dir(plan), "run": plan.run}))


def values(plan: AttemptPlan) -> dict[str, str]:
    """What stands for each placeholder that is known before the attempt starts."""
    run = plan.resolved.run
    return {
        "run": plan.run,
        "attempt": str(plan.attempt),
        "run_dir": run_dir(plan),
        "checkpoint_dir": checkpoint_dir(plan),
        "data": in_pod(plan.resolved.cluster, run.data.path),
        "steps": str(run.steps),
        "seed": str(run.seed),
        "interval_steps": str(run.checkpoint.interval_steps if plan.interval_steps is None else plan.interval_steps),
    }


def fill_all(texts: Iterable[str], known: Mapping[str, str], field: str) -> tuple[str, ...]:
    """Each of `texts` filled.

    Raises:
        ProfileError: a text holds `{{`, which the workflow engine would take for a variable of its own.
    """
    filled: list[str] = []
    for index, text in enumerate(texts):
        refuse_engine_tags(text, f"{field}[{index}]")
        filled.append(fill(text, known))
    return tuple(filled)


def refuse_engine_tags(text: str, field: str) -> None:
    """Nothing, or an error where `text` holds `{{`.

    Raises:
        ProfileError: names `field`.
    """
    if "{{" in text:
        raise ProfileError(field, "must not contain '{{': Argo would replace it; put a space between the braces")
