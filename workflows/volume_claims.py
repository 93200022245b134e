"""What the looks at a claim and its pod say about the volume, and whose fault it is. Pure.

A claim that is never bound is the storage's failure: it is told, and leaves the node unknown, never bad.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workflows.programs.readings import EVIDENCE_CHARACTERS, Parsed, Reading


@dataclass(frozen=True)
class ClaimSight:
    """One node's claim, from its creation until it is gone."""

    report: Parsed | None = None
    """What the pod told; None: nothing."""
    bound: bool = False
    """The claim was seen bound."""
    ran: bool = False
    """The pod was seen running, or has told."""
    ready_seconds: float = 0.0
    """From the pod's creation until it began to write: claimed, bound, mounted, started."""
    worked_seconds: float = 0.0
    """Written and read back."""
    gone_seconds: float | None = None
    """From the pod's end until its claim was gone; None: it was still there at the last look."""
    said: str = ""
    """The last thing that the cluster said of the pod while it waited, or of its end."""


def told_of_claim(sight: ClaimSight, storage_class: str, limit_seconds: float) -> Parsed:
    """Readings of the probe `volume`.

    Args:
        sight: what was seen.
        storage_class: of the claim.
        limit_seconds: after so long the pod is ended.

    Returns:
        `volume_faults` (count, as the pod told it), `volume_claims_stuck` (count: it was not bound, or did not go) and
        `volume_seconds` (s, all steps). A claim that was not bound leaves `volume_faults` out, and the reason says why.
    """
    because = f": {sight.said}" if sight.said else ""
    if sight.report is not None:
        return _whole(sight, sight.report, storage_class)
    if sight.ran:
        return Parsed(unknown=f"the pod with the volume ended without a report{because}")
    if sight.bound:
        return Parsed(unknown=f"the volume is bound, and its pod did not start within {limit_seconds:g} s{because}")
    why = f"no volume of storage class {storage_class} was bound within {limit_seconds:g} s{because}"
    stuck = Reading("volume_claims_stuck", 1.0, "count", line=why[:EVIDENCE_CHARACTERS])
    return Parsed((stuck,), f"{why}; this is the storage's failure, not the node's")


def _whole(sight: ClaimSight, report: Parsed, storage_class: str) -> Parsed:
    gone = sight.gone_seconds
    ended = f"gone after {gone:.2g} s" if gone is not None else "not gone: look at who holds the claim"
    steps = f"bound and mounted after {sight.ready_seconds:.2g} s, worked on {sight.worked_seconds:.2g} s, {ended}"
    line = f"{storage_class}: {steps}"
    took = sight.ready_seconds + sight.worked_seconds + (gone or 0.0)
    readings = [
        *(replace(one, line=f"{one.line}; {steps}"[:EVIDENCE_CHARACTERS]) for one in report.readings),
        Reading("volume_claims_stuck", 0.0 if gone is not None else 1.0, "count", line=line),
    ]
    if gone is not None:
        readings.append(Reading("volume_seconds", round(took, 3), "s", line=line))
    return Parsed(tuple(readings), report.unknown)
