"""Which checkpoints the next attempt may take, and the proof that a resume did resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiles.run import CheckpointPolicy, RunProfile
from profiles.vocabulary import VerdictWord
from workflows.model.checkpoints import forbidden
from workflows.model.records import AttemptRecord


@dataclass(frozen=True)
class CheckpointRule:
    """What the next attempt may resume from."""

    max_step: int | None = None
    """No checkpoint newer than this; 0: from the beginning; None: no limit."""
    exclude: tuple[str, ...] = ()
    """Paths that must not be taken."""
    exhausted: bool = False
    """True where nothing older is left: rolling back is not possible."""
    why: str = ""


def tighter(first: CheckpointRule, second: CheckpointRule) -> CheckpointRule:
    """Both rules at once; the reason is the first one's."""
    limits = [rule.max_step for rule in (first, second) if rule.max_step is not None]
    exclude = tuple(sorted({*first.exclude, *second.exclude}))
    return CheckpointRule(min(limits, default=None), exclude, first.exhausted or second.exhausted, first.why)


def roll_back_before_nan(
    steps: Sequence[int], first_nan_step: int | None, back: int, earlier: Sequence[int] = ()
) -> CheckpointRule:
    """After NaN: some checkpoints before the first NaN, and further back with each repetition.

    `first_nan_step`: None where only the fact is known: then the newest checkpoint counts as poisoned. `back`: how many
    checkpoints to go back at first, at least 1. `earlier`: limits of earlier roll-backs for the same cause; the new one
    is older than all of them.
    """
    known = sorted(set(steps), reverse=True)
    limit = first_nan_step if first_nan_step is not None else (known[0] if known else 1)
    before = [step for step in known if step < min([limit, *earlier])]
    if before and earlier:
        return CheckpointRule(before[0], (), False, f"step {before[0]}, further back than the last roll-back")
    if before:
        target = before[min(back, len(before)) - 1]
        return CheckpointRule(
            target, (), False, f"step {target}, the newest that is {back} before the NaN of step {limit}"
        )
    if not known and not earlier:
        return CheckpointRule(0, (), False, "the beginning, since no checkpoint had been written")
    return CheckpointRule(None, (), True, f"no usable checkpoint is older than step {min([limit, *earlier])}")


def fall_back_past(steps: Sequence[tuple[int, str]], bad_path: str, bad_step: int | None) -> CheckpointRule:
    """After a checkpoint that could not be read: the next older one.

    `steps`: (step, path) of usable checkpoints; `bad_path` is "" where none was taken.
    """
    # One file that is overwritten in place is every step's path: there only the step tells them apart.
    older = [step for step, path in steps if (path != bad_path if bad_step is None else step < bad_step)]
    exclude = (bad_path,) if bad_path else ()
    if older:
        why = f"step {max(older)}, the next one older than {bad_path or 'the unreadable one'}"
        return CheckpointRule(max(older), exclude, False, why)
    return CheckpointRule(None, exclude, True, "no other usable checkpoint is known")


def lineage(attempts: Sequence[AttemptRecord], paths: Sequence[tuple[int, str]] = ()) -> CheckpointRule:
    """What earlier roll-backs still forbid: checkpoints of training that was thrown away and not yet done again.

    `paths`: (step, path) of known checkpoints.
    After a roll-back to step R, every checkpoint newer than what has been trained since belongs to the old lineage. An
    excluded path is free again once a later attempt trained past its step, which wrote it anew.
    """
    limit, excluded = forbidden(attempts, paths)
    return CheckpointRule(limit, excluded, False, "of the present lineage")


def resume_proof(attempt: AttemptRecord, run: RunProfile) -> VerdictWord | None:
    """Whether the attempt went on where its checkpoint was, however it ended; None: nothing was resumed, or no step."""
    every = run.progress.every_steps
    return prove_resume(attempt.resumed_from_step, attempt.first_step, run.checkpoint, every)[0]


_FIRST = {"next": 1, "same": 0}


def prove_resume(
    resume_step: int | None, first_step: int | None, policy: CheckpointPolicy, every_steps: int = 1
) -> tuple[VerdictWord | None, str]:
    """Did the first step follow the checkpoint? The verdict with its reason; None: there is nothing to prove (yet).

    A program that goes on from a later step than we expected has found a newer checkpoint: nothing is lost by that.

    `resume_step`: of the checkpoint that the attempt was given; None: it began anew. `first_step`: seen in the attempt;
    None: none yet. `every_steps`: the program reports only each so-many-th step.
    """
    expected = _FIRST.get(policy.first_step_after_resume)
    if resume_step is None:
        return None, "nothing was resumed"
    if first_step is None:
        return None, f"no step seen yet after the resume from step {resume_step}"
    if expected is None:
        return VerdictWord.UNKNOWN, "the profile says that the first step after a resume is not to be judged"
    wanted = resume_step + expected
    if wanted <= first_step < wanted + every_steps:
        return VerdictWord.PASS, f"resumed from step {resume_step}, first step {first_step}"
    if first_step > wanted:
        return VerdictWord.UNKNOWN, f"given step {resume_step}, went on later, at {first_step}: from a newer checkpoint"
    return VerdictWord.FAIL, f"resumed from step {resume_step}, but the first step is {first_step}, not {wanted}"
