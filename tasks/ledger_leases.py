"""Who may drive a run: one lease a run, and a fencing number that grows with every holder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import select

from profiles.errors import Conflict, Fenced
from profiles.vocabulary import FINISHED, RunState
from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart
from tasks.ledger_tables import LEASES, RUNS
from workflows.driven import OpenRun
from workflows.records import Driver, Lease

LEASE_SECONDS = 15.0
"""A holder that did not renew for so long is taken over; holders renew every third of it."""


class LeaseLedger(LedgerPart):
    """The right to drive."""

    def acquire(self, run: str, driver: Driver, now: float, alive: Callable[[Driver], bool | None]) -> Lease:
        """Become the run's driver.

        A free, released or expired lease is taken, one's own too, and at once one whose holder is proven dead.

        Args:
            run: the run's name.
            driver: who asks.
            now: seconds since the epoch.
            alive: whether a driver lives: False is proof of death on this host, None means that nobody can tell.

        Raises:
            Conflict: somebody else drives it; the message names the holder.
            Unavailable: see `Database.writing`.
        """
        with self.database.reading() as transaction:
            seen = _lease_row(transaction, run)
        # Asked outside the transaction: looking at processes must not hold up other writers.
        dead = seen is not None and bool(seen["held"]) and alive(_driver(seen)) is False
        with self.database.writing(run, synced=True) as transaction:
            present = _lease_row(transaction, run, lock=True)
            if present is not None and _holds(present, driver, now):
                same_holder = seen is not None and seen["fencing"] == present["fencing"]
                if not (dead and same_holder):
                    raise Conflict(_taken(run, present, now))
            fencing = 1 if present is None else int(present["fencing"]) + 1
            row = _row(driver, now + LEASE_SECONDS) | {"fencing": fencing, "held": True}
            if present is not None:
                transaction.update(LEASES, {"run": run}, row)
            elif not transaction.insert_once(LEASES, row | {"run": run}):
                raise Conflict(f"run {run}: another process took it a moment ago; try again")
            transaction.note("lease", run, _why_granted(present, driver, now), f'{{"fencing":{fencing}}}')
        return Lease(run, fencing, driver, now + LEASE_SECONDS)

    def renew(self, lease: Lease, now: float) -> Lease:
        """Stay the driver for another `LEASE_SECONDS`. A late renewal is fine as long as nobody took over.

        Raises:
            Fenced: somebody took over, or it was released: stop and touch nothing.
        """
        with self.database.writing() as transaction:
            key = {"run": lease.run, "fencing": lease.fencing, "held": True}
            if not transaction.update(LEASES, key, {"expires_at": now + LEASE_SECONDS}):
                raise Fenced(_fenced(lease, _lease_row(transaction, lease.run)))
        return Lease(lease.run, lease.fencing, lease.driver, now + LEASE_SECONDS)

    def release(self, lease: Lease) -> None:
        """Let others drive at once. Somebody who took over meanwhile is left alone; safe to repeat."""
        with self.database.writing(lease.run) as transaction:
            key = {"run": lease.run, "fencing": lease.fencing, "held": True}
            if transaction.update(LEASES, key, {"held": False}):
                transaction.note("lease", lease.run, "released", f'{{"fencing":{lease.fencing}}}')

    def lease(self, run: str) -> Lease | None:
        """The present lease (it may have expired), or None where nobody holds one."""
        with self.database.reading() as transaction:
            return lease_of(transaction, run)

    def open_runs(self, alive: Callable[[Driver], bool | None]) -> list[OpenRun]:
        """Every run that has not ended, oldest first, with who drives it; see `acquire` for `alive`."""
        about = (RUNS.c.name, RUNS.c.state, RUNS.c.cluster, RUNS.c.created_at, RUNS.c.resumed_at)
        held = (LEASES.c.held, LEASES.c.fencing, LEASES.c.host, LEASES.c.pid, LEASES.c.started_at, LEASES.c.expires_at)
        query = (
            select(*about, *held)
            .join(LEASES, LEASES.c.run == RUNS.c.name, isouter=True)
            .where(RUNS.c.state.not_in([state.value for state in FINISHED]))
            .order_by(RUNS.c.created_at, RUNS.c.name)
        )
        with self.database.reading() as transaction:
            rows = transaction.all(query)
        return [_open_run(row, alive) for row in rows]


def lease_of(transaction: Transaction, run: str) -> Lease | None:
    """See `LeaseLedger.lease`."""
    row = _lease_row(transaction, run)
    return None if row is None else _held_lease(run, row)


def _held_lease(run: str, row: Mapping[Any, Any]) -> Lease | None:
    return Lease(run, int(row["fencing"]), _driver(row), float(row["expires_at"])) if row["held"] else None


def _open_run(row: Mapping[Any, Any], alive: Callable[[Driver], bool | None]) -> OpenRun:
    lease = _held_lease(row["name"], row)
    since = max(float(row["created_at"]), float(row["resumed_at"] or 0.0))
    lives = None if lease is None else alive(lease.driver)
    return OpenRun(row["name"], RunState(row["state"]), row["cluster"], since, lease, lives)


def _lease_row(transaction: Transaction, run: str, *, lock: bool = False) -> Mapping[Any, Any] | None:
    query = select(LEASES).where(LEASES.c.run == run)
    return transaction.one(query.with_for_update() if lock else query)


def _row(driver: Driver, expires_at: float) -> dict[str, Any]:
    return {"host": driver.host, "pid": driver.pid, "started_at": driver.started_at, "expires_at": expires_at}


def _driver(row: Mapping[Any, Any]) -> Driver:
    return Driver(str(row["host"]), int(row["pid"]), float(row["started_at"]))


def _holds(row: Mapping[Any, Any], asking: Driver, now: float) -> bool:
    """Whether somebody else than `asking` holds the lease at `now`."""
    return bool(row["held"]) and float(row["expires_at"]) > now and _driver(row) != asking


def _taken(run: str, row: Mapping[Any, Any], now: float) -> str:
    left = float(row["expires_at"]) - now
    return f"run {run} is driven by process {row['pid']} on {row['host']} (its lease runs another {left:.0f} s)"


def _why_granted(before: Mapping[Any, Any] | None, driver: Driver, now: float) -> str:
    who = f"process {driver.pid} on {driver.host}"
    if before is None:
        return f"{who} is the first driver"
    if not before["held"]:
        return f"{who} drives: the last driver had released it"
    if _driver(before) == driver:
        return f"{who} starts over"
    reason = "its lease expired" if float(before["expires_at"]) <= now else "it is dead"
    return f"{who} takes over from process {before['pid']} on {before['host']}: {reason}"


def _fenced(lease: Lease, row: Mapping[Any, Any] | None) -> str:
    holder = "nobody" if row is None or not row["held"] else f"process {row['pid']} on {row['host']}"
    return f"run {lease.run}: number {lease.fencing} is over, {holder} drives now: this driver must stop"
