"""What was seen of hosts in one look: facts, clocks, and who reaches whom; or why a host could not be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from workflows.model.host_facts import HostFacts, Unread

_NOTHING, _UNTOLD = HostFacts(), Unread()


class LookFailure(StrEnum):
    """Why a host could not be looked at."""

    UNRESOLVED = "unresolved"
    """Its name has no address."""
    UNREACHABLE = "unreachable"
    """No route, or nobody answered in time."""
    REFUSED = "refused"
    """No SSH server listens there."""
    HOST_KEY_UNKNOWN = "host-key-unknown"
    HOST_KEY_CHANGED = "host-key-changed"
    PERMISSION_DENIED = "permission-denied"
    """The SSH server lets nobody in with our key."""
    NO_PYTHON = "no-python"
    """None, or one before 3.9."""
    TIMED_OUT = "timed-out"
    """It was connected and did not tell all in time."""
    LOST = "lost"
    """The connection ended before it had told all."""
    UNREADABLE = "unreadable"
    """What it told is no answer."""


@dataclass(frozen=True)
class ClockBounds:
    """A host's clock minus ours: between these two, by the shortest of some questions and answers."""

    earliest_seconds: float
    latest_seconds: float


@dataclass(frozen=True)
class PeerReach:
    """One way from a host to a peer."""

    ports: Mapping[int, str]
    """TCP port -> `open`, or how it is not: `refused`, `timed out`, `no route`, or `answered by NAME`."""
    mtu: int
    """Bytes of the largest packet that went there whole; 0: not even a small one did."""
    wanted_mtu: int
    """Bytes that were tried at most."""


@dataclass(frozen=True)
class HostSight:
    """One host in one look."""

    name: str
    facts: HostFacts = _NOTHING
    clock: ClockBounds | Unread = _UNTOLD
    reach: Mapping[str, PeerReach] | Unread = _UNTOLD
    """Peer -> how it is reached from here; of a peer that is missing nothing is known."""
    failure: LookFailure | None = None
    """Why nothing, or not all, is known; None: it was looked at."""
    why: str = ""
    """The failure for people, with what to do."""


@dataclass(frozen=True)
class HostsSight:
    """All hosts in one look."""

    at: float
    """Unix seconds when it began."""
    hosts: Mapping[str, HostSight] = field(default_factory=dict[str, HostSight])
    pairs: bool | Unread = True
    """Whether it was tried who reaches whom; `False`: nobody asked for it; `Unread`: it was asked for and not tried."""
