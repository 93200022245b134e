"""The coordinator's watch over its gang: reports become events of `hang_watch`, its verdicts events of `coordination`.

    suspect    launchers are asked for the stacks of their ranks (`Suspected`)
    confirmed  as soon as all have answered, after `ANSWER_SECONDS` at the latest, the minority is named (`HangFound`)

Whether anything is done about it is decided in `coordination_restart`. Nothing here has to survive the coordinator: one
that is started again hears the journal once more, and counts the time without progress from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Set, Tuple, Union

from workflows.programs.coordinator.hang_watch import (
    NEVER,
    Entered,
    HangLimits,
    Launched,
    Over,
    Saved,
    Stepped,
    Watch,
    half_heard_at,
    hear,
    others_again,
    tick,
)
from workflows.programs.coordinator.state import (
    FINAL_STATES,
    Event,
    HangFound,
    Joined,
    Key,
    Member,
    RefusedError,
    Reported,
    State,
    Suspected,
)
from workflows.programs.runtime.flags import replace
from workflows.programs.stacks.groups import Stack, StackFinding, find, node_of, stacks_of
from workflows.programs.stacks.values import StackAnswer
from workflows.status import Hang
from workflows.wire import CheckpointSeen, PhaseSeen, StepSeen

ANSWER_SECONDS = 3.0
"""From the order to the last answer that is waited for."""
TICK_SECONDS = 0.1
TEXT_BYTES = 4000
"""Of the stacks in words."""
_DOUBT: Tuple[Literal["suspect", "observer", "confirmed"], ...] = ("suspect", "observer", "confirmed")
FRAMES_SAID = 6
RANKS_SAID = 16


@dataclass(frozen=True)
class _Question:
    """Stacks that were asked for."""

    id: str
    at: float
    pods: Mapping[str, Member]
    """By name: who may answer."""


class HangWatch:
    """What is known of a gang's progress and of the stacks of its ranks.

    Args:
        limits: how long each phase may take.
        gang: its place among the attempt's.
    """

    def __init__(self, limits: HangLimits, gang: int = 0) -> None:
        self.watch = Watch(limits)
        self._gang = gang
        self.found: Optional[HangFound] = None
        """Of the present doubt."""
        self._running: Set[Key] = set()
        self._final: Set[Key] = set()
        self._first_running = 0.0
        self._incarnation = 1
        self._question: Optional[_Question] = None
        self._answered: Set[str] = set()
        self._stacks: Dict[int, Stack] = {}

    def heard(self, before: State, state: State, event: Event) -> None:
        """An event changed what the coordinator knows.

        Args:
            before: it.
            state: after it.
            event: one that was not refused.
        """
        if len(state.elsewhere) > len(before.elsewhere):
            self.watch, self.found = others_again(self.watch), None
        if state.incarnation != self._incarnation:
            self._incarnation, self._running, self._final, self.found = state.incarnation, set(), set(), None
        if state.stopping and not before.stopping:
            self.watch = hear(self.watch, Over(event.at))
        elif isinstance(event, Suspected):
            self._asked(before, state, event)
        elif isinstance(event, Joined):
            self._final.discard(event.member.key)
        elif isinstance(event, Reported) and event.key[0] == state.deciding_role and not state.stopping:
            was = before.members.get(event.key)
            if was is not None and (event.posted or event.sequence > was.sequence):
                self._reported(state, event)

    def answer(self, answer: StackAnswer, state: State) -> None:
        """A launcher says where its ranks stand; those of other pods are left out.

        Raises:
            RefusedError: nobody asked for it, or not this pod.
        """
        asked = self._question
        if asked is None or answer.id != asked.id:
            raise RefusedError(409, f"stacks {answer.id!r} are not asked for now")
        member = asked.pods.get(answer.pod)
        if member is None:
            raise RefusedError(409, f"pod {answer.pod!r} is not of the gang")
        own = _ranks(state, member)
        stacks = (one for one in stacks_of([answer.dump], {}) if one.rank in own)
        self._stacks.update({one.rank: replace(one, node=member.place) for one in stacks})
        self._answered.add(answer.pod)

    @property
    def stacks(self) -> List[Stack]:
        """Where the ranks stood when they were asked last."""
        return list(self._stacks.values())

    @property
    def watching(self) -> bool:
        """Whether time alone may change the verdict."""
        return self.watch.verdict != "over"

    def tick(self, state: State, heard: Mapping[Key, float], now: float) -> Optional[Union[Suspected, HangFound]]:
        """What follows from the time that has passed; None: nothing new.

        Args:
            state: of the coordinator.
            heard: Unix time of each launcher's last word.
            now: Unix time in seconds.
        """
        watched = state.incarnation == self.watch.incarnation and state.settling is None and not state.stopping
        if not watched or not self.watching:
            return None
        was = self.watch.verdict
        half = NEVER if was not in _DOUBT else half_heard_at(_of_the_gang(state, heard))
        self.watch = tick(self.watch, now, half)
        if self.watch.verdict == "suspect" and was != "suspect":
            return Suspected(now, state.incarnation, f"where do the ranks stand? {self.watch.why}", self._gang)
        if self.watch.verdict != "confirmed" or self.found is not None or not self._all_answered(now):
            return None
        self.found = self._finding(state, now)
        return self.found

    def status(self) -> Optional[Hang]:
        """The doubt there is about the gang; None: there is none."""
        verdict, found = self.watch.verdict, self.found
        if verdict not in _DOUBT:
            return None
        return Hang(
            waited_seconds=round(self.watch.quiet_seconds, 3),
            phase=self.watch.phase,
            verdict=verdict,
            why=found.why if found else self.watch.why,
            rank=found.rank if found else None,
            node=found.node if found else "",
            stacks=found.stacks if found else "",
            step=self.watch.step if self.watch.stepped else None,
            budget_seconds=finite_seconds(self.watch.budget.seconds),
        )

    def _asked(self, before: State, state: State, event: Suspected) -> None:
        order = state.orders[-1] if state.orders else None
        if order is None or not order.stacks or order in before.orders:
            return
        pods = {one.pod: one for one in state.members.values() if one.role == state.deciding_role}
        self._question = _Question(order.stacks, event.at, pods)
        self._stacks, self._answered, self.found = {}, set(), None

    def _all_answered(self, now: float) -> bool:
        asked = self._question
        return asked is None or now >= asked.at + ANSWER_SECONDS or len(self._answered) >= len(asked.pods)

    def _finding(self, state: State, now: float) -> HangFound:
        members = [one for one in state.members.values() if one.role == state.deciding_role]
        nodes = {rank: one.place for one in members for rank in _ranks(state, one) if rank not in self._stacks}
        if not self._stacks:
            why = f"{self.watch.why}; no launcher gave stacks within {ANSWER_SECONDS:g} s"
            return HangFound(now, state.incarnation, why, gang=self._gang)
        finding = find([*self._stacks.values(), *stacks_of([], nodes)])
        node = node_of(finding)
        # Several nodes at once: none of them is blamed.
        rank = finding.named[0].rank if node is not None else None
        why = f"{self.watch.why}; {finding.why}"
        return HangFound(now, state.incarnation, why, rank, node or "", words_of(finding), self._gang)

    def _reported(self, state: State, event: Reported) -> None:
        if event.state == "running" and event.incarnation == state.incarnation:
            self._first_running = event.at if not self._running else self._first_running
            self._running.add(event.key)
            if len(self._running) >= state.pods:
                self._launched(state, event.at)
        for report in event.reports:
            self._one(state, report, event.at)
        if event.state in FINAL_STATES:
            self._final.add(event.key)
            if len(self._final) >= state.pods:
                self.watch = hear(self.watch, Over(event.at))

    def _one(self, state: State, report: Any, at: float) -> None:
        watch = self.watch
        if isinstance(report, StepSeen):
            if report.incarnation == state.incarnation > watch.incarnation:
                # It runs, though not every launcher has said so (or it was said to a coordinator without memory).
                self._launched(state, self._first_running or at)
                watch = self.watch
            last = watch.reference
            if last is None or report.rank <= last.rank or report.step > watch.step or report.rank in watch.pauses:
                # Many programs do not say how many steps there are; the profile does.
                planned = report.total_steps or state.steps or None
                step = Stepped(at, report.rank, report.step, report.at, report.incarnation, planned)
                self.watch = hear(watch, step)
        elif isinstance(report, PhaseSeen):
            self.watch = hear(
                watch, Entered(at, report.rank, report.phase, report.at, report.incarnation, report.detail)
            )
        elif isinstance(report, CheckpointSeen) and report.verdict == "pass":
            self.watch = hear(watch, Saved(at, report.step))

    def _launched(self, state: State, at: float) -> None:
        first = state.members.get(state.first_key)
        began = state.restarts[-1].resume_step if state.restarts else first.resume_step if first else None
        self.watch = hear(self.watch, Launched(at, state.incarnation, began or 0))


def pointed(found: HangFound, watches: Sequence[HangWatch], states: Sequence[State]) -> HangFound:
    """The finding of one gang, or that of another one for which it waits.

    Where several gangs hang, most of them wait: whose ranks stand elsewhere than those of all the others is asked of
    all together.

    Args:
        found: of the gang that was confirmed first.
        watches: of all gangs that train.
        states: of the same.
    """
    doubtful = [one for one in watches if one.watch.verdict in _DOUBT]
    if len(doubtful) < 2:
        return found
    finding = find([stack for one in doubtful for stack in one.stacks])
    rank = finding.named[0].rank if finding.named and node_of(finding) is not None else None
    places = [place for place, state in enumerate(states) if rank is not None and rank in _ranks_of(state)]
    if not places or places[0] == found.gang:
        return found
    why = f"{found.why.partition('; ')[0]}; {finding.why}"
    incarnation = states[places[0]].incarnation
    return HangFound(found.at, incarnation, why, rank, node_of(finding) or "", words_of(finding), places[0])


def finite_seconds(seconds: float) -> Optional[float]:
    """A budget as JSON can say it; None: there is none."""
    return round(seconds, 3) if seconds < float("inf") else None


def _ranks_of(state: State) -> range:
    return range(state.first_pod * state.processes, (state.first_pod + state.pods) * state.processes)


def _ranks(state: State, member: Member) -> range:
    return range(member.pod_index * state.processes, (member.pod_index + 1) * state.processes)


def _of_the_gang(state: State, heard: Mapping[Key, float]) -> List[float]:
    role, first, end = state.deciding_role, state.first_pod, state.first_pod + state.pods
    return [at for (whose, index), at in heard.items() if whose == role and first <= index < end]


def words_of(finding: StackFinding) -> str:
    """Where ranks stand, those in the same place together, at most `TEXT_BYTES` of UTF-8."""
    lines: List[str] = []
    for group in finding.groups:
        names = ", ".join(map(str, group.ranks[:RANKS_SAID])) + (" ..." if len(group.ranks) > RANKS_SAID else "")
        place = f"wait in {group.waits}" if group.waits else group.state or "stand elsewhere"
        lines.append(f"{len(group.ranks)} ranks ({names}), {place}:")
        lines += [f"    {frame}" for frame in group.signature[:FRAMES_SAID]]
    return "\n".join(lines).encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore")
