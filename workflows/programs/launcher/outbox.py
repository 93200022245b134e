"""Queue of reports for the coordinator: bounded, in order, resent until they arrive. Pure, used under a lock."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

Reports = List[Dict[str, Any]]

MOST_REPORTS = 20_000
BATCH_REPORTS = 500


def thin_reports(reports: Reports, room: int) -> Reports:
    """At most `room` of these reports, in order; more only where more ranks ended.

    Kept in any case: ends of ranks, the newest report of all, the newest step and phase of each rank, its first loss
    that is not a number, and the newest report on each checkpoint. Dropped first: phases that repeat the one before,
    and older reports on a checkpoint. Then every second step, again and again, so that the course stays visible, only
    more coarsely; then the oldest phases; then the oldest of the others, but never ends.
    """
    precious = _must_keep(reports)
    steps, phases = _course(reports, precious)
    while steps and len(precious) + len(steps) + len(phases) > room:
        steps = steps[1::2]
    over = len(precious) + len(steps) + len(phases) - room
    phases = phases[max(0, over) :]
    ends = {index for index in precious if reports[index].get("report") == "RankEnd"}
    others = sorted(precious - ends)
    others = others[max(0, len(ends) + len(others) + len(steps) + len(phases) - room) :]
    return [reports[index] for index in sorted([*ends, *others, *steps, *phases])]


def _must_keep(reports: Reports) -> Set[int]:
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
    """Indexes of steps, and of changes of phase, that may be dropped."""
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


class Batch(NamedTuple):
    """Reports sent in one request."""

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


NO_STATE = MemberState("", "", {}, 1)


class Outbox:
    """Queued reports; when more than `limit` wait (the coordinator is away), `thin_reports` cuts them to half of it."""

    def __init__(self, limit: int = MOST_REPORTS) -> None:
        self._limit = limit
        self._room = limit
        self._left_out = 0
        self._told = False
        self._waiting: List[Dict[str, Any]] = []
        self._sent = 0
        self._begun = False
        self._said = NO_STATE
        self._sequence = 0
        self._says: List[MemberState] = []

    def add(self, report: Dict[str, Any]) -> None:
        """Queue a report, in the form of a structured log line."""
        self._waiting.append(report)
        if len(self._waiting) - self._sent > self._room:
            self._thin()

    def add_state(self, state: str, why: str = "", pids: Optional[Dict[str, int]] = None, incarnation: int = 1) -> None:
        """Queue a new state of the member behind all earlier reports.

        Each state is sent, however short it lasted: only because a pod was leaving may the others save.
        """
        self._says.append(MemberState(state, why, pids or {}, incarnation))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is queued."""
        return not self._waiting and not self._says

    def next_batch(self) -> Batch:
        """The batch to send now, the same one until `confirm`."""
        if not self._begun:
            self._begun = True
            self._sequence += 1
            self._sent = min(BATCH_REPORTS, len(self._waiting))
            self._said = self._says[0] if self._says and self._sent == len(self._waiting) else NO_STATE
        return Batch(self._sequence, self._waiting[: self._sent], *self._said)

    def confirm(self, batch: Batch) -> None:
        """`batch` arrived."""
        del self._waiting[: self._sent]
        if batch.state:
            del self._says[0]
        self._sent, self._begun = 0, False

    def resume_after(self, sequence: int) -> None:
        """Number further batches above `sequence`, the last one that the coordinator knows."""
        self._sequence = max(self._sequence, sequence)
        self._sent, self._begun = 0, False

    def take_notice(self) -> str:
        """A line for people on dropped reports, each time once; "": none."""
        if self._left_out and not self._told:
            self._told = True
            return f"more than {self._limit} reports wait for the coordinator: of steps and phases some are left out"
        if self._told and not self._waiting:
            left_out, self._left_out, self._told = self._left_out, 0, False
            return f"the coordinator has all reports but {left_out}, which were left out while it took none"
        return ""

    def _thin(self) -> None:
        begun, rest = self._waiting[: self._sent], self._waiting[self._sent :]
        kept = thin_reports(rest, self._limit // 2)  # half, so that the next time is far away
        self._left_out += len(rest) - len(kept)
        self._waiting = begun + kept
        # Reports that are never dropped (ends of ranks) may exceed the limit, up to twice of it.
        self._room = max(self._limit, 2 * len(kept))
