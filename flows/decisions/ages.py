"""Moments as people write them: an age, or a date and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from profiles.errors import ProfileError

_AGO = re.compile(r"^(\d+(?:\.\d+)?)([smhd])$")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def since_seconds(text: str, now: float, field: str = "--since") -> float:
    """Unix seconds of `30m` (ago) or an ISO date and time (UTC unless it says otherwise); 0 for "".

    Args:
        text: what a person wrote.
        now: Unix seconds.
        field: what the error names.

    Raises:
        ProfileError: neither of them.
    """
    if not text:
        return 0.0
    ago = _AGO.match(text)
    if ago:
        return now - float(ago.group(1)) * _UNIT_SECONDS[ago.group(2)]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ProfileError(field, f"{text!r} is neither an age like 30m, 6h, 7d nor a date and time") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
