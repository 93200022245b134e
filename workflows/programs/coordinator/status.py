"""What the coordinator answers to `GET /status`. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from workflows.programs.coordinator import saves as coordinator_saves
from workflows.programs.coordinator.state import Key, Member, State
from workflows.status import CoordinatorStatus, FirstStep, MemberStatus, Right, SavesStatus


def status(state: State, heard: Mapping[Key, float], environment: Mapping[str, str], now: float) -> CoordinatorStatus:
    """The coordinator's state, without hangs and the statistics of steps.

    `heard` has the Unix time of each launcher's last request; `now` (Unix time) is for readers whose clock differs.
    """
    progress = state.progress
    first = progress.first_step
    return CoordinatorStatus(
        run=environment.get("PRIMUS_RUN", ""),
        attempt=int(environment.get("PRIMUS_ATTEMPT", "") or 0),
        incarnation=state.incarnation,
        members=[_member(state, one, heard.get(one.key, 0.0)) for one in state.members.values()],
        step=progress.step,
        steps=state.steps or None,
        loss=json_number(progress.loss),
        first_step=None if first is None else FirstStep(*first),
        steps_per_second=progress.steps_per_second,
        step_interval=progress.interval,
        first_nan_step=progress.first_nan_step,
        last_checkpoint_step=progress.last_checkpoint_step,
        checkpoints=list(progress.checkpoints),
        removed=list(progress.removed),
        saves=saves(state),
        unrecognised=progress.unrecognised,
        ended=list(state.rank_ends),
        phase=progress.phase,
        phase_at=progress.phase_at,
        orders=[order.to_json() for order in state.orders],
        restarts=list(state.restarts),
        right=Right(
            state.restarts_lent, state.restarts_left(now), state.window_seconds or None, state.scope, state.withheld
        ),
        recent_steps=[list(row[:3]) for row in progress.recent],
        started_at=state.started_at,
        launched_at=state.launched_at,
        now=now,
    )


def saves(state: State) -> SavesStatus:
    """How far the newest saves are, what they cost and how often to save."""
    progress = state.progress
    advice = coordinator_saves.advice_for(progress.saves, progress.step_seconds, state.mttf_seconds)
    return coordinator_saves.status_of(progress.saves, advice)


def node_of_rank(state: State, rank: int) -> str:
    """Node of a rank of the gang; "": not known."""
    member = state.members.get((state.deciding_role, rank // state.processes))
    return "" if member is None else member.place


def json_number(value: Optional[float]) -> Any:
    """A number for JSON: NaN and infinities become strings."""
    return value if value is None or value - value == 0 else str(value)


def _member(state: State, member: Member, heard_at: float) -> MemberStatus:
    processes = state.processes if member.role == state.deciding_role else member.processes
    first = member.pod_index * processes
    return MemberStatus(
        role=member.role,
        pod_index=member.pod_index,
        pod=member.pod,
        node=member.node,
        address=member.address,
        state=member.state,
        last_heard_at=heard_at,
        ranks=list(range(first, first + processes)),
        pids=dict(member.pids),
    )
