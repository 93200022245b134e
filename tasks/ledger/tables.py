"""The ledger's tables, in column types that SQLite and PostgreSQL both understand.

Column names are the field names of `workflows.model.records`; tuples and dictionaries are JSON text. Changing a table
here needs a migration in `migrations/versions` and a new `SCHEMA`; a test compares the two. Rounds between nodes stand
in `tasks.ledger.verdicts`, which alone uses them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    literal_column,
)


class AnyFloat(TypeDecorator[float]):
    """A float that may be NaN: SQLite silently turns NaN into NULL, so it is kept as its shortest exact text."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> str | None:
        """Text that reads back as the very same float."""
        return None if value is None else repr(float(value))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> float | None:
        """The float."""
        return None if value is None else float(value)


METADATA = MetaData()
_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts rows by itself only for a column that is called exactly INTEGER."""


def sequence() -> Column[int]:
    """A number the database counts up by itself: the order of rows."""
    return Column("seq", _SEQUENCE, primary_key=True, autoincrement=True)


def text(name: str, *, key: bool = False) -> Column[str]:
    """Text, never NULL."""
    return Column(name, Text, primary_key=key, nullable=False)


def time(name: str) -> Column[float]:
    """Unix seconds, or any float, never NULL."""
    return Column(name, Float(53), nullable=False)


def maybe_time(name: str) -> Column[float]:
    """The same, NULL where it has not happened."""
    return Column(name, Float(53))


def whole(name: str, *, key: bool = False) -> Column[int]:
    """A whole number, never NULL."""
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def maybe_whole(name: str) -> Column[int]:
    """The same, NULL where it is not known."""
    return Column(name, BigInteger)


def flag(name: str) -> Column[bool]:
    """True or false."""
    return Column(name, Boolean, nullable=False)


def packed(name: str) -> Column[bytes]:
    """Bytes, never NULL."""
    return Column(name, LargeBinary, nullable=False)


SCHEMA = "0017"  # the migration that METADATA is equal to

RUNS = Table(
    "runs",
    METADATA,
    text("name", key=True),
    text("state"),
    text("why"),
    text("profile"),
    text("digest"),
    text("cluster"),
    text("mode"),
    time("created_at"),
    maybe_time("ended_at"),
    flag("paused"),
    whole("resumes"),
    maybe_time("resumed_at"),
    text("waits_for"),
    flag("goes_on"),
    text("owner"),
    text("tags"),
    text("resolved"),
)

LEASES = Table(
    "leases",
    METADATA,
    text("run", key=True),
    whole("fencing"),
    text("host"),
    whole("pid"),
    time("started_at"),
    time("expires_at"),
    flag("held"),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    text("run", key=True),
    whole("number", key=True),
    time("planned_at"),
    text("why"),
    text("nodes"),
    text("avoid_nodes"),
    maybe_whole("max_resume_step"),
    text("excluded_checkpoints"),
    maybe_time("submitted_at"),
    maybe_time("applied_at"),
    maybe_time("running_at"),
    maybe_time("ended_at"),
    Column("outcome", Text),
    maybe_whole("resumed_from_step"),
    text("resume_path"),
    Column("resume_proof", Text),
    maybe_whole("first_step"),
    maybe_time("first_step_at"),
    maybe_whole("last_step"),
    maybe_time("last_step_at"),
    whole("restarts_in_place"),
    whole("restarts_lent"),
    maybe_time("mttf_seconds"),
    maybe_whole("interval_steps"),
    maybe_whole("advised_steps"),
    Column("loss", AnyFloat),
    text("incident"),
)

INCIDENTS = Table(
    "incidents",
    METADATA,
    text("id", key=True),
    text("run"),
    whole("attempt"),
    time("at"),
    time("detected_at"),
    text("signal"),
    Column("fault_class", Text),
    time("confidence"),
    text("culprits"),
    text("fingerprint"),
    maybe_whole("step"),
    text("evidence"),
    text("alternatives"),
    Column("action", Text),
    text("why"),
    text("would_change"),
    flag("charged"),
    maybe_time("resumed_at"),
    text("lost_nodes"),
    Column("fact", Text),
    maybe_time("over_at"),
    Index("incidents_by_fact", "fact", unique=True),
    Index("incidents_by_run", "run", "detected_at"),
    Index("incidents_by_time", "detected_at", "id"),
)

ACTIONS = Table(
    "actions",
    METADATA,
    text("id", key=True),
    text("run"),
    text("incident"),
    text("kind"),
    text("target"),
    text("state"),
    text("why"),
    time("planned_at"),
    maybe_time("done_at"),
    text("detail"),
    Index("actions_by_run", "run", "planned_at"),
)

APPROVALS = Table(
    "approvals",
    METADATA,
    text("id", key=True),
    text("run"),
    text("incident"),
    text("question"),
    text("state"),
    time("asked_at"),
    time("expires_at"),
    maybe_time("answered_at"),
    text("answered_by"),
    text("why"),
    text("by"),
    Index("approvals_by_run", "run", "asked_at"),
    Index("approvals_by_state", "state", "asked_at"),
)

VERDICTS = Table(
    "verdicts",
    METADATA,
    sequence(),
    text("cluster"),
    text("node"),
    text("verdict"),
    text("depth"),
    time("at"),
    text("reasons"),
    text("source"),
    UniqueConstraint("cluster", "node", "depth", "at", "source", name="verdicts_once"),
    Index("verdicts_by_word", "cluster", "verdict", "node", "depth", "at", "source"),
)

LOOKS = Table(
    "looks",
    METADATA,
    sequence(),
    text("cluster"),
    whole("shard"),
    time("last_at"),
    packed("packed"),
    Index("looks_by_shard", "cluster", "shard", "last_at"),
)
"""`workflows.model.verdict_history.Looks`: the figures of verdicts of the last months. A shard is a fixed part of a
cluster's nodes.
"""

NODE_STATES = Table(
    "node_states",
    METADATA,
    sequence(),
    text("cluster"),
    text("node"),
    text("state"),
    text("why"),
    time("since"),
    text("incident"),
    text("pool"),
    text("by"),
    UniqueConstraint("cluster", "node", "since", "state", name="node_states_once"),
)

CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    sequence(),
    text("run"),
    whole("step"),
    text("path"),
    whole("attempt"),
    time("at"),
    text("verdict"),
    text("why"),
    whole("bytes"),
    text("format"),
    text("tier"),
    UniqueConstraint("run", "path", "tier", "at", name="checkpoints_once"),
)

STEP_BATCHES = Table(
    "step_batches",
    METADATA,
    sequence(),
    text("run"),
    whole("attempt"),
    whole("count"),
    time("first_at"),
    time("last_at"),
    packed("packed"),
    Index("step_batches_by_time", "run", "attempt", "last_at"),
)

MARKS = Table(
    "marks",
    METADATA,
    sequence(),
    text("run"),
    whole("attempt"),
    text("kind"),
    time("at"),
    text("detail"),
    UniqueConstraint("run", "attempt", "kind", "at", name="marks_once"),
)

REQUESTS = Table(
    "requests",
    METADATA,
    text("id", key=True),
    text("run"),
    text("kind"),
    time("at"),
    text("why"),
    maybe_time("done_at"),
    Index("requests_by_run", "run", "at"),
)

SWITCHES = Table("switches", METADATA, text("name", key=True), flag("on"), text("why"), time("at"), text("by"))
"""What holds for every run; today one row, `pause`."""

CHANGES = Table("changes", METADATA, text("run", key=True), whole("number"))
"""Grows with every write that concerns the run: what a watcher polls. Apart from `runs`, whose rows are large."""

FINDINGS = Table(
    "findings",
    METADATA,
    text("id", key=True),
    text("cluster"),
    text("kind"),
    text("subject"),
    text("run"),
    text("why"),
    text("action"),
    time("first_at"),
    time("last_at"),
    maybe_time("closed_at"),
    Index("findings_by_cluster", "cluster", "closed_at"),
)

BOOTSTRAP_STEPS = Table(
    "bootstrap_steps",
    METADATA,
    text("cluster", key=True),
    text("stage", key=True),
    text("subject", key=True),
    text("wanted"),
    text("state"),
    whole("tries"),
    time("began_at"),
    maybe_time("ended_at"),
    text("why"),
)
"""`workflows.model.bootstrap.StepRecord`: a row for each step, overwritten; the history has every try."""

CURSORS = Table("cursors", METADATA, text("name", key=True), whole("position"), time("at"))
"""How far somebody has come who goes through something in order, and when he was last there."""

SUMMARIES = Table(
    "summaries",
    METADATA,
    text("run", key=True),
    time("begin"),
    time("end"),
    whole("gpus"),
    whole("nodes"),
    maybe_time("price_per_gpu_hour"),
    text("currency"),
    text("by_state"),
    text("lost_by_class"),
    packed("stretches"),
)
"""`workflows.model.runs.RunSummary` of runs that ended; valid while `end` is the run's own."""

HISTORY = Table(
    "history",
    METADATA,
    sequence(),
    time("at"),
    text("run"),
    text("kind"),
    text("subject"),
    text("why"),
    text("data"),
    text("by"),
    Index("history_by_run", "run", "seq"),
    Index("history_by_time", "at"),
)
"""Append-only: every write but steps, progress and lease renewals, in order, with its reason.

`by` is the person who did it (`workflows.model.records.Actor`), "" where we did.
"""
BY_PEOPLE = HISTORY.c.by != literal_column("''")
"""The very words of the index below: on PostgreSQL it serves no condition with a parameter in it."""
Index("history_by_person", HISTORY.c.run, HISTORY.c.seq, sqlite_where=BY_PEOPLE, postgresql_where=BY_PEOPLE)

LEDGER = Table("ledger", METADATA, text("id", key=True), time("created_at"))
"""One row: tells this ledger from another one that was put in its place."""
