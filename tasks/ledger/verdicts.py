"""Verdicts: what tests said about nodes, which of them still decide, their figures, and rounds of tests under way.

The past of nodes in figures alone is packed: written with each verdict, read for a whole fleet at once. Looks of many
nodes lie in one row, as they were written: 12,500 nodes make 64 rows a night. Each row belongs to one shard of the
cluster's nodes, so that the past of one node is read without that of all others. Rounds of tests between nodes are kept
while the test is under way, so that a process that takes it over need not measure them again.
"""

from __future__ import annotations

import importlib
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Subquery, Table, and_, case, exists, func, not_, or_, select

from profiles.checks.catalogue import PAST_DAYS
from profiles.vocabulary import VerdictWord
from tasks.ledger.database import NAMES_AT_ONCE, LedgerPart, LedgerTransaction, as_json
from tasks.ledger.findings import put_cursor
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.tables import CURSORS, LOOKS, METADATA, VERDICTS, packed, text, time, whole
from workflows.model.node_results import RoundRecord
from workflows.model.records import Json, VerdictRecord
from workflows.model.verdict_history import Looks, looks_of, pack, unpack

SHARDS = 64
"""Parts of a cluster's nodes. Reading one node reads a month of its shard: 3 MB among 12,500 nodes of 60 checks."""
DAY_SECONDS = 86400.0


class VerdictLedger(LedgerPart):
    """What tests said of nodes and of the links between them."""

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
        rows = {
            tuple(row[name] for name in _KEY): (row, record) for record in reversed(records) if (row := to_row(record))
        }
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

    def looks(self, cluster: str, nodes: Sequence[str], since: float) -> list[Looks]:
        """Looks at nodes in the order in which they were written; those of other nodes and older ones are among them.

        Args:
            cluster: its name.
            nodes: names of nodes.
            since: Unix seconds; nothing is left out that was seen later, as far as `PAST_DAYS` back.
        """
        shards = sorted({shard_of(node) for node in nodes})
        wanted = [LOOKS.c.cluster == cluster, LOOKS.c.last_at >= since]
        if len(shards) < SHARDS:
            wanted.append(LOOKS.c.shard.in_(shards))
        with self.database.reading() as transaction:
            rows = transaction.connection.execute(select(LOOKS.c.seq, LOOKS.c.packed).where(*wanted)).all()
        # Put into order here: the database would carry 200 MB along.
        return [unpack(packed) for _, packed in sorted(rows, key=lambda row: row[0])]

    def link_rounds(self, cluster: str, test: int) -> list[RoundRecord]:
        """Those of one test, in their order."""
        query = select(LINK_ROUNDS).where(LINK_ROUNDS.c.cluster == cluster, LINK_ROUNDS.c.test == test)
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(LINK_ROUNDS.c.step))
        return [from_row(RoundRecord, row) for row in rows]

    def keep_link_round(self, record: RoundRecord) -> None:
        """Write a round down, in place of what stands there for the same step. Safe to repeat."""
        row = to_row(record)
        key = {name: row[name] for name in ("cluster", "test", "step")}
        with self.database.writing() as transaction:
            if not transaction.insert_once(LINK_ROUNDS, row):
                transaction.update(LINK_ROUNDS, key, row)

    def end_link_test(self, cluster: str, test: int, cursor: str, at: float, missed: Sequence[str] = ()) -> None:
        """Its verdicts stand: `cursor` goes to its number, and its rounds go in the same moment. Safe to repeat.

        So do rounds of other tests with which nobody went on for a day. The cursors `missed` grow by one: in so many
        tests these links missed.
        """
        own = and_(LINK_ROUNDS.c.test == test, LINK_ROUNDS.c.cluster == cluster)
        with self.database.writing() as transaction:
            stands = transaction.one(select(CURSORS).where(CURSORS.c.name == cursor, CURSORS.c.position >= test))
            for name in missed if stands is None else ():
                known = transaction.one(select(CURSORS).where(CURSORS.c.name == name))
                put_cursor(transaction, name, 1 if known is None else known["position"] + 1, at)
            put_cursor(transaction, cursor, test, at)
            transaction.connection.execute(LINK_ROUNDS.delete().where(or_(own, LINK_ROUNDS.c.at < at - KEPT_SECONDS)))

    def last_verdicts(self, cluster: str, depth: str, nodes: Sequence[str]) -> dict[str, tuple[str, float]]:
        """Word and time of the newest verdict of a depth about each of these nodes; a few hundred at most."""
        of_these = (VERDICTS.c.cluster == cluster, VERDICTS.c.depth == depth, VERDICTS.c.node.in_(nodes))
        newest = select(func.max(VERDICTS.c.seq)).where(*of_these).group_by(VERDICTS.c.node)
        query = select(VERDICTS.c.node, VERDICTS.c.verdict, VERDICTS.c.at).where(VERDICTS.c.seq.in_(newest))
        with self.database.reading() as transaction:
            return {row["node"]: (row["verdict"], float(row["at"])) for row in transaction.all(query)}


def keep_looks(transaction: LedgerTransaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write down what `look_rows` made, and forget what is too old where something is added."""
    transaction.insert_all(LOOKS, rows)
    too_old = LOOKS.c.last_at < transaction.at - PAST_DAYS * DAY_SECONDS
    for cluster in {row["cluster"] for row in rows}:
        shards = {row["shard"] for row in rows if row["cluster"] == cluster}
        old = LOOKS.delete().where(LOOKS.c.cluster == cluster, LOOKS.c.shard.in_(shards), too_old)
        transaction.connection.execute(old)


def look_rows(records: Iterable[VerdictRecord]) -> list[dict[str, Any]]:
    """The rows of `LOOKS` that verdicts make."""
    parts: dict[tuple[str, int], list[VerdictRecord]] = {}
    for record in records:
        parts.setdefault((record.cluster, shard_of(record.node)), []).append(record)
    return [
        {"cluster": cluster, "shard": shard, "last_at": max(looks.times), "packed": pack(looks)}
        for (cluster, shard), some in sorted(parts.items(), key=lambda part: part[0])
        for looks in looks_of(some)
    ]


def shard_of(node: str) -> int:
    """The part that a node belongs to, for ever."""
    return zlib.crc32(node.encode()) % SHARDS


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

The words of `flows.decisions.node_tests.grading.standing`, which nothing here may import; a test holds both equal. A
failure that is kept too long would be harmless, since standing is decided there.
"""
_KEY = ("cluster", "node", "depth", "at", "source")
_DEEPEST = ("training",)
_TOLD = tuple(VERDICTS.c[name] for name in ("seq", "node", "verdict", "depth", "at", "source"))
_PASS, _FAIL, _UNKNOWN = (word.value for word in (VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN))


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


def _inserted(transaction: LedgerTransaction, rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Insert rows of `VERDICTS`; the keys of those that were not there yet."""
    if not rows:
        return set()
    insert = importlib.import_module(f"sqlalchemy.dialects.{transaction.connection.dialect.name}").insert(VERDICTS)
    query = insert.on_conflict_do_nothing().returning(*(VERDICTS.c[name] for name in _KEY))
    return {tuple(key) for key in transaction.connection.execute(query, rows)}


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
    """Numbers of the unknown verdicts after which no pass of the same depth came: people are shown why."""
    passed: dict[tuple[str, str], float] = {}
    for row in newest:
        if row.verdict == _PASS and row.at <= horizon:
            key = (row.node, row.depth)
            passed[key] = max(row.at, passed.get(key, row.at))
    last = -math.inf
    return [row.seq for row in newest if row.verdict == _UNKNOWN and passed.get((row.node, row.depth), last) < row.at]


def _reasons(transaction: LedgerTransaction, numbers: Sequence[int]) -> dict[int, tuple[Json, ...]]:
    found: dict[int, tuple[Json, ...]] = {}
    for start in range(0, len(numbers), NAMES_AT_ONCE):
        some = VERDICTS.c.seq.in_(numbers[start : start + NAMES_AT_ONCE])
        rows = transaction.connection.execute(select(VERDICTS.c.seq, VERDICTS.c.reasons).where(some)).all()
        found |= {number: tuple(json.loads(text)) for number, text in rows}
    return found


KEPT_SECONDS = 86400.0
"""Rounds of a test with which nobody went on are forgotten when another one ends."""

LINK_ROUNDS = Table(
    "link_rounds",
    METADATA,
    text("cluster", key=True),
    whole("test", key=True),
    whole("step", key=True),
    whole("number"),
    text("asked"),
    time("at"),
    packed("told"),
)
"""`workflows.model.node_results.RoundRecord` of tests between nodes whose verdicts do not stand yet."""
