"""Verdicts: what tests said about nodes, and which of them still decide what holds for a node."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Subquery, and_, case, exists, func, not_, or_, select

from profiles.vocabulary import VerdictWord
from tasks.ledger_database import NAMES_AT_ONCE, Transaction
from tasks.ledger_looks import keep_looks, look_rows
from tasks.ledger_part import LedgerPart, as_json
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_tables import VERDICTS
from workflows.records import Json, VerdictRecord

SKEW_SECONDS = 300.0
"""What is dated further ahead than this clears nothing; a test holds it equal to what decides (grading.standing)."""
CLEARED_BY: Mapping[str, tuple[str, ...]] = {
    "gate": ("gate", "sweep", "smoke", "condition", "device", "fabric", "storage", "training"),
    "sweep": ("gate", "sweep", "smoke", "condition", "device", "fabric", "storage", "training"),
    "smoke": ("smoke", "condition", "device", "training"),
    "condition": ("smoke", "condition", "device", "training"),
    "device": ("device", "training"),
    "fabric": ("fabric", "training"),
    "storage": ("storage", "training"),
}
"""Depth of a failure -> depths of which a newer pass clears it; of any other depth `training` alone does.

The words of `flows.decisions.grading.standing`, which nothing here may import; a test holds both equal. A failure that
is kept too long would be harmless, since standing is decided there.
"""
_KEY = ("cluster", "node", "depth", "at", "source")
_DEEPEST = ("training",)
_TOLD = tuple(VERDICTS.c[name] for name in ("seq", "node", "verdict", "depth", "at", "source"))
_PASS, _FAIL, _UNKNOWN = (word.value for word in (VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN))


class VerdictLedger(LedgerPart):
    """What tests said about nodes."""

    def add_verdict(self, record: VerdictRecord) -> None:
        """Write what a test said; the same test of the same node at the same time is one verdict."""
        self.add_verdicts([record])

    def add_verdicts(self, records: Sequence[VerdictRecord]) -> int:
        """The same for many at once, all or none, with what they measured (`looks`).

        The history tells of each with the reasons that speak against the node; all reasons stand in the verdict.

        Returns:
            How many were not there yet.
        """
        # Everything is made ready before the transaction: while it lasts no driver can write.
        rows = {_key(row): (row, record) for record in reversed(records) if (row := to_row(record))}
        first = [record for _, record in reversed(rows.values())]
        lines, looks = [_line(record) for record in first], look_rows(first)
        with self.database.writing() as transaction:
            new = _inserted(transaction, [row for row, _ in reversed(rows.values())])
            if len(new) < len(first):
                fresh = [record for key, (_, record) in reversed(rows.items()) if key in new]
                lines, looks = [_line(record) for record in fresh], look_rows(fresh)
            transaction.note_all("verdict", lines)
            keep_looks(transaction, looks)
        return len(new)

    def verdicts(self, cluster: str, node: str | None = None, since: float = 0.0) -> list[VerdictRecord]:
        """Verdicts at `since` or later about one node or all of the cluster, in the order of their times."""
        query = select(VERDICTS).where(VERDICTS.c.cluster == cluster, VERDICTS.c.at >= since)
        if node is not None:
            query = query.where(VERDICTS.c.node == node)
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(VERDICTS.c.at, VERDICTS.c.seq))
        return [from_row(VerdictRecord, row) for row in rows]

    def deciding_verdicts(self, cluster: str, node: str | None = None, now: float | None = None) -> list[VerdictRecord]:
        """Those that still matter for what holds for each node, in the order of their times.

        The newest pass and the newest unknown of each depth, and failures that no newer pass of an equal or deeper
        test has cleared: `standing_of` says the same of them as of all verdicts.

        Args:
            cluster: its name.
            node: only this one; None: all of the cluster.
            now: Unix seconds, as `standing_of` is told: a pass that is dated ahead of it hides none that is not.
                None: the ledger's clock.

        Returns:
            Reasons only of what stands: nobody asks why something passed, and they are most of what is kept.
        """
        with self.database.reading() as transaction:
            horizon = (transaction.at if now is None else now) + SKEW_SECONDS
            newest = transaction.connection.execute(newest_query(cluster, node, horizon)).all()
            failures = transaction.connection.execute(_uncleared(cluster, node, horizon)).all()
            reasons = _reasons(transaction, [row.seq for row in failures] + _silent(newest, horizon))
        # By time, then by number, as `verdicts` gives them: of two at the same time the first one counts.
        rows = sorted([*newest, *failures], key=lambda row: (row.at, row.seq))
        return [
            VerdictRecord(cluster, name, VerdictWord(word), depth, at, reasons.get(seq, ()), source)
            for seq, name, word, depth, at, source in rows
        ]

    def last_tests(self, cluster: str, depth: str) -> Iterator[tuple[int, VerdictRecord]]:
        """The newest verdict of each node at this depth, and the one before it.

        They are read page by page and given one by one: those of a large fleet are hundreds of megabytes.

        Yields:
            0 or 1 for the newest and the one before, and the verdict; by node where they are of one turn.

        Raises:
            Unavailable: also between two pages.
        """
        with self.database.reading() as transaction:
            turns = [transaction.connection.execute(query).all() for query in _last_two(cluster, depth)]
        for turn, rows in enumerate(turns):
            # Of two at the same time the one that was written last.
            numbers = [number for _, number in sorted({row.node: row.seq for row in rows if row.seq}.items())]
            for start in range(0, len(numbers), NAMES_AT_ONCE):
                some = VERDICTS.c.seq.in_(numbers[start : start + NAMES_AT_ONCE])
                with self.database.reading() as transaction:
                    found = transaction.all(select(VERDICTS).where(some).order_by(VERDICTS.c.node))
                for row in found:
                    yield turn, from_row(VerdictRecord, row)


def _last_two(cluster: str, depth: str) -> tuple[Select[Any], Select[Any]]:
    """Node and number of the newest verdicts, and of those before them; answered by `verdicts_once` alone."""
    first = select(VERDICTS.c.node, func.max(VERDICTS.c.at).label("at"))
    newest = first.where(VERDICTS.c.cluster == cluster, VERDICTS.c.depth == depth).group_by(VERDICTS.c.node).subquery()
    older = VERDICTS.alias("older")
    same = and_(older.c.cluster == cluster, older.c.depth == depth, older.c.node == newest.c.node)
    second = select(newest.c.node, func.max(older.c.at).label("at"))
    before = second.select_from(newest.outerjoin(older, and_(same, older.c.at < newest.c.at))).group_by(newest.c.node)
    return _numbers(newest, cluster, depth), _numbers(before.subquery(), cluster, depth)


def _numbers(times: Subquery, cluster: str, depth: str) -> Select[Any]:
    own = and_(VERDICTS.c.cluster == cluster, VERDICTS.c.depth == depth, VERDICTS.c.node == times.c.node)
    joined = times.outerjoin(VERDICTS, and_(own, VERDICTS.c.at == times.c.at))
    return select(times.c.node, VERDICTS.c.seq).select_from(joined).order_by(VERDICTS.c.seq)


def _inserted(transaction: Transaction, rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Insert rows of `VERDICTS`; the keys of those that were not there yet."""
    if not rows:
        return set()
    insert = importlib.import_module(f"sqlalchemy.dialects.{transaction.connection.dialect.name}").insert(VERDICTS)
    query = insert.on_conflict_do_nothing().returning(*(VERDICTS.c[name] for name in _KEY))
    return {tuple(key) for key in transaction.connection.execute(query, rows)}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _line(record: VerdictRecord) -> tuple[str, str, str]:
    """Subject, why and data of a line of the history."""
    against = tuple(reason for reason in record.reasons if reason.get("verdict") != VerdictWord.PASS)
    short = replace(record, reasons=against)
    return f"{record.cluster}/{record.node}", f"{record.depth}: {record.verdict.value}", as_json(short)


def _own(table: Any, cluster: str, node: str | None) -> list[ColumnElement[bool]]:
    return [table.c.cluster == cluster, *([] if node is None else [table.c.node == node])]


def newest_query(cluster: str, node: str | None, horizon: float) -> Select[Any]:
    """The newest pass and unknown of each depth, and the newest one that is not dated ahead.

    Answered by the index `verdicts_by_word` alone: rows are large, and there are thousands of each day.
    """
    same = (VERDICTS.c.verdict, VERDICTS.c.node, VERDICTS.c.depth)
    believed = func.max(case((VERDICTS.c.at <= horizon, VERDICTS.c.at))).label("believed")
    wanted = (*_own(VERDICTS, cluster, node), VERDICTS.c.verdict.in_((_PASS, _UNKNOWN)))
    last = select(*same, believed, func.max(VERDICTS.c.at).label("last")).where(*wanted).group_by(*same).subquery("n")
    of_group = and_(
        VERDICTS.c.cluster == cluster,
        *(VERDICTS.c[column.name] == last.c[column.name] for column in same),
        VERDICTS.c.at.in_((last.c.believed, last.c.last)),
    )
    # An outer join, though every group has its row: SQLite then goes from the groups to the rows, never the other way.
    return select(*_TOLD).select_from(last.outerjoin(VERDICTS, of_group))


def _uncleared(cluster: str, node: str | None, horizon: float) -> Select[Any]:
    """Failures that no newer pass has cleared."""
    later = VERDICTS.alias("later")
    deep_enough = [
        and_(VERDICTS.c.depth == depth, later.c.depth.in_(clearing)) for depth, clearing in CLEARED_BY.items()
    ]
    cleared = exists().where(
        later.c.cluster == cluster,
        later.c.verdict == _PASS,
        later.c.node == VERDICTS.c.node,
        or_(later.c.depth.in_(_DEEPEST), *deep_enough),
        later.c.at > VERDICTS.c.at,
        later.c.at <= horizon,
    )
    wanted = (*_own(VERDICTS, cluster, node), VERDICTS.c.verdict == _FAIL, not_(cleared))
    return select(*_TOLD).where(*wanted)


def _silent(newest: Sequence[Row[Any]], horizon: float) -> list[int]:
    """Numbers of the unknown after which no pass of the same depth came: people are told why."""
    passed: dict[tuple[str, str], float] = {}
    for row in newest:
        if row.verdict == _PASS and row.at <= horizon:
            key = (row.node, row.depth)
            passed[key] = max(row.at, passed.get(key, row.at))
    last = -math.inf
    return [row.seq for row in newest if row.verdict == _UNKNOWN and passed.get((row.node, row.depth), last) < row.at]


def _reasons(transaction: Transaction, numbers: Sequence[int]) -> dict[int, tuple[Json, ...]]:
    found: dict[int, tuple[Json, ...]] = {}
    for start in range(0, len(numbers), NAMES_AT_ONCE):
        some = VERDICTS.c.seq.in_(numbers[start : start + NAMES_AT_ONCE])
        rows = transaction.connection.execute(select(VERDICTS.c.seq, VERDICTS.c.reasons).where(some)).all()
        found |= {number: tuple(json.loads(text)) for number, text in rows}
    return found
