"""Runs: their state, mode and pause, and what people ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select

from profiles.errors import Conflict
from profiles.vocabulary import FINISHED, Mode, RunState
from tasks.ledger_database import NAMES_AT_ONCE, Transaction
from tasks.ledger_part import LedgerPart, change, create_or_get, get
from tasks.ledger_rows import from_row
from tasks.ledger_tables import ATTEMPTS, MARKS, REQUESTS, RUNS, SWITCHES
from workflows.records import RequestRecord, RunRecord

_PAUSE = "pause"


class RunLedger(LedgerPart):
    """What the ledger knows of runs as a whole."""

    def open_run(self, record: RunRecord) -> RunRecord:
        """Create the run, or return the one of that name as it stands (compare `digest`: it may be another profile)."""
        with self.database.writing(record.name, synced=True) as transaction:
            return create_or_get(transaction, RUNS, record, {"name": record.name}, "run", record.why)[0]

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
        self, run: str, fencing: int | None, state: RunState, why: str, ended_at: float | None = None
    ) -> RunRecord:
        """Say where the run stands and why.

        Args:
            run: its name.
            fencing: the driver's number; None only where no driver can live any more.
            state: the new state.
            why: one sentence.
            ended_at: when it ended; None keeps what stands there.

        Raises:
            Fenced, NotFound.
        """
        changes: dict[str, object] = {"state": state, "why": why}
        if ended_at is not None:
            changes["ended_at"] = ended_at
        with self.database.writing(run, fencing, synced=state in FINISHED) as transaction:
            return _change(transaction, run, changes)

    def set_mode(self, run: str, mode: Mode, why: str = "") -> RunRecord:
        """How far automation may go from now on: `--mode` outranks the recovery profile.

        Raises:
            NotFound.
        """
        with self.database.writing(run) as transaction:
            record = change(transaction, RUNS, RunRecord, {"name": run}, "run", {"mode": mode}, noted=False)
            transaction.note("mode", run, why or f"mode {mode.value}", f'{{"mode":"{mode.value}"}}')
            return record

    def resume_run(self, run: str, why: str, now: float) -> RunRecord:
        """Let an ended run go on with the same history; open requests to stop it are done with.

        Raises:
            Conflict: it succeeded, or has not ended.
            NotFound.
        """
        with self.database.writing(run, synced=True) as transaction:
            record = get(transaction, RUNS, RunRecord, {"name": run}, "run")
            if record.state not in (RunState.FAILED, RunState.STOPPED):
                raise Conflict(f"run {run} is {record.state.value}: only a failed or stopped run can be resumed")
            _finish_requests(transaction, run, now)
            changes: dict[str, object] = {"state": RunState.PENDING, "why": why, "ended_at": None, "resumed_at": now}
            return _change(transaction, run, changes | {"resumes": record.resumes + 1})

    def pause(self, run: str | None, why: str) -> None:
        """Halt automatic actions of one run, or (None) of everything; training itself goes on. Safe to repeat.

        Raises:
            NotFound.
        """
        self._set_paused(run, True, why)

    def unpause(self, run: str | None, why: str = "") -> None:
        """Allow automatic actions again. A run that was paused by itself stays so when everything is unpaused.

        Raises:
            NotFound.
        """
        self._set_paused(run, False, why)

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

    def request(self, record: RequestRecord) -> RequestRecord:
        """Leave a request for the driver; the same id again returns what stands there.

        Raises:
            NotFound: no such run.
        """
        with self.database.writing(record.run, synced=True) as transaction:
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

    def _set_paused(self, run: str | None, paused: bool, why: str) -> None:
        with self.database.writing(run or "", synced=True) as transaction:
            if run is None:
                names = _switch_everything(transaction, paused, why)
            else:
                names = [run] if get(transaction, RUNS, RunRecord, {"name": run}, "run").paused != paused else []
                transaction.update(RUNS, {"name": run}, {"paused": paused})
            word = "paused" if paused else "unpaused"
            _mark_all(transaction, names, word, why)
            transaction.note_all(word, [(name, why, "{}") for name in names], runs=names)
            if run is None:
                transaction.touch_all(names)


def pause_of_everything(transaction: Transaction) -> str | None:
    """Why everything is paused, or None."""
    row = transaction.one(select(SWITCHES).where(SWITCHES.c.name == _PAUSE, SWITCHES.c.on))
    return None if row is None else str(row["why"])


def _switch_everything(transaction: Transaction, on: bool, why: str) -> list[str]:
    """Names of the runs that this concerns, in the order in which all writers lock them."""
    if (pause_of_everything(transaction) is not None) == on:
        return []
    row: dict[str, Any] = {"on": on, "why": why, "at": transaction.at}
    if not transaction.update(SWITCHES, {"name": _PAUSE}, row):
        transaction.insert_once(SWITCHES, row | {"name": _PAUSE})
    transaction.note("paused" if on else "unpaused", "everything", why, run="")
    living = select(RUNS.c.name).where(RUNS.c.state.not_in([state.value for state in FINISHED]))
    return [row["name"] for row in transaction.all(living.order_by(RUNS.c.name))]


def _mark_all(transaction: Transaction, runs: Sequence[str], kind: str, why: str) -> None:
    """The moment in the newest attempt of each run; a few statements for thousands of them."""
    newest = select(ATTEMPTS.c.run, func.max(ATTEMPTS.c.number).label("number")).group_by(ATTEMPTS.c.run)
    numbers: dict[str, int] = {}
    for start in range(0, len(runs), NAMES_AT_ONCE):
        rows = transaction.all(newest.where(ATTEMPTS.c.run.in_(runs[start : start + NAMES_AT_ONCE])))
        numbers |= {row["run"]: int(row["number"]) for row in rows}
    moment = {"kind": kind, "at": transaction.at, "detail": why}
    transaction.insert_all(MARKS, [moment | {"run": run, "attempt": numbers.get(run, 0)} for run in runs])


def _change(transaction: Transaction, run: str, changes: dict[str, object]) -> RunRecord:
    return change(transaction, RUNS, RunRecord, {"name": run}, "run", changes)


def _finish_requests(transaction: Transaction, run: str, now: float) -> None:
    still_open = REQUESTS.update().where(REQUESTS.c.run == run, REQUESTS.c.done_at.is_(None))
    transaction.connection.execute(still_open.values(done_at=now))
