"""Findings of a reconciling look, and what may be done about one: closed lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from workflows.evidence import Signal
from workflows.reconcile_sight import ObjectSeen


class Kind(StrEnum):
    """What is not as it should be. The words stand in the ledger and in documents."""

    UNDRIVEN = "undriven"
    UNSEEN_END = "unseen-end"
    SILENT = "silent-coordinator"
    LEASE = "lease"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    UNKNOWN_ATTEMPT = "unknown-attempt"
    APPROVAL = "approval"
    MARK_MISSING = "mark-missing"
    MARK_LEFT = "mark-left"
    OBSERVER = "observer"


@dataclass(frozen=True)
class DriveAgain:
    """Give the run a driver, by a run of its train flow, which adopts what is there."""

    run: str

    @property
    def words(self) -> str:
        """For people, after "it would"."""
        return "start its train flow again"


@dataclass(frozen=True)
class Tell:
    """Tell the driver that lives: it looks anew, at an incident where there is a signal."""

    run: str
    attempt: int
    signal: Signal | None
    """None: nothing went wrong, the end was only not seen."""

    @property
    def words(self) -> str:
        """For people."""
        return f"open an incident ({self.signal}) for its driver" if self.signal else "have its driver look again"


@dataclass(frozen=True)
class Remove:
    """Delete an object that nobody wants any more."""

    thing: ObjectSeen

    @property
    def words(self) -> str:
        """For people."""
        return "delete it"


@dataclass(frozen=True)
class Expire:
    """Let a question lapse: the safe default holds."""

    approval: str

    @property
    def words(self) -> str:
        """For people."""
        return "let the question lapse"


@dataclass(frozen=True)
class MarkAgain:
    """Put our mark on the node once more."""

    node: str
    why: str

    @property
    def words(self) -> str:
        """For people."""
        return "mark it again"


@dataclass(frozen=True)
class Leave:
    """Nothing is done."""

    why: str

    @property
    def words(self) -> str:
        """For people."""
        return f"none: {self.why}"


Remedy = DriveAgain | Tell | Remove | Expire | MarkAgain | Leave


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    kind: Kind
    subject: str
    """A run, an attempt, `Kind/name` of an object, a node, an approval, a lease."""
    run: str
    """"" where it belongs to no run that the ledger knows."""
    why: str
    remedy: Remedy

    @property
    def key(self) -> str:
        """The same for the same thing, however often it is seen."""
        return f"{self.kind}/{self.subject}"

    @classmethod
    def undriven(cls, run: str, why: str) -> Finding:
        """A run without a living driver."""
        return cls(Kind.UNDRIVEN, run, run, why, DriveAgain(run))
