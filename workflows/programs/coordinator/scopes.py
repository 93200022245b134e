"""All gangs of an attempt under one coordinator, and what an event of one means for the others. Pure.

The ranks of a gang share a rendezvous and restart together. A gang is the whole attempt, one role, or one replica
group, as the profile's `recovery.in_place_scope` says, and each has a `State` of its own.

    gang      one gang; the other roles without which it cannot go on are its companions
    role      a gang for each such role
    replica   a gang for each replica group of the deciding role, and for each other such role

Gangs share the budget of restarts in place, the checkpoints (one pod proves them), and the end: where one has to stop,
all do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, NamedTuple, Sequence, Tuple

from workflows.programs.coordinator.members import Members
from workflows.programs.coordinator.progress import PROVEN, Progress, apply_report
from workflows.programs.coordinator.reducer import advance
from workflows.programs.coordinator.restarts import handle_proof, stop_gang
from workflows.programs.coordinator.state import (
    GANG,
    REPLICA,
    ROLE,
    Announce,
    Effect,
    Event,
    Key,
    LauncherJoined,
    MeetingPublished,
    Member,
    RefusedError,
    ReportsReceived,
    RightChanged,
    State,
    StopRequested,
)
from workflows.programs.runtime.flags import replace
from workflows.status import RestartInPlace
from workflows.wire import CheckpointSeen


class RoleShape(NamedTuple):
    """Pods of a role, and ranks in each."""

    role: str
    pods: int
    processes: int

    @classmethod
    def read(cls, text: str) -> RoleShape:
        """From `role:pods:processes`; raises ValueError for anything else."""
        role, pods, processes = text.split(":")
        shape = cls(role, int(pods), int(processes))
        if not role or shape.pods < 1 or shape.processes < 1:
            raise ValueError(text)
        return shape

    def __str__(self) -> str:
        return f"{self.role}:{self.pods}:{self.processes}"


@dataclass(frozen=True)
class Layout:
    """Which gangs there are."""

    deciding_role: RoleShape
    others: Tuple[RoleShape, ...] = ()
    """Other roles without which the attempt cannot continue."""
    scope: str = GANG
    replica_groups: int = 1
    """Equal parts of the deciding role, each with a rendezvous of its own."""


@dataclass(frozen=True)
class Gangs:
    """The states of all gangs."""

    states: Tuple[State, ...]
    """Gangs of the deciding role first, in the order of their pods. There is at least one."""
    training: int = 1
    """Number of gangs that train; only those are watched for progress, hangs and slow ranks."""

    @property
    def main(self) -> State:
        """The first one."""
        return self.states[0]

    def index_of(self, key: Key) -> int:
        """Index of the gang to which a launcher belongs; 0 for roles that belong to none."""
        role, index = key
        if len(self.states) == 1:
            return 0
        if role == self.main.deciding_role:
            return min(max(0, index) // self.main.pods, self.training - 1)
        others = (place for place, one in enumerate(self.states) if one.deciding_role == role)
        return next(others, 0)

    def of(self, key: Key) -> State:
        """The gang to which a launcher belongs."""
        return self.states[self.index_of(key)]

    @property
    def trainers(self) -> Tuple[State, ...]:
        """Gangs that train."""
        return self.states[: self.training]


class GangsTransition(NamedTuple):
    """What follows from an event."""

    gangs: Gangs
    gang_index: int
    """Of the gang that it is about; -1: of all."""
    effects: Tuple[Effect, ...]
    """In that gang."""


def build_gangs(layout: Layout, like: State) -> Gangs:
    """The gangs of an attempt to which nothing has happened.

    `like` has everything that they have in common.
    """
    role, pods, processes = layout.deciding_role
    groups = layout.replica_groups if layout.scope == REPLICA else 1
    each = pods // groups
    companions = tuple(one.role for one in layout.others) if layout.scope == GANG else ()
    states = [
        replace(
            like,
            deciding_role=role,
            pods=each,
            processes=processes,
            first_pod=group * each,
            companions=companions,
            share=1.0 / groups,
            scope=layout.scope if layout.others or groups > 1 else ROLE,
        )
        for group in range(groups)
    ]
    for one in layout.others if not companions else ():
        shape = {"deciding_role": one.role, "pods": one.pods, "processes": one.processes}
        states.append(replace(like, scope=ROLE, share=0.0, **shape))
    return Gangs(tuple(states), groups)


def advance_all(gangs: Gangs, event: Event) -> GangsTransition:
    """The next state of every gang; raises RefusedError, with nothing changed, for an impossible event."""
    if isinstance(event, (StopRequested, RightChanged)):
        following = [advance(state, event) for state in gangs.states]
        effects = tuple(effect for one in following for effect in one.effects)
        return GangsTransition(_with_states(gangs, [one.state for one in following]), -1, effects)
    place = gang_index(gangs, event)
    before = gangs.states[place]
    state, effects = advance(before, event)
    if state is before:
        return GangsTransition(gangs, place, effects)
    states = [*gangs.states]
    states[place] = state
    if len(states) > 1:
        if isinstance(event, ReportsReceived):
            _share_checkpoints(event, states, place)
        _tell_others(gangs.states, states)
        if any(now.orders != was.orders for now, was in zip(states, gangs.states)):  # noqa: B905 - 3.10
            effects = (*effects, Announce(gangs.main.deciding_role))  # wakes polls for orders of other gangs
    return GangsTransition(_with_states(gangs, states), place, effects)


def gang_index(gangs: Gangs, event: Event) -> int:
    """Index of the gang that an event is about; raises RefusedError where there is none."""
    if isinstance(event, LauncherJoined):
        return gangs.index_of(event.member.key)
    if isinstance(event, MeetingPublished):
        return gangs.index_of((event.role, event.pod_index))
    key: Key = getattr(event, "key", ("", 0))
    if key[0]:
        return gangs.index_of(key)
    place = int(getattr(event, "gang", 0))
    if not 0 <= place < len(gangs.states):
        raise RefusedError(409, f"there are {len(gangs.states)} gangs, and none has number {place}")
    return place


def all_restarts(gangs: Gangs) -> List[RestartInPlace]:
    """Restarts in place of all gangs, in order."""
    return sorted((one for state in gangs.states for one in state.restarts), key=lambda one: one.number)


def merge_gangs(gangs: Gangs) -> State:
    """All gangs as one state, for readers: the furthest progress, and the events of all."""
    if len(gangs.states) == 1:
        return gangs.main
    states, used = gangs.states, all_restarts(gangs)
    forgotten = sum(state.incarnation - 1 - len(state.restarts) for state in states)
    return replace(
        gangs.main,
        pods=sum(one.pods for one in gangs.trainers),
        members=Members[Member].of(pair for state in states for pair in state.members.items()),
        progress=_progress_of_furthest(gangs),
        rank_ends=tuple(end for state in states for end in state.rank_ends),
        restarts=tuple(used),
        restarts_elsewhere=(),
        incarnation=1 + len(used) + forgotten,
    )


def _progress_of_furthest(gangs: Gangs) -> Progress:
    """Progress of the furthest gang, with the earliest first step of all."""
    known = [one.progress for one in gangs.trainers]
    firsts = [one.first_step for one in known if one.first_step is not None]
    nans = [one.first_nan_step for one in known if one.first_nan_step is not None]
    best = max(known, key=lambda one: -1 if one.step is None else one.step)
    first = min(firsts, key=lambda one: one[1], default=None)
    return replace(best, first_step=first, first_nan_step=min(nans, default=None))


def _share_checkpoints(event: ReportsReceived, states: List[State], place: int) -> None:
    """Pass reports on checkpoints to the other gangs: one pod proves them, and all gangs resume from them."""
    for report in event.reports:
        if not isinstance(report, CheckpointSeen):
            continue
        for other, one in enumerate(states):
            if other != place:
                known = replace(one, progress=apply_report(one.progress, report).progress)
                states[other] = handle_proof(known, event.at).state if report.verdict in PROVEN else known


def _tell_others(before: Sequence[State], states: List[State]) -> None:
    """Pass one gang's restarts and its end to the other gangs."""
    for place, state in enumerate([*states]):
        newly = state.restarts[len(before[place].restarts) :]
        ended = state.is_stopping and not before[place].is_stopping
        stop = next(one for one in state.orders if one.is_stop) if ended else None
        for other, one in enumerate(states):
            if other == place:
                continue
            after = replace(one, restarts_elsewhere=(*one.restarts_elsewhere, *newly)) if newly else one
            states[other] = after if stop is None else stop_gang(after, stop.why, stop.save, None).state


def _with_states(gangs: Gangs, states: Sequence[State]) -> Gangs:
    return replace(gangs, states=tuple(states))
