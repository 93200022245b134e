"""Checks of one node, judged on the node itself: each found pass, fail or unknown, and what all of them say together.

The gate, the sweep and the health daemon judge by this. What is measured for a suite of a preflight is judged later,
by those who know the node's past and its peers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from workflows.programs.runtime.bounded import outcomes
from workflows.wire import GateReport

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
TESTIMONY = ("kernel",)
"""Checks that hand on what others said. Rules judge that elsewhere; whether the node passes is not up to them."""
STORAGE_CHECKS = ("storage", "disk")
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


def worst(verdicts: Sequence[str]) -> str:
    """Fail where one failed, else unknown where one is or there is none, else pass."""
    if FAIL in verdicts:
        return FAIL
    return PASS if set(verdicts) == {PASS} else UNKNOWN


def overall_verdict(checks: Sequence[Check]) -> str:
    """The worst of the checks; testimony left out."""
    return worst([one.verdict for one in checks if one.check not in TESTIMONY])


def examine(node: str, checks: Mapping[str, Callable[[], Check]], timeout_seconds: float, now: float) -> GateReport:
    """All checks at once, each in its own thread, so that one dead mount does not silence the others.

    A check that crashes or gives no answer in time is unknown. `now` (Unix seconds) is the time of the report.
    """
    found = outcomes(list(checks.values()), seconds=timeout_seconds)
    done = [one if isinstance(one, Check) else _failed(name, one) for name, one in zip(checks, found)]  # noqa: B905 - 3.10
    return GateReport(node, overall_verdict(done), [one.plain() for one in done], now)


def _failed(name: str, error: Exception) -> Check:
    if isinstance(error, TimeoutError) and error.errno is None:
        return Check(name, UNKNOWN, None, None, "", str(error))
    if isinstance(error, OSError):
        # The storage's checks ask the storage for nothing unusual: refusing is its failure.
        verdict = FAIL if name in STORAGE_CHECKS else UNKNOWN
        return Check(name, verdict, None, None, "", f"{error.strerror or error} ({error.filename})")
    return Check(name, UNKNOWN, None, None, "", f"the check crashed: {type(error).__name__}: {error}")
