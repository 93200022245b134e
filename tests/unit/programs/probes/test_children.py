"""A process for each GPU: what each tells is heard, and one that hangs, crashes or floods hides nobody."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.programs.probes.gpu.children import ChildLine, run_each

LONG_SECONDS = 120.0


def soon() -> float:
    """Long enough for a process that does nothing, on any machine."""
    return time.monotonic() + LONG_SECONDS


def fails(index: int, line: ChildLine) -> dict[str, Any]:
    line.stage("working")
    if index == 1:
        os.write(1, b"a library's own words\n")
        os.kill(os.getpid(), signal.SIGKILL)
    if index == 2:
        raise ValueError("a   broken\nanswer")
    if index == 3:
        sys.exit("it left")
    if index == 4:
        os._exit(7)
    return {"index": index}


def test_each_way_to_fail_is_told_with_how_far_it_came_and_hides_nobody() -> None:
    found = run_each(range(6), fails, soon())
    assert [(one.index, one.stage) for one in found] == [(index, "working") for index in range(6)]
    assert [dict(one.facts) for one in found] == [{"index": 0}, {}, {}, {}, {}, {"index": 5}]
    assert [one.why for one in found] == [
        "",
        "its process was ended by signal 9 at stage working; it said: a library's own words",
        "ValueError: a broken answer",
        "SystemExit: it left",
        "its process ended at stage working",
        "",
    ]


def test_whoever_hangs_is_killed_and_fetched(tmp_path: Path) -> None:
    def work(index: int, line: ChildLine) -> dict[str, Any]:
        (tmp_path / str(index)).write_text(str(os.getpid()))
        if index:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        return {"done": True}

    good, bad = run_each((0, 1), work, time.monotonic() + 2.0)
    assert (good.why, bad.why) == ("", "it did not answer in time, at stage started")
    for index in (0, 1):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / str(index)).read_text()), 0)


def test_one_after_the_other_begins(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()

    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(f"{word}\n")

    def work(index: int, line: ChildLine) -> dict[str, Any]:
        line.await_turn()
        note(f"begin {index}")
        note(f"end {index}")
        return {}

    found = run_each(range(4), work, soon(), turn_seconds=LONG_SECONDS)
    assert [one.why for one in found] == [""] * 4
    words = log.read_text().split("\n")[:-1]
    assert [(words[at].split()[0], words[at + 1].split()[0]) for at in range(0, 8, 2)] == [("begin", "end")] * 4
    assert all(words[at].split()[1] == words[at + 1].split()[1] for at in range(0, 8, 2))


def test_a_turn_that_takes_too_long_is_ended_and_one_that_never_comes_keeps_nobody() -> None:
    def work(index: int, line: ChildLine) -> dict[str, Any]:
        if index == 0:
            raise RuntimeError("cannot be opened")
        line.await_turn()
        if index == 1:
            time.sleep(3600)
        return {"index": index}

    found = run_each(range(3), work, soon(), turn_seconds=0.5)
    assert [one.why for one in found] == [
        "RuntimeError: cannot be opened",
        "it did not end within 0.5 s of its turn, at stage its turn",
        "",
    ]


def test_somebody_may_look_meanwhile(tmp_path: Path) -> None:
    """The child ends only once it was looked at three times."""
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        if len(looks) == 3:
            (tmp_path / "enough").touch()

    def work(index: int, line: ChildLine) -> dict[str, Any]:
        while not (tmp_path / "enough").exists():
            time.sleep(0.005)
        return {}

    [found] = run_each((0,), work, soon(), beside=look, beside_seconds=0.01)
    assert (found.why, len(looks) >= 3) == ("", True)


def test_a_large_answer_comes_whole_and_prints_stay_out_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    text = "x" * (3 << 20)

    def work(index: int, line: ChildLine) -> dict[str, Any]:
        os.write(1, b"not for the parent\n")
        return {"text": text}

    [found] = run_each((0,), work, soon())
    assert found.facts["text"] == text
    assert capfd.readouterr().out == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_a_child_finds_comes_back_as_it_was(facts: dict[str, Any]) -> None:
    [found] = run_each((0,), lambda index, line: facts, soon())
    assert (dict(found.facts), found.why) == (json.loads(json.dumps(facts)), "")


def test_figures_that_are_none_come_back_as_such() -> None:
    [found] = run_each((0,), lambda index, line: {"rate": math.nan, "most": math.inf}, soon())
    assert math.isnan(found.facts["rate"])
    assert math.isinf(found.facts["most"])
