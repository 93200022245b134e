"""Counts that grow in lines of any form, and what grows without being progress."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.files import grew_until
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass
COMPLAINTS = (
    " [!] Load failed...",
    'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    import amp\n'
    "ModuleNotFoundError: No module named 'amp'",
    "no checkpoint found, training from scratch",
)
PROGRESS = (
    "[{n:03d}] tr 0.23{n} va 0.68{n}",
    "#{n:03d} | acc 12.{n} | obj 3.21",
    "Total T: {n}001 Episode Num: {n} Reward: 12.2{n}",
    ">> {n}: 3.49{n} (0.543)",
    "gen={n} fit=0.54{n}",
    "{n},0.85{n},0.130,0.001",
    "{n}. Loss: 0.62{n}",
    "|  fps 703 | total_timesteps {n}2048 | ep_rew_mean 12.9{n} |",
    "Processed {n}000 sentences (12.374 sent/s)",
    "epoch-{n} psnr=21.{n}",
    "fold {n} auc 0.89{n}",
    "[{n}] train-error:0.28{n} validation-error:0.2802",
    "Tr. minibatch {n}: ce = 1.91{n}",
    "Global-step {n} --Accept update with alpha=1.0, kl=2.0e-07, old=-3.8{n}",
)


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(text, "file", None, "", None, "x.log", number) for number, text in enumerate(texts, 1))


@pytest.mark.parametrize("form", PROGRESS)
def test_three_lines_with_a_growing_count_prove_the_second_of_them(form: str) -> None:
    told = [form.format(n=number) for number in (1, 2, 3)]
    assert grew_until(lines("broken", *told)) == 3
    assert grew_until(lines("broken", *told), since=2) == 0
    assert grew_until(lines("broken", *told[:2])) == 0
    assert grew_until(lines("broken", *reversed(told))) == 0


def test_a_measure_that_changes_five_times_needs_no_count() -> None:
    told = [f"backprop done, loss after forward pass = 1.4{number}" for number in (3, 6, 2, 9, 5)]
    assert grew_until(lines("broken", *told)) == 5
    assert grew_until(lines("broken", *told[:4])) == 0
    assert grew_until(lines("broken", *told[:1] * 6)) == 0, "the same once more is no progress"


@rows("diagnosis/growing")
def test_lists_and_waits_are_no_progress(form: str) -> None:
    assert grew_until(lines("broken", *(form.format(n=number) for number in (1, 2, 3, 4)))) == 0


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize("form", PROGRESS)
def test_what_a_program_complained_of_before_it_went_on_is_no_failure(complaint: str, form: str) -> None:
    told = ["Using device cuda", *complaint.split("\n"), *(form.format(n=number) for number in range(1, 6))]
    assert diagnose(evidence_of([("train.log", told)])).fault_class is F.NONE


@pytest.mark.parametrize("complaint", COMPLAINTS[1:])
def test_the_same_complaint_at_the_end_is_one(complaint: str) -> None:
    told = ["Using device cuda", *(PROGRESS[0].format(n=number) for number in range(1, 6)), *complaint.split("\n")]
    found = diagnose(evidence_of([("train.log", told)])).fault_class
    assert found is not F.NONE
