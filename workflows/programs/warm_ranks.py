"""When ranks of a pod are forked from a parked process, and when they are started plainly.

The first incarnation is started plainly and the process is parked when the gang has done a step: what it imports takes
nothing of the time to the first step, neither of its own pod's ranks nor of those that still start beside it. Whatever
stands in the way of a fork is said once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Sequence

from workflows.programs import ranks

if TYPE_CHECKING:
    from workflows.programs.warm import Parked

PARK_AFTER_SECONDS = 5.0
"""From the start of the ranks, where they report no step earlier."""


class WarmRanks:
    """Starts ranks, warm where it can.

    Args:
        wanted: ranks may be started again in place, and forked.
        preload: modules to import, as the flag says them.
        say: a line for people.
        listen: hears a descriptor from now on.
    """

    def __init__(
        self, wanted: bool, preload: Sequence[str], say: Callable[[str], None], listen: Callable[[int], None]
    ) -> None:
        self._wanted = wanted
        self._preload = [name for text in preload for name in text.split(",") if name]
        self._say = say
        self._listen = listen
        self._parked: Optional[Parked] = None
        self._example: Optional[ranks.Start] = None
        self.due: Optional[float] = None
        """Monotonic seconds at which `tick` parks; None: never, as things are."""
        self._plainly = False

    @property
    def pid(self) -> int:
        """Of the parked process; 0: there is none."""
        return 0 if self._parked is None else self._parked.pid

    @property
    def fd(self) -> int:
        """Readable when the parked process has something to say; -1: never."""
        return -1 if self._parked is None else self._parked.fileno()

    def begin(self) -> None:
        """An incarnation is to be started: each gets its own try."""
        self._plainly = False

    def start(self, plan: ranks.Start) -> ranks.Process:
        """Start a rank.

        Raises:
            StartError: as of `ranks.start`.
        """
        if self._parked is not None and self._parked.fileno() >= 0 and not self._plainly:
            from workflows.programs.warm import NotWarmError

            try:
                return self._parked.fork(plan)
            except NotWarmError as error:
                self._plainly = True  # the next rank would wait for the same
                self._say(f"ranks from {plan.rank} are started plainly: {error}")
        return ranks.start(plan)

    def started(self, example: ranks.Start, now: float) -> None:
        """Ranks were started: a process is to be parked for the next ones, once.

        Args:
            example: how one of them was started.
            now: monotonic seconds.
        """
        if self._wanted and self._example is None:
            self._example, self.due = example, now + PARK_AFTER_SECONDS

    def trains(self, now: float) -> None:
        """Ranks have done a step: all of the gang have started."""
        if self.due is not None:
            self.due = min(self.due, now)

    def tick(self, now: float) -> None:
        """Park where it is time."""
        example = self._example
        if self.due is None or now < self.due or example is None:
            return
        self.due = None
        # Not before: no launcher pays for it until its ranks train.
        from workflows.programs.warm import NotWarmError, Parked
        from workflows.programs.warm_program import forkable

        program = forkable(example.argv)
        if program is None:
            words = " ".join(example.argv)[:200]
            return self._say(f"ranks that begin again are started plainly: {words}: not a Python program")
        self._parked = Parked(
            program, self._preload, example.environment, example.working_directory, example.pseudo_terminal
        )
        try:
            self._parked.start()
        except (NotWarmError, OSError) as error:  # no descriptor is left: a run does not end for that
            return self._say(f"ranks that begin again are started plainly: {error}")
        self._listen(self._parked.fileno())
        return None

    def hear(self) -> None:
        """What the parked process says; to be called when `fd` is readable."""
        if self._parked is None:
            return
        for text in self._parked.read():
            self._say(text)
        if self._parked.ready:
            self._say(f"ranks that begin again are forked from process {self._parked.pid}")

    def reaped(self, pid: int) -> bool:
        """Whether it was the parked process that has ended."""
        parked = self._parked
        if parked is None or pid != parked.pid:
            return False
        while parked.fileno() >= 0:  # its last words, and after them the end
            self.hear()
        parked.ended()
        return True

    def close(self) -> None:
        """End the parked process, and park no other."""
        self.due = None
        if self._parked is not None:
            self._parked.close()
