"""Lay the tables as they were before the first release: a frozen copy, which later migrations change step by step.

Numbers below 0013 belong to development versions, whose ledgers are refused. Columns stand in the order in which those
versions added them, with the defaults that they gave to older rows, so that every ledger of 0013 is alike.
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

revision = "0013"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = MetaData()
_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")


def _sequence() -> Column[int]:
    return Column("seq", _SEQUENCE, primary_key=True, autoincrement=True)


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=False)


def _time(name: str) -> Column[float]:
    return Column(name, Float(53), nullable=False)


def _maybe_time(name: str) -> Column[float]:
    return Column(name, Float(53))


def _whole(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _maybe_whole(name: str) -> Column[int]:
    return Column(name, BigInteger)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def _packed(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


Table(
    "runs",
    _TABLES,
    _text("name", key=True),
    _text("state"),
    _text("why"),
    _text("profile"),
    _text("digest"),
    _text("cluster"),
    _text("mode"),
    _time("created_at"),
    _maybe_time("ended_at"),
    _flag("paused"),
    _whole("resumes"),
    _maybe_time("resumed_at"),
    _text("resolved"),
)

Table(
    "leases",
    _TABLES,
    _text("run", key=True),
    _whole("fencing"),
    _text("host"),
    _whole("pid"),
    _time("started_at"),
    _time("expires_at"),
    _flag("held"),
)

Table(
    "attempts",
    _TABLES,
    _text("run", key=True),
    _whole("number", key=True),
    _time("planned_at"),
    _text("why"),
    _text("nodes"),
    _text("avoid_nodes"),
    _maybe_whole("max_resume_step"),
    _text("excluded_checkpoints"),
    _maybe_time("submitted_at"),
    _maybe_time("applied_at"),
    _maybe_time("running_at"),
    _maybe_time("ended_at"),
    Column("outcome", Text),
    _maybe_whole("resumed_from_step"),
    _text("resume_path"),
    Column("resume_proof", Text),
    _maybe_whole("first_step"),
    _maybe_time("first_step_at"),
    _maybe_whole("last_step"),
    _maybe_time("last_step_at"),
    _whole("restarts_in_place"),
    Column("loss", String),
    Column("incident", Text, nullable=False, server_default=""),
    Column("restarts_lent", BigInteger, nullable=False, autoincrement=False, server_default="0"),
    _maybe_time("mttf_seconds"),
    _maybe_whole("interval_steps"),
    _maybe_whole("advised_steps"),
)

Table(
    "incidents",
    _TABLES,
    _text("id", key=True),
    _text("run"),
    _whole("attempt"),
    _time("at"),
    _time("detected_at"),
    _text("signal"),
    Column("fault_class", Text),
    _time("confidence"),
    _text("culprits"),
    _text("fingerprint"),
    _maybe_whole("step"),
    _text("evidence"),
    _text("alternatives"),
    Column("action", Text),
    _text("why"),
    _text("would_change"),
    _flag("charged"),
    _maybe_time("resumed_at"),
    Column("lost_nodes", Text, nullable=False, server_default="[]"),
    Column("fact", Text),
    _maybe_time("over_at"),
    Index("incidents_by_fact", "fact", unique=True),
    Index("incidents_by_run", "run", "detected_at"),
    Index("incidents_by_time", "detected_at", "id"),
)

Table(
    "actions",
    _TABLES,
    _text("id", key=True),
    _text("run"),
    _text("incident"),
    _text("kind"),
    _text("target"),
    _text("state"),
    _text("why"),
    _time("planned_at"),
    _maybe_time("done_at"),
    _text("detail"),
    Index("actions_by_run", "run", "planned_at"),
)

Table(
    "approvals",
    _TABLES,
    _text("id", key=True),
    _text("run"),
    _text("incident"),
    _text("question"),
    _text("state"),
    _time("asked_at"),
    _time("expires_at"),
    _maybe_time("answered_at"),
    _text("answered_by"),
    _text("why"),
    Index("approvals_by_run", "run", "asked_at"),
    Index("approvals_by_state", "state", "asked_at"),
)

Table(
    "verdicts",
    _TABLES,
    _sequence(),
    _text("cluster"),
    _text("node"),
    _text("verdict"),
    _text("depth"),
    _time("at"),
    _text("reasons"),
    _text("source"),
    UniqueConstraint("cluster", "node", "depth", "at", "source", name="verdicts_once"),
    Index("verdicts_by_word", "cluster", "verdict", "node", "depth", "at", "source"),
)

Table(
    "looks",
    _TABLES,
    _sequence(),
    _text("cluster"),
    _whole("shard"),
    _time("last_at"),
    _packed("packed"),
    Index("looks_by_shard", "cluster", "shard", "last_at"),
)

Table(
    "link_rounds",
    _TABLES,
    _text("cluster", key=True),
    _whole("test", key=True),
    _whole("step", key=True),
    _whole("number"),
    _text("asked"),
    _time("at"),
    _packed("told"),
)

Table(
    "node_states",
    _TABLES,
    _sequence(),
    _text("cluster"),
    _text("node"),
    _text("state"),
    _text("why"),
    _time("since"),
    _text("incident"),
    _text("pool"),
    UniqueConstraint("cluster", "node", "since", "state", name="node_states_once"),
)

Table(
    "checkpoints",
    _TABLES,
    _sequence(),
    _text("run"),
    _whole("step"),
    _text("path"),
    _whole("attempt"),
    _time("at"),
    _text("verdict"),
    _text("why"),
    _whole("bytes"),
    _text("format"),
    _text("tier"),
    UniqueConstraint("run", "path", "tier", "at", name="checkpoints_once"),
)

Table(
    "step_batches",
    _TABLES,
    _sequence(),
    _text("run"),
    _whole("attempt"),
    _whole("count"),
    _time("first_at"),
    _time("last_at"),
    _packed("packed"),
    Index("step_batches_by_time", "run", "attempt", "last_at"),
)

Table(
    "marks",
    _TABLES,
    _sequence(),
    _text("run"),
    _whole("attempt"),
    _text("kind"),
    _time("at"),
    _text("detail"),
    UniqueConstraint("run", "attempt", "kind", "at", name="marks_once"),
)

Table(
    "requests",
    _TABLES,
    _text("id", key=True),
    _text("run"),
    _text("kind"),
    _time("at"),
    _text("why"),
    _maybe_time("done_at"),
    Index("requests_by_run", "run", "at"),
)

Table("switches", _TABLES, _text("name", key=True), _flag("on"), _text("why"), _time("at"))

Table("changes", _TABLES, _text("run", key=True), _whole("number"))

Table(
    "findings",
    _TABLES,
    _text("id", key=True),
    _text("cluster"),
    _text("kind"),
    _text("subject"),
    _text("run"),
    _text("why"),
    _text("action"),
    _time("first_at"),
    _time("last_at"),
    _maybe_time("closed_at"),
    Index("findings_by_cluster", "cluster", "closed_at"),
)

Table("cursors", _TABLES, _text("name", key=True), _whole("position"), _time("at"))

Table(
    "summaries",
    _TABLES,
    _text("run", key=True),
    _time("begin"),
    _time("end"),
    _whole("gpus"),
    _whole("nodes"),
    _maybe_time("price_per_gpu_hour"),
    _text("currency"),
    _text("by_state"),
    _text("lost_by_class"),
    _packed("stretches"),
)

Table(
    "history",
    _TABLES,
    _sequence(),
    _time("at"),
    _text("run"),
    _text("kind"),
    _text("subject"),
    _text("why"),
    _text("data"),
    Index("history_by_run", "run", "seq"),
    Index("history_by_time", "at"),
)

Table("ledger", _TABLES, _text("id", key=True), _time("created_at"))


def upgrade() -> None:
    """Create every table in an empty database."""
    _TABLES.create_all(op.get_bind(), checkfirst=False)
