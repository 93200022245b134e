"""What the second path has shown of a gang whose coordinator is not heard. Values alone; see `second_path`."""

from __future__ import annotations

from dataclasses import dataclass, replace

UNHEARD = " [by the second path: "
"""Stands in a run's `why` behind why it is in its state, as long as its coordinator is not heard and its ranks' own
logs say that training goes on. As `records.WAITS` where nothing is known."""


@dataclass(frozen=True)
class LogSign:
    """The newest sign of progress in a launcher's own log."""

    rank: int
    step: int | None
    """Highest that its newest lines tell of the present incarnation; None: none."""
    at: float
    """Of the newest line, by the launcher's clock, Unix seconds: only compared with its own."""
    incarnation: int = 1
    phase: str = "step"
    """That the newest line tells of."""

    def newer_than(self, before: LogSign) -> bool:
        """Whether something was done between the two."""
        if self.incarnation != before.incarnation:
            return self.incarnation > before.incarnation
        return self.at > before.at or (self.step or 0) > (before.step or 0)

    def joined(self, before: LogSign) -> LogSign:
        """With what only the lines before told: a step that was pushed out of the newest ones stays known."""
        if self.incarnation != before.incarnation:
            return max(self, before, key=lambda sign: sign.incarnation)
        at = max(self.at, before.at)
        if before.step is None or (self.step or 0) >= before.step:
            return replace(self, at=at)
        return replace(self, at=at, rank=before.rank, step=before.step)

    @property
    def words(self) -> str:
        """For people."""
        told = "has made no step" if self.step is None else f"is at step {self.step}"
        return f"rank {self.rank} {told} by its own log"


@dataclass(frozen=True)
class SecondSight:
    """What is known by the second path since the coordinator is not heard; times by our clock, Unix seconds."""

    unheard_since: float
    deaf: bool = False
    """It answers us, but does not hear its launchers."""
    looks: int = 0
    """That were answered."""
    signs: tuple[tuple[str, LogSign], ...] = ()
    """The newest of each pod that told something."""
    still_since: float | None = None
    """The look that first showed what is still the newest; None: no look has shown anything."""
    moved: bool = False
    """The newest look showed something that the look before had not."""
    ever_moved: bool = False
    longest_seconds: float = 0.0
    """The longest time for which nothing was seen to be done, and then something was."""
    unread: tuple[tuple[str, str], ...] = ()
    """Pods whose logs said nothing in the newest look, and why."""
    unreached: tuple[str, ...] = ()
    """Nodes whose kubelets the cluster does not reach."""

    @property
    def furthest(self) -> LogSign | None:
        """The sign that has come furthest; None: no log has told anything."""
        found = (sign for _, sign in self.signs)
        return max(found, key=lambda sign: (sign.incarnation, sign.step or 0, -sign.rank), default=None)

    @property
    def step(self) -> int | None:
        """The highest step that is known."""
        return None if self.furthest is None else self.furthest.step
