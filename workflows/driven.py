"""What is known of runs that somebody must drive, and of the flow runs that ask for them: tasks look, flows decide."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from profiles.vocabulary import RunState
from workflows.records import Lease


class Phase(StrEnum):
    """Where a flow run of the Prefect server stands, as far as it matters to whoever serves it."""

    WAITING = "waiting"
    """Scheduled: whoever serves the deployment may claim it."""
    CLAIMED = "claimed"
    """Somebody claimed it and starts its driver."""
    RUNNING = "running"
    CANCELLING = "cancelling"
    """A person pressed Cancel; nothing was ended yet."""
    CANCELLED = "cancelled"
    ENDED = "ended"
    """Completed, failed or crashed."""


ENDS = frozenset({Phase.CANCELLED, Phase.ENDED})
"""Phases that nothing follows unless somebody schedules the flow run again."""


@dataclass(frozen=True)
class OpenRun:
    """A run of the ledger that has not ended, and who drives it."""

    name: str
    state: RunState
    cluster: str
    """Name of its cluster profile."""
    since: float
    """When it was opened, or continued by a person: Unix seconds."""
    lease: Lease | None = None
    """None: nobody drove it yet, or its driver let go."""
    alive: bool | None = None
    """Whether the lease's holder lives; None: nobody here can tell."""


@dataclass(frozen=True)
class FlowRunSeen:
    """One flow run of the deployment that a runner serves."""

    id: str
    phase: Phase
    since: float
    """When it came into this phase: Unix seconds."""
    run: str = ""
    """The run it belongs to; "": it was not opened yet."""


@dataclass(frozen=True)
class Due:
    """A flow run whose time has come and which nobody claimed yet."""

    id: str
    deployment: str
    """Id of its deployment."""
    at: float
    """When it was to start: Unix seconds."""
    scheduled: bool
    """A timetable made it; else a person or a program asked for it."""


@dataclass(frozen=True)
class Plain:
    """A flow run of a deployment that trains nothing: it lives and dies with the process that runs it."""

    id: str
    deployment: str
    phase: Phase
    since: float
    """When it came into this phase: Unix seconds."""
    begun: int = 0
    """How often it has begun to run."""
