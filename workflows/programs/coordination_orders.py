"""What the coordinator orders, and what leads to it: values of `coordination` and `coordination_restart`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from workflows.reports import RankEnd

Key = Tuple[str, int]
"""Role and index of a pod."""


@dataclass(frozen=True)
class Resume:
    """How ranks begin again inside their pods."""

    incarnation: int
    path: str
    """As the trainer is told; "": from scratch."""
    step: Optional[int]
    role: str = ""
    """Whose ranks."""


@dataclass(frozen=True)
class Order:
    """What launchers are told to do: to stop, or to start their ranks again."""

    number: int
    why: str
    save: bool
    """Whether ranks get the time to save."""
    source: Optional[Key] = None
    """Who caused it, and knows already."""
    resume: Optional[Resume] = None
    """None: the order is to stop."""

    def told(self) -> Dict[str, Any]:
        """As launchers read it."""
        if self.resume is None:
            return {"number": self.number, "order": "stop", "why": self.why, "save": self.save}
        return {
            "number": self.number,
            "order": "restart",
            "why": self.why,
            "incarnation": self.resume.incarnation,
            "resume_from": self.resume.path,
            "resume_step": self.resume.step,
        }


@dataclass(frozen=True)
class Restart:
    """One use of the right to restart in place."""

    number: int
    at: float
    incarnation: int
    """That began with it."""
    why: str
    rank: Optional[int]
    """Whose end was the reason."""
    node: str
    step: Optional[int]
    """The last one seen before."""
    resume_step: Optional[int]
    resume_from: str
    first_step: Optional[int] = None
    """The first one seen afterwards; None: not yet."""
    first_step_at: Optional[float] = None
    stacks: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A rank that ended wrongly by itself."""

    key: Key
    """Its pod."""
    end: RankEnd
    why: str


@dataclass(frozen=True)
class Settling:
    """Ranks have failed, and what became of the others is waited for."""

    until: float
    """Unix time in seconds."""
    failures: Tuple[Failure, ...]
    latest: float
    """Unix time in seconds: `until` is put off to then where a save is still to be proven."""
