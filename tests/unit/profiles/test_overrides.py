from __future__ import annotations

from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.loading import load
from profiles.run import RunProfile


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value[int(step)] if step.isdigit() else value[step] if isinstance(value, dict) else getattr(value, step)
    return value


@pytest.mark.parametrize(
    ("override", "path", "expected"),
    [
        ("steps=100", "steps", 100),
        ("roles[0].replicas=4", "roles.0.replicas", 4),
        ("roles.trainer.replicas=4", "roles.0.replicas", 4),
        ("roles.trainer.forkable=false", "roles.0.forkable", False),
        ("roles.trainer.environment.OMP_NUM_THREADS=8", "roles.0.environment.OMP_NUM_THREADS", "8"),
        ("roles.trainer.environment.NEW=true", "roles.0.environment.NEW", "true"),
        ('roles.trainer.environment["NEW"]=null', "roles.0.environment.NEW", "null"),
        ("roles.trainer.command[1]=other.py", "roles.0.command.1", "other.py"),
        ("roles.trainer.command=[python3, train.py, 5]", "roles.0.command", ("python3", "train.py", "5")),
        ("roles.trainer.resources.gpus=8", "roles.0.resources.gpus", 8),
        ("roles.trainer.resources.cpu=2", "roles.0.resources.cpu", "2"),
        ("roles.trainer.resources.cpu=null", "roles.0.resources.cpu", None),
        ("roles.trainer.resources.gpus=null", "roles.0.resources.gpus", None),
        ("hardware=[h200, mi300x]", "hardware", ("h200", "mi300x")),
        ("description=a: b # c = d", "description", "a: b # c = d"),
        ("description=", "description", ""),
        ("budget.gpu_hours=1e3", "budget.gpu_hours", 1000.0),
        ("budget.gpu_hours=5", "budget.gpu_hours", 5.0),
        ("recovery.mode=ask", "recovery.mode", "ask"),
        ("recovery=patient", "recovery.name", "patient"),
        ("recovery.restarts.tokens=2", "recovery.restarts.tokens", 2),
        ("recovery.ask_before=[new-attempt, repair]", "recovery.ask_before", ("new-attempt", "repair")),
        ("by_hardware.h200.image=nvidia", "by_hardware.h200.image", "nvidia"),
        ("by_hardware.h200.resources.gpus=4", "by_hardware.h200.resources.gpus", 4),
        ("checkpoint={interval_steps: 5}", "checkpoint.interval_steps", 5),
        ("topology.required=true", "topology.required", True),
    ],
)
def test_an_override_changes_one_field_by_its_type(override: str, path: str, expected: Any) -> None:
    assert _at(load.load_run("demo", [override]), path) == expected


def test_overrides_apply_in_their_order_and_leave_the_rest_alone() -> None:
    run = load.load_run("demo", ["recovery=patient", "recovery.max_attempts=7", "steps=1", "steps=2"])
    assert (run.steps, run.recovery.max_attempts) == (2, 7)
    assert run.recovery.model_copy(update={"max_attempts": 400}) == load.load_recovery("patient")
    untouched = {"steps", "recovery"}
    assert run.model_dump(exclude=untouched) == load.load_run("demo").model_dump(exclude=untouched)


def test_a_cluster_takes_overrides_of_keys_with_dots() -> None:
    cluster = load.load_cluster("local", ['pools.cpu.labels["example.org/kind"]=big', "pools[0].nodes=9"])
    assert cluster.pools[0].labels == {"example.org/kind": "big"}
    assert cluster.pools[0].nodes == 9


@pytest.mark.parametrize(
    ("override", "field", "words"),
    [
        ("step=100", "step", 'did you mean "steps"'),
        ("roles[0].replica=4", "roles[0].replica", 'did you mean "replicas"'),
        ("roles.trianer.replicas=4", "roles.trianer", 'did you mean "trainer"'),
        ("roles[3].replicas=4", "roles[3]", "the list has 1"),
        ("roles.trainer.resource.gpus=1", "roles[0].resource", 'did you mean "resources"'),
        ("recovery.hang.init_second=1", "recovery.hang.init_second", 'did you mean "init_seconds"'),
        ("recovery=patiant", "recovery", 'did you mean "patient"'),
        ("steps.more=1", "steps.more", "steps has no fields inside"),
        ("steps", "steps", "field=value"),
        ("=5", "--set", "field=value"),
        ("..steps=5", "..steps", "is no path"),
        ("roles[x].replicas=5", "roles[x].replicas", "is no path"),
        ("steps=many", "steps", "a whole number"),
        ("steps=1.5", "steps", "a whole number"),
        ("steps=true", "steps", "a whole number"),
        ("steps=", "steps", "a whole number"),
        ("steps=-1", "steps", "at least 0"),
        ("steps=[1", "steps", "not valid YAML"),
        ("roles.trainer.replicas=0", "roles[0].replicas", "at least 1"),
        ("roles.trainer.forkable=yes", "roles[0].forkable", "true or false"),
        ("roles.trainer.command=python3", "roles[0].command", "a list"),
        ("hardware=h200", "hardware", "a list"),
        ("hardware=[]", "hardware", "at least 1"),
        ("recovery.mode=acts", "recovery.mode", 'did you mean "act"'),
        ("progress.framework=megatrn", "progress.framework", 'did you mean "megatron"'),
        ("progress.framework=regex", "progress.pattern", "framework is `regex`"),
        ("roles.trainer.resources.memory=5 GB", "roles[0].resources.memory", "16Gi"),
        ("name=No Good", "name", "lower-case"),
        ("extends=demo", "extends", "no such field"),
        ("budget.gpu_hours=.nan", "budget.gpu_hours", "finite"),
        ("roles.trainer.environment.1X=a", "roles[0].environment.1X", "not starting with a digit"),
    ],
)
def test_a_wrong_override_names_the_field_and_what_to_do(override: str, field: str, words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load.load_run("demo", [override])
    assert caught.value.field == field
    assert words in caught.value.reason
    assert override in caught.value.source


def test_a_later_override_may_repair_what_an_earlier_one_left_incomplete_only_as_one_value() -> None:
    run = load.load_run("demo", [r"progress={framework: regex, pattern: 'it (?P<step>\d+)'}"])
    assert isinstance(run, RunProfile)
    assert run.progress.pattern == r"it (?P<step>\d+)"
