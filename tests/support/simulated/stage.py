"""A stage for simulated runs: the real train flow and the real ledger, on a cluster and in a time that are not real.

Prefect's tasks are called as the plain functions that they are, what would read in threads reads when it is asked, and
whoever waits moves the clock.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import Task

import flows.train
import tasks.context
import tasks.runs.evidence
import tasks.runs.examine
import tasks.runs.state
import tasks.runs.submit
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from tasks.cluster import Cluster, Kind, using
from tasks.clusters import embedded_spec
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.runs.open import open_run
from tasks.runs.watch import OURS, AttemptWatch
from tasks.settings import Settings
from tests.support.simulated.cluster import SimulatedCluster
from tests.support.simulated.gang import Fate, Gangs
from tests.support.simulated.store import Clock
from workflows.model.attempt import AttemptView
from workflows.model.records import Story

PROFILE = Path(__file__).parents[1] / "profiles" / "story.yaml"
WAITING = (tasks.context, tasks.runs.state, tasks.runs.examine)
"""Modules that wait for an event of `threading`."""
MOST_LIVES = 100
"""Of a flow that is stopped after each task; a run has a dozen or two of them."""


class UnthreadedWatch(AttemptWatch):
    """Reads everything anew where the product's threads would have read it meanwhile."""

    def __init__(self, clock: Clock, *given: Any) -> None:
        super().__init__(*given)
        self._clock = clock
        self._positions: dict[Kind, str] = {}

    def __enter__(self) -> UnthreadedWatch:
        self._look()
        return self

    def wait(self, timeout_seconds: float) -> AttemptView:
        """See `AttemptWatch.wait`; time passes only where nothing is new."""
        self._look()
        if not self._known.changed.is_set():
            self._clock.sleep(timeout_seconds)
            self._look()
        return super().wait(0.0)

    def _look(self) -> None:
        kinds: tuple[Kind, ...] = (*OURS, "Node")
        for kind in kinds:
            chosen, since = None if kind == "Node" else self._ours, self._positions.get(kind)
            for event in self._cluster.watch(kind, chosen, since=since, timeout_seconds=0.0):
                self._positions[kind] = event.resource_version
                self._note(kind, event.type, event.object)
            self._answered(kind)
        self.ask_once()
        self.ask_kubelets_once()


class Stopped(BaseException):
    """The flow was stopped here, as a signal would; nothing of ours may catch it."""


class Calls:
    """Calls Prefect's tasks as the plain functions that they are.

    Args:
        stopping: the flow is stopped after each task, the first time that it is run.
    """

    def __init__(self, *, stopping: bool) -> None:
        self._stopping = stopping
        self.stops: list[str] = []
        """Names of the task runs after which the flow was stopped."""

    def call(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """Stands in for `Task.__call__`."""
        result = task.fn(*args, **kwargs)
        bound = inspect.signature(task.fn).bind(*args, **kwargs)
        name = str(task.task_run_name).format(**bound.arguments)
        if self._stopping and name not in self.stops:
            self.stops.append(name)
            raise Stopped(name)
        return result


class SimulatedStage:
    """One run on a cluster of its own. Use `simulation`."""

    def __init__(self, home: Path, fates: Mapping[int, Fate], calls: Calls) -> None:
        self.clock, self.calls = Clock(), calls
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.ledger = Ledger(self.settings.ledger_url, clock=self.clock.now)
        # Restarts inside of pods are the coordinator's, and there is none here.
        wanted = TrainRequest(
            profile=str(PROFILE), name="story", cluster="local", overrides=("recovery.in_place_restarts=0",)
        )
        self.run = open_run(wanted, self.settings, self.ledger, self.clock.now()).name
        self.resolved = Resolved.model_validate(self.story.run.resolved)
        self.gangs = Gangs(self.clock, self.resolved, fates, self._lose_node)
        spec = embedded_spec(self.resolved.cluster.model_copy(update={"images": ()}), home)
        self.cluster = SimulatedCluster(self.clock, spec.nodes, self.gangs.act)

    @property
    def story(self) -> Story:
        """What the ledger says."""
        return self.ledger.story(self.run)

    def drive(self) -> Story:
        """Let the flow drive the run to its end; the story afterwards."""
        outcome = asyncio.run(flows.train.train.fn(TrainRequest(name=self.run, profile="")))
        story = self.story
        assert outcome == story.run.state.value
        return story

    def drive_on(self) -> tuple[Story, int]:
        """Start the flow as often as it is stopped; the story afterwards, and the number of its lives."""
        for life in range(1, MOST_LIVES + 1):
            try:
                return self.drive(), life
            except Stopped:
                continue
        raise AssertionError(f"not at its end after {MOST_LIVES} lives: {self.calls.stops}")

    def session(self) -> AbstractContextManager[World]:
        """Stands in for `tasks.context.session`."""
        return standing_in(World(self.settings, self.ledger, now=self.clock.now))

    def publish_page(self, run: str, resolved: Resolved) -> AbstractContextManager[None]:
        """Stands in for `flows.publishing.publish_page`: there is no console."""
        del run, resolved
        return nullcontext()

    def on_cluster(self, resolved: Resolved, here: World) -> AbstractContextManager[Cluster]:
        """Stands in for `tasks.context.on_cluster`."""
        del resolved, here
        return using(self.cluster)

    def _lose_node(self, name: str) -> None:
        self.cluster.lose_node(name)


class _Event:
    """Stands in for `threading.Event` where it is only waited for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wait(self, seconds: float) -> bool:
        self._clock.sleep(seconds)
        return False


@contextmanager
def simulation(
    home: Path, fates: Mapping[int, Fate] | None = None, *, stopping: bool = False
) -> Generator[SimulatedStage]:
    """A stage on which `flows.train` runs without Prefect, threads and time.

    Args:
        home: folder of its ledger.
        fates: what becomes of gangs, by attempt; others train to their end.
        stopping: the flow is stopped after each task and has to be started again (`SimulatedStage.drive_on`).
    """
    made = SimulatedStage(home, fates or {}, Calls(stopping=stopping))

    def call_task(task: Any, *args: Any, **kwargs: Any) -> Any:  # a function, so that it is bound to its task
        return made.calls.call(task, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "__call__", call_task)
        patch.setattr(flows.train, "session", made.session)
        patch.setattr(flows.train, "publish_page", made.publish_page)
        patch.setattr(flows.train, "on_cluster", made.on_cluster)
        patch.setattr(tasks.runs.submit, "AttemptWatch", partial(UnthreadedWatch, made.clock))
        patch.setattr(tasks.runs.evidence, "time", SimpleNamespace(sleep=made.clock.sleep))
        for module in WAITING:
            patch.setattr(module, "threading", SimpleNamespace(Event=partial(_Event, made.clock)))
        try:
            yield made
        finally:
            made.ledger.close()
