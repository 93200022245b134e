"""What may come of a fault: the classes that an incident may have, whom it may name, whether it must be noticed."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import Action, FaultClass
from tests.campaign.cards import Fault
from tests.campaign.plan import Strike
from workflows.model.records import IncidentRecord, Told

F = FaultClass


@dataclass(frozen=True)
class Expected:
    """Of one kind of fault."""

    classes: frozenset[FaultClass] = frozenset()
    """Empty: nothing may be noticed, training is left alone."""
    must: bool = False
    """It must be noticed."""
    evicts: bool = False
    """The struck node may be taken out."""


def _loud(fault_class: FaultClass, *, evicts: bool = False) -> Expected:
    return Expected(frozenset({fault_class}), True, evicts)


QUIET = Expected()
EXPECTED: dict[str, Expected] = {
    "kill-rank": _loud(F.PROCESS_KILLED),
    "hang-rank": _loud(F.HANG),
    "slow-rank": Expected(frozenset({F.STRAGGLER})),
    "stop-rank": QUIET,
    "exception-rank": _loud(F.USER_CODE),
    "nan-rank": _loud(F.NUMERIC),
    "oom-rank": _loud(F.HOST_OOM),
    "lose-node": _loud(F.NODE_LOST, evicts=True),
    "preempt-node": _loud(F.PREEMPTED),
    "corrupt-checkpoint": Expected(frozenset({F.CHECKPOINT_CORRUPT})),
    "corrupt-all": _loud(F.CHECKPOINT_CORRUPT),
    "kill-coordinator": QUIET,
    "kill-launcher": _loud(F.PROCESS_KILLED),
    "kill-flow": QUIET,
    "disk-full": _loud(F.STORAGE),
    "api-away": QUIET,
    "ledger-away": QUIET,
}


NOISE = frozenset({Told.SLOW_RANK, Told.SLOW_GANG})
"""Runs of a campaign share two processors: ranks lag for a while without anybody's fault. Told, that harms nobody."""


def is_noise(item: IncidentRecord) -> bool:
    """Whether it may come at any time: only told, decided as nothing, and paid for by nobody."""
    return item.signal in NOISE and item.action is Action.NONE and not item.charged


def classes_of(strike: Strike) -> frozenset[FaultClass]:
    """Classes that an incident after the strike may have."""
    return frozenset[FaultClass]().union(*(EXPECTED[fault.kind].classes for fault in strike.faults))


def must_be_noticed(strike: Strike) -> bool:
    """Whether an incident must come of it. What is broken while the run recovers may hit what is no longer used."""
    return any(EXPECTED[fault.kind].must for fault in strike.faults if fault.moment != "recovering")


def may_evict(fault: Fault) -> bool:
    """Whether the struck node may be taken out."""
    return EXPECTED[fault.kind].evicts
