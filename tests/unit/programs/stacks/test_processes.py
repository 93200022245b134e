"""Stacks of real processes: running, forked, stopped, in uninterruptible sleep, gone; with and without py-spy.

Stacks as values: what py-spy, faulthandler and the kernel write, read; what we write, read by the diagnosis.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.observers import stacks
from tests.support.builders.damaged import damaged, reaches
from tests.support.builders.told_logs import lines_of
from tests.support.harness.launcher_harness import until
from workflows.programs.stacks import collect
from workflows.programs.stacks.collect import parse_faulthandler, parse_kernel_stack, parse_py_spy
from workflows.programs.stacks.groups import find_minority, stacks_of
from workflows.programs.stacks.python_start import stack_signal
from workflows.programs.stacks.values import Dump, Frame, ProcessStacks, Thread, fit_dump, from_dict, text, to_json

ROOT = Path(__file__).parents[4]
NO_SPY = collect.CollectOptions(seconds=3.0)
RANK = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from workflows.programs.stacks.python_start import stack_signal
{install}
def in_the_loader(): time.sleep(600)
def in_the_step():
    open({ready!r} + str(os.getpid()), "w").close()
    {body}
threading.Thread(target=in_the_loader, name="loader", daemon=True).start()
{before}
in_the_step()
"""
INSTALL = "assert stack_signal.install()"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a rank; returns once it stands in its step."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(
        body: str = "time.sleep(600)", install: str = INSTALL, before: str = "", processes: int = 1
    ) -> subprocess.Popen[bytes]:
        ready = tmp_path / f"ready-{len(started)}-"
        script = RANK.format(root=str(ROOT), install=install, ready=str(ready), body=body, before=before)
        started.append(subprocess.Popen([sys.executable, "-c", script], start_new_session=True))
        until(lambda: len(list(tmp_path.glob(f"{ready.name}*"))) == processes, "the rank stands in its step")
        return started[-1]

    yield start_one
    for one in started:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def only(dump: Dump) -> ProcessStacks:
    (process,) = dump.processes
    return process


def functions(process: ProcessStacks) -> list[str]:
    assert process.main is not None
    return [frame.function for frame in process.main.frames]


def test_a_rank_with_a_handler_tells_its_stacks_and_goes_on(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    rank = start()
    for _ in range(3):
        process = only(collect.gather({4: rank.pid}, "node-1", NO_SPY))
        assert (process.rank, process.how, process.state, process.top) == (4, "faulthandler", "sleeping", True)
        assert functions(process)[:1] == ["in_the_step"]
        assert [one.frames[0].function for one in process.threads[1:]] == ["in_the_loader"]
        assert process.main is not None
        assert process.main.waits.startswith(("clock_nanosleep", "select", "pselect6", "hrtimer"))
        assert any("memfd:primus-stacks" in file for file in process.files)
    assert rank.poll() is None
    assert "in_the_step (<string>:" in text(collect.gather({4: rank.pid}, "node-1", NO_SPY))


def test_a_rank_that_holds_the_interpreter_and_never_lets_go_tells_its_stacks_too(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    rank = start(before="import ctypes; pause = ctypes.PyDLL(None).pause", body="pause()")
    process = only(collect.gather({0: rank.pid}, "n", NO_SPY))
    assert (process.how, functions(process)[0]) == ("faulthandler", "in_the_step")


def test_forked_children_tell_their_own(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    rank = start(before="os.fork(); os.fork()", processes=4)
    dump = collect.gather({0: rank.pid}, "n", NO_SPY)
    assert [one.top for one in dump.processes] == [True, False, False, False]
    assert len({one.pid for one in dump.processes}) == 4
    assert [functions(one)[0] for one in dump.processes] == ["in_the_step"] * 4


def test_without_a_handler_nothing_is_sent_and_the_kernel_is_asked(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    rank = start(install="")
    assert not collect.has_handler(rank.pid, stack_signal.SIGNAL)
    until(lambda: collect.state_of(rank.pid) == "sleeping", "it sleeps in its step")
    process = only(collect.gather({0: rank.pid}, "n", NO_SPY))
    assert (process.how, process.why) == ("kernel", "no py-spy here; no answer of a faulthandler")
    assert len(process.threads) == 2
    assert process.main is not None
    assert process.main.waits
    assert collect.ask_faulthandler(rank.pid, 1.0) == []
    assert rank.poll() is None


def test_a_program_that_took_the_handler_away_is_not_killed(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    rank = start(before=f"import signal; signal.signal({stack_signal.SIGNAL}, signal.SIG_DFL)")
    assert only(collect.gather({0: rank.pid}, "n", NO_SPY)).how == "kernel"
    assert rank.poll() is None


def test_a_stopped_rank_costs_no_time_and_is_not_continued(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    rank = start()
    os.kill(rank.pid, signal.SIGSTOP)
    until(lambda: collect.state_of(rank.pid) == "stopped", "it is stopped")
    process = only(collect.gather({0: rank.pid}, "n", NO_SPY))
    assert (process.state, process.how) == ("stopped", "kernel")
    assert "stopped answers no signal" in process.why
    assert collect.state_of(rank.pid) == "stopped"


SPAWN = """os.mkfifo({fifo!r}); os.posix_spawn(sys.executable, [sys.executable, "-c", "0"], dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, {fifo!r}, os.O_RDONLY, 0)])"""
"""Until somebody writes into the pipe, the parent of such a child is in uninterruptible sleep."""


def test_a_rank_in_uninterruptible_sleep_is_seen_and_holds_nobody(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    rank = start(body=SPAWN.format(fifo=str(tmp_path / "fifo")))
    until(lambda: collect.state_of(rank.pid) == "uninterruptible", "it sleeps")
    dump = collect.gather({0: rank.pid}, "n", NO_SPY)
    process = dump.processes[0]
    assert (process.state, process.how, process.top) == ("uninterruptible", "kernel", True)
    assert process.main is not None
    assert process.main.waits
    assert json.loads(to_json(dump))["processes"][0]["state"] == "uninterruptible"


def test_a_rank_that_is_gone_is_said_to_be(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    rank = start()
    gone = subprocess.Popen([sys.executable, "-c", "0"])
    gone.wait()
    dump = collect.gather({0: rank.pid, 1: gone.pid}, "n", NO_SPY)
    assert [(one.rank, one.how) for one in dump.processes] == [(0, "faulthandler"), (1, "")]


def spy(folder: Path, script: str) -> collect.CollectOptions:
    """A program in place of py-spy."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return collect.CollectOptions(3.0, str(path))


def test_py_spy_is_asked_first_and_believed(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    rank = start()
    row = {"thread_name": "MainThread", "os_thread_id": rank.pid, "active": False,
           "frames": [{"name": "seen_by_spy", "filename": "t.py", "line": 3}]}  # fmt: skip
    look = spy(tmp_path, f'[ "$*" = "dump --nonblocking --json --pid {rank.pid}" ] && echo \'{json.dumps([row])}\'')
    process = only(collect.gather({0: rank.pid}, "n", look))
    assert (process.how, functions(process)) == ("py-spy", ["seen_by_spy"])
    assert process.main is not None
    assert process.main.waits, "with what the kernel says of the same thread"


@pytest.mark.parametrize(
    "script",
    ["echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1", "echo {", "exit 0"],
)
def test_where_py_spy_may_not_look_the_handler_is_asked(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, script: str
) -> None:
    rank = start()
    process = only(collect.gather({0: rank.pid}, "n", spy(tmp_path, script)))
    assert (process.how, functions(process)[0]) == ("faulthandler", "in_the_step")
    silent = start(install="")
    process = only(collect.gather({0: silent.pid}, "n", spy(tmp_path, script)))
    assert process.how == "kernel"
    assert process.why.startswith("py-spy: Error: Permission" if "Denied" in script else "py-spy saw no Python")


def test_py_spies_that_hang_take_a_third_of_the_time_together(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = start(before="os.fork(); os.fork()", processes=4)
    asked: list[float] = []
    ask = collect.ask_faulthandler

    def noted(pid: int, seconds: float) -> list[Thread]:
        asked.append(time.monotonic())
        return ask(pid, seconds)

    monkeypatch.setattr(collect, "ask_faulthandler", noted)
    limit = 6.0
    look = collect.CollectOptions(limit, spy(tmp_path, "exec sleep 600").py_spy)
    began = time.monotonic()
    dump = collect.gather({0: rank.pid}, "n", look)
    assert [(one.how, functions(one)[0]) for one in dump.processes] == [("faulthandler", "in_the_step")] * 4
    assert asked[0] - began >= limit / 3, "it did hang"
    assert asked[-1] - began <= 2 * limit / 3, "and all handlers were asked well before the end"
    assert dump.seconds <= limit


def test_of_a_rank_that_only_a_hanging_py_spy_could_see_the_kernel_tells(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    rank = start(install="")
    dump = collect.gather({0: rank.pid}, "n", collect.CollectOptions(1.0, spy(tmp_path, "exec sleep 600").py_spy))
    process = only(dump)
    assert (process.how, process.why) == ("kernel", "py-spy did not answer in time; no answer of a faulthandler")
    assert process.threads


def test_what_is_late_is_left_to_itself(
    start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rank = start()
    pipe = tmp_path / "blocks"
    os.mkfifo(pipe)
    real = collect.read_process

    def blocked(number: int, pid: int, top: bool) -> ProcessStacks | None:
        if number == 1:
            pipe.read_text(encoding="utf-8")  # as a file of /proc that blocks its reader
        return real(number, pid, top)

    monkeypatch.setattr(collect, "read_process", blocked)
    dump = collect.gather({0: rank.pid, 1: rank.pid}, "n", collect.CollectOptions(1.0))
    assert [(one.rank, one.how, one.why) for one in dump.processes] == [
        (0, "faulthandler", ""), (1, "", "no answer within 1 s"),
    ]  # fmt: skip
    assert dump.seconds >= 1.0
    assert dump.seconds <= 2.0, "the limit, and what a busy machine adds"
    pipe.write_text("", encoding="utf-8")


def test_who_keeps_a_gang_waiting_is_named_within_half_a_second_of_looking(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    waits = start(before="def all_reduce(): os.read(os.pipe()[0], 1)", body="all_reduce()")
    loads = start()
    dump = collect.gather({0: waits.pid, 1: loads.pid}, "node-1", collect.CollectOptions(0.5))
    finding = find_minority(stacks_of([dump], {0: "node-1", 1: "node-1"}))
    assert [(one.rank, one.frame) for one in finding.blamed] == [(1, "in_the_step (<string>)")]
    assert dump.seconds <= 0.6, "bounded, whatever the machine does"


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
