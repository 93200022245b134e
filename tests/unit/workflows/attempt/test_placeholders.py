"""Folders and placeholders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import ProfileError
from profiles.run import CheckpointPolicy, DataPolicy
from tests.support.builders.attempt_plans import a_cluster, a_plan, a_run
from tests.support.cases.rows import rows
from workflows.attempt import placeholders


@rows("workflows/attempt/placeholders")
def test_the_longest_mount_that_holds_a_path_is_taken(path: str, written: str) -> None:
    assert placeholders.in_pod(a_cluster(), path) == written


def test_known_values_are_those_of_the_run() -> None:
    run = a_run(
        seed=7,
        data=DataPolicy(path="/shared/data/c4"),
        checkpoint=CheckpointPolicy(directory="/shared/data/ckpt/{run}", interval_steps=20),
    )
    assert placeholders.values(a_plan(run, attempt=3)) == {
        "run": "demo-1",
        "attempt": "3",
        "run_dir": "$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1",
        "checkpoint_dir": "$(PRIMUS_FOLDER_STORAGE_1)/ckpt/demo-1",
        "data": "$(PRIMUS_FOLDER_STORAGE_1)/c4",
        "steps": "300",
        "seed": "7",
        "interval_steps": "20",
    }


BRACED = st.lists(st.sampled_from(["{steps}", "{seed}", "{x}", "{", "}", "{}", "{Steps}", "{a b}"]) | st.text()).map(
    "".join
)


@given(BRACED)
def test_text_without_known_placeholders_is_left_as_it_is(text: str) -> None:
    assert placeholders.fill(text, {}) == text
    assert placeholders.fill(text, {"steps": "7"}) == text.replace("{steps}", "7")


@given(st.sampled_from(placeholders.LEFT_TO_LAUNCHER))
def test_what_only_the_launcher_knows_is_left_to_it(name: str) -> None:
    assert placeholders.fill(f"--x={{{name}}}", placeholders.values(a_plan())) == f"--x={{{name}}}"


def test_a_value_is_not_filled_again() -> None:
    assert placeholders.fill("{a}", {"a": "{b}", "b": "c"}) == "{b}"


def test_tags_of_the_engine_are_refused_by_their_place() -> None:
    with pytest.raises(ProfileError) as error:
        placeholders.fill_all(["fine", "{{workflow.name}}"], {}, "roles[0].command")
    assert error.value.field == "roles[0].command[1]"
