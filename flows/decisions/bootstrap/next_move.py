"""What a bootstrap does next: which steps hold, which are carried out now, and when it must stop.

The answer follows from the plan, from what the proofs say now and from what the ledger remembers, and from nothing
else: whoever is killed at any line asks again and goes on. A step whose proof holds is never carried out, whoever did
it. A step of which nobody could tell whether it holds is carried out only where its host could be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.text import first_names
from profiles.vocabulary import VerdictWord
from workflows.model.bootstrap import Stage, Step, StepOutcome, StepProof, StepProofs, StepRecord

MOST_TRIES = 2
"""Of one step in one command: what fails twice in a row wants a person."""
NOT_LOOKED_AT = StepProof(VerdictWord.UNKNOWN, "it was not looked at")
SHOWN = 6


@dataclass(frozen=True)
class CarryOutSteps:
    """These are carried out now, side by side."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Halt:
    """Nothing more can be done by itself."""

    failed: Mapping[str, str]
    """Id of each step that does not hold and was tried -> what its proof saw."""
    unknown: Mapping[str, str]
    """Id of each step of which nobody can tell -> why."""
    waiting: tuple[str, ...]
    """Ids of steps that wait for those."""

    @property
    def why(self) -> str:
        """Everything in one line."""
        parts = [
            f"{word}: {_listed(items)}" for word, items in (("failed", self.failed), ("unknown", self.unknown)) if items
        ]
        if self.waiting:
            number = len(self.waiting)
            parts.append(f"{number} further {'step waits' if number == 1 else 'steps wait'} for that")
        return "; ".join(parts)


@dataclass(frozen=True)
class Proven:
    """Every step holds."""


NextMove = CarryOutSteps | Halt | Proven


def next_steps(
    plan: Sequence[Step], proofs: StepProofs, records: Mapping[str, StepRecord], since: float, at_once: int
) -> NextMove:
    """The next move of this plan.

    Args:
        plan: every step, in an order in which each stands behind those it comes after.
        proofs: what was seen of each just now.
        records: what the ledger remembers, by id.
        since: Unix seconds at which this command began; tries before it do not count.
        at_once: so many steps are carried out side by side at most.
    """
    open_steps = [step for step in plan if not holds(proofs, step.id)]
    if not open_steps:
        return Proven()
    turns = turns_now(open_steps)
    ready = [
        step
        for step in open_steps
        if step.turn in (0, turns.get(step.stage))
        if all(holds(proofs, before) for before in step.after)
    ]
    able = [step for step in ready if may_be_tried(step, proofs, records, since)]
    if able and able[0].stage is Stage.COMPONENTS:
        return CarryOutSteps(with_followers(able, open_steps, proofs))
    if able:
        return CarryOutSteps(side_by_side(able, at_once))
    tried = {step.id: _said(proofs, step) for step in ready}
    unknown = {name: proof.why for name, proof in tried.items() if proof.word is VerdictWord.UNKNOWN}
    failed = {name: proof.why for name, proof in tried.items() if name not in unknown}
    return Halt(failed, unknown, tuple(step.id for step in open_steps if step.id not in tried))


def turns_now(open_steps: Iterable[Step]) -> dict[Stage, int]:
    """Whose turn it is in each stage: the earliest one of which anything does not hold."""
    found: dict[Stage, int] = {}
    for step in open_steps:
        if step.turn:
            found[step.stage] = min(step.turn, found.get(step.stage, step.turn))
    return found


def holds(proofs: StepProofs, name: str) -> bool:
    """Whether the proof of a step holds now."""
    return name in proofs and proofs[name].word is VerdictWord.PASS


def may_be_tried(step: Step, proofs: StepProofs, records: Mapping[str, StepRecord], since: float) -> bool:
    """Whether a step that does not hold is carried out: not where its host is silent, nor a third time in a row.

    Pre-checks are never carried out: they only tell.
    """
    unseen = _said(proofs, step).word is VerdictWord.UNKNOWN
    if step.stage is Stage.PRECHECKS or (unseen and step.stage is not Stage.COMPONENTS):
        return False  # of a component that nobody asked to serve lately nothing else tells
    record = records.get(step.id)
    ours = record is not None and record.began_at >= since and record.wanted == step.wanted
    return record is None or not ours or record.tries < MOST_TRIES


def side_by_side(able: Sequence[Step], at_once: int) -> tuple[Step, ...]:
    """Which of these are carried out together: those of the earliest stage, or the first one that wants to be alone.

    A group goes together, however many it has: one act carries out all of it.
    """
    first = able[0]
    if first.alone:
        return (first,)
    if first.group:
        return tuple(step for step in able if step.group == first.group)
    together = [step for step in able if step.stage is first.stage and not step.alone]
    # One preflight tests all of them: it has limits of its own, and nodes are measured with each other.
    return tuple(together if first.stage is Stage.ADMISSION else together[:at_once])


def with_followers(able: Sequence[Step], open_steps: Sequence[Step], proofs: StepProofs) -> tuple[Step, ...]:
    """All components that can come now, with those that only wait for them: one workflow knows their order."""
    group = {step.id: step for step in able if step.stage is Stage.COMPONENTS}
    for step in open_steps:  # each stands behind those that it comes after
        if step.stage is Stage.COMPONENTS and all(name in group or holds(proofs, name) for name in step.after):
            group.setdefault(step.id, step)
    return tuple(group.values())


def _said(proofs: StepProofs, step: Step) -> StepProof:
    return proofs.get(step.id, NOT_LOOKED_AT)


def _listed(items: Mapping[str, str]) -> str:
    """Their names; of a single one why, too."""
    if len(items) == 1:
        [(name, why)] = items.items()
        return f"{name} ({why})"
    return first_names(list(items), SHOWN)


def table_of(plan: Iterable[Step], proofs: StepProofs, records: Mapping[str, StepRecord]) -> dict[str, dict[str, str]]:
    """Hosts x stages: subject -> stage -> `pass`, `fail`, `unknown` or `not yet`.

    `not yet`: it does not hold and was never begun.
    """
    found: dict[str, dict[str, str]] = {}
    for step in plan:
        word = _said(proofs, step).word
        never = word is VerdictWord.FAIL and step.id not in records and step.stage is not Stage.PRECHECKS
        found.setdefault(step.subject, {})[step.stage.value] = "not yet" if never else word.value
    return found


def step_outcomes(
    plan: Iterable[Step], proofs: StepProofs, records: Mapping[str, StepRecord], since: float
) -> tuple[StepOutcome, ...]:
    """Every step with what its proof says, and how long it took where this command (`since`) carried it out."""
    found: list[StepOutcome] = []
    for step in plan:
        record, proof = records.get(step.id), _said(proofs, step)
        ours = record is not None and record.tries > 0 and record.began_at >= since and record.ended_at is not None
        seconds = round(record.ended_at - record.began_at, 1) if ours and record and record.ended_at else None
        found.append(StepOutcome(step.id, step.summary, proof.word, proof.why, seconds))
    return tuple(found)
