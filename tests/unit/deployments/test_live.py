"""The screen of a run that is watched: what stands on it, that it fits, and that ending it ends nothing else."""

from __future__ import annotations

import io
import math
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deployments.exit_codes import INTERRUPTED
from deployments.screen.live import Lines, Trend, screen, teller, trend_of
from flows.decisions.views.status import Surroundings, status_of
from profiles.request import TrainRequest
from profiles.vocabulary import FINISHED, Action, FaultClass, Mode, RunState
from tasks.ledger.ledger import Ledger
from tasks.processes import process_start
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.builders.attempt_plans import a_gpu_plan
from tests.support.running.waiting import patience
from workflows.model.records import (
    ApprovalRecord,
    AttemptRecord,
    Driver,
    IncidentRecord,
    Lease,
    MarkRecord,
    RunRecord,
    StepRow,
    Story,
)
from workflows.model.why import DriverSight

RESOLVED = a_gpu_plan().resolved
NOW = 1_000_000.0
DEADLINE_SECONDS = patience(60.0)
WIDTHS = (60, 80, 120)


def a_story(state: RunState = RunState.RUNNING, **more: Any) -> Story:
    run = RunRecord("demo-1", state, "attempt 2 makes progress", "demo", {}, "d", "local", Mode.ACT, NOW - 600.0)
    attempts = (
        AttemptRecord("demo-1", 1, NOW - 500.0, "first", ("node-0", "node-1"), outcome="node_lost", first_step=1),
        AttemptRecord("demo-1", 2, NOW - 200.0, "new-attempt", ("node-0", "node-2"), first_step=121, last_step=239),
    )
    incident = IncidentRecord("i", "demo-1", 1, NOW - 300.0, NOW - 299.6, "node-not-ready", FaultClass.NODE_LOST, 0.97)
    decided = {"culprits": (("node-1", 1),), "action": Action.NEW_ATTEMPT, "why": "without node-1 " * 20}
    lost = IncidentRecord(**vars(incident) | decided)
    lease = Lease("demo-1", 1, Driver("bastion", 4711, 1.0), NOW + 10.0)
    given: dict[str, Any] = {"attempts": attempts, "incidents": (lost,), "lease": lease}
    return Story(run, **given | more)


STEPS = [StepRow(n, NOW - (240 - n) * 0.1, None, 10.0 * math.exp(-n / 60)) for n in range(1, 240)]


def drawn(story: Story, width: int, steps: list[StepRow] = STEPS, now: float = NOW, height: int = 24) -> list[str]:
    document = status_of(story, RESOLVED, Surroundings(now=now, driver=DriverSight(alive=True), steps=steps))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(screen(document, trend_of(steps), now, width, height))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_what_matters_stands_on_the_screen_at_every_width(width: int) -> None:
    question = ApprovalRecord("q-1", "demo-1", "i", "quarantine node-3? " * 9, "waiting", NOW, NOW + 60.0)
    story = a_story(approvals=(question,), paused=True, marks=(MarkRecord("demo-1", 2, "paused", NOW, "fabric (me)"),))
    lines = drawn(story, width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    assert lines[0].startswith("demo-1  running")
    for said in (
        "attempt 2 makes progress",
        "automatic actions are halted: fabric (me)",
        "239 of ",
        " to go",
        "10 steps/s",
        "node_lost (0.97), node-1 -> new-attempt",
        "waits for you: quarantine node-3?",
        'primus approve q-1 --why "..."',
        'primus deny q-1 --why "..."',
        "Ctrl-C stops watching, never the training",
    ):
        assert said in text
    assert "█" in next(line for line in lines if line.startswith("loss"))


@pytest.mark.parametrize("height", [12, 16, 20, 24, 50])
def test_older_things_go_where_the_terminal_is_low(height: int) -> None:
    story = a_story()
    many = tuple(IncidentRecord(**vars(story.incidents[0]) | {"id": f"i{n}", "detected_at": NOW + n}) for n in range(5))
    lines = drawn(a_story(incidents=many), 80, height=height)
    assert len(lines) <= height
    assert lines[-1].startswith("Ctrl-C stops watching")
    assert any(line.startswith("step ") for line in lines)
    assert sum("new-attempt in" in line or "-> new-attempt" in line for line in lines) == {12: 0, 16: 0, 20: 2}.get(
        height, 3
    )


def test_a_run_that_did_nothing_yet() -> None:
    story = a_story(RunState.PENDING, attempts=(), incidents=(), lease=None)
    text = "\n".join(drawn(story, 80, steps=[]))
    assert "none completed yet" in text
    assert "no driver has taken it yet" in text
    assert "attempts" not in text
    assert "incidents" not in text


def test_silence_is_told_and_so_is_a_driver_that_is_gone() -> None:
    assert "the last step was 5.0 min ago" in "\n".join(drawn(a_story(), 80, now=NOW + 300.0))
    document = status_of(a_story(), RESOLVED, Surroundings(now=NOW, steps=STEPS))
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(screen(document, Trend(), NOW, 80))
    assert "its driver is gone" in console.export_text()


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_an_end_points_to_the_report(state: RunState) -> None:
    lines = drawn(a_story(state), 80)
    assert lines[0].startswith(f"demo-1  {state}")
    assert lines[-1] == "where the time went: primus report demo-1"


def test_a_loss_that_is_none_is_never_drawn_as_a_number() -> None:
    steps = [*STEPS, StepRow(240, NOW, None, math.nan)]
    assert "x nan" in next(line for line in drawn(a_story(), 80, steps) if line.startswith("loss"))


@given(
    st.sampled_from(RunState),
    st.text(max_size=200),
    st.sampled_from(WIDTHS),
    st.lists(st.none() | st.floats(), max_size=50),
)
def test_no_line_is_wider_than_the_terminal(state: RunState, why: str, width: int, losses: list[float | None]) -> None:
    printable = "".join(letter for letter in why if letter.isascii() and letter.isprintable())
    run = RunRecord("demo-1", state, printable, "demo", {}, "d", "local", Mode.ACT, NOW)
    story = a_story()
    steps = [StepRow(index + 1, NOW - 50.0 + index, None, loss) for index, loss in enumerate(losses)]
    lines = drawn(Story(run, story.attempts, story.incidents, lease=story.lease), width, steps)
    assert max(map(len, lines)) <= width


def test_a_pipe_gets_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    with teller(settings, Ledger(settings.ledger_url)) as shown:
        assert isinstance(shown, Lines)
        shown.tell(a_story())
        shown.tell(a_story())
        shown.beat()
    assert capsys.readouterr().err.count("node_lost (0.97, blamed: node-1) -> new-attempt") == 1


def test_ctrl_c_stops_watching_and_nothing_else(tmp_path: Path) -> None:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ledger, pid = Ledger(settings.ledger_url), os.getpid()
    open_run(TrainRequest(profile="demo", name="watched"), settings, ledger, time.time())
    holder = Driver(socket.gethostname(), pid, process_start(pid) or 0.0)
    lease = ledger.acquire("watched", holder, time.time(), lambda _: None)
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "deployments.cli.main", "status", "watched", "--follow"]
    environment = {**os.environ, "PRIMUS_HOME": str(tmp_path), "TERM": "xterm-256color"}
    # Whoever runs the tests in the background has Ctrl-C ignored, and every child of theirs too.
    before_us = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    signal.signal(signal.SIGINT, before_us)
    os.close(theirs)
    try:
        _read_until(ours, b"waits for its driver")
        ledger.set_run_state("watched", lease.fencing, RunState.RUNNING, "attempt 1 makes progress")
        _read_until(ours, b"attempt 1 makes progress")
        before = list(ledger.history())
        watcher.send_signal(signal.SIGINT)
        _read_until(ours, b"stopped watching; the training continues. Stop it: primus stop watched.")
        assert watcher.wait(DEADLINE_SECONDS) == INTERRUPTED
    finally:
        watcher.kill()
        watcher.wait()
        os.close(ours)
    assert list(ledger.history()) == before
    ledger.close()


def _read_until(terminal: int, wanted: bytes) -> None:
    seen, deadline = b"", time.monotonic() + DEADLINE_SECONDS
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            seen += os.read(terminal, 65536)
