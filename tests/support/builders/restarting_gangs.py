"""A gang as its coordinator knows it, for tests of restarts in place: pods of one rank each, which have met and run."""

from __future__ import annotations

import signal
from typing import Any

from workflows.programs.coordinator.reducer import advance
from workflows.programs.coordinator.state import (
    Event,
    LauncherJoined,
    Meeting,
    MeetingPublished,
    Member,
    ReportsReceived,
    State,
)
from workflows.wire import CheckpointSeen, RankEnd

LENT = 3
KILLED = {"signal": int(signal.SIGKILL)}
RAISED = {"exit_code": 1}


def joined(index: int, **more: Any) -> LauncherJoined:
    return LauncherJoined(1.0, Member("trainer", index, f"pod-{index}", f"node-{index}", **more))


def told(index: int, sequence: int, *reports: Any, **more: Any) -> ReportsReceived:
    return ReportsReceived(10.0 + sequence, ("trainer", index), sequence, reports, **more)


def end(rank: int, incarnation: int = 1, **how: Any) -> RankEnd:
    return RankEnd(rank=rank, local_rank=0, at=1.0, incarnation=incarnation, **how)


def after(state: State, *events: Event) -> State:
    for event in events:
        state = advance(state, event).state
    return state


def gang(*events: Event, pods: int = 2, lent: int = LENT, **began: Any) -> State:
    """Pods of one rank each, which have met and run."""
    members = [joined(index, **(began if index == 0 else {})) for index in range(pods)]
    running = [told(index, 1, state="running", pids={str(index): 100 + index}) for index in range(pods)]
    met = MeetingPublished(2.0, "trainer", Meeting(1, "127.0.0.5", 23456))
    return after(State("trainer", pods, 1, restarts_lent=lent), *members, met, *running, *events)


def saved(step: int, verdict: str = "pass", resume_from: str = "/c") -> CheckpointSeen:
    """A checkpoint that was looked at."""
    return CheckpointSeen(step, f"/c/{step}", 1.0, verdict, resume_from=resume_from and f"{resume_from}/{step}")
