"""Reports on their way to the coordinator: bounded, in order, sent again until they arrive. Pure, used under a lock."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

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


class Said(NamedTuple):
    """A member's new state."""

    state: str
    why: str
    pids: Dict[str, int]
    incarnation: int


NOTHING_SAID = Said("", "", {}, 1)


class Outbox:
    """Reports that wait.

    When more than `limit` wait (the coordinator is away), every second step is left out: the latest and the ends of
    ranks are never lost, and the course of the training stays visible, more coarsely the longer it lasts.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._waiting: List[Dict[str, Any]] = []
        self._sent = 0
        self._begun = False
        self._said = NOTHING_SAID
        self._sequence = 0
        self._says: List[Said] = []

    def add(self, report: Dict[str, Any]) -> None:
        """Let a report wait, in the form of a structured log line."""
        self._waiting.append(report)
        if len(self._waiting) > self._limit:
            self._thin()

    def say(self, state: str, why: str = "", pids: Optional[Dict[str, int]] = None, incarnation: int = 1) -> None:
        """A new state of the member travels after everything that was reported before it.

        Each state is told, however short it lasted: that a pod was on its way out is why the others may save.
        """
        self._says.append(Said(state, why, pids or {}, incarnation))

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

    def _thin(self) -> None:
        kept: List[Dict[str, Any]] = []
        drop = False
        for report in self._waiting[self._sent : -1]:
            if report.get("report") == "StepSeen":
                drop = not drop
                if drop:
                    continue
            kept.append(report)
        self._waiting = [*self._waiting[: self._sent], *kept, self._waiting[-1]]
