"""What the coordinator knows and how it comes to know it: events change the gangs, and are remembered.

The state is `coordination_gangs.Gangs`; the rest is what an answer needs beside it.

Rows that are only ever added, each under a number of its own, so that readers ask for what they do not have yet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar

from workflows.programs.coordinator import journal
from workflows.programs.coordinator import stragglers as coordinator_stragglers
from workflows.programs.coordinator.hang_watch import HangLimits, Watch
from workflows.programs.coordinator.hangs import TICK_SECONDS, HangWatch, pointed
from workflows.programs.coordinator.journal import Memory, undisturbed
from workflows.programs.coordinator.progress import Moment, StepRow
from workflows.programs.coordinator.rank_reports import Trust
from workflows.programs.coordinator.scopes import Gangs, Layout, RoleShape, advance_all, made, merged, place_of
from workflows.programs.coordinator.state import (
    GANG,
    AppendMoment,
    AppendStep,
    Effect,
    Event,
    HangFound,
    Joined,
    Key,
    RefusedError,
    ReplaceStep,
    Reported,
    State,
    Ticked,
)
from workflows.programs.coordinator.status import place_of as node_of
from workflows.programs.coordinator.status import status
from workflows.programs.coordinator.stragglers import Numbers
from workflows.programs.runtime.flags import replace
from workflows.programs.stacks.values import StackAnswer
from workflows.status import CoordinatorStatus, Straggler

T = TypeVar("T")


class NumberedRows(Generic[T]):
    """At most `limit` rows; the oldest quarter goes when there are more, and numbers stay as they are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: List[T] = []
        self._first = 0

    def append(self, row: T) -> None:
        """A further row."""
        self._rows.append(row)
        if len(self._rows) > self._limit:
            surplus = max(1, self._limit // 4)
            del self._rows[:surplus]
            self._first += surplus

    def replace_last(self, row: T) -> None:
        """The newest row again; nothing where there is none."""
        if self._rows:
            self._rows[-1] = row

    def since(self, number: int, count: int) -> Tuple[int, List[T]]:
        """The number to ask for next, and at most `count` rows from `number` on.

        Whoever asks for more than there ever was (of one who has lost his memory) begins where the rows end now.
        """
        start = max(0, number - self._first)
        rows = self._rows[start : start + count]
        return self._first + (start + len(rows) if rows else len(self._rows)), rows


E = TypeVar("E", bound=Event)
STEP_ROWS = 200_000
"""Rows of steps kept in memory (20 MB); older ones are in the journal and in the launchers' `steps.jsonl`."""
MOMENT_ROWS = 50_000  # kept in memory (10 MB), two for each checkpoint
IDLE_SECONDS = 3600.0


@dataclass(frozen=True)
class ExpectedGang:
    """The gang that is expected."""

    role: str
    pods: int = 1
    processes_per_node: int = 1
    steps: int = 0
    """Planned steps; 0: not known."""
    restarts: int = 0  # in place, lent to the attempt
    window_seconds: float = 0.0  # in which so many are lent; 0: all of the attempt
    scope: str = GANG
    others: Tuple[RoleShape, ...] = ()
    """Other roles without which it cannot go on."""
    replica_groups: int = 1
    mttf_seconds: float = 0.0  # of the whole gang; 0: not known
    hang: HangLimits = field(default_factory=HangLimits)
    straggler: coordinator_stragglers.StragglerLimits = field(default_factory=coordinator_stragglers.StragglerLimits)

    def gangs(self, at: float) -> Gangs:
        """Nothing has happened to them yet. `at`: Unix time in seconds."""
        deciding = RoleShape(self.role, self.pods, self.processes_per_node)
        like = State(
            deciding_role=self.role,
            steps=self.steps,
            started_at=at,
            restarts_lent=self.restarts,
            window_seconds=self.window_seconds,
            mttf_seconds=self.mttf_seconds,
        )
        return made(Layout(deciding, self.others, self.scope, self.replica_groups), like)


class Mind:
    """What is known of an attempt.

    Args:
        gang: what is expected.
        wake: called when something changed that somebody may wait for.
    """

    def __init__(self, gang: ExpectedGang, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.gangs = gang.gangs(time.time())
        self.heard: Dict[Key, float] = {}
        """Last word of each launcher; not part of the state, since a heartbeat changes nothing else."""
        self.rows: NumberedRows[StepRow] = NumberedRows(STEP_ROWS)
        self.moments: NumberedRows[Moment] = NumberedRows(MOMENT_ROWS)
        self._last_row: Optional[StepRow] = None
        self.hangs = [HangWatch(gang.hang, place) for place, _ in enumerate(self.gangs.trainers)]
        self.numbers = [
            Numbers(one.pods * one.processes, gang.straggler, one.first_pod * one.processes, place)
            for place, one in enumerate(self.gangs.trainers)
        ]
        self._trusts = [Trust() for _ in self.gangs.states]
        self._memory: Optional[Memory] = None

    @property
    def state(self) -> State:
        """All gangs as one, to be looked at."""
        return merged(self.gangs)

    def remember(self, path: str) -> None:
        """Read the journal at `path` and write to it from now on."""
        memory = Memory(path)
        for one in self.numbers:
            one.remembering = True
        with undisturbed():
            for event in memory.read():
                try:
                    self._apply(self.sifted(event))
                except RefusedError:
                    continue  # a journal of an older program may hold what is refused today
                if isinstance(event, Joined) or (isinstance(event, Reported) and not event.posted):
                    self.heard[event.member.key if isinstance(event, Joined) else event.key] = event.at
        for one in self.numbers:
            one.remembering = False
        self._memory = memory

    @property
    def patience_seconds(self) -> float:
        """How long nothing has to be decided unless something is heard."""
        waits = [one.settling.until for one in self.gangs.states if one.settling is not None]
        patience = max(0.0, min(waits) - time.time()) if waits else IDLE_SECONDS
        return min(patience, TICK_SECONDS) if any(one.watching for one in self.hangs) else patience

    def tick(self) -> None:
        """Decide what time alone decides."""
        for place, one in enumerate(self.gangs.states):
            if one.settling is not None:
                self.take(Ticked(time.time(), place))
        for place, watch in enumerate(self.hangs):
            found = watch.tick(self.gangs.states[place], self.heard, time.time())
            if isinstance(found, HangFound):
                found = pointed(found, self.hangs, self.gangs.trainers)
            if found is not None:
                print(f"coordinator: {found.why}" + (": hung" if isinstance(found, HangFound) else ""), flush=True)
                self.take(found)

    def close(self) -> None:
        """Write what is left of the journal."""
        if self._memory is not None:
            self._memory.close()

    def take(self, event: Event) -> None:
        """Carry out one event and remember it.

        Raises:
            RefusedError: the event contradicts what is known.
        """
        event = self.sifted(event)
        before = self.gangs.states[place_of(self.gangs, event)]
        kept = journal.worth_keeping(before, event)
        place = self._apply(event)
        if kept is not None and self._memory is not None:
            # Killed between an order and its record, we would count a restart too few, or use a number twice.
            ordered = self.gangs.states[max(place, 0)].orders[-1:] != before.orders[-1:]
            self._memory.write(kept, ordered, ordered and before.restarts_lent > 0)
        for one in self.numbers:
            voted = one.take_vote()
            if voted is not None and self._memory is not None:
                self._memory.write(voted, False, False)

    def sifted(self, event: E) -> E:
        """The event without what a less trusted source tells than another one did.

        Raises:
            RefusedError: there is no such gang.
        """
        place = place_of(self.gangs, event)
        return self._trusts[place].sifted(self.gangs.states[place], event)

    def answer(self, answer: StackAnswer) -> None:
        """A launcher says where its ranks stand.

        Raises:
            RefusedError: nobody asked for it, or not this pod.
        """
        refused: Optional[RefusedError] = None
        for place, watch in enumerate(self.hangs):
            try:
                return watch.answer(answer, self.gangs.states[place])
            except RefusedError as error:
                refused = error
        raise refused or RefusedError(409, "nobody is watched here")

    @property
    def quietest(self) -> Watch:
        """The watch over the gang that has stood still the longest."""
        return max((one.watch for one in self.hangs), key=lambda watch: watch.quiet_seconds)

    def stragglers(self) -> List[Straggler]:
        """Slow ranks of all gangs."""
        found: List[Straggler] = []
        for state, one in zip(self.gangs.trainers, self.numbers):  # noqa: B905 - 3.10
            found += one.stragglers(lambda rank, state=state: node_of(state, rank))
        return found

    def status(self, environment: Mapping[str, str]) -> CoordinatorStatus:
        """Everything that is known; `environment`: of the pod."""
        hangs = [told for told in (one.status() for one in self.hangs) if told is not None]
        slower = (told for told in (one.slower() for one in self.numbers) if told is not None)
        return replace(
            status(self.state, self.heard, environment, time.time()),
            hang=max(hangs, key=lambda told: told.confirmed, default=None),
            stragglers=self.stragglers(),
            slower=next(slower, None),
            numeric=[told for one in self.numbers for told in one.numeric()],
        )

    def _apply(self, event: Event) -> int:
        before = self.gangs
        self.gangs, place, effects = advance_all(before, event)
        after = self.gangs.states
        if len(after) == 1:
            self.hangs[0].heard(before.main, after[0], event)
        else:
            self._hear_hangs(before, event, place)
        if 0 <= place < len(self.numbers):
            self.numbers[place].heard(after[place], event, effects)
        for effect in effects:
            self._effect(effect, place)
        return place

    def _hear_hangs(self, before: Gangs, event: Event, place: int) -> None:
        """The watch over the gang that it is about hears it, and all others what follows for them."""
        at = event.at
        for other, watch in enumerate(self.hangs):
            was, now = before.states[other], self.gangs.states[other]
            if other == place or was is not now:
                watch.heard(was, now, event if other == place or place < 0 else Ticked(at))

    def _effect(self, effect: Effect, place: int) -> None:
        several = len(self.gangs.states) > 1
        if isinstance(effect, AppendStep):
            if several and not self._furthest(effect.row, place):
                return
            self._last_row = self._in_time(effect.row) if several else effect.row
            self.rows.append(self._last_row)
        elif isinstance(effect, ReplaceStep):
            if not several:
                self.rows.replace_last(effect.row)
        elif isinstance(effect, AppendMoment):
            if not several or place == 0:
                self.moments.append(effect.moment)
        else:
            self._wake()

    def _in_time(self, row: StepRow) -> StepRow:
        """Reports are gathered for a moment, so another gang's next step may be told with an earlier time."""
        return row if self._last_row is None else (row[0], max(row[1], self._last_row[1]), row[2], row[3])

    def _furthest(self, row: StepRow, place: int) -> bool:
        """Of several gangs the first one that completes a step tells it."""
        return place < self.gangs.training and (self._last_row is None or row[0] > self._last_row[0])
