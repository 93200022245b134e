"""The coordinator's mind: everything it decides, as a pure function (state, event) -> (state, effects).

Whether ranks begin again inside their pods is decided in `coordination_restart`; what is found out by watching over
time (hangs) comes as events from `coordination_hang`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from workflows.programs.coordinator.progress import PROVEN, StepRow, learn
from workflows.programs.coordinator.restarts import due, failed, hung, proven, right_said, settle, stopped, suspected
from workflows.programs.coordinator.state import (
    FINAL_STATES,
    Announce,
    AppendMoment,
    AppendStep,
    Cleared,
    Effect,
    Event,
    HangFound,
    Joined,
    Key,
    Member,
    Next,
    Order,
    Published,
    RefusedError,
    ReplaceStep,
    Reported,
    RightSaid,
    RoleSize,
    State,
    StopAsked,
    Suspected,
    Ticked,
    Voted,
)
from workflows.programs.runtime.flags import replace
from workflows.wire import CheckpointSeen, PhaseSeen, RankEnd, StepSeen

KEPT_LINES = 20
"""Last lines of a failed rank that the coordinator remembers; all of them are in the pod's own record."""
KEPT_ENDS_WITH_LINES = 64
"""When a thousand ranks fail together the first ones tell the story."""


def advance(state: State, event: Event) -> Next:
    """The next state and its effects.

    Raises:
        RefusedError: the event is not possible; the state stays as it was.
    """
    if isinstance(event, Joined):
        return _joined(state, event)
    if isinstance(event, Published):
        return _published(state, event)
    if isinstance(event, Reported):
        return _reported(state, event)
    if isinstance(event, Cleared):
        return _cleared(state, event)
    return _decided(state, event)


def _decided(state: State, event: Union[Ticked, Voted, Suspected, HangFound, RightSaid, StopAsked]) -> Next:
    """What follows from time, from what was found out, and from the flow's word."""
    if isinstance(event, Ticked):
        return settle(state, event.at) if due(state, event.at) else Next(state)
    if isinstance(event, Voted):
        return Next(state)  # what a vote says concerns the numbers of the gang alone
    if isinstance(event, Suspected):
        return suspected(state, event)
    if isinstance(event, HangFound):
        return hung(state, event)
    if isinstance(event, RightSaid):
        return right_said(state, event)
    return stopped(state, event.why, event.save, None)


def meeting_of(state: State, role: str, pod_index: Optional[int] = None) -> Optional[Dict[str, Any]]:
    """What the ranks of `role` need to meet; None while a pod is missing or nobody has published the address.

    Args:
        state: what is known.
        role: whose gang.
        pod_index: only this pod's first rank is named; None: all (a gang may have thousands).
    """
    size, published = state.sizes.get(role), state.meetings.get(role)
    if published is None or size is None or size.joined < size.pods:
        return None
    if state.together(role) and state.incarnation > 1 and state.cleared < state.pods_together:
        return None  # ranks of two incarnations must never live at the same time
    first = state.first_pod if role == state.deciding_role else 0
    indexes = range(first, first + size.pods) if pod_index is None else [pod_index]
    return {
        "incarnation": published.incarnation,
        "master_addr": published.address,
        "master_port": published.port,
        "world_size": size.pods * size.processes,
        "assignments": {str(index): index * size.processes for index in indexes},
    }


def orders_for(state: State, key: Key, since: int) -> List[Order]:
    """Orders after number `since` that concern this launcher."""
    orders = [order for order in state.orders if order.number > since and order.source != key]
    return [order for order in orders if not order.roles or key[0] in order.roles]


def _size(state: State, member: Member) -> RoleSize:
    """The size of the member's role with the member in it."""
    before = state.sizes.get(member.role, RoleSize(0, 0, 0))
    joined = before.joined + (member.key not in state.members)
    if member.role == state.deciding_role:
        return RoleSize(joined, state.pods, state.processes)
    return RoleSize(joined, max(before.pods, member.pods), max(before.processes, member.processes))


def _complete(state: State, role: str) -> Tuple[Effect, ...]:
    return (Announce(role),) if meeting_of(state, role, 0) is not None else ()


def _joined(state: State, event: Joined) -> Next:
    member = event.member
    known = state.members.get(member.key)
    if known is not None and known.pod != member.pod and known.state not in FINAL_STATES:
        raise RefusedError(409, f"{member.role} {member.pod_index} is pod {known.pod}, not {member.pod}")
    if member.pod_index < 0:
        raise RefusedError(409, f"{member.role} {member.pod_index}: pods are counted from 0")
    if member.role == state.deciding_role and not 0 <= member.pod_index - state.first_pod < state.pods:
        last = state.first_pod + state.pods - 1
        raise RefusedError(409, f"{member.role} {member.pod_index}: the gang has pods {state.first_pod} to {last}")
    if known is not None and known.pod == member.pod:
        heard = max(known.heard_order, member.heard_order)
        member = replace(known, node=member.node, address=member.address, heard_order=heard)
    sizes = {**state.sizes, member.role: _size(state, member)}
    state = replace(state, members=state.members.with_(member.key, member), sizes=sizes)
    if state.together(member.role) and event.member.incarnation > state.incarnation:
        # Our memory was lost: the launcher knows better, and where its gang meets is past.
        meetings = {role: meeting for role, meeting in state.meetings.items() if not state.together(role)}
        state = replace(state, incarnation=event.member.incarnation, meetings=meetings, cleared=0)
    return Next(state, _complete(state, member.role))


def _cleared(state: State, event: Cleared) -> Next:
    member = state.members.get(event.key)
    if member is None:
        raise RefusedError(404, f"{event.key[0]} {event.key[1]} has not joined")
    if event.incarnation != state.incarnation:
        raise RefusedError(409, f"incarnation {event.incarnation} is not this one, which is {state.incarnation}")
    if not state.together(member.role) or member.cleared >= event.incarnation:
        return Next(state)
    members = state.members.with_(event.key, replace(member, cleared=event.incarnation))
    state = replace(state, members=members, cleared=state.cleared + 1)
    roles = (state.deciding_role, *state.companions)
    return Next(state, tuple(effect for role in roles for effect in _complete(state, role)))


def _published(state: State, event: Published) -> Next:
    published = event.meeting.incarnation
    if published > state.incarnation or (state.together(event.role) and published != state.incarnation):
        raise RefusedError(409, f"incarnation {published} is not this one, which is {state.incarnation}")
    meetings = {**state.meetings, event.role: event.meeting}
    state = replace(state, meetings=meetings)
    return Next(state, _complete(state, event.role))


def _reported(state: State, event: Reported) -> Next:
    member = state.members.get(event.key)
    if member is None:
        raise RefusedError(404, f"{event.key[0]} {event.key[1]} has not joined")
    if event.sequence <= member.sequence and not event.posted:
        return Next(state)
    running = event.state == "running"
    if running and _other(state, member, event.incarnation):
        member = replace(member, sequence=event.sequence)  # of ranks that were killed meanwhile
    else:
        member = replace(
            member,
            sequence=max(member.sequence, event.sequence),
            state=event.state or member.state,
            pids=event.pids or member.pids,
            started_at=event.at if running and member.started_at is None else member.started_at,
        )
    state = replace(state, members=state.members.with_(event.key, member))
    effects: List[Effect] = []
    for report in event.reports:
        following = _one_report(state, member, report, event.at)
        state = following.state
        effects += following.effects
    following = _left(state, member, event)
    return Next(following.state, (*effects, *following.effects))


def _old(state: State, member: Member, incarnation: int) -> bool:
    """Whether something is about ranks that were killed for a restart in place."""
    return state.together(member.role) and incarnation < state.incarnation


def _other(state: State, member: Member, incarnation: int) -> bool:
    """The same, or about ranks of a restart that nobody has ordered."""
    return state.together(member.role) and incarnation != state.incarnation


def _one_report(state: State, member: Member, report: Any, at: float) -> Next:
    if isinstance(report, StepSeen) and member.role == state.deciding_role and _told_late(state, report):
        return _late_step(state, report)
    if not isinstance(report, CheckpointSeen) and _other(state, member, getattr(report, "incarnation", 1)):
        return Next(state)
    if isinstance(report, RankEnd):
        return _rank_ended(state, member, report, at)
    if member.role != state.deciding_role or not isinstance(report, (StepSeen, PhaseSeen, CheckpointSeen)):
        return Next(state)
    learned = learn(state.progress, report)
    effects: List[Effect] = [AppendMoment(moment) for moment in learned.moments]
    if learned.row is not None:
        effects.append(ReplaceStep(learned.row) if learned.again else AppendStep(learned.row))
        state = _went_on(state, learned.row)
    if learned.progress is not state.progress:  # most ranks say nothing new
        state = replace(state, progress=learned.progress)
    if not isinstance(report, CheckpointSeen) or report.verdict not in PROVEN:
        return Next(state, tuple(effects))
    decided = proven(_resumed_further(state), at)
    return Next(decided.state, (*effects, *decided.effects))


def _told_late(state: State, report: StepSeen) -> bool:
    """Whether ranks completed a step before they were killed to begin again, and their launcher says so after that.

    Launchers gather for a moment what is not urgent. What was done, and is to be done again, counts as rolled back.
    """
    known, last = state.progress, state.restarts[-1] if state.restarts else None
    before = last is not None and report.incarnation == known.incarnation == state.incarnation - 1
    newer = known.step is not None and report.step > known.step
    return before and newer and report.rank == known.reporting_rank and last is not None and report.at <= last.at


def _late_step(state: State, report: StepSeen) -> Next:
    """The step is a row as any other; of the ranks that begin again it says nothing."""
    known = state.progress
    learned = learn(known, report)
    progress = replace(learned.progress, phase=known.phase, phase_at=known.phase_at)
    last = replace(state.restarts[-1], step=report.step)
    state = replace(state, progress=progress, restarts=(*state.restarts[:-1], last))
    return Next(state, () if learned.row is None else (AppendStep(learned.row),))


def _went_on(state: State, row: StepRow) -> State:
    """The first step after a restart in place is noted with it: the proof of what was resumed."""
    if not state.restarts or state.restarts[-1].first_step is not None:
        return state
    last = replace(state.restarts[-1], first_step=row[0], first_step_at=row[1])
    return _resumed_further(replace(state, restarts=(*state.restarts[:-1], last)))


def _resumed_further(state: State) -> State:
    """Programs that look for the newest checkpoint themselves may take one that was proven only after the choice."""
    last = state.restarts[-1] if state.restarts else None
    if last is None or last.first_step is None or last.first_step - 1 <= (last.resume_step or 0):
        return state
    taken = [one for one in state.progress.checkpoints if one.step == last.first_step - 1 and one.verdict == "pass"]
    if not taken:
        return state
    last = replace(last, resume_step=taken[-1].step, resume_from=taken[-1].resume_from or taken[-1].path)
    return replace(state, restarts=(*state.restarts[:-1], last))


def _rank_ended(state: State, member: Member, end: RankEnd, at: float) -> Next:
    well = end.requested or (end.exit_code == 0 and end.signal is None)
    lines = [] if well or len(state.ended) >= KEPT_ENDS_WITH_LINES else end.last_lines[-KEPT_LINES:]
    state = replace(state, ended=(*state.ended, replace(end, last_lines=lines)))
    if well or not member.essential:
        return Next(state)
    how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
    return failed(state, member, end, f"rank {end.rank} of {member.pod or member.role} ended with {how}", at)


def _missed(state: State, member: Member, said: str) -> bool:
    """Whether a pod has ended in which ranks should begin again: the others would wait for it in vain."""
    again = bool(state.restarts) and not state.stopping
    return said == "ended" and again and _old(state, member, member.cleared)


def _left(state: State, member: Member, event: Reported) -> Next:
    """A pod that goes takes the gang with it: saving together where it still can, at once where it cannot."""
    if not member.essential or not (event.state in ("leaving", "failed") or _missed(state, member, event.state)):
        return Next(state)
    return stopped(state, f"{member.pod or member.role}: {event.why}", event.state == "leaving", member.key)
