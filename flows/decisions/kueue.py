"""What Kueue says when it does not admit a workload: the message of QuotaReserved=False taken apart. Pure.

Wording of Kueue 0.19 (`pkg/scheduler/flavorassigner`, `pkg/cache/scheduler/tas_flavor_snapshot.go`,
`pkg/controller/core`). Finer reasons than `Pending` and `Inadmissible` come only with its gate
UnadmittedWorkloadsObservability, so the message decides and the reason helps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MORE = re.compile(r"insufficient unused quota for (\S+) in flavor ([^\s,;]+), ([^\s,;]+) more needed")
_NEVER = re.compile(
    r"insufficient quota for (\S+) in flavor ([^\s,;]+), (?:previously considered podsets requests \(([^)]*)\) \+ "
    r"current podset request \(([^)]*)\)|request) > maximum capacity \(([^)]*)\)"
)
_TAINT = re.compile(r"untolerated taint (?:&?Taint)?\{([^}]*)\} in flavor ([^\s,;]+)")
_AFFINITY = re.compile(r"flavor ([^\s,;]+) doesn't match node affinity")
_TOPOLOGY = re.compile(
    r"topology \"([^\"]+)\" (doesn't allow to fit[^.,;]*|allows to fit only[^.,;]*)"
    r"(?:\. Total nodes: \d+; excluded: ([^;]*))?"
)
_NO_LEVEL = re.compile(
    r"Flavor \"([^\"]+)\" (?:does not contain the requested level|does not support Topology|supports only)"
)
_PREEMPTING = re.compile(r"Pending the preemption of (\d+) workload")
_BLOCKED_QUEUE = re.compile(r"(LocalQueue|ClusterQueue) (\S+) (doesn't exist|not found|is inactive|is stopped)")
_PREEMPTED = re.compile(r"Preempted to accommodate a workload \(UID: ([^,)]+)(?:, JobUID: ([^)]+))?\) due to ([^;]+)")
_PODS_READY = "admitted workloads to be in PodsReady condition"


@dataclass(frozen=True)
class Shortage:
    """Quota that is lacking now and may become free."""

    resource: str
    flavor: str
    more: str


@dataclass(frozen=True)
class Ceiling:
    """A request above everything that the queue can ever give."""

    resource: str
    flavor: str
    asked: str
    capacity: str


@dataclass(frozen=True)
class Misfit:
    """A flavor that does not fit, whatever its quota."""

    flavor: str
    why: str


@dataclass(frozen=True)
class NoPlace:
    """Topology-aware scheduling finds no place for the pods beside each other."""

    topology: str
    told: str
    excluded: str = ""
    """Which nodes were left out, and why, in Kueue's words."""


@dataclass(frozen=True)
class Preemption:
    """Who took its place."""

    uid: str
    job_uid: str
    why: str


@dataclass(frozen=True)
class Refusal:
    """One message of Kueue, taken apart; every part may be empty."""

    shortages: tuple[Shortage, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    places: tuple[NoPlace, ...] = ()
    preempting: int = 0
    """Workloads that are being preempted for it."""
    queue: tuple[str, str, str] | None = None
    """(kind, name, what is wrong with it)."""
    preempted: Preemption | None = None
    pods_ready: bool = False
    """It waits until the pods of those admitted before are ready."""


def read_refusal(message: str) -> Refusal:
    """What the message of QuotaReserved, Evicted or Preempted says."""
    pending, blocked = _PREEMPTING.search(message), _BLOCKED_QUEUE.search(message)
    preempted = _PREEMPTED.search(message)
    return Refusal(
        shortages=tuple(Shortage(*found) for found in _MORE.findall(message)),
        ceilings=tuple(
            Ceiling(resource, flavor, asked or "", capacity)
            for resource, flavor, _, asked, capacity in _NEVER.findall(message)
        ),
        misfits=(
            *(
                Misfit(flavor, f"its taint {_taint(taint)} is not tolerated")
                for taint, flavor in _TAINT.findall(message)
            ),
            *(Misfit(flavor, "its labels do not match the pods' selector") for flavor in _AFFINITY.findall(message)),
            *(Misfit(flavor, "it has not the topology that is asked for") for flavor in _NO_LEVEL.findall(message)),
        ),
        places=tuple(
            NoPlace(name, told.strip(), excluded.strip(" .")) for name, told, excluded in _TOPOLOGY.findall(message)
        ),
        preempting=int(pending.group(1)) if pending else 0,
        queue=(blocked.group(1), blocked.group(2), blocked.group(3)) if blocked else None,
        preempted=Preemption(preempted.group(1), preempted.group(2) or "", preempted.group(3).strip())
        if preempted
        else None,
        pods_ready=_PODS_READY in message,
    )


def _taint(text: str) -> str:
    """`key=value:Effect` of Go's own print of a taint."""
    words = text.split()
    if len(words) >= 4:
        return f"{words[0]}={words[1]}:{words[2]}"
    return f"{words[0]}:{words[1]}" if len(words) == 3 else text
