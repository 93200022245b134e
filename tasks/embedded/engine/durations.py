"""Durations as Argo reads them: `90`, `"90"`, `1h30m`, `250ms`; and as it says them."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """The seconds of a duration; a bare number counts seconds.

    Raises:
        ValueError: it is no duration.
    """
    text = text.strip()
    if re.fullmatch(r"\d+", text):
        return float(text)
    if not text or not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise ValueError(f"unable to parse '{text}' as a duration; write seconds, or like 1h30m, 45s, 250ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def spoken(seconds: float) -> str:
    """A duration in words, its two largest units: `1 minute 30 seconds`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} milliseconds"
    parts: list[str] = []
    rest = round(seconds)
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(parts[:2])
