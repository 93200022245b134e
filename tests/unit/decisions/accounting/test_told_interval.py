"""How often an attempt is told to save: what was measured, where the profile allows it, near what a person chose."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.accounting.advice import LARGEST_CHANGE, interval_for_next_attempt
from profiles.errors import ProfileError
from profiles.loading.load import run_from_mapping
from profiles.run import CheckpointPolicy
from tasks.observe.objects import gang_news
from tasks.runs.submit import plan_of
from tests.support.builders.attempt_plans import a_plan, a_run
from tests.support.builders.ledgers import an_attempt
from tests.support.cases.rows import rows
from workflows.attempt import commands, placeholders
from workflows.model.gang_status import alike
from workflows.status import read_status

ALLOWED = CheckpointPolicy(interval_steps=20, follow_advice=True)


@pytest.mark.parametrize(
    ("advised", "told"),
    [((), None), ((None,), None), ((40,), 40), ((40, None), 40), ((40, 50), 50), ((20,), None), ((99,), 80), ((1,), 5)],
    ids=["first", "nothing measured", "advised", "not measured since", "newest", "as it is", "too rare", "too often"],
)  # fmt: skip
def test_the_newest_advice_counts_near_what_the_profile_says(advised: tuple[int | None, ...], told: int | None) -> None:
    attempts = [replace(an_attempt(number + 1), advised_steps=steps) for number, steps in enumerate(advised)]
    assert interval_for_next_attempt(ALLOWED, attempts) == told
    assert interval_for_next_attempt(CheckpointPolicy(interval_steps=20), attempts) is None, "not allowed"


@given(st.integers(1, 10_000), st.integers(1, 1_000_000))
def test_never_further_from_the_profile_than_the_largest_change(profile: int, advised: int) -> None:
    policy = CheckpointPolicy(interval_steps=profile, follow_advice=True)
    told = interval_for_next_attempt(policy, [replace(an_attempt(), advised_steps=advised)])
    steps = profile if told is None else told
    assert steps >= 1
    assert profile / LARGEST_CHANGE <= steps <= profile * LARGEST_CHANGE


@pytest.mark.parametrize(
    ("command", "checkpoint", "says"),
    [
        ("train {interval_steps}", {"follow_advice": True}, "interval to begin with"),
        ("train", {"follow_advice": True, "interval_steps": 5}, "needs {interval_steps} in a command"),
    ],
    ids=["no interval to begin with", "a program that is not told"],
)
def test_advice_that_nobody_hears_is_refused(command: str, checkpoint: dict[str, Any], says: str) -> None:
    role = {"name": "trainer", "replicas": 1, "image": "example.org/trainer:1", "command": command.split()}
    with pytest.raises(ProfileError) as caught:
        run_from_mapping({"name": "demo", "hardware": ["cpu"], "roles": [role], "checkpoint": checkpoint})
    assert caught.value.field == "checkpoint.follow_advice"
    assert says in caught.value.reason


def test_an_attempt_is_told_its_own_interval_and_its_coordinator_the_failures() -> None:
    run = a_run(checkpoint=CheckpointPolicy(interval_steps=20))
    resolved = a_plan(run).resolved
    planned = replace(an_attempt(), interval_steps=35, mttf_seconds=7200.0)
    plan = plan_of(resolved, planned, 1)
    assert placeholders.values(plan)["interval_steps"] == "35"
    assert "--mttf-seconds=7200.0" in commands.coordinate(plan)
    plain = plan_of(resolved, an_attempt(), 1)
    assert placeholders.values(plain)["interval_steps"] == "20"
    assert not any("mttf" in word for word in commands.coordinate(plain))


@rows("accounting/told_interval")
def test_advice_is_read_tolerantly(saves: object, steps: int | None) -> None:
    status = read_status(json.dumps({"saves": saves}).encode())
    assert status is not None
    assert gang_news(status).advised_steps == steps


def test_an_advice_that_wavers_is_the_same() -> None:
    assert alike(100, 90)
    assert not alike(100, 70)
    assert not alike(70, 100)
    assert not alike(100, None)
