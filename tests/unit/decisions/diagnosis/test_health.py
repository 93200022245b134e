"""Healthy logs stay healthy, whatever alarming words stand in them; and words of failure make a log unclear."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.healthy import (
    BEGUN_ONLY,
    CAUSE_UNTOLD,
    ENDED_WELL,
    GOES_ON,
    SILENT,
    WORDS_ONLY,
    speaks_of_trouble,
)
from flows.decisions.diagnosis.selection import evidence_of
from flows.decisions.diagnosis.steps import step_of
from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import answer, cases
from tests.support.cases.corpus_variants import NOISY_LINES
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass
STEPS = tuple(
    f" iteration {number:8d}/  500000 | elapsed time per iteration (ms): 6120.4 | lm loss: {9 - number / 10:.6E} |"
    for number in range(1, 13)
)
PASSING = (
    "[W301 10:00:03.5 socket.cpp:759] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 111 - "
    "Connection refused). Retrying...",
    "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
    "    will not load any checkpoints and will start from random",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded with url: /x",
    "wandb: ERROR Run initialization has timed out after 90.0 sec.",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "ValueError: could not decode image 17 of shard 3",
    "Failed to upload the profile, will try at the end",
)
"""Alone they would be evidence; after each of them the training goes on."""


def read(*texts: str) -> Diagnosis:
    return diagnose(evidence_of([("train.log", texts)]))


@pytest.mark.parametrize(
    "case", [case for case in cases("development") if case.expected is F.NONE], ids=lambda x: x.name
)
def test_a_healthy_log_of_the_corpus_is_healthy(case: object) -> None:
    found = answer(case)  # type: ignore[arg-type]
    assert found.right, (found.diagnosis.fault_class, found.diagnosis.why)


@pytest.mark.parametrize("text", NOISY_LINES, ids=range(len(NOISY_LINES)))
def test_a_noisy_line_is_no_failure(text: str) -> None:
    found = read(text)
    assert found.fault_class is F.NONE, (found.fault_class, found.why)


def test_all_noisy_lines_together_are_no_failure() -> None:
    assert len(NOISY_LINES) > 150
    assert read(*NOISY_LINES).fault_class is F.NONE
    stepless = [
        text for text in NOISY_LINES if step_of(LogLine(text, "")) is None
    ]  # a step of another count falls back
    assert read(*STEPS[:6], *stepless, *STEPS[6:]).fault_class is F.NONE


@pytest.mark.parametrize("text", PASSING, ids=range(len(PASSING)))
def test_what_training_outlives_is_no_failure(text: str) -> None:
    found = read(*STEPS[:2], text, *STEPS[2:])
    assert found.fault_class is F.NONE, (found.fault_class, found.why)
    assert read(text, *STEPS).fault_class is F.NONE


@pytest.mark.parametrize(
    ("texts", "expected", "confidence"),
    [
        ((*STEPS, "[after training is done] datetime: 2024-08-01 09:44:58"), F.NONE, ENDED_WELL),
        ((*STEPS, "[exiting program after 690.01 minutes] datetime: 2026-08-25 19:54:10"), F.NONE, ENDED_WELL),
        (STEPS, F.NONE, GOES_ON),
        (("reading the tokenizer", "building the model"), F.UNKNOWN, BEGUN_ONLY),
        (("world size 8", "Initializing process group", "Loading checkpoint shards"), F.UNKNOWN, BEGUN_ONLY),
        (("Using device: cuda", "number of parameters: 124M", "compiling the model..."), F.UNKNOWN, BEGUN_ONLY),
        (("NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", "NCCL version 2.21.5+cuda12.4"), F.UNKNOWN, BEGUN_ONLY),
        (("building the model", "the model was built in 3.2 s", "loading data"), F.NONE, SILENT),
        (("building the model", "parameters: 124000000"), F.NONE, SILENT),
        ((*STEPS, "main: command terminated with exit code 1"), F.UNKNOWN, CAUSE_UNTOLD),
        ((*STEPS, "the flux capacitor failed to charge"), F.UNKNOWN, WORDS_ONLY),
        ((*STEPS, "2025-03-01 10:00:00 - trainer - CRITICAL - giving in"), F.UNKNOWN, WORDS_ONLY),
        ((*STEPS, "Traceback (most recent call last):", '  File "train.py", line 7, in step'), F.UNKNOWN, CAUSE_UNTOLD),
        (("the flux capacitor failed to charge", *STEPS), F.NONE, GOES_ON),
    ],
)
def test_how_sure_it_is(texts: tuple[str, ...], expected: FaultClass, confidence: float) -> None:
    found = read(*texts)
    assert (found.fault_class, found.confidence) == (expected, confidence)


@pytest.mark.parametrize("texts", [(), ("", "   ")])
def test_no_line_at_all_tells_nothing(texts: tuple[str, ...]) -> None:
    assert read(*texts).fault_class is F.UNKNOWN


@rows("diagnosis/health")
def test_words_of_trouble(text: str, source: str, expected: bool) -> None:
    assert speaks_of_trouble(LogLine(text, source)) is expected
