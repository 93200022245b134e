"""Programs with a deadline, and functions side by side."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from workflows.programs.runtime.bounded import outcomes, run_program, side_by_side

HANGS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize("grace_seconds", [0.0, 2.0])
def test_a_program_that_hangs_is_left_behind(grace_seconds: float) -> None:
    began = time.monotonic()
    ended = run_program(HANGS, 0.2, name="the tool", grace_seconds=grace_seconds)
    assert time.monotonic() - began < 60
    assert (ended.code, ended.output, ended.problem) == (None, "", "the tool did not end within 0.2 s")


def test_a_program_s_outputs_are_kept_apart_or_joined() -> None:
    argv = ["sh", "-c", "echo yes; echo no >&2; exit 3"]
    apart, joined = run_program(argv, 60.0), run_program(argv, 60.0, apart=False)
    assert (apart.code, apart.output, apart.errors, apart.last_words) == (3, "yes\n", "no\n", "no")
    assert (joined.code, joined.output, joined.errors, joined.last_words) == (3, "yes\nno\n", "", "yes no")


def test_what_a_program_leaves_behind_ends_with_it() -> None:
    began = time.monotonic()
    assert run_program(["sh", "-c", "sleep 600 & echo done"], 60.0).output == "done\n"
    assert time.monotonic() - began < 60


def test_a_program_that_cannot_be_started_says_why() -> None:
    ended = run_program(["/not/there"], 1.0)
    assert (ended.code, ended.problem) == (None, "/not/there cannot be started: No such file or directory")


def test_what_works_return_or_raise_comes_in_their_order() -> None:
    hang = threading.Event()

    def crash() -> int:
        raise ValueError("no")

    found = outcomes([lambda: 1, crash, lambda: int(hang.wait(60)), lambda: 4], seconds=0.5)
    hang.set()
    assert (found[0], found[3]) == (1, 4)
    assert [f"{type(one).__name__}: {one}" for one in found[1:3]] == [
        "ValueError: no",
        "TimeoutError: no answer within 0.5 s",
    ]
    with pytest.raises(ValueError, match="no"):
        side_by_side([lambda: 1, crash])


def test_no_more_works_run_at_once_than_asked_for() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    side_by_side([work] * 9, at_once=3)
    assert 1 <= most[0] <= 3
