"""What the coordinator orders, and what leads to it: values of `coordination` and `coordination_restart`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from workflows.reports import RankEnd

Key = Tuple[str, int]
"""Role and index of a pod."""
RANK_FAILED, HANG = "rank-failed", "hang"
"""What a restart in place answers."""
GANG, ROLE, REPLICA = "gang", "role", "replica"
"""Who begins again with a rank: all roles without which the attempt fails, its own role, or its replica group."""
SCOPES = (GANG, ROLE, REPLICA)


@dataclass(frozen=True)
class Resume:
    """How ranks begin again inside their pods."""

    incarnation: int
    path: str
    """As the trainer is told; "": from scratch."""
    step: Optional[int]


@dataclass(frozen=True)
class Order:
    """What launchers are told to do: to stop, to start their ranks again, or to say where they stand."""

    number: int
    why: str
    save: bool
    """Whether ranks get the time to save."""
    source: Optional[Key] = None
    """Who caused it, and knows already."""
    resume: Optional[Resume] = None
    """How ranks begin again; None: they do not."""
    stacks: str = ""
    """Name of the answer where stacks are asked for; "": they are not."""
    roles: Tuple[str, ...] = ()
    """Whose launchers it concerns; none: everybody's."""

    @property
    def stops(self) -> bool:
        """It is the end of the gang."""
        return self.resume is None and not self.stacks

    def told(self) -> Dict[str, Any]:
        """As launchers read it."""
        if self.stacks:
            return {"number": self.number, "order": "stacks", "why": self.why, "id": self.stacks}
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
    """Who was the reason; None: nobody could be named."""
    node: str
    """Where it ran; "": not known."""
    step: Optional[int]
    """The last one seen before."""
    resume_step: Optional[int]
    resume_from: str
    first_step: Optional[int] = None
    """The first one seen afterwards; None: not yet."""
    first_step_at: Optional[float] = None
    kind: str = RANK_FAILED
    """Or `HANG`."""
    scope: str = ROLE
    """Who began again."""
    pods: Tuple[int, int] = (0, 0)
    """Of a replica group: its first pod, and the one after its last; else zeros."""
    share: float = 1.0
    """Of the deciding role's ranks that began again."""
    role: str = ""
    """Of the rank that was the reason, where it does not train."""
    stacks: str = ""
    """After a hang: where the ranks stood, alike ones together."""


@dataclass(frozen=True)
class Cause:
    """Why ranks should begin again."""

    kind: str
    why: str
    rank: Optional[int]
    node: str
    stacks: str = ""
    role: str = ""
    """Of the rank; "": the deciding one."""


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
