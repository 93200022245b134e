"""What a task needs from its process: settings, ledger, clock; and the decorators that make a function a task.

Clients are never parameters, because Prefect records those: they live in context variables. `tasks.cluster` holds the
cluster, this module the rest, and opens it from the environment (`session`, `at_hand`, `on_cluster`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from profiles.errors import Fenced, Permanent, Transient
from profiles.resolve import Resolved
from tasks.cluster import Cluster, using
from tasks.clusters import open_cluster
from tasks.ledger.ledger import Ledger
from tasks.prefect_clients import SyncClientContext
from tasks.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


def patient(function: Callable[P, R]) -> Callable[P, R]:
    """Try the function again for as long as a neighbour does not answer: training goes on meanwhile.

    This is the one retry of API hiccups. Only `Transient` errors are waited out, each for the time it names. Where the
    second try fails too, the run that is driven says so.
    """

    @wraps(function)
    def persevere(*args: P.args, **kwargs: P.kwargs) -> R:
        said, tries = "", 0
        while True:
            try:
                result = function(*args, **kwargs)
            except Transient as error:
                tries += 1
                if str(error) != said:
                    said = str(error)
                    logging.getLogger("primus").warning("%s: %s; trying again", function.__name__, said)
                if tries > 1:
                    tell_waiting(said)
                threading.Event().wait(error.retry_after_seconds)
                continue
            if tries > 1:
                tell_waiting("")
            return result

    return persevere


def touch(said: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function a Prefect task that runs every time it is called, and is retried as `patient` says.

    Args:
        said: what the UI shows, with the function's parameters in braces: "submits attempt {number}".

    Nothing is cached or persisted: whether something was done already is read from the ledger and the cluster.
    """

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        made: Task[P, R] = task(task_run_name=said, cache_policy=NO_CACHE, persist_result=False)(patient(function))
        return made

    return decorate


class Right:
    """The lease this process holds; its number is asked for at every write."""

    def __init__(self, run: str, fencing: int) -> None:
        self.run = run
        self.waits_for: str | None = None
        """What the run's `why` was last told behind its reason; None: nothing was told yet."""
        self._fencing = fencing
        self._lost = ""

    @property
    def fencing(self) -> int:
        """The fencing number.

        Raises:
            Fenced: another driver has taken over.
        """
        if self._lost:
            raise Fenced(self._lost)
        return self._fencing

    def lose(self, why: str) -> None:
        """From now on every use of the number raises Fenced."""
        self._lost = why


@dataclass(frozen=True)
class World:
    """Settings, ledger and clock of this process."""

    settings: Settings
    ledger: Ledger
    right: Right | None = None
    now: Callable[[], float] = time.time

    @property
    def fencing(self) -> int:
        """The fencing number of the run being driven."""
        if self.right is None:
            raise Permanent("no run is driven here: acquire its lease first")
        return self.right.fencing


_current: ContextVar[World | None] = ContextVar("primus_world", default=None)


def world() -> World:
    """The current world.

    Raises:
        Permanent: none was chosen; a mistake in our code.
    """
    here = _current.get()
    if here is None:
        raise Permanent("no world is in use here: wrap the call in `with standing_in(world)`")
    return here


def tell_waiting(said: str, about: str = "", *, goes_on: bool = False) -> None:
    """Write down what the run that is driven waits for; "" when it no longer waits.

    Where no run is driven nobody is told, nor where the ledger itself is away.

    Args:
        said: in words.
        about: what makes it the same thing, though its words change: that is told once; "": the words themselves.
        goes_on: training goes on meanwhile, by the ranks' own logs.

    Raises:
        Fenced: another driver has taken over.
    """
    here = _current.get()
    if here is None or here.right is None or here.right.waits_for == (about or said):
        return
    try:
        record = here.ledger.run(here.right.run)
        if record is not None:
            goes_on = goes_on and said != ""
            if (said, goes_on) != (record.waits_for, record.goes_on):
                here.ledger.set_run_state(
                    record.name, here.fencing, record.state, record.reason, waits_for=said, goes_on=goes_on
                )
            here.right.waits_for = about or said
    except Transient:
        return  # said again with the next try


@contextmanager
def standing_in(here: World) -> Generator[World]:
    """Make `here` the current world inside the block."""
    token = _current.set(here)
    try:
        yield here
    finally:
        _current.reset(token)


@contextmanager
def session(settings: Settings | None = None) -> Generator[World]:
    """Settings and ledger of this process, and one client of Prefect for all tasks.

    Prefect would make a client for every task, and each reads the file of all certificate authorities anew: 44 ms of a
    task's 58 ms, and a recovery is nine tasks.

    Raises:
        Unavailable: the ledger does not answer.
    """
    chosen = settings or Settings.from_environment(os.environ)
    ledger = Ledger(chosen.ledger_url)
    try:
        with SyncClientContext.get_or_create(), standing_in(World(settings=chosen, ledger=ledger)) as here:
            yield here
    finally:
        ledger.close()


@contextmanager
def at_hand(settings: Settings) -> Generator[World]:
    """Settings and ledger of this process, without Prefect: what a loop stands in that must answer in milliseconds."""
    ledger = Ledger(settings.ledger_url)
    try:
        with standing_in(World(settings=settings, ledger=ledger)) as here:
            yield here
    finally:
        ledger.close()


@contextmanager
def on_cluster(resolved: Resolved, here: World) -> Generator[Cluster]:
    """The run's cluster as the current one; one that cannot be opened now is waited for."""
    with using(patient(open_cluster)(resolved.cluster, here.settings.home)) as cluster:
        yield cluster
