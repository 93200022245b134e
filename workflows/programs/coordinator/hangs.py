"""Detection of hangs: reports become events of `hang_watch`, and its verdicts become events of `reducer`.

    suspect    launchers are asked for the stacks of their ranks (`HangSuspected`)
    confirmed  once all have answered, or after `ANSWER_SECONDS`, the minority is blamed (`HangConfirmed`)

`restarts` decides what follows. Nothing here has to outlive the coordinator: one that is started again replays the
journal, and counts the time without progress from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from workflows.programs.coordinator.budgets import HangLimits
from workflows.programs.coordinator.hang_watch import (
    NEVER,
    CheckpointProven,
    GangLaunched,
    GangOver,
    PhaseEntered,
    RankLeft,
    StepReported,
    Watch,
    after_other_restart,
    apply_event,
    majority_heard_at,
    tick,
)
from workflows.programs.coordinator.life import FRESH_SECONDS, LifeSeen
from workflows.programs.coordinator.state import (
    FINAL_STATES,
    Event,
    HangConfirmed,
    HangSuspected,
    Key,
    LauncherJoined,
    Member,
    RefusedError,
    ReportsReceived,
    State,
)
from workflows.programs.runtime.flags import replace
from workflows.programs.stacks.groups import Stack, StackFinding, blamed_node, find_minority, stacks_of
from workflows.programs.stacks.values import StackAnswer
from workflows.status import Hang
from workflows.wire import CheckpointSeen, PhaseSeen, RankEnd, StepSeen

ANSWER_SECONDS = 3.0
"""Longest wait for answers after the request for stacks."""
TICK_SECONDS = 0.1
LOOK_SECONDS = 1.0
"""Between two looks at what all launchers said of their ranks: a gang may have thousands."""
TEXT_BYTES = 4000
"""Longest text of the stacks."""
_DOUBT: Tuple[Literal["suspect", "observer", "confirmed"], ...] = ("suspect", "observer", "confirmed")
FRAMES_SAID = 6
RANKS_SAID = 16


@dataclass(frozen=True)
class _Question:
    """A request for stacks."""

    id: str
    at: float
    pods: Mapping[str, Member]
    """The members that may answer, by pod name."""


class PodLife(NamedTuple):
    """What a launcher saw of its ranks when it looked last."""

    at: float
    """Unix time in seconds by the coordinator."""
    alive: bool
    """Whether any of them printed, used the processor, read or wrote since the look before."""
    stopped: Tuple[int, ...]

    @classmethod
    def read(cls, data: Mapping[str, Any], at: float) -> PodLife:
        """From a launcher's report; raises ValueError or TypeError where it makes no sense."""
        return cls(at, data.get("alive") is not False, tuple(map(int, data.get("stopped") or ())))


class HangWatch:
    """Progress of one gang and stacks of its ranks; `gang` is its index among the attempt's gangs."""

    def __init__(self, limits: HangLimits, gang: int = 0) -> None:
        self.watch = Watch(limits)
        self._gang = gang
        self.found: Optional[HangConfirmed] = None
        """Finding on the present suspicion."""
        self._running: Set[Key] = set()
        self._ended: Set[Key] = set()
        self._first_running = 0.0
        self._incarnation = 1
        self._question: Optional[_Question] = None
        self._answered: Set[str] = set()
        self._life: Dict[Key, PodLife] = {}
        self._looked_at = NEVER
        self._stacks: Dict[int, Stack] = {}

    def update(self, before: State, state: State, event: Event) -> None:
        """Follow an accepted event, with the gang's state before and after it."""
        if len(state.restarts_elsewhere) > len(before.restarts_elsewhere):
            self.watch, self.found = after_other_restart(self.watch), None
        if state.incarnation != self._incarnation:
            self._incarnation, self._running, self._ended, self.found = state.incarnation, set(), set(), None
            self._question, self._life = None, {}
        if state.is_stopping and not before.is_stopping:
            self.watch = apply_event(self.watch, GangOver(event.at))
        elif isinstance(event, HangSuspected):
            self._open_question(before, state, event)
        elif isinstance(event, LauncherJoined):
            self._ended.discard(event.member.key)
        elif isinstance(event, ReportsReceived) and event.key[0] == state.deciding_role and not state.is_stopping:
            was = before.members.get(event.key)
            if was is not None and (event.posted or event.sequence > was.sequence):
                self._take_reports(state, event)

    def add_stacks(self, answer: StackAnswer, state: State) -> Key:
        """Add the stacks of a launcher's own ranks; whose they are. Raises RefusedError where nobody asked this pod."""
        question = self._question
        if question is None or answer.id != question.id:
            raise RefusedError(409, f"no request for stacks with the id {answer.id!r} is open")
        member = question.pods.get(answer.pod)
        if member is None:
            raise RefusedError(409, f"pod {answer.pod!r} is not of the gang")
        own = _ranks(state, member)
        stacks = (one for one in stacks_of([answer.dump], {}) if one.rank in own)
        self._stacks.update({one.rank: replace(one, node=member.place) for one in stacks})
        self._answered.add(answer.pod)
        return member.key

    @property
    def stacks(self) -> List[Stack]:
        """Stacks from the last request."""
        return list(self._stacks.values())

    @property
    def is_watching(self) -> bool:
        """Whether passing time may change the verdict."""
        return self.watch.verdict != "over"

    def tick(
        self, state: State, heard: Mapping[Key, float], now: float
    ) -> Optional[Union[HangSuspected, HangConfirmed]]:
        """The event that follows from passing time; None: none.

        `heard` has the Unix time of each launcher's last request, `now` is the Unix time in seconds.
        """
        watched = state.incarnation == self.watch.incarnation and state.pending is None and not state.is_stopping
        if not watched or not self.is_watching:
            return None
        if now - self._looked_at >= LOOK_SECONDS and self.wants_life:
            self._looked_at = now
            self.watch = apply_event(self.watch, self._life_of_all(state, now))
        was = self.watch.verdict
        half = NEVER if was not in _DOUBT else majority_heard_at(_heard_in_gang(state, heard))
        self.watch = tick(self.watch, now, half)
        if self.watch.verdict == "suspect" and was != "suspect":
            return HangSuspected(now, state.incarnation, f"where do the ranks stand? {self.watch.why}", self._gang)
        if self.watch.verdict != "confirmed" or self.found is not None or not self._all_answered(now):
            return None
        self.found = self._finding(state, now)
        return self.found

    @property
    def wants_life(self) -> bool:
        """Whether launchers should look for signs of life: steps say more, as soon as there are any."""
        return self.watch.wants_life

    def note_life(self, key: Key, life: PodLife) -> None:
        """Note what a launcher of the gang saw of its ranks."""
        self._life[key] = life

    def _life_of_all(self, state: State, now: float) -> LifeSeen:
        living = [one for one in state.members.values() if one.role == state.deciding_role]
        keys = [one.key for one in living if one.state not in FINAL_STATES]
        known = [life for life in (self._life.get(key) for key in keys) if life and now - life.at <= FRESH_SECONDS]
        sign_at = max((life.at for life in known if life.alive), default=None)
        stopped = sorted(rank for life in known for rank in life.stopped)
        return LifeSeen(now, sign_at, len(known) == len(keys) > 0, tuple(stopped))

    def status(self) -> Optional[Hang]:
        """The present suspicion, as `/status` shows it; None: there is none."""
        verdict, found = self.watch.verdict, self.found
        if verdict not in _DOUBT:
            return None
        if verdict == "confirmed" and found is None and self._question is not None:
            verdict = "suspect"  # whose fault it is comes with the answers, in a moment; who acts wants to know
        return Hang(
            waited_seconds=round(self.watch.quiet_seconds, 3),
            phase=self.watch.phase,
            verdict=verdict,
            why=found.why if found else self.watch.why,
            rank=found.rank if found else None,
            node=found.node if found else "",
            stacks=found.stacks if found else "",
            step=self.watch.step if self.watch.has_stepped else None,
            budget_seconds=finite_seconds(self.watch.budget.seconds),
        )

    def _open_question(self, before: State, state: State, event: HangSuspected) -> None:
        order = state.orders[-1] if state.orders else None
        if order is None or not order.stacks or order in before.orders:
            return
        mine = [one for one in state.members.values() if one.role == state.deciding_role]
        pods = {one.pod: one for one in mine if one.state not in FINAL_STATES}
        self._question = _Question(order.stacks, event.at, pods)
        self._stacks, self._answered, self.found = {}, set(), None

    def _all_answered(self, now: float) -> bool:
        question = self._question
        return question is None or now >= question.at + ANSWER_SECONDS or len(self._answered) >= len(question.pods)

    def _finding(self, state: State, now: float) -> HangConfirmed:
        members = [one for one in state.members.values() if one.role == state.deciding_role]
        awaited = None if self.watch.is_ending else _awaited(state)
        if awaited is not None:
            why = f"{self.watch.why}; {awaited.words}"
            stacks = render_finding(find_minority([*self._stacks.values()])) if self._stacks else ""
            return HangConfirmed(now, state.incarnation, why, awaited.rank, awaited.node, stacks, self._gang)
        nodes = {rank: one.place for one in members for rank in _ranks(state, one) if rank not in self._stacks}
        if not self._stacks:
            why = f"{self.watch.why}; no launcher gave stacks within {ANSWER_SECONDS:g} s"
            return HangConfirmed(now, state.incarnation, why, gang=self._gang)
        finding = find_minority([*self._stacks.values(), *stacks_of([], nodes)])
        node = blamed_node(finding)
        # Where the minority is on several nodes, none of them is blamed.
        rank = finding.blamed[0].rank if node is not None else None
        why = f"{self.watch.why}; {finding.why}"
        return HangConfirmed(now, state.incarnation, why, rank, node or "", render_finding(finding), self._gang)

    def _take_reports(self, state: State, event: ReportsReceived) -> None:
        if event.state == "running" and event.incarnation == state.incarnation:
            self._first_running = event.at if not self._running else self._first_running
            self._running.add(event.key)
            if len(self._running) >= state.pods:
                self._launch(state, event.at)
        for report in event.reports:
            self._take_report(state, report, event.at)
        if event.state in FINAL_STATES:
            self._ended.add(event.key)
            if len(self._ended) >= state.pods:
                self.watch = apply_event(self.watch, GangOver(event.at))

    def _take_report(self, state: State, report: Any, at: float) -> None:
        watch = self.watch
        if isinstance(report, StepSeen):
            if report.incarnation == state.incarnation > watch.incarnation:
                # The gang runs, though not every launcher has reported so (or it told a coordinator that died).
                self._launch(state, self._first_running or at)
                watch = self.watch
            last = watch.reference
            if last is None or report.rank <= last.rank or report.step > watch.step or report.rank in watch.pauses:
                # Many programs do not report how many steps are planned; the profile has it.
                planned = report.total_steps or state.steps or None
                step = StepReported(at, report.rank, report.step, report.at, report.incarnation, planned)
                self.watch = apply_event(watch, step)
        elif isinstance(report, PhaseSeen):
            self.watch = apply_event(
                watch, PhaseEntered(at, report.rank, report.phase, report.at, report.incarnation, report.detail)
            )
        elif isinstance(report, CheckpointSeen) and report.verdict == "pass":
            self.watch = apply_event(watch, CheckpointProven(at, report.step))
        elif isinstance(report, RankEnd) and _left_by_itself(report):
            self.watch = apply_event(watch, RankLeft(at, report.rank, report.incarnation))

    def _launch(self, state: State, at: float) -> None:
        first = state.members.get(state.first_key)
        began = state.restarts[-1].resume_step if state.restarts else first.resume_step if first else None
        self.watch = apply_event(self.watch, GangLaunched(at, state.incarnation, began or 0))


class AwaitedRank(NamedTuple):
    """The rank for which the others wait in vain, where more than their stacks says so."""

    rank: int
    node: str
    what: str

    @property
    def words(self) -> str:
        """Read by `flows.decisions.diagnosis.witnesses`."""
        return f"all wait for rank {self.rank} on {self.node or '?'}, which {self.what}"


def _awaited(state: State) -> Optional[AwaitedRank]:
    """The first rank that ended well while others still had to train."""
    left = [end for end in state.rank_ends if _left_by_itself(end) and end.rank in _ranks_of(state)]
    if not left:
        return None
    first = min(left, key=lambda end: (end.at, end.rank))
    member = state.members.get((state.deciding_role, first.rank // state.processes))
    after = "without a step" if first.last_step is None else f"after step {first.last_step}"
    return AwaitedRank(first.rank, member.place if member else "", f"has ended with exit code 0 {after}")


def _left_by_itself(end: RankEnd) -> bool:
    return end.exit_code == 0 and not end.requested


def blame_awaited_gang(found: HangConfirmed, watches: Sequence[HangWatch], states: Sequence[State]) -> HangConfirmed:
    """The finding of the gang that was confirmed first, or of another gang for which that one waits.

    Where several gangs hang most of them only wait, so the minority is looked for among the stacks of all of them.
    """
    doubtful = [one for one in watches if one.watch.verdict in _DOUBT]
    if len(doubtful) < 2:
        return found
    finding = find_minority([stack for one in doubtful for stack in one.stacks])
    rank = finding.blamed[0].rank if finding.blamed and blamed_node(finding) is not None else None
    places = [place for place, state in enumerate(states) if rank is not None and rank in _ranks_of(state)]
    if not places or places[0] == found.gang:
        return found
    why = f"{found.why.partition('; ')[0]}; {finding.why}"
    incarnation = states[places[0]].incarnation
    return HangConfirmed(
        found.at, incarnation, why, rank, blamed_node(finding) or "", render_finding(finding), places[0]
    )


def finite_seconds(seconds: float) -> Optional[float]:
    """A budget for JSON; None for an infinite one."""
    return round(seconds, 3) if seconds < float("inf") else None


def _ranks_of(state: State) -> range:
    return range(state.first_pod * state.processes, (state.first_pod + state.pods) * state.processes)


def _ranks(state: State, member: Member) -> range:
    return range(member.pod_index * state.processes, (member.pod_index + 1) * state.processes)


def _heard_in_gang(state: State, heard: Mapping[Key, float]) -> List[float]:
    """Of launchers that still have something to say: one whose ranks have ended is silent for good."""
    role, first, end = state.deciding_role, state.first_pod, state.first_pod + state.pods
    ended = {key for key, one in state.members.items() if one.state in FINAL_STATES}
    gang = {key: at for key, at in heard.items() if key not in ended}
    return [at for (whose, index), at in gang.items() if whose == role and first <= index < end]


def render_finding(finding: StackFinding) -> str:
    """Stacks as text, equal ones grouped, at most `TEXT_BYTES` of UTF-8."""
    lines: List[str] = []
    for group in finding.groups:
        names = ", ".join(map(str, group.ranks[:RANKS_SAID])) + (" ..." if len(group.ranks) > RANKS_SAID else "")
        place = f"wait in {group.waits}" if group.waits else group.state or "stand elsewhere"
        lines.append(f"{len(group.ranks)} ranks ({names}), {place}:")
        lines += [f"    {frame}" for frame in group.signature[:FRAMES_SAID]]
    return "\n".join(lines).encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore")
