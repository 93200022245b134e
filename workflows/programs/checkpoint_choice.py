"""Which checkpoint to resume from, and which of our copies may go: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Sequence, Tuple

from workflows.programs.checkpoint_formats import UNKNOWN_STEP

NO_LIMIT = -1
ALWAYS_KEPT = 2
"""The newest two usable ones are never deleted, whatever a profile says."""


@dataclass(frozen=True)
class Limits:
    """What a resume may not take."""

    max_step: int = NO_LIMIT
    """Roll-back: nothing later than this step; `NO_LIMIT`: anything."""
    excluded: Tuple[str, ...] = ()
    """Steps (as text) or paths that were tried and failed."""


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Kept:
    """One of our own copies."""

    step: int
    path: str
    usable: bool


def why_not(step: int, path: str, limits: Limits) -> str:
    """Why the limits forbid this checkpoint, or "". A roll-back never goes forward, nor to an unknown step."""
    if limits.max_step != NO_LIMIT and step == UNKNOWN_STEP:
        return f"its step is not known, and nothing after step {limits.max_step} may be taken"
    if limits.max_step != NO_LIMIT and step > limits.max_step:
        return f"later than step {limits.max_step}, to which the run is rolled back"
    if str(step) in limits.excluded or _names(path, limits.excluded):
        return "excluded: an attempt could not resume from it"
    return ""


def surplus(kept: Sequence[Kept], keep: int) -> Tuple[str, ...]:
    """Our copies that may be deleted: older than the newest `keep` usable ones, of which there are at least two."""
    usable = sorted({one.step for one in kept if one.usable}, reverse=True)
    protected = usable[: max(ALWAYS_KEPT, keep)]
    if len(protected) < ALWAYS_KEPT:
        return ()
    return (
        tuple(one.path for one in kept if one.step < protected[-1]) if len(protected) >= max(ALWAYS_KEPT, keep) else ()
    )


def _names(path: str, excluded: Collection[str]) -> bool:
    return any(path == one or path.endswith("/" + one.strip("/")) for one in excluded if one.strip("/"))
