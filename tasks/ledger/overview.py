"""Reading over all runs at once: what stands where now, where the time of a window went, what the console needs.

Each list is one query and a window four, however many runs there are. Steps stay packed. Where the time of an ended run
went stands in its summary, a small row of its own; the pieces of it are read only for runs that the window's edge cuts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, and_, case, func, literal, or_, select

from profiles.vocabulary import FINISHED, NodeAction, RunState
from tasks.ledger.attempts import BATCH, unpack
from tasks.ledger.database import LedgerPart, LedgerTransaction
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.runs import pause_of_everything
from tasks.ledger.tables import (
    ACTIONS,
    APPROVALS,
    ATTEMPTS,
    INCIDENTS,
    MARKS,
    NODE_STATES,
    RUNS,
    STEP_BATCHES,
    SUMMARIES,
    VERDICTS,
)
from workflows.model.events import Fall
from workflows.model.records import TOLD, ActionRecord, ApprovalRecord, IncidentRecord, MarkRecord, NodeRecord, StepRow
from workflows.model.runs import (
    ApprovalLine,
    HeldGang,
    IncidentLine,
    IncidentQuery,
    LedgerWindow,
    RunLine,
    RunSummary,
    Stretch,
    WindowIncident,
    WindowRun,
)

_ENDED = tuple(state.value for state in FINISHED)

_RUN_COLUMNS = ("name", "state", "why", "profile", "cluster", "created_at", "ended_at", "paused", "owner", "tags")
"""Without the resolved profile: kilobytes that nobody reads here."""

_RUN = ("name", "cluster", "state", "created_at", "ended_at")
_SUMMARY = ("begin", "end", "gpus", "nodes", "price_per_gpu_hour", "currency", "by_state", "lost_by_class")

FELL = "throughput-fell"
"""Kind of the mark; `cuts` of the accounting know nothing of it."""


class OverviewLedger(LedgerPart):
    """What stands where, over all runs and nodes, now and in a window of time."""

    def run_lines(
        self,
        states: Sequence[RunState] = (),
        since: float = 0.0,
        limit: int = 0,
        *,
        owner: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> list[RunLine]:
        """Runs, the newest last.

        In one of these states (empty: in any), that lived at `since` (Unix seconds) or later, of this owner (empty: of
        anybody), with all of these tags; the newest `limit` of them (0: all).
        """
        wanted: list[ColumnElement[bool]] = []
        if states:
            wanted.append(RUNS.c.state.in_([state.value for state in states]))
        if since:
            wanted.append(or_(RUNS.c.ended_at.is_(None), RUNS.c.ended_at >= since))
        if owner:
            wanted.append(RUNS.c.owner == owner)
        asked = set((tags or {}).items())
        chosen = select(*(RUNS.c[name] for name in _RUN_COLUMNS)).where(*wanted)
        chosen = chosen.order_by(RUNS.c.created_at.desc(), RUNS.c.name.desc())
        # Tags are one text, which the database does not look into: so the newest of them are counted here.
        query = _with_newest_attempt(chosen.limit(limit) if limit and not asked else chosen)
        with self.database.reading() as transaction:
            rows = transaction.connection.execute(query).all()
        lines = [_run_line(*row) for row in reversed(rows)]
        found = [line for line in lines if asked <= set(line.tags.items())]
        return found[-limit:] if limit else found

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
        lines = [IncidentLine(from_row(IncidentRecord, row), _state(row["run_state"])) for row in reversed(rows)]
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

    def window(self, cluster: str, since: float, until: float) -> LedgerWindow:
        """What is known of every run of the cluster that lived in [since, until].

        Both are Unix seconds; a cluster "" means all clusters.
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

    def identity(self) -> str:
        """Identifies this ledger among all others, as long as it lives: random, and made with it."""
        if not self.database.ledger_id:
            with self.database.reading():
                pass  # whoever opens a ledger learns which one it is
        return self.database.ledger_id

    def note_fall(self, run: str, attempt: int, fall: Fall, nodes: tuple[str, ...]) -> bool:
        """Write that an attempt became slower; True where that was not known. The same fall is written once."""
        why = (
            f"steps take {fall.after_seconds:.3g} s instead of {fall.before_seconds:.3g} s "
            f"({fall.ratio:.2f} times as long) since step {fall.step} of attempt {attempt}"
        )
        mark = MarkRecord(run, attempt, FELL, fall.at, why)
        data = {"attempt": attempt, **asdict(fall), "ratio": round(fall.ratio, 3), "nodes": list(nodes)}
        with self.database.writing(run) as transaction:
            fresh = transaction.insert_once(MARKS, to_row(mark))
            if fresh:
                transaction.note("throughput", f"{run}/{attempt}", why, json.dumps(data))
        return fresh


def _run_line(name: str, state: str, *others: Any) -> RunLine:
    told = [*others]
    told[_RUN_COLUMNS.index("tags") - 2] = json.loads(told[_RUN_COLUMNS.index("tags") - 2])
    return RunLine(name, RunState(state), *told)


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


def _state(word: str | None) -> RunState | None:
    return None if word is None else RunState(word)


def _runs(
    transaction: LedgerTransaction, lived: Sequence[ColumnElement[bool]], since: float, until: float
) -> tuple[WindowRun, ...]:
    """The runs of the window. The summary of a run that was resumed afterwards is ignored: their ends differ."""
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
    transaction: LedgerTransaction, lived: Sequence[ColumnElement[bool]], since: float, until: float
) -> tuple[HeldGang, ...]:
    begun = func.coalesce(ATTEMPTS.c.applied_at, ATTEMPTS.c.submitted_at)
    query = select(ATTEMPTS.c.run, begun, ATTEMPTS.c.ended_at).join(RUNS, RUNS.c.name == ATTEMPTS.c.run)
    query = query.where(*lived, begun < until, or_(ATTEMPTS.c.ended_at.is_(None), ATTEMPTS.c.ended_at > since))
    return tuple(HeldGang(*row) for row in transaction.connection.execute(query).all())


def _incidents(
    transaction: LedgerTransaction, lived: Sequence[ColumnElement[bool]], since: float, until: float
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
