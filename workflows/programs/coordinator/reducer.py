"""Everything the coordinator decides, as a pure function (state, event) -> (state, effects).

`restarts` decides whether ranks restart inside their pods; `hangs` watches over time and sends its findings as events.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

from workflows.programs.coordinator.progress import PROVEN, StepRow, after_end, apply_report
from workflows.programs.coordinator.restarts import (
    ask_for_stacks,
    handle_failure,
    handle_hang,
    handle_proof,
    is_due,
    set_right,
    settle,
    stop_gang,
)
from workflows.programs.coordinator.state import (
    FINAL_STATES,
    Announce,
    AppendMoment,
    AppendStep,
    Effect,
    Event,
    HangConfirmed,
    HangSuspected,
    Key,
    LauncherJoined,
    MeetingPublished,
    Member,
    Order,
    PodCleared,
    RefusedError,
    ReplaceStep,
    ReportsReceived,
    RightChanged,
    RoleSize,
    State,
    StopRequested,
    TimePassed,
    Transition,
    WindowClosed,
)
from workflows.programs.runtime.flags import replace
from workflows.programs.runtime.last_words import last_words
from workflows.wire import CheckpointSeen, PhaseSeen, RankEnd, StepSeen

KEPT_LINES = 20
"""Last lines of a failed rank that the coordinator keeps; the pod's own record has all of them."""
KEPT_ENDS_WITH_LINES = 64
"""When a thousand ranks fail together the first ones tell the story."""


def advance(state: State, event: Event) -> Transition:
    """The next state and its effects.

    Raises:
        RefusedError: the event is not possible; the state stays as it was.
    """
    if isinstance(event, LauncherJoined):
        return _join(state, event)
    if isinstance(event, MeetingPublished):
        return _publish(state, event)
    if isinstance(event, ReportsReceived):
        return _take_reports(state, event)
    if isinstance(event, PodCleared):
        return _clear(state, event)
    return _advance_by_decision(state, event)


def _advance_by_decision(
    state: State, event: Union[TimePassed, WindowClosed, HangSuspected, HangConfirmed, RightChanged, StopRequested]
) -> Transition:
    """The transition for time, findings and requests of the flow."""
    if isinstance(event, TimePassed):
        return settle(state, event.at) if is_due(state, event.at) else Transition(state)
    if isinstance(event, WindowClosed):
        return Transition(state)  # only the gang's statistics use votes
    if isinstance(event, HangSuspected):
        return ask_for_stacks(state, event)
    if isinstance(event, HangConfirmed):
        return handle_hang(state, event)
    if isinstance(event, RightChanged):
        return set_right(state, event)
    return stop_gang(state, event.why, event.save, None)


def meeting_of(state: State, role: str, pod_index: Optional[int] = None) -> Optional[Dict[str, Any]]:
    """The rendezvous of the ranks of `role`, as JSON; None while a pod or the address is missing.

    The assignments name the first rank of `pod_index` only; None: of every pod (a gang may have thousands).
    """
    size, published = state.sizes.get(role), state.meetings.get(role)
    if published is None or size is None or size.joined < size.pods:
        return None
    if state.restarts_together(role) and state.incarnation > 1 and state.cleared_pods < state.pods_together:
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
    """Orders for this launcher with a number above `since`."""
    orders = [order for order in state.orders if order.number > since and order.source != key]
    return [order for order in orders if not order.roles or key[0] in order.roles]


def _size(state: State, member: Member) -> RoleSize:
    """The size of the member's role with the member in it."""
    before = state.sizes.get(member.role, RoleSize(0, 0, 0))
    joined = before.joined + (member.key not in state.members)
    if member.role == state.deciding_role:
        return RoleSize(joined, state.pods, state.processes)
    return RoleSize(joined, max(before.pods, member.pods), max(before.processes, member.processes))


def _announce_if_complete(state: State, role: str) -> Tuple[Effect, ...]:
    return (Announce(role),) if meeting_of(state, role, 0) is not None else ()


def _join(state: State, event: LauncherJoined) -> Transition:
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
    state = replace(state, members=state.members.with_value(member.key, member), sizes=sizes)
    if state.restarts_together(member.role) and event.member.incarnation > state.incarnation:
        # The journal was lost: the launcher's incarnation is right, and the known rendezvous is out of date.
        meetings = {role: meeting for role, meeting in state.meetings.items() if not state.restarts_together(role)}
        state = replace(state, incarnation=event.member.incarnation, meetings=meetings, cleared_pods=0)
    return Transition(state, _announce_if_complete(state, member.role))


def _clear(state: State, event: PodCleared) -> Transition:
    member = state.members.get(event.key)
    if member is None:
        raise RefusedError(404, f"{event.key[0]} {event.key[1]} has not joined")
    if event.incarnation != state.incarnation:
        raise RefusedError(409, f"incarnation {event.incarnation} is not this one, which is {state.incarnation}")
    if not state.restarts_together(member.role) or member.cleared >= event.incarnation:
        return Transition(state)
    members = state.members.with_value(event.key, replace(member, cleared=event.incarnation))
    state = replace(state, members=members, cleared_pods=state.cleared_pods + 1)
    roles = (state.deciding_role, *state.companions)
    return Transition(state, tuple(effect for role in roles for effect in _announce_if_complete(state, role)))


def _publish(state: State, event: MeetingPublished) -> Transition:
    published = event.meeting.incarnation
    if published > state.incarnation or (state.restarts_together(event.role) and published != state.incarnation):
        raise RefusedError(409, f"incarnation {published} is not this one, which is {state.incarnation}")
    meetings = {**state.meetings, event.role: event.meeting}
    state = replace(state, meetings=meetings)
    return Transition(state, _announce_if_complete(state, event.role))


def _take_reports(state: State, event: ReportsReceived) -> Transition:
    member = state.members.get(event.key)
    if member is None:
        raise RefusedError(404, f"{event.key[0]} {event.key[1]} has not joined")
    if event.sequence <= member.sequence and not event.posted:
        return Transition(state)
    running = event.state == "running"
    if running and _is_of_other_incarnation(state, member, event.incarnation):
        member = replace(member, sequence=event.sequence)  # the report is about ranks that were killed meanwhile
    else:
        member = replace(
            member,
            sequence=max(member.sequence, event.sequence),
            state=event.state or member.state,
            pids=event.pids or member.pids,
            started_at=event.at if running and member.started_at is None else member.started_at,
        )
    state = replace(state, members=state.members.with_value(event.key, member))
    effects: List[Effect] = []
    for report in event.reports:
        following = _take_report(state, member, report, event.at)
        state = following.state
        effects += following.effects
    following = _leave(state, member, event)
    return Transition(following.state, (*effects, *following.effects))


def _is_of_other_incarnation(state: State, member: Member, incarnation: int) -> bool:
    """Whether the incarnation is an old one, or one that nobody ordered."""
    return state.restarts_together(member.role) and incarnation != state.incarnation


def _take_report(state: State, member: Member, report: Any, at: float) -> Transition:
    if isinstance(report, StepSeen) and member.role == state.deciding_role and _is_late_step(state, report):
        return _take_late_step(state, report)
    if not isinstance(report, CheckpointSeen) and _is_of_other_incarnation(
        state, member, getattr(report, "incarnation", 1)
    ):
        return Transition(state)
    if isinstance(report, RankEnd):
        return _end_rank(state, member, report, at)
    if member.role != state.deciding_role or not isinstance(report, (StepSeen, PhaseSeen, CheckpointSeen)):
        return Transition(state)
    learned = apply_report(state.progress, report)
    effects: List[Effect] = [AppendMoment(moment) for moment in learned.moments]
    if learned.row is not None:
        effects.append(ReplaceStep(learned.row) if learned.replaces_last else AppendStep(learned.row))
        state = _note_first_step(state, learned.row)
    if learned.progress is not state.progress:  # most reports change nothing
        state = replace(state, progress=learned.progress)
    if not isinstance(report, CheckpointSeen) or report.verdict not in PROVEN:
        return Transition(state, tuple(effects))
    decided = handle_proof(_correct_resume_step(state), at)
    return Transition(decided.state, (*effects, *decided.effects))


def _is_late_step(state: State, report: StepSeen) -> bool:
    """Whether ranks completed this step before a restart killed them, while the report arrived after it.

    Launchers batch reports that are not urgent. The step counts as rolled back, since it is done again.
    """
    known, last = state.progress, state.restarts[-1] if state.restarts else None
    before = last is not None and report.incarnation == known.incarnation == state.incarnation - 1
    newer = known.step is not None and report.step > known.step
    return before and newer and report.rank == known.reporting_rank and last is not None and report.at <= last.at


def _take_late_step(state: State, report: StepSeen) -> Transition:
    """The step is a row as any other; of the ranks that begin again it says nothing."""
    known = state.progress
    learned = apply_report(known, report)
    progress = replace(learned.progress, phase=known.phase, phase_at=known.phase_at)
    last = replace(state.restarts[-1], step=report.step)
    state = replace(state, progress=progress, restarts=(*state.restarts[:-1], last))
    return Transition(state, () if learned.row is None else (AppendStep(learned.row),))


def _note_first_step(state: State, row: StepRow) -> State:
    """Note the first step after a restart in place in its record: it proves what was resumed."""
    if not state.restarts or state.restarts[-1].first_step is not None:
        return state
    last = replace(state.restarts[-1], first_step=row[0], first_step_at=row[1])
    return _correct_resume_step(replace(state, restarts=(*state.restarts[:-1], last)))


def _correct_resume_step(state: State) -> State:
    """Correct the resumed step: programs that look for the newest checkpoint may find one proven after our choice."""
    last = state.restarts[-1] if state.restarts else None
    if last is None or last.first_step is None or last.first_step - 1 <= (last.resume_step or 0):
        return state
    taken = [one for one in state.progress.checkpoints if one.step == last.first_step - 1 and one.verdict == "pass"]
    if not taken:
        return state
    last = replace(last, resume_step=taken[-1].step, resume_from=taken[-1].resume_from or taken[-1].path)
    return replace(state, restarts=(*state.restarts[:-1], last))


def _end_rank(state: State, member: Member, end: RankEnd, at: float) -> Transition:
    well = end.requested or (end.exit_code == 0 and end.signal is None)
    lines = [] if well or len(state.rank_ends) >= KEPT_ENDS_WITH_LINES else end.last_lines[-KEPT_LINES:]
    state = replace(state, rank_ends=(*state.rank_ends, replace(end, last_lines=lines)))
    if well and not end.requested and member.role == state.deciding_role:
        state = replace(state, progress=after_end(state.progress, end.rank))
    if well or not member.essential:
        return Transition(state)
    how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
    why = f"rank {end.rank} of {member.pod or member.role} ended with {how}{last_words(end)}"
    return handle_failure(state, member, end, why, at)


def _is_missing(state: State, member: Member, said: str) -> bool:
    """Whether a pod ended whose ranks should restart: the others would wait for it in vain."""
    again = bool(state.restarts) and not state.is_stopping
    return said == "ended" and again and (state.restarts_together(member.role) and member.cleared < state.incarnation)


def _leave(state: State, member: Member, event: ReportsReceived) -> Transition:
    """Stop the gang with a pod that leaves: with a last save while the pod is still able to, else at once."""
    if not member.essential or not (event.state in ("leaving", "failed") or _is_missing(state, member, event.state)):
        return Transition(state)
    return stop_gang(state, f"{member.pod or member.role}: {event.why}", event.state == "leaving", member.key)
