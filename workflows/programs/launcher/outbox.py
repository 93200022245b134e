"""Reports on their way to the coordinator: bounded, in order, sent again until they arrive. Pure, used under a lock.

Which reports are left out when more wait than may. Pure.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

Reports = List[Dict[str, Any]]


def thinned(reports: Reports, room: int) -> Reports:
    """`room` of these reports at most, in order; more only where more ranks ended.

    Kept in any case: how ranks ended, the newest report of all, the newest step and the newest phase of each rank, its
    first loss that is no number, the newest word on each checkpoint. Left out first: phases that repeat the one before,
    older words on a checkpoint. Then every second step, again and again: the course stays visible, more coarsely the
    longer it lasts; then the oldest phases; then the oldest of what was to be kept, but for ends.
    """
    precious = _precious(reports)
    steps, phases = _course(reports, precious)
    while steps and len(precious) + len(steps) + len(phases) > room:
        steps = steps[1::2]
    over = len(precious) + len(steps) + len(phases) - room
    phases = phases[max(0, over) :]
    ends = {index for index in precious if reports[index].get("report") == "RankEnd"}
    others = sorted(precious - ends)
    others = others[max(0, len(ends) + len(others) + len(steps) + len(phases) - room) :]
    return [reports[index] for index in sorted([*ends, *others, *steps, *phases])]


def _precious(reports: Reports) -> Set[int]:
    newest: Dict[Tuple[Any, ...], int] = {}
    kept: Set[int] = {len(reports) - 1} if reports else set()
    for index, report in enumerate(reports):
        kind = report.get("report")
        if kind == "CheckpointSeen":
            newest[kind, report.get("path")] = index
        elif kind in ("StepSeen", "PhaseSeen"):
            newest[kind, report.get("rank")] = index
            if isinstance(report.get("loss"), str):
                newest.setdefault(("loss", report.get("rank")), index)
        else:
            kept.add(index)
    return kept | set(newest.values())


def _course(reports: Reports, precious: Set[int]) -> Tuple[List[int], List[int]]:
    """Steps, and phases that a rank entered from another one, which may be left out."""
    steps: List[int] = []
    phases: List[int] = []
    entered: Dict[Any, Tuple[Any, ...]] = {}
    for index, report in enumerate(reports):
        kind = report.get("report")
        if kind == "PhaseSeen":
            phase = (report.get("phase"), report.get("incarnation"))
            if entered.get(report.get("rank")) != phase and index not in precious:
                phases.append(index)
            entered[report.get("rank")] = phase
        elif kind == "StepSeen" and index not in precious:
            steps.append(index)
    return steps, phases


LIMIT = 20_000
BATCH = 500


class Batch(NamedTuple):
    """What is sent at once."""

    sequence: int
    reports: List[Dict[str, Any]]
    state: str
    why: str
    pids: Dict[str, int]
    incarnation: int


class MemberState(NamedTuple):
    """A member's new state."""

    state: str
    why: str
    pids: Dict[str, int]
    incarnation: int


NOTHING_SAID = MemberState("", "", {}, 1)


class Outbox:
    """Reports that wait.

    When more than `limit` wait (the coordinator is away), they are thinned to half of it (`outbox_thinning`): what
    matters is kept, and the course of the training stays visible, more coarsely the longer it lasts.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._room = limit
        self._left_out = 0
        self._told = False
        self._waiting: List[Dict[str, Any]] = []
        self._sent = 0
        self._begun = False
        self._said = NOTHING_SAID
        self._sequence = 0
        self._says: List[MemberState] = []

    def add(self, report: Dict[str, Any]) -> None:
        """Let a report wait, in the form of a structured log line."""
        self._waiting.append(report)
        if len(self._waiting) - self._sent > self._room:
            self._thin()

    def say(self, state: str, why: str = "", pids: Optional[Dict[str, int]] = None, incarnation: int = 1) -> None:
        """A new state of the member travels after everything that was reported before it.

        Each state is told, however short it lasted: that a pod was on its way out is why the others may save.
        """
        self._says.append(MemberState(state, why, pids or {}, incarnation))

    @property
    def empty(self) -> bool:
        """Nothing waits."""
        return not self._waiting and not self._says

    def begin(self) -> Batch:
        """What to send now; `done` says that it arrived, and until then the same is given again."""
        if not self._begun:
            self._begun = True
            self._sequence += 1
            self._sent = min(BATCH, len(self._waiting))
            self._said = self._says[0] if self._says and self._sent == len(self._waiting) else NOTHING_SAID
        return Batch(self._sequence, self._waiting[: self._sent], *self._said)

    def done(self, batch: Batch) -> None:
        """`batch` arrived."""
        del self._waiting[: self._sent]
        if batch.state:
            del self._says[0]
        self._sent, self._begun = 0, False

    def resume_after(self, sequence: int) -> None:
        """The coordinator knows batches up to this number: ours must be higher to count."""
        self._sequence = max(self._sequence, sequence)
        self._sent, self._begun = 0, False

    def words(self) -> str:
        """What a person should know of it, each time once; "" for nothing."""
        if self._left_out and not self._told:
            self._told = True
            return f"more than {self._limit} reports wait for the coordinator: of steps and phases some are left out"
        if self._told and not self._waiting:
            left_out, self._left_out, self._told = self._left_out, 0, False
            return f"the coordinator has all reports but {left_out}, which were left out while it took none"
        return ""

    def _thin(self) -> None:
        begun, rest = self._waiting[: self._sent], self._waiting[self._sent :]
        kept = thinned(rest, self._limit // 2)  # so much less that the next time is far away
        self._left_out += len(rest) - len(kept)
        self._waiting = begun + kept
        # Where even what matters is too much (ends of ranks are not counted by anybody), it may become twice as much.
        self._room = max(self._limit, 2 * len(kept))
