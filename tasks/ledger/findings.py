"""What the monitor found, and how far those have come who go through the history.

What reconciling reads of the ledger: a few queries for all runs at once, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, or_, select

from profiles.vocabulary import FINISHED, Action, Mode
from tasks.ledger.database import LedgerPart, LedgerTransaction, as_json
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.runs import LeaseLedger, pause_of_everything
from tasks.ledger.tables import APPROVALS, ATTEMPTS, CURSORS, FINDINGS, HISTORY, INCIDENTS, REQUESTS, RUNS, VERDICTS
from workflows.model.records import ApprovalRecord, Driver
from workflows.model.runs import CursorRecord, Fate, FindingRecord, GangSeen, HistoryRow, OpenRun


class FindingLedger(LedgerPart):
    """Findings and cursors."""

    def open_finding(self, record: FindingRecord) -> FindingRecord:
        """Write what was found; an open finding of the same kind about the same subject is returned as it stands."""
        same = [FINDINGS.c[name] == getattr(record, name) for name in ("cluster", "kind", "subject")]
        query = select(FINDINGS).where(*same, FINDINGS.c.closed_at.is_(None))
        with self.database.writing(record.run, synced=True) as transaction:
            known = transaction.one(query)
            if known is not None:
                transaction.update(FINDINGS, {"id": known["id"]}, {"last_at": record.last_at})
                return from_row(FindingRecord, {**known, "last_at": record.last_at})
            if transaction.insert_once(FINDINGS, to_row(record)):
                transaction.note("finding", record.id, record.why, as_json(record))
        return record

    def tell_finding(self, identity: str, action: str, at: float) -> None:
        """What came of it, or why nothing was done; the same words again change nothing."""
        with self.database.writing() as transaction:
            row = transaction.one(select(FINDINGS).where(FINDINGS.c.id == identity))
            if row is not None and row["action"] != action:
                transaction.update(FINDINGS, {"id": identity}, {"action": action, "last_at": at})
                transaction.note("finding", identity, action, run=row["run"])

    def close_finding(self, identity: str, at: float) -> None:
        """It is no longer seen. Safe to repeat."""
        with self.database.writing() as transaction:
            row = transaction.one(select(FINDINGS).where(FINDINGS.c.id == identity))
            if row is not None and row["closed_at"] is None:
                transaction.update(FINDINGS, {"id": identity}, {"closed_at": at})
                transaction.note("finding", identity, "no longer seen", f'{{"closed_at": {at}}}', run=row["run"])

    def findings(self, cluster: str, *, open_only: bool = True, since: float = 0.0) -> list[FindingRecord]:
        """Findings about a cluster that were seen at `since` or later, oldest first."""
        query = select(FINDINGS).where(FINDINGS.c.cluster == cluster, FINDINGS.c.last_at >= since)
        if open_only:
            query = query.where(FINDINGS.c.closed_at.is_(None))
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(FINDINGS.c.first_at, FINDINGS.c.id))
        return [from_row(FindingRecord, row) for row in rows]

    def cursor(self, name: str) -> CursorRecord | None:
        """Where somebody stands; None: he never began."""
        with self.database.reading() as transaction:
            row = transaction.one(select(CURSORS).where(CURSORS.c.name == name))
        return None if row is None else from_row(CursorRecord, row)

    def move_cursor(self, name: str, position: int, at: float) -> None:
        """Stand there from now on; a cursor never goes back."""
        with self.database.writing() as transaction:
            put_cursor(transaction, name, position, at)

    def history_after(self, seq: int, limit: int) -> list[HistoryRow]:
        """Lines of the history after place `seq`, in order.

        On PostgreSQL a line of a transaction that is still open may appear later at a lower place than lines that are
        seen already: whoever must not miss one looks back over a few seconds and drops what he had.
        """
        query = select(HISTORY).where(HISTORY.c.seq > seq).order_by(HISTORY.c.seq).limit(limit)
        with self.database.reading() as transaction:
            return [from_row(HistoryRow, row) for row in transaction.all(query)]

    def history_end(self) -> int:
        """The place of the newest line; 0 where there is none."""
        with self.database.reading() as transaction:
            return int(transaction.connection.execute(select(func.max(HISTORY.c.seq))).scalar_one() or 0)


def put_cursor(transaction: LedgerTransaction, name: str, position: int, at: float) -> None:
    """What `move_cursor` does, beside other writes."""
    if not transaction.insert_once(CURSORS, {"name": name, "position": position, "at": at}):
        ahead = (CURSORS.c.name == name, CURSORS.c.position <= position)
        transaction.connection.execute(CURSORS.update().where(*ahead).values(position=position, at=at))


CHUNK = 500
"""Names in one query: databases limit how many values one may carry."""
_OPEN = RUNS.c.state.not_in([state.value for state in FINISHED])


class ReconcileLedger(LeaseLedger):
    """Runs and what is left of them."""

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

    def lapsing(self, now: float) -> list[ApprovalRecord]:
        """Questions whose time is up and that nobody has let lapse, oldest first."""
        query = select(APPROVALS).where(APPROVALS.c.state == "waiting", APPROVALS.c.expires_at <= now)
        with self.database.reading() as transaction:
            return [from_row(ApprovalRecord, row) for row in transaction.all(query.order_by(APPROVALS.c.asked_at))]

    def why_paused(self) -> str | None:
        """Why everything is paused; None: it is not."""
        with self.database.reading() as transaction:
            return pause_of_everything(transaction)

    def cursors(self, prefix: str) -> dict[str, CursorRecord]:
        """Cursors whose names begin so, by the rest of their names."""
        query = select(CURSORS).where(CURSORS.c.name.startswith(prefix, autoescape=True))
        with self.database.reading() as transaction:
            rows = transaction.all(query)
        return {str(row["name"]).removeprefix(prefix): from_row(CursorRecord, row) for row in rows}

    def last_verdicts(self, cluster: str, depth: str, nodes: Sequence[str]) -> dict[str, tuple[str, float]]:
        """Word and time of the newest verdict of a depth about each of these nodes; a few hundred at most."""
        of_these = (VERDICTS.c.cluster == cluster, VERDICTS.c.depth == depth, VERDICTS.c.node.in_(nodes))
        newest = select(func.max(VERDICTS.c.seq)).where(*of_these).group_by(VERDICTS.c.node)
        query = select(VERDICTS.c.node, VERDICTS.c.verdict, VERDICTS.c.at).where(VERDICTS.c.seq.in_(newest))
        with self.database.reading() as transaction:
            return {row["node"]: (row["verdict"], float(row["at"])) for row in transaction.all(query)}


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
    """(run, attempt) with an incident that leads to something, and (run, 0) where a person asked for the end."""
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
    for begin in range(0, len(names), CHUNK):
        yield names[begin : begin + CHUNK]
