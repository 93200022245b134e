"""Reading over all runs at once: what a person asks for first. Each is one query, however many runs there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from profiles.vocabulary import FINISHED, NodeAction, RunState
from tasks.ledger_part import LedgerPart
from tasks.ledger_rows import from_row
from tasks.ledger_runs import pause_of_everything
from tasks.ledger_steps import BATCH, unpack
from tasks.ledger_tables import ACTIONS, APPROVALS, ATTEMPTS, INCIDENTS, NODE_STATES, RUNS, STEP_BATCHES, VERDICTS
from workflows.overview import ApprovalLine, IncidentLine, IncidentQuery, RunLine
from workflows.records import ActionRecord, ApprovalRecord, IncidentRecord, NodeRecord, StepRow

_ENDED = tuple(state.value for state in FINISHED)


class OverviewLedger(LedgerPart):
    """What stands where, over all runs and nodes."""

    def run_lines(self, states: Sequence[RunState] = (), since: float = 0.0, limit: int = 0) -> list[RunLine]:
        """Runs, the newest last.

        Args:
            states: in one of these states; empty: in any.
            since: that lived at this moment (Unix seconds) or later.
            limit: at most so many, the newest ones; 0: all.
        """
        wanted: list[ColumnElement[bool]] = []
        if states:
            wanted.append(RUNS.c.state.in_([state.value for state in states]))
        if since:
            wanted.append(or_(RUNS.c.ended_at.is_(None), RUNS.c.ended_at >= since))
        chosen = select(*(RUNS.c[name] for name in _RUN_COLUMNS)).where(*wanted)
        chosen = chosen.order_by(RUNS.c.created_at.desc(), RUNS.c.name.desc())
        query = _with_newest_attempt(chosen.limit(limit) if limit else chosen)
        with self.database.reading() as transaction:
            rows = transaction.connection.execute(query).all()
        return [_run_line(row) for row in reversed(rows)]

    def run_names(self) -> list[str]:
        """Names of all runs, oldest first."""
        with self.database.reading() as transaction:
            rows = transaction.all(select(RUNS.c.name).order_by(RUNS.c.created_at, RUNS.c.name))
        return [row["name"] for row in rows]

    def incident_lines(self, query: IncidentQuery) -> tuple[list[IncidentLine], int]:
        """The newest incidents, in the order of detection, and how many there are without the limit."""
        wanted = [INCIDENTS.c.detected_at >= query.since]
        if query.run:
            wanted.append(INCIDENTS.c.run == query.run)
        if query.fault_class:
            wanted.append(INCIDENTS.c.fault_class == query.fault_class)
        if query.open_only:
            living = select(RUNS.c.name).where(RUNS.c.state.not_in(_ENDED))
            wanted.append(INCIDENTS.c.run.in_(living))
        newest = select(INCIDENTS).where(*wanted).order_by(INCIDENTS.c.detected_at.desc(), INCIDENTS.c.id.desc())
        # Which of them are open is asked of each line, so those are counted here.
        cut = query.limit if not query.open_only else 0
        with self.database.reading() as transaction:
            rows = transaction.all(_with_outcome(newest.limit(cut) if cut else newest))
            total = len(rows)
            if cut and total == cut:
                total = transaction.connection.execute(select(func.count()).where(*wanted)).scalar_one()
        lines = [_incident_line(row) for row in reversed(rows)]
        if query.open_only:
            lines = [line for line in lines if line.is_open]
            total = len(lines)
        return (lines[-query.limit :] if query.limit else lines), total

    def waiting_approvals(self) -> list[ApprovalLine]:
        """Questions without an answer, oldest first, with what an answer decides about."""
        asked = select(APPROVALS, RUNS.c.state.label("run_state"))
        asked = asked.select_from(APPROVALS.outerjoin(RUNS, RUNS.c.name == APPROVALS.c.run))
        asked = asked.where(APPROVALS.c.state == "waiting").order_by(APPROVALS.c.asked_at, APPROVALS.c.id)
        with self.database.reading() as transaction:
            rows = transaction.all(asked)
            held = transaction.all(_held_actions([row["run"] for row in rows]))
        actions = [from_row(ActionRecord, row) for row in held]
        return [_approval_line(row, actions) for row in rows]

    def everything_paused(self) -> str | None:
        """Why automatic actions of every run are halted; None: they are not."""
        with self.database.reading() as transaction:
            return pause_of_everything(transaction)

    def last_verdict_number(self) -> int:
        """Grows with each verdict, of whatever cluster; 0: there is none."""
        with self.database.reading() as transaction:
            return int(transaction.connection.execute(select(func.max(VERDICTS.c.seq))).scalar_one() or 0)

    def node_history(self, cluster: str, node: str) -> list[NodeRecord]:
        """Everything that we did to one node, oldest first."""
        own = (NODE_STATES.c.cluster == cluster, NODE_STATES.c.node == node)
        with self.database.reading() as transaction:
            rows = transaction.all(select(NODE_STATES).where(*own).order_by(NODE_STATES.c.seq))
        return [from_row(NodeRecord, row) for row in rows]

    def standing_drains(self, cluster: str, node: str, people: str) -> list[ActionRecord]:
        """Our cordons of a node since it was last given back: of runs on the cluster, and of `people`."""
        given_back = select(func.coalesce(func.max(NODE_STATES.c.since), 0.0)).where(
            NODE_STATES.c.cluster == cluster, NODE_STATES.c.node == node, NODE_STATES.c.state == "schedulable"
        )
        query = select(ACTIONS).select_from(ACTIONS.outerjoin(RUNS, RUNS.c.name == ACTIONS.c.run))
        query = query.where(
            or_(ACTIONS.c.run == people, RUNS.c.cluster == cluster),
            ACTIONS.c.kind == NodeAction.DRAIN.value,
            ACTIONS.c.target == node,
            ACTIONS.c.state.in_(("planned", "done")),
            ACTIONS.c.planned_at > given_back.scalar_subquery(),
        )
        with self.database.reading() as transaction:
            return [from_row(ActionRecord, row) for row in transaction.all(query)]

    def newest_steps(self, run: str, attempt: int, count: int) -> list[StepRow]:
        """The last `count` completed steps of an attempt, by time: a long attempt is not unpacked as a whole."""
        own = (STEP_BATCHES.c.run == run, STEP_BATCHES.c.attempt == attempt)
        query = select(STEP_BATCHES.c.packed).where(*own).order_by(STEP_BATCHES.c.last_at.desc())
        with self.database.reading() as transaction:
            batches = transaction.all(query.limit(count // BATCH + 2))
        rows = [row for batch in batches for row in unpack(batch["packed"])]
        return sorted(rows, key=lambda row: (row.at, row.step))[-count:]


_RUN_COLUMNS = ("name", "state", "why", "profile", "cluster", "created_at", "ended_at", "paused")
"""Without the resolved profile: kilobytes that nobody reads here."""


def _with_newest_attempt(chosen: Select[Any]) -> Select[Any]:
    runs, any_one = chosen.subquery("chosen"), ATTEMPTS.alias("any_one")
    own = any_one.c.run == runs.c.name
    count = select(func.count()).select_from(any_one).where(own).scalar_subquery()
    newest = select(func.max(any_one.c.number)).where(own).correlate(runs).scalar_subquery()
    told = (count, ATTEMPTS.c.last_step, ATTEMPTS.c.loss, ATTEMPTS.c.last_step_at)
    joined = runs.outerjoin(ATTEMPTS, and_(ATTEMPTS.c.run == runs.c.name, ATTEMPTS.c.number == newest))
    order = (runs.c.created_at.desc(), runs.c.name.desc())
    return select(*runs.c, *told).select_from(joined).order_by(*order)


def _with_outcome(chosen: Select[Any]) -> Select[Any]:
    found = chosen.subquery("found")
    told = RUNS.c.state.label("run_state")
    joined = found.outerjoin(RUNS, RUNS.c.name == found.c.run)
    order = (found.c.detected_at.desc(), found.c.id.desc())
    return select(*found.c, told).select_from(joined).order_by(*order)


def _run_line(row: Any) -> RunLine:
    return RunLine(row[0], RunState(row[1]), *row[2:])


def _held_actions(runs: Sequence[str]) -> Select[Any]:
    own = (ACTIONS.c.run.in_(sorted(set(runs))), ACTIONS.c.state.in_(("planned", "waiting")))
    return select(ACTIONS).where(*own).order_by(ACTIONS.c.planned_at, ACTIONS.c.id)


def _approval_line(row: Any, actions: Sequence[ActionRecord]) -> ApprovalLine:
    record = from_row(ApprovalRecord, row)
    if row["run_state"] is not None:
        mine = tuple(item for item in actions if item.incident == record.incident)
    else:  # about the nodes of a pool: every action of the monitor that waits
        mine = tuple(item for item in actions if item.run == record.run and item.state == "waiting")
    return ApprovalLine(record, _state(row["run_state"]), mine)


def _incident_line(row: Any) -> IncidentLine:
    return IncidentLine(from_row(IncidentRecord, row), _state(row["run_state"]))


def _state(word: str | None) -> RunState | None:
    return None if word is None else RunState(word)
