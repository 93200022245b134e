"""What shows that a program went on: counters that grow, bars, results, tables, and good ends."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.retractions import LAST_LINES, position, went_on_until
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

F = FaultClass


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(text, "file", None, "", None, "x.log", number) for number, text in enumerate(texts, 1))


GROWING = (
    ("Epoch 1/5", "Epoch 2/5"),
    ("epoch 10 done", "epoch 11 done"),
    ("Epoch: [0][  10/5004]\tTime  0.412", "Epoch: [0][  20/5004]\tTime  0.411"),
    ("Epoch(train)  [1][  50/1000]  lr: 1e-3", "Epoch(train)  [1][ 100/1000]  lr: 1e-3"),
    ("[Rank 0] step=522, skipped=0", "[Rank 0] step=524, skipped=0"),
    (" 10%|# | 100/1000 [00:31<04:41,  3.2it/s]", " 20%|## | 200/1000 [01:02<04:11,  3.2it/s]"),
    ("18720it [03:06,  1.32it/s]", "18721it [03:15,  1.02it/s]"),
    ("1562/1563 [====>.] - ETA: 0s", "1563/1563 [=====] - 21s"),
    ("evaluated 100/500", "evaluated 200/500"),
    ("frame 3 of 90", "frame 4 of 90"),
    ("throughput: 812.1 tokens/s, ETA 00:10", "throughput: 822.1 tokens/s, ETA 00:09"),
    ("val/acc: 0.71", "val/acc: 0.73"),
    ("    1048576   262144  float  sum  -1   61.2  17.1", "    2097152   524288  float  sum  -1   81.2  27.1"),
    ("episode 100 reward -12.1", "episode 200 reward 2.1"),
    ("|    total_timesteps      | 2048         |", "|    total_timesteps      | 4096         |"),
    (
        "1: 3968.200195, 3968.200195 avg, 0.0 rate, 2503.9 seconds",
        "2: 3961.218994, 3967.5 avg, 0.0 rate, 2536.9 seconds",
    ),
    ("Epoch 21 | Reward=26.91 | Fail=1/80", "Epoch 29 | Reward=26.51 | Fail=1/80"),
    ("Global-step 5 --Accept update", "Global-step 6 --Accept update"),
)


@pytest.mark.parametrize("texts", GROWING)
def test_a_counter_that_grows_proves_the_line_before_its_last(texts: tuple[str, str]) -> None:
    first, second = texts
    assert went_on_until(lines("broken", first, second)) == 2
    assert went_on_until(lines("broken", first)) == 0
    assert went_on_until(lines("broken", first, first)) == 0, "the same once more is no progress"


@pytest.mark.parametrize(
    "texts",
    [
        ("retry 1/5", "retry 2/5"),
        ("attempt 1 of 5", "attempt 2 of 5"),
        ("waiting for step 100", "waiting for step 200"),
        ("loading shard 1/8", "loading shard 2/8"),
        ("Resuming from epoch 1", "Resuming from epoch 2"),
        ("step 5 loss nan", "step 6 loss nan"),
        ("error at step 1", "error at step 2"),
        ("0/4 nodes are available", "0/4 nodes are available"),
        ("epoch 5 done", "epoch 1 done"),
        ("2024/05/01 here", "2024/05/02 there"),
        ("10.0.0.1/24", "10.0.0.2/24"),
    ],
)
def test_what_counts_no_progress_proves_nothing(texts: tuple[str, str]) -> None:
    assert went_on_until(lines("broken", *texts)) == 0


def test_nothing_before_the_line_in_question_counts() -> None:
    told = lines("Epoch 1/5", "Epoch 2/5", "Epoch 3/5", "broken", "Epoch 4/5")
    assert went_on_until(told) == 3
    assert went_on_until(told, since=4) == 0


@pytest.mark.parametrize(
    "text",
    [
        "Process completed successfully.",
        "Saving final model to checkpoints/last.pt",
        "Fine-tuned model saved to out/",
        "Test accuracy: 0.9123",
        "final checkpoint written to s3://bucket/run",
        "Results written to results/eval.json",
    ],
)
def test_a_good_end_counts_at_the_end_alone(text: str) -> None:
    assert went_on_until(lines("broken", text, "bye")) == 2
    assert went_on_until(lines("broken", text, *("more",) * LAST_LINES)) == 0


@pytest.mark.parametrize(
    "text", ["Job finished at Mon Mar  4", "done", "wandb: Run summary:", "Installation completed", "best effort: 3"]
)
def test_what_shells_and_trackers_say_whatever_happened_is_no_good_end(text: str) -> None:
    assert went_on_until(lines("broken", text)) == 0


def test_the_place_of_a_line() -> None:
    assert position("nothing here") is None
    assert position("epoch 3 loss 0.5") == ("epoch", (3, 0, 5))
    assert position("epoch 3 failed") is None


def read(*texts: str) -> FaultClass:
    return diagnose(evidence_of([("train.log", texts)])).fault_class


RAISED = (
    "Traceback (most recent call last):",
    '  File "/app/eval.py", line 81, in run',
    "    score = metric(pred, ref)",
    "ZeroDivisionError: division by zero",
)


def test_an_exception_is_outlived_by_whatever_goes_on() -> None:
    assert read(*RAISED) is F.USER_CODE
    assert read(*RAISED, "evaluated 100/500", "evaluated 200/500") is F.NONE
    assert read("evaluated 100/500", "evaluated 200/500", *RAISED) is F.USER_CODE
    assert read("evaluated 100/500", *RAISED, "evaluated 101/500") is F.USER_CODE, "a bar that is drawn once more"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ModuleNotFoundError: No module named 'apex'", F.CONFIG),
        ("ModuleNotFoundError: No module named 'apex' - falling back to native AdamW", F.NONE),
        ("WARNING: x.jpg: ignoring corrupt image/label: image file is truncated", F.NONE),
        ("ImportError: cannot import name 'flash_attn_func' from 'flash_attn'; using sdpa attention", F.NONE),
        ("OSError: image file is truncated (3 bytes not processed)", F.DATA),
    ],
)
def test_a_line_that_takes_itself_back(text: str, expected: FaultClass) -> None:
    assert read(text) is expected


def test_a_raised_exception_takes_nothing_back() -> None:
    raised = (*RAISED[:3], "ValueError: bf16 is not supported; using it needs Ampere, it cannot be skipped")
    assert read(*raised) is not F.NONE
