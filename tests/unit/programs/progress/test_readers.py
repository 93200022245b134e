"""Progress readers against lines that real programs printed, and against lines that only look like them."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from workflows.programs.progress.formats import FRAMEWORKS
from workflows.programs.progress.reader import PatternError, ProgressReader, StepCounting, framework_of
from workflows.wire import PhaseSeen, StepSeen

MEGATRON = (
    " iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 |"
    " learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 |"
    " grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
PRIMUS = (
    "[20251121 12:10:29][rank-31/32][INFO ] [--------trainer.py:2488] :  iteration    12125/   36000 |"
    " consumed samples:      3104000 | elapsed time per iteration (ms): 2701.3/2712.7 |"
    " hip mem usage/free/total/usage_ratio: 227.35GB/28.63GB/255.98GB/88.81% |"
    " throughput per GPU (TFLOP/s/GPU): 210.5/217.3 | tokens per GPU (tokens/s/GPU): 12130.4/12525.5 |"
    " learning rate: 1.587349E-04 | global batch size:   256 | lm loss: 2.352391E+00 | loss scale: 1.0 |"
    " grad norm: 0.132 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TITAN = (
    "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319"
    "  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%"
)
TITAN_COLOURED = (
    "\x1b[31mstep:  4  \x1b[32mloss:  7.62585  \x1b[38;5;208mgrad_norm: 26.6250  \x1b[36mmemory: 66.91GiB(37.51%)"
    "  \x1b[34mtps: 10,050  \x1b[36mtflops: 314.71  \x1b[35mmfu: 13.99%\x1b[39m"
)
NEMO = (
    "[2025-11-20T14:55:23+08:00] retraining/0 Training epoch 0, iteration 97/99 | lr: 1.469e-05 |"
    " global_batch_size: 128 | global_step: 97 | reduced_train_loss: 6.265 | train_step_timing in s: 12.22 |"
    " tokens_per_sec_per_gpu: 1.073e+04 | consumed_samples: 12544"
)
NEMO_BAR = (
    "Epoch 0:   1%|          | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.090,"
    " global_step=794.0, consumed_samples=1.63e+6]"
)
HUGGING_BAR = " 12%|█▎        | 250/2000 [01:02<07:11,  4.05it/s]"
LIGHTNING = "Epoch 0:  22%|██▏       | 4/18 [00:17<01:02,  4.47s/it, loss=9.947, v_num=193315] "
LIGHTNING_NEW = "Epoch 3:  50%|█████     | 9/18 [00:04<00:04,  2.1it/s, v_num=0, train_loss_step=0.52, train_loss=0.6]"
FROM_SCRATCH = StepCounting()
DEMO = "step 12/300 | loss 3.2112 | tokens/s 12345 | step time 0.1012 s"
OTHER_RANK = "step 12/300 | compute 0.0512 s"


def reader(framework: str, pattern: str = "", counting: StepCounting = FROM_SCRATCH) -> ProgressReader:
    return ProgressReader(framework_of(framework, pattern), counting, rank=3)


def steps(reading: ProgressReader, *lines: str) -> list[StepSeen]:
    found = [report for at, line in enumerate(lines) for report in reading.feed(line, float(at))]
    return [report for report in found if isinstance(report, StepSeen)]


def one(framework: str, line: str, counting: StepCounting = FROM_SCRATCH) -> StepSeen:
    found = steps(reader(framework, counting=counting), line)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("framework", "line", "expected"),
    [
        ("megatron", MEGATRON, (122, 2.50422, 86.5452, None, 250000)),
        ("primus", PRIMUS, (12125, 2.352391, 2.7013, 12130.4, 36000)),
        ("primus", TITAN, (14, 3.24405, None, 7282.0, None)),
        ("torchtitan", TITAN, (14, 3.24405, None, 7282.0, None)),
        ("torchtitan", TITAN_COLOURED, (4, 7.62585, None, 10050.0, None)),
        ("nemo", NEMO, (97, 6.265, 12.22, 10730.0, None)),
        ("nemo", NEMO_BAR, (794, 3.09, None, None, None)),
        ("huggingface", HUGGING_BAR, (250, None, None, None, 2000)),
        ("lightning", LIGHTNING, (4, 9.947, None, None, None)),
        ("lightning", LIGHTNING_NEW, (63, 0.52, None, None, None)),
        ("primus-demo", DEMO, (12, 3.2112, 0.1012, 12345.0, 300)),
    ],
)
def test_a_line_that_the_real_program_printed_is_read_whole(
    framework: str, line: str, expected: tuple[int, float | None, float | None, float | None, int | None]
) -> None:
    seen = one(framework, line)
    assert (seen.step, seen.loss, seen.seconds, seen.tokens_per_second, seen.total_steps) == pytest.approx(expected)
    assert seen.rank == 3


@rows("programs/progress/readers")
def test_a_line_that_only_looks_like_progress_is_none(framework: str, line: str) -> None:
    assert steps(reader(framework), line) == []


@rows("programs/progress/readers")
def test_what_a_program_does_is_a_phase_that_is_said_once(framework: str, line: str, phase: str) -> None:
    reading = reader(framework)
    found = reading.feed(line, 1.0)
    assert [report.phase for report in found if isinstance(report, PhaseSeen)] == [phase]
    assert reading.feed(line, 2.0) == []


def test_steps_after_a_checkpoint_are_the_phase_step_again() -> None:
    reading = reader("primus-demo")
    lines = [DEMO, "checkpoint step 12 saved to /x in 0.1 s", "step 13/300 | loss 3.1 | tokens/s 1 | step time 0.1 s"]
    phases = [r.phase for line in lines for r in reading.feed(line, 0.0) if isinstance(r, PhaseSeen)]
    assert phases == ["step", "checkpoint", "step"]


def test_a_ranks_own_time_before_the_barrier_is_read_from_its_line() -> None:
    (first,) = steps(reader("primus-demo"), f"{DEMO} | compute 0.0812 s")
    (other,) = steps(reader("primus-demo"), OTHER_RANK)
    assert (first.loss, first.seconds, first.compute_seconds) == (3.2112, 0.1012, 0.0812)
    assert (other.step, other.loss, other.compute_seconds, other.total_steps) == (12, None, 0.0512, 300)


@pytest.mark.parametrize(
    ("framework", "lines", "norm"),
    [
        ("megatron", [MEGATRON], 0.231),
        ("torchtitan", ["step:  5  loss:  8.12  grad_norm:  1.4871  memory:  0.5GiB(1.0%)  tps: 9"], 1.4871),
        ("huggingface", [HUGGING_BAR, "{'loss': 0.4881, 'grad_norm': 2.5, 'learning_rate': 4.5e-05}"], 2.5),
    ],
)
def test_the_norm_of_gradients_is_read_where_it_is_printed(framework: str, lines: list[str], norm: float) -> None:
    assert steps(reader(framework, counting=StepCounting(steps=2000)), *lines)[-1].gradient_norm == norm


@pytest.mark.parametrize("framework", ["none", "regex", "primus-demo"])
def test_a_program_may_report_its_own_step_and_nobody_elses(framework: str) -> None:
    reading = reader(framework, r"step (?P<step>\d+)") if framework == "regex" else reader(framework)
    said = '@primus {"report": "StepSeen", "step": 7, "rank": 9, "at": 1.0, "incarnation": 8, "compute_seconds": 0.5}'
    (seen,) = [one for one in reading.feed(said, 5.0) if isinstance(one, StepSeen)]
    assert (seen.step, seen.rank, seen.at, seen.incarnation, seen.compute_seconds) == (7, 3, 5.0, 1, 0.5)
    others = ['@primus {"report": "RankEnd", "rank": 1, "local_rank": 1, "at": 1.0}', "@primus {", "@primus []",
              '@primus {"report": "StepSeen", "step": "x"}', '@primus {"report": "StepSeen", "step": 0}',
              "@primus " + "[" * 5000]  # fmt: skip
    assert [report for line in others for report in reading.feed(line, 5.0)] == []


def test_two_records_on_one_line_are_two_steps_each_with_its_own_fields() -> None:
    second = MEGATRON.replace("122/", "123/").replace("2.504220E+00", "2.400000E+00").replace("86545.2", "1000.0")
    seen = steps(reader("megatron"), MEGATRON + second, "")
    assert [(s.step, s.loss, s.seconds) for s in seen] == [(122, 2.50422, 86.5452), (123, 2.4, 1.0)]


def test_every_rank_printing_the_same_line_through_one_pipe_is_one_step() -> None:
    line = TITAN.replace("[rank0]:", "")
    assert len(steps(reader("torchtitan"), line, line, line)) == 1


def test_a_loss_that_comes_apart_from_its_step_belongs_to_the_latest_step() -> None:
    reading = reader("huggingface", counting=StepCounting(steps=2000))
    seen = steps(reading, HUGGING_BAR, "{'loss': 0.4881, 'grad_norm': 2.5, 'learning_rate': 4.5e-05, 'epoch': 0.13}")
    assert [(s.step, s.loss) for s in seen] == [(250, None), (250, 0.4881)]


@pytest.mark.parametrize("text", ["{'loss': nan, 'epoch': 0.1}", "{'loss': 'nan', 'grad_norm': 'nan'}"])
def test_a_bare_nan_in_a_printed_dict_is_seen(text: str) -> None:
    seen = steps(reader("huggingface", counting=StepCounting(steps=2000)), HUGGING_BAR, text)
    assert seen[-1].loss is not None
    assert math.isnan(seen[-1].loss)
    assert len(steps(reader("huggingface", counting=StepCounting(steps=2000)), HUGGING_BAR, text, text, text)) == 2


def test_megatron_counts_nan_iterations_instead_of_printing_the_loss() -> None:
    line = MEGATRON.replace(" lm loss: 2.504220E+00 |", "").replace("nan iterations:   0", "nan iterations:   1")
    assert math.isnan(one("megatron", line).loss or 0.0)


def test_a_bar_with_another_total_is_evaluation_not_training() -> None:
    seen = steps(
        reader("huggingface", counting=StepCounting(steps=2000)),
        " 50%|█████     | 4/8 [00:00<00:00, 91.12it/s]",
        HUGGING_BAR,
        " 75%|███████▌  | 6/8 [00:00<00:00, 91.12it/s]",
    )
    assert [s.step for s in seen] == [250]


def test_the_first_bar_decides_where_the_number_of_steps_is_not_known() -> None:
    seen = steps(
        reader("huggingface"), "  0%|          | 0/2000 [00:00<?, ?it/s]", " 50%|█    | 4/8 [0:1<?]", HUGGING_BAR
    )
    assert [s.step for s in seen] == [250]


def test_a_bar_that_jumps_to_the_resumed_step_shows_where_it_resumed() -> None:
    bars = ["  0%|          | 0/2000 [00:00<?, ?it/s]", " 25%|██▌       | 501/2000 [00:00<00:00, 9000.1it/s]"]
    seen = steps(reader("huggingface", counting=StepCounting(steps=2000, resume_step=500)), *bars)
    assert [(s.step, s.seconds) for s in seen] == [(501, None)]


def test_counters_of_lightning_start_again_in_each_epoch() -> None:
    bars = [f"Epoch {epoch}: 50%|█    | {n}/18 [00:1<0:1, loss=1.0]" for epoch in (0, 1) for n in (0, 1, 17, 18)]
    assert [s.step for s in steps(reader("lightning"), *bars)] == [1, 17, 18, 19, 35, 36]


def test_a_bar_that_is_set_back_before_its_next_epoch_is_announced_goes_on() -> None:
    """Lightning 2.6 in a pipe; of a bar that is redrawn quickly the last state may be missing as well."""
    bars = ("Epoch 0:  67%|██| 2/3 [", "Epoch 0:   0%|  | 0/3 [", "Epoch 1:   0%|  | 0/3 [", "Epoch 1:  33%|█ | 1/3 [")
    assert [one.step for one in steps(reader("lightning"), *bars)] == [2, 3, 4]


def test_lightning_resumed_in_a_later_epoch_is_at_that_position() -> None:
    assert one("lightning", "Epoch 2:  6%|█   | 1/18 [00:01<00:09, loss=1.0]").step == 37


@pytest.mark.parametrize("first", [0, 1])
def test_a_pattern_whose_counter_falls_back_goes_on_counting(first: int) -> None:
    reading = reader(
        "regex", r"\[(?P<epoch_name>\d+)\] batch (?P<step>\d+) loss (?P<loss>\S+)", StepCounting(first_counter=first)
    )
    lines = [f"[{epoch}] batch {n} loss 1.{epoch}{n}" for epoch in range(3) for n in range(first, first + 4)]
    assert [s.step for s in steps(reading, *lines)] == list(range(1, 13))


def test_an_epochs_length_counts_where_its_last_lines_were_not_printed() -> None:
    reading = reader("regex", r"(?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)", StepCounting(first_counter=0))
    assert [s.step for s in steps(reading, "0/937 loss 2", "900/937 loss 1", "0/937 loss 1", "100/937 loss 1")] == [
        1,
        901,
        938,
        1038,
    ]


@rows("programs/progress/readers")
def test_positions_are_counted_over_all_attempts(counting: dict[str, Any], line: str, step: int) -> None:
    assert steps(reader("regex", r"^step (?P<step>\d+)", StepCounting(**counting)), line)[0].step == step


def test_an_absolute_counter_that_goes_back_is_reported_as_it_is() -> None:
    lines = [MEGATRON, MEGATRON.replace("122/", "100/")]
    assert [s.step for s in steps(reader("megatron"), *lines)] == [122, 100]


def test_rates_per_rank_become_rates_of_the_gang() -> None:
    assert one("torchtitan", TITAN, StepCounting(world_size=8)).tokens_per_second == 8 * 7282


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("step (", "not a regular expression"), ("", "needs a group"), (r"step \d+", "needs a group")],
)
def test_a_pattern_that_cannot_work_names_the_field(pattern: str, said: str) -> None:
    with pytest.raises(PatternError, match=rf"progress\.pattern: {said}"):
        framework_of("regex", pattern)


def test_sources_without_lines_read_none() -> None:
    assert all(reader(framework).feed(DEMO, 0.0) == [] for framework in ("none", "file"))


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_every_pattern_compiles_and_every_record_has_its_hint(name: str) -> None:
    samples = [MEGATRON, PRIMUS, TITAN, NEMO, NEMO_BAR, HUGGING_BAR, LIGHTNING, DEMO, OTHER_RANK, "{'loss': 1.0}"]
    for form in FRAMEWORKS[name].formats:
        matching = [sample for sample in samples if re.search(form.record, sample)]
        assert matching
        assert all(form.hint in sample for sample in matching)


PRINTED = damaged(
    [MEGATRON, PRIMUS, TITAN, TITAN_COLOURED, NEMO, NEMO_BAR, HUGGING_BAR, LIGHTNING, LIGHTNING_NEW, DEMO, OTHER_RANK],
    ["nan", "inf", "-1", "1e999", "9" * 30, "²", "/0", ":", "|", "\x1b[31m"],
)


@given(PRINTED | st.text(), st.sampled_from(sorted(FRAMEWORKS)))
def test_no_line_breaks_a_reader(text: str, framework: str) -> None:
    for report in reader(framework).feed(text, 1.0):
        assert report.at == 1.0
        assert not isinstance(report, StepSeen) or report.step >= 0


def test_such_lines_are_steps_and_no_steps() -> None:
    for framework in ("megatron", "primus-demo"):
        assert reaches(PRINTED, lambda text, framework=framework: bool(steps(reader(framework), text)))
        assert reaches(PRINTED, lambda text, framework=framework: "step" in text and not steps(reader(framework), text))


@given(st.lists(st.integers(0, 10_000), max_size=60), st.sampled_from(["epoch", "absolute"]))
def test_a_repeated_counter_is_never_a_new_step(counters: list[int], kind: str) -> None:
    reading = reader("regex", r"step (?P<step>\d+)") if kind == "epoch" else reader("primus-demo")
    lines = [f"step {n}/9 | loss 1.0 | tokens/s 1 | step time 1 s" for n in counters]
    seen = steps(reading, *(line for line in lines for _ in range(2)))
    assert all(before.step != after.step for before, after in pairwise(seen))
