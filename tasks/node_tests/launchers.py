"""Which launcher starts a test's programs on nodes: Argo on Kubernetes or the embedded cluster, Ansible, or Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from profiles.admission import launcher_of
from profiles.checks.catalogue import Launcher
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from tasks.context import world
from tasks.node_tests.preflight import run_preflight
from tasks.ssh.inventory import checked
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan

Progress = Callable[[str, int], None]
"""Gets a phase and how many nodes have told, after each change."""
Runner = Callable[[PreflightPlan, Progress], list[NodeResult]]
"""Carries a test out, or goes on with it where it was begun; what each node told."""


def launcher_for(profile: ClusterProfile, wanted: str) -> Launcher:
    """The launcher that is asked for; "": the cluster's own engine.

    Raises:
        ProfileError: there is none of that name, or the cluster profile does not say how.
    """
    try:
        launcher = launcher_of(profile.engine, wanted, profile.bare_metal, profile.slurm)
    except ValueError as error:
        field, _, reason = str(error).partition(": ")
        raise ProfileError(field, reason) from error
    if launcher == "ansible" and profile.bare_metal is not None:
        checked(profile.bare_metal)
    return launcher


def runner_of(profile: ClusterProfile, launcher: Launcher) -> Runner:
    """The function that carries a test out. The profile has been checked before (`launcher_for`)."""
    home = world().settings.home
    match launcher:
        case "kubernetes":
            return run_preflight
        case "ansible":
            from tasks.ssh.probe import run_over_ssh  # noqa: PLC0415 - Ansible is imported by those who use it

            if profile.bare_metal is None:
                raise ProfileError("bare_metal", "is not there")
            hosts = profile.bare_metal
            return lambda plan, tell: run_over_ssh(plan, hosts, home, tell)
        case "slurm":
            from tasks.slurm.probe import run_by_slurm  # noqa: PLC0415 - as above

            if profile.slurm is None:
                raise ProfileError("slurm", "is not there")
            storage, slurm = Path(profile.storage[0].source), profile.slurm
            return lambda plan, tell: run_by_slurm(plan, slurm, storage, home, tell)
        case _:
            assert_never(launcher)


def names_of(profile: ClusterProfile, launcher: Launcher) -> tuple[str, ...]:
    """The nodes that a launcher beside Kubernetes reaches, by name.

    Raises:
        Unavailable: Slurm does not answer.
    """
    match launcher:
        case "ansible":
            return tuple(profile.bare_metal.hosts) if profile.bare_metal is not None else ()
        case "slurm":
            from tasks.slurm.probe import node_names  # noqa: PLC0415 - as above

            return node_names(profile.slurm) if profile.slurm is not None else ()
        case "kubernetes":
            return ()
        case _:
            assert_never(launcher)
