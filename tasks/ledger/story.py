"""Reading the ledger: one run's whole story, the raw history, and whether anything changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Table, func, select

from profiles.errors import NotFound
from tasks.ledger.database import LedgerPart, LedgerTransaction
from tasks.ledger.rows import Record, from_row, read_column
from tasks.ledger.runs import ACT, lease_of, pause_of_everything
from tasks.ledger.tables import (
    ACTIONS,
    APPROVALS,
    ATTEMPTS,
    BY_PEOPLE,
    CHANGES,
    CHECKPOINTS,
    HISTORY,
    INCIDENTS,
    MARKS,
    REQUESTS,
    RUNS,
)
from workflows.model.records import (
    Act,
    ActionRecord,
    Actor,
    ApprovalRecord,
    AttemptRecord,
    CheckpointRecord,
    IncidentRecord,
    Json,
    MarkRecord,
    RequestRecord,
    RunRecord,
    Story,
)
from workflows.model.runs import HistoryRow

_HISTORY_PAGE = 1000
ACTS = 500
"""Of a run, in its story; the history has all."""


@dataclass(frozen=True)
class HistoryLine:
    """One write, as `primus ledger` shows it."""

    at: float
    """Seconds since the epoch."""
    run: str
    """"" where it concerns every run or only a node."""
    kind: str
    """`run`, `mode`, `paused`, `unpaused`, `lease`, `attempt`, `incident`, `action`, `approval`, `checkpoint`,
    `request`, `verdict`, `node`, `finding`, `throughput`; `act`: what a person did of which no other line tells."""
    subject: str
    """Id of what was written."""
    why: str
    data: Json = field(default_factory=lambda: {})
    """The record when it was created, afterwards what changed."""
    by: Actor | None = None
    """The person who did it; None: we did."""


class StoryLedger(LedgerPart):
    """What happened."""

    def story(self, run: str) -> Story:
        """Everything about one run as it stood at one moment.

        Raises:
            NotFound: no such run.
        """
        with self.database.reading() as transaction:
            row = transaction.one(select(RUNS).where(RUNS.c.name == run))
            if row is None:
                raise NotFound(f"the ledger knows no run {run}: `primus runs` lists those it knows")
            record, everything = from_row(RunRecord, row), pause_of_everything(transaction)
            return Story(
                run=record,
                attempts=_of(transaction, AttemptRecord, ATTEMPTS, run, ATTEMPTS.c.number),
                incidents=_of(transaction, IncidentRecord, INCIDENTS, run, INCIDENTS.c.detected_at, INCIDENTS.c.id),
                actions=_of(transaction, ActionRecord, ACTIONS, run, ACTIONS.c.planned_at, ACTIONS.c.id),
                approvals=_of(transaction, ApprovalRecord, APPROVALS, run, APPROVALS.c.asked_at, APPROVALS.c.id),
                requests=_of(transaction, RequestRecord, REQUESTS, run, REQUESTS.c.at, REQUESTS.c.id),
                checkpoints=_of(transaction, CheckpointRecord, CHECKPOINTS, run, CHECKPOINTS.c.step, CHECKPOINTS.c.at),
                marks=_of(transaction, MarkRecord, MARKS, run, MARKS.c.at, MARKS.c.seq),
                acts=_acts(transaction, run),
                lease=lease_of(transaction, run),
                paused=record.paused or everything is not None,
                extra={} if everything is None else {"everything_paused": everything},
            )

    def changes(self, run: str) -> int:
        """A number that grows with every write about the run but lease renewals; 0 for an unknown run.

        Cheap enough to ask ten times a second: one row by its key.
        """
        with self.database.reading() as transaction:
            row = transaction.one(select(CHANGES.c.number).where(CHANGES.c.run == run))
        return 0 if row is None else int(row["number"])

    def history(self, run: str | None = None, since: float = 0.0, limit: int = 0) -> Iterable[HistoryLine]:
        """Every write at `since` or later, oldest first, read in pages so that a long history fits in memory.

        `since` is in Unix seconds. Of this run (None: of all), at most the newest `limit` ones (0: all).

        Raises:
            Unavailable: also between two pages.
        """
        wanted = [HISTORY.c.at >= since, *([] if run is None else [HISTORY.c.run == run])]
        query = select(HISTORY).where(*wanted).order_by(HISTORY.c.seq).limit(_HISTORY_PAGE)
        with self.database.reading() as transaction:
            after = _before(transaction, wanted, limit)
        while True:
            with self.database.reading() as transaction:
                rows = transaction.all(query.where(HISTORY.c.seq > after))
            for row in rows:
                yield HistoryLine(
                    row["at"],
                    row["run"],
                    row["kind"],
                    row["subject"],
                    row["why"],
                    json.loads(row["data"]),
                    read_column(HistoryRow, "by", row["by"]),
                )
            if len(rows) < _HISTORY_PAGE:
                return
            after = rows[-1]["seq"]


def acts_query(run: str) -> Select[Any]:
    """The newest lines of people's acts about a run; it reads none of the others, of which there may be many."""
    return select(HISTORY).where(HISTORY.c.run == run, BY_PEOPLE).order_by(HISTORY.c.seq.desc()).limit(ACTS)


def _acts(transaction: LedgerTransaction, run: str) -> tuple[Act, ...]:
    """What people did about the run, the newest `ACTS`, oldest first."""
    lines = [from_row(HistoryRow, row) for row in transaction.all(acts_query(run))]
    acts = ((line, _word_of(line.kind, json.loads(line.data))) for line in reversed(lines))
    return tuple(
        Act(line.at, line.subject if line.kind == ACT else word, line.subject, line.why, line.by)
        for line, word in acts
        if word and line.by is not None
    )


def _word_of(kind: str, data: Json) -> str:
    """The command's word for what a line tells that a person did; "": it tells only what followed from that."""
    match kind:
        case "run":
            return "train" if "created_at" in data else "resume" if "resumed_at" in data else ""
        case "approval":
            return {"approved": "approve", "denied": "deny"}.get(str(data.get("state")), "")
        case "request":
            return str(data.get("kind", ""))
        case "mode":
            return f"mode {data.get('mode', '')}"
        case "paused" | "unpaused":
            return kind.removesuffix("d")
        case _:
            return kind


def _before(transaction: LedgerTransaction, wanted: Sequence[ColumnElement[bool]], limit: int) -> int:
    """The number behind which the wanted lines begin: what lies before it is not read."""
    found = select(HISTORY.c.seq).where(*wanted)
    if limit:
        row = transaction.one(found.order_by(HISTORY.c.seq.desc()).offset(limit - 1).limit(1))
        if row is not None:
            return int(row["seq"]) - 1
    first = transaction.connection.execute(select(func.min(HISTORY.c.seq)).where(*wanted)).scalar()
    return 0 if first is None else int(first) - 1


def _of(
    transaction: LedgerTransaction,
    record_type: type[Record],
    table: Table,
    run: str,
    *order: Column[float] | Column[str],
) -> tuple[Record, ...]:
    rows = transaction.all(select(table).where(table.c.run == run).order_by(*order))
    return tuple(from_row(record_type, row) for row in rows)
