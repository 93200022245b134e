from __future__ import annotations

from typing import Any

import pytest

from profiles.errors import ProfileError
from profiles.loading import load
from profiles.run import RunProfile
from tests.support.cases.rows import rows

Value = str | int | float | bool | None | tuple[str, ...]


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        here: Any = value
        value = here[int(step)] if step.isdigit() else here[step] if isinstance(value, dict) else getattr(here, step)
    return value


@rows("profiles/overrides")
def test_an_override_changes_one_field_by_its_type(override: str, path: str, expected: Value) -> None:
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


@rows("profiles/overrides")
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
