"""Two things about incidents: the fingerprint of the fact behind one, and incidents that ask for no action. Pure.

The fingerprint is the same whichever process sees the fact, so that one fact makes one incident. What a coordinator
reports beside hangs (jumps, slow ranks) becomes an incident that carries its own evidence and is decided as `none`.
What the same signs lead to later (a NaN loss, waiting that has cost as much as leaving) is another incident.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from profiles.vocabulary import Action, FaultClass
from workflows.model.attempt import LIVING, Signal
from workflows.model.gang_status import GangNews
from workflows.model.records import LASTING, AttemptRecord, IncidentRecord, Story, Told
from workflows.status import Jump, Slower, Straggler
from workflows.wire import ResumeChoice

END = "end"
"""An attempt ends once: whoever sees a pod fail, its JobSet fail or its pods gone sees the same."""

LEFT_ALONE = "Training continues; no action was taken"
WORDS = {"loss": "the loss", "gradient_norm": "the norm of gradients"}
_CLASSES: dict[Told, tuple[FaultClass, float, str]] = {
    Told.LOSS_JUMP: (FaultClass.NUMERIC, 0.7, "a loss that is no number"),
    Told.GRADIENT_NORM_JUMP: (FaultClass.NUMERIC, 0.7, "a loss that is no number"),
    Told.GRADIENT_NORM_NOT_FINITE: (FaultClass.NUMERIC, 0.7, "a loss that is no number"),
    Told.SLOW_RANK: (
        FaultClass.STRAGGLER,
        0.9,
        "waiting for it that has cost as much as a new attempt, where the profile lets a gang leave",
    ),
    Told.NO_CHECKPOINT: (FaultClass.CONFIG, 0.9, "a checkpoint that is recognised and whole"),
    Told.PUT_ASIDE: (FaultClass.CHECKPOINT_CORRUPT, 0.9, "a program that is told which checkpoint to open"),
    Told.SLOW_GANG: (FaultClass.STRAGGLER, 0.6, "one rank that is slower than the others"),
}
"""Class, how surely, and what would have changed the decision."""


def fact_of(
    run: str,
    attempt: int,
    signal: str,
    *,
    incarnation: int | None = None,
    number: int | None = None,
    who: tuple[str, int | None] | None = None,
    step: int | None = None,
) -> str:
    """The name of a fact: SHA-256 over what belongs to it, and nothing that depends on the observer or the time.

    Args:
        run: its name.
        attempt: of the run.
        signal: what was seen; every signal that ends an attempt counts as its end.
        incarnation: of the ranks, where the same may happen once in each.
        number: of a restart in place within the attempt: replica groups have incarnations of their own. Of anything
            else: how often the same was over by itself before.
        who: node and rank that it is about; None: nobody belongs to it.
        step: where the same at another step is another fact.
    """
    ends = signal in tuple(Signal) and signal not in (*LIVING, Signal.RANK_FAILED)
    parts = [run, attempt, END if ends else str(signal), incarnation, number, who, step]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def spell_of(story: Story, attempt: int, signal: Signal) -> int | None:
    """How often the same was over by itself before in this attempt, `number` of its fact; None: it never was."""
    before = [one for one in story.incidents if one.attempt == attempt and one.signal == signal and one.settled_itself]
    return len(before) or None


def ended_by(story: Story, attempt: int) -> list[IncidentRecord]:
    """Incidents of an attempt but for those that it lived on after."""
    return [item for item in story.incidents if item.attempt == attempt and not item.went_on]


def notes_of(attempt: AttemptRecord, news: GangNews, now: float) -> tuple[IncidentRecord, ...]:
    """An incident for each thing in the news, in the order of their steps where those are known."""
    found = [_of_jump(attempt, jump, now) for jump in news.jumps if _is_told(jump)]
    found += [_of_straggler(attempt, one, now) for one in news.stragglers or ()]
    if news.unrecognised:
        seen = f"nothing that was saved can be resumed from: {news.unrecognised}"
        found.append(_note(attempt, Told.NO_CHECKPOINT, seen, now, _About(None)))
    found += [] if news.slower is None else [_of_slower(attempt, news.slower, now)]
    return tuple(found)


def note_of_put_aside(attempt: AttemptRecord, choice: ResumeChoice, now: float) -> IncidentRecord | None:
    """The note on checkpoints that were put aside before the attempt's ranks started; None: none were."""
    if not choice.put_aside:
        return None
    seen = f"put aside, since the program looks for its newest checkpoint by itself: {'; '.join(choice.put_aside)}"
    taken = "from the beginning" if choice.resume_step is None else f"from step {choice.resume_step}"
    found = _note(attempt, Told.PUT_ASIDE, seen, now, _About(choice.resume_step))
    return replace(found, why=f"{seen}. Training begins {taken}. Next: primus checkpoints {attempt.run}")


def well_again(
    known: Sequence[IncidentRecord], news: GangNews, notes: Sequence[IncidentRecord]
) -> list[IncidentRecord]:
    """Known lasting conditions that the coordinator no longer reports while it is heard.

    `notes`: those of what its coordinator says now.
    """
    heard = LASTING if news.stragglers is not None else LASTING & {Told.NO_CHECKPOINT}
    heard -= {Told.NO_CHECKPOINT} if news.unrecognised is None else set()
    still = {subject_of(item) for item in notes}
    return [item for item in known if item.signal in heard and item.over_at is None and subject_of(item) not in still]


def subject_of(note: IncidentRecord) -> tuple[object, ...]:
    """What a note is about: of what lasts, the rank or the gang, whenever it began; of a moment, the moment itself."""
    return (note.signal, note.culprits) if note.signal in LASTING else (note.fact,)


def _is_told(jump: Jump) -> bool:
    """A loss that is no number ends the attempt: that is an incident of its own."""
    return jump.what in WORDS and not (jump.what == "loss" and isinstance(jump.value, str))


def _of_jump(attempt: AttemptRecord, jump: Jump, now: float) -> IncidentRecord:
    name = WORDS[jump.what]
    if isinstance(jump.value, str):
        signal, seen = Told.GRADIENT_NORM_NOT_FINITE, f"{name} is {jump.value} at step {jump.step}"
        seen += "" if jump.before is None else f"; it was {jump.before:.4g}"
    else:
        signal = Told.LOSS_JUMP if jump.what == "loss" else Told.GRADIENT_NORM_JUMP
        seen = f"{name} is {jump.value:.4g} at step {jump.step}"
        seen += (
            "" if not jump.before else f", {jump.value / jump.before:.3g} times its recent median of {jump.before:.4g}"
        )
    return _note(attempt, signal, seen, now, _About(jump.step, incarnation=jump.incarnation))


def _of_straggler(attempt: AttemptRecord, one: Straggler, now: float) -> IncidentRecord:
    since = "" if one.since_step is None else f" since step {one.since_step}"
    where = f" on {one.node}" if one.node else ""
    seen = f"rank {one.rank}{where} takes {one.ratio:.2f} times as long as its peers{since}"
    found = _note(attempt, Told.SLOW_RANK, seen, now, _About(one.since_step, who=(one.node, one.rank)))
    return replace(found, culprits=((one.node, one.rank),))


def _of_slower(attempt: AttemptRecord, slower: Slower, now: float) -> IncidentRecord:
    seen = all_ranks_slower(slower.ratio, slower.since_step)
    return _note(attempt, Told.SLOW_GANG, seen, now, _About(slower.since_step))


def all_ranks_slower(ratio: float, since_step: int | None) -> str:
    """The sentence about a gang in which every rank is slower than before."""
    since = "" if since_step is None else f" since step {since_step}"
    return f"all ranks are slower{since}: a step takes {ratio:.2f} times as long as before; no single rank is the cause"


class _About(NamedTuple):
    """What belongs to the fact, beside the attempt and the signal."""

    step: int | None
    incarnation: int | None = None
    who: tuple[str, int | None] | None = None


def _note(attempt: AttemptRecord, signal: Told, seen: str, now: float, about: _About) -> IncidentRecord:
    fault_class, confidence, would_change = _CLASSES[signal]
    run, number = attempt.run, attempt.number
    return IncidentRecord(
        id=f"{run}-a{number}-n1",
        run=run,
        attempt=number,
        at=now,
        detected_at=now,
        signal=signal,
        fault_class=fault_class,
        confidence=confidence,
        step=about.step,
        evidence=(seen,),
        action=Action.NONE,
        why=f"{seen}. {LEFT_ALONE}. Next: primus why {run}",
        would_change=would_change,
        fact=fact_of(run, number, signal, **about._asdict()),
    )
