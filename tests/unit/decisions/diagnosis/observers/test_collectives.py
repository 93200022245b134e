"""Who had not come to a collective: sequence numbers, silent watchdogs, and the reports of tools."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.observers import collectives
from flows.decisions.diagnosis.observers.registry import Observer
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import STEPS, enqueued, ranks, seen, told, watchdog

DUMPED = (
    "[rank6]:[E212 03:11:02.9 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal "
    "due to a collective timeout from  rank 4 and we will try our best to dump the debug info. Last enqueued NCCL work:"
    " 880, last completed NCCL work: 880."
)
STALLED = (
    "[2020-12-30 16:35:15.18: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be "
    "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 s."
)
JOINED = " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
RAS = """#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1"""
RAS_ROWS = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  30 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
#1-0 (1) OK
  Rank 9 -- GPU 2 managed by process 483074 on node 172.16.64.210"""
BARRIER = (
    "DEADLINE_EXCEEDED: Barrier timed out. Id: 0_write.\nThe first task at the barrier: /job:x/replica:0/task:13. "
    "Some timed out task names:\n/job:jax_worker/replica:0/task:6\n/job:jax_worker/replica:0/task:0\n\nmore"
)
ALL = "\n".join(enqueued(rank, 883) for rank in (0, 1, 2, 3, 4, 5, 7))

REPORTS: dict[str, tuple[Observer, str, set[int]]] = {
    "one rank had enqueued fewer than the others": (collectives.lagging, f"{ALL}\n{DUMPED}", {6}),
    "all had come equally far": (collectives.lagging, ALL, set()),
    "of two ranks nobody knows which one is late": (collectives.lagging, f"{enqueued(0, 5)}\n{enqueued(1, 4)}", set()),
    "half of them late is no minority": (
        collectives.lagging, "\n".join(enqueued(rank, 5 + rank % 2) for rank in range(4)), set(),
    ),
    "the flight recorder's analysis": (collectives.reported, "missing ranks: {3, 4, 5, 6, 7}", {3, 4, 5, 6, 7}),
    "its culprit": (collectives.reported, "error msg: Culprit rank 3: Error type: COLLECTIVE_TYPE_MISMATCH", {3}),
    "ranks that never came": (
        collectives.reported, "To our best knowledge, ranks [47] are the lagging ranks that caused this timeout.", {47},
    ),
    "the rank that NCCL misses": (collectives.reported, "    The missing rank: 21", {21}),
    "ranks that are waited for": (collectives.reported, "still waiting for ranks [3, 9] in barrier 'save'", {3, 9}),
    "a rank that is merely named": (collectives.reported, "missing keys on rank 3: ['lm_head']", set()),
    "a rank that did not join": (
        collectives.desync,
        JOINED + "   [3] finished collective #1204, but didn't join collective #1205 (count from 1)\n"
        "   #1205 started ranks:\n     [0,1,2,4,5,6,7] started ALLREDUCE",
        {3},
    ),
    "the one that did not finish is behind those that did": (
        collectives.desync,
        JOINED + "   [1] joined but didn't finish collective #12 (count from 1)\n"
        "     [0, 2, 3] finished collective #12, but didn't join collective #13 (count from 1)",
        {1},
    ),
    "all stand in the same one": (
        collectives.desync, JOINED + "   [0, 1, 2, 3] joined but didn't finish collective #12 (count from 1)", set(),
    ),
    "Horovod's rows of missing ranks": (collectives.stalled, f"{STALLED}\nMissing ranks:\n1: [op/x, op/y]\n", {1}),
    "the same behind mpirun's prefix": (
        collectives.stalled,
        "\n".join(f"[1,0]<stderr>:{text}" for text in (STALLED, "Stalled ranks:", "6: [allreduce.0, allreduce.1 ...]")),
        {6},
    ),
    "Horovod's older rows": (
        collectives.stalled, f"{STALLED}\nStalled ops:\ng_0 [missing ranks: 0, 1, 4]\ng_1 [missing ranks: 4]", {4},
    ),
    "Horovod's oldest rows name those that are there": (
        collectives.stalled, f"{STALLED}\nStalled ops: weights_0 [ready ranks: 5, 6, 3, 1, 4, 0]", {2},
    ),
    "a stall that training outlived": (collectives.stalled, f"{STALLED}\nMissing ranks:\n1: [op/x]\n{STEPS}", set()),
    "JAX's tasks": (collectives.tasks, BARRIER, {0, 6}),
    "NCCL's counters": (collectives.mismatched, RAS, {7}),
    "NCCL's rows": (collectives.mismatched, RAS_ROWS, {0, 2}),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REPORTS)
def test_who_did_not_come(sentence: str) -> None:
    observer, text, wanted = REPORTS[sentence]
    assert ranks(seen(observer, {"train.log": text})) == wanted


def test_the_node_of_a_rank_in_nccl_s_report_is_known() -> None:
    assert [clue.node for clue in seen(collectives.mismatched, {"ras.txt": RAS})] == ["node1"]


def test_the_rank_whose_watchdog_said_nothing_is_blamed_where_all_others_waited() -> None:
    files = {f"rank-{rank}.log": f"{STEPS}\n{watchdog(rank)}" for rank in (0, 1, 3)} | {"rank-2.log": STEPS}
    assert ranks(seen(collectives.silent, files)) == {2}
    found = told(files)
    assert (found.fault_class, found.culprits) == (FaultClass.COLLECTIVE_TIMEOUT, (("", 2),))


@pytest.mark.parametrize(
    "files",
    [
        {f"rank-{rank}.log": watchdog(rank, 881 + rank) for rank in (0, 1, 3)} | {"rank-2.log": STEPS},
        {f"rank-{rank}.log": watchdog(rank) for rank in (0, 1)} | {"rank-2.log": STEPS},
        {f"rank-{rank}.log": watchdog(rank) for rank in (0, 1, 3)} | {f"rank-{rank}.log": STEPS for rank in (4, 5)},
    ],
    ids=["different collectives", "too few", "too many silent ones"],
)
def test_silence_alone_blames_nobody(files: dict[str, str]) -> None:
    assert seen(collectives.silent, files) == []


def test_an_original_is_stronger_than_its_consequence_that_the_rank_did_not_come() -> None:
    files = {f"rank-{rank}.log": watchdog(rank) for rank in (0, 1, 3)}
    found = told(
        {**files, "rank-2.log": "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."}
    )
    assert (found.fault_class, found.culprits) == (FaultClass.GPU_OOM, (("", 2),))


def test_a_stall_without_names_is_a_hang_without_a_culprit() -> None:
    found = told({"train.log": STALLED})
    assert (found.fault_class, found.culprits) == (FaultClass.HANG, ())
