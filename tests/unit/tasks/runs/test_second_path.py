"""Asking launchers' own logs where the coordinator is not heard: rarely, a few, and never in the way of the watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from profiles.errors import Unavailable
from profiles.loading import load
from profiles.resolve import Resolved
from tasks.cluster import Cluster
from tasks.runs.liveness import SecondPath, further
from tests.support.running.waiting import patience
from workflows.model.attempt import AttemptView, CoordinatorFacts, LogSign, SecondSight
from workflows.model.cluster import Pod
from workflows.model.gang_status import GangNews
from workflows.model.liveness import CALM, LOG_LINES, LOOK_SECONDS
from workflows.model.records import AttemptRecord
from workflows.status import Hang
from workflows.wire import StepSeen, line

DEADLINE_SECONDS = patience(30.0)
PODS = tuple(Pod(f"t-{index}", "trainer", index, f"node-{index}", "Running", ranks=(index,)) for index in range(2))
FACTS = CoordinatorFacts(at=100.0, step=5)
VIEW = AttemptView("r", 1, 100.0, jobset="Running", pods=PODS, coordinator=FACTS)


@dataclass
class Logs:
    """A cluster whose launchers have printed so many steps, and which may be slow or silent."""

    step: int = 7
    away: frozenset[str] = frozenset()
    """Pods whose kubelet is not reached."""
    silent: str = ""
    read: list[str] = field(default_factory=list[str])
    open: threading.Event = field(default_factory=threading.Event)
    """Logs are answered only while it is set."""

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool:
        assert timeout_seconds > 0
        return pod not in self.away

    def logs(self, pod: str, container: str = "", *, tail_lines: int | None = None) -> str:
        assert (container, tail_lines) == ("", LOG_LINES)
        self.read.append(pod)
        assert self.open.wait(DEADLINE_SECONDS)
        if self.silent:
            raise Unavailable(self.silent)
        return line(StepSeen(self.step, float(self.step), rank=int(pod[-1]))) + "\n"


@pytest.fixture
def logs() -> Iterator[Logs]:
    made = Logs()
    made.open.set()
    yield made
    made.open.set()  # whatever a test left waiting ends


def path(logs: Logs, silence_seconds: float = 30.0) -> SecondPath:
    resolved: Resolved = load.resolve(load.load_run("demo"), load.load_cluster("local"))
    recovery = resolved.run.recovery.model_copy(update={"observer_silence_seconds": silence_seconds})
    run = resolved.run.model_copy(update={"recovery": recovery})
    return SecondPath(cast("Cluster", logs), resolved.model_copy(update={"run": run}))


def looked(
    second: SecondPath, now: float, until: Callable[[SecondSight], bool], view: AttemptView = VIEW
) -> SecondSight:
    """What is known at `now`, as soon as it holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := second.look(replace(view, now=now)).second) is None or not until(seen):
        assert time.monotonic() < deadline, seen
        time.sleep(0.002)
    return seen


def test_while_the_coordinator_is_heard_no_log_is_read(logs: Logs) -> None:
    second = path(logs)
    for at in range(100, 200):
        view = replace(VIEW, now=at + 0.2, coordinator=replace(FACTS, at=float(at)))
        assert second.look(view).second is None
    assert logs.read == []


def test_a_silent_one_is_asked_about_at_its_pace_and_forgotten_when_it_speaks(logs: Logs) -> None:
    second = path(logs)
    assert second.look(VIEW).second is None
    assert second.look(replace(VIEW, now=129.0)).second is None
    one = looked(second, 130.0, lambda sight: sight.looks == 1)
    assert (one.unheard_since, one.deaf, one.step, one.moved) == (100.0, False, 7, False)
    assert logs.read == ["t-0", "t-1"]
    second.look(replace(VIEW, now=130.0 + LOOK_SECONDS - 0.1))
    logs.step = 9
    two = looked(second, 130.0 + LOOK_SECONDS, lambda sight: sight.looks == 2)
    assert (two.step, two.moved, two.still_since) == (9, True, 130.0 + LOOK_SECONDS)
    assert logs.read == ["t-0", "t-1"] * 2, "no more than is due"
    calm = 130.0 + LOOK_SECONDS * (1 + CALM)
    second.look(replace(VIEW, now=calm - 0.1))
    assert looked(second, calm, lambda sight: sight.looks == 3).moved is False
    assert second.look(replace(VIEW, now=171.0, coordinator=replace(FACTS, at=170.9))).second is None
    again = looked(second, 300.0, lambda sight: sight.looks == 1, replace(VIEW, coordinator=replace(FACTS, at=170.9)))
    assert (again.unheard_since, again.ever_moved) == (170.9, False), "another silence begins anew"


def test_a_log_that_does_not_come_holds_nobody_up(logs: Logs) -> None:
    logs.open.clear()
    second = path(logs)
    second.look(VIEW)
    for at in range(130, 400, 10):
        seen = second.look(replace(VIEW, now=float(at))).second
        assert seen is not None
        assert seen.looks == 0
    logs.open.set()
    looked(second, 400.0, lambda sight: sight.looks == 1)
    assert logs.read[:2] == ["t-0", "t-1"], "one question at a time"
    assert len(logs.read) <= 4


def test_an_answer_to_an_older_silence_says_nothing_of_this_one(logs: Logs) -> None:
    second = path(logs)
    second.look(VIEW)
    logs.open.clear()
    second.look(replace(VIEW, now=130.0))
    spoke = replace(VIEW, coordinator=replace(FACTS, at=135.0))
    assert second.look(replace(spoke, now=135.1)).second is None
    logs.open.set()
    seen = looked(second, 200.0, lambda sight: sight.looks == 1, spoke)
    assert (seen.unheard_since, seen.still_since) == (135.0, 200.0)
    assert seen.looks == 1


def test_what_cannot_be_read_is_named(logs: Logs) -> None:
    logs.silent, logs.away = "no answer", frozenset({"t-1"})
    second = path(logs)
    second.look(VIEW)
    seen = looked(second, 130.0, lambda sight: sight.looks == 1)
    assert seen.unread == (("t-0", "no answer"), ("t-1", "the kubelet of node-1 is not reached"))
    assert seen.unreached == ("node-1",)
    assert logs.read == ["t-0"], "a kubelet that is not reached is not asked for a log"


def test_a_deaf_coordinator_is_asked_about_though_it_answers(logs: Logs) -> None:
    deaf = GangNews(hang=Hang(40.0, "step", "observer"))
    view = replace(VIEW, coordinator=replace(FACTS, at=199.9, news=deaf))
    second = path(logs)
    seen = looked(second, 200.0, lambda sight: sight.looks == 1, view)
    assert (seen.deaf, seen.step) == (True, 7)
    assert seen.unheard_since == pytest.approx(159.9)
    later = replace(view, now=210.0, coordinator=replace(FACTS, at=209.9, news=GangNews()))
    assert second.look(later).second is None


@pytest.mark.parametrize("change", [{"away": "it stands still"}, {"pods": ()}, {"partial": True}])
def test_where_the_pods_do_not_all_run_nobody_is_asked(logs: Logs, change: dict[str, object]) -> None:
    second = path(logs)
    second.look(VIEW)
    assert second.look(replace(VIEW, now=900.0, **change)).second is None  # pyright: ignore[reportArgumentType]
    assert second.look(replace(VIEW, now=901.0)).second is None, "it may only now be able to speak again"
    assert logs.read == []


@pytest.mark.parametrize(("known", "expected"), [(None, {"last_step": 9}), (8, {"last_step": 9}), (9, {}), (10, {})])
def test_the_ledger_learns_of_later_steps_only(known: int | None, expected: dict[str, object]) -> None:
    attempt = AttemptRecord("r", 1, 0.0, "first", last_step=known)
    seen = replace(VIEW, second=SecondSight(100.0, signs=(("t-0", LogSign(0, 9, 1.0)),)))
    assert further(attempt, seen) == expected
    assert further(attempt, VIEW) == {}
