"""What every reading of a Kubernetes object's JSON stands on: its parts, times, conditions and resources.

Absent means not known: what is missing or of another form reads as nothing. Times are Unix seconds; quantities keep
their Kubernetes text (`8`, `500m`, `16Gi`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

from profiles.values import amount

Json = Mapping[str, Any]
Quantities = Mapping[str, str]
Amounts = Mapping[str, Decimal]
"""By resource, in its base unit."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of `status.conditions`."""

    type: str
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str = ""
    message: str = ""
    at: float | None = None
    """Last transition."""
    heard_at: float | None = field(default=None, compare=False)
    """Last heartbeat, which is no news."""


def part(manifest: Json, *keys: str) -> Json:
    """The object under these keys; {} where there is none."""
    found: Any = manifest
    for key in keys:
        found = cast("Json", found).get(key) if isinstance(found, dict) else None
    return cast("Json", found) if isinstance(found, dict) else {}


def items(manifest: Json, *keys: str) -> list[Json]:
    """The objects of the list under these keys; [] where there is none."""
    found = part(manifest, *keys[:-1]).get(keys[-1])
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Json", item) for item in listed if isinstance(item, dict)]


@lru_cache(maxsize=4096)
def seconds(timestamp: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time, None where it is absent or unreadable. Objects share most of their times."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def whole(text: object) -> int:
    """The number that a label carries; 0 where it carries none."""
    return int(str(text)) if str(text or "").isdigit() else 0


def conditions(manifest: Json, characters: int | None = None) -> tuple[Condition, ...]:
    """`status.conditions`, each with at most so many characters of its message; equal words are kept once."""
    return tuple(
        Condition(
            type=sys.intern(str(item.get("type", ""))),
            status=sys.intern(str(item.get("status", "Unknown"))),
            reason=sys.intern(str(item.get("reason") or "")),
            message=sys.intern(str(item.get("message") or "")[:characters]),
            at=seconds(item.get("lastTransitionTime")),
            heard_at=seconds(item.get("lastHeartbeatTime")),
        )
        for item in items(manifest, "status", "conditions")
    )


def requests_of(spec: Json) -> dict[str, Decimal]:
    """What a pod's containers ask for together; a resource with a limit only asks for its limit."""
    total: dict[str, Decimal] = {}
    for container in items(spec, "containers"):
        add(total, _asked(container), 1)
    return total


def _asked(container: Json) -> dict[str, Decimal]:
    asked = {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
    return {name: readable_amount(str(value)) for name, value in asked.items()}


def add(total: dict[str, Decimal], more: Amounts, times: int) -> None:
    """Add so many times what is asked for to a total."""
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value * times


@lru_cache(maxsize=1024)
def readable_amount(quantity: str) -> Decimal:
    """The quantity, 0 where it is none of those that resources are written in."""
    try:
        return amount(quantity)
    except (ArithmeticError, LookupError):
        return Decimal(0)


def gpus_of(requests: Amounts) -> int:
    """GPUs among the resources: extended ones called after them (`amd.com/gpu`, `nvidia.com/gpu`, shared ones too)."""
    return int(sum(value for name, value in requests.items() if "/" in name and "gpu" in name.rpartition("/")[2]))


def plain(requests: Amounts) -> dict[str, str]:
    """Amounts as text without exponents."""
    return {name: f"{value.normalize():f}" for name, value in sorted(requests.items())}
