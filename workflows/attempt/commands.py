"""The command lines of our programs inside pods, one function a program."""

from __future__ import annotations

import math
from dataclasses import replace

from profiles.run import CheckpointPolicy, Role, RunProfile
from workflows import labels
from workflows.attempt import placeholders
from workflows.attempt.plan import AttemptPlan
from workflows.programs import collect as programs_collect
from workflows.programs.checkpoints import choose
from workflows.programs.checkpoints.kept_copies import NO_LIMIT
from workflows.programs.coordinator import main, state
from workflows.programs.coordinator.scopes import RoleShape
from workflows.programs.launcher import options as launcher_options
from workflows.programs.probes import gate as probes_gate
from workflows.programs.runtime import copy as runtime_copy

PROGRAMS = "primus-programs"
"""Entry of the programs image."""
PROGRAMS_VOLUME = "programs"
OUTPUTS_VOLUME = "outputs"
KERNEL_LOGS = "kernel"
"""Folder of the run's folder: on the embedded cluster, `<node>.log` there is what the node's kernel said."""


def copy() -> list[str]:
    """Brings the program archive into a pod with any image."""
    return [PROGRAMS, "copy", *runtime_copy.Options(to=_folder(PROGRAMS_VOLUME)).argv()]


def launch(plan: AttemptPlan, role: Role) -> list[str]:
    """Starts the ranks of one pod of `role`, with the image's own Python.

    `-I -S`: neither the image's environment nor its site packages can break or slow down the launcher.

    Raises:
        ProfileError: the command or the resume argument holds `{{`.
    """
    run, known = plan.resolved.run, placeholders.values(plan)
    command = placeholders.fill_all(role.command, known, f"roles[{run.roles.index(role)}].command")
    progress, checkpoint = run.progress, run.checkpoint
    options = launcher_options.Options(
        role=role.name,
        pods=role.replicas,
        processes_per_node=role.processes_per_node,
        world_size=role.replicas * role.processes_per_node,
        decides=role.name == plan.role.name,
        replica_groups=role.replica_groups,
        torchrun_variables=role.torchrun_variables,
        working_directory=_working_directory(plan, role),
        framework=progress.framework,
        pattern=progress.pattern,
        progress_file=placeholders.fill(progress.file, known),
        first_counter=progress.first_counter,
        counter_restarts=checkpoint.counter_restarts,
        steps=run.steps,
        resume_argument=placeholders.fill_all(checkpoint.resume_argument, known, "checkpoint.resume_argument"),
        save_grace_seconds=run.save_grace_seconds,
        save_signal=checkpoint.save_signal,
        save_file=placeholders.save_file(plan),
        checkpoint_format=checkpoint.format,
        checkpoint_pattern=checkpoint.pattern,
        secret_environment=",".join(item.name for item in role.secret_environment),
        command=command,
    )
    options = _keeping(options, checkpoint)
    if plan.restarts_in_place and (role.name == plan.role.name or role in essential(plan)):
        options = replace(options, in_place=True, forkable=role.forkable, preload=role.preload if role.forkable else ())
    return ["python3", "-I", "-S", f"{_folder(PROGRAMS_VOLUME)}/{runtime_copy.NAME}", "launch", *options.argv()]


def _keeping(options: launcher_options.Options, checkpoint: CheckpointPolicy) -> launcher_options.Options:
    return replace(
        options,
        keep=checkpoint.keep,
        keep_overwritten=checkpoint.keep_overwritten,
        remove_surplus=checkpoint.remove_surplus == "while_running",
        keep_every_steps=checkpoint.keep_every_steps,
    )


def _working_directory(plan: AttemptPlan, role: Role) -> str:
    folder = placeholders.fill(role.working_directory or "{run_dir}/work", placeholders.values(plan))
    return placeholders.in_pod(plan.resolved.cluster, folder)


def essential(plan: AttemptPlan) -> tuple[Role, ...]:
    """Roles without which the attempt fails, but for the deciding one."""
    return tuple(one for one in plan.resolved.run.roles if one is not plan.role and one.on_failure == "fail_attempt")


def coordinate(plan: AttemptPlan) -> list[str]:
    """The attempt's coordinator."""
    role, run = plan.role, plan.resolved.run
    hang, slow = run.recovery.hang, run.recovery.straggler
    others = essential(plan) if plan.restarts_in_place else ()
    tells_steps = run.progress.framework not in launcher_options.STEPLESS
    options = main.Options(
        role=role.name,
        pods=role.replicas,
        processes_per_node=role.processes_per_node,
        steps=run.steps,
        port=labels.COORDINATOR_PORT,
        restarts=plan.restarts_in_place,
        restart_window_seconds=run.recovery.in_place_window_seconds if plan.restarts_in_place else 0.0,
        scope=run.recovery.in_place_scope if others or role.replica_groups > 1 else state.ROLE,
        replica_groups=role.replica_groups,
        essential=tuple(str(RoleShape(one.name, one.replicas, one.processes_per_node)) for one in others),
        hang_init_seconds=hang.init_seconds if tells_steps else 0.0,
        hang_silence_seconds=0.0 if tells_steps else hang.init_seconds,
        hang_step_floor_seconds=hang.step_floor_seconds,
        hang_step_factor=hang.step_factor,
        hang_checkpoint_seconds=hang.checkpoint_seconds,
        straggler_ratio=slow.ratio,
        straggler_robust_z=slow.robust_z,
        straggler_windows=slow.windows,
        mttf_seconds=plan.mttf_seconds,
    )
    return [PROGRAMS, "coordinate", *options.argv()]


def gate(plan: AttemptPlan) -> list[str]:
    """The short gate on the node it runs on, with the GPUs that a rank's pod will get."""
    return [PROGRAMS, "gate", *_gate_options(plan, plan.resolved.gpus_per_pod).argv()]


def examine(plan: AttemptPlan, since: float) -> list[str]:
    """The gate on a suspect, whose GPUs may be in use: whatever can be seen without them, and the kernel's log.

    `since`: Unix seconds; what the kernel said before is left out.
    """
    stand_in = f"{placeholders.run_dir(plan)}/{KERNEL_LOGS}" if plan.resolved.cluster.engine == "embedded" else ""
    options = replace(_gate_options(plan, 0), examination=True, kernel_since=since, kernel_folder=stand_in)
    return [PROGRAMS, "gate", *options.argv()]


def _gate_options(plan: AttemptPlan, gpus: int) -> probes_gate.Options:
    resolved = plan.resolved
    return probes_gate.Options(
        run_dir=placeholders.run_dir(plan),
        expected_gpus=gpus,
        gpu_vendor=resolved.hardware.vendor if gpus else "",
        fake_gpus=resolved.cluster.engine == "embedded",
        out_dir=_folder(OUTPUTS_VOLUME),
    )


def verify(plan: AttemptPlan) -> list[str]:
    """Chooses the newest usable checkpoint where the storage is mounted, and proves it."""
    checkpoint = plan.resolved.run.checkpoint
    options = choose.Options(
        directory=placeholders.checkpoint_dir(plan),
        run_dir=placeholders.run_dir(plan),
        format=checkpoint.format,
        pattern=checkpoint.pattern,
        max_step=NO_LIMIT if plan.max_resume_step is None else plan.max_resume_step,
        excluded=plan.excluded_checkpoints,
        deep=plan.deep_verify,
        counter_restarts=checkpoint.counter_restarts,
        chooses_itself=chooses_itself(plan.resolved.run),
        out_dir=_folder(OUTPUTS_VOLUME),
    )
    return [PROGRAMS, "verify", *options.argv()]


def chooses_itself(run: RunProfile) -> bool:
    """Whether no command of the run is told which checkpoint to open: the program then looks for its newest one."""
    words = [*run.checkpoint.resume_argument, *(word for role in run.roles for word in role.command)]
    return not any(f"{{{name}" in word for word in words for name in launcher_options.TELL_THE_CHECKPOINT)


def collect(plan: AttemptPlan) -> list[str]:
    """Gathers what an attempt left in the run's folder."""
    options = programs_collect.Options(
        run_dir=placeholders.run_dir(plan), attempt=plan.attempt, out_dir=_folder(OUTPUTS_VOLUME)
    )
    return [PROGRAMS, "collect", *options.argv()]


def whole_seconds(seconds: float) -> int:
    """Kubernetes counts whole seconds; half a second more waits for one more."""
    return max(1, math.ceil(seconds))


def _folder(volume: str) -> str:
    return f"$({placeholders.folder_variable(volume)})"
