"""Facts about the fleet, gathered by tasks, judged by `flows.decisions`: its nodes, and where the brake stands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from profiles.vocabulary import VerdictWord

if TYPE_CHECKING:
    from profiles.cluster import Brake


PRIOR_RATE = 6.5e-3
"""Failures per node and day of a large production cluster (reliability study of two research clusters): what holds
before anything was seen."""
EXPECTED_SHARE = 0.999
"""More than chance brings in all but one of a thousand cases is no chance."""


@lru_cache(maxsize=256)
def expected_at_most(mean: float, shape: float) -> int:
    """So many events, or fewer, are no wonder where `mean` are expected: the 0.999 quantile of a negative binomial.

    `shape`: how surely the mean is known, as a number of events: counts of a rate that k events were seen of are
    distributed so with the shape k + 1 (a Gamma prior of one event), and as Poisson where it is large.
    """
    if mean <= 0.0:
        return 0
    share = math.log1p(shape / mean)
    log_term = -shape * math.log1p(mean / shape)
    count, covered = 0, math.exp(log_term)
    while covered < EXPECTED_SHARE and count < 10 * (mean + shape) + 1000:
        log_term += math.log((count + shape) / (count + 1)) - share
        count += 1
        covered += math.exp(log_term)
    return count


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
    """The same by numbers: `out` nodes of the pool are in quarantine, `evictions` were taken out within the window.

    In a large pool more nodes fail within the window than a number in a profile may have thought of.
    """
    allowed = max(1, int(limits.max_quarantined_share * pool_size))
    if out + new > allowed:
        return f"{out} + {new} of {pool_size} nodes in quarantine, at most {allowed} are allowed"
    usual = expected_at_most(pool_size * PRIOR_RATE * limits.window_seconds / 86400.0, 1.0)
    most = max(limits.max_evictions, usual)
    if evictions + new > most:
        why = f" ({usual} are no wonder in a pool of {pool_size})" if usual > limits.max_evictions else ""
        within = f"within {limits.window_seconds:g} s, at most {most} are allowed{why}"
        return f"{evictions} + {new} nodes taken out {within}"
    return ""
