"""The coordinator's store: it applies events to the gangs, journals them, and keeps rows of steps and stalls."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar, cast

from workflows.programs.coordinator import journal
from workflows.programs.coordinator import stragglers as coordinator_stragglers
from workflows.programs.coordinator.budgets import HangLimits
from workflows.programs.coordinator.hang_watch import Watch
from workflows.programs.coordinator.hangs import TICK_SECONDS, HangWatch, PodLife, blame_awaited_gang
from workflows.programs.coordinator.journal import Journal, garbage_collection_off
from workflows.programs.coordinator.progress import Moment, StepRow
from workflows.programs.coordinator.rank_reports import ReportFilter
from workflows.programs.coordinator.scopes import (
    Gangs,
    Layout,
    RoleShape,
    advance_all,
    build_gangs,
    gang_index,
    merge_gangs,
)
from workflows.programs.coordinator.state import (
    GANG,
    AppendMoment,
    AppendStep,
    Effect,
    Event,
    HangConfirmed,
    Key,
    LauncherJoined,
    RefusedError,
    ReplaceStep,
    ReportsReceived,
    State,
    TimePassed,
)
from workflows.programs.coordinator.status import node_of_rank as node_of
from workflows.programs.coordinator.status import status
from workflows.programs.coordinator.stragglers import GangStatistics
from workflows.programs.runtime.flags import replace
from workflows.programs.stacks.values import StackAnswer
from workflows.status import CoordinatorStatus, Straggler

T = TypeVar("T")

E = TypeVar("E", bound=Event)
STEP_ROWS = 200_000
"""Rows of steps kept in memory (20 MB); older ones are in the journal and in the launchers' `steps.jsonl`."""
MOMENT_ROWS = 50_000  # kept in memory (10 MB), two for each checkpoint
IDLE_SECONDS = 3600.0


class NumberedRows(Generic[T]):
    """Rows with consecutive numbers, so that readers ask for those they lack.

    There are at most `limit`: beyond it the oldest quarter is dropped, and numbers stay as they are.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: List[T] = []
        self._first = 0

    def append(self, row: T) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) > self._limit:
            surplus = max(1, self._limit // 4)
            del self._rows[:surplus]
            self._first += surplus

    def replace_last(self, row: T) -> None:
        """Replace the newest row, if there is one."""
        if self._rows:
            self._rows[-1] = row

    def since(self, number: int, count: int) -> Tuple[int, List[T]]:
        """The number to ask for next, and at most `count` rows from `number` on.

        A number beyond the end, from before a journal was lost, continues at the present end.
        """
        start = max(0, number - self._first)
        rows = self._rows[start : start + count]
        return self._first + (start + len(rows) if rows else len(self._rows)), rows


@dataclass(frozen=True)
class ExpectedGang:
    """Layout and limits of the attempt, from the coordinator's options."""

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
        """The gangs in their first state; `at` is the Unix time in seconds of the start."""
        deciding = RoleShape(self.role, self.pods, self.processes_per_node)
        like = State(
            deciding_role=self.role,
            steps=self.steps,
            started_at=at,
            restarts_lent=self.restarts,
            window_seconds=self.window_seconds,
            mttf_seconds=self.mttf_seconds,
        )
        return build_gangs(Layout(deciding, self.others, self.scope, self.replica_groups), like)


class AttemptStore:
    """State of an attempt. `wake` is called when something changed for which a poll may wait."""

    def __init__(self, gang: ExpectedGang, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.gangs = gang.gangs(time.time())
        self.last_heard_at: Dict[Key, float] = {}
        """Unix time of each launcher's last request; outside the state, since a heartbeat changes nothing else."""
        self.rows: NumberedRows[StepRow] = NumberedRows(STEP_ROWS)
        self.moments: NumberedRows[Moment] = NumberedRows(MOMENT_ROWS)
        self._last_row: Optional[StepRow] = None
        self.hangs = [HangWatch(gang.hang, place) for place, _ in enumerate(self.gangs.trainers)]
        self.statistics = [
            GangStatistics(one.pods * one.processes, gang.straggler, one.first_pod * one.processes, place)
            for place, one in enumerate(self.gangs.trainers)
        ]
        self._report_filters = [ReportFilter() for _ in self.gangs.states]
        self._journal: Optional[Journal] = None

    @property
    def state(self) -> State:
        """All gangs merged into one, for readers."""
        return merge_gangs(self.gangs)

    def open_journal(self, path: str) -> None:
        """Read the journal at `path` and write to it from now on."""
        memory = Journal(path)
        for one in self.statistics:
            one.replaying = True
        with garbage_collection_off():
            for event in memory.read():
                try:
                    self._apply(self.without_duplicates(event))
                except RefusedError:
                    continue  # a journal of an older program may hold what is refused today
                if isinstance(event, LauncherJoined) or (isinstance(event, ReportsReceived) and not event.posted):
                    self.last_heard_at[event.member.key if isinstance(event, LauncherJoined) else event.key] = event.at
        for one in self.statistics:
            one.replaying = False
        self._journal = memory

    @property
    def idle_seconds(self) -> float:
        """Seconds until the next decision that no request triggers."""
        waits = [one.pending.until for one in self.gangs.states if one.pending is not None]
        patience = max(0.0, min(waits) - time.time()) if waits else IDLE_SECONDS
        return min(patience, TICK_SECONDS) if any(one.is_watching for one in self.hangs) else patience

    def tick(self) -> None:
        """Make the decisions that are due."""
        for place, one in enumerate(self.gangs.states):
            if one.pending is not None:
                self.take(TimePassed(time.time(), place))
        for place, watch in enumerate(self.hangs):
            found = watch.tick(self.gangs.states[place], self.last_heard_at, time.time())
            if isinstance(found, HangConfirmed):
                found = blame_awaited_gang(found, self.hangs, self.gangs.trainers)
            if found is not None:
                print(f"coordinator: {found.why}" + (": hung" if isinstance(found, HangConfirmed) else ""), flush=True)
                self.take(found)

    def close(self) -> None:
        """Flush the journal."""
        if self._journal is not None:
            self._journal.close()

    def take(self, event: Event) -> None:
        """Apply one event and journal it; raises RefusedError where the event contradicts the state."""
        event = self.without_duplicates(event)
        before = self.gangs.states[gang_index(self.gangs, event)]
        kept = journal.for_journal(before, event)
        place = self._apply(event)
        if kept is not None and self._journal is not None:
            # Killed between an order and its record, we would count a restart too few, or use a number twice.
            ordered = self.gangs.states[max(place, 0)].orders[-1:] != before.orders[-1:]
            self._journal.write(kept, ordered, ordered and before.restarts_lent > 0)
        for one in self.statistics:
            voted = one.take_vote()
            if voted is not None and self._journal is not None:
                self._journal.write(voted, False, False)

    def without_duplicates(self, event: E) -> E:
        """The event without reports that a better source has made already; raises RefusedError for an unknown gang."""
        place = gang_index(self.gangs, event)
        return self._report_filters[place].filter_event(self.gangs.states[place], event)

    def note_life(self, key: Key, life: Any, at: float) -> None:
        """Note what a launcher saw of its ranks; of roles that are not watched nothing is noted."""
        watch = self._watch_of(key)
        if watch is not None and isinstance(life, dict):
            with suppress(ValueError, TypeError):  # it makes no sense: then nothing is known
                watch.note_life(key, PodLife.read(cast("Dict[str, Any]", life), at))

    def wants_life(self, key: Key) -> bool:
        """Whether that launcher should look for signs of life of its ranks."""
        watch = self._watch_of(key)
        return watch is not None and watch.wants_life

    def _watch_of(self, key: Key) -> Optional[HangWatch]:
        place = self.gangs.index_of(key)
        return self.hangs[place] if key[0] == self.gangs.main.deciding_role else None

    def add_stacks(self, answer: StackAnswer, at: float) -> None:
        """Add the stacks of a launcher's ranks, heard `at`; raises RefusedError where nobody asked this pod."""
        refused: Optional[RefusedError] = None
        for place, watch in enumerate(self.hangs):
            try:
                # The answer may come before the next heartbeat: the second window of quick programs is shorter.
                self.last_heard_at[watch.add_stacks(answer, self.gangs.states[place])] = at
                return
            except RefusedError as error:
                refused = error
        raise refused or RefusedError(409, "no gang of this coordinator is watched for hangs")

    @property
    def quietest_watch(self) -> Watch:
        """The watch of the gang that has been without progress for the longest time."""
        return max((one.watch for one in self.hangs), key=lambda watch: watch.quiet_seconds)

    def stragglers(self) -> List[Straggler]:
        """Slow ranks of all gangs."""
        found: List[Straggler] = []
        for state, one in zip(self.gangs.trainers, self.statistics):  # noqa: B905 - 3.10
            found += one.stragglers(lambda rank, state=state: node_of(state, rank))
        return found

    def status(self, environment: Mapping[str, str]) -> CoordinatorStatus:
        """The whole answer to `GET /status`; `environment` is that of the pod."""
        hangs = [hang for hang in (watch.status() for watch in self.hangs) if hang is not None]
        slower = (found for found in (one.slowdown() for one in self.statistics) if found is not None)
        return replace(
            status(self.state, self.last_heard_at, environment, time.time()),
            hang=max(hangs, key=lambda hang: hang.confirmed, default=None),
            stragglers=self.stragglers(),
            slower=next(slower, None),
            numeric=[found for one in self.statistics for found in one.anomalies()],
        )

    def _apply(self, event: Event) -> int:
        before = self.gangs
        self.gangs, place, effects = advance_all(before, event)
        after = self.gangs.states
        if len(after) == 1:
            self.hangs[0].update(before.main, after[0], event)
        else:
            self._update_hang_watches(before, event, place)
        if 0 <= place < len(self.statistics):
            self.statistics[place].update(after[place], event, effects)
        for effect in effects:
            self._effect(effect, place)
        return place

    def _update_hang_watches(self, before: Gangs, event: Event, place: int) -> None:
        """Pass the event to the watch of its gang, and to all others what follows from it for them."""
        at = event.at
        for other, watch in enumerate(self.hangs):
            was, now = before.states[other], self.gangs.states[other]
            if other == place or was is not now:
                watch.update(was, now, event if other == place or place < 0 else TimePassed(at))

    def _effect(self, effect: Effect, place: int) -> None:
        several = len(self.gangs.states) > 1
        if isinstance(effect, AppendStep):
            if several and not self._is_furthest(effect.row, place):
                return
            self._last_row = (
                (
                    effect.row
                    if self._last_row is None
                    else (effect.row[0], max(effect.row[1], self._last_row[1]), effect.row[2], effect.row[3])
                )
                if several
                else effect.row
            )
            self.rows.append(self._last_row)
        elif isinstance(effect, ReplaceStep):
            if not several:
                self.rows.replace_last(effect.row)
        elif isinstance(effect, AppendMoment):
            if not several or place == 0:
                self.moments.append(effect.moment)
        else:
            self._wake()

    def _is_furthest(self, row: StepRow, place: int) -> bool:
        """Whether this gang completed the step first: of several gangs only that one's row counts."""
        return place < self.gangs.training and (self._last_row is None or row[0] > self._last_row[0])
