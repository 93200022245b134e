"""Fabric, hangs and slow members in words that many tools use: the class, who is blamed, and what stays healthy."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

F = FaultClass
STEPS = "step 1 loss 2.1\nstep 2 loss 2.0"


def told(files: dict[str, str]) -> Diagnosis:
    return diagnose(evidence_of([(name, text.split("\n")) for name, text in files.items()]))


def watchdog(rank: int) -> str:
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=881, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds "
        "before timing out."
    )


def raised(rank: int, error: str) -> str:
    rows = ("Traceback (most recent call last):", '  File "/w/train.py", line 88, in <module>', "    main()", error)
    return "\n".join(f"[rank{rank}]: {row}" for row in rows)


FABRIC = (
    "[1,31]<stderr>:[clx-046:20804:0:20804]    ud_iface.c:780  Fatal: transport error: Endpoint timeout",
    "[xm066:789921:1:790043] ib_mlx5_log.c:171  Remote access on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)",
    "[node2:19381] pml_ucx.c:424  Error: ucp_ep_create(proc=2) failed: Endpoint timeout",
    "[gpu01:0:221:a] ib_device.c:468 UCX DIAG  IB Async event on mlx5_3: port error on port 1",
    "[0] NCCL WARN NET/OFI fi_cq_readerr: RC: 5, Error: Input/output error, prov_errno 14 (Local HW error)",
    "RuntimeError: [/gloo/gloo/transport/ibverbs/pair.cc:460] wc->status == IBV_WC_SUCCESS. 12 vs 0.",
    "NCCL WARN socketPollConnect: Connect to 10.0.2.2<41111> returned 110(Connection timed out)",
    "[[12,1],3][btl_tcp_endpoint.c:730:complete_connect] connect() to 10.0.5.9 failed: No route to host",
    "bnxt_re0: bnxt_qplib_rcfw_wait_for_resp: cmdq[0x13]=0x1 timedout (60000 msec)",
    "mlx5_core 0000:9b:00.0 eth4: TX timeout on queue: 14, SQ: 0x11b, CQ: 0x58c, SQ Cons: 0x3 SQ Prod: 0x1d",
    "hfi1 0000:82:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)",
    "cxi_core 0000:03:00.0: cxi0[hsn0] CXI_EVENT_LINK_DOWN",
    "-W- lid=0x0014 dev=4123 gpu-17/U1/P1 Performance Monitor counter : symbol_error_counter = 0x1a2f (overflow)",
    'opensm: osm_spst_rcv_process: Switch 0x248a0703 MF0;leaf3 port 22("gpu-07") changed state from ACTIVE to DOWN',
    "RDMA link mlx5_3 is DEGRADED: speed 200G instead of 400G",
    "Failed to modify QP to RTR: Connection timed out",
    "ALERT rdma_port_down host=gpu-17 device=mlx5_5",
    "rail 5 bandwidth 12.1 Gb/s on gpu-07, expected 380 Gb/s",
    "mlx5_core 0000:5e:00.0: Port module event[error]: module 1, Bus stuck (I2C or data shorted)",
)
HANGS = (
    "dlrover diagnosis: TRAINING_HANG observed, all workers' last step 311 unchanged for 1800 secs",
    "Watchdog triggered because step has not incremented in the last 1800 seconds and the host is idle.",
    "RuntimeError: Train loop watchdog: main thread did not make progress in 1800 s",
    "GPU utilization of job train-7b has been 0% for 60 minutes, terminating the job as idle",
    "RayTrainWorker pid=1 No results reported from workers in 1800s. Training might be hung.",
    "[ft_launcher] Worker rank=11 hang: last heartbeat 1213.1s ago > 900",
    "NCCL RAS: Communicator 0x7f: INCOMPLETE\n  Missing communicator data from 1 job process",
    "ranks [3, 7] have not reported progress for 600 seconds",
    "collective_stuck: seq_id=1233 op=ALLREDUCE elapsed=1801s missing_ranks=[9]",
    "ERROR: step timer expired after 3600.0 s; dumping all thread stacks",
    "[Flight Recorder] Collective sequence 221: ranks [0,1,2] entered ALLREDUCE, rank 3 never entered",
)
HEALTHY = (
    "\n".join(f"[rank{r}] step {s} step time {0.50 + 0.01 * r:.2f}s loss 2.1" for s in range(5) for r in range(8)),
    "\n".join(f"rank {rank}: loaded checkpoint in {3 + rank * 4} s" for rank in range(6)),
    "\n".join(f"rank {rank}: save step took {2 if rank else 30} s" for rank in range(6)),
    f"INFO watchdog: if a rank is stuck for 600 s, stacks are dumped\n{STEPS}",
    f"job 12 has been stalled in queue for 20 minutes: pending\n{STEPS}",
    f"Retrying after no results for 5 s\n{STEPS}",
    "RDMALinkDown   False   Wed, 02 Oct 2024   RDMALinkIsUp   all links are up\nReady True",
    "hfi1 0000:82:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)\n"
    "hfi1 0000:82:00.0: hfi1_0: logical state changed to PORT_ACTIVE (0x4)",
    "per-rank step time (s): [1.02, 1.01, 1.03, 1.02]",
    "proc'd: 1200 (9812 Gflop/s) - 1203 (9790 Gflop/s) - 1202 (9720 Gflop/s)  errors: 0",
)
SLOW: dict[str, tuple[str, set[tuple[str, int | None]]]] = {
    "lines of ranks": ("\n".join(f"rank {r}: step time {2.44 if r == 2 else 1.01} s" for r in range(5)), {("", 2)}),
    "lines of hosts": (
        "\n".join(f"host=gpu-0{n} matmul {402 if n == 3 else 688} TFLOPS" for n in range(1, 5)), {("gpu-03", None)},
    ),
    "pdsh before each": (
        "\n".join(f"gpu-0{n}: avg bus bandwidth {102.3 if n == 3 else 370.1} GB/s" for n in range(1, 5)),
        {("gpu-03", None)},
    ),
    "tokens of ranks": (
        "\n".join(f"[rank{r}] tps: {'3,012' if r == 7 else '6,890'}" for r in (7, 0, 1, 2)), {("", 7)},
    ),
    "a list": ("step=100 per-rank step time (s): [1.02, 1.01, 1.03, 2.51, 1.02, 1.01]", {("", 3)}),
    "a row": ("iteration 5 | rank 0: 312ms | rank 1: 309ms | rank 2: 811ms | rank 3: 310ms", {("", 2)}),
    "a mapping of hosts": (
        "step times per host: {'gpu-01': 1.01, 'gpu-02': 1.02, 'gpu-03': 2.48, 'gpu-04': 1.00}", {("gpu-03", None)},
    ),
    "gpu-burn": (
        "proc'd: 1200 (9812 Gflop/s) - 1203 (9790 Gflop/s) - 602 (5120 Gflop/s) - 1201 (9801 Gflop/s)   errors: 0",
        {("", 2)},
    ),
    "in words": ("WARNING rank 6 is lagging behind: 2.1 times the mean over the last 50 steps", {("", 6)}),
    "a score": ("Rank 5 individual GPU perf score 0.51 is below threshold 0.7", {("", 5)}),
    "a report": ("slow_ranks: [9] threshold=1.3 median_ms=512 worst_ms=1402", {("", 9)}),
    "outliers": ("Outlier ranks by step time: [12]; p50=1.01s, rank 12=2.20s", {("", 12)}),
}  # fmt: skip


@pytest.mark.parametrize("text", FABRIC)
def test_a_broken_fabric_is_told_by_a_line_alone(text: str) -> None:
    assert told({"train.log": text}).fault_class is F.FABRIC


@pytest.mark.parametrize("text", HANGS)
def test_a_hang_is_told_by_those_who_wait(text: str) -> None:
    assert told({"train.log": text}).fault_class is F.HANG


@pytest.mark.parametrize("text", HEALTHY)
def test_what_sounds_alike_is_healthy(text: str) -> None:
    assert told({"train.log": text}).fault_class is F.NONE


@pytest.mark.parametrize("name", SLOW)
def test_the_slow_member_is_named(name: str) -> None:
    text, culprits = SLOW[name]
    found = told({"train.log": text})
    assert (found.fault_class, set(found.culprits)) == (F.STRAGGLER, culprits)


IB = "gpu-0{0}:1:2 [0] NCCL WARN NET/IB : Got completion from peer gpu-0{1}<39430> with error 12, opcode 129, len 0"
GANGS: dict[str, tuple[dict[str, str], FaultClass, set[tuple[str, int | None]]]] = {
    "srun killed the others after one had failed": (
        {
            "slurm.out": "\n".join(
                (raised(2, "KeyError: 'labels'"), watchdog(0), watchdog(1),
                 "srun: error: gpu-02: task 2: Exited with exit code 1", "srun: error: gpu-01: tasks 0-1: Killed")
            )
        },
        F.USER_CODE, {("gpu-02", 2)},
    ),
    "memory of one": (
        {"t.log": "\n".join((raised(3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
                             *map(watchdog, (0, 1, 2))))},
        F.GPU_OOM, {("", 3)},
    ),
    "two accuse a third": ({"t.log": f"{IB.format(1, 3)}\n{IB.format(2, 3)}"}, F.FABRIC, {("gpu-03", None)}),
    "two accuse each other": ({"t.log": f"{IB.format(1, 2)}\n{IB.format(2, 1)}"}, F.FABRIC, set()),
    "all waited": ({"t.log": "\n".join(map(watchdog, range(8)))}, F.COLLECTIVE_TIMEOUT, set()),
    "all raised": (
        {"t.log": "\n".join(raised(rank, "TypeError: forward() got 2 arguments") for rank in range(4))},
        F.USER_CODE, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GANGS)
def test_exactly_the_culprit_is_named(name: str) -> None:
    files, kind, culprits = GANGS[name]
    found = told(files)
    assert (found.fault_class, set(found.culprits)) == (kind, culprits)


def test_one_killed_rank_may_be_what_broke_the_others() -> None:
    ends = "srun: error: cn2: task 2: Exited with exit code 1\nsrun: error: cn1: task 0: Killed"
    text = f"{raised(2, 'KeyError: 1')}\n{ends}"
    assert told({"slurm.out": text}).victims == ()
