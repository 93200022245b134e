"""What a task stands in: settings, ledger, clock; and the decorator that makes a function a task.

Clients are never parameters, because Prefect records those: they live in context variables. `tasks.cluster` holds the
cluster, this module the rest.
"""

from __future__ import annotations

import logging
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
from tasks.ledger import Ledger
from tasks.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


def patient(function: Callable[P, R]) -> Callable[P, R]:
    """The function, tried again for as long as a neighbour does not answer: training goes on meanwhile.

    This is the one retry of API hiccups. Only `Transient` errors are waited out, each for the time it names.
    """

    @wraps(function)
    def persevere(*args: P.args, **kwargs: P.kwargs) -> R:
        said = ""
        while True:
            try:
                return function(*args, **kwargs)
            except Transient as error:
                if str(error) != said:
                    said = str(error)
                    logging.getLogger("primus").warning("%s: %s; trying again", function.__name__, said)
                threading.Event().wait(error.retry_after_seconds)

    return persevere


def touch(said: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function a Prefect task that is run every time it is called, and patiently.

    Args:
        said: what the UI shows, with the function's parameters in braces: "submit attempt {number}".

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


@contextmanager
def standing_in(here: World) -> Generator[World]:
    """Make `here` the current world inside the block."""
    token = _current.set(here)
    try:
        yield here
    finally:
        _current.reset(token)
