"""What healthy logs print, and no failure: parts of them, several runs in one file, warnings, finalisers."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.lines import gather
from flows.decisions.diagnosis.observers.outliers import in_turn, sparse
from flows.decisions.diagnosis.observers.peers import peers
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import CorpusCase, cases

F = FaultClass
MOST_FALSE_ALARMS = 0.015
"""Share of halves of healthy logs: cut before its good end, a log may look as if it had stopped."""
DLERROR = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:55] Could not load dynamic library 'libnvinfer.so.6'; "
    "dlerror: libnvinfer.so.6: cannot open shared object file: No such file or directory"
)
FIRST_RUN = """iter 230: loss 2.0351, time 1465.54ms, mfu 1.54%
iter 240: loss 1.9978, time 1289.41ms, mfu 1.53%
step 250: train loss 1.9143, val loss 2.0356"""
NEXT_RUN = """step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2638, time 19062.76ms, mfu -100.00%
iter 10: loss 3.1451, time 140.00ms, mfu 2.66%"""
SLICED = "ValueError: mat1 and mat2 shapes cannot be multiplied"
HEALTHY = {
    "two runs in one file": f"{FIRST_RUN}\n\n## Baseline NanoGPT\n\n{NEXT_RUN}",
    "an optional library of TensorFlow": f"2020-09-18 15:50:29.486477: {DLERROR}",
    "the same, quoted and behind mpirun's prefix": f"    Thu Jun 18 14:28:35 2020[1,5]<stderr>:2020-06-18 14:28:35.30: "
    f"{DLERROR}",
    "a warning that goes on further to the right": """WARNING: nvidia-installer was forced to guess the X library path
         these paths failed to be found, and X is unable to start without them
Driver file installation is complete.""",
    "a failure that is only thought of": "If X fails to find the NVIDIA X driver module, please install pkg-config",
    "a degraded node that there is none of": "degraded nodes would have shown single-digit GB/s here.",
    "errors that are measures": "    Mean Squared Error (MSE): 0.2738\n    Mean Absolute Error (MAE): 0.4924",
    "readiness while a container starts": """Events:
  Normal   Started    2m41s   kubelet  Container started
  Warning  Unhealthy  2m37s (x3 over 2m39s)  kubelet
           Readiness probe failed: Get "http://10.244.5.53:80/healthz":
           dial tcp 10.244.5.53:80: connect: connection refused""",
    "two finalisers print through each other": """Epoch 3:  50%|#####     | 10/20 [00:05<00:05,  2.00it/s]
Exception ignored in: Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f94><function x>
Traceback (most recent call last):
  File "/opt/conda/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1328, in __del__
if w.is_alive():
    assert self._parent_pid == os.getpid(), 'can only test a child process'
AssertionError: Traceback (most recent call last):
can only test a child process  File "/opt/conda/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1328
AssertionError: can only test a child process""",
    "a benchmark of another device": """##### GPU: AMD Radeon VII 16GB
1  images/sec: 241.7 +/- 0.0 (jitter = 0.0)  8.220
10  images/sec: 241.6 +/- 0.2 (jitter = 0.5)  7.880
20  images/sec: 241.3 +/- 0.2 (jitter = 0.7)  7.910
30  images/sec: 241.3 +/- 0.2 (jitter = 0.9)  7.820
40  images/sec: 236.9 +/- 2.0 (jitter = 1.1)  8.004
-
total images/sec: 238.68
##### CPU: AMD Ryzen 9 3900X 12- (24) @ 3.800GHz
Step    Img/sec total_loss
1       images/sec: 5.7 +/- 0.0 (jitter = 0.0)  8.108
10      images/sec: 5.8 +/- 0.0 (jitter = 0.1)  8.122
20      images/sec: 5.7 +/- 0.0 (jitter = 0.1)  7.983
30      images/sec: 5.8 +/- 0.0 (jitter = 0.1)  7.780""",
    "rates a GPU, step by step": "\n".join(
        f"Step: {step} | Time: {time}s | TFLOPs/s/GPU: {flops} | Tokens/s/GPU: {rate} | Loss: {3.0 / step:.4f}"
        for step, time, flops, rate in (
            (1, 27.02, 513.3, 1213), (2, 15.12, 917.7, 2168), (3, 15.28, 907.6, 2144), (4, 14.53, 954.9, 2256),
            (5, 14.54, 954.0, 2254), (6, 14.55, 953.7, 2253),
        )
    ),
    "pods whose names hold the word to": "\n".join(
        f"gpu-operator-node-feature-discovery-worker-6rv{name}2   1/1   Running   {restarts}   {restarts}m"
        for name, restarts in (("a", 3), ("b", 9), ("a", 3), ("b", 9), ("c", 40), ("c", 40))
    ),
}  # fmt: skip


def read(text: str) -> Diagnosis:
    return diagnose(evidence_of([("train.log", text.split("\n"))]))


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong(name: str) -> None:
    found = read(HEALTHY[name])
    assert found.fault_class is F.NONE, (found.fault_class, found.why)


def test_halves_of_healthy_logs_are_healthy() -> None:
    healthy = [case for case in cases("development") if case.expected is F.NONE]
    alarms = [(case.name, found.rule) for case in healthy for found in _halves(case) if found.fault_class is not F.NONE]
    assert len(healthy) > 150
    assert len(alarms) <= MOST_FALSE_ALARMS * 2 * len(healthy), alarms


def _halves(case: CorpusCase) -> list[Diagnosis]:
    parts = [
        [(name, lines[: len(lines) // 2]) for name, lines in case.files if len(lines) > 1],
        [(name, lines[len(lines) // 2 :]) for name, lines in case.files],
    ]
    return [diagnose(evidence_of(part)) for part in parts if part]


RESTARTED = f"{FIRST_RUN}\nworker 3 failed, restarting the run\n{NEXT_RUN}"
LATER = {
    "a restart is told": (RESTARTED, F.STARTED_OVER),
    "nothing stands between": (f"{FIRST_RUN}\n{NEXT_RUN}", F.STARTED_OVER),
    "the same library is loaded by the program": (
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory", F.CONFIG,
    ),
    "a failure after the warning": (
        f"WARNING: the cache is old\n{SLICED}", F.USER_CODE,
    ),
    "an exception after the ignored one": (
        "Exception ignored in: <function Loader.__del__ at 0x7f94>\nTraceback (most recent call last):\n"
        '  File "/w/loader.py", line 13, in __del__\nAttributeError: x\nTraceback (most recent call last):\n'
        '  File "/w/train.py", line 3, in main\n    y = f(x)\n' + SLICED, F.USER_CODE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER)
def test_what_is_wrong_is_still_seen(name: str) -> None:
    text, expected = LATER[name]
    assert read(text).fault_class is expected


ROWS = "\n".join(f"rank {rank}: step time {1900 if rank == 5 else 800 + rank} ms" for rank in range(8))


def test_a_straggler_seen_in_numbers_counts_only_where_the_training_did_not_come_to_its_end() -> None:
    assert read(ROWS).fault_class is F.STRAGGLER
    assert read(f"{ROWS}\nstep 400 loss 2.1\nTraining completed.").fault_class is F.NONE
    named = "Straggler detected: rank 5\nstep 400 loss 2.1\nTraining completed."
    assert read(named).fault_class is F.STRAGGLER


def test_rows_that_count_on_are_moments_and_numbers_far_apart_are_no_members() -> None:
    assert in_turn(["step 1 loss 2", "step 2 loss 2", "step 3 loss 2"])
    assert not in_turn(["step 7 rank 0", "step 7 rank 1", "step 7 rank 2"])
    assert not in_turn(["rank 0 is slow", "step 2", "step 3"])
    assert sparse(["gpu 1213", "gpu 2168", "gpu 2144", "gpu 99"])
    assert not sparse(["rank 0", "rank 9", "rank 64", "rank 127"])
    assert not sparse(["node-1", "node-900"])


def test_what_follows_a_slash_is_a_unit() -> None:
    texts = [f"Tokens/s/GPU: {number} | Time: {27 if number == 3 else 14} ms per step" for number in range(3, 10)]
    assert list(peers(gather(evidence_of([("train.log", texts)])))) == []


def test_what_stands_quoted_is_read_as_if_it_were_not() -> None:
    text = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in main\n    y = f(x)\n' + SLICED
    plain = read(text)
    for mark in ("    ", "> ", "# ", "    # "):
        quoted = read("\n".join(f"{mark}{line}" for line in text.split("\n")))
        assert (quoted.fault_class, quoted.rule, quoted.confidence) == (F.USER_CODE, plain.rule, plain.confidence)
