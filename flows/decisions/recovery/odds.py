"""What a retry is worth: how often one succeeds by class, what it costs when it does not, and what giving up costs.

Giving up wrongly costs without bound: somebody must notice, and the machines stand idle until then. Retrying wrongly
costs one attempt, and the rule of no progress is the backstop. So the odds of a retry must be low before a run is given
up on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.policy import POLICY
from profiles.vocabulary import Action, FaultClass
from workflows.model.records import TOLD, IncidentRecord

F = FaultClass

FUTILE = 0.2
"""Below this chance of success a run is given up on where its class says so."""
RESTART_SECONDS = 120.0
"""What a restart takes where none was measured yet; DLRover and HyperPod report 1 to 2 minutes."""


@dataclass(frozen=True)
class Tally:
    """What became of the retries after failures of one class."""

    retries: int = 0
    successes: int = 0


@dataclass(frozen=True)
class Odds:
    """What a new attempt promises."""

    success: float
    """Probability that the run goes on beyond where it failed."""
    cost_gpu_seconds: float
    """What is lost if it does not: the restart, and the way back to the failure."""
    tally: Tally
    """What the ledger knows of this class."""

    @property
    def words(self) -> str:
        """For people: `a retry succeeds in 76 % (5 of 6 here), costs 960 GPU-seconds if not`."""
        known = f" ({self.tally.successes} of {self.tally.retries} here)" if self.tally.retries else ""
        return f"a retry succeeds in {self.success:.0%}{known}, costs {self.cost_gpu_seconds:,.0f} GPU-seconds if not"


def chance(fault_class: FaultClass, tally: Tally) -> float:
    """Probability that a retry succeeds: the prior, updated by what the ledger saw (mean of a beta distribution)."""
    share, worth = POLICY[fault_class].prior
    return (share * worth + tally.successes) / (worth + tally.retries)


def odds(
    fault_class: FaultClass,
    confidence: float,
    alternatives: Sequence[tuple[FaultClass, float]],
    tallies: Mapping[FaultClass, Tally],
    gpus: int,
    restart_seconds: float | None,
    redo_seconds: float,
) -> Odds:
    """What a retry promises, over everything the failure may be.

    `alternatives`: other classes with their shares; what is left to 1 counts as `unknown`. `gpus`: of the whole gang.
    `restart_seconds`: measured from detection to the next first step; None: not measured yet. `redo_seconds`: training
    time between the checkpoint and the failure.
    """
    shares = {fault_class: confidence}
    for kind, share in alternatives:
        if kind is not fault_class:
            shares[kind] = shares.get(kind, 0.0) + min(share, max(0.0, 1.0 - sum(shares.values())))
    shares[F.UNKNOWN] = shares.get(F.UNKNOWN, 0.0) + max(0.0, 1.0 - sum(shares.values()))
    success = sum(share * chance(kind, tallies.get(kind, Tally())) for kind, share in shares.items())
    took = RESTART_SECONDS if restart_seconds is None else restart_seconds
    return Odds(min(1.0, success), gpus * (took + redo_seconds), tallies.get(fault_class, Tally()))


def tallies(incidents: Sequence[IncidentRecord]) -> dict[FaultClass, Tally]:
    """What became of every decided retry in the ledger, by class.

    A retry succeeded when the run trained again and did not fail the same way at the same step. The newest incident of
    a run that has not trained again yet says nothing.
    """
    found: dict[FaultClass, Tally] = {}
    runs: dict[str, list[IncidentRecord]] = {}
    for item in sorted((item for item in incidents if item.signal not in TOLD), key=lambda item: item.detected_at):
        runs.setdefault(item.run, []).append(item)
    for listed in runs.values():
        for item, later in zip(listed, [*listed[1:], None], strict=True):
            succeeded = _succeeded(item, later)
            if succeeded is not None and item.fault_class is not None:
                known = found.get(item.fault_class, Tally())
                found[item.fault_class] = Tally(known.retries + 1, known.successes + succeeded)
    return found


def _succeeded(item: IncidentRecord, later: IncidentRecord | None) -> bool | None:
    if item.action not in (Action.NEW_ATTEMPT, Action.ROLL_BACK, Action.RESTART_IN_PLACE):
        return None
    if item.resumed_at is None:
        return None if later is None else False
    again = later is not None and later.fingerprint == item.fingerprint != "" and later.step == item.step
    return not again


def restart_seconds(incidents: Sequence[IncidentRecord]) -> float | None:
    """Median seconds from the detection of an incident to the next attempt's first step; None: none was measured."""
    taken = sorted(
        item.resumed_at - item.detected_at for item in incidents if item.resumed_at is not None and not item.went_on
    )
    return taken[len(taken) // 2] if taken else None
