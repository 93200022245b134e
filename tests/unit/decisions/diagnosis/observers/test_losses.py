"""Losses, norms and loss scales over many steps: what recovers is healthy, what a log ends with counts."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.observers.losses import not_finite, underflow
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(text, "", 0, "", None, "train.log", number) for number, text in enumerate(texts, 1)]


def seen(*texts: str) -> list[tuple[str, float]]:
    return [(clue.rule, clue.weight) for clue in (*not_finite(lines(*texts)), *underflow(lines(*texts)))]


def trainer(loss: object, norm: object) -> str:
    return f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 1e-05, 'epoch': 0.1}}"


def megatron(iteration: int, rest: str) -> str:
    return f" iteration {iteration:8d}/  250000 | elapsed time per iteration (ms): 4247.9 | {rest} |"


GOOD, LOST, ZERO, NORM = trainer(2.3, 0.9), trainer("nan", "nan"), trainer(0.0, "nan"), trainer(2.3, "nan")


@rows("diagnosis/observers/losses")
def test_what_a_log_ends_with_counts(texts: tuple[str, ...], rule: str) -> None:
    assert [found for found, _ in seen(*texts)] == [rule]
    assert diagnose(evidence_of([("train.log", texts)])).fault_class is F.NUMERIC


LEVELS = {
    "up, down again and half way": (*[6.4, 6.45] * 40, *[11.4] * 6, *[7.1, 7.15] * 30),
    "to a new level": (*[2.3, 2.33] * 40, *[7.5, 7.4] * 20),
    "slowly": (*[2.3, 2.33] * 40, *(2.3 + number / 20 for number in range(80))),
}
"""Losses that leave the level they had reached, and stay away from it."""


@pytest.mark.parametrize("losses", LEVELS.values(), ids=LEVELS)
def test_a_loss_that_leaves_its_level_and_stays_away_has_diverged(losses: tuple[float, ...]) -> None:
    texts = [megatron(number, f"lm loss: {loss:.6E} | loss scale: 1.0") for number, loss in enumerate(losses, 1)]
    assert [rule for rule, _ in seen(*texts)] == ["loss-diverged"]
    assert diagnose(evidence_of([("train.log", texts)])).fault_class is F.NUMERIC


STAYING = {
    "a spike": (*[2.3, 2.33] * 40, *[7.5] * 6, *[2.3, 2.33] * 20),
    "another mixture of data": (*[2.3, 2.33] * 40, *[2.43, 2.4] * 40),
    "noise": (*[0.5, 2.5, 1.2, 0.9] * 30, *[1.5, 2.6, 0.8, 3.0] * 10),
    "a sound run": tuple(11.0 * (number + 1) ** -0.3 + 0.1 * (number % 2) for number in range(200)),
}


@pytest.mark.parametrize("losses", STAYING.values(), ids=STAYING)
def test_a_loss_that_comes_back_or_varies_is_healthy(losses: tuple[float, ...]) -> None:
    texts = [megatron(number, f"lm loss: {loss:.6E} | loss scale: 1.0") for number, loss in enumerate(losses, 1)]
    assert diagnose(evidence_of([("train.log", texts)])).fault_class is F.NONE


HEALTHY: dict[str, tuple[str, ...]] = {
    "a loss that came back": (GOOD, LOST, LOST, GOOD, GOOD),
    "norms of the first steps under loss scaling": (NORM, NORM, GOOD, GOOD),
    "a single norm at the end": (GOOD, GOOD, NORM),
    "an average norm": (
        "Train: [0/300][4050/5004] loss 3.2572 (3.3279)    grad_norm 1.0323 (nan)  mem 4814MB",
        "Train: [0/300][4060/5004] loss 3.2501 (3.3271)    grad_norm 1.0313 (nan)  mem 4814MB",
    ),
    "a best loss that begins with infinity": ("best_loss: inf step 0", "step 1 loss 2.3", "step 2 loss 2.2"),
    "a loss scale that settles": tuple(
        f"OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**power}, reducing to {2 ** (power - 1)}"
        for power in range(32, 16, -1)
    ),
    "hysteresis": ("OVERFLOW! Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",),
    "a constant loss scale": tuple(megatron(number, "lm loss: 2.3E+00 | loss scale: 1.0") for number in range(5)),
    "counters at zero": (megatron(1, "lm loss: 2.3E+00 | number of nan iterations: 0"),),
    "a spike that comes down": tuple(
        f"step {number} loss {loss}" for number, loss in enumerate([2.5] * 6 + [90.0] * 3 + [2.6])
    ),
    "small losses": tuple(f"step {number} loss {loss}" for number, loss in enumerate([0.01] * 6 + [0.9] * 3)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_recovers_is_healthy(name: str) -> None:
    assert seen(*HEALTHY[name]) == []


def test_more_lost_steps_are_surer() -> None:
    assert seen(GOOD, LOST)[0][1] < seen(GOOD, LOST, LOST, LOST)[0][1]


def test_the_first_lost_step_is_shown() -> None:
    (clue,) = not_finite(lines(GOOD, LOST, trainer("nan", 3)))
    assert (clue.line, clue.text, clue.blames) == (2, LOST, "nobody")


def test_what_breaks_on_lost_numbers_is_their_consequence() -> None:
    texts = (GOOD, LOST, LOST, LOST, "Traceback (most recent call last):", "ValueError: bad value")
    assert diagnose(evidence_of([("train.log", texts)])).fault_class is F.NUMERIC


def test_ranks_are_looked_at_one_by_one() -> None:
    whole = lines(GOOD, LOST, GOOD)
    other = [LogLine(LOST, "", 1, "", None, "rank-1.log", 9)]
    assert [clue.file for clue in not_finite([*whole, *other])] == ["rank-1.log"]


def test_what_a_program_says_of_lost_numbers_counts_unless_it_goes_on_with_good_ones() -> None:
    said, more = "Loss is nan at step 2, restoring the last good weights", [f"step {n} loss 2.{n}" for n in range(3, 9)]
    assert diagnose(evidence_of([("train.log", ["step 1 loss 2.2", said])])).fault_class is F.NUMERIC
    assert diagnose(evidence_of([("train.log", ["step 1 loss 2.2", said, *more])])).fault_class is F.NONE


def overflow(scale: int) -> str:
    return f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale}, reducing to {scale // 2}"


@pytest.mark.parametrize(
    ("first", "count", "rules"), [(64, 6, ["loss-scale-underflow"]), (64, 3, []), (65536, 6, []), (2**17, 16, [])]
)
def test_a_scale_that_only_falls_from_where_no_search_begins(first: int, count: int, rules: list[str]) -> None:
    assert [rule for rule, _ in seen(*(overflow(first >> place) for place in range(count)))] == rules
