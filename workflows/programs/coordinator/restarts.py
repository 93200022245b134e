"""Restart in place: whether ranks that failed are started again inside their pods, and from which checkpoint. Pure.

The flow lends an attempt so many restarts. One is used where a process was killed, not where a program ended with an
error: that the flow diagnoses; and where the gang is hung (`coordination_hang` finds that out and names who keeps it
waiting). Ranks that notice the death of another raise exceptions, often before the death itself is reported, so a
failure waits `SETTLE_SECONDS` for a better reason. Whatever speaks against it ends the attempt.
"""

from __future__ import annotations

import signal
from typing import List, NamedTuple, Optional, Tuple

from workflows.programs.coordinator.progress import restarted
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
    HangFound,
    Key,
    Member,
    Next,
    Order,
    Resume,
    RightSaid,
    Settling,
    State,
    Suspected,
)
from workflows.programs.runtime.flags import replace
from workflows.status import RestartInPlace
from workflows.wire import CheckpointSeen, RankEnd

SETTLE_SECONDS = 0.3
"""Survivors of a broken exchange raise within milliseconds; a large process takes longer to be gone, and on a busy
machine its launcher takes longer to say so. Only programs that ended with an error wait so long."""
PROOF_SECONDS = 1.0
"""A save that was told just before is worth waiting for: its proof takes a moment, going back further takes all the
steps since the one before. One that takes longer to be read is not waited for."""
KILLED = frozenset(
    map(int, (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSEGV, signal.SIGBUS))
)
"""Signals that come from outside, or from memory that has gone bad. Not SIGABRT: a program sends it to itself."""


def killed(end: RankEnd) -> bool:
    """Whether a rank looks as if it was killed from outside, and not for its memory."""
    return end.signal in KILLED and not end.requested and not end.oom_killed


def stopped(state: State, why: str, save: bool, source: Optional[Key]) -> Next:
    """The gang is told to stop: once, and once more where it becomes urgent."""
    if any(order.stops and (not order.save or save) for order in state.orders):
        return Next(state)
    order = Order(_next_number(state), why, save, source)
    return Next(replace(state, orders=(*state.orders, order), settling=None), (GiveOrder(order),))


def failed(state: State, member: Member, end: RankEnd, why: str, at: float) -> Next:
    """What follows from the wrong end of a rank of an essential pod.

    Args:
        state: with the end in it.
        member: its pod.
        end: how the rank ended.
        why: the same in words.
        at: Unix time in seconds when it was told.
    """
    if not state.restarts_lent or not state.together(member.role):
        return stopped(state, why, False, member.key)
    if state.stopping:
        # Its launcher holds for an order, and has to hear of the end as all others have.
        return stopped(state, why, False, None)
    before = state.settling or Settling(at + SETTLE_SECONDS, (), at + PROOF_SECONDS)
    state = replace(state, settling=replace(before, failures=(*before.failures, Failure(member.key, end, why))))
    # A reason that cannot get better, or a right that is used up, needs no waiting.
    return settle(state, at) if killed(end) or end.oom_killed or not state.restarts_left(at) else Next(state)


def proven(state: State, at: float) -> Next:
    """A checkpoint was proven: a decision that has waited for it is made."""
    waits = state.settling is not None and state.settling.until >= state.settling.latest
    return settle(state, at) if waits else Next(state)


def due(state: State, at: float) -> bool:
    """Whether failures have waited long enough."""
    return state.settling is not None and at >= state.settling.until


def settle(state: State, at: float) -> Next:
    """Decide on the failures that wait: ranks begin again, or the attempt ends."""
    if state.settling is None:
        return Next(state)
    failures = state.settling.failures
    culprit = next((one for one in failures if killed(one.end)), failures[0])
    place, role = state.members[culprit.key].place, culprit.key[0]
    cause = Cause(RANK_FAILED, culprit.why, culprit.end.rank, place, role=role)
    choice = choose(state)
    against = _unlike_a_kill(failures, culprit) or _against(state, cause, choice, at)
    if against or choice is None:
        return stopped(state, f"{culprit.why}{against and '; not restarted in place: '}{against}", False, None)
    if state.progress.unproven and at < state.settling.latest:
        return Next(replace(state, settling=replace(state.settling, until=state.settling.latest)))
    return _restart(state, cause, choice, at)


def suspected(state: State, event: Suspected) -> Next:
    """Launchers are asked where their ranks stand; who goes on with it does so unharmed."""
    if event.incarnation != state.incarnation or state.stopping:
        return Next(state)
    number = _next_number(state)
    order = Order(number, event.why, False, stacks=f"s{number}", roles=(state.deciding_role,))
    # What was asked before interests nobody any more.
    return Next(replace(state, orders=(*(one for one in state.orders if not one.stacks), order)), (GiveOrder(order),))


def right_said(state: State, event: RightSaid) -> Next:
    """The flow takes the right back, or gives it back. Nothing that runs is touched by that."""
    return Next(state if event.withheld == state.withheld else replace(state, withheld=event.withheld))


def hung(state: State, found: HangFound) -> Next:
    """Ranks that hang are killed and begin again; without a right nothing is done, since nothing is lost by waiting."""
    busy = state.stopping or state.settling is not None
    if not state.has_right or busy or found.incarnation != state.incarnation:
        return Next(state)
    cause = Cause(HANG, found.why, found.rank, found.node, found.stacks)
    choice = choose(state)
    against = _against(state, cause, choice, found.at)
    if against or choice is None:
        return stopped(state, f"{cause.why}; not restarted in place: {against}", False, None)
    return _restart(state, cause, choice, found.at)


class Choice(NamedTuple):
    """Where ranks go on."""

    path: str
    """As the trainer is told; "": from scratch."""
    step: Optional[int]


def choose(state: State) -> Optional[Choice]:
    """The newest checkpoint that this attempt wrote and that is proven good, else what the attempt began with.

    A checkpoint that the attempt cannot have written yet lay there before, and whoever chose for the attempt has passed
    it over: after a roll-back it must not come back.

    Returns:
        None where the newest proven one may only be resumed by a new attempt, which looks at the storage itself.
    """
    began = state.members.get(state.first_key)
    start = Choice("", None) if began is None else Choice(began.resume_from, began.resume_step)
    reached = _reached(state)
    newest = {report.step: report for report in state.progress.checkpoints}  # what was said last of each counts
    good = [one for one in newest.values() if _good(one, state.progress.first_nan_step)]
    ours = [one for one in good if one.step > (start.step or 0) and (reached is None or one.step <= reached)]
    if not ours:
        return start
    best = max(ours, key=lambda one: one.step)
    return Choice(best.resume_from, best.step) if best.resume_from else None


def _good(report: CheckpointSeen, first_nan_step: Optional[int]) -> bool:
    return report.verdict == "pass" and (first_nan_step is None or report.step < first_nan_step)


def _reached(state: State) -> Optional[int]:
    """The highest step that a checkpoint of this attempt can have; None where no steps are reported."""
    seen = [state.progress.step, *(one.step for one in state.restarts)]
    known = [step for step in seen if step is not None]
    return max(known) + state.progress.interval if known else None


def _unlike_a_kill(failures: Tuple[Failure, ...], culprit: Failure) -> str:
    """Why ranks that ended should not begin again; "": they look killed."""
    if any(one.end.oom_killed for one in failures):
        return "memory was the reason"
    return "" if killed(culprit.end) else "no rank was killed"


def _against(state: State, cause: Cause, choice: Optional[Choice], at: float) -> str:
    """What speaks against a restart in place; "": nothing."""
    gone = [member for member in state.members.values() if _gone(state, member)]
    used = (*state.restarts, *state.elsewhere)
    again = bool(cause.node) and any(one.node == cause.node for one in used)
    reasons = (
        (bool(state.withheld), state.withheld),
        (not state.restarts_left(at), f"the right is used up ({len(used)} of {state.restarts_lent})"),
        (again, f"it is the second time on {cause.node}"),
        (bool(gone), f"{len(gone)} pods have ended"),
        (choice is None, "only a new attempt can go on from the newest checkpoint"),
    )
    return next((why for holds, why in reasons if holds), "")


def _gone(state: State, member: Member) -> bool:
    return state.together(member.role) and member.state in (*FINAL_STATES, "leaving")


def _restart(state: State, cause: Cause, choice: Choice, at: float) -> Next:
    """The next incarnation: nobody has met yet, nobody runs, and what earlier ranks still say counts no more."""
    incarnation, end = state.incarnation + 1, state.first_pod + state.pods
    restart = RestartInPlace(
        number=len(state.restarts) + len(state.elsewhere) + 1,
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
    )
    resume = Resume(incarnation, choice.path, choice.step)
    order = Order(_next_number(state), cause.why, False, None, resume, roles=(state.deciding_role, *state.companions))
    learned = restarted(state.progress, at)
    state = replace(
        state,
        incarnation=incarnation,
        members=state.members.each(lambda one: _waiting(one) if state.together(one.role) else one),
        meetings={name: meeting for name, meeting in state.meetings.items() if not state.together(name)},
        orders=(*state.orders, order),
        progress=learned.progress,
        ended=(),
        restarts=(*state.restarts, restart),
        settling=None,
        cleared=0,
    )
    effects: List[Effect] = [AppendMoment(moment) for moment in learned.moments]
    return Next(state, (*effects, GiveOrder(order)))


def _waiting(member: Member) -> Member:
    return replace(member, state="joined", pids={}, started_at=None)


def _next_number(state: State) -> int:
    """Higher than every order that a launcher has heard, also from a coordinator whose memory is lost."""
    heard = max((member.heard_order for member in state.members.values()), default=0)
    return max(len(state.orders), heard, state.orders[-1].number if state.orders else 0) + 1
