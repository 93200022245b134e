"""Findings about nodes and what is done about them, many at once, written before anything is done.

One transaction reads where the brake stands, lets a pure function settle the findings, and writes what came of it: the
verdict, the node's state and the action of each. Whoever is killed afterwards finds the actions planned and carries
them out; whoever is killed before has done nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import select

from profiles.vocabulary import NodeAction, VerdictWord
from tasks.ledger_database import Transaction
from tasks.ledger_fleet import queue_up
from tasks.ledger_node_questions import NodeQuestionLedger, ask_about, asked_pools, update_states
from tasks.ledger_node_tally import Tally, stand_of, tally_of
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_runs import pause_of_everything
from tasks.ledger_tables import ACTIONS, NODE_STATES, VERDICTS
from workflows.node_sight import DEPTH, LedgerGround, NodeFinding, Settled, Settlement, watcher_of
from workflows.records import ActionRecord, NodeRecord, VerdictRecord

Decide = Callable[[LedgerGround], Settlement]
STATES: Mapping[str, str] = {"quarantine": "planned", "ask": "waiting", "record": "recorded"}
"""Step of a settled finding -> state of its action."""


class NodeLedger(NodeQuestionLedger):
    """What the node watch writes."""

    _tally: Tally | None = None
    """Of the last settlement, while nobody else writes about nodes."""

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
    transaction: Transaction, cluster: str, findings: Sequence[NodeFinding], window_seconds: float, tally: Tally
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


def _write(transaction: Transaction, cluster: str, settlement: Settlement, ground: LedgerGround) -> None:
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
        detail=json.dumps({"pool": finding.pool, "class": str(finding.fault_class), "condition": finding.condition}),
    )
