"""Facts about the fleet, gathered by tasks, judged by `flows.decisions`: its nodes, and where the brake stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profiles.vocabulary import VerdictWord

if TYPE_CHECKING:
    from profiles.cluster import Brake


@dataclass(frozen=True)
class NodeCandidate:
    """One node of the pool that a run may use, as the cluster and the ledger know it."""

    name: str
    pool: str = ""
    ready: bool | None = True
    """None: the cluster does not know (silent)."""
    cordoned: bool = False
    quarantined: str = ""
    """Why we quarantined it; "" where we did not."""
    taints: tuple[str, ...] = ()
    """Taints as `key=value:Effect` that the run's pods do not tolerate; quarantine excluded."""
    verdict: VerdictWord = VerdictWord.UNKNOWN
    """Newest verdict; unknown nodes are admitted or not by the attempt's own gate."""
    verdict_why: str = ""
    unproven: str = ""
    """Why it may not be used though it did not fail: a proof is wanted that nobody could give. "": it may be."""
    busy: str = ""
    """Who uses it ("" when it is free)."""
    spare: bool = False
    rack: str = ""
    block: str = ""


def _shipped_limits() -> Brake:
    from profiles.cluster import Brake  # noqa: PLC0415 - a fifth of the time of a command that only reads the ledger

    return Brake()


@dataclass(frozen=True)
class BrakeState:
    """Where the fleet-wide brake stands for one pool."""

    pool_size: int
    quarantined: tuple[str, ...] = ()
    """Nodes of the pool that we have quarantined now."""
    evictions: int = 0
    """Nodes taken out within the brake's window."""
    limits: Brake = field(default_factory=_shipped_limits)


def brake_trips(brake: BrakeState, new: int) -> str:
    """Why taking out `new` more nodes goes too far; "" where it does not."""
    return beyond(brake.limits, brake.pool_size, len(brake.quarantined), brake.evictions, new)


def beyond(limits: Brake, pool_size: int, out: int, evictions: int, new: int) -> str:
    """The same by numbers: `out` nodes of the pool are in quarantine, `evictions` were taken out within the window."""
    allowed = max(1, int(limits.max_quarantined_share * pool_size))
    if out + new > allowed:
        return f"{out} + {new} of {pool_size} nodes in quarantine, at most {allowed} are allowed"
    if evictions + new > limits.max_evictions:
        within = f"within {limits.window_seconds:g} s, at most {limits.max_evictions} are allowed"
        return f"{evictions} + {new} nodes taken out {within}"
    return ""
