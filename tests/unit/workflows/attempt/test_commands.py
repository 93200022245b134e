"""Builders and programs agree: on flags, and on the files that steps read their outputs from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.recovery import HangLimits, RecoveryProfile, StragglerLimits
from profiles.resolve import Resolved
from profiles.run import CheckpointPolicy, ProgressSource
from tests.support.builders.attempt_plans import TRAINER, a_gpu_plan, a_plan, a_run
from workflows.attempt import commands
from workflows.attempt.examination import examination_workflow, post_flight_workflow
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.training import manifests
from workflows.programs import collect
from workflows.programs.checkpoints import choose
from workflows.programs.coordinator import main
from workflows.programs.launcher import options as launcher_options
from workflows.programs.main import PROGRAMS
from workflows.programs.probes import gate
from workflows.programs.runtime import copy, flags

PARSERS: dict[str, Callable[[list[str]], Any]] = {
    "collect": collect.parse,
    "coordinate": main.parse,
    "copy": copy.parse,
    "gate": gate.parse,
    "launch": launcher_options.parse,
    "verify": choose.parse,
}


def sent(plan: AttemptPlan) -> list[list[str]]:
    """Every command line of ours, from the program's name on."""
    lines = [commands.copy(), commands.coordinate(plan), commands.gate(plan), commands.examine(plan, 1800000000.125)]
    lines += [commands.verify(plan), commands.collect(plan)]
    launched = [commands.launch(plan, role)[3:] for role in plan.resolved.run.roles]
    return [line[1:] for line in [*lines, *launched]]


RIGHT = replace(a_plan(), restarts_in_place=2)


@pytest.mark.parametrize("plan", [a_plan(), a_gpu_plan(), RIGHT], ids=["cpu", "gpu", "in place"])
def test_every_program_reads_its_command_line(plan: AttemptPlan) -> None:
    for name, *argv in sent(plan):
        assert name in PROGRAMS
        assert PARSERS[name](argv).argv() == argv


def test_the_launcher_is_told_the_profile() -> None:
    run = a_run(
        roles=(TRAINER.model_copy(update={"processes_per_node": 4, "working_directory": "/shared/data/w"}),),
        progress=ProgressSource(framework="regex", pattern=r"step (?P<step>\d+)", first_counter=0),
        checkpoint=CheckpointPolicy(
            format="pattern", pattern=r"ck-(?P<step>\d+)\.pt", keep=5, resume_argument=("--load", "{resume_from}")
        ),
        save_grace_seconds=12.5,
    )
    plan = a_plan(run)
    options = launcher_options.parse(commands.launch(plan, plan.role)[5:])
    assert (options.role, options.pods, options.processes_per_node, options.world_size) == ("trainer", 2, 4, 8)
    assert (options.framework, options.pattern, options.first_counter) == ("regex", r"step (?P<step>\d+)", 0)
    assert (options.checkpoint_format, options.checkpoint_pattern, options.keep) == (
        "pattern",
        r"ck-(?P<step>\d+)\.pt",
        5,
    )
    assert options.resume_argument == ("--load", "{resume_from}")
    assert options.save_grace_seconds == 12.5
    assert options.working_directory == "$(PRIMUS_FOLDER_STORAGE_1)/w"
    assert options.decides


def test_the_launcher_is_told_how_its_program_is_asked_to_save() -> None:
    policy = CheckpointPolicy(save_signal="USR1", save_file="{run_dir}/save/{run}")
    plan = a_plan(a_run(checkpoint=policy))
    options = launcher_options.parse(
        [word.replace("$(PRIMUS_FOLDER_STORAGE_0)", "/shared") for word in commands.launch(plan, plan.role)[5:]]
    )
    assert options.save_signal == "USR1"
    assert options.save_file == f"/shared/runs/{plan.run}/save/{plan.run}"
    quiet = commands.launch(a_plan(), a_plan().role)
    assert not any(word.startswith("--save-signal") or word.startswith("--save-file") for word in quiet)


def test_a_file_that_the_engine_would_rewrite_is_refused() -> None:
    plan = a_plan(a_run(checkpoint=CheckpointPolicy(save_file="/shared/{{run}}")))
    with pytest.raises(ProfileError, match="must not contain") as caught:
        commands.launch(plan, plan.role)
    assert caught.value.field == "checkpoint.save_file"


def test_a_helping_role_does_not_decide() -> None:
    plan = a_gpu_plan()
    feeder = plan.resolved.run.roles[1]
    assert not launcher_options.parse(commands.launch(plan, feeder)[5:]).decides


def test_the_check_is_told_the_roll_back() -> None:
    plan = a_plan(max_resume_step=40, excluded_checkpoints=("/shared/a",), deep_verify=True)
    options = choose.parse(commands.verify(plan)[2:])
    assert (options.max_step, options.excluded, options.deep) == (40, ("/shared/a",), True)


@pytest.mark.parametrize(
    ("command", "resume_argument", "itself"),
    [
        (("train",), (), True),
        (("train",), ("--resume", "{resume_from}"), False),
        (("train",), ("--load={resume_dir}",), False),
        (("train", "--begin={resume_step+1}"), (), False),
        (("train", "--rounds={steps_left}"), ("--init_from=resume",), True),
        (("train", "--load={checkpoint_dir}"), (), True),
    ],
)
def test_a_program_that_is_not_told_which_checkpoint_to_open_chooses_itself(
    command: tuple[str, ...], resume_argument: tuple[str, ...], itself: bool
) -> None:
    role = TRAINER.model_copy(update={"command": command})
    plan = a_plan(a_run(roles=(role,), checkpoint=CheckpointPolicy(resume_argument=resume_argument)))
    assert choose.parse(commands.verify(plan)[2:]).chooses_itself is itself


def read_by_steps(template: str) -> set[str]:
    """Names of the files that the template's output parameters are read from."""
    plan = a_plan()
    built = [*manifests(plan), post_flight_workflow(plan).to_dict()]
    built.append(examination_workflow(plan, ["node-0"], 1).to_dict())
    (found,) = [item for one in built for item in one["spec"]["templates"] if item["name"] == template]
    return {Path(item["valueFrom"]["path"]).name for item in found["outputs"]["parameters"]}


def test_the_post_flight_writes_every_file_that_its_step_reads(tmp_path: Path) -> None:
    run, out = tmp_path / "runs" / "r", tmp_path / "out"
    run.mkdir(parents=True)
    assert collect.main(flags.to_argv(collect.Options(str(run), 1, out_dir=str(out)))) == 0
    assert {file.name for file in out.iterdir()} >= read_by_steps("collect")


def test_the_check_writes_every_file_that_its_step_reads(tmp_path: Path) -> None:
    run, out = tmp_path / "runs" / "r", tmp_path / "out"
    run.mkdir(parents=True)
    options = choose.Options(directory=str(run / "checkpoints"), run_dir=str(run), out_dir=str(out))
    assert choose.main(options.argv()) == 0
    assert {file.name for file in out.iterdir()} >= read_by_steps("verify")
    assert (out / "verdict").read_text().strip() == "pass"


def test_a_gate_that_does_not_pass_ends_with_an_error_and_still_reports(tmp_path: Path) -> None:
    """Its step must fail: that is what keeps the JobSet from being applied."""
    run, out = tmp_path / "runs" / "r", tmp_path / "out"
    run.mkdir(parents=True)
    options = gate.Options(run_dir=str(run), minimum_memory_bytes=1 << 60, out_dir=str(out))
    assert gate.main(options.argv()) != 0
    assert {file.name for file in out.iterdir()} >= read_by_steps("gate")
    assert (out / "verdict").read_text().strip() == "fail"


def test_a_gate_that_passes_ends_well(tmp_path: Path) -> None:
    run, out = tmp_path / "runs" / "r", tmp_path / "out"
    run.mkdir(parents=True)
    options = gate.Options(run_dir=str(run), minimum_disk_bytes=1, minimum_memory_bytes=1, out_dir=str(out))
    assert gate.main(options.argv()) == 0
    assert (out / "verdict").read_text().strip() == "pass"


def test_the_right_to_restart_in_place_reaches_those_who_use_it() -> None:
    for plan, forkable in ((RIGHT, True), (replace(RIGHT, resolved=_unforkable(RIGHT)), False)):
        role = plan.role
        told = launcher_options.parse(commands.launch(plan, role)[5:])
        assert (told.in_place, told.forkable) == (True, forkable)
        assert told.preload == (role.preload if forkable else ())
        assert main.parse(commands.coordinate(plan)[2:]).restarts == 2
    told = launcher_options.parse(commands.launch(a_plan(), a_plan().role)[5:])
    assert (told.in_place, told.preload) == (False, ())
    assert main.parse(commands.coordinate(a_plan())[2:]).restarts == 0


def _unforkable(plan: AttemptPlan) -> Resolved:
    run = plan.resolved.run
    roles = tuple(role.model_copy(update={"forkable": False, "preload": ("numpy",)}) for role in run.roles)
    return plan.resolved.model_copy(update={"run": run.model_copy(update={"roles": roles})})


def test_the_coordinator_is_told_the_limits_of_the_profile() -> None:
    limits = RecoveryProfile(
        hang=HangLimits(init_seconds=7.0, step_floor_seconds=8.0, step_factor=9.0, checkpoint_seconds=10.0),
        straggler=StragglerLimits(ratio=1.5, robust_z=4.0, windows=3),
    )
    steps = ProgressSource(framework="primus-demo")
    told = main.parse(commands.coordinate(a_plan(a_run(recovery=limits, progress=steps)))[2:])
    assert (told.hang_init_seconds, told.hang_step_floor_seconds, told.hang_step_factor) == (7.0, 8.0, 9.0)
    assert told.hang_checkpoint_seconds == 10.0
    assert (told.straggler_ratio, told.straggler_robust_z, told.straggler_windows) == (1.5, 4.0, 3)
    silent = a_run(recovery=limits, progress=ProgressSource(framework="none"))
    assert main.parse(commands.coordinate(a_plan(silent))[2:]).hang_init_seconds == 0.0, "it tells no steps"
