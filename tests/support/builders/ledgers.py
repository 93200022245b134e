"""Drivers and records for tests of the ledger."""

from __future__ import annotations

from typing import Any

from profiles.vocabulary import KnownBy, Mode, RunState
from tasks.ledger.ledger import Ledger
from workflows.model.records import Actor, AttemptRecord, Driver, IncidentRecord, RunRecord

HERE = Driver("host-a", 100, 7.0)
THERE = Driver("host-b", 200, 9.0)


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def nobody_knows(driver: Driver) -> bool | None:
    return None


def everyone_died(driver: Driver) -> bool | None:
    return False


def a_person(name: str = "ada@desk") -> Actor:
    """Somebody who sits before a machine."""
    return Actor(name, KnownBy.OS_USER)


def a_run(name: str = "demo", **more: Any) -> RunRecord:
    given: dict[str, Any] = {
        "name": name,
        "state": RunState.PENDING,
        "why": "submitted",
        "profile": "demo",
        "resolved": {"run": {"steps": 300}},
        "digest": "d1",
        "cluster": "local",
        "mode": Mode.ACT,
        "created_at": 1000.0,
    }
    return RunRecord(**given | more)


def an_attempt(number: int = 1, run: str = "demo", **more: Any) -> AttemptRecord:
    return AttemptRecord(run, number, 1001.0, "first", **more)


def an_incident(number: int = 1, run: str = "demo", **more: Any) -> IncidentRecord:
    return IncidentRecord(f"{run}-a1-i{number}", run, 1, 1002.0, 1002.5 + number, "pod-failed", **more)


def driven(ledger: Ledger, name: str = "demo") -> int:
    """Open the run and become its driver; returns the fencing number."""
    ledger.open_run(a_run(name))
    return ledger.acquire(name, HERE, 1000.0, nobody_knows).fencing
