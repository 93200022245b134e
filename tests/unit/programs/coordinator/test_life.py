"""Gangs that have told no step: who works is left alone, who is dead or stopped is found."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.support.cases.rows import rows
from tests.support.harness.launcher_harness import PORT, GangOnLoopback, until
from workflows.programs.coordinator.budgets import HangLimits
from workflows.programs.coordinator.hang_watch import (
    CheckpointProven,
    GangLaunched,
    StepReported,
    Watch,
    apply_event,
    tick,
)
from workflows.programs.coordinator.hangs import PodLife
from workflows.programs.coordinator.life import LifeSeen

LOOK_SECONDS = 2


def look(what: str, now: float, seconds: int) -> LifeSeen:
    """What launchers say after so many seconds of it."""
    word, _, period = what.partition(" ")
    if word in ("one", "other"):  # the others turn in a circle and wait
        return LifeSeen(now, now, stopped=(1 if word == "one" else 2,))
    if word == "all":
        return LifeSeen(now, None, stopped=(0, 1, 2))
    alive = word in ("works", "saved") or (word == "every" and seconds % int(period) == 0)
    return LifeSeen(now, now if alive else None, known=word != "unsaid")


@rows("programs/coordinator/life")
def test_a_gang_without_a_step(
    seen: list[tuple[str, int]],
    init: float = 1800.0,
    floor: float = 60.0,
    silence: float = 0.0,
    hung_after: float | None = None,
) -> None:
    now, hung, step = 1000.0, None, 0
    watch = apply_event(Watch(HangLimits(init, floor, silence_seconds=silence)), GangLaunched(now))
    for what, seconds in seen:
        assert hung is None, f"hung before {what}"
        for second in range(1, seconds + 1):
            now += 1.0
            if what in ("steps", "last steps"):
                step += 1
                watch = apply_event(watch, StepReported(now, 0, step, now, 1, step if what == "last steps" else None))
            elif second % LOOK_SECONDS == 0:
                watch = apply_event(watch, look(what, now, second))
            watch = tick(watch, now, now)
            if watch.verdict == "confirmed" and hung is None:
                hung = second
        if what == "saved":
            watch = apply_event(watch, CheckpointProven(now, 0))
    if hung_after is None:
        assert hung is None, watch.why
    else:
        assert hung is not None
        assert abs(hung - hung_after) <= 2 * LOOK_SECONDS + 1, watch.why
        assert watch.why.startswith("no progress for")


def test_what_makes_no_sense_is_no_sign_of_death() -> None:
    assert PodLife.read({}, 1.0) == PodLife.read({"alive": None, "stopped": None}, 1.0) == PodLife(1.0, True, ())


SLEEPS = "import sys, time\nprint('SLEEPING', flush=True)\ntime.sleep(600)\n"
WORKS = """
import time
end = time.monotonic() + 14
while time.monotonic() < end:
    sum(range(200_000))
    time.sleep(0.05)
"""


def coordinate(gang: GangOnLoopback, *flags: str, pods: int = 1) -> None:
    argv = ["coordinate", f"--pods={pods}", f"--port={PORT}", "--hang-step-floor-seconds=1", *flags]
    gang.start(argv, PRIMUS_POD_IP=f"{gang.net}.1").says("listening")


def confirmed(gang: GangOnLoopback) -> dict[str, Any] | None:
    hang = gang.ask("/status").get("hang")
    return hang if hang and hang["verdict"] == "confirmed" else None


@pytest.mark.parametrize("pods", [1, 2])
def test_a_rank_that_is_stopped_before_its_first_step_is_named(gang: GangOnLoopback, pods: int) -> None:
    coordinate(gang, "--hang-init-seconds=1800", pods=pods)
    gang.trainer.write_text(SLEEPS)
    for pod in [gang.launch(index, pods=pods) for index in range(pods)]:
        pod.says("SLEEPING")
    os.kill(gang.ranks()[pods - 1], signal.SIGSTOP)
    found = until(lambda: confirmed(gang), "a confirmed hang")
    assert f"rank {pods - 1} is stopped, as by SIGSTOP" in found["why"]
    assert pods == 1 or (found["rank"], found["node"]) == (1, "node-1")


def test_a_program_that_computes_before_its_first_step_is_not_hung(gang: GangOnLoopback) -> None:
    coordinate(gang, "--hang-init-seconds=8")
    gang.trainer.write_text(WORKS + SLEEPS)
    gang.launch(0).says("SLEEPING")  # two seconds after the end of one that does nothing
    assert confirmed(gang) is None
