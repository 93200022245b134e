"""Logs of what users, their data and their storage do wrong, in the forms that launchers and libraries give them."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

F = FaultClass
HEAD = "Traceback (most recent call last):"
WORKER = '  File "/opt/conda/lib/python3.10/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop'
DATASET = '  File "/workspace/data/dataset.py", line 55, in __getitem__'
CHAINED = ("", "During handling of the above exception, another exception occurred:", "", HEAD)
DIRECT = ("", "The above exception was the direct cause of the following exception:", "", HEAD)
STEPS = tuple(f"step {number} loss 2.{number}" for number in range(1, 6))

LOGS: dict[str, tuple[FaultClass, tuple[str, ...]]] = {
    "a command that the image has not": (F.CONFIG, ("bash: line 1: torchrun: command not found",)),
    "a shell of another system": (F.CONFIG, ("/opt/run.sh: /bin/bash^M: bad interpreter: No such file or directory",)),
    "a setting that does not exist": (
        F.CONFIG,
        ("Error executing job with overrides: ['x=10']", "Could not override 'x'.", "Key 'x' is not in struct"),
    ),
    "an exception that Ray wraps": (
        F.USER_CODE,
        (
            "(Actor pid=1234) ray.exceptions.RayTaskError(TypeError): ray::Worker.next() (pid=1300, ip=10.0.0.3)",
            '(Actor pid=1234)   File "train.py", line 50, in train_func',
            "(Actor pid=1234) TypeError: forward() takes 2 positional arguments but 3 were given",
        ),
    ),
    "an error file of torchelastic": (
        F.CONFIG,
        ('  "message": {', '    "message": "ModuleNotFoundError: No module named \'apex\'",'),
    ),
    "the later of two chained ones says what it was": (
        F.CONFIG,
        (
            HEAD, '  File "/x/transformers/models/auto/auto_factory.py", line 800, in __getitem__', "KeyError: 'qwen9'",
            *CHAINED, '  File "train.py", line 10, in <module>',
            "ValueError: The checkpoint has model type `qwen9` but Transformers does not recognize this architecture.",
        ),
    ),
    "the first of two chained ones says what it was": (
        F.STORAGE,
        (
            HEAD, '  File "/opt/lib/python3.10/site-packages/s3fs/core.py", line 113, in _error_wrapper',
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation",
            *DIRECT, '  File "train.py", line 10, in save', "OSError: [Errno 16] something else",
        ),
    ),
    "a picture that a worker could not read": (
        F.DATA,
        (
            *STEPS, "OSError: Caught OSError in DataLoader worker process 3.", f"Original {HEAD}", WORKER, DATASET,
            "OSError: image file is truncated (31 bytes not processed)",
        ),
    ),
    "a file system that failed under a worker": (
        F.STORAGE,
        (
            *STEPS, "OSError: Caught OSError in DataLoader worker process 3.", f"Original {HEAD}", WORKER, DATASET,
            "OSError: [Errno 5] Input/output error: '/mnt/lustre/shard-003.bin'",
        ),
    ),
    "a picture that is not there": (
        F.DATA,
        (
            "FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 1.", f"Original {HEAD}", WORKER,
            DATASET, "FileNotFoundError: [Errno 2] No such file or directory: '/data/coco/000000391895.jpg'",
        ),
    ),
    "a configured file that is not there": (
        F.CONFIG,
        (HEAD, '  File "train.py", line 5, in <module>', "FileNotFoundError: [Errno 2] No such file: 'conf/a.yaml'"),
    ),
    "a checkpoint of another layout": (
        F.CHECKPOINT_MISMATCH,
        (
            HEAD, '  File "/w/megatron/checkpointing.py", line 55, in _compare',
            "AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (32).",
        ),
    ),
    "a table that is no table": (
        F.CHECKPOINT_CORRUPT,
        ("DATA_LOSS: Unable to open table file /ckpt/model.ckpt-1000: DATA_LOSS: not an sstable (bad magic number)",),
    ),
    "a write that failed": (
        F.STORAGE,
        (*STEPS, HEAD, "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 5293248 vs 5293140"),
    ),
    "a layer that another program prints": (F.STORAGE, ("write /var/lib/containerd/x: no space left on device",)),
    "an index out of range on the GPU": (
        F.USER_CODE,
        ("Loss.cu:242: nll_loss: block: [0,0,0], thread: [0,0,0] Assertion `t >= 0 && t < n_classes` failed.",),
    ),
    "a loss without a number": (F.NUMERIC, ("Loss is nan, stopping training",)),
    "rights that the bucket does not give": (
        F.CONFIG,
        ("botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden",),
    ),
}  # fmt: skip

HEALTHY: dict[str, tuple[str, ...]] = {
    "an exporter that could not report": (
        HEAD, '  File "/w/metrics.py", line 5, in push', "requests.exceptions.ConnectionError: Max retries exceeded",
        *STEPS, "Training completed",
    ),
    "optional parts that are missing": ("WARNING: No module named 'apex', using the slow path", *STEPS),
    "pictures that are decoded all the same": ("Premature end of JPEG file", *STEPS),
    "requests that are tried again": (
        "WARNING:urllib3:Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool("
        "host='s3.example', port=443): Read timed out.\")': /data/0",
        *STEPS,
    ),
    "a first start": ("Could not find any checkpoint in /ckpt, starting from scratch", *STEPS),
    "volumes that are mounted a second later": (
        "  Warning  FailedMount  12s  kubelet  MountVolume.SetUp failed for volume \"kube-api\" : failed to sync "
        "configmap cache: timed out waiting for the condition",
        "  Normal   Started      5s   kubelet  Started container trainer",
    ),
}  # fmt: skip


def found(texts: tuple[str, ...]) -> Diagnosis:
    return diagnose(evidence_of([("train.log", texts)]))


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_told_by_what_it_says(name: str) -> None:
    kind, texts = LOGS[name]
    assert found(texts).fault_class is kind


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_is_no_failure(name: str) -> None:
    assert found(HEALTHY[name]).fault_class is F.NONE


def test_no_user_error_blames_a_machine() -> None:
    users = [texts for kind, texts in LOGS.values() if kind is not F.STORAGE]
    assert not any(found(texts).node_suspect for texts in users)


def test_nodes_are_named_where_the_client_was_evicted() -> None:
    text = "[1.5] LustreError: 167-0: scratch-OST0012-osc: This client was evicted by scratch-OST0012; in progress"
    assert diagnose(evidence_of([("dmesg-gpu-n03.log", [text])])).culprits == (("gpu-n03", None),)
