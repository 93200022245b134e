"""Nodes in the ledger: their states by our hand, findings and questions about them, and counts for the brake.

One transaction reads where the brake stands, lets a pure function settle the findings, and writes what came of it: the
verdict, the node's state and the action of each. A process that is killed afterwards leaves planned actions, which the
next one carries out; killed before, it has done nothing. People are asked one question a pool at a time, about every
node of it whose action waits.

The brake asks at every settlement, and a ledger may hold many thousand states of nodes. So how many nodes of each pool
are out, and how often we took one out, is counted once and kept. The count stays true while no other process has
written a state; the same transaction checks that, and else counts anew.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Float, Text, bindparam, func, select

from profiles.vocabulary import NodeAction, VerdictWord
from tasks.ledger.database import LedgerPart, LedgerTransaction, as_json
from tasks.ledger.rows import from_row, read_column, to_row
from tasks.ledger.runs import pause_of_everything
from tasks.ledger.tables import ACTIONS, APPROVALS, NODE_STATES, VERDICTS
from workflows.model.fleet import BrakeState, brake_trips
from workflows.model.nodes import DEPTH, LedgerGround, NodeFinding, NodeQuestion, Settled, Settlement, watcher_of
from workflows.model.records import ActionRecord, ApprovalRecord, NodeFault, NodeRecord, VerdictRecord

Stand = tuple[int, int]
"""Number of the newest row about a node, and how many rows there are: rows are added, never changed."""

OUT = ("quarantined", "testing")
"""States in which we hold a node out of service: one under test after its quarantine is still out."""

STATES: Mapping[str, str] = {"quarantine": "planned", "ask": "waiting", "record": "recorded"}
"""Step of a settled finding -> state of its action."""


@dataclass(frozen=True)
class BrakeCounts:
    """What the fleet-wide brake looks at."""

    out: tuple[str, ...]
    """Nodes of the pool that we hold out of service now, by name."""
    evictions: int
    """How often we took a node of the pool out of service in the window."""

    @property
    def quarantined(self) -> int:
        """How many are out."""
        return len(self.out)


class NodeLedger(LedgerPart):
    """What we did to nodes, and what the node watch writes."""

    _tally: Tally | None = None
    """Of the last settlement, while nobody else writes about nodes."""

    def set_node(self, record: NodeRecord, *, run: str = "", fencing: int | None = None) -> None:
        """Write what we did to a node, before it is done; the same state since the same time is written once.

        `run` asked for it, and `fencing` is the number of its driver; None: a person or the monitor.

        Raises:
            Fenced.
        """
        with self.database.writing(run, fencing, synced=True, by=record.by) as transaction:
            if record.state in OUT:
                queue_up(transaction, record.cluster, record.pool)
            _write_record(transaction, record)

    def take_out(
        self, records: Sequence[NodeRecord], brake: BrakeState | None, *, run: str = "", fencing: int | None = None
    ) -> str:
        """Write that nodes leave service, all of them or none, unless that is more than the brake allows.

        One transaction looks and writes, and those of one pool follow each other: however many drivers come at once,
        the brake's limits hold. A node that is out already stays as it is and is not counted again, so this is safe to
        repeat.

        Args:
            records: the nodes' new state, `quarantined`; one or more nodes of one pool.
            brake: the pool's size and limits (what is out is read here); None: a person said that it may be too many.
            run: the run that asks.
            fencing: number of that run's driver; None: a person or the monitor.

        Returns:
            Why the brake tripped; "" where every node is out.

        Raises:
            Fenced.
        """
        cluster, pool = records[0].cluster, records[0].pool
        with self.database.writing(run, fencing, synced=True, by=records[0].by) as transaction:
            queue_up(transaction, cluster, pool)
            held = {item.node for item in _newest(transaction, cluster) if item.state in OUT}
            fresh = [item for item in records if item.node not in held]
            if brake is not None and fresh:
                counts = _counts(transaction, cluster, pool, fresh[0].since - brake.limits.window_seconds)
                now = replace(brake, quarantined=counts.out, evictions=counts.evictions)
                if reason := brake_trips(now, len(fresh)):
                    return reason
            for record in fresh:
                _write_record(transaction, record)
        return ""

    def nodes(self, cluster: str) -> list[NodeRecord]:
        """The newest state of every node we ever touched, by name."""
        with self.database.reading() as transaction:
            return _newest(transaction, cluster)

    def node(self, cluster: str, name: str) -> NodeRecord | None:
        """The newest state of one node; None: we never touched it."""
        own = (NODE_STATES.c.cluster == cluster, NODE_STATES.c.node == name)
        with self.database.reading() as transaction:
            row = transaction.one(select(NODE_STATES).where(*own).order_by(NODE_STATES.c.seq.desc()).limit(1))
        return None if row is None else from_row(NodeRecord, row)

    def brake_counts(self, cluster: str, pool: str, since: float) -> BrakeCounts:
        """Which nodes of the pool are out by our hand, and how many we took out at `since` or later."""
        with self.database.reading() as transaction:
            return _counts(transaction, cluster, pool, since)

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

    def settle(
        self, cluster: str, findings: Sequence[NodeFinding], window_seconds: float, decide: Decide, fencing: int | None
    ) -> Settlement:
        """Settle findings in one go; what is to be done stands on disk when this returns. Safe to repeat.

        Args:
            cluster: name of the cluster.
            findings: a few hundred at most.
            window_seconds: of the brake.
            decide: pure; what becomes of the findings, given what the ledger says now.
            fencing: number of the monitor's lease; None: nobody holds one.

        Raises:
            Fenced, Unavailable: nothing was written.
        """
        with self.database.writing(watcher_of(cluster), fencing, synced=True) as transaction:
            for pool in sorted({item.pool for item in findings}):
                queue_up(transaction, cluster, pool)
            tally = tally_of(transaction, cluster, self._tally)
            ground = _ground(transaction, cluster, findings, window_seconds, tally)
            settlement = decide(ground)
            _write(transaction, cluster, settlement, ground)
            taken = [(item.finding.node, item.finding.pool) for item in settlement.of("quarantine")]
            at, stand = transaction.at, stand_of(transaction)
        tally.add(taken, at, stand)
        self._tally = tally
        return settlement

    def finish_node_actions(self, cluster: str, ended: Sequence[tuple[str, str]], fencing: int | None) -> None:
        """Write what became of planned actions: key of the finding and `done`, or why it was refused.

        Raises:
            Fenced.
        """
        if not ended:
            return
        with self.database.writing(watcher_of(cluster), fencing) as transaction:
            ids = [(action_id(cluster, key), "done" if said == "done" else "refused", said) for key, said in ended]
            update_states(transaction, [{"one": one, "to": to, "at": transaction.at} for one, to, _ in ids])
            transaction.note_all("action", [(one, said, "{}") for one, _, said in ids])

    def planned_node_actions(self, cluster: str) -> list[ActionRecord]:
        """Quarantines that were written and not seen to their end, oldest first."""
        query = select(ACTIONS).where(ACTIONS.c.run == watcher_of(cluster), ACTIONS.c.state == "planned")
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(ACTIONS.c.planned_at, ACTIONS.c.id))
        return [from_row(ActionRecord, row) for row in rows]


def queue_up(transaction: LedgerTransaction, cluster: str, pool: str) -> None:
    """Wait for another process that takes nodes of this pool out: none may write between our look and our write.

    The lock is the row that counts changes, as for a run; the slash keeps it apart from the name of any run.
    """
    transaction.touch(f"brake/{cluster}/{pool}")


def _write_record(transaction: LedgerTransaction, record: NodeRecord) -> None:
    if transaction.insert_once(NODE_STATES, to_row(record)):
        transaction.note("node", f"{record.cluster}/{record.node}", record.why, as_json(record))


def _counts(transaction: LedgerTransaction, cluster: str, pool: str, since: float) -> BrakeCounts:
    taken = select(func.count()).where(
        NODE_STATES.c.cluster == cluster,
        NODE_STATES.c.pool == pool,
        NODE_STATES.c.state == "quarantined",
        NODE_STATES.c.since >= since,
    )
    evictions = transaction.connection.execute(taken).scalar_one()
    out = tuple(item.node for item in _newest(transaction, cluster) if item.pool == pool and item.state in OUT)
    return BrakeCounts(out, int(evictions))


def _newest(transaction: LedgerTransaction, cluster: str) -> list[NodeRecord]:
    last = select(func.max(NODE_STATES.c.seq)).where(NODE_STATES.c.cluster == cluster).group_by(NODE_STATES.c.node)
    rows = transaction.all(select(NODE_STATES).where(NODE_STATES.c.seq.in_(last)).order_by(NODE_STATES.c.node))
    return [from_row(NodeRecord, row) for row in rows]


def asked_pools(transaction: LedgerTransaction, run: str) -> frozenset[str]:
    """Pools with an action that waits for a person, or for the answer to be carried over."""
    if transaction.one(select(APPROVALS.c.id).where(APPROVALS.c.run == run).limit(1)) is None:
        return frozenset()  # no question was ever put: what waits need not be looked for among all actions
    query = select(ACTIONS.c.detail).where(ACTIONS.c.run == run, ACTIONS.c.state == "waiting").distinct()
    details = [read_column(ActionRecord, "detail", row["detail"]) for row in transaction.all(query)]
    return frozenset(item.pool if isinstance(item, NodeFault) else "" for item in details)


def update_states(transaction: LedgerTransaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Set `to` as state and `at` as end of each action `one`."""
    if rows:
        change = ACTIONS.update().where(ACTIONS.c.id == bindparam("one"))
        change = change.values(state=bindparam("to", type_=Text), done_at=bindparam("at", type_=Float))
        transaction.connection.execute(change, [dict(row) for row in rows])


def ask_about(transaction: LedgerTransaction, cluster: str, question: NodeQuestion, seconds: float) -> None:
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


def _questions_with_waiting_actions(transaction: LedgerTransaction, run: str) -> list[ApprovalRecord]:
    """The newest question of each pool whose answer was not carried over to its nodes yet."""
    about = [f"{run}/{pool}" for pool in sorted(asked_pools(transaction, run))]
    if not about:
        return []
    query = select(APPROVALS).where(APPROVALS.c.run == run, APPROVALS.c.incident.in_(about))
    rows = transaction.all(query.order_by(APPROVALS.c.asked_at, APPROVALS.c.id))
    newest = {str(row["incident"]): from_row(ApprovalRecord, row) for row in rows}
    return list(newest.values())


def _carry_over(transaction: LedgerTransaction, cluster: str, question: ApprovalRecord, approved: bool) -> None:
    run, now = watcher_of(cluster), transaction.at
    pool = question.incident.removeprefix(f"{run}/")
    rows = transaction.all(select(ACTIONS).where(ACTIONS.c.run == run, ACTIONS.c.state == "waiting"))
    actions = [one for one in (from_row(ActionRecord, row) for row in rows) if one.node_fault.pool == pool]
    if approved:
        queue_up(transaction, cluster, pool)
        records = [
            NodeRecord(cluster, one.target, "quarantined", one.why, now, one.incident, pool, question.by)
            for one in actions
        ]
        transaction.insert_all(NODE_STATES, [to_row(record) for record in records])
    to, at = ("planned", None) if approved else ("refused", now)
    update_states(transaction, [{"one": one.id, "to": to, "at": at} for one in actions])
    transaction.note_all("action", [(one.id, f"{to}: {question.state} {question.why}", "{}") for one in actions])


@dataclass
class Tally:
    """Where the nodes of one cluster stand."""

    cluster: str
    stand: Stand
    out: dict[str, str] = field(default_factory=dict[str, str])
    """Nodes that we hold out of service, with their pool."""
    quarantined: Counter[str] = field(default_factory=Counter[str])
    """Pool -> how many of them."""
    taken: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict[str, list[float]](list))
    """Pool -> when we took one of its nodes out, in order."""

    def evictions(self, pool: str, since: float) -> int:
        """How often we took one of the pool out at `since` or later."""
        times = self.taken[pool]
        return len(times) - bisect_left(times, since)

    def add(self, taken: Sequence[tuple[str, str]], at: float, stand: Stand) -> None:
        """Nodes were taken out, each with its pool; they were not out before."""
        for node, pool in taken:
            self.out[node] = pool
            self.quarantined[pool] += 1
            insort(self.taken[pool], at)
        self.stand = stand


def tally_of(transaction: LedgerTransaction, cluster: str, before: Tally | None) -> Tally:
    """The tally as the transaction sees it; `before` where it still holds."""
    stand = stand_of(transaction)
    if before is not None and (before.cluster, before.stand) == (cluster, stand):
        return before
    query = select(NODE_STATES.c.node, NODE_STATES.c.state, NODE_STATES.c.pool, NODE_STATES.c.since)
    rows = transaction.all(query.where(NODE_STATES.c.cluster == cluster).order_by(NODE_STATES.c.seq))
    newest = {str(row["node"]): row for row in rows}
    made = Tally(cluster, stand)
    made.out = {node: str(row["pool"]) for node, row in newest.items() if row["state"] in OUT}
    made.quarantined.update(made.out.values())
    for row in rows:
        if row["state"] == "quarantined":
            insort(made.taken[str(row["pool"])], float(row["since"]))
    return made


def stand_of(transaction: LedgerTransaction) -> Stand:
    """How far the table has come.

    SQLite has one writer at a time, so its newest number tells all. In PostgreSQL a row with a lower number may become
    visible after one with a higher: there the rows are counted as well.
    """
    newest = func.coalesce(func.max(NODE_STATES.c.seq), 0)
    if transaction.connection.dialect.name == "sqlite":
        return int(transaction.connection.execute(select(newest)).scalar_one()), 0
    last, number = transaction.connection.execute(select(newest, func.count(NODE_STATES.c.seq))).one()
    return int(last), int(number)


Decide = Callable[[LedgerGround], Settlement]


def incident_id(cluster: str, key: str) -> str:
    """Id of what was found, by the finding's key."""
    return f"{watcher_of(cluster)}/{key}"


def action_id(cluster: str, key: str) -> str:
    """Id of the quarantine that a finding leads to."""
    return f"{incident_id(cluster, key)}-{NodeAction.QUARANTINE}"


def key_of(cluster: str, action: ActionRecord) -> str:
    """Key of the finding that an action is about."""
    return action.id.removeprefix(f"{watcher_of(cluster)}/").removesuffix(f"-{NodeAction.QUARANTINE}")


def _ground(
    transaction: LedgerTransaction, cluster: str, findings: Sequence[NodeFinding], window_seconds: float, tally: Tally
) -> LedgerGround:
    ids = {action_id(cluster, item.key): item.key for item in findings}
    known = transaction.all(select(ACTIONS.c.id, ACTIONS.c.state).where(ACTIONS.c.id.in_(list(ids))))
    pools = {item.pool for item in findings}
    return LedgerGround(
        now=transaction.at,
        paused=pause_of_everything(transaction),
        out=frozenset(item.node for item in findings if item.node in tally.out),
        states={ids[row["id"]]: row["state"] for row in known},
        quarantined={pool: tally.quarantined[pool] for pool in pools},
        evictions={pool: tally.evictions(pool, transaction.at - window_seconds) for pool in pools},
        asked=asked_pools(transaction, watcher_of(cluster)),
    )


def _write(transaction: LedgerTransaction, cluster: str, settlement: Settlement, ground: LedgerGround) -> None:
    acted = [item for item in settlement.settled if item.step in STATES]
    now = transaction.at
    verdicts = [to_row(_verdict(cluster, item, now)) for item in acted if not item.finding.judged]
    states = [to_row(node_record(cluster, item.finding, now)) for item in acted if item.step == "quarantine"]
    actions = [to_row(_action(cluster, item, now)) for item in acted]
    transaction.insert_all(VERDICTS, verdicts)
    transaction.insert_all(NODE_STATES, states)
    transaction.insert_all(ACTIONS, actions)
    again = [row for item, row in zip(acted, actions, strict=True) if item.finding.key in ground.states]
    update_states(transaction, [{"one": row["id"], "to": row["state"], "at": None} for row in again])
    transaction.note_all("node", [(f"{cluster}/{row['node']}", row["why"], json.dumps(row)) for row in states])
    transaction.note_all("action", [(row["id"], row["why"], json.dumps(row)) for row in actions])
    for question in settlement.questions:
        ask_about(transaction, cluster, question, settlement.approval_seconds)


def _verdict(cluster: str, item: Settled, now: float) -> VerdictRecord:
    finding = item.finding
    reason = {"check": finding.condition, "verdict": str(finding.verdict), "class": str(finding.fault_class)}
    since = finding.since if finding.since is not None else now
    evidence = ({**reason, "evidence": finding.why},)
    return VerdictRecord(cluster, finding.node, VerdictWord.FAIL, DEPTH, since, evidence, finding.condition)


def node_record(cluster: str, finding: NodeFinding, now: float) -> NodeRecord:
    """The node's new state, written before it is done."""
    why = f"{finding.fault_class}: {finding.why}"
    return NodeRecord(cluster, finding.node, "quarantined", why, now, incident_id(cluster, finding.key), finding.pool)


def _action(cluster: str, item: Settled, now: float) -> ActionRecord:
    finding = item.finding
    why = f"{finding.fault_class}: {finding.why}"
    return ActionRecord(
        id=action_id(cluster, finding.key),
        run=watcher_of(cluster),
        incident=incident_id(cluster, finding.key),
        kind=NodeAction.QUARANTINE,
        target=finding.node,
        state=STATES[item.step],  # type: ignore[arg-type]
        why=why,
        planned_at=now,
        detail=NodeFault(finding.pool, finding.fault_class, finding.condition),
    )
