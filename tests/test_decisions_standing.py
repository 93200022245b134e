"""Where a line stands: waits that ended, control planes that came back, crashes after the work was done."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.retractions import standing
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

F = FaultClass
STEPS = tuple(f"step {number} | loss {4 - number / 10:.2f} | tok/s 38211" for number in range(1, 9))
PENDING = "Warning  FailedScheduling  5m  default-scheduler  0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
PLACED = "Normal  Scheduled  3m  default-scheduler  Successfully assigned ml/train-0 to gpu-3"
LEASE = "E0711 02:40:12.5 1 leaderelection.go:332] error retrieving resource lock op: etcdserver: request timed out"
PARTED = (
    "W0301 10:00:01.0 41 dynamic_rendezvous.py:1267] The node 'a_0' has failed to shutdown the rendezvous 'none' due "
    "to an error of type RendezvousConnectionError."
)
OTHER_PLACED = "2m  Normal  Scheduled  pod/train-0  Successfully assigned ml/train-0 to gpu-3"
OTHER_WAITS = "5m  Warning  FailedScheduling  pod/train-1  0/4 nodes are available: 4 Insufficient nvidia.com/gpu."


def read(*texts: str, name: str = "train.log") -> Diagnosis:
    return diagnose(evidence_of([(name, texts)]))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((PENDING,), F.SCHEDULING),
        ((PENDING, PLACED), F.NONE),
        ((PLACED, PENDING), F.SCHEDULING),
        ((OTHER_WAITS, OTHER_PLACED), F.SCHEDULING),
        ((OTHER_WAITS.replace("train-1", "train-0"), OTHER_PLACED), F.NONE),
        (("srun: job 4711 queued and waiting for resources", "srun: job 4711 has been allocated resources"), F.NONE),
        (("(autoscaler +5s) Error: No available node types can fulfill resource request {'GPU': 8.0}",), F.SCHEDULING),
        (
            (
                "(autoscaler +5s) Error: No available node types can fulfill resource request {'GPU': 8.0}",
                "(autoscaler +1m5s) Resized to 16 CPUs, 8 GPUs.",
            ),
            F.NONE,
        ),
        ((LEASE,), F.CONTROL_PLANE),
        ((LEASE, "I0711 02:41:02.1 1 leaderelection.go:258] successfully acquired lease op"), F.NONE),
        (("I0711 02:39:02.1 1 leaderelection.go:258] successfully acquired lease op", LEASE), F.CONTROL_PLANE),
        ((*STEPS, "Training completed", "Segmentation fault (core dumped)"), F.NONE),
        ((*STEPS, "Training completed", "terminate called without an active exception"), F.NONE),
        (
            (*STEPS, "Training completed", "W0401 00:26:06 api.py:897] Sending process 42 closing signal SIGTERM"),
            F.NONE,
        ),
        ((*STEPS, "Training completed", PARTED), F.NONE),
        ((*STEPS, PARTED), F.RENDEZVOUS),
        ((*STEPS, "Training completed", "OSError: [Errno 28] No space left on device"), F.STORAGE),
        ((*STEPS, "Segmentation fault (core dumped)", "Training completed"), F.NONE),
    ],
)
def test_what_comes_later_takes_back_what_stood_before(texts: tuple[str, ...], expected: FaultClass) -> None:
    assert read(*texts).fault_class is expected


IGNORED = (
    "Exception ignored in: <function Loader.__del__ at 0x7f1c>",
    "Traceback (most recent call last):",
    '  File "/work/loader.py", line 1, in __del__',
    "    self._shutdown_workers()",
    "AttributeError: 'NoneType' object has no attribute 'close'",
)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((*STEPS, *IGNORED), F.NONE),
        ((*STEPS, "--- Logging error ---", *IGNORED[1:]), F.NONE),
        ((*STEPS, "Exception ignored in: <_io.TextIOWrapper>", "BrokenPipeError: [Errno 32] Broken pipe"), F.NONE),
        ((*STEPS, *IGNORED[1:]), F.USER_CODE),
        ((*STEPS, *IGNORED, "IndexError: list index out of range"), F.USER_CODE),
    ],
)
def test_what_python_ignored_ended_nothing(texts: tuple[str, ...], expected: FaultClass) -> None:
    assert read(*texts).fault_class is expected


def test_the_steps_of_the_gang_outlive_what_one_rank_said_in_the_same_file() -> None:
    reset = "[rank3]: ConnectionResetError: [Errno 104] Connection reset by peer"
    assert read("[rank: 0] Received SIGTERM: 15", *STEPS).fault_class is F.NONE
    assert read(reset, *STEPS).fault_class is F.NONE
    assert read(*STEPS, reset).fault_class is not F.NONE
    beside = diagnose(evidence_of([("a.log", STEPS), ("b.log", (reset,))]))
    assert beside.fault_class is not F.NONE


def test_a_crash_in_the_middle_is_no_farewell() -> None:
    assert read(*STEPS, "Segmentation fault (core dumped)").fault_class is not F.NONE


def test_the_first_end_and_the_last_return_are_remembered() -> None:
    texts = ("successfully acquired lease a", "training finished", "training finished", "successfully acquired lease b")
    where = standing([LogLine(text, "file", None, "", None, "x.log", number) for number, text in enumerate(texts, 1)])
    assert (where.done, where.back, where.granted) == (2, 4, ())
