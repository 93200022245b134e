"""What a run of a campaign hands on: figures, violations, and the story where something is wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from profiles.vocabulary import Action
from tests.campaign.judge import Violation, judge
from tests.campaign.plan import RunPlan
from tests.campaign.seen import Seen


@dataclass(frozen=True)
class StrikeOutcome:
    """What came of one strike."""

    label: str
    kinds: tuple[str, ...]
    """Of its faults, in order."""
    actions: tuple[str, ...] = ()
    """What was decided; none: it was not noticed."""
    seconds: float | None = None
    """From the first fault to the first step after the checkpoint's step, the last time; None: nothing was resumed."""


@dataclass(frozen=True)
class RunOutcome:
    """What came of one run."""

    number: int
    in_place: bool
    strikes: tuple[StrikeOutcome, ...] = ()
    violations: tuple[Violation, ...] = ()
    weights: str = ""
    """Digest of the last weights; "": the run did not reach its goal."""
    seconds: float = 0.0
    """That playing it took."""
    told: str = ""
    """The whole story, where something is wrong."""

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return asdict(self)

    @property
    def restarts_in_place(self) -> int:
        """How often ranks began again in their pods."""
        return sum(strike.actions.count(Action.RESTART_IN_PLACE) for strike in self.strikes)


def from_json(document: dict[str, Any]) -> RunOutcome:
    """The outcome that `to_json` wrote."""
    values = dict(document)
    values["strikes"] = tuple(
        StrikeOutcome(one["label"], tuple(one["kinds"]), tuple(one["actions"]), one["seconds"])
        for one in document["strikes"]
    )
    values["violations"] = tuple(Violation(**one) for one in document["violations"])
    return RunOutcome(**values)


def outcome_of(seen: Seen) -> RunOutcome:
    """Judge a run, all but its weights."""
    return RunOutcome(
        seen.plan.number,
        seen.plan.in_place,
        tuple(_strike(seen, place) for place in range(len(seen.plan.strikes))),
        tuple(judge(seen)),
        seen.weights,
    )


def unplayed(plan: RunPlan, why: str, seconds: float = 0.0, told: str = "") -> RunOutcome:
    """Of a run that could not be played, or of whose player nothing was heard."""
    strikes = tuple(
        StrikeOutcome(strike.label, tuple(fault.kind for fault in strike.faults)) for strike in plan.strikes
    )
    return RunOutcome(plan.number, plan.in_place, strikes, (Violation("played", why),), "", seconds, told)


def _strike(seen: Seen, place: int) -> StrikeOutcome:
    strike, found = seen.plan.strikes[place], seen.incidents_of(place)
    resumed = [item.resumed_at for item in found if item.resumed_at is not None]
    first = next((hit.at for hit in seen.hits if hit.strike == place), None)
    return StrikeOutcome(
        strike.label,
        tuple(fault.kind for fault in strike.faults),
        tuple(str(item.action) for item in found),
        max(resumed) - first if resumed and first is not None else None,
    )
