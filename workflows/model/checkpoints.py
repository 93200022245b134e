"""What holds about a run's checkpoints: of all findings about each one the last. Every reader asks here. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from profiles.vocabulary import VerdictWord
from workflows.model.records import AttemptRecord, CheckpointRecord
from workflows.wire import REMOVED, ResumeChoice


def standing(findings: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """The last finding about each checkpoint, by step and time; one that was removed stands no more.

    A path names several where a program overwrites one file: there the step tells them apart.
    """
    last = {(item.path, item.tier, item.step): item for item in sorted(findings, key=lambda item: item.at)}
    there = (item for item in last.values() if item.format != REMOVED)
    return sorted(there, key=lambda item: (item.step, item.at))


def removed(findings: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """Those that nobody needed and that were deleted while the run lived, by step."""
    return sorted((item for item in findings if item.format == REMOVED), key=lambda item: (item.step, item.at))


def seen(findings: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """When which checkpoint was found, whether it is still there or not."""
    return [item for item in findings if item.format != REMOVED]


def durable_step(findings: Iterable[CheckpointRecord]) -> int | None:
    """Step of the newest checkpoint that is proven, as far as the last findings say."""
    return max((item.step for item in standing(findings) if item.verdict is VerdictWord.PASS), default=None)


def forbidden(
    attempts: Iterable[AttemptRecord], paths: Iterable[tuple[int, str]]
) -> tuple[int | None, tuple[str, ...]]:
    """What earlier roll-backs still forbid to a resume: later steps (None: nothing), and these paths.

    `paths`: (step, path) of known checkpoints.
    """
    limit: int | None = None
    excluded: set[str] = set()
    step_of = {path: step for step, path in paths}
    for attempt in attempts:
        if attempt.max_resume_step is not None:
            limit = attempt.max_resume_step if limit is None else min(limit, attempt.max_resume_step)
        excluded |= set(attempt.excluded_checkpoints)
        if attempt.last_step is not None:
            last = attempt.last_step
            limit = None if limit is None else max(limit, last)
            redone = attempt.resumed_from_step or 0
            excluded -= {path for path in excluded if redone < step_of.get(path, last + 1) <= last}
    return limit, tuple(sorted(excluded))


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
