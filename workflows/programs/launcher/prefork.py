"""Starts ranks, forked from a parked process where that is possible; collects stacks beside the launcher's loop.

The first incarnation is started plainly. The process is parked only when the gang has done a step, so that its imports
delay no first step, neither in this pod nor in those that still start. Each obstacle to a fork is printed once.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, Mapping, Optional, Sequence

from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.rendezvous import LogNote, StacksOrder
from workflows.programs.runtime import processes

if TYPE_CHECKING:
    from workflows.programs.prefork.parent import ParkedProcess

PARK_AFTER_SECONDS = 5.0
"""From the start of the ranks, where they report no step earlier."""

ANSWER_SECONDS = 2.0
"""Time for the coordinator to take an answer."""
RETRY_SECONDS = 0.2
TRIES = 5


class RankStarter:
    """Starts ranks, forked where possible.

    `wanted`: ranks may restart in place, and be forked; `preload` comes from the flag; `listen` adds a descriptor to
    the launcher's loop.
    """

    def __init__(
        self, wanted: bool, preload: Sequence[str], say: Callable[[str], None], listen: Callable[[int], None]
    ) -> None:
        self._wanted = wanted
        self._preload = [name for text in preload for name in text.split(",") if name]
        self._say = say
        self._listen = listen
        self._parked: Optional[ParkedProcess] = None
        self._example: Optional[processes.Start] = None
        self.due: Optional[float] = None
        """Monotonic seconds at which `tick` parks a process; None: it is not due."""
        self._plainly = False

    @property
    def pid(self) -> int:
        """Process id of the parked process; 0: there is none."""
        return 0 if self._parked is None else self._parked.pid

    @property
    def fd(self) -> int:
        """Descriptor of the parked process' messages; -1: none."""
        return -1 if self._parked is None else self._parked.fileno()

    def begin(self) -> None:
        """Begin an incarnation, which tries to fork again."""
        self._plainly = False

    def start(self, plan: processes.Start) -> processes.RankProcess:
        """Start a rank.

        Raises:
            StartError: as of `ranks.start`.
        """
        if self._parked is not None and self._parked.fileno() >= 0 and not self._plainly:
            from workflows.programs.prefork.parent import ForkUnavailableError

            try:
                return self._parked.fork(plan)
            except ForkUnavailableError as error:
                self._plainly = True  # the next rank would wait for the same
                self._say(f"ranks from {plan.rank} are started plainly: {error}")
        return processes.start(plan)

    def after_start(self, example: processes.Start, now: float) -> None:
        """Plan to park a process for the next ranks, started like `example`; `now` is in monotonic seconds."""
        if self._wanted and self._example is None:
            self._example, self.due = example, now + PARK_AFTER_SECONDS

    def note_step(self, now: float) -> None:
        """A rank did a step, so the whole gang has started."""
        if self.due is not None:
            self.due = min(self.due, now)

    def tick(self, now: float) -> None:
        """Park a process where that is due."""
        example = self._example
        if self.due is None or now < self.due or example is None:
            return
        self.due = None
        # Not before: no launcher pays for it until its ranks train.
        from workflows.programs.prefork.parent import ForkUnavailableError, ParkedProcess
        from workflows.programs.prefork.protocol import parse_command

        program = parse_command(example.argv)
        if program is None:
            words = " ".join(example.argv)[:200]
            return self._say(f"ranks that begin again are started plainly: {words}: not a Python program")
        self._parked = ParkedProcess(
            program, self._preload, example.environment, example.working_directory, example.pseudo_terminal
        )
        try:
            self._parked.start()
        except (ForkUnavailableError, OSError) as error:  # no descriptor is left: a run does not end for that
            return self._say(f"ranks that begin again are started plainly: {error}")
        self._listen(self._parked.fileno())
        return None

    def read(self) -> None:
        """Read messages of the parked process; called when `fd` is readable."""
        if self._parked is None:
            return
        for text in self._parked.read():
            self._say(text)
        if self._parked.ready:
            self._say(f"ranks that begin again are forked from process {self._parked.pid}")

    def reap(self, pid: int) -> bool:
        """Whether the ended process was the parked one."""
        parked = self._parked
        if parked is None or pid != parked.pid:
            return False
        while parked.fileno() >= 0:  # its last words, and after them the end
            self.read()
        parked.mark_ended()
        return True

    def close(self) -> None:
        """End the parked process, and park no other."""
        self.due = None
        if self._parked is not None:
            self._parked.close()


class StackCollector:
    """Answers requests for stacks, one after the other, through the link `gang`."""

    def __init__(self, gang: CoordinatorLink, pod: str, node: str) -> None:
        self._gang, self._pod, self._node = gang, pod, node
        self._one_at_a_time = threading.Lock()

    def answer(self, order: StacksOrder, pids: Mapping[str, int]) -> None:
        """Begin to answer; a note reports the outcome. `pids` has the process id of each rank."""
        numbers = {int(rank): pid for rank, pid in pids.items()}
        threading.Thread(target=self._work, args=(order, numbers), name="stacks", daemon=True).start()

    def _work(self, order: StacksOrder, pids: Dict[int, int]) -> None:
        with self._one_at_a_time:
            try:
                outcome = self._collect_and_send(order, pids)
            except (OSError, ValueError, RuntimeError) as error:  # no descriptor or thread left; names without end
                outcome = f"failed: {error}"
        self._gang.add_event(LogNote(f"stacks {order.id} ({order.why}): {outcome}"))

    def _collect_and_send(self, order: StacksOrder, pids: Dict[int, int]) -> str:
        # Imported where it is asked for: no launcher pays for it at its start.
        from workflows.programs.stacks import collect, values

        dump = collect.gather(pids, self._node, collect.local_options())
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
