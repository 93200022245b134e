"""Failures that leave no proper ending: torn tracebacks, launchers' sweeps, numbers beyond all measure; and logs as
people paste them: broken, glued, quoted, with escaped line ends."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.pasted import relined
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

F = FaultClass

TORN = (
    '  File "segment/train.py", line 316, in train',
    "    pred = model(imgs)  # forward",
    'RuntimeErrorpred = model(imgs)  # forward  File "/opt/lib/module.py", line 1102, in _call_impl',
    ": ",
    "Expected to have finished reduction in the prior iteration before starting a new one.",
)
SPLIT = (
    'AssertionError  File "/opt/lib/python3.8/site-packages/torch/nn/modules/module.py", line 1110, in _call_impl',
    ": The dimension 0 to split, size (1) is not a multiple of world size (2), cannot split tensor evenly",
    '  File "/app/layers.py", line 976, in forward',
)
STEPS = tuple(f"step {step} loss 2.{step} 12.1 it/s" for step in range(1, 6))
PY_BT = (
    "(gdb) py-bt",
    "Traceback (most recent call first):",
    "  <built-in method allreduce of PyCapsule object at remote 0x7fb3b12c3f90>",
    '  File "/opt/lib/torch/distributed/distributed_c10d.py", line 1209, in all_reduce',
    '  File "/opt/lib/deepspeed/runtime/zero/stage2.py", line 1326, in allreduce_bucket',
)
INIT = "[ 1097.6502] NVRM: GPU 0000:04:0{}.0: RmInitAdapter failed! (0x11:0x45:{})"


def said(*texts: str, name: str = "train.log") -> Diagnosis:
    return diagnose(evidence_of([(name, texts)]))


@pytest.mark.parametrize(("texts", "kind"), [(TORN, F.USER_CODE), (SPLIT, F.CONFIG)])
def test_a_name_and_a_message_that_were_torn_apart_are_one_exception(texts: tuple[str, ...], kind: FaultClass) -> None:
    assert said(*texts).fault_class is kind
    assert said(*texts, *STEPS).fault_class is F.NONE


def test_a_name_without_a_message_is_no_torn_exception() -> None:
    assert (
        said('  File "a.py", line 3, in f', "RuntimeErrorpred = model(imgs)", "going on").fault_class is not F.USER_CODE
    )


def test_gdbs_python_stack_is_a_look_at_something_that_hangs() -> None:
    assert said(*PY_BT, name="stack.txt").fault_class is F.HANG


def test_several_gpus_that_fail_alike_are_the_drivers() -> None:
    assert said(INIT.format(1, 2525), INIT.format(2, 2525), name="dmesg.log").fault_class is F.GPU_DRIVER
    assert said(INIT.format(1, 2525), INIT.format(1, 2525), name="dmesg.log").fault_class is F.GPU_HARDWARE
    assert said(INIT.format(1, 2525), INIT.format(2, 884), name="dmesg.log").fault_class is F.GPU_HARDWARE


def test_summaries_of_lost_losses_are_no_good_steps() -> None:
    lost = [f"{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0001, 'epoch': {epoch}.5}}" for epoch in range(3)]
    assert said(*lost, "{'train_runtime': 39.0, 'train_loss': 0.0, 'epoch': 3.0}").fault_class is F.NUMERIC


@pytest.mark.parametrize(("loss", "norm", "kind"), [(59307.8, 3.8e12, F.NUMERIC), (59307.8, 38.0, F.NONE)])
def test_a_monstrous_loss_needs_a_monstrous_norm(loss: float, norm: float, kind: FaultClass) -> None:
    assert said(*(f"step: {n}, loss: {loss}, grad_norm: {norm}" for n in (50, 100))).fault_class is kind


def test_a_local_rank_of_each_node_may_be_slow() -> None:
    rows = [f"node_id {n} local_rank {r} 5313036288 bytes: {0.44 if r < 2 else 0.27701473480224} sec"
            for n in range(2) for r in range(8)]  # fmt: skip
    found = said(*rows)
    assert found.fault_class is F.STRAGGLER
    assert found.culprits == ()
    even = [row.replace("0.44", "0.28") for row in rows]
    assert said(*even).fault_class is F.NONE


def test_who_was_told_to_end_after_its_own_error_is_no_victim_and_not_alone() -> None:
    found = said(
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/app/train.py", line 3, in main',
        "[rank0]: TypeError: argument 'attn_mask' must be Tensor, not BlockMask",
        "Failures:",
        "[1]:",
        "  host      : n1",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : -15 (pid: 2657)",
        "Root Cause (first observed failure):",
        "[0]:",
        "  host      : n1",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : 1 (pid: 2658)",
    )
    assert found.fault_class is F.USER_CODE
    assert found.culprits == ()


def test_a_journals_date_in_brackets_is_followed_by_the_host() -> None:
    found = said(
        "[Sun Dec  1 14:54:40 2024] gpu-7 kernel: mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): "
        "Detected insufficient power on the PCIe slot (27W).",
        name="dmesg.log",
    )
    assert (found.fault_class, found.culprits) == (F.THERMAL_POWER, (("gpu-7", None),))


FABRIC = (
    "gpu-1:211:400 [0] NCCL INFO Using network IB",
    "gpu-1:211:400 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<41351> with"
    " status=12 opcode=0 len=0 vendor err 129 (Recv)",
    "gpu-1:211:400 [0] NCCL INFO transport/net.cc:1034 -> 6",
    "gpu-1:211:400 [0] NCCL INFO proxy.cc:694 -> 6",
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:328, remote"
    " process exited or there was a network error, NCCL version 2.21.5",
)
GLOO = (
    "INFO:root:rank 3 joins the gang of 8",
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 88, in main',
    "    dist.all_reduce(total)",
    '  File "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2501, in all_reduce',
    "    work.wait()",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
    "operation to complete",
)
SHAPES = (
    "2026-02-03 10:00:01,120 - trainer - INFO - model has 124,000,000 parameters, 12 layers and 12 heads",
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 88, in main',
    "    loss = model(batch)",
    '  File "/work/model.py", line 12, in forward',
    "    return self.head(x)",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x768 and 1024x50257)",
)
HEALTHY = tuple(
    f" iteration {step:8d}/    5000 | elapsed time per iteration (ms): 6120.4 | learning rate: 1.5E-04 | global batch "
    f"size: 256 | lm loss: {3.0 - step / 100:.6E} | loss scale: 1.0 | grad norm: 0.412 |"
    for step in range(1, 9)
)
LOGS = {F.FABRIC: FABRIC, F.COLLECTIVE_TIMEOUT: GLOO, F.USER_CODE: SHAPES, F.NONE: HEALTHY}


def broken(texts: tuple[str, ...], width: int) -> tuple[str, ...]:
    return tuple(text[start : start + width] for text in texts for start in range(0, len(text), width))


def in_words(texts: tuple[str, ...], width: int) -> tuple[str, ...]:
    return tuple(part for text in texts for part in textwrap.wrap(text, width, replace_whitespace=False))


PASTED: dict[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "80 columns": lambda texts: broken(texts, 80),
    "100 columns": lambda texts: broken(texts, 100),
    "broken between words": lambda texts: in_words(texts, 90),
    "one line": lambda texts: (" ".join(texts),),
    "one line without gaps": lambda texts: ("".join(texts),),
    "escaped": lambda texts: ("\\n".join(texts),),
    "a JSON text": lambda texts: (json.dumps("\n".join(texts)),),
    "a list of texts": lambda texts: tuple(f"    '{text}'," for text in texts),
    "quoted": lambda texts: tuple(f"> {text}" for text in texts),
}


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("paste", PASTED.values(), ids=PASTED)
def test_a_log_is_read_as_it_was_printed_however_it_was_pasted(
    paste: Callable[[tuple[str, ...]], tuple[str, ...]], kind: FaultClass
) -> None:
    assert said(*LOGS[kind]).fault_class is kind
    assert said(*paste(LOGS[kind])).fault_class is kind


def test_one_line_that_is_broken_in_two_is_joined_where_both_say_more_than_each() -> None:
    halves = (
        "NET/IB : Got completion from peer 10.0.0.2<41351> with",
        "status=12 opcode=0 len=0 vendor err 129 (Recv)",
    )
    assert relined(halves, 7) == [(7, " ".join(halves))]
    assert said(*halves).fault_class is F.FABRIC


@pytest.mark.parametrize(
    "texts",
    [
        (
            "NAME      STATUS     AGE   VERSION",
            "gpu-01    NotReady   72d   v1.20.6",
            "gpu-02    Ready      72d   v1.20.6",
        ),
        ("{'loss': 2.31, 'epoch': 0.1}", "{'loss': 2.30, 'epoch': 0.2}", "{'loss': 2.29, 'epoch': 0.3}"),
        ("=" * 80, "a title", "=" * 80, "a line below it"),
        FABRIC,
        GLOO,
        HEALTHY,
    ],
)
def test_a_log_as_it_was_printed_is_left_alone(texts: tuple[str, ...]) -> None:
    assert relined(texts) == list(enumerate(texts, 1))


def test_what_was_taken_apart_keeps_its_line_number() -> None:
    glued = " ".join(SHAPES)
    assert {number for number, _ in relined(["", glued], 7)} == {8}


def test_colours_break_no_line() -> None:
    assert said(*(f"\x1b[31m{text}\x1b[0m" for text in SHAPES)).rule == said(*SHAPES).rule
