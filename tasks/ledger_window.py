"""Reading all runs of a stretch of time at once: four queries, however many runs there are.

Steps stay packed. Where the time of an ended run went stands in its summary, a small row of its own; the pieces of it
are read only for runs that the window's edge cuts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import ColumnElement, RowMapping, and_, case, func, literal, or_, select

from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart
from tasks.ledger_tables import ATTEMPTS, INCIDENTS, RUNS, SUMMARIES
from workflows.summary import HeldGang, LedgerWindow, RunSummary, Stretch, WindowIncident, WindowRun
from workflows.told import TOLD


class WindowLedger(LedgerPart):
    """All runs between two moments."""

    def window(self, cluster: str, since: float, until: float) -> LedgerWindow:
        """What is known of every run of the cluster that lived in [since, until].

        Args:
            cluster: name of the cluster profile; "": of all clusters.
            since: Unix seconds.
            until: Unix seconds.
        """
        lived = [RUNS.c.created_at < until, or_(RUNS.c.ended_at.is_(None), RUNS.c.ended_at > since)]
        if cluster:
            lived.append(RUNS.c.cluster == cluster)
        with self.database.reading() as transaction:
            return LedgerWindow(
                since,
                until,
                _runs(transaction, lived, since, until),
                _held(transaction, lived, since, until),
                _incidents(transaction, lived, since, until),
            )

    def keep_summary(self, summary: RunSummary) -> None:
        """Write the summary of a run that has ended; a later one (the run was resumed) takes the place of the first."""
        row = {
            "begin": summary.begin,
            "end": summary.end,
            "gpus": summary.gpus,
            "nodes": summary.nodes,
            "price_per_gpu_hour": summary.price_per_gpu_hour,
            "currency": summary.currency,
            "by_state": json.dumps(summary.by_state),
            "lost_by_class": json.dumps(summary.lost_by_class),
            "stretches": zlib.compress(json.dumps(summary.stretches).encode(), 1),
        }
        with self.database.writing() as transaction:
            if not transaction.update(SUMMARIES, {"run": summary.run}, row):
                transaction.insert_once(SUMMARIES, row | {"run": summary.run})


_RUN = ("name", "cluster", "state", "created_at", "ended_at")
_SUMMARY = ("begin", "end", "gpus", "nodes", "price_per_gpu_hour", "currency", "by_state", "lost_by_class")


def _runs(
    transaction: Transaction, lived: Sequence[ColumnElement[bool]], since: float, until: float
) -> tuple[WindowRun, ...]:
    """Of a run that was resumed after its summary was written the summary tells nothing: their ends differ."""
    cut = or_(RUNS.c.created_at < since, RUNS.c.ended_at > until)
    pieces = case((cut, SUMMARIES.c.stretches), else_=literal(None)).label("pieces")
    ended = and_(SUMMARIES.c.run == RUNS.c.name, SUMMARIES.c.end == RUNS.c.ended_at)
    columns = [*(RUNS.c[name] for name in _RUN), *(SUMMARIES.c[name] for name in _SUMMARY), pieces]
    query = select(*columns).join_from(RUNS, SUMMARIES, ended, isouter=True).where(*lived)
    rows = transaction.all(query.order_by(RUNS.c.created_at, RUNS.c.name))
    return tuple(
        WindowRun(row["name"], row["cluster"], row["state"], row["created_at"], row["ended_at"], _summary(row))
        for row in rows
    )


def _summary(row: RowMapping) -> RunSummary | None:
    if row["begin"] is None:
        return None
    pieces = json.loads(zlib.decompress(row["pieces"])) if row["pieces"] else ()
    known = {name: row[name] for name in _SUMMARY}
    known |= {name: json.loads(row[name]) for name in ("by_state", "lost_by_class")}
    stretches = tuple(Stretch(*piece) for piece in pieces)
    return RunSummary(run=row["name"], cluster=row["cluster"], stretches=stretches, **known)


def _held(
    transaction: Transaction, lived: Sequence[ColumnElement[bool]], since: float, until: float
) -> tuple[HeldGang, ...]:
    begun = func.coalesce(ATTEMPTS.c.applied_at, ATTEMPTS.c.submitted_at)
    query = select(ATTEMPTS.c.run, begun, ATTEMPTS.c.ended_at).join(RUNS, RUNS.c.name == ATTEMPTS.c.run)
    query = query.where(*lived, begun < until, or_(ATTEMPTS.c.ended_at.is_(None), ATTEMPTS.c.ended_at > since))
    return tuple(HeldGang(*row) for row in transaction.connection.execute(query).all())


def _incidents(
    transaction: Transaction, lived: Sequence[ColumnElement[bool]], since: float, until: float
) -> tuple[WindowIncident, ...]:
    table = INCIDENTS.c
    query = select(table.run, table.detected_at, table.fault_class, table.action, table.culprits)
    # What was only told is no cause of anything, and nobody's record.
    troubles = (table.detected_at.between(since, until), table.signal.not_in(TOLD))
    query = query.join(RUNS, RUNS.c.name == table.run).where(*lived, *troubles)
    rows = transaction.connection.execute(query.order_by(table.detected_at)).all()
    return tuple(
        WindowIncident(run, detected_at, word, action, _nodes(culprits))
        for run, detected_at, word, action, culprits in rows
    )


@lru_cache(maxsize=10_000)
def _nodes(culprits: str) -> tuple[str, ...]:
    return () if culprits == "[]" else tuple({node: None for node, _ in json.loads(culprits) if node})
