"""What the watch over hangs hears: values made from launchers' reports by the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union


@dataclass(frozen=True)
class Launched:
    """Ranks of an incarnation were started."""

    at: float
    incarnation: int = 1
    resume_step: int = 0


@dataclass(frozen=True)
class Stepped:
    """A rank reports a step (`StepSeen`)."""

    at: float
    """Unix time in seconds when we heard it."""
    rank: int
    step: int
    told_at: float
    """When its launcher read it, by that launcher's clock: late and batched reports do not change durations."""
    incarnation: int = 1
    total_steps: Optional[int] = None


@dataclass(frozen=True)
class Entered:
    """A rank reports a phase (`PhaseSeen`)."""

    at: float
    rank: int
    phase: str
    told_at: float
    incarnation: int = 1
    detail: str = ""
    """The line that says so; "": no line of its own."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint was proven."""

    at: float
    step: int


@dataclass(frozen=True)
class Over:
    """The gang was told to stop, or all of it ended: nothing is watched any more."""

    at: float


Event = Union[Launched, Stepped, Entered, Saved, Over]


@dataclass(frozen=True)
class Pause:
    """A rank is in a phase that it declared."""

    phase: str
    heard_at: float
    told_at: float
    step: int
    """Of the gang when it began."""
    detail: str = ""
    """The line that said so."""
