"""The right to drive a run: taken, renewed in the background, released; and whose objects in the cluster are.

Objects of another ledger's run of the same name are left alone.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace

from profiles.errors import Fenced, NotFound, PrimusError, Refused, Transient
from tasks.cluster import Kind, Manifest, current
from tasks.context import Right, World, patient, standing_in, world
from tasks.ledger.ledger import Ledger
from tasks.processes import process_start
from workflows import labels
from workflows.model import ownership
from workflows.model.records import Driver, Lease

RENEW_SECONDS = 5.0
"""A lease lasts three times as long, so two renewals in a row may fail."""
_RIGHTS: dict[str, Right] = {}
"""What this process holds, by run: a signal may have to end it."""


@contextmanager
def driving(run: str) -> Generator[Right]:
    """Hold the lease of `run` inside the block.

    Raises:
        Conflict: another living process drives it (the message names it).
        Unavailable: the ledger does not answer.
    """
    here = world()
    lease = here.ledger.acquire(run, this_driver(), here.now(), is_alive)
    right = Right(run, lease.fencing)
    ended = threading.Event()
    renewing = threading.Thread(target=_keep_renewing, args=(here.ledger, lease, right, here, ended), daemon=True)
    renewing.start()
    _RIGHTS[run] = right
    try:
        with standing_in(replace(here, right=right)):
            yield right
    finally:
        _RIGHTS.pop(run, None)
        ended.set()
        renewing.join(timeout=RENEW_SECONDS)
        with suppress(PrimusError):  # if not, it runs out by itself
            here.ledger.release(lease)


def this_driver() -> Driver:
    """This process as a holder of leases."""
    pid = os.getpid()
    return Driver(host=socket.gethostname(), pid=pid, started_at=process_start(pid) or 0.0)


def is_alive(driver: Driver) -> bool | None:
    """Whether the holder lives: True or False on this host, None (not known) on another."""
    if driver.host != socket.gethostname():
        return None
    return process_start(driver.pid) == driver.started_at


def let_go(url: str, run: str) -> bool:
    """Release the lease of `run` that this process holds, on a connection of its own; True where it held one.

    For a process that is about to end: training goes on, and whoever drives next need not wait for the lease's end.
    Whatever else drives in this process is fenced first.

    Raises:
        Unavailable: the ledger does not answer; the lease runs out by itself.
    """
    right = _RIGHTS.get(run)
    if right is not None:
        right.lose(f"run {run}: this driver was told to let go")
    ledger = Ledger(url)
    try:
        lease = ledger.lease(run)
        if lease is None or lease.driver != this_driver():
            return False
        ledger.release(lease)
        return True
    finally:
        ledger.close()


def _keep_renewing(ledger: Ledger, lease: Lease, right: Right, now: World, ended: threading.Event) -> None:
    while not ended.wait(RENEW_SECONDS):
        try:
            lease = ledger.renew(lease, now.now())
        except Fenced as error:
            right.lose(str(error))
            return
        except Transient:
            continue  # the ledger is away: training goes on, and every write of ours checks the number anyway


def our_ledger() -> str:
    """Identity of the ledger of this process.

    Raises:
        Unavailable: it does not answer, and was never asked.
    """
    return world().ledger.identity()


@patient
def taken_by_another(run: str) -> str:
    """Why this ledger may not begin a run of this name: another one's is on the cluster; "" where there is none.

    A cluster that may not be listed says nothing here: what is created under a name that is taken is refused anyway.
    """
    found: list[Manifest] = []
    kinds: tuple[Kind, ...] = ("JobSet", "Workflow")
    for kind in kinds:
        with suppress(NotFound, Refused):
            found += [{"kind": kind, **item} for item in current().list(kind, {labels.RUN: run})]
    others = [item for item in found if ownership.is_foreign(item, our_ledger())]
    return str(ownership.foreign(others[0])) if others else ""


def is_taken(kind: Kind, name: str) -> bool:
    """Whether an object of this name is another ledger's.

    Raises:
        Unavailable, Refused.
    """
    found = current().get(kind, name)
    return found is not None and ownership.is_foreign(found, our_ledger())


def ours(kind: Kind, name: str) -> Manifest | None:
    """The object; None where it does not exist or belongs to another ledger.

    Raises:
        Unavailable, Refused.
    """
    found = current().get(kind, name)
    return None if found is None or ownership.is_foreign(found, our_ledger()) else found
