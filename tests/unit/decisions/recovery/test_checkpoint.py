"""Which checkpoints may be taken, and the proof of a resume."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.recovery.resume_rule import (
    CheckpointRule,
    fall_back_past,
    lineage,
    prove_resume,
    resume_proof,
    roll_back_before_nan,
    tighter,
)
from profiles.loading.load import load_run
from profiles.run import CheckpointPolicy
from profiles.vocabulary import VerdictWord
from tests.support.cases.rows import rows
from workflows.model.records import AttemptRecord


@rows("recovery/checkpoint")
def test_roll_back(
    sentence: str, steps: list[int], nan: int | None, back: int, earlier: tuple[int, ...], expected: int
) -> None:
    rule = roll_back_before_nan(steps, nan, back, earlier)
    assert (rule.max_step, rule.exhausted) == (expected, False), sentence


@pytest.mark.parametrize(("steps", "earlier"), [([40, 50], ()), ([10], (10,)), ([], (10,))])
def test_a_roll_back_that_is_not_possible_says_so(steps: list[int], earlier: tuple[int, ...]) -> None:
    assert roll_back_before_nan(steps, 35, 1, earlier).exhausted


@settings(deadline=None)
@given(st.lists(st.integers(1, 99)), st.none() | st.integers(0, 120), st.integers(1, 4), st.lists(st.integers(0, 99)))
def test_a_roll_back_never_goes_forward(steps: list[int], nan: int | None, back: int, earlier: list[int]) -> None:
    rule = roll_back_before_nan(steps, nan, back, earlier)
    if rule.exhausted:
        assert rule.max_step is None
        return
    assert rule.max_step is not None
    assert rule.max_step in {*steps, 0}
    assert all(rule.max_step < limit for limit in earlier)
    assert nan is None or rule.max_step < max(nan, 1)


def test_past_a_bad_checkpoint_the_next_older_one_is_taken() -> None:
    saved = ((10, "/c/10"), (20, "/c/20"), (30, "/c/30"))
    rule = fall_back_past(saved, "/c/30", 30)
    assert (rule.max_step, rule.exclude, rule.exhausted) == (20, ("/c/30",), False)
    assert fall_back_past(saved[:1], "/c/10", 10).exhausted


def attempt(number: int, **facts: object) -> AttemptRecord:
    return AttemptRecord("demo", number, 0.0, "", **facts)  # type: ignore[arg-type]


PATHS = ((40, "/c/40"), (60, "/c/60"))

LINEAGES: dict[str, tuple[list[AttemptRecord], int | None, tuple[str, ...]]] = {
    "without a roll-back everything is allowed": ([attempt(1, last_step=50), attempt(2, last_step=70)], None, ()),
    "after a roll-back nothing newer than it": ([attempt(1, last_step=90), attempt(2, max_resume_step=40)], 40, ()),
    "what was trained since is allowed, the rest of the old lineage is not": (
        [attempt(1, last_step=90), attempt(2, max_resume_step=40, last_step=55), attempt(3, max_resume_step=55)],
        55,
        (),
    ),
    "a second roll-back counts from itself": (
        [attempt(1, max_resume_step=40, last_step=80), attempt(2, max_resume_step=30)],
        30,
        (),
    ),
    "a bad checkpoint stays out": ([attempt(1, excluded_checkpoints=("/c/60",))], None, ("/c/60",)),
    "until it was written anew": (
        [attempt(1, excluded_checkpoints=("/c/60",), resumed_from_step=40, last_step=65)],
        None,
        (),
    ),
    "one that was not reached stays out": (
        [attempt(1, excluded_checkpoints=("/c/60",), resumed_from_step=40, last_step=50)],
        None,
        ("/c/60",),
    ),
    "one whose step nobody knows stays out": ([attempt(1, excluded_checkpoints=("/x",), last_step=99)], None, ("/x",)),
}


@pytest.mark.parametrize("sentence", LINEAGES)
def test_lineage(sentence: str) -> None:
    attempts, limit, excluded = LINEAGES[sentence]
    rule = lineage(attempts, PATHS)
    assert (rule.max_step, rule.exclude) == (limit, excluded)


def test_two_rules_at_once_are_the_tighter_of_both() -> None:
    both = tighter(CheckpointRule(30, ("a",), why="first"), CheckpointRule(20, ("b",)))
    assert both == CheckpointRule(20, ("a", "b"), False, "first")
    assert tighter(CheckpointRule(), CheckpointRule(7)).max_step == 7


@rows("recovery/checkpoint")
def test_proof_of_resume(resumed: int | None, first: int | None, policy: str, verdict: VerdictWord | None) -> None:
    found, why = prove_resume(resumed, first, CheckpointPolicy(first_step_after_resume=policy))  # type: ignore[arg-type]
    assert found is verdict
    assert why


@pytest.mark.parametrize(
    ("resumed", "first", "proof"),
    [(20, 21, VerdictWord.PASS), (20, 1, VerdictWord.FAIL), (20, None, None), (None, 1, None)],
)
@pytest.mark.parametrize("outcome", [None, "succeeded", "node_lost", "stopped"])
def test_every_resume_has_its_proof_however_it_ended(
    resumed: int | None, first: int | None, proof: VerdictWord | None, outcome: str | None
) -> None:
    attempt = AttemptRecord("r", 2, 1.0, "w", resumed_from_step=resumed, first_step=first, outcome=outcome)
    assert resume_proof(attempt, load_run("demo")) is proof
