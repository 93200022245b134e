"""The trial of a run: what of it is the run's, what is its own, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from profiles.errors import ProfileError
from profiles.resolve import Resolved, digest
from profiles.run import CheckpointPolicy, ProgressSource, TrialPolicy
from tests.support.builders.attempt_plans import TRAINER, a_plan, a_run
from tests.support.cases.rows import rows
from workflows import labels
from workflows.attempt.jobset import KEEP_SECONDS, jobset
from workflows.attempt.placeholders import checkpoint_dir
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.pods import tolerations
from workflows.attempt.trial import gang_key, lasts_seconds, steps_of, trial_key, tried

TELLS = ProgressSource(framework="primus-demo")


@rows("workflows/attempt/trial")
def test_steps_that_must_be_seen(steps: int, skip: int, every: int, planned: int, expected: int) -> None:
    progress = TELLS.model_copy(update={"every_steps": every})
    run = a_run(progress=progress, steps=planned, trial=TrialPolicy(steps=steps, skip_steps=skip))
    assert steps_of(run) == expected


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"progress": ProgressSource()}, "progress.framework"),
        ({"progress": TELLS, "steps": 5}, "trial.skip_steps"),
        ({"progress": TELLS, "checkpoint": CheckpointPolicy(directory="/out")}, "roles[0].command"),
    ],
)
def test_what_cannot_be_tried_is_refused(changes: dict[str, Any], field: str) -> None:
    role = TRAINER.model_copy(update={"command": ("train", "--out=/out/model")})
    with pytest.raises(ProfileError) as caught:
        tried(a_plan(a_run(roles=(role,), **changes)).resolved, "for-me")
    assert caught.value.field == field


def test_a_rate_needs_steps_after_those_that_do_not_count() -> None:
    with pytest.raises(ValidationError, match="skip_steps"):
        TrialPolicy(steps=5, skip_steps=5)


def test_only_the_folder_of_checkpoints_and_what_keeps_its_pods_away_are_its_own() -> None:
    run = a_run(progress=TELLS, checkpoint=CheckpointPolicy(directory="/shared/models/{run}"))
    plain = a_plan(run).resolved
    found = tried(plain, "for-trial-0123abcd")
    assert (found.run.checkpoint.directory, plain.run.checkpoint.directory) == (
        "{run_dir}/checkpoints",
        "/shared/models/{run}",
    )
    same = {"run": found.run.model_copy(update={"checkpoint": run.checkpoint}), "pool": plain.pool}
    assert found.model_copy(update=same) == plain
    assert checkpoint_dir(_of(found)).endswith("/runs/trial-0123abcd-7/checkpoints")
    held = {"key": labels.HOLD_TAINT, "operator": "Equal", "value": "for-trial-0123abcd", "effect": "NoSchedule"}
    pods = [job["template"]["spec"]["template"]["spec"] for job in _jobs(jobset(_of(found)))]
    assert all(held in pod["tolerations"] for pod in pods)
    assert held in tolerations(found.pool)


@pytest.mark.parametrize("text", ["--data=/outside", "--data=/out-2", "--data=/data/outer"])
def test_another_folder_may_be_named(text: str) -> None:
    role = TRAINER.model_copy(update={"command": ("train", text)})
    run = a_run(roles=(role,), progress=TELLS, checkpoint=CheckpointPolicy(directory="/out"))
    assert tried(a_plan(run).resolved, "me").run.checkpoint.directory == "{run_dir}/checkpoints"


def _of(found: Resolved) -> AttemptPlan:
    name = labels.trial_name("0123abcd", 7)
    return AttemptPlan(found, name, 1, ("node-0", "node-1"), lasts_seconds=lasts_seconds(found.run))


def _jobs(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return manifest["spec"]["replicatedJobs"]


def test_the_cluster_ends_it_by_itself() -> None:
    run = a_run(progress=TELLS, trial=TrialPolicy(deadline_seconds=300.0))
    made = jobset(_of(tried(a_plan(run).resolved, "me")))
    assert [job["template"]["spec"]["activeDeadlineSeconds"] for job in _jobs(made)] == [420, 420]
    assert made["spec"]["ttlSecondsAfterFinished"] == 420
    plain = jobset(a_plan(run))
    assert plain["spec"]["ttlSecondsAfterFinished"] == KEEP_SECONDS
    assert not any("activeDeadlineSeconds" in job["template"]["spec"] for job in _jobs(plain))


def test_the_same_test_has_the_same_key_and_a_name_that_only_trials_have() -> None:
    resolved = a_plan(a_run(progress=TELLS)).resolved
    other = a_plan(a_run(progress=TELLS, trial=TrialPolicy(steps=9))).resolved
    assert trial_key(resolved, {"a": "p", "b": "p"}) == trial_key(resolved, {"a": "p", "b": "p"})
    assert trial_key(resolved, {"a": "p", "b": "p"}) != trial_key(resolved, {"b": "p", "a": "p"})
    assert trial_key(resolved, {"a": "p"}) != trial_key(other, {"a": "p"})
    assert trial_key(resolved, {"a": "p"}, "one") != trial_key(resolved, {"a": "p"}, "two")
    assert gang_key(("a", "b")) != gang_key(("ab",))
    name = labels.trial_name(trial_key(resolved, {"a": "p"}), 12345)
    assert len(name) <= 30
    assert labels.is_trial(name)
    assert not any(map(labels.is_trial, ("trial-1", "trial", "demo-1", "trial-0123abcd-x", "trial-short-1")))


def test_how_a_run_is_tried_does_not_make_it_another_run() -> None:
    resolved = a_plan(a_run(progress=TELLS)).resolved
    other = a_plan(a_run(progress=TELLS, trial=TrialPolicy(steps=9))).resolved
    assert digest(resolved) == digest(other)
