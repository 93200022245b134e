"""When ranks of a pod are forked from a parked process, and when they are started plainly.

The first incarnation is started plainly and the process is parked when the gang has done a step: what it imports takes
nothing of the time to the first step, neither of its own pod's ranks nor of those that still start beside it. Whatever
stands in the way of a fork is said once.

A launcher's answer to the order `stacks`: collected and sent beside its loop, so that nobody waits for it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, Mapping, Optional, Sequence

from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.rendezvous import Note, Stacks
from workflows.programs.runtime import processes

if TYPE_CHECKING:
    from workflows.programs.prefork.parent import Parked


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
        self._example: Optional[processes.Start] = None
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

    def start(self, plan: processes.Start) -> processes.RankProcess:
        """Start a rank.

        Raises:
            StartError: as of `ranks.start`.
        """
        if self._parked is not None and self._parked.fileno() >= 0 and not self._plainly:
            from workflows.programs.prefork.parent import NotWarmError

            try:
                return self._parked.fork(plan)
            except NotWarmError as error:
                self._plainly = True  # the next rank would wait for the same
                self._say(f"ranks from {plan.rank} are started plainly: {error}")
        return processes.start(plan)

    def started(self, example: processes.Start, now: float) -> None:
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
        from workflows.programs.prefork.parent import NotWarmError, Parked
        from workflows.programs.prefork.protocol import forkable

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


ANSWER_SECONDS = 2.0
"""For the coordinator to take one."""
RETRY_SECONDS = 0.2
TRIES = 5


class StackAnswers:
    """Answers orders, one after the other.

    Args:
        gang: the way to the coordinator, and back to the launcher's loop.
        pod: of this launcher.
        node: of this launcher.
    """

    def __init__(self, gang: CoordinatorLink, pod: str, node: str) -> None:
        self._gang, self._pod, self._node = gang, pod, node
        self._one_at_a_time = threading.Lock()

    def answer(self, order: Stacks, pids: Mapping[str, int]) -> None:
        """Begin to; a note says what came of it.

        Args:
            order: of the coordinator.
            pids: process of each rank.
        """
        numbers = {int(rank): pid for rank, pid in pids.items()}
        threading.Thread(target=self._work, args=(order, numbers), name="stacks", daemon=True).start()

    def _work(self, order: Stacks, pids: Dict[int, int]) -> None:
        with self._one_at_a_time:
            try:
                said = self._collect_and_send(order, pids)
            except (OSError, ValueError, RuntimeError) as error:  # no descriptor or thread left; names without end
                said = f"failed: {error}"
        self._gang.hear(Note(f"stacks {order.id} ({order.why}): {said}"))

    def _collect_and_send(self, order: Stacks, pids: Dict[int, int]) -> str:
        # Imported where it is asked for: no launcher pays for it at its start.
        from workflows.programs.stacks import collect, values

        dump = collect.gather(pids, self._node, collect.here())
        body = values.answer_to_json(values.StackAnswer(self._pod, order.id, dump))
        seen = sum(1 for one in dump.processes if one.top and one.threads)
        words = f"{seen} of {len(pids)} ranks seen in {dump.seconds:.2f} s"
        for number in range(TRIES):
            if number:
                time.sleep(RETRY_SECONDS)
            status = self._gang.post("/v1/stacks", body, ANSWER_SECONDS)
            if status == 200:
                return words
            if status is not None and status < 500:
                return f"{words}, but the coordinator refused them with status {status}"
        return f"{words}, but the coordinator did not take them"
