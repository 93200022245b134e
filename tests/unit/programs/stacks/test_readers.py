"""Stacks as values: what py-spy, faulthandler and the kernel write, read; what we write, read by the diagnosis."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.observers import stacks
from tests.support.builders.damaged import damaged, reaches
from tests.support.builders.told_logs import lines_of
from workflows.programs.stacks.collect import parse_faulthandler, parse_kernel_stack, parse_py_spy
from workflows.programs.stacks.values import Dump, Frame, ProcessStacks, Thread, fit_dump, from_dict, text, to_json

SPY = [
    {"pid": 7, "thread_id": 140649571047104, "thread_name": "loader-0", "os_thread_id": 9, "active": True,
     "owns_gil": False, "frames": [
         {"name": "inner", "filename": "/w/t.py", "module": None, "short_filename": "t.py", "line": 2, "locals": None},
         {"name": "Thread.run", "filename": "/usr/lib/threading.py", "line": 982}]},
    {"pid": 7, "thread_id": 140649581919104, "thread_name": "MainThread", "os_thread_id": 7, "active": False,
     "frames": [{"name": "<module>", "filename": "/w/t.py", "line": 5}]},
]  # fmt: skip
"""As py-spy 0.4.3 writes it, shortened."""
HANDLER = """Thread 0x00007f11a2ffd640 [loader-0] (most recent call first):
  File "/w/a b.py", line 2 in inner
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f11a3ffe640 (most recent call first):
  <no Python frame>

Current thread 0x00007f11a8b3c740 (most recent call first):
  File "/w/t.py", line ??? in <listcomp>
  File "<frozen runpy>", line 198 in _run_module_as_main
  ...
"""
KERNEL = """[<0>] unix_stream_read_generic+0x29c/0xa10
[<0>] unix_stream_recvmsg+0x88/0x90
[<0>] do_syscall_64+0x84/0x280
[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e
"""


def test_py_spy() -> None:
    loader, main = parse_py_spy(json.dumps(SPY))
    frames = [Frame("inner", "/w/t.py", 2), Frame("Thread.run", "/usr/lib/threading.py", 982)]
    assert loader == Thread(9, "loader-0", "running", frames)
    assert main == Thread(7, "MainThread", "sleeping", [Frame("<module>", "/w/t.py", 5)])


def test_faulthandler_lists_the_main_thread_last() -> None:
    main, silent, loader = parse_faulthandler(HANDLER)
    assert (main.name, main.id) == ("MainThread", 0x7F11A8B3C740)
    assert main.frames == [Frame("<listcomp>", "/w/t.py", 0), Frame("_run_module_as_main", "<frozen runpy>", 198)]
    assert silent.frames == []
    assert (loader.name, loader.frames[0]) == ("loader-0", Frame("inner", "/w/a b.py", 2))


def test_kernel_functions_without_those_that_all_share() -> None:
    assert parse_kernel_stack(KERNEL) == ["unix_stream_read_generic", "unix_stream_recvmsg"]


KEYS = st.sampled_from(["frames", "name", "line", "filename", "os_thread_id", "thread_name"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


STACKS = damaged(
    [json.dumps(SPY), HANDLER, KERNEL], ["null", "[]", '"', "\n", "Thread 0x", "File ", ", line ", "[<0>] ", "+0x"]
)


def test_damaged_stacks_are_read() -> None:
    assert reaches(STACKS, lambda text: parse_py_spy(text) not in ([], parse_py_spy(json.dumps(SPY))))
    assert reaches(STACKS, lambda text: parse_faulthandler(text) not in ([], parse_faulthandler(HANDLER)))
    assert reaches(STACKS, lambda text: parse_kernel_stack(text) not in ([], parse_kernel_stack(KERNEL)))


@settings(deadline=None)
@given(STACKS | st.text() | VALUES.map(json.dumps))
def test_garbage_is_no_stack_and_no_crash(said: str) -> None:
    for thread in [
        *parse_py_spy(said),
        *parse_py_spy(f"[{said}]"),
        *parse_faulthandler(said),
        *parse_faulthandler(HANDLER[:40] + said),
    ]:
        assert isinstance(thread.id, int)
    assert isinstance(parse_kernel_stack(said), list)


def big(processes: int, threads: int, frames: int) -> Dump:
    stack = [Frame(f"function_{index}" * 30, "/site-packages/" * 40 + f"{index}.py", index) for index in range(frames)]
    found = [
        ProcessStacks(0, 100 + number, "python", number == processes - 1, "sleeping", "py-spy", "w" * 900,
                [Thread(9, "loader", "sleeping", stack), *[Thread(7, "MainThread", "sleeping", stack)] * (threads - 1)],
                ["5 socket:[1]" * 99] * 50)
        for number in range(processes)
    ]  # fmt: skip
    return Dump("node-0", 1.0, 0.1, found)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 30), st.sampled_from([2_000, 20_000, 200_000]))
def test_a_dump_is_cut_to_its_limit_and_keeps_what_says_most(p: int, t: int, f: int, limit: int) -> None:
    found = fit_dump(big(p, t, f), limit)
    assert len(to_json(found).encode()) <= limit
    assert len(found.processes) + found.left_out == p
    if found.processes and found.left_out:
        assert found.processes[0].top, "the rank itself goes last"
    for process in found.processes:
        assert process.main is not None
        assert process.main.frames[0].function.startswith("function_0"), "of a stack the innermost frame stays"
        assert process.main.name == ("MainThread" if t > 1 else "loader")


def test_a_dump_travels_as_json() -> None:
    dump = fit_dump(big(2, 2, 3), 100_000)
    assert from_dict(json.loads(to_json(dump))) == dump


def test_the_diagnosis_reads_our_text_as_any_dump() -> None:
    (main, _), *_ = [parse_py_spy(json.dumps(SPY))[::-1]]
    waits = Thread(7, "MainThread", "sleeping", main.frames, "read(5 socket:[7])", ["unix_stream_read_generic"])
    rank = ProcessStacks(3, 7, "python", True, "sleeping", "py-spy", "", [waits], ["5 x"])
    below = ProcessStacks(3, 8, "pt_data_worker", False, "stopped", "kernel", "no py-spy")
    dump = Dump("node-1", 1.0, 0.1, [rank, below])
    written = text(dump)
    (stack,) = stacks.stacks(lines_of({"py-spy-rank-3.txt": written}))
    assert stack.frames == [("<module>", "/w/t.py")]
    assert stack.rank == 3
    assert "Process 8: pt_data_worker (below rank 3 on node-1)\n# stopped; kernel; no py-spy\n" in written
    assert "    # waits in read(5 socket:[7])\n    # kernel: unix_stream_read_generic\n" in written
