"""When ranks stand still to load or to save a checkpoint, from lines that real programs printed."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows, tables
from workflows.programs.progress import formats
from workflows.programs.progress.formats import FRAMEWORKS
from workflows.programs.progress.reader import ProgressReader, StepCounting, framework_of, without_revised_begins
from workflows.wire import PhaseSeen, StepSeen

STARTED = 100.0
STEPS = {
    "primus-demo": "step {n}/300 | loss 3.2112 | tokens/s 12345 | step time 0.1012 s",
    "megatron": " iteration {n:8d}/    1000 | consumed samples: 880 | lm loss: 2.504220E+00 | nan iterations: 0 |",
    "torchtitan": "[titan] 2026-05-18 16:04:46,338 - root - INFO - step: {n:2d}  loss:  3.24405  grad_norm:  0.8319",
    "nemo": "Training epoch 0, iteration {n}/99 | lr: 3e-05 | global_batch_size: 4 | global_step: {n} | loss: 1.289",
    "huggingface": " 12%|█▎        | {n}/2000 [01:02<07:11,  4.05it/s]",
    "lightning": "Epoch 0:  22%|██▏       | {n}/779 [00:17<01:02,  4.47s/it, loss=9.947, v_num=193315] ",
    "regex": "step {n} loss 2.0",
}
STEPS["primus"] = STEPS["megatron"]
TITAN = "[titan] 2026-05-18 16:04:46,338 - root - INFO - "
NEMO = "[NeMo I 2025-06-18 16:52:43 nemo_logging:393] "
PRIMUS = "[20251121 12:10:29][rank-0/32][INFO ] [-----checkpointing.py:412] :  "
MEGATRON_SAVES = "saving checkpoint at iteration     100 to /root/checkpoint/GPT2_pretrain_WS1 in torch_dist format"
MEGATRON_SAVED = (
    "  successfully saved checkpoint from iteration     100 to /root/checkpoint/GPT2_pretrain_WS1 [ t 1/1, p 1/1 ]"
)
MEGATRON_ASYNC = "  scheduled an async checkpoint save at iteration     100 to /root/checkpoint/GPT2_pretrain_WS1"
TITAN_SAVED = "Finished saving the checkpoint in 0.60 seconds."
TITAN_STAGED = "Finished staging the checkpoint in 0.10 seconds."
TITAN_OLD = "Finished saving the checkpoint (or staging if async is enabled)in 0.60 seconds."


def reader(framework: str) -> ProgressReader:
    pattern = r"^step (?P<step>\d+) loss (?P<loss>\S+)" if framework == "regex" else ""
    return ProgressReader(framework_of(framework, pattern), StepCounting(steps=2000), 0, STARTED)


def phases(framework: str, *lines: tuple[float, str]) -> list[tuple[str, float]]:
    """Phase and time of every report; `step N` stands for the framework's own line."""
    reading = reader(framework)
    found: list[tuple[str, float]] = []
    for at, line in lines:
        number = re.fullmatch(r"step (\d+)", line)
        text = STEPS[framework].format(n=int(number[1])) if number else line
        reports = reading.feed(text, at)
        assert number is None or any(isinstance(report, StepSeen) for report in reports)
        found += [(report.phase, round(report.at, 3)) for report in reports if isinstance(report, PhaseSeen)]
    return found


@rows("programs/progress/phases")
def test_a_save_is_a_pause_from_its_beginning_to_its_end(
    framework: str, lines: list[tuple[float, str]], pause: tuple[float, float]
) -> None:
    found = phases(framework, (10.0, "step 10"), *lines, (99.0, "step 11"))
    assert found == [("step", 10.0), ("checkpoint", pause[0]), ("step", pause[1])]


OPEN_SAVES = [
    ("regex", "saving checkpoint to out"),  # nanoGPT
    ("regex", "test loss 2.31 is the best so far, saving model to out/model.pt"),  # makemore
    ("primus-demo", "checkpoint step 20 is being saved"),
    ("huggingface", "Saving model checkpoint to /data/checkpoint-500"),
    (
        "lightning",
        "Epoch 0, global step 79: 'roc_auc' reached 0.87266 (best 0.87266), saving model to '/x/e=0.ckpt' as top 3",
    ),
    (
        "lightning",
        "Epoch 0:  50%|█████████████████████████| 389/779 [02:23<02:23,  2.72it/s, loss=0.671, v_num=Epoch 0, "
        "global step 79: 'val_roc_auc' reached 0.87266 (best 0.87266), saving model to '/x/e=0.ckpt' as top 3",
    ),
]


@pytest.mark.parametrize(("framework", "line"), OPEN_SAVES)
def test_a_save_whose_end_nobody_tells_reaches_to_the_next_step(framework: str, line: str) -> None:
    found = phases(framework, (10.0, "step 10"), (10.5, line), (14.0, "step 400"), (15.0, "step 401"))
    assert found == [("step", 10.0), ("checkpoint", 10.5), ("step", 14.0)]


@rows("programs/progress/phases")
def test_what_happens_in_the_background_or_is_no_save_stalls_nobody(framework: str, line: str) -> None:
    assert phases(framework, (10.0, "step 10"), (11.0, line), (12.0, "step 11")) == [("step", 10.0)]
    assert phases(framework, (11.0, line)) == []


@rows("programs/progress/phases")
def test_a_restore_is_a_pause_of_the_start(
    framework: str, lines: list[tuple[float, str]], pause: tuple[float, float]
) -> None:
    found = phases(framework, *lines, (199.0, "step 501"))
    assert found == [("restore", pause[0]), ("init", pause[1]), ("step", 199.0)]


def test_a_restore_whose_end_nobody_tells_reaches_to_the_first_step() -> None:
    found = phases("regex", (103.0, "Resuming training from out"), (109.0, "step 21"), (110.0, "resumed from out"))
    assert found == [("restore", 103.0), ("step", 109.0)]


@rows("programs/progress/phases")
def test_a_save_of_which_only_the_end_is_told_is_a_moment(line: str) -> None:
    """How long it took is not known; that one was made is, which whoever asked for a save waits for."""
    found = phases("regex", (10.0, "step 10"), (11.0, line), (12.0, "step 11"))
    assert found == [("step", 10.0), ("checkpoint", 11.0), ("step", 11.0)]
    begun = phases("regex", (10.0, "step 10"), (10.5, "saving checkpoint"), (11.0, line), (12.0, "step 11"))
    assert begun == [("step", 10.0), ("checkpoint", 10.5), ("step", 11.0)]


def test_processes_that_share_an_output_tell_of_one_save() -> None:
    lines = [(12.0 + rank / 100, "checkpoint step 20 saved to /data/step-20 in 0.5 s") for rank in range(8)]
    assert phases("primus-demo", *lines) == [("checkpoint", 11.5), ("step", 12.0)]


def test_a_save_whose_beginning_and_end_are_read_in_one_go_is_as_long_as_it_says() -> None:
    said = ("checkpoint step 20 is being saved", "checkpoint step 20 saved to /data/step-20 in 0.5 s")
    reading = reader("primus-demo")
    at_once = [report for text in said for report in reading.feed(text, 112.0)]
    told = [(report.phase, report.at) for report in without_revised_begins(at_once) if isinstance(report, PhaseSeen)]
    assert told == [("checkpoint", 111.5), ("step", 112.0)]
    one_by_one = [report for at, text in zip((120.0, 120.53), said, strict=True) for report in reading.feed(text, at)]
    told = [(report.phase, report.at) for report in without_revised_begins(one_by_one) if isinstance(report, PhaseSeen)]
    assert told == [("checkpoint", 120.0), ("step", 120.5)], "its beginning was heard in time, its end late"


@rows("programs/progress/phases")
def test_an_end_that_is_read_far_too_late_counts_where_its_length_is_of_the_whole_save(
    framework: str, said: tuple[str, str], ended: float
) -> None:
    assert phases(framework, (120.0, said[0]), (122.0, said[1])) == [("checkpoint", 120.0), ("step", ended)]


def test_a_rank_that_prints_no_steps_and_no_ends_says_each_save() -> None:
    lines = [(float(n), MEGATRON_SAVES.replace("100", str(n))) for n in (100, 100, 200)]
    assert phases("megatron", *lines) == [("checkpoint", 100.0), ("checkpoint", 200.0)]


def test_without_a_start_a_bare_end_of_a_restore_is_none() -> None:
    reading = ProgressReader(framework_of("lightning"), StepCounting(), 0)
    assert reading.feed("Restored all states from the checkpoint at /x.ckpt", 5.0) == []


TABLES = (
    formats.MEGATRON,
    formats.TITAN,
    formats.DEMO,
    formats.LIGHTNING,
    formats.NEMO,
    formats.HUGGING_FACE,
    formats.GENERIC,
)
OTHERS = [
    "Evaluating on 51200 samples",
    "[titan] Training completed",
    "final step 60 | held-out loss 3.1",
    "Validation DataLoader 0:  50%|█████     | 4/8 [00:00<00:00, 91.12it/s]",
    "***** Running Evaluation *****",
    "{'eval_loss': 1.93, 'eval_runtime': 3.1, 'epoch': 1.0}",
    "{'train_runtime': 307.1, 'train_loss': 0.21, 'epoch': 3.0}",
    "loading checkpoint /x/ckpt-20.pt",
]


def test_every_mark_has_a_line_here_and_every_line_the_hint_of_its_mark() -> None:
    found = tables("programs/progress/phases")
    pauses = found["a_save_is_a_pause_from_its_beginning_to_its_end"] + found["a_restore_is_a_pause_of_the_start"]
    lines = [line for row in pauses for _, line in row.columns["lines"]]
    lines += [line for _, line in OPEN_SAVES] + OTHERS
    for mark in (mark for table in TABLES for mark in table):
        matching = [line for line in lines if re.search(mark.pattern, line)]
        assert matching, mark
        assert all(mark.hint in line for line in matching), mark


@given(st.sampled_from(sorted(FRAMEWORKS)), st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5)), max_size=20))
def test_pauses_of_a_rank_follow_each_other(framework: str, found: list[tuple[float, int]]) -> None:
    """Whatever a program prints in whatever order: no pause begins before the one before it has ended."""
    lines = [
        "checkpoint step 20 saved to /data/step-20 in 0.5 s",
        "restore step 20 from /data/step-20 in 0.25 s",
        MEGATRON_SAVES,
        MEGATRON_SAVED,
        TITAN + "Finished saving the checkpoint in 1.5 seconds.",
        STEPS["primus-demo"].format(n=5),
    ]
    reading = reader(framework)
    at = STARTED
    reports: list[PhaseSeen] = []
    together: list[PhaseSeen] = []
    for gap, which in found:
        if at + gap > at:  # what is read in one go has one time, and no clock tells a gap as small as that
            reports, together = [*reports, *without_revised_begins(together)], []
        at += gap
        together += [report for report in reading.feed(lines[which], at) if isinstance(report, PhaseSeen)]
    reports += without_revised_begins(together)
    ended = -math.inf
    for report, following in pairwise(reports):
        if report.phase in ("checkpoint", "restore"):
            assert report.at >= ended
            assert following.at >= report.at
            ended = following.at
