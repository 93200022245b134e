"""When the next attempt is made ready while pods of the last one still end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.decisions.recovery.situation import overlaps
from profiles.vocabulary import Action, FaultClass
from workflows.model.attempt import Signal
from workflows.model.records import ActionRecord, IncidentRecord

LOST = IncidentRecord(
    id="r-a1-i1",
    run="r",
    attempt=1,
    at=100.0,
    detected_at=100.2,
    signal=Signal.NODE_NOT_READY,
    fault_class=FaultClass.NODE_LOST,
    lost_nodes=("node-1",),
)
KILLED = replace(LOST, signal=Signal.POD_FAILED, fault_class=FaultClass.PROCESS_KILLED, lost_nodes=())
AGAIN = ActionRecord("r-a1-i1-new-attempt", "r", "r-a1-i1", Action.NEW_ATTEMPT, "", "planned", "", 100.5)


@pytest.mark.parametrize(
    ("said", "incident", "action", "wait_until", "tests_first", "expected"),
    [
        ("a node that is proven lost", LOST, AGAIN, 100.5, False, True),
        ("a killed rank", KILLED, AGAIN, 100.5, False, True),
        ("a gang that failed", replace(KILLED, signal=Signal.ATTEMPT_FAILED), AGAIN, 100.5, False, True),
        ("a node that is only supposed to be lost", replace(LOST, lost_nodes=()), AGAIN, 100.5, False, False),
        (
            "a gang that saves within its notice",
            replace(LOST, fault_class=FaultClass.PREEMPTED),
            AGAIN,
            0.0,
            False,
            False,
        ),
        ("a gang that trains on with a bad loss", replace(KILLED, signal=Signal.NUMERIC), AGAIN, 100.5, False, False),
        ("pods that somebody deleted", replace(KILLED, signal=Signal.PODS_GONE), AGAIN, 100.5, False, False),
        ("a wait before the next attempt", LOST, AGAIN, 130.5, False, False),
        ("nodes that are tested first", LOST, AGAIN, 100.5, True, False),
        ("a roll-back", KILLED, replace(AGAIN, kind=Action.ROLL_BACK), 100.5, False, False),
        ("the end of the run", KILLED, replace(AGAIN, kind=Action.GIVE_UP), 100.5, False, False),
    ],
)
def test_only_a_broken_gang_with_nothing_left_to_save(
    said: str, incident: IncidentRecord, action: ActionRecord, wait_until: float, tests_first: bool, expected: bool
) -> None:
    assert overlaps(incident, action, wait_until, tests_first=tests_first) is expected, said


def test_every_other_signal_waits() -> None:
    for signal in Signal:
        found = overlaps(replace(KILLED, signal=signal), AGAIN, 0.0, tests_first=False)
        assert found is (signal in (Signal.NODE_NOT_READY, Signal.POD_FAILED, Signal.ATTEMPT_FAILED)), signal
