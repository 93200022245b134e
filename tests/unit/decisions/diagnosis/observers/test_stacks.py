"""Stacks of running processes: who waits in a collective, and who keeps the others waiting."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.observers import stacks, stalls
from flows.decisions.diagnosis.observers.stacks import stacks as dumped
from profiles.vocabulary import FaultClass
from tests.support.builders.told_logs import STEPS, lines_of, ranks, seen, told

F = FaultClass
HEAD = 'Process {pid}: python train.py\nPython v3.10.12 (/usr/bin/python3.10)\n\nThread {pid} (active): "MainThread"\n'
WAITS = (
    "    all_reduce (torch/distributed/distributed_c10d.py:2050)\n    step (train.py:30)\n    <module> (train.py:90)\n"
)
BROADCASTS = "    broadcast (torch/distributed/distributed_c10d.py:1900)\n    step (train.py:31)\n"
READS = "    read (torch/serialization.py:300)\n    load (train.py:18)\n    <module> (train.py:90)\n"
SYNCHRONIZES = "    synchronize (torch/cuda/__init__.py:954)\n    step (train.py:30)\n"
MEETS = "    _create_c10d_store (torch/distributed/rendezvous.py:189)\n    init_process_group (x.py:1)\n"
WRITES = "    write (torch/distributed/checkpoint/filesystem.py:412)\n    save (train.py:50)\n"
IN_C10D = '  File "/opt/torch/distributed/distributed_c10d.py", line 2050 in all_reduce\n'
IN_SSL = '  File "/usr/lib/python3.10/ssl.py", line 1166 in read\n'
DUMP = (
    "Timeout (0:10:00)!\nThread 0x00007f11 (most recent call first):\n"
    '  File "/usr/lib/python3.10/threading.py", line 320 in wait\n\n'
    "Thread 0x00007f12 (most recent call first):\n"
)
GDB = """Thread 2 (Thread 0x7f12 (LWP 122) "python"):
#0  0x00007f in __futex_abstimed_wait () from /lib64/libpthread.so.0

Thread 1 (Thread 0x7f11 (LWP 121) "python"):
#0  0x00007ffc in clock_gettime ()
#1  0x00007f12 in cudaStreamSynchronize () from /opt/libcudart.so"""
PYSTACK = """Traceback for thread 1234 (python) [] (most recent call last):
    (Python) File "/work/train.py", line 20, in <module>
        main()
    (Python) File "/opt/torch/distributed/distributed_c10d.py", line 3000, in barrier
        work.wait()"""


def spied(*frames: str) -> dict[str, str]:
    """One file of py-spy for each rank."""
    return {f"py-spy-rank-{rank}.txt": HEAD.format(pid=100 + rank) + text for rank, text in enumerate(frames)}


DUMPS: dict[str, tuple[dict[str, str], str, set[int]]] = {
    "the one outside of the collective keeps the others waiting": (
        spied(WAITS, WAITS, READS, WAITS), "stack-outside-collective", {2},
    ),
    "waiting for the device is waiting": (spied(SYNCHRONIZES, WAITS, READS, WAITS), "stack-outside-collective", {2}),
    "who writes a checkpoint does not wait": (spied(WAITS, WRITES, WAITS), "stack-outside-collective", {1}),
    "one in another collective than all others": (
        spied(WAITS, WAITS, BROADCASTS, WAITS), "stack-in-other-collective", {2},
    ),
    "all in one collective": (spied(WAITS, WAITS, WAITS), "stack-in-collective", set()),
    "one process alone, in a collective": ({"dump.txt": HEAD.format(pid=1) + WAITS}, "stack-in-collective", set()),
    "one process alone, outside of one": (spied(READS), "stack-outside-collective", {0}),
    "most of them outside of one": (spied(READS, READS, READS, WAITS), "stack-in-collective", set()),
    "before the first collective": ({"py-spy.txt": HEAD.format(pid=1) + MEETS}, "stack-in-rendezvous", set()),
    "several processes in one file": (
        {"dump.txt": HEAD.format(pid=1) + WAITS + HEAD.format(pid=2) + WAITS}, "stack-in-collective", set(),
    ),
    "faulthandler, whose last thread is the main one": (
        {f"rank-{rank}.log": DUMP + (IN_SSL if rank == 3 else IN_C10D) for rank in range(4)},
        "stack-outside-collective",
        {3},
    ),
    "gdb": ({"gdb.txt": GDB}, "stack-in-collective", set()),
    "pystack, whose innermost frame comes last": ({"stack.txt": PYSTACK}, "stack-in-collective", set()),
}  # fmt: skip


@pytest.mark.parametrize("sentence", DUMPS)
def test_what_stacks_say(sentence: str) -> None:
    files, rule, wanted = DUMPS[sentence]
    found = seen(stacks.stuck, files)
    assert {clue.rule for clue in found} == {rule}
    assert ranks(found) == wanted


@pytest.mark.parametrize(
    "text",
    [
        f"Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f03 (most recent call first):\n{IN_C10D}",
        f"{HEAD.format(pid=1)}{WAITS}\n{STEPS}",
        "Thread pool started\nProcess 12: ok\n#0 is the first shard (of 4)",
        STEPS,
    ],
    ids=["last words of a crash", "training went on", "words that look like it", "none"],
)
def test_what_is_no_sign_of_a_hang(text: str) -> None:
    assert seen(stacks.stuck, {"rank-0.log": text}) == []


def test_only_the_main_thread_of_a_process_counts() -> None:
    other = f'{HEAD.format(pid=1)}{WAITS}Thread 77 (idle): "pin_memory"\n    select (selectors.py:415)\n'
    (stack,) = dumped(lines_of({"dump.txt": other}))
    assert stack.frames[0] == ("all_reduce", "torch/distributed/distributed_c10d.py")


def test_a_hang_without_a_culprit_counts_little_once_its_cause_is_known() -> None:
    oom = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert told(spied(WAITS)).fault_class is F.HANG
    found = told({**spied(WAITS), "rank-1.log": oom})
    assert (found.fault_class, found.culprits) == (F.GPU_OOM, (("", 1),))


QUEUE = """WARNING:torch.distributed.elastic.agent.server.api:Received 2 death signal, shutting down workers
Traceback (most recent call last):
  File "/opt/torch/utils/data/dataloader.py", line 1284, in _get_data
    success, data = self._try_get_data()"""


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (QUEUE, ["stopped-in-a-wait"]),
        (f"{STEPS}\n{QUEUE}", []),
        (QUEUE.replace("_get_data\n", "forward\n"), []),
        (QUEUE.replace("Received 2", "Received 15"), []),
    ],
)
def test_who_is_stopped_by_hand_before_the_first_step_stood_still(text: str, rules: list[str]) -> None:
    assert [clue.rule for clue in seen(stalls.interrupted, {"train.log": text})] == rules
