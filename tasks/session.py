"""Opening what a process stands in: settings from the environment, the ledger, the cluster of a run."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from prefect.context import SyncClientContext

from profiles.resolve import Resolved
from tasks.cluster import Cluster, using
from tasks.clusters import open_cluster
from tasks.ledger import Ledger
from tasks.settings import Settings
from tasks.world import World, patient, standing_in


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
