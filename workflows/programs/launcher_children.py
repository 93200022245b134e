"""The launcher's own children beside its ranks: the prover of checkpoints, and the parked process."""

from __future__ import annotations

import time
from typing import Callable, FrozenSet, NamedTuple, Optional

from workflows.programs import ranks
from workflows.programs.launch_options import Options, Place
from workflows.programs.paced_poll import PacedPoll
from workflows.programs.prover_child import ProverChild, command
from workflows.programs.warm_ranks import WarmRanks
from workflows.reports import CheckpointSeen


class Patience(NamedTuple):
    """What a launcher whose ranks have ended still waits for, in seconds each."""

    proof_seconds: float
    """Until the newest checkpoint is proven."""
    flush_seconds: float
    """Until the coordinator has taken what is still to be told."""


def patience(reason: str, saved: bool) -> Patience:
    """How long a pod stays; where nothing was saved its record is what is waited for.

    Whoever chooses the checkpoint to go on from reads what nobody has read; a broken gang's coordinator may be gone.

    Args:
        reason: why the pod ends.
        saved: its ranks were asked to save, and ended in time.
    """
    if reason == "completed":
        return Patience(30.0, 2.0)
    return Patience(1.0, 2.0) if saved else Patience(0.0, 0.3)


class Children:
    """Started, heard, reaped and ended.

    Args:
        options: of the launcher.
        place: of the launcher.
        in_place: ranks may be started again inside the pod.
        poll: hears their descriptors.
        say: a line for people.
        tell: what the prover has found.
    """

    def __init__(
        self,
        options: Options,
        place: Place,
        in_place: bool,
        poll: PacedPoll,
        say: Callable[[str], None],
        tell: Callable[[CheckpointSeen], None],
    ) -> None:
        self._poll, self._say, self._tell = poll, say, tell
        self.prover = ProverChild(command(options, place))
        self.warm = WarmRanks(in_place and options.forkable, options.preload, say, poll.add)

    @property
    def spared(self) -> FrozenSet[int]:
        """Not ranks': whoever sweeps leaves them alone."""
        return frozenset(pid for pid in (self.prover.pid, self.warm.pid) if pid)

    @property
    def due(self) -> Optional[float]:
        """Monotonic seconds at which something is to be done here; None: never, as things are."""
        return self.warm.due

    def hear(self, fd: int) -> None:
        """A descriptor is readable: of one of them, or of neither."""
        if fd == self.prover.fd:
            self._hear_prover()
        elif fd == self.warm.fd:
            self.warm.hear()

    def started(self, example: ranks.Start, now: float) -> None:
        """Ranks were started.

        Args:
            example: how one of them was.
            now: monotonic seconds.
        """
        if not self.prover.pid:
            self._start_prover()
        self.warm.started(example, now)

    def reaped(self, pid: int, status: int, needed: bool) -> bool:
        """Whether it was one of them that has ended; a prover that is still needed is started once more."""
        if pid != self.prover.pid:
            return self.warm.reaped(pid)
        self._hear_prover()
        self.prover.ended()
        if needed:
            how = ranks.describe_status(status)
            self._say(f"the prover ended with {how}: checkpoints are not proven until it is back")
            self._start_prover()
        return True

    def end_prover(self, seconds: float, turn: Callable[[float], None]) -> None:
        """Let the prover look once more and end; it is waited for.

        Args:
            seconds: how long.
            turn: lets the launcher work for at most so many seconds.
        """
        deadline = time.monotonic() + seconds
        self.prover.finish()
        while self.prover.pid and time.monotonic() < deadline:
            turn(max(0.0, deadline - time.monotonic()))

    def _hear_prover(self) -> None:
        for report in self.prover.read():
            self._tell(report)

    def _start_prover(self) -> None:
        problem = self.prover.start()
        if problem:
            self._say(problem)
        elif self.prover.fd >= 0:
            self._poll.add(self.prover.fd)
