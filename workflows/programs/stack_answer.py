"""A launcher's answer to the order `stacks`: collected and sent beside its loop, so that nobody waits for it."""

from __future__ import annotations

import threading
import time
from typing import Dict, Mapping

from workflows.programs.gang import Gang
from workflows.programs.launcher_orders import Note, Stacks

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

    def __init__(self, gang: Gang, pod: str, node: str) -> None:
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
        from workflows.programs import stack_wire, stacks

        dump = stacks.gather(pids, self._node, stacks.here())
        body = stack_wire.to_json(stack_wire.Answer(self._pod, order.id, dump))
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
