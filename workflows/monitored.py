"""What a monitor found that is no node's fault: rows of the ledger. Tasks look, flows decide."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FindingRecord:
    """Something that was not as the ledger says it should be, or that nobody looked after."""

    id: str
    """`<cluster>/<kind>/<subject>@<second it was first seen>`."""
    cluster: str
    kind: str
    """One of `flows.decisions.reconcile`'s kinds."""
    subject: str
    """What it is about: a run, an attempt, an object, a node, an approval."""
    run: str
    """"" where it belongs to no run that the ledger knows."""
    why: str
    action: str
    """What is done about it, in words; `none: ...` where it is left alone."""
    first_at: float
    """Unix seconds."""
    last_at: float
    closed_at: float | None = None
    """When it was no longer seen."""


@dataclass(frozen=True)
class CursorRecord:
    """How far somebody has come who goes through something in order; also a heartbeat."""

    name: str
    position: int
    at: float
    """When it was written: Unix seconds."""


@dataclass(frozen=True)
class HistoryRow:
    """One line of the history with its place in it."""

    seq: int
    at: float
    run: str
    kind: str
    subject: str
    why: str
    data: str
    """JSON text: the record when it was created, afterwards what changed."""
