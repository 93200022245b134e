"""A training that began anew although it should have gone on, and logs that stop."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.observers import resume, stalls
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import seen, told
from tests.support.cases.rows import rows

F = FaultClass
FAR = "step 4980 loss 2.31 lr 1e-4\nstep 4990 loss 2.30 lr 1e-4\nSaved checkpoint to /ckpt/step_4990"
FIRST = "step 1 loss 10.9 lr 1e-6\nstep 10 loss 10.2 lr 1e-6\nstep 20 loss 9.8 lr 2e-6"
ON = "step 5000 loss 2.30 lr 1e-4\nstep 5010 loss 2.29 lr 1e-4"
NONE_FOUND = (
    "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt\n"
    "    will not load any checkpoints and will start from random"
)
D2 = "[05/17 23:20:47 d2.utils.events]:  eta: 6 days  iter: 19  total_loss: 0.4911  time: 1.5732  lr: 0.005"


@rows("diagnosis/observers/progress")
def test_a_training_that_began_anew(files: dict[str, str], rule: str) -> None:
    assert {clue.rule for clue in seen(resume.started_over, files)} == {rule}
    found = told(files)
    assert (found.fault_class, found.culprits) == (F.STARTED_OVER, ())


HEALTHY = {
    "a first run finds no checkpoint": {"x.log": f"{NONE_FOUND}\n{FIRST}"},
    "a first run that would have resumed": {
        "x.log": f"python t.py --resume\nNo checkpoint found, starting from scratch\n{FIRST}"
    },
    "other ranks save later": {"rank-0.log": f"{NONE_FOUND}\n{FIRST}", "rank-1.log": "Saved checkpoint to /c/step_10"},
    "a resumption that worked": {"run-attempt-1.log": FAR, "run-attempt-2.log": f"Resuming from step 4990\n{ON}"},
    "steps counted anew in every epoch": {
        "x.log": "Restarting data loader\nepoch 1 step 200 loss 0.21\nepoch 2 step 1 loss 0.12"
    },
    "epochs of a new fold": {
        "x.log": "Fold 1\nEpoch 4 loss 0.7\nEpoch 5 loss 0.6\nFold 2\nEpoch 0 loss 2.1\nEpoch 1 loss 1.2"
    },
    "pretrained weights": {"x.log": f"Loading pretrained weights from /models/llama/checkpoint-12000\n{FIRST}"},
    "weights whose name has a number": {"x.log": f"[Checkpointer] Loading from model_final_280758.pkl ...\n{D2}"},
    "fine-tuning from a checkpoint": {"x.log": f"python t.py --finetune --load /base/iter_0005000\n{FIRST}"},
    "PyTorch's example resumed": {
        "x.log": "=> loaded checkpoint 'm.pth.tar' (epoch 30)\nEpoch: [30][ 0/5005] Loss 1.2 (1.2)"
    },
}  # fmt: skip


@pytest.mark.parametrize("sentence", HEALTHY)
def test_a_training_that_did_not(sentence: str) -> None:
    assert seen(resume.started_over, HEALTHY[sentence]) == []


def test_that_it_began_anew_counts_more_than_how_the_start_before_ended() -> None:
    cancelled = "slurmstepd: error: *** STEP 88121.0 ON cn-114 CANCELLED AT 2026-04-01T18:21:40 DUE TO JOB REQUEUE ***"
    assert told(
        {"slurm-1.out": f"{FAR}\n{cancelled}", "slurm-1-restart1.out": f"{NONE_FOUND}\n{FIRST}"}
    ).fault_class is (F.STARTED_OVER)
    assert told({"slurm-1.out": f"{FAR}\n{cancelled}"}).fault_class is F.PREEMPTED


TIMED = "\n".join(f"[2025-01-01 03:00:{second:02d}] iteration {second}/900 | lm loss: 2.1 |" for second in range(1, 20))


@rows("diagnosis/observers/progress")
def test_silence_counts_where_somebody_had_to_end_it(end: str, wanted: int) -> None:
    assert len(seen(stalls.silences, {"slurm.out": f"{TIMED}\n{end}"})) == wanted


@rows("diagnosis/observers/progress")
def test_a_bar_that_never_moved_counts_after_minutes(bar: str, wanted: int) -> None:
    assert len(seen(stalls.bars, {"train.log": bar})) == wanted


STEPS = tuple(
    f"2026-02-03 10:{second // 60:02d}:{second % 60:02d} step {second // 6} loss 2.5" for second in range(0, 600, 6)
)
CLOCKS = tuple(
    f"[23:{second // 60 + 40:02d}:{second % 60:02d}] step {second // 6} loss 2.5" for second in range(0, 600, 6)
)
ALIVE = tuple(f"2026-02-03 {10 + minute // 60}:{minute % 60:02d}:30 agent: 8 workers live" for minute in range(10, 180))


@pytest.mark.parametrize(
    "texts",
    [
        (*STEPS, "2026-02-03 15:00:00 agent: node has 8 GPUs"),
        (*STEPS, "Tue Feb  3 15:00:00 UTC 2026"),
        (*CLOCKS, "[03:00:00] agent: node has 8 GPUs"),
        (*STEPS, *ALIVE),
    ],
    ids=["words", "date", "clock over midnight", "signs of life"],
)
def test_hours_without_a_step_are_a_hang_by_the_stamps_of_the_lines(texts: tuple[str, ...]) -> None:
    assert told({"x.log": "\n".join(texts)}).fault_class is F.HANG


@pytest.mark.parametrize(
    "texts",
    [
        (*STEPS, "2026-02-03 10:20:00 agent: node has 8 GPUs"),
        (*STEPS, *(f"2026-02-03 15:{second:02d}:00 step {100 + second} loss 2.4" for second in range(5))),
        (*STEPS, *(f"2026-02-03 15:{minute:02d}:00 Evaluating {minute}/60 acc 0.3{minute}" for minute in range(9))),
        (*STEPS[:-1], "2026-02-03 10:09:54 step 100/100 loss 2.5", "2026-02-03 15:00:00 agent: node has 8 GPUs"),
        (*STEPS, "2026-02-03 10:11:00 Training completed", "2026-02-03 15:00:00 agent: node has 8 GPUs"),
    ],
    ids=["soon after", "steps go on", "something else goes on", "the last of all", "the end"],
)
def test_a_silence_after_which_it_goes_on_or_at_the_end_is_none(texts: tuple[str, ...]) -> None:
    assert told({"x.log": "\n".join(texts)}).fault_class is F.NONE


def test_a_step_without_a_time_of_its_own_begins_no_silence() -> None:
    plain = [f"step {step} loss 2.{step}" for step in range(1, 9)]
    found = diagnose(evidence_of([("a.log", ["2026-01-01 10:00:00 start", *plain, "2026-01-01 15:00:00 a note"])]))
    assert found.rule != "silence-stays"
    timed = [f"2026-01-01 10:0{step}:00 step {step} loss 2.{step}" for step in range(1, 9)]
    found = diagnose(evidence_of([("a.log", [*timed, "2026-01-01 15:00:00 a note"])]))
    assert found.rule == "silence-stays"
    found = diagnose(evidence_of([("a.log", [*timed, "2026-03-01 15:00:00 a note"])]))
    assert found.rule != "silence-stays"
