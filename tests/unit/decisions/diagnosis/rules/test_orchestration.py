"""What schedulers, clouds, platforms and control planes say, in many wordings, and what their victims say beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

F = FaultClass
TOLD = tuple(
    (FaultClass(kind), text)
    for kind, text in (
        line.split(" | ", 1)
        for line in (Path(__file__).parent / "told_lines.txt").read_text(encoding="utf-8").splitlines()
    )
)
WATCHDOG = (
    "[rank0]:[E302 14:21:51.120934411 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=97345, OpType=ALLREDUCE, NumelIn=8388608, NumelOut=8388608, Timeout(ms)=600000) ran for 600004 ms"
)
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"
PENDING = "Warning  FailedScheduling  2m  default-scheduler  0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
NOT_READY = "16m  Normal  NodeNotReady  node/gpu-b-11  Node gpu-b-11 status is now: NodeNotReady"
SPOT = "49m  Warning  SpotInterrupted  node/gpu-b-11  Spot interruption warning was triggered"
AWAY = "E0711 02:40:12 1 leaderelection.go:332] error retrieving resource lock op: etcdserver: request timed out"
STEPS = tuple(f"step {number} | loss {4 - number / 10:.2f} | tok/s 38211" for number in range(1, 9))
INDEX = "IndexError: list index out of range"


def read(**files: tuple[str, ...]) -> Diagnosis:
    return diagnose(evidence_of((name.replace("_", "-") + ".log", texts) for name, texts in files.items()))


@pytest.mark.parametrize(("expected", "text"), TOLD, ids=range(len(TOLD)))
def test_a_line_alone_tells_the_class(expected: FaultClass, text: str) -> None:
    found = read(job=(text,))
    assert found.fault_class is expected, (found.fault_class, found.why)
    assert found.culprits == () or expected is F.UNKNOWN  # a rank that ended, whyever


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"events": (SPOT, NOT_READY, PENDING), "rank_0": (*STEPS, WATCHDOG)}, F.PREEMPTED),
        ({"events": (NOT_READY, PENDING), "rank_0": (*STEPS, WATCHDOG)}, F.NODE_LOST),
        (
            {"events": (PENDING,), "rank_0": ("DistStoreError: Timed out after 901 seconds waiting for clients.",)},
            F.SCHEDULING,
        ),
        ({"operator": (AWAY,), "rank_0": STEPS}, F.CONTROL_PLANE),
        ({"operator": (AWAY,), "rank_0": (*STEPS, RESET)}, F.CONTROL_PLANE),
        (
            {"slurm": (*STEPS, INDEX, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")},
            F.USER_CODE,
        ),
        (
            {"slurm": (*STEPS, INDEX, "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2025-01-10T15:27:25 ***")},
            F.USER_CODE,
        ),
        ({"slurm": (*STEPS, "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2025-01-10T15:27:25 ***")}, F.PREEMPTED),
        (
            {"slurm": (*STEPS, INDEX, "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2025-01-10T15:27:25 ***")},
            F.USER_CODE,
        ),
        (
            {"job": (*STEPS, INDEX, "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.")},
            F.USER_CODE,
        ),
        ({"job": (*STEPS, INDEX, "PyTorchJob llama is failed because 1 Worker replica(s) failed.")}, F.USER_CODE),
        (
            {"ray": (INDEX, "rpc_client.h:203: Failed to connect to GCS within 60 seconds. GCS may have been killed.")},
            F.USER_CODE,
        ),
    ],
)
def test_causes_win_over_what_follows_from_them(files: dict[str, tuple[str, ...]], expected: FaultClass) -> None:
    assert read(**files).fault_class is expected
