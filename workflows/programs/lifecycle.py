"""How the ranks of one pod live and end, decided without touching anything: (state, event, now) -> (state, actions).

```
joining --Ready--> running --all ended with 0--> done
                   running --a rank fails------> ending (KILL: survivors stuck in a broken exchange cannot save)
                   running --SIGTERM, stop+save-> saving (TERM, then KILL when the grace is over) --> done
joining, running --stop without saving---------> ending
```
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, NamedTuple, Optional, Tuple, Union

from workflows.reports import RankEnd


@dataclass(frozen=True)
class Ready:
    """The gang is complete: ranks may start."""

    ranks: FrozenSet[int]


@dataclass(frozen=True)
class Ended:
    """Ranks were found ended, all in one look: nobody knows which of them was first."""

    ends: Tuple[RankEnd, ...]


@dataclass(frozen=True)
class Told:
    """The coordinator ordered a stop."""

    why: str
    save: bool


@dataclass(frozen=True)
class Signalled:
    """SIGTERM or SIGINT reached the launcher."""

    name: str


@dataclass(frozen=True)
class Broken:
    """The launcher itself cannot go on."""

    why: str


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = Union[Ready, Ended, Told, Signalled, Broken, Tick]


@dataclass(frozen=True)
class StartRanks:
    """Start the ranks of this pod."""


@dataclass(frozen=True)
class AskToSave:
    """SIGTERM to the ranks."""


@dataclass(frozen=True)
class KillRanks:
    """SIGKILL to the ranks and all they started."""


@dataclass(frozen=True)
class ReportStop:
    """Tell the coordinator that this pod is on its way out, so that the whole gang saves together."""

    why: str


Action = Union[StartRanks, AskToSave, KillRanks, ReportStop]


@dataclass(frozen=True)
class State:
    """Where a pod's ranks are."""

    grace_seconds: float
    """Between SIGTERM to the ranks and SIGKILL."""
    stage: str = "joining"
    """`joining`, `running`, `saving`, `ending`, `done`."""
    alive: FrozenSet[int] = frozenset()
    ends: Tuple[RankEnd, ...] = ()
    reason: str = ""
    """Of `Termination`; "" while nothing speaks for an end."""
    detail: str = ""
    first_failing: Optional[int] = None
    kill_at: Optional[float] = None
    """Monotonic seconds; None: no deadline."""


class Next(NamedTuple):
    """What follows from an event."""

    state: State
    actions: Tuple[Action, ...] = ()


def advance(state: State, event: Event, now: float) -> Next:
    """The next state and what to do.

    Args:
        state: as it was.
        event: what happened.
        now: monotonic time in seconds.
    """
    if isinstance(event, Ready) or state.stage == "done":
        return _ready(state, event)
    if isinstance(event, Ended):
        return _ended(state, event)
    if isinstance(event, Broken):
        return _stop(state, "launcher-error", event.why)
    if isinstance(event, Told):
        return _told(state, event, now)
    return _signalled(state, event, now) if isinstance(event, Signalled) else _tick(state, now)


def failed(end: RankEnd) -> bool:
    """Whether a rank ended wrongly by itself."""
    return not end.requested and (end.signal is not None or end.exit_code != 0)


def _ready(state: State, event: Event) -> Next:
    if state.stage != "joining" or not isinstance(event, Ready):
        return Next(state)
    return Next(replace(state, stage="running", alive=event.ranks), (StartRanks(),))


def _ended(state: State, event: Ended) -> Next:
    requested = state.stage in ("saving", "ending")
    # A process ends once: what is said of it a second time is not about it.
    ends = tuple(replace(end, requested=True) if requested else end for end in event.ends if end.rank in state.alive)
    state = replace(state, ends=(*state.ends, *ends), alive=state.alive - {end.rank for end in ends})
    culprits = sorted((end for end in ends if failed(end)), key=_blame)
    actions: Tuple[Action, ...] = ()
    if culprits and state.first_failing is None:
        first = culprits[0]
        state = replace(
            state, stage="ending", reason="rank-failed", first_failing=first.rank, detail=describe(first), kill_at=None
        )
        actions = (KillRanks(),) if state.alive else ()
    if not state.alive:
        state = replace(state, stage="done", reason=state.reason or "completed")
    return Next(state, actions)


def _blame(end: RankEnd) -> Tuple[bool, int]:
    """Of ranks found ended together, one that was killed came before those that noticed it and raised."""
    return (end.signal is None, end.rank)


def describe(end: RankEnd) -> str:
    """One sentence on how a rank ended."""
    how = f"was killed by signal {end.signal}" if end.signal is not None else f"exited with {end.exit_code}"
    return f"rank {end.rank} {how}" + (f" after step {end.last_step}" if end.last_step is not None else "")


def _told(state: State, event: Told, now: float) -> Next:
    if event.save and state.stage == "running":
        return _save(state, "told-to-stop", event.why, now)
    if event.save and state.stage == "saving":
        return Next(state)
    return _stop(state, "told-to-stop", event.why)


def _signalled(state: State, event: Signalled, now: float) -> Next:
    if state.stage == "running":
        saving = _save(state, "signalled", f"{event.name} reached the launcher", now)
        return Next(saving.state, (*saving.actions, ReportStop(saving.state.detail)))
    if state.stage == "saving" and state.reason == "told-to-stop":
        # The pod's end follows the coordinator's stop as a rule: the ranks keep the time they were given.
        return Next(replace(state, reason="signalled", detail=f"{state.detail}; {event.name} reached the launcher"))
    return _stop(state, "signalled", f"{event.name} reached the launcher")


def _save(state: State, reason: str, why: str, now: float) -> Next:
    kill_at = now + state.grace_seconds
    return Next(replace(state, stage="saving", reason=reason, detail=why, kill_at=kill_at), (AskToSave(),))


def _stop(state: State, reason: str, why: str) -> Next:
    reason, why = (state.reason, state.detail) if state.reason else (reason, why)
    if not state.alive:
        return Next(replace(state, stage="done", reason=reason, detail=why, kill_at=None))
    return Next(replace(state, stage="ending", reason=reason, detail=why, kill_at=None), (KillRanks(),))


def _tick(state: State, now: float) -> Next:
    if state.stage == "saving" and state.kill_at is not None and now >= state.kill_at:
        why = f"{state.detail}; {len(state.alive)} ranks had not ended after {state.grace_seconds:g} s and were killed"
        return Next(replace(state, stage="ending", detail=why, kill_at=None), (KillRanks(),))
    return Next(state)
