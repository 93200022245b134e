"""Restart in place: whether failed ranks restart inside their pods, and from which checkpoint. Pure.

The flow allows an attempt a number of restarts. One is used where a process was killed or where the gang is hung
(`hangs` finds that out and names the rank at fault); a program that ended with an error is for the flow to diagnose.
Ranks that notice the death of another raise exceptions, often before the death itself is reported, so the coordinator
waits `SETTLE_SECONDS` for a better reason. Any objection to a restart ends the attempt.
"""

from __future__ import annotations

import signal
from typing import List, NamedTuple, Optional, Tuple

from workflows.programs.coordinator.progress import after_restart
from workflows.programs.coordinator.state import (
    FINAL_STATES,
    HANG,
    RANK_FAILED,
    REPLICA,
    AppendMoment,
    Cause,
    Effect,
    Failure,
    GiveOrder,
    HangConfirmed,
    HangSuspected,
    Key,
    Member,
    Order,
    PendingDecision,
    Resume,
    RightChanged,
    State,
    Transition,
)
from workflows.programs.runtime.flags import replace
from workflows.status import RestartInPlace
from workflows.wire import CheckpointSeen, RankEnd

SETTLE_SECONDS = 0.3
"""Survivors of a broken exchange raise within milliseconds; a large process takes longer to die, and its launcher on a
busy machine takes longer to report that. Only a program's own error waits so long."""
PROOF_SECONDS = 1.0
"""How long a decision waits for the proof of a save that has just ended, which spares all steps since the save before.
A checkpoint that is whole and takes longer to read is waited for as long as less is lost by that than without it."""
MOST_PROOF_SECONDS = 60.0
"""Reading that takes longer is left to a new attempt."""
KILLED = frozenset(
    map(int, (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSEGV, signal.SIGBUS))
)
"""Signals from outside, or from bad memory. Not SIGABRT: a program sends that to itself."""


def looks_killed(end: RankEnd) -> bool:
    """Whether a rank looks as if it was killed from outside, and not for its memory."""
    return end.signal in KILLED and not end.requested and not end.oom_killed


def stop_gang(state: State, why: str, save: bool, source: Optional[Key]) -> Transition:
    """Order the gang to stop: once, and a second time where it may no longer wait for a save."""
    if any(order.is_stop and (not order.save or save) for order in state.orders):
        return Transition(state)
    order = Order(_next_number(state), why, save, source)
    return Transition(replace(state, orders=(*state.orders, order), pending=None), (GiveOrder(order),))


CREDIBLE_SECONDS = 86400.0
"""An end or a last progress that is further away, or to come, was told by a clock that is wrong."""


def handle_failure(state: State, member: Member, end: RankEnd, why: str, at: float) -> Transition:
    """Handle the failure of a rank in an essential pod, reported `at` (Unix time in seconds). `state` has its end."""
    if not state.restarts_lent or not state.restarts_together(member.role):
        return stop_gang(state, why, False, member.key)
    if state.is_stopping:
        # Its launcher waits for an order, and must get the stop that all others got.
        return stop_gang(state, why, False, None)
    before = state.pending or PendingDecision(at + SETTLE_SECONDS, (), at + PROOF_SECONDS)
    state = replace(state, pending=replace(before, failures=(*before.failures, Failure(member.key, end, why))))
    # There is no better reason to wait for, or no restart left.
    return (
        settle(state, at) if looks_killed(end) or end.oom_killed or not state.restarts_left(at) else Transition(state)
    )


def handle_proof(state: State, at: float) -> Transition:
    """A checkpoint was proven: make the decision that has waited for it."""
    waits = state.pending is not None and state.pending.until >= state.pending.latest
    return settle(state, at) if waits else Transition(state)


def is_due(state: State, at: float) -> bool:
    """Whether the pending decision is due."""
    return state.pending is not None and at >= state.pending.until


def settle(state: State, at: float) -> Transition:
    """Decide on the pending failures: the ranks restart, or the attempt ends."""
    if state.pending is None:
        return Transition(state)
    failures = state.pending.failures
    culprit = next((one for one in failures if looks_killed(one.end)), failures[0])
    place, role = state.members[culprit.key].place, culprit.key[0]
    cause = Cause(RANK_FAILED, culprit.why, culprit.end.rank, place, role=role, at=culprit.end.at)
    choice = choose_checkpoint(state)
    against = _why_not_killed(failures, culprit) or _objection(state, cause, choice, at)
    if against or choice is None:
        return stop_gang(state, f"{culprit.why}{against and '; not restarted in place: '}{against}", False, None)
    until = state.pending.latest - PROOF_SECONDS + _proof_wait_seconds(state, choice)
    if at < until:
        return Transition(replace(state, pending=replace(state.pending, until=until)))
    unread = _unread_step(state, choice)
    if unread is not None and not choice.path:
        why = f"{culprit.why}; not restarted in place: step {unread} is saved and not read yet, a new attempt reads it"
        return stop_gang(state, why, False, None)
    return _restart(state, cause, choice, at)


def _proof_wait_seconds(state: State, choice: ResumePoint) -> float:
    """How long the proof of a newer checkpoint than the chosen one is worth waiting for; 0: there seems to be none."""
    lost = _lost_seconds(state, choice)
    if _unread_step(state, choice) is not None:
        return max(PROOF_SECONDS, min(lost, MOST_PROOF_SECONDS))
    # Where all would be lost, a save may have ended that the prover has not come to yet.
    from_scratch = not choice.path and lost > PROOF_SECONDS
    return PROOF_SECONDS if state.progress.unproven or from_scratch else 0.0


def _unread_step(state: State, choice: ResumePoint) -> Optional[int]:
    """Step of a checkpoint that is whole, newer than the chosen one and not read yet; None: there is none."""
    progress, reached = state.progress, _highest_step(state)
    written, examined = progress.saves.written, max((one.step for one in progress.checkpoints), default=-1)
    if written is None or written <= max(choice.step or 0, examined) or (reached is not None and written > reached):
        return None
    return written


def _lost_seconds(state: State, choice: ResumePoint) -> float:
    """Training that is done again after a restart from the chosen checkpoint; 0 where it is not known."""
    progress = state.progress
    if progress.step is None or progress.first_step is None or progress.step_seconds is None:
        return 0.0
    since = max(choice.step or 0, progress.first_step[0] - 1)
    return max(0, progress.step - since) * progress.step_seconds


def ask_for_stacks(state: State, event: HangSuspected) -> Transition:
    """Ask launchers for the stacks of their ranks, which does no harm to ranks that still work."""
    if event.incarnation != state.incarnation or state.is_stopping:
        return Transition(state)
    number = _next_number(state)
    order = Order(number, event.why, False, stacks=f"s{number}", roles=(state.deciding_role,))
    # An earlier request for stacks is out of date.
    return Transition(
        replace(state, orders=(*(one for one in state.orders if not one.stacks), order)), (GiveOrder(order),)
    )


def set_right(state: State, event: RightChanged) -> Transition:
    """The flow forbids restarts, or allows them again; running ranks are not touched."""
    return Transition(state if event.withheld == state.withheld else replace(state, withheld=event.withheld))


def handle_hang(state: State, found: HangConfirmed) -> Transition:
    """Kill and restart ranks that hang; where restarts are not allowed do nothing, since waiting loses nothing."""
    busy = state.is_stopping or state.pending is not None
    if not state.has_right or busy or found.incarnation != state.incarnation:
        return Transition(state)
    cause = Cause(HANG, found.why, found.rank, found.node, found.stacks, at=state.progress.phase_at or None)
    choice = choose_checkpoint(state)
    against = _objection(state, cause, choice, found.at)
    if against or choice is None:
        return stop_gang(state, f"{cause.why}; not restarted in place: {against}", False, None)
    return _restart(state, cause, choice, found.at)


class ResumePoint(NamedTuple):
    """The checkpoint from which ranks restart."""

    path: str
    """Value of the trainer's resume argument; "": from scratch."""
    step: Optional[int]


def choose_checkpoint(state: State) -> Optional[ResumePoint]:
    """The newest checkpoint that this attempt wrote and that is proven good, else the one with which it began.

    A checkpoint beyond the steps of this attempt is older, and the flow has passed it over: after a roll-back it must
    not come back. None where only a new attempt, which reads the storage itself, may resume the newest proven one.
    """
    began = state.members.get(state.first_key)
    start = ResumePoint("", None) if began is None else ResumePoint(began.resume_from, began.resume_step)
    reached = _highest_step(state)
    newest = {report.step: report for report in state.progress.checkpoints}  # the last report of each step counts
    good = [one for one in newest.values() if _is_good(one, state.progress.first_nan_step)]
    ours = [one for one in good if one.step > (start.step or 0) and (reached is None or one.step <= reached)]
    if not ours:
        return start
    best = max(ours, key=lambda one: one.step)
    return ResumePoint(best.resume_from, best.step) if best.resume_from else None


def _is_good(report: CheckpointSeen, first_nan_step: Optional[int]) -> bool:
    return report.verdict == "pass" and (first_nan_step is None or report.step < first_nan_step)


def _highest_step(state: State) -> Optional[int]:
    """Highest step that a checkpoint of this attempt can have; None where no steps are reported."""
    seen = [state.progress.step, *(one.step for one in state.restarts)]
    known = [step for step in seen if step is not None]
    return max(known) + state.progress.interval if known else None


def _why_not_killed(failures: Tuple[Failure, ...], culprit: Failure) -> str:
    """Why the failures do not look like kills; "": they do."""
    if any(one.end.oom_killed for one in failures):
        return "memory was the reason"
    return "" if looks_killed(culprit.end) else "no rank was killed"


def _objection(state: State, cause: Cause, choice: Optional[ResumePoint], at: float) -> str:
    """The first objection to a restart in place; "": none."""
    gone = [
        member
        for member in state.members.values()
        if (state.restarts_together(member.role) and member.state in (*FINAL_STATES, "leaving"))
    ]
    used = (*state.restarts, *state.restarts_elsewhere)
    again = bool(cause.node) and any(one.node == cause.node for one in used)
    reasons = (
        (bool(state.withheld), state.withheld),
        (not state.restarts_left(at), f"the right is used up ({len(used)} of {state.restarts_lent})"),
        (again, f"it is the second time on {cause.node}"),
        (bool(gone), f"{len(gone)} pods have ended"),
        (choice is None, "only a new attempt can go on from the newest checkpoint"),
    )
    return next((why for holds, why in reasons if holds), "")


def _restart(state: State, cause: Cause, choice: ResumePoint, at: float) -> Transition:
    """Begin the next incarnation: no rank runs or has met, and late reports of earlier ranks do not count."""
    incarnation, end = state.incarnation + 1, state.first_pod + state.pods
    restart = RestartInPlace(
        number=len(state.restarts) + len(state.restarts_elsewhere) + 1,
        at=at,
        incarnation=incarnation,
        why=cause.why,
        rank=cause.rank,
        node=cause.node,
        step=state.progress.step,
        resume_step=choice.step,
        resume_from=choice.path,
        kind=cause.kind,
        stacks=cause.stacks,
        scope=state.scope,
        share=state.share,
        role="" if state.share and cause.role == state.deciding_role else cause.role,
        pods=(state.first_pod, end) if state.scope == REPLICA else (0, 0),
        happened_at=cause.at if cause.at is not None and 0 <= at - cause.at <= CREDIBLE_SECONDS else None,
    )
    resume = Resume(incarnation, choice.path, choice.step)
    order = Order(_next_number(state), cause.why, False, None, resume, roles=(state.deciding_role, *state.companions))
    learned = after_restart(state.progress, at)
    state = replace(
        state,
        incarnation=incarnation,
        members=state.members.map_values(lambda one: _waiting(one) if state.restarts_together(one.role) else one),
        meetings={name: meeting for name, meeting in state.meetings.items() if not state.restarts_together(name)},
        orders=(*state.orders, order),
        progress=learned.progress,
        rank_ends=(),
        restarts=(*state.restarts, restart),
        pending=None,
        cleared_pods=0,
    )
    effects: List[Effect] = [AppendMoment(moment) for moment in learned.moments]
    return Transition(state, (*effects, GiveOrder(order)))


def _waiting(member: Member) -> Member:
    return replace(member, state="joined", pids={}, started_at=None)


def _next_number(state: State) -> int:
    """A number above every order that a launcher has received, also from a coordinator whose journal is lost."""
    heard = max((member.heard_order for member in state.members.values()), default=0)
    return max(len(state.orders), heard, state.orders[-1].number if state.orders else 0) + 1
