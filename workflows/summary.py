"""Where the time of a whole run went, small enough to read ten thousand of them: tasks keep them, flows make them.

Times are Unix seconds, durations are wall seconds of the whole gang: times GPUs gives GPU-seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Stretch(NamedTuple):
    """A part of a run's time; of training at most about an hour, so that a window may begin within a run."""

    begin: float
    end: float
    by_state: dict[str, float]
    """State -> seconds; they sum to the length."""
    lost_by_class: dict[str, float]
    """Fault class -> seconds that its incidents cost within the stretch."""


@dataclass(frozen=True)
class RunSummary:
    """The account of one run."""

    run: str
    cluster: str
    begin: float
    """Its submission, or the window's begin."""
    end: float
    """Its end, or the moment of the reading, or the window's end."""
    gpus: int
    """On CPU nodes: ranks."""
    nodes: int
    """Pods of the deciding role."""
    price_per_gpu_hour: float | None
    """None: its pool had no price when it was submitted."""
    currency: str
    by_state: dict[str, float] = field(default_factory=lambda: {})
    """State -> seconds; they sum to `end - begin`."""
    lost_by_class: dict[str, float] = field(default_factory=lambda: {})
    """Fault class -> seconds that its incidents cost: from the first lost step to the first new one."""
    stretches: tuple[Stretch, ...] = ()
    """The same, piece by piece; empty where nobody asked for them."""


class HeldGang(NamedTuple):
    """When the gang of one attempt held its nodes."""

    run: str
    begin: float
    """Its JobSet was seen, else its workflow was submitted."""
    end: float | None
    """None: it holds them still."""


class WindowIncident(NamedTuple):
    """One incident, as the account of all runs needs it."""

    run: str
    detected_at: float
    fault_class: str | None
    """None: not diagnosed (yet)."""
    action: str | None
    culprit_nodes: tuple[str, ...]


class WindowRun(NamedTuple):
    """One run that lived in the window."""

    run: str
    cluster: str
    state: str
    begin: float
    end: float | None
    summary: RunSummary | None
    """None: it lives, or ended before summaries were kept."""


@dataclass(frozen=True)
class LedgerWindow:
    """What the ledger knows of all runs between two moments, read in one transaction."""

    since: float
    until: float
    runs: tuple[WindowRun, ...]
    held: tuple[HeldGang, ...]
    incidents: tuple[WindowIncident, ...]
