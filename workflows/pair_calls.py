"""What the two of a pair ask each other for the checks of a suite; checks with the same call share one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from profiles.suite_check import Check
from workflows.preflight_calls import calls_of
from workflows.programs.gang_pair import PairCall, to_json
from workflows.programs.probe_call import Call

MOST_MEET_SECONDS = 60.0
"""For the two of a pair: their tests together may take half an hour, and nobody waits so long for one."""


@dataclass(frozen=True)
class PairDemand:
    """What the two of every pair measure."""

    calls: str
    """JSON of the calls (`gang_pair.to_json`)."""
    deadline_seconds: float
    """For one pair: to meet, and for all calls in both directions."""
    meet_seconds: float
    """Of it, for the partner to come."""
    nics: bool = False
    """The pods have the fabric's NICs, where a device plug-in counts them, and may lock memory for them."""
    gpus: bool = False
    """The pods have the GPUs of the nodes."""
    pings: bool = False
    """The pods may send ICMP echoes."""


@dataclass(frozen=True)
class PairCalls:
    """The calls of some checks of pairs."""

    calls: tuple[PairCall, ...]
    number_of: Mapping[str, int]
    """Name of a check -> number of the call that answers it."""

    @property
    def demand(self) -> PairDemand:
        """All of them, one after the other."""
        seconds = sum(call.deadline_seconds for call in self.calls)
        meet = min(MOST_MEET_SECONDS, seconds)
        needs = {need for call in self.calls for need in call.needs}
        pings = any(call.title == "ping" for call in self.calls)
        return PairDemand(to_json(self.calls), meet + seconds, meet, "nics" in needs, "gpus" in needs, pings)


def pair_calls_of(checks: Sequence[Check]) -> PairCalls:
    """The calls that answer these checks of pairs; those with another command on the other node are other calls."""
    made: list[PairCall] = []
    number_of: dict[str, int] = {}
    for peer_command in dict.fromkeys(check.peer_command for check in checks):
        own = [check for check in checks if check.peer_command == peer_command]
        found = calls_of(own)
        for call in found.calls:
            asked = [check for check in own if found.number_of[check.name] == call.number]
            number_of |= {check.name: len(made) for check in asked}
            wanted = tuple(sorted({check.quantity for check in asked}))
            plain: dict[str, Any] = {field.name: getattr(call, field.name) for field in fields(Call)}
            plain |= {"number": len(made), "peer_command": peer_command, "quantities": wanted}
            made.append(PairCall(**plain))
    return PairCalls(tuple(made), number_of)
