"""Waiting for what processes do: one way to ask until it is so, and to say what never was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LIMIT_SECONDS = 120.0
"""Generous: a loaded machine is slow, what is broken never answers."""


def until(
    what: str,
    reached: Callable[[], Any],
    tell: Callable[[], str] = lambda: "",
    *,
    limit_seconds: float = LIMIT_SECONDS,
    every_seconds: float = 0.05,
) -> Any:
    """The first answer that is not empty; fails where none comes within the limit, with what `tell` says then."""
    deadline = time.monotonic() + limit_seconds
    while not (found := reached()):
        assert time.monotonic() < deadline, f"did not happen within {limit_seconds:g} s: {what}\n{tell()}"
        time.sleep(every_seconds)
    return found
