"""What is read over all runs at once: one slim line for each, instead of its whole story."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import FINISHED, Action, RunState
from workflows.records import ActionRecord, ApprovalRecord, IncidentRecord


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run with what its newest attempt tells."""

    name: str
    state: RunState
    why: str
    profile: str
    cluster: str
    created_at: float
    """Unix seconds."""
    ended_at: float | None = None
    paused: bool = False
    """This run by itself; everything may be paused as well."""
    attempts: int = 0
    step: int | None = None
    """The last step of the newest attempt."""
    loss: float | None = None
    last_step_at: float | None = None


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One incident with what became of it."""

    incident: IncidentRecord
    run_state: RunState | None = None
    """None: it is about no run."""

    @property
    def is_open(self) -> bool:
        """Whether it is not over: its run has not ended, something is done about it, and no step was made since."""
        if self.run_state is None or self.run_state in FINISHED:
            return False
        return self.incident.action is not Action.NONE and self.incident.resumed_at is None


@dataclass(frozen=True, slots=True)
class ApprovalLine:
    """One question that waits, with what an answer decides about."""

    approval: ApprovalRecord
    run_state: RunState | None = None
    """None: it is about nodes, not about a run."""
    actions: tuple[ActionRecord, ...] = ()
    """What is done on a yes, and refused on a no."""


@dataclass(frozen=True)
class IncidentQuery:
    """Which incidents are asked for."""

    run: str = ""
    """Of this run; "": of all."""
    since: float = 0.0
    """Detected at this moment (Unix seconds) or later."""
    fault_class: str = ""
    """Of this class; "": of any."""
    open_only: bool = False
    limit: int = 0
    """At most so many, the newest ones; 0: all."""
