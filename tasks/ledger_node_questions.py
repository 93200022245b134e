"""Questions to people about nodes: one a pool at a time, about every node of it whose action waits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Float, Text, bindparam, func, select

from tasks.ledger_database import Transaction
from tasks.ledger_fleet import queue_up
from tasks.ledger_part import LedgerPart
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_tables import ACTIONS, APPROVALS, NODE_STATES
from workflows.node_sight import NodeQuestion, watcher_of
from workflows.records import ActionRecord, ApprovalRecord, NodeRecord


class NodeQuestionLedger(LedgerPart):
    """Answers."""

    def answer_node_questions(self, cluster: str, now: float, fencing: int | None) -> list[ApprovalRecord]:
        """Carry people's answers over to the nodes they are about; the questions that were settled by this.

        Approved: the nodes are written as taken out, whatever the brake says, and their actions as planned. Denied or
        not answered in time: their actions are refused, and nothing is done.

        Raises:
            Fenced.
        """
        run = watcher_of(cluster)
        with self.database.reading() as transaction:
            waiting = _questions_with_waiting_actions(transaction, run)
        if not any(item.state != "waiting" or now >= item.expires_at for item in waiting):
            return []
        settled: list[ApprovalRecord] = []
        with self.database.writing(run, fencing, synced=True) as transaction:
            for item in _questions_with_waiting_actions(transaction, run):
                if item.state == "waiting" and now >= item.expires_at:
                    lapsed = {"state": "expired", "answered_at": now, "why": "nobody answered in time"}
                    transaction.update(APPROVALS, {"id": item.id}, lapsed)
                    transaction.note("approval", item.id, "nobody answered in time", json.dumps(lapsed))
                elif item.state == "waiting":
                    continue
                _carry_over(transaction, cluster, item, item.state == "approved")
                settled.append(item)
        return settled


def asked_pools(transaction: Transaction, run: str) -> frozenset[str]:
    """Pools with an action that waits for a person, or for the answer to be carried over."""
    if transaction.one(select(APPROVALS.c.id).where(APPROVALS.c.run == run).limit(1)) is None:
        return frozenset()  # no question was ever put: what waits need not be looked for among all actions
    query = select(ACTIONS.c.detail).where(ACTIONS.c.run == run, ACTIONS.c.state == "waiting").distinct()
    return frozenset(_pool(str(row["detail"])) for row in transaction.all(query))


def update_states(transaction: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Set `to` as state and `at` as end of each action `one`."""
    if rows:
        change = ACTIONS.update().where(ACTIONS.c.id == bindparam("one"))
        change = change.values(state=bindparam("to", type_=Text), done_at=bindparam("at", type_=Float))
        transaction.connection.execute(change, [dict(row) for row in rows])


def ask_about(transaction: Transaction, cluster: str, question: NodeQuestion, seconds: float) -> None:
    """Put a question; the actions it is about are those of its pool that wait."""
    run, now = watcher_of(cluster), transaction.at
    before = select(func.count()).where(APPROVALS.c.run == run)
    number = int(transaction.connection.execute(before).scalar_one()) + 1
    record = ApprovalRecord(
        id=f"{run}-{number}",
        run=run,
        incident=f"{run}/{question.pool}",
        question=question.text,
        state="waiting",
        asked_at=now,
        expires_at=now + seconds,
    )
    transaction.insert_once(APPROVALS, to_row(record))
    transaction.note("approval", record.id, record.question, json.dumps({"nodes": question.nodes}))


def _questions_with_waiting_actions(transaction: Transaction, run: str) -> list[ApprovalRecord]:
    """The newest question of each pool whose nodes nobody has carried the answer over to yet."""
    about = [f"{run}/{pool}" for pool in sorted(asked_pools(transaction, run))]
    if not about:
        return []
    query = select(APPROVALS).where(APPROVALS.c.run == run, APPROVALS.c.incident.in_(about))
    rows = transaction.all(query.order_by(APPROVALS.c.asked_at, APPROVALS.c.id))
    newest = {str(row["incident"]): from_row(ApprovalRecord, row) for row in rows}
    return list(newest.values())


def _carry_over(transaction: Transaction, cluster: str, question: ApprovalRecord, approved: bool) -> None:
    run, now = watcher_of(cluster), transaction.at
    pool = question.incident.removeprefix(f"{run}/")
    rows = transaction.all(select(ACTIONS).where(ACTIONS.c.run == run, ACTIONS.c.state == "waiting"))
    actions = [one for one in (from_row(ActionRecord, row) for row in rows) if _pool(one.detail) == pool]
    if approved:
        queue_up(transaction, cluster, pool)
        records = [NodeRecord(cluster, one.target, "quarantined", one.why, now, one.incident, pool) for one in actions]
        transaction.insert_all(NODE_STATES, [to_row(record) for record in records])
    to, at = ("planned", None) if approved else ("refused", now)
    update_states(transaction, [{"one": one.id, "to": to, "at": at} for one in actions])
    transaction.note_all("action", [(one.id, f"{to}: {question.state} {question.why}", "{}") for one in actions])


def _pool(detail: str) -> str:
    """The pool that the node of an action belongs to, by the action's detail."""
    return str(json.loads(detail or "{}").get("pool", ""))
