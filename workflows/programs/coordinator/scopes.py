"""All gangs of an attempt under one coordinator, and what one means for the others. Pure.

A gang is what meets and begins again together, and a `State` of its own: the whole attempt, one role, or one replica
group, as the profile's `recovery.in_place_scope` says.

    gang      one gang; the other roles without which it cannot go on are its companions
    role      a gang for each such role
    replica   a gang for each replica group of the deciding role, and for each other such role

What they share is the right to restart in place (each use counts for all), what is known of checkpoints (one pod proves
them), and the end: where one has to stop, all do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, NamedTuple, Sequence, Tuple

from workflows.programs.coordinator.members import Members
from workflows.programs.coordinator.progress import PROVEN, Progress, learn
from workflows.programs.coordinator.reducer import advance
from workflows.programs.coordinator.restarts import proven, stopped
from workflows.programs.coordinator.state import (
    GANG,
    REPLICA,
    ROLE,
    Announce,
    Effect,
    Event,
    Joined,
    Key,
    Member,
    Published,
    RefusedError,
    Reported,
    RightSaid,
    State,
    StopAsked,
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
        """From `role:pods:processes`.

        Raises:
            ValueError: it is something else.
        """
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

    deciding: RoleShape
    others: Tuple[RoleShape, ...] = ()
    """Other roles without which the attempt cannot go on."""
    scope: str = GANG
    replica_groups: int = 1
    """Equal parts of the deciding role, each a world of its own."""


@dataclass(frozen=True)
class Gangs:
    """Everything the coordinator knows."""

    states: Tuple[State, ...]
    """Those of the deciding role first, in the order of their pods. There is at least one."""
    training: int = 1
    """So many of them train: progress, hangs and slow ranks are looked for there."""

    @property
    def main(self) -> State:
        """The first one."""
        return self.states[0]

    def place(self, key: Key) -> int:
        """Of the gang that a launcher belongs to; 0 for roles that belong to none."""
        role, index = key
        if len(self.states) == 1:
            return 0
        if role == self.main.deciding_role:
            return min(max(0, index) // self.main.pods, self.training - 1)
        others = (place for place, one in enumerate(self.states) if one.deciding_role == role)
        return next(others, 0)

    def of(self, key: Key) -> State:
        """The gang that a launcher belongs to."""
        return self.states[self.place(key)]

    @property
    def trainers(self) -> Tuple[State, ...]:
        """Gangs that train."""
        return self.states[: self.training]


class Advanced(NamedTuple):
    """What follows from an event."""

    gangs: Gangs
    place: int
    """Of the gang that it is about; -1: of all."""
    effects: Tuple[Effect, ...]
    """In that gang."""


def made(layout: Layout, like: State) -> Gangs:
    """The gangs of an attempt to which nothing has happened.

    Args:
        layout: which.
        like: with everything that they have in common.
    """
    role, pods, processes = layout.deciding
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


def advance_all(gangs: Gangs, event: Event) -> Advanced:
    """The next state of every gang.

    Raises:
        RefusedError: the event is not possible; everything stays as it was.
    """
    if isinstance(event, (StopAsked, RightSaid)):
        following = [advance(state, event) for state in gangs.states]
        effects = tuple(effect for one in following for effect in one.effects)
        return Advanced(_with(gangs, [one.state for one in following]), -1, effects)
    place = place_of(gangs, event)
    before = gangs.states[place]
    state, effects = advance(before, event)
    if state is before:
        return Advanced(gangs, place, effects)
    states = [*gangs.states]
    states[place] = state
    if len(states) > 1:
        if isinstance(event, Reported):
            _share(event, states, place)
        _tell_others(gangs.states, states)
        if any(now.orders != was.orders for now, was in zip(states, gangs.states)):  # noqa: B905 - 3.10
            effects = (*effects, Announce(gangs.main.deciding_role))  # whoever waits for orders of another gang looks
    return Advanced(_with(gangs, states), place, effects)


def place_of(gangs: Gangs, event: Event) -> int:
    """Of the gang that an event is about.

    Raises:
        RefusedError: there is none.
    """
    if isinstance(event, Joined):
        return gangs.place(event.member.key)
    if isinstance(event, Published):
        return gangs.place((event.role, event.pod_index))
    key: Key = getattr(event, "key", ("", 0))
    if key[0]:
        return gangs.place(key)
    place = int(getattr(event, "gang", 0))
    if not 0 <= place < len(gangs.states):
        raise RefusedError(409, f"there are {len(gangs.states)} gangs, and none has number {place}")
    return place


def restarts(gangs: Gangs) -> List[RestartInPlace]:
    """Every use of the right, in order."""
    return sorted((one for state in gangs.states for one in state.restarts), key=lambda one: one.number)


def merged(gangs: Gangs) -> State:
    """All of them as one, for who only looks: how far the first of them is, and what happened to any."""
    if len(gangs.states) == 1:
        return gangs.main
    states, used = gangs.states, restarts(gangs)
    forgotten = sum(state.incarnation - 1 - len(state.restarts) for state in states)
    return replace(
        gangs.main,
        pods=sum(one.pods for one in gangs.trainers),
        members=Members[Member].of(pair for state in states for pair in state.members.items()),
        progress=_foremost(gangs),
        ended=tuple(end for state in states for end in state.ended),
        restarts=tuple(used),
        elsewhere=(),
        incarnation=1 + len(used) + forgotten,
    )


def _foremost(gangs: Gangs) -> Progress:
    """Of the gang that is furthest; its first step is the earliest of all."""
    known = [one.progress for one in gangs.trainers]
    firsts = [one.first_step for one in known if one.first_step is not None]
    nans = [one.first_nan_step for one in known if one.first_nan_step is not None]
    best = max(known, key=lambda one: -1 if one.step is None else one.step)
    first = min(firsts, key=lambda one: one[1], default=None)
    return replace(best, first_step=first, first_nan_step=min(nans, default=None))


def _share(event: Reported, states: List[State], place: int) -> None:
    """Only one pod proves checkpoints; all gangs go on from them."""
    for report in event.reports:
        if not isinstance(report, CheckpointSeen):
            continue
        for other, one in enumerate(states):
            if other != place:
                known = replace(one, progress=learn(one.progress, report).progress)
                states[other] = proven(known, event.at).state if report.verdict in PROVEN else known


def _tell_others(before: Sequence[State], states: List[State]) -> None:
    """One gang's restart counts for all, and its end is everybody's."""
    for place, state in enumerate([*states]):
        newly = state.restarts[len(before[place].restarts) :]
        ended = state.stopping and not before[place].stopping
        stop = next(one for one in state.orders if one.stops) if ended else None
        for other, one in enumerate(states):
            if other == place:
                continue
            told = replace(one, elsewhere=(*one.elsewhere, *newly)) if newly else one
            states[other] = told if stop is None else stopped(told, stop.why, stop.save, None).state


def _with(gangs: Gangs, states: Sequence[State]) -> Gangs:
    return replace(gangs, states=tuple(states))
