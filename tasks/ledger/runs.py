"""Runs: their state, mode and pause, what people ask of them, and which process may drive them.

There is one lease a run, and a fencing number that grows with every holder. What reconciling reads takes a few queries
for all runs at once, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, or_, select

from profiles.errors import Conflict, Fenced
from profiles.vocabulary import FINISHED, Action, Mode, RunState
from tasks.ledger.database import NAMES_AT_ONCE, LedgerPart, LedgerTransaction, change, create_or_get, get
from tasks.ledger.rows import from_row, read_column
from tasks.ledger.tables import ATTEMPTS, HISTORY, INCIDENTS, LEASES, MARKS, REQUESTS, RUNS, SWITCHES
from workflows.model.records import (
    UNVERIFIED,
    Actor,
    Driver,
    Lease,
    NodeRecord,
    RequestRecord,
    RunRecord,
    told,
    waiting_words,
)
from workflows.model.runs import Fate, GangSeen, OpenRun

_PAUSE = "pause"
ACT = "act"
REMOVED = "runs rm"
"""Kind of a line that tells of a person's act alone; what came of others stands in a line of its own kind."""

LEASE_SECONDS = 15.0
"""A holder that did not renew for so long is taken over; holders renew every third of it."""


class RunLedger(LedgerPart):
    """Runs: where they stand, who may drive them, and what is left of them."""

    def open_run(self, record: RunRecord, by: Actor | None = None) -> RunRecord:
        """Create the run, or return the one of that name as it stands (compare `digest`: it may be another profile).

        `by` asked for it, the first time or again.
        """
        with self.database.writing(record.name, synced=True, by=by) as transaction:
            written, new = create_or_get(transaction, RUNS, record, {"name": record.name}, "run", record.why)
            if by is not None and not new and written.digest == record.digest:
                transaction.note(ACT, "train", "asked for again: it goes on as it is")
            return written

    def run(self, name: str) -> RunRecord | None:
        """The run, or None."""
        with self.database.reading() as transaction:
            row = transaction.one(select(RUNS).where(RUNS.c.name == name))
        return None if row is None else from_row(RunRecord, row)

    def runs(self) -> list[RunRecord]:
        """All runs, oldest first."""
        with self.database.reading() as transaction:
            rows = transaction.all(select(RUNS).order_by(RUNS.c.created_at, RUNS.c.name))
        return [from_row(RunRecord, row) for row in rows]

    def set_run_state(
        self,
        run: str,
        fencing: int | None,
        state: RunState,
        why: str,
        ended_at: float | None = None,
        *,
        waits_for: str = "",
        goes_on: bool = False,
    ) -> RunRecord:
        """Say where the run stands and why.

        Args:
            run: its name.
            fencing: the driver's number; None only where no driver can live any more.
            state: the new state.
            why: one sentence.
            ended_at: when it ended; None keeps what stands there.
            waits_for: what the driver waits for; `why` tells it too.
            goes_on: training goes on meanwhile, by the ranks' own logs.

        Raises:
            Fenced, NotFound.
        """
        told = why + waiting_words(waits_for, goes_on=goes_on)
        changes: dict[str, object] = {"state": state, "why": told, "waits_for": waits_for, "goes_on": goes_on}
        if ended_at is not None:
            changes["ended_at"] = ended_at
        with self.database.writing(run, fencing, synced=state in FINISHED) as transaction:
            return _change(transaction, run, changes)

    def set_mode(self, run: str, mode: Mode, why: str = "", *, by: Actor = UNVERIFIED) -> RunRecord:
        """How far automation may go from now on: `--mode` outranks the recovery profile.

        Raises:
            NotFound.
        """
        with self.database.writing(run, by=by) as transaction:
            record = change(transaction, RUNS, RunRecord, {"name": run}, "run", {"mode": mode}, noted=False)
            transaction.note("mode", run, why or f"mode {mode.value}", f'{{"mode":"{mode.value}"}}')
            return record

    def set_tags(self, run: str, owner: str, tags: Mapping[str, str], *, by: Actor = UNVERIFIED) -> RunRecord:
        """Whose the run is from now on ("": as before), and these tags over those that it has.

        Raises:
            NotFound.
        """
        with self.database.writing(run, by=by) as transaction:
            before = get(transaction, RUNS, RunRecord, {"name": run}, "run", lock=True)
            changes = {"owner": owner or before.owner, "tags": {**before.tags, **tags}}
            if changes == {"owner": before.owner, "tags": before.tags}:
                return before
            record = change(transaction, RUNS, RunRecord, {"name": run}, "run", changes, noted=False)
            words = [f"owner {record.owner}", *(f"{name}={value}" for name, value in record.tags.items())]
            transaction.note(ACT, "tags", ", ".join(words))
            return record

    def resume_run(self, run: str, why: str, now: float, *, by: Actor = UNVERIFIED) -> RunRecord:
        """Let an ended run go on with the same history; open requests to stop it are done with.

        Raises:
            Conflict: it succeeded, or has not ended.
            NotFound.
        """
        with self.database.writing(run, synced=True, by=by) as transaction:
            record = get(transaction, RUNS, RunRecord, {"name": run}, "run")
            if record.state not in (RunState.FAILED, RunState.STOPPED):
                raise Conflict(f"run {run} is {record.state.value}: only a failed or stopped run can be resumed")
            gone = select(HISTORY.c.at).where(HISTORY.c.run == run, HISTORY.c.kind == ACT, HISTORY.c.subject == REMOVED)
            if transaction.one(gone) is not None:
                raise Conflict(f"run {run} cannot go on: primus runs rm removed its files; choose another --name")
            _finish_requests(transaction, run, now)
            changes: dict[str, object] = {"state": RunState.PENDING, "why": why, "ended_at": None, "resumed_at": now}
            return _change(transaction, run, changes | {"resumes": record.resumes + 1})

    def forget_files(self, run: str, by: Actor) -> None:
        """Write down that the files of an ended run are removed, its checkpoints with them: it never goes on.

        Raises:
            Conflict: it has not ended.
            NotFound.
        """
        with self.database.writing(run, synced=True, by=by) as transaction:
            record = get(transaction, RUNS, RunRecord, {"name": run}, "run", lock=True)
            if record.state not in FINISHED:
                raise Conflict(f"run {run} is {record.state.value}: only files of an ended run can be removed")
            transaction.note(ACT, REMOVED, "its files are removed; what the ledger knows of it stays")

    def pause(self, run: str | None, why: str, *, by: Actor = UNVERIFIED) -> None:
        """Halt automatic actions of one run, or (None) of everything; training itself goes on. Safe to repeat.

        Raises:
            NotFound.
        """
        self._set_paused(run, True, why, by)

    def unpause(self, run: str | None, why: str = "", *, by: Actor = UNVERIFIED) -> None:
        """Allow automatic actions again. A run that was paused by itself stays so when everything is unpaused.

        Raises:
            NotFound.
        """
        self._set_paused(run, False, why, by)

    def paused(self, run: str) -> bool:
        """True where the run or everything is paused."""
        with self.database.reading() as transaction:
            one = transaction.one(select(RUNS.c.paused).where(RUNS.c.name == run))
            return bool(one and one["paused"]) or pause_of_everything(transaction) is not None

    def automation(self, run: str) -> tuple[Mode, bool]:
        """How far automation of the run goes now, and whether it or everything is paused.

        Raises:
            NotFound: no such run.
        """
        with self.database.reading() as transaction:
            record = get(transaction, RUNS, RunRecord, {"name": run}, "run")
            return record.mode, record.paused or pause_of_everything(transaction) is not None

    def request(self, record: RequestRecord, by: Actor | None = None) -> RequestRecord:
        """Leave a request for the driver; the same id again returns what stands there.

        `by` asks; only a person asks for a stop.

        Raises:
            NotFound: no such run.
        """
        by = UNVERIFIED if by is None and record.kind == "stop" else by
        with self.database.writing(record.run, synced=True, by=by) as transaction:
            get(transaction, RUNS, RunRecord, {"name": record.run}, "run")
            return create_or_get(transaction, REQUESTS, record, {"id": record.id}, "request", record.why)[0]

    def requests(self, run: str, open_only: bool = True) -> list[RequestRecord]:
        """Requests to the run's driver, oldest first."""
        query = select(REQUESTS).where(REQUESTS.c.run == run).order_by(REQUESTS.c.at, REQUESTS.c.id)
        if open_only:
            query = query.where(REQUESTS.c.done_at.is_(None))
        with self.database.reading() as transaction:
            return [from_row(RequestRecord, row) for row in transaction.all(query)]

    def finish_request(self, fencing: int | None, run: str, request_id: str, done_at: float) -> RequestRecord:
        """The driver did what was asked.

        Raises:
            Fenced, NotFound.
        """
        with self.database.writing(run, fencing) as transaction:
            changes = {"done_at": done_at}
            return change(transaction, REQUESTS, RequestRecord, {"id": request_id}, "request", changes)

    def act(self, run: str, what: str, why: str, by: Actor) -> None:
        """Write down what a person did where nothing else in the ledger tells of it.

        `run`: which it concerns; "" where it concerns none.
        """
        with self.database.writing(run, by=by) as transaction:
            transaction.note(ACT, what, why)

    def _set_paused(self, run: str | None, paused: bool, why: str, by: Actor) -> None:
        with self.database.writing(run or "", synced=True, by=by) as transaction:
            word = "paused" if paused else "unpaused"
            names = _switch_everything(transaction, paused, why) if run is None else _switch(transaction, run, paused)
            if names is None:
                said = f"{run or 'everything'} was {word} already: {why}"
                transaction.note(ACT, word.removesuffix("d"), said)
                return
            _mark_all(transaction, names, word, told(why, by))
            transaction.note_all(word, [(name, why, "{}") for name in names], runs=names)
            if run is None:
                transaction.touch_all(names)

    def acquire(self, run: str, driver: Driver, now: float, alive: Callable[[Driver], bool | None]) -> Lease:
        """Become the run's driver.

        A free, released or expired lease is taken, one's own too, and at once one whose holder is proven dead.

        `now` is in Unix seconds. `alive` says whether a driver lives: False is proof of death on this host, None means
        that nobody can tell.

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
        """Let others drive at once. A new holder is left alone; safe to repeat."""
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

    def gangs(self, cluster: str, alive: Callable[[Driver], bool | None]) -> list[GangSeen]:
        """Every run on a cluster that has not ended, with its newest attempt; see `acquire` for `alive`."""
        here = (_OPEN, RUNS.c.cluster == cluster)
        with self.database.reading() as transaction:
            runs = {row["name"]: row for row in transaction.all(select(*_ABOUT_RUNS).where(*here))}
            attempts = _newest_attempts(transaction, here)
            busy = _dealt_with(transaction, here)
        opened = [run for run in self.open_runs(alive) if run.name in runs]
        return [_gang(run, runs[run.name], attempts.get(run.name), busy) for run in opened]

    def fates(self, runs: Collection[str]) -> dict[str, Fate]:
        """What became of the runs with these names, and of their attempts; those that are not known are left out."""
        found: dict[str, Fate] = {}
        with self.database.reading() as transaction:
            for names in _chunks(sorted(runs)):
                rows = transaction.all(
                    select(RUNS.c.name, RUNS.c.cluster, RUNS.c.state, RUNS.c.ended_at, RUNS.c.created_at).where(
                        RUNS.c.name.in_(names)
                    )
                )
                ends = select(ATTEMPTS.c.run, ATTEMPTS.c.number, ATTEMPTS.c.ended_at).where(ATTEMPTS.c.run.in_(names))
                numbers: dict[str, dict[int, float | None]] = {}
                for row in transaction.all(ends):
                    numbers.setdefault(row["run"], {})[int(row["number"])] = row["ended_at"]
                for row in rows:
                    ended_at = row["ended_at"] if row["state"] in FINISHED else None
                    found[row["name"]] = Fate(row["cluster"], ended_at, numbers.get(row["name"], {}), row["created_at"])
        return found


def pause_of_everything(transaction: LedgerTransaction) -> str | None:
    """Why everything is paused, or None."""
    row = transaction.one(select(SWITCHES).where(SWITCHES.c.name == _PAUSE, SWITCHES.c.on))
    return None if row is None else told(str(row["why"]), read_column(NodeRecord, "by", row["by"]))


def _switch(transaction: LedgerTransaction, run: str, paused: bool) -> list[str] | None:
    """The run, where this changes anything; else None."""
    before = get(transaction, RUNS, RunRecord, {"name": run}, "run").paused
    transaction.update(RUNS, {"name": run}, {"paused": paused})
    return None if before == paused else [run]


def _switch_everything(transaction: LedgerTransaction, on: bool, why: str) -> list[str] | None:
    """Names of the runs that this concerns, in the order in which all writers lock them; None: it changes nothing."""
    if (pause_of_everything(transaction) is not None) == on:
        return None
    row: dict[str, Any] = {"on": on, "why": why, "at": transaction.at, "by": transaction.by}
    if not transaction.update(SWITCHES, {"name": _PAUSE}, row):
        transaction.insert_once(SWITCHES, row | {"name": _PAUSE})
    transaction.note("paused" if on else "unpaused", "everything", why, run="")
    living = select(RUNS.c.name).where(RUNS.c.state.not_in([state.value for state in FINISHED]))
    return [row["name"] for row in transaction.all(living.order_by(RUNS.c.name))]


def _mark_all(transaction: LedgerTransaction, runs: Sequence[str], kind: str, why: str) -> None:
    """The moment in the newest attempt of each run; a few statements for thousands of them."""
    newest = select(ATTEMPTS.c.run, func.max(ATTEMPTS.c.number).label("number")).group_by(ATTEMPTS.c.run)
    numbers: dict[str, int] = {}
    for start in range(0, len(runs), NAMES_AT_ONCE):
        rows = transaction.all(newest.where(ATTEMPTS.c.run.in_(runs[start : start + NAMES_AT_ONCE])))
        numbers |= {row["run"]: int(row["number"]) for row in rows}
    moment = {"kind": kind, "at": transaction.at, "detail": why}
    transaction.insert_all(MARKS, [moment | {"run": run, "attempt": numbers.get(run, 0)} for run in runs])


def _change(transaction: LedgerTransaction, run: str, changes: dict[str, object]) -> RunRecord:
    return change(transaction, RUNS, RunRecord, {"name": run}, "run", changes)


def _finish_requests(transaction: LedgerTransaction, run: str, now: float) -> None:
    still_open = REQUESTS.update().where(REQUESTS.c.run == run, REQUESTS.c.done_at.is_(None))
    transaction.connection.execute(still_open.values(done_at=now))


def lease_of(transaction: LedgerTransaction, run: str) -> Lease | None:
    """The run's present lease, expired or not; None where no process holds one."""
    row = _lease_row(transaction, run)
    return None if row is None else _held_lease(run, row)


def _held_lease(run: str, row: Mapping[Any, Any]) -> Lease | None:
    return Lease(run, int(row["fencing"]), _driver(row), float(row["expires_at"])) if row["held"] else None


def _open_run(row: Mapping[Any, Any], alive: Callable[[Driver], bool | None]) -> OpenRun:
    lease = _held_lease(row["name"], row)
    since = max(float(row["created_at"]), float(row["resumed_at"] or 0.0))
    lives = None if lease is None else alive(lease.driver)
    return OpenRun(row["name"], RunState(row["state"]), row["cluster"], since, lease, lives)


def _lease_row(transaction: LedgerTransaction, run: str, *, lock: bool = False) -> Mapping[Any, Any] | None:
    query = select(LEASES).where(LEASES.c.run == run)
    return transaction.one(query.with_for_update() if lock else query)


def _row(driver: Driver, expires_at: float) -> dict[str, Any]:
    return {"host": driver.host, "pid": driver.pid, "started_at": driver.started_at, "expires_at": expires_at}


def _driver(row: Mapping[Any, Any]) -> Driver:
    return Driver(str(row["host"]), int(row["pid"]), float(row["started_at"]))


def _holds(row: Mapping[Any, Any], asking: Driver, now: float) -> bool:
    """Whether another process than `asking` holds the lease at `now`."""
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


_OPEN = RUNS.c.state.not_in([state.value for state in FINISHED])
_ABOUT_RUNS = (RUNS.c.name, RUNS.c.mode, RUNS.c.paused)
_ABOUT_ATTEMPTS = (
    ATTEMPTS.c.run,
    ATTEMPTS.c.number,
    ATTEMPTS.c.submitted_at,
    ATTEMPTS.c.applied_at,
    ATTEMPTS.c.running_at,
    ATTEMPTS.c.last_step_at,
    ATTEMPTS.c.ended_at,
)


def _newest_attempts(transaction: LedgerTransaction, here: tuple[Any, ...]) -> dict[str, Mapping[Any, Any]]:
    newest = (
        select(ATTEMPTS.c.run, func.max(ATTEMPTS.c.number).label("number"))
        .join(RUNS, RUNS.c.name == ATTEMPTS.c.run)
        .where(*here)
        .group_by(ATTEMPTS.c.run)
        .subquery()
    )
    same = (ATTEMPTS.c.run == newest.c.run) & (ATTEMPTS.c.number == newest.c.number)
    return {row["run"]: row for row in transaction.all(select(*_ABOUT_ATTEMPTS).join(newest, same))}


def _dealt_with(transaction: LedgerTransaction, here: tuple[Any, ...]) -> frozenset[tuple[str, int]]:
    """(run, attempt) with an incident that leads to an action, and (run, 0) where a person asked for the end."""
    acted = or_(INCIDENTS.c.action.is_(None), INCIDENTS.c.action != Action.NONE.value)
    incidents = select(INCIDENTS.c.run, INCIDENTS.c.attempt).join(RUNS, RUNS.c.name == INCIDENTS.c.run)
    stops = select(REQUESTS.c.run).join(RUNS, RUNS.c.name == REQUESTS.c.run)
    stops = stops.where(*here, REQUESTS.c.kind == "stop", REQUESTS.c.done_at.is_(None))
    pairs = {(row["run"], int(row["attempt"])) for row in transaction.all(incidents.where(*here, acted).distinct())}
    return frozenset(pairs | {(row["run"], 0) for row in transaction.all(stops)})


def _gang(
    run: OpenRun, about: Mapping[Any, Any], attempt: Mapping[Any, Any] | None, busy: Collection[tuple[str, int]]
) -> GangSeen:
    mode, paused = Mode(about["mode"]), bool(about["paused"])
    if attempt is None:
        return GangSeen(run, mode, paused)
    moments = [attempt[name] for name in ("applied_at", "running_at", "last_step_at")]
    return GangSeen(
        run=run,
        mode=mode,
        paused=paused,
        attempt=int(attempt["number"]),
        submitted_at=attempt["submitted_at"],
        applied_at=attempt["applied_at"],
        heard_at=max((at for at in moments if at is not None), default=None),
        ended_at=attempt["ended_at"],
        handled=(run.name, int(attempt["number"])) in busy or (run.name, 0) in busy,
    )


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(names), NAMES_AT_ONCE):
        yield names[begin : begin + NAMES_AT_ONCE]
