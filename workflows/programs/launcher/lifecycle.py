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

How one rank ended: wrongly or not, and in words. Pure.

How a program is asked to save, and what says that it has. Pure: times stand in the reports.

A program that is asked by SIGTERM ends by itself when it has saved. One that is asked by another signal or by a file
saves and goes on: somebody has to see that the save is complete, and end it then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, FrozenSet, Mapping, NamedTuple, Optional, Tuple, Union

from workflows.programs.progress.formats import may_be_copied_only
from workflows.wire import CheckpointSeen, PhaseSeen, RankEnd


def failed(end: RankEnd) -> bool:
    """Whether a rank ended wrongly by itself."""
    return not end.requested and (end.signal is not None or end.exit_code != 0)


def blame(end: RankEnd) -> Tuple[bool, int]:
    """Orders ranks found ended together: one that was killed came before those that noticed it and raised."""
    return (end.signal is None, end.rank)


def describe(end: RankEnd) -> str:
    """One sentence on how a rank ended."""
    how = f"was killed by signal {end.signal}" if end.signal is not None else f"exited with {end.exit_code}"
    return f"rank {end.rank} {how}" + (f" after step {end.last_step}" if end.last_step is not None else "")


SIGNALS = ("TERM", "USR1", "USR2", "HUP", "INT")
TERM = "TERM"
END_SECONDS = 5.0
"""Before the notice is over a program of which no save was seen gets SIGTERM: some save by that as well."""
END_SHARE = 0.25
"""At most this share of the notice is taken for that."""


@dataclass(frozen=True)
class SaveWay:
    """How a profile's program is asked to save."""

    signal: str = TERM
    """One of `SIGNALS`."""
    file: str = ""
    """Made when a save is asked for; "": none. With it SIGTERM does not ask, it ends."""

    @property
    def ends_itself(self) -> bool:
        """The program ends when it has saved."""
        return self.signal == TERM and not self.file

    def end_after(self, notice_seconds: float) -> Optional[float]:
        """After so many seconds without a save it is told to end all the same; None: it needs not be told.

        Args:
            notice_seconds: from the request to SIGKILL.
        """
        return None if self.ends_itself else notice_seconds - min(END_SECONDS, notice_seconds * END_SHARE)


@dataclass(frozen=True)
class SaveSeen:
    """The save that was asked for is complete."""

    why: str


@dataclass(frozen=True)
class EndRanks:
    """SIGTERM to ranks that have saved and go on, or were given the time to."""

    why: str


@dataclass(frozen=True)
class SaveRequest:
    """A save that was asked for, and what was heard of it since."""

    at: float
    """Unix time in seconds."""
    step: Optional[int]
    """The last one that this pod's ranks had reported by then; None: they report none."""
    begun: Mapping[int, str]
    """Ranks that are in a save which they began since, with the line that said so."""
    said: str = ""
    """The line that told of a save's end; "": none did."""
    seen: str = ""
    """What says that the save is complete; "": nothing does."""


def asked(at: float, step: Optional[int]) -> SaveRequest:
    """A save was asked for, and nothing was heard of it yet."""
    return SaveRequest(at, step, {})


def hear(known: SaveRequest, report: Any) -> SaveRequest:
    """What is known after a report of this pod's ranks or of its prover."""
    if isinstance(report, CheckpointSeen):
        return _checkpoint(known, report)
    return _phase(known, report) if isinstance(report, PhaseSeen) else known


def _phase(known: SaveRequest, report: PhaseSeen) -> SaveRequest:
    """The end of a save that was begun since, said in words, once no rank of this pod is in one any more."""
    if report.phase == "checkpoint":
        # One that began before may hold an older step.
        return replace(known, begun={**known.begun, report.rank: report.detail}) if report.at >= known.at else known
    if report.rank not in known.begun:
        return known
    line = known.begun[report.rank]
    begun = {rank: said for rank, said in known.begun.items() if rank != report.rank}
    # A program that speaks our lines tells begin and end without more words; of one whose own line only began the save
    # the next step may as well come while it is being written.
    ended = (bool(report.detail) or not line) and not may_be_copied_only(report.detail or line)
    said = (report.detail or f"rank {report.rank} says so") if ended else known.said
    return replace(known, begun=begun, said=said, seen=known.seen or ("" if begun else said))


def _checkpoint(known: SaveRequest, report: CheckpointSeen) -> SaveRequest:
    """A complete one that holds what was trained when the save was asked for."""
    if known.seen or report.written_at is None or report.verdict == "fail":
        return known
    holds = report.written_at > known.at if known.step is None else report.step >= known.step
    return replace(known, seen=f"{report.path} is complete, step {report.step}") if holds else known


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
class RanksEnded:
    """Ranks were found ended, all in one look: nobody knows which of them was first."""

    ends: Tuple[RankEnd, ...]


@dataclass(frozen=True)
class StopOrdered:
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


Event = Union[Ready, RanksEnded, StopOrdered, Again, Signalled, SaveSeen, Broken, Tick]


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
class PodState:
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


class NextActions(NamedTuple):
    """What follows from an event."""

    state: PodState
    actions: Tuple[Action, ...] = ()


def advance(state: PodState, event: Event, now: float) -> NextActions:
    """The next state and what to do.

    Args:
        state: as it was.
        event: what happened.
        now: monotonic time in seconds.
    """
    if isinstance(event, Ready) or state.stage == "done":
        return _ready(state, event)
    if isinstance(event, RanksEnded):
        return _ended(state, event, now)
    if isinstance(event, Broken):
        state = replace(state, alive=frozenset()) if event.unstarted else state
        return _stop(state, "launcher-error", event.why)
    return _heard(state, event, now)


def _heard(state: PodState, event: Union[StopOrdered, Again, Signalled, SaveSeen, Tick], now: float) -> NextActions:
    if isinstance(event, StopOrdered):
        return _told(state, event, now)
    if isinstance(event, Again):
        return _again(state, event, now)
    if isinstance(event, SaveSeen):
        return _end(state, f"the save was seen: {event.why}")
    return _signalled(state, event, now) if isinstance(event, Signalled) else _tick(state, now)


def _ready(state: PodState, event: Event) -> NextActions:
    if state.stage != "joining" or not isinstance(event, Ready) or event.incarnation < state.incarnation:
        return NextActions(state)
    state = replace(state, stage="running", alive=event.ranks, incarnation=event.incarnation)
    return NextActions(replace(state, hold_until=None, again=None, detail=""), (StartRanks(),))


def _ended(state: PodState, event: RanksEnded, now: float) -> NextActions:
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
    return NextActions(state, actions) if state.alive else _all_ended(state, actions)


def _all_ended(state: PodState, actions: Tuple[Action, ...] = ()) -> NextActions:
    """What follows when no rank is alive."""
    if state.stage == "holding":
        return NextActions(state, actions)
    if state.stage == "restarting" and state.again is not None:
        return NextActions(replace(state, stage="joining", past=len(state.ends)), (*actions, MeetAgain(state.again)))
    return NextActions(replace(state, stage="done", reason=state.reason or "completed"), actions)


def _told(state: PodState, event: StopOrdered, now: float) -> NextActions:
    if event.save and state.stage == "running":
        return _save(state, "told-to-stop", event.why, now)
    if event.save and state.stage == "saving":
        return NextActions(state)
    return _stop(state, "told-to-stop", event.why)


def _again(state: PodState, event: Again, now: float) -> NextActions:
    if event.incarnation <= state.incarnation or state.stage in ("saving", "ending"):
        return NextActions(state)  # said already, or this pod is on its way out and tells the gang so
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
    return NextActions(state, (KillRanks(),)) if state.alive else _all_ended(state)


def _signalled(state: PodState, event: Signalled, now: float) -> NextActions:
    if state.stage == "running":
        saving = _save(state, "signalled", f"{event.name} reached the launcher", now)
        return NextActions(saving.state, (*saving.actions, ReportStop(saving.state.detail)))
    if state.stage == "saving" and state.reason == "told-to-stop":
        # The pod's end follows the coordinator's stop as a rule: the ranks keep the time they were given.
        return NextActions(
            replace(state, reason="signalled", detail=f"{state.detail}; {event.name} reached the launcher")
        )
    why = f"{event.name} reached the launcher"
    stopping = _stop(state, "signalled", why)
    # Others wait for this pod to meet them again.
    return NextActions(stopping.state, (*stopping.actions, ReportStop(why))) if state.again is not None else stopping


def _save(state: PodState, reason: str, why: str, now: float) -> NextActions:
    kill_at, patience = now + state.grace_seconds, state.save_way.end_after(state.grace_seconds)
    state = replace(state, stage="saving", reason=reason, detail=why, kill_at=kill_at)
    return NextActions(replace(state, end_at=None if patience is None else now + patience), (AskToSave(),))


def _end(state: PodState, why: str) -> NextActions:
    """Ranks that were asked to save, and do not end by that, are told to end: once."""
    if state.stage != "saving" or state.end_at is None:
        return NextActions(state)
    return NextActions(replace(state, end_at=None), (EndRanks(why),))


def _stop(state: PodState, reason: str, why: str) -> NextActions:
    if state.stage == "holding":
        reason, why = "rank-failed", state.detail
    elif state.reason:
        reason, why = state.reason, state.detail
    state = replace(state, reason=reason, detail=why, kill_at=None, hold_until=None, again=None)
    if not state.alive:
        return NextActions(replace(state, stage="done"))
    return NextActions(replace(state, stage="ending"), (KillRanks(),))


def _tick(state: PodState, now: float) -> NextActions:
    if state.stage == "saving" and state.kill_at is not None and now >= state.kill_at:
        why = f"{state.detail}; {len(state.alive)} ranks had not ended after {state.grace_seconds:g} s and were killed"
        return NextActions(replace(state, stage="ending", detail=why, kill_at=None), (KillRanks(),))
    if state.end_at is not None and now >= state.end_at:
        return _end(state, "no save was seen, and the notice is nearly over")
    if state.hold_until is not None and now >= state.hold_until:
        late = f"the gang did not meet again within {MEET_AGAIN_SECONDS:g} s: {state.detail}"
        return _stop(state, "launcher-error", late)
    return NextActions(state)
