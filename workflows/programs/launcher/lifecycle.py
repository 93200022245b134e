"""The life of one pod's ranks, as a pure function (state, event, now) -> (state, actions).

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

A program that is asked to save by SIGTERM ends by itself afterwards. One that is asked by another signal or by a file
saves and goes on: the launcher has to notice that the save is complete, and end it then.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from typing import Any, FrozenSet, Mapping, NamedTuple, Optional, Tuple, Union

from workflows.programs.progress.formats import may_be_copied_only
from workflows.wire import CheckpointSeen, LauncherCause, PhaseSeen, RankEnd

SIGNALS = ("TERM", "USR1", "USR2", "HUP", "INT")
TERM = "TERM"
END_SECONDS = 5.0
"""A program without a complete save gets SIGTERM so long before SIGKILL: some save by that as well."""
END_SHARE = 0.25
"""Largest share of the notice for that."""

HOLD_SECONDS = 5.0
"""How long a pod with a failed rank waits for the coordinator's order; a restarted coordinator needs a second."""
REJOIN_SECONDS = 30.0
"""How long a gang may take for its next rendezvous: its pods are all there, but the coordinator may be away."""
KILLING = ("ending", "holding", "restarting")
"""Stages in which every process of the ranks is killed."""


def is_failure(end: RankEnd) -> bool:
    """Whether a rank failed by itself."""
    return not end.requested and (end.signal is not None or end.exit_code != 0)


def blame_order(end: RankEnd) -> Tuple[bool, int]:
    """Sort key for ranks found ended at the same time: a killed one came before those that noticed it and raised."""
    return (end.signal is None, end.rank)


def refusal_cause(error: OSError) -> LauncherCause:
    """In a word, what the system refuses the launcher."""
    return "memory" if error.errno == errno.ENOMEM else "system-refused"


def describe(end: RankEnd) -> str:
    """One sentence on how a rank ended, with the exception that it failed by."""
    # Imported here, so that only ends pay for compiling its patterns.
    from workflows.programs.runtime.last_words import last_words

    how = f"was killed by signal {end.signal}" if end.signal is not None else f"exited with {end.exit_code}"
    after = f" after step {end.last_step}" if end.last_step is not None else ""
    return f"rank {end.rank} {how}{after}{last_words(end)}"


@dataclass(frozen=True)
class SaveWay:
    """How a profile's program is asked to save."""

    signal: str = TERM
    """One of `SIGNALS`."""
    file: str = ""
    """File made to ask for a save; "": none. With a file SIGTERM does not ask, it ends the program."""

    @property
    def ends_itself(self) -> bool:
        """Whether the program ends by itself after the save."""
        return self.signal == TERM and not self.file

    def end_after(self, notice_seconds: float) -> Optional[float]:
        """Seconds from the request to SIGTERM where no save completes; None: none is needed.

        `notice_seconds` is the time from the request to SIGKILL.
        """
        return None if self.ends_itself else notice_seconds - min(END_SECONDS, notice_seconds * END_SHARE)


@dataclass(frozen=True)
class SaveComplete:
    """The requested save is complete."""

    why: str


@dataclass(frozen=True)
class EndRanks:
    """SIGTERM to ranks that have saved and go on, or were given the time to."""

    why: str


@dataclass(frozen=True)
class SaveRequest:
    """A requested save, and what was reported of it since."""

    at: float
    """Unix time in seconds."""
    step: Optional[int]
    """Last step that this pod's ranks had reported by then; None: they report none."""
    saving_ranks: Mapping[int, str]
    """Ranks in a save that began after the request, with the line that reported it."""
    end_line: str = ""
    """Line that reported a save's end; "": none did."""
    completion: str = ""
    """Evidence that the save is complete; "": none."""


def new_save_request(at: float, step: Optional[int]) -> SaveRequest:
    """A request at `at` (Unix time in seconds), with nothing reported yet."""
    return SaveRequest(at, step, {})


def update_save_request(known: SaveRequest, report: Any) -> SaveRequest:
    """The request after a report of this pod's ranks or of its prover."""
    if isinstance(report, CheckpointSeen):
        return _checkpoint(known, report)
    return _phase(known, report) if isinstance(report, PhaseSeen) else known


def _phase(known: SaveRequest, report: PhaseSeen) -> SaveRequest:
    """The save is complete when a line reports its end and no rank of this pod is in a save any more."""
    if report.phase == "checkpoint":
        # One that began before may hold an older step.
        return (
            replace(known, saving_ranks={**known.saving_ranks, report.rank: report.detail})
            if report.at >= known.at
            else known
        )
    if report.rank not in known.saving_ranks:
        return known
    line = known.saving_ranks[report.rank]
    begun = {rank: said for rank, said in known.saving_ranks.items() if rank != report.rank}
    # A program that speaks our lines tells begin and end without more words; of one whose own line only began the save
    # the next step may as well come while it is being written.
    ended = (bool(report.detail) or not line) and not may_be_copied_only(report.detail or line)
    said = (report.detail or f"rank {report.rank} says so") if ended else known.end_line
    return replace(known, saving_ranks=begun, end_line=said, completion=known.completion or ("" if begun else said))


def _checkpoint(known: SaveRequest, report: CheckpointSeen) -> SaveRequest:
    """The save is complete when a checkpoint holds every step from before the request."""
    if known.completion or report.written_at is None or report.verdict == "fail":
        return known
    holds = report.written_at > known.at if known.step is None else report.step >= known.step
    return replace(known, completion=f"{report.path} is complete, step {report.step}") if holds else known


@dataclass(frozen=True)
class GangReady:
    """The gang is complete: ranks may start."""

    ranks: FrozenSet[int]
    incarnation: int = 1


@dataclass(frozen=True)
class RanksEnded:
    """Ranks were found ended at the same time; their order is unknown."""

    ends: Tuple[RankEnd, ...]


@dataclass(frozen=True)
class StopOrdered:
    """The coordinator ordered a stop."""

    why: str
    save: bool


@dataclass(frozen=True)
class RestartOrdered:
    """The coordinator ordered a restart in place."""

    incarnation: int
    resume_from: str
    """Value of the trainer's resume argument; "": from scratch."""
    resume_step: Optional[int]
    why: str


@dataclass(frozen=True)
class SignalReceived:
    """SIGTERM or SIGINT reached the launcher."""

    name: str


@dataclass(frozen=True)
class LauncherFailed:
    """The launcher itself cannot continue."""

    why: str
    cause: LauncherCause
    unstarted: bool = False
    """The ranks were never started, so no end of theirs will follow."""


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = Union[GangReady, RanksEnded, StopOrdered, RestartOrdered, SignalReceived, SaveComplete, LauncherFailed, Tick]


@dataclass(frozen=True)
class StartRanks:
    """Start the ranks of this pod."""


@dataclass(frozen=True)
class RequestSave:
    """Ask the ranks to save, in the way of `State.save_way`."""


@dataclass(frozen=True)
class KillRanks:
    """SIGKILL to the ranks and all they started."""


@dataclass(frozen=True)
class ReportStop:
    """Report to the coordinator that this pod is leaving, so that the whole gang saves together."""

    why: str


@dataclass(frozen=True)
class RejoinGang:
    """Every rank is dead: join the gang's next incarnation."""

    order: RestartOrdered


Action = Union[StartRanks, RequestSave, EndRanks, KillRanks, ReportStop, RejoinGang]


@dataclass(frozen=True)
class PodState:
    """State of a pod's ranks."""

    grace_seconds: float
    """Between the request to save and SIGKILL."""
    stage: str = "joining"
    """`joining`, `running`, `saving`, `holding`, `restarting`, `ending`, `done`."""
    alive: FrozenSet[int] = frozenset()
    ends: Tuple[RankEnd, ...] = ()
    reason: str = ""
    """Reason in the `Termination`; "" while there is none to end."""
    detail: str = ""
    cause: LauncherCause = ""
    first_failing: Optional[int] = None
    kill_at: Optional[float] = None
    """Monotonic seconds of SIGKILL; None: no deadline. It stays set where ranks saved and ended in time."""
    in_place: bool = False
    """Whether ranks may restart inside the pod."""
    incarnation: int = 1
    hold_until: Optional[float] = None
    """Monotonic seconds by which an order or the next rendezvous must come; None: no deadline."""
    pending_restart: Optional[RestartOrdered] = None
    """Restart in progress."""
    past_ends: int = 0
    """Number of `ends` that belong to earlier incarnations."""
    save_way: SaveWay = field(default_factory=SaveWay)
    end_at: Optional[float] = None
    """Monotonic seconds of SIGTERM for ranks that were asked to save; None: none is needed."""

    @property
    def present_ends(self) -> Tuple[RankEnd, ...]:
        """Ends of this incarnation's ranks, which alone decide how the pod ended."""
        return self.ends[self.past_ends :]


class NextActions(NamedTuple):
    """What follows from an event."""

    state: PodState
    actions: Tuple[Action, ...] = ()


def advance(state: PodState, event: Event, now: float) -> NextActions:
    """The next state and the actions; `now` is monotonic time in seconds."""
    if isinstance(event, GangReady) or state.stage == "done":
        return _ready(state, event)
    if isinstance(event, RanksEnded):
        return _end_ranks(state, event, now)
    if isinstance(event, LauncherFailed):
        state = replace(state, alive=frozenset()) if event.unstarted else state
        return _stop(state, "launcher-error", event.why, event.cause)
    return _advance_other(state, event, now)


def _advance_other(
    state: PodState, event: Union[StopOrdered, RestartOrdered, SignalReceived, SaveComplete, Tick], now: float
) -> NextActions:
    if isinstance(event, StopOrdered):
        return _order_stop(state, event, now)
    if isinstance(event, RestartOrdered):
        return _order_restart(state, event, now)
    if isinstance(event, SaveComplete):
        return _order_end(state, f"the save was seen: {event.why}")
    return _take_signal(state, event, now) if isinstance(event, SignalReceived) else _tick(state, now)


def _ready(state: PodState, event: Event) -> NextActions:
    if state.stage != "joining" or not isinstance(event, GangReady) or event.incarnation < state.incarnation:
        return NextActions(state)
    state = replace(state, stage="running", alive=event.ranks, incarnation=event.incarnation)
    return NextActions(replace(state, hold_until=None, pending_restart=None, detail=""), (StartRanks(),))


def _end_ranks(state: PodState, event: RanksEnded, now: float) -> NextActions:
    requested = state.stage == "saving" or state.stage in KILLING
    # A process ends only once, so a second report of its end is about another process.
    ends = tuple(replace(end, requested=True) if requested else end for end in event.ends if end.rank in state.alive)
    state = replace(state, ends=(*state.ends, *ends), alive=state.alive - {end.rank for end in ends})
    culprits = sorted((end for end in ends if is_failure(end)), key=blame_order)
    actions: Tuple[Action, ...] = ()
    if culprits and state.first_failing is None:
        first = culprits[0]
        state = replace(state, first_failing=first.rank, detail=describe(first), kill_at=None)
        if state.in_place:
            state = replace(state, stage="holding", hold_until=now + HOLD_SECONDS)
        else:
            state = replace(state, stage="ending", reason="rank-failed")
        actions = (KillRanks(),) if state.alive else ()
    return NextActions(state, actions) if state.alive else _after_last_end(state, actions)


def _after_last_end(state: PodState, actions: Tuple[Action, ...] = ()) -> NextActions:
    """The next stage when no rank is alive."""
    if state.stage == "holding":
        return NextActions(state, actions)
    if state.stage == "restarting" and state.pending_restart is not None:
        return NextActions(
            replace(state, stage="joining", past_ends=len(state.ends)), (*actions, RejoinGang(state.pending_restart))
        )
    return NextActions(replace(state, stage="done", reason=state.reason or "completed"), actions)


def _order_stop(state: PodState, event: StopOrdered, now: float) -> NextActions:
    if event.save and state.stage == "running":
        return _save(state, "told-to-stop", event.why, now)
    if event.save and state.stage == "saving":
        return NextActions(state)
    return _stop(state, "told-to-stop", event.why)


def _order_restart(state: PodState, event: RestartOrdered, now: float) -> NextActions:
    if event.incarnation <= state.incarnation or state.stage in ("saving", "ending"):
        return NextActions(state)  # said already, or this pod is on its way out and tells the gang so
    if not state.in_place:
        return _stop(state, "told-to-stop", event.why)
    state = replace(
        state,
        stage="restarting",
        incarnation=event.incarnation,
        pending_restart=event,
        first_failing=None,
        detail=event.why,
        hold_until=now + REJOIN_SECONDS,
    )
    return NextActions(state, (KillRanks(),)) if state.alive else _after_last_end(state)


def _take_signal(state: PodState, event: SignalReceived, now: float) -> NextActions:
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
    return (
        NextActions(stopping.state, (*stopping.actions, ReportStop(why)))
        if state.pending_restart is not None
        else stopping
    )


def _save(state: PodState, reason: str, why: str, now: float) -> NextActions:
    kill_at, patience = now + state.grace_seconds, state.save_way.end_after(state.grace_seconds)
    state = replace(state, stage="saving", reason=reason, detail=why, kill_at=kill_at)
    return NextActions(replace(state, end_at=None if patience is None else now + patience), (RequestSave(),))


def _order_end(state: PodState, why: str) -> NextActions:
    """Send SIGTERM, once, to ranks that were asked to save and do not end by themselves."""
    if state.stage != "saving" or state.end_at is None:
        return NextActions(state)
    return NextActions(replace(state, end_at=None), (EndRanks(why),))


def _stop(state: PodState, reason: str, why: str, cause: LauncherCause = "") -> NextActions:
    if state.stage == "holding":
        reason, why, cause = "rank-failed", state.detail, ""
    elif state.reason:
        reason, why, cause = state.reason, state.detail, state.cause
    state = replace(state, reason=reason, detail=why, cause=cause, kill_at=None, hold_until=None, pending_restart=None)
    if not state.alive:
        return NextActions(replace(state, stage="done"))
    return NextActions(replace(state, stage="ending"), (KillRanks(),))


def _tick(state: PodState, now: float) -> NextActions:
    if state.stage == "saving" and state.kill_at is not None and now >= state.kill_at:
        why = f"{state.detail}; {len(state.alive)} ranks had not ended after {state.grace_seconds:g} s and were killed"
        return NextActions(replace(state, stage="ending", detail=why, kill_at=None), (KillRanks(),))
    if state.end_at is not None and now >= state.end_at:
        return _order_end(state, "no save was seen, and the notice is nearly over")
    if state.hold_until is not None and now >= state.hold_until:
        late = f"the gang did not meet again within {REJOIN_SECONDS:g} s: {state.detail}"
        return _stop(state, "launcher-error", late, "gang-incomplete")
    return NextActions(state)
