"""What holds about a run's checkpoints: of all findings about each one the last. Every reader asks here. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from profiles.vocabulary import VerdictWord
from workflows.model.records import CheckpointRecord
from workflows.wire import ResumeChoice


def standing(findings: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """The last finding about each checkpoint, by step and time.

    A path names several where a program overwrites one file: there the step tells them apart.
    """
    last = {(item.path, item.tier, item.step): item for item in sorted(findings, key=lambda item: item.at)}
    return sorted(last.values(), key=lambda item: (item.step, item.at))


def durable_step(findings: Iterable[CheckpointRecord]) -> int | None:
    """Step of the newest checkpoint that is proven, as far as the last findings say."""
    return max((item.step for item in standing(findings) if item.verdict is VerdictWord.PASS), default=None)


def corrections(
    run: str, attempt: int, at: float, choice: ResumeChoice, findings: Iterable[CheckpointRecord]
) -> list[CheckpointRecord]:
    """Findings about known checkpoints that the look before an attempt contradicts; what it has not read is none.

    `at`: Unix time in seconds of that look.
    """
    known = {(item.path, item.step): item for item in standing(findings)}
    found: list[CheckpointRecord] = []
    for state in choice.looked_at:
        before = known.get((state.path, state.step))
        if before is not None and before.verdict is VerdictWord.PASS and not state.complete:
            found.append(
                CheckpointRecord(
                    run, state.step, state.path, attempt, at, VerdictWord.FAIL, state.why, state.bytes, state.format
                )
            )
    return found
