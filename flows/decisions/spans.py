"""Moments and spans of time as people and programs read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def age(seconds: float) -> str:
    """A span for people, e.g. `4.2 min`."""
    whole = max(0.0, seconds)
    for unit, length in _UNITS:
        if whole >= 2 * length:
            return f"{whole / length:.1f} {unit}"
    return f"{whole:.0f} s"


def took(seconds: float) -> str:
    """The same, with tenths of a second where those tell something: `2.4 s`."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 10.0 else age(seconds)


def timestamp(at: float | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
