"""How a program is asked to save, and what says that it has. Pure: times stand in the reports.

A program that is asked by SIGTERM ends by itself when it has saved. One that is asked by another signal or by a file
saves and goes on: somebody has to see that the save is complete, and end it then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional

from workflows.programs.progress_marks import may_be_copied_only
from workflows.reports import CheckpointSeen, PhaseSeen

SIGNALS = ("TERM", "USR1", "USR2", "HUP", "INT")
TERM = "TERM"
END_SECONDS = 5.0
"""Before the notice is over a program of which no save was seen gets SIGTERM: some save by that as well."""
END_SHARE = 0.25
"""At most this share of the notice is taken for that."""


@dataclass(frozen=True)
class SaveWay:
    """How a profile's program is asked to save."""

    signal: str = TERM
    """One of `SIGNALS`."""
    file: str = ""
    """Made when a save is asked for; "": none. With it SIGTERM does not ask, it ends."""

    @property
    def ends_itself(self) -> bool:
        """The program ends when it has saved."""
        return self.signal == TERM and not self.file

    def end_after(self, notice_seconds: float) -> Optional[float]:
        """After so many seconds without a save it is told to end all the same; None: it needs not be told.

        Args:
            notice_seconds: from the request to SIGKILL.
        """
        return None if self.ends_itself else notice_seconds - min(END_SECONDS, notice_seconds * END_SHARE)


@dataclass(frozen=True)
class SaveSeen:
    """The save that was asked for is complete."""

    why: str


@dataclass(frozen=True)
class EndRanks:
    """SIGTERM to ranks that have saved and go on, or were given the time to."""

    why: str


@dataclass(frozen=True)
class Asked:
    """A save that was asked for, and what was heard of it since."""

    at: float
    """Unix time in seconds."""
    step: Optional[int]
    """The last one that this pod's ranks had reported by then; None: they report none."""
    begun: Mapping[int, str]
    """Ranks that are in a save which they began since, with the line that said so."""
    said: str = ""
    """The line that told of a save's end; "": none did."""
    seen: str = ""
    """What says that the save is complete; "": nothing does."""


def asked(at: float, step: Optional[int]) -> Asked:
    """A save was asked for, and nothing was heard of it yet."""
    return Asked(at, step, {})


def hear(known: Asked, report: Any) -> Asked:
    """What is known after a report of this pod's ranks or of its prover."""
    if isinstance(report, CheckpointSeen):
        return _checkpoint(known, report)
    return _phase(known, report) if isinstance(report, PhaseSeen) else known


def _phase(known: Asked, report: PhaseSeen) -> Asked:
    """The end of a save that was begun since, said in words, once no rank of this pod is in one any more."""
    if report.phase == "checkpoint":
        # One that began before may hold an older step.
        return replace(known, begun={**known.begun, report.rank: report.detail}) if report.at >= known.at else known
    if report.rank not in known.begun:
        return known
    line = known.begun[report.rank]
    begun = {rank: said for rank, said in known.begun.items() if rank != report.rank}
    # A program that speaks our lines tells begin and end without more words; of one whose own line only began the save
    # the next step may as well come while it is being written.
    ended = (bool(report.detail) or not line) and not may_be_copied_only(report.detail or line)
    said = (report.detail or f"rank {report.rank} says so") if ended else known.said
    return replace(known, begun=begun, said=said, seen=known.seen or ("" if begun else said))


def _checkpoint(known: Asked, report: CheckpointSeen) -> Asked:
    """A complete one that holds what was trained when the save was asked for."""
    if known.seen or report.written_at is None or report.verdict == "fail":
        return known
    holds = report.written_at > known.at if known.step is None else report.step >= known.step
    return replace(known, seen=f"{report.path} is complete, step {report.step}") if holds else known
