"""What was found of a checkpoint, as the ledger keeps it. Times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import VerdictWord


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint that somebody looked at."""

    run: str
    step: int
    path: str
    attempt: int
    at: float
    verdict: VerdictWord
    why: str = ""
    bytes: int = 0
    format: str = ""
    tier: str = "durable"
