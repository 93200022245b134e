"""A neighbour that does not answer: the run says so, nothing is concluded, and it goes on where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Fenced, NotFound, Unavailable
from profiles.loading import load
from profiles.resolve import Resolved
from profiles.vocabulary import RunState
from tasks.context import Right, World, patient, standing_in, tell_waiting
from tasks.ledger.ledger import Ledger
from tasks.runs.watch import AttemptWatch
from tasks.settings import Settings
from tests.support.builders.ledgers import THERE, driven, everyone_died
from tests.support.running.waiting import patience, until
from workflows import labels as workflows_labels
from workflows.model.attempt import AWAY_SECONDS
from workflows.model.records import AttemptRecord

DEADLINE_SECONDS = patience(30.0)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """A world in which the run `demo` is driven."""
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    fencing = driven(ledger)
    ledger.set_run_state("demo", fencing, RunState.RUNNING, "attempt 1 makes progress")
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    with standing_in(World(settings=settings, ledger=ledger, right=Right("demo", fencing))) as world:
        yield world
    ledger.close()


def why(here: World) -> str:
    found = here.ledger.run("demo")
    assert found is not None
    assert found.state is RunState.RUNNING
    return found.why


class Neighbour:
    """Does not answer a number of times; then does."""

    def __init__(self, here: World, silent: int) -> None:
        self.here, self.silent = here, silent
        self.seen: list[str] = []

    def ask(self) -> str:
        self.seen.append(why(self.here))
        if len(self.seen) <= self.silent:
            raise Unavailable("the cluster stands still; see keeper.log", retry_after_seconds=0.0)
        return "here"


@pytest.mark.parametrize("silent", [0, 1, 2, 5])
def test_the_run_says_what_is_waited_for_from_the_second_try_on(here: World, silent: int) -> None:
    asked = Neighbour(here, silent)
    assert patient(asked.ask)() == "here"
    waiting = "attempt 1 makes progress [waits, training is left alone: the cluster stands still; see keeper.log]"
    plain = "attempt 1 makes progress"
    assert asked.seen == [plain] * min(2, silent + 1) + [waiting] * (silent - 1)
    assert why(here) == plain
    history = [line.why for line in here.ledger.history("demo") if waiting == line.why]
    assert len(history) == (silent > 1), "the same words are written once"


def test_what_an_earlier_driver_waited_for_is_taken_back(here: World) -> None:
    here.ledger.set_run_state("demo", here.fencing, RunState.RUNNING, "x", waits_for="y")
    assert why(here) == "x [waits, training is left alone: y]"
    tell_waiting("")
    assert why(here) == "x"


def test_the_same_thing_is_told_once_though_its_words_change(here: World) -> None:
    here.ledger.set_run_state("demo", here.fencing, RunState.RUNNING, "x", waits_for="y")
    for step in (5, 6, 7):
        tell_waiting(f"rank 0 is at step {step}", "goes on", goes_on=True)
    assert why(here) == "x [by the second path: rank 0 is at step 5]"
    tell_waiting("rank 0 is at step 8", "stands still")
    assert why(here) == "x [waits, training is left alone: rank 0 is at step 8]"
    tell_waiting("rank 0 is at step 9", "goes on", goes_on=True)
    assert why(here) == "x [by the second path: rank 0 is at step 9]"
    tell_waiting("")
    assert why(here) == "x"


def test_other_errors_are_not_waited_out_and_a_driver_that_was_taken_over_stops(here: World) -> None:
    def gone() -> None:
        raise NotFound("no such thing")

    with pytest.raises(NotFound):
        patient(gone)()
    here.ledger.acquire("demo", THERE, 1001.0, everyone_died)
    with pytest.raises(Fenced):
        patient(Neighbour(here, 5).ask)()
    assert "waits" not in why(here)


def test_without_a_run_nobody_is_told(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    tell_waiting("no world at all")
    with standing_in(World(settings=settings, ledger=ledger)):
        tell_waiting("no run")
    assert ledger.runs() == []
    ledger.close()


# Watching.


@cache
def resolved() -> Resolved:
    return load.resolve(load.load_run("demo"), load.load_cluster("local"))


class Seen:
    def __init__(self, change: str, manifest: dict[str, Any], version: str) -> None:
        self.type, self.object, self.resource_version = change, manifest, version


LABELS = {"primus-flows.io/run": "r", "primus-flows.io/attempt": "1", "primus-flows.io/role": "trainer"}


def manifest(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "labels": LABELS}, "spec": {}, "status": {}, **fields}


WAITING = manifest("Pod", "r-a1-trainer-0-0-x", status={"phase": "Pending"})


class Halting:
    """A cluster that tells what it has, and can be silent. Its watches end when something is changed."""

    name = "local"

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.events: list[Seen] = [Seen("ADDED", item, str(at)) for at, item in enumerate(objects, 1)]
        self.silent = ""
        self._changed = threading.Condition()
        self.turns = dict.fromkeys(("Pod", "JobSet", "Workflow", "Node"), 0)
        self.pods: list[dict[str, Any]] = []
        self.listed = threading.Event()

    def set(self, *, silent: str = "", event: Seen | None = None) -> None:
        """Change something, and wait until every reader has come by since."""
        with self._changed:
            self.silent = silent
            self.events += [event] if event else []
            before = dict(self.turns)
            self._changed.notify_all()
            assert self._changed.wait_for(
                lambda: all(self.turns[kind] > before[kind] + 1 for kind in before), DEADLINE_SECONDS
            )

    def list(self, kind: str, labels: Any) -> list[dict[str, Any]]:
        assert (kind, labels) == ("Pod", {"primus-flows.io/run": "r", "primus-flows.io/attempt": "1"})
        self.listed.set()
        return self.pods

    def watch(self, kind: str, labels: Any, *, since: str | None = None, timeout_seconds: float) -> Iterator[Seen]:
        del labels, timeout_seconds
        with self._changed:
            self.turns[kind] += 1
            self._changed.notify_all()
            if self.silent:
                raise Unavailable(self.silent, retry_after_seconds=0.002)
            mine = [item for item in self.events if item.object["kind"] == kind]
        yield from (item for item in mine if int(item.resource_version) > int(since or 0))
        time.sleep(0.002)  # a watch of a real cluster lasts longer


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Halting], tuple[AttemptWatch, list[float]]]]:
    entered: list[AttemptWatch] = []

    def begin(cluster: Halting) -> tuple[AttemptWatch, list[float]]:
        clock = [100.0]
        attempt = AttemptRecord("r", 1, 0.0, "first", submitted_at=1.0)
        watch = AttemptWatch(cluster, resolved(), attempt, lambda: clock[0], lambda: "")  # pyright: ignore
        entered.append(watch.__enter__())
        cluster.set(silent=cluster.silent)
        return watch, clock

    yield begin
    for watch in entered:
        watch.__exit__()


Begin = Callable[[Halting], tuple[AttemptWatch, list[float]]]


def test_the_time_in_which_nobody_answers_says_nothing_about_room(watching: Begin) -> None:
    cluster = Halting(WAITING)
    watch, clock = watching(cluster)
    assert watch.view().pending_since == 100.0
    clock[0] = 150.0
    assert watch.view().pending_since == 100.0
    cluster.set(silent="it stands still")
    clock[0] = 10_000.0
    seen = watch.view()
    assert (seen.pending_since, seen.away) == (None, "it stands still")
    assert [pod.phase for pod in seen.pods] == ["Pending"], "what was known stays known"
    cluster.set()
    seen = watch.view()
    assert (seen.pending_since, seen.away) == (10_000.0, "")


def test_a_gate_that_no_node_takes_waits_for_room_as_the_gang_would(watching: Begin) -> None:
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/5 nodes are available: 5 were unschedulable"}
    marks = {key: value for key, value in WAITING["metadata"]["labels"].items() if key != workflows_labels.ROLE}
    meta = {**WAITING["metadata"], "name": "r-a1-verify-1", "labels": marks}
    gate = {**WAITING, "metadata": meta, "status": {"phase": "Pending", "conditions": [unplaced]}}
    watch, clock = watching(Halting(gate))
    assert watch.view().pending_since == 100.0
    clock[0] = 150.0
    seen = watch.view()
    assert (seen.pods, seen.pending_since) == ((), 100.0), "it is no member of the gang"
    assert seen.unplaced == unplaced["message"]


def test_a_short_silence_is_nobody_s_business(watching: Begin) -> None:
    cluster = Halting(WAITING)
    watch, clock = watching(cluster)
    cluster.set(silent="a hiccup")
    assert (watch.view().away, watch.view().waits_for) == ("a hiccup", "")
    clock[0] += AWAY_SECONDS
    assert watch.view().waits_for == "a hiccup"
    cluster.set()
    assert (watch.view().away, watch.view().waits_for) == ("", "")


def test_the_end_is_told_with_all_pods_as_they_were_after_it(watching: Begin) -> None:
    cluster = Halting(WAITING, manifest("JobSet", "r-a1"))
    watch, _ = watching(cluster)
    assert not watch.view().partial
    cluster.listed.clear()
    end = {"phase": "Succeeded"}
    cluster.pods = [manifest("Pod", name, status=end) for name in (WAITING["metadata"]["name"], "r-a1-trainer-0-1-y")]
    done = manifest("JobSet", "r-a1", status={"terminalState": "Completed"})
    cluster.events.append(Seen("MODIFIED", done, "20"))
    assert cluster.listed.wait(DEADLINE_SECONDS)
    cluster.set()
    seen = watch.view()
    assert (seen.partial, seen.jobset, [pod.phase for pod in seen.pods]) == (False, "Completed", ["Succeeded"] * 2)


def test_nothing_is_missed_before_everything_was_told(watching: Begin) -> None:
    cluster = Halting()
    cluster.silent = "not yet"
    watch, _ = watching(cluster)
    assert not watch.view().vanished
    cluster.set()
    assert watch.view().vanished


def test_what_is_left_of_a_broken_object_counts_though_its_labels_are_gone(watching: Begin) -> None:
    cluster = Halting(WAITING, manifest("Workflow", "r-a1"), manifest("JobSet", "r-a1"))
    watch, _ = watching(cluster)
    assert not watch.view().vanished
    end = {"phase": "Failed", "reason": "BrokenObject", "message": "its file was broken: no JSON"}
    bare = {"kind": "Pod", "metadata": {"name": WAITING["metadata"]["name"]}, "spec": {}, "status": end}
    stranger = {"kind": "Pod", "metadata": {"name": "stranger"}, "spec": {}, "status": end}
    cluster.set(event=Seen("DELETED", bare, "10"))
    cluster.set(event=Seen("DELETED", stranger, "11"))
    pods = watch.view().pods
    assert [(pod.name, pod.role, pod.phase, pod.reason) for pod in pods] == [
        (WAITING["metadata"]["name"], "trainer", "Failed", "BrokenObject")
    ]
    for version, kind in (("12", "Workflow"), ("13", "JobSet")):
        cluster.set(event=Seen("DELETED", {"kind": kind, "metadata": {"name": "r-a1"}, "status": end}, version))
    assert watch.view().vanished == "its file was broken: no JSON"


def test_a_mistake_of_ours_does_not_leave_the_watch_deaf(watching: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Halting(WAITING)
    watch, _ = watching(cluster)
    noted, mistakes = watch._note, [KeyError("metadata")]  # pyright: ignore[reportPrivateUsage] - where they strike

    def mistaken(kind: Any, change: str, told: dict[str, Any]) -> None:
        if change == "MODIFIED" and mistakes:
            raise mistakes.pop()
        noted(kind, change, told)

    monkeypatch.setattr(watch, "_note", mistaken)
    cluster.events.append(Seen("MODIFIED", WAITING | {"status": {"phase": "Running"}}, "2"))
    until("it says so", lambda: "KeyError: 'metadata'" in watch.view().away)
    until("it heard everything anew", lambda: [pod.phase for pod in watch.view().pods] == ["Running"])
    until("it is not away any more", lambda: watch.view().away == "")
    assert mistakes == [], "the mistake was made"
