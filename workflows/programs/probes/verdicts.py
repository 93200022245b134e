"""What one check of the gate found, and what all of them together say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
TESTIMONY = ("kernel",)
"""Checks that hand on what others said. Rules judge that elsewhere; whether the node passes is not up to them."""
EVIDENCE_CHARACTERS = 400
"""Longer evidence is cut: a report travels as an output parameter."""


@dataclass(frozen=True)
class Check:
    """What one check found."""

    check: str
    verdict: str
    measured: Optional[float]
    limit: Optional[float]
    unit: str
    evidence: str
    lines: Tuple[Tuple[float, str], ...] = ()
    """(Unix seconds, text) of lines that others are to judge."""

    def plain(self) -> Dict[str, Any]:
        """As it stands in the report; `lines` only where there are any."""
        plain_data: Dict[str, Any] = {
            "check": self.check,
            "verdict": self.verdict,
            "measured": self.measured,
            "limit": self.limit,
            "unit": self.unit,
            "evidence": self.evidence[:EVIDENCE_CHARACTERS],
        }
        return {**plain_data, "lines": [list(line) for line in self.lines]} if self.lines else plain_data


def at_least(check: str, measured: float, limit: float, unit: str, evidence: str) -> Check:
    """Pass where `measured` reaches `limit`."""
    return Check(check, PASS if measured >= limit else FAIL, measured, limit, unit, evidence)


def at_most(check: str, measured: float, limit: float, unit: str, evidence: str) -> Check:
    """Pass where `measured` stays within `limit`."""
    return Check(check, PASS if measured <= limit else FAIL, measured, limit, unit, evidence)


def overall_verdict(checks: Sequence[Check]) -> str:
    """Fail where any failed, else unknown where any is unknown or none was made, else pass; testimony left out."""
    words = {one.verdict for one in checks if one.check not in TESTIMONY}
    if FAIL in words:
        return FAIL
    return PASS if words == {PASS} else UNKNOWN
