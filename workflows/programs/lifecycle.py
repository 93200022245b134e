"""How the ranks of one pod live and end, decided without touching anything: (state, event, now) -> (state, actions).

```
joining --Ready--> running --all ended with 0--> done
                   running --a rank fails------> ending (KILL: survivors stuck in a broken exchange cannot save)
                   running --SIGTERM, stop+save-> saving (TERM, then KILL when the grace is over) --> done
                                                         (asked in another way: TERM when the save was seen)
joining, running --stop without saving---------> ending
```
Where restarts in place are lent, a failed rank kills its pod's others and the pod waits for the coordinator's word:
```
running --a rank fails----------------> holding --no word in HOLD_SECONDS, stop, SIGTERM--> as above
running, holding --restart ordered----> restarting (KILL) --all ended--> joining, in the next incarnation
```
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import FrozenSet, NamedTuple, Optional, Tuple, Union

from workflows.programs.rank_ends import blame, describe, failed
from workflows.programs.save_way import EndRanks, SaveSeen, SaveWay
from workflows.reports import RankEnd

HOLD_SECONDS = 5.0
"""So long a pod with a failed rank waits for the coordinator's word; one that is started again needs a second."""
MEET_AGAIN_SECONDS = 30.0
"""So long a gang may take to meet again: its pods are all there, but the coordinator may be away."""
KILLING = ("ending", "holding", "restarting")
"""Stages in which nothing of the ranks may stay alive."""


@dataclass(frozen=True)
class Ready:
    """The gang is complete: ranks may start."""

    ranks: FrozenSet[int]
    incarnation: int = 1


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
class Again:
    """The coordinator ordered a restart in place."""

    incarnation: int
    resume_from: str
    """As the trainer is told; "": from scratch."""
    resume_step: Optional[int]
    why: str


@dataclass(frozen=True)
class Signalled:
    """SIGTERM or SIGINT reached the launcher."""

    name: str


@dataclass(frozen=True)
class Broken:
    """The launcher itself cannot go on."""

    why: str
    unstarted: bool = False
    """The ranks that were to start did not: nobody will be found ended."""


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = Union[Ready, Ended, Told, Again, Signalled, SaveSeen, Broken, Tick]


@dataclass(frozen=True)
class StartRanks:
    """Start the ranks of this pod."""


@dataclass(frozen=True)
class AskToSave:
    """Ask the ranks to save, in the way of `State.save_way`."""


@dataclass(frozen=True)
class KillRanks:
    """SIGKILL to the ranks and all they started."""


@dataclass(frozen=True)
class ReportStop:
    """Tell the coordinator that this pod is on its way out, so that the whole gang saves together."""

    why: str


@dataclass(frozen=True)
class MeetAgain:
    """No rank lives any more: meet the gang in the next incarnation."""

    order: Again


Action = Union[StartRanks, AskToSave, EndRanks, KillRanks, ReportStop, MeetAgain]


@dataclass(frozen=True)
class State:
    """Where a pod's ranks are."""

    grace_seconds: float
    """Between the request to save and SIGKILL."""
    stage: str = "joining"
    """`joining`, `running`, `saving`, `holding`, `restarting`, `ending`, `done`."""
    alive: FrozenSet[int] = frozenset()
    ends: Tuple[RankEnd, ...] = ()
    reason: str = ""
    """Of `Termination`; "" while nothing speaks for an end."""
    detail: str = ""
    first_failing: Optional[int] = None
    kill_at: Optional[float] = None
    """Monotonic seconds; None: no deadline. It stands where ranks that were asked to save ended in time."""
    in_place: bool = False
    """Whether ranks may be started again inside the pod."""
    incarnation: int = 1
    hold_until: Optional[float] = None
    """Monotonic seconds until the coordinator has spoken, or the gang has met again; None: no deadline."""
    again: Optional[Again] = None
    """A restart that is under way."""
    past: int = 0
    """How many of `ends` belong to earlier incarnations."""
    save_way: SaveWay = field(default_factory=SaveWay)
    end_at: Optional[float] = None
    """Monotonic seconds at which ranks that were asked to save are told to end; None: they need not be told."""

    @property
    def present(self) -> Tuple[RankEnd, ...]:
        """Ends of this incarnation's ranks: only they say how the pod ended."""
        return self.ends[self.past :]


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
        return _ended(state, event, now)
    if isinstance(event, Broken):
        state = replace(state, alive=frozenset()) if event.unstarted else state
        return _stop(state, "launcher-error", event.why)
    return _heard(state, event, now)


def _heard(state: State, event: Union[Told, Again, Signalled, SaveSeen, Tick], now: float) -> Next:
    if isinstance(event, Told):
        return _told(state, event, now)
    if isinstance(event, Again):
        return _again(state, event, now)
    if isinstance(event, SaveSeen):
        return _end(state, f"the save was seen: {event.why}")
    return _signalled(state, event, now) if isinstance(event, Signalled) else _tick(state, now)


def _ready(state: State, event: Event) -> Next:
    if state.stage != "joining" or not isinstance(event, Ready) or event.incarnation < state.incarnation:
        return Next(state)
    state = replace(state, stage="running", alive=event.ranks, incarnation=event.incarnation)
    return Next(replace(state, hold_until=None, again=None, detail=""), (StartRanks(),))


def _ended(state: State, event: Ended, now: float) -> Next:
    requested = state.stage == "saving" or state.stage in KILLING
    # A process ends once: what is said of it a second time is not about it.
    ends = tuple(replace(end, requested=True) if requested else end for end in event.ends if end.rank in state.alive)
    state = replace(state, ends=(*state.ends, *ends), alive=state.alive - {end.rank for end in ends})
    culprits = sorted((end for end in ends if failed(end)), key=blame)
    actions: Tuple[Action, ...] = ()
    if culprits and state.first_failing is None:
        first = culprits[0]
        state = replace(state, first_failing=first.rank, detail=describe(first), kill_at=None)
        if state.in_place:
            state = replace(state, stage="holding", hold_until=now + HOLD_SECONDS)
        else:
            state = replace(state, stage="ending", reason="rank-failed")
        actions = (KillRanks(),) if state.alive else ()
    return Next(state, actions) if state.alive else _all_ended(state, actions)


def _all_ended(state: State, actions: Tuple[Action, ...] = ()) -> Next:
    """What follows when no rank is alive."""
    if state.stage == "holding":
        return Next(state, actions)
    if state.stage == "restarting" and state.again is not None:
        return Next(replace(state, stage="joining", past=len(state.ends)), (*actions, MeetAgain(state.again)))
    return Next(replace(state, stage="done", reason=state.reason or "completed"), actions)


def _told(state: State, event: Told, now: float) -> Next:
    if event.save and state.stage == "running":
        return _save(state, "told-to-stop", event.why, now)
    if event.save and state.stage == "saving":
        return Next(state)
    return _stop(state, "told-to-stop", event.why)


def _again(state: State, event: Again, now: float) -> Next:
    if event.incarnation <= state.incarnation or state.stage in ("saving", "ending"):
        return Next(state)  # said already, or this pod is on its way out and tells the gang so
    if not state.in_place:
        return _stop(state, "told-to-stop", event.why)
    state = replace(
        state,
        stage="restarting",
        incarnation=event.incarnation,
        again=event,
        first_failing=None,
        detail=event.why,
        hold_until=now + MEET_AGAIN_SECONDS,
    )
    return Next(state, (KillRanks(),)) if state.alive else _all_ended(state)


def _signalled(state: State, event: Signalled, now: float) -> Next:
    if state.stage == "running":
        saving = _save(state, "signalled", f"{event.name} reached the launcher", now)
        return Next(saving.state, (*saving.actions, ReportStop(saving.state.detail)))
    if state.stage == "saving" and state.reason == "told-to-stop":
        # The pod's end follows the coordinator's stop as a rule: the ranks keep the time they were given.
        return Next(replace(state, reason="signalled", detail=f"{state.detail}; {event.name} reached the launcher"))
    why = f"{event.name} reached the launcher"
    stopping = _stop(state, "signalled", why)
    # Others wait for this pod to meet them again.
    return Next(stopping.state, (*stopping.actions, ReportStop(why))) if state.again is not None else stopping


def _save(state: State, reason: str, why: str, now: float) -> Next:
    kill_at, patience = now + state.grace_seconds, state.save_way.end_after(state.grace_seconds)
    state = replace(state, stage="saving", reason=reason, detail=why, kill_at=kill_at)
    return Next(replace(state, end_at=None if patience is None else now + patience), (AskToSave(),))


def _end(state: State, why: str) -> Next:
    """Ranks that were asked to save, and do not end by that, are told to end: once."""
    if state.stage != "saving" or state.end_at is None:
        return Next(state)
    return Next(replace(state, end_at=None), (EndRanks(why),))


def _stop(state: State, reason: str, why: str) -> Next:
    if state.stage == "holding":
        reason, why = "rank-failed", state.detail
    elif state.reason:
        reason, why = state.reason, state.detail
    state = replace(state, reason=reason, detail=why, kill_at=None, hold_until=None, again=None)
    if not state.alive:
        return Next(replace(state, stage="done"))
    return Next(replace(state, stage="ending"), (KillRanks(),))


def _tick(state: State, now: float) -> Next:
    if state.stage == "saving" and state.kill_at is not None and now >= state.kill_at:
        why = f"{state.detail}; {len(state.alive)} ranks had not ended after {state.grace_seconds:g} s and were killed"
        return Next(replace(state, stage="ending", detail=why, kill_at=None), (KillRanks(),))
    if state.end_at is not None and now >= state.end_at:
        return _end(state, "no save was seen, and the notice is nearly over")
    if state.hold_until is not None and now >= state.hold_until:
        late = f"the gang did not meet again within {MEET_AGAIN_SECONDS:g} s: {state.detail}"
        return _stop(state, "launcher-error", late)
    return Next(state)
