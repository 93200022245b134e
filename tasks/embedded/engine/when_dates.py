"""Texts of a `when` that are moments: govaluate turns a quoted date into its seconds since 1970 before it compares."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DATE = re.compile(
    r"""(?P<day>\d{4}-\d\d-\d\d)
    (?:
        [ ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?
        |[ ](?P<zoned>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?P<offset>[-+]\d\d:\d\d)
        |T(?P<exact>\d\d(?::\d\d(?::\d\d)?)?)(?:[.,]\d+)?(?P<zone>Z|[-+]\d\d:?\d\d)
    )?""",
    re.VERBOSE | re.ASCII,
)
"""Of govaluate's formats those that begin with the year; the others are of no use in a workflow."""


def seconds_of_date(text: str) -> float | None:
    """Whole seconds since 1970 of a text that govaluate takes for a moment; None for any other. Without a zone: UTC."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    clock = found["clock"] or found["zoned"] or found["exact"] or "00"
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{clock}{found['offset'] or found['zone'] or 'Z'}")
        return float(int(moment.astimezone(UTC).timestamp()))
    except (ValueError, OverflowError):
        return None
