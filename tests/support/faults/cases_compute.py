"""Cases of what our own probes tell of GPUs, storage and arithmetic: told by a stand-in, since there is no GPU here."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.hardware import HardwareProfile
from profiles.vocabulary import FaultClass, NodeAction
from tests.support.faults.cases import (
    DISK,
    GPU,
    HEAT,
    PASSES,
    SLOW_GPU,
    WARNED_OF,
    Case,
    Expect,
    check_of,
    fails,
    good_answer,
)
from tests.support.faults.changes import BOTH, SOME
from tests.support.faults.node import VirtualNode

A, F = NodeAction, FaultClass
WRONG_VALUES = fails(F.NUMERIC, A.QUARANTINE)
SLOW = fails(F.STRAGGLER, A.VALIDATE, certain=False)


def told(
    name: str, check: str, expect: Expect, share: float, subject: str = "gpu 3", kinds: Sequence[str] = BOTH
) -> list[Case]:
    """The check's probe tells one figure that is that share of what passes; of counts (no subject): that many."""
    own = check_of(check)
    probe = own.probe.name if own.probe else ""

    def make(made: VirtualNode, hardware: HardwareProfile) -> None:
        bounds = [bound.figure for bound in own.bounds_on(hardware)]
        figure = share * max((one for one in bounds if one), default=100.0) if subject else share
        made.answers[probe] = good_answer(probe, hardware, {(own.quantity, subject): figure})

    changed = f"{subject}: {share:g} x the limit" if subject else f"{own.quantity}: {share:g}"
    return [Case(f"{name} ({kind})", kind, check, expect, make, changed) for kind in kinds]


COMPUTE: list[Case] = [
    *told("all GPUs compute fast enough", "gemm-bf16", PASSES, 1.02, kinds=SOME),
    *told("a GPU computes slowly", "gemm-bf16", SLOW_GPU, 0.9, kinds=SOME),
    *told("a GPU computes slowly in fp16", "gemm-fp16", SLOW_GPU, 0.7),
    *told("a GPU computes slowly in fp8", "gemm-fp8", SLOW_GPU, 0.7),
    *told("a GPU computes wrong values", "gemm-correct", GPU, 3.0, ""),
    *told(
        "a GPU's memory is slow",
        "hbm-bandwidth",
        SLOW_GPU,
        0.8,
        kinds=("h100", "mi300x", "mi355x"),
    ),
    *told("a GPU's memory forgets", "gpu-memory-correct", GPU, 1.0, ""),
    *told("copies to a GPU are slow", "host-to-gpu", SLOW_GPU, 0.5),
    *told("copies from a GPU are slow", "gpu-to-host", SLOW_GPU, 0.5),
    *told("copies between GPUs are slow", "gpu-to-gpu", SLOW_GPU, 0.5),
    *told("an all-reduce is slow", "all-reduce-in-node", SLOW_GPU, 0.6),
    *told("an all-reduce is wrong", "all-reduce-in-node-correct", GPU, 2.0, ""),
    *told("a product beside a copy is wrong", "overlap-correct", GPU, 2.0, ""),
    *told("a GPU slows down under load", "throttle-under-load", HEAT, 1.0, "", SOME),
    *told("a GPU without its power", "power-under-load", WARNED_OF, 0.5),
    *told("a GPU cannot be opened", "gpu-bindable", GPU, 7.0, ""),
    *told("a product that is not finite", "gpu-finite-gemm", GPU, 1.0, ""),
    *told("a loss that is not finite", "training-finite", WRONG_VALUES, 1.0, ""),
    *told("a training that is slow", "training-rate", SLOW, 0.5),
    *told(
        "a node that computes wrong values",
        "cpu-gemm-correct",
        WRONG_VALUES,
        1.0,
        "",
        ("cpu",),
    ),
    *told("storage that forgets", "storage-correct", DISK, 4096.0, "", ("h100", "cpu")),
]

CASES: tuple[Case, ...] = tuple(COMPUTE)
