"""What a launcher has to say, on its way to the coordinator: gathered, sent in a thread of its own until it arrives."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

from workflows.programs.gang_entry import EARLY_RETRY_SECONDS, FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, GivenUpError
from workflows.programs.outbox import Batch, Outbox
from workflows.programs.wire import Answer, AwayError, Client

HEARTBEAT_SECONDS = 1.0
BATCH_SECONDS = 0.1
"""Reports are gathered so long, unless one of them is urgent."""


class Words(NamedTuple):
    """Who speaks, and what else the sender needs of the launcher's link."""

    role: str
    pod_index: int
    use: Callable[[], Optional[Dict[str, Any]]]
    """What the pod uses, where there is something newer than the last time."""
    rejoin: Callable[[Client], int]
    """Presents the pod anew; the number of the last batch that the coordinator knows. May raise as `Entry.join`."""


class Sender:
    """Sends reports and states, and a heartbeat where there are none.

    Args:
        client: opens a connection.
        words: of the launcher's link.
        hear: told what a person should know; from any thread.
    """

    def __init__(self, client: Callable[[], Client], words: Words, hear: Callable[[str], None]) -> None:
        self._client = client
        self._words = words
        self._hear = hear
        self._outbox = Outbox()
        self._changed = threading.Condition()
        self._urgent = False
        self._begun = False
        self._hurries = False
        self._closed = False
        self._refused = ""

    def begin(self, sequence: int) -> None:
        """The coordinator is there, and knows batches up to this number: send from now on."""
        with self._changed:
            self._begun = True
            self._outbox.resume_after(sequence)
        threading.Thread(target=self._run, name="sender", daemon=True).start()

    def report(self, reports: Sequence[Dict[str, Any]], urgent: bool) -> None:
        """Let reports travel, in order; urgent ones at once."""
        with self._changed:
            quiet = self._outbox.empty
            for report in reports:
                self._outbox.add(report)
            self._ring(urgent, quiet)
            words = self._outbox.words()
        if words:
            self._hear(words)

    def say(self, state: str, why: str, pids: Optional[Dict[str, int]], incarnation: int) -> None:
        """Let a new state of the pod travel, at once."""
        with self._changed:
            self._outbox.say(state, why, pids, incarnation)
            self._ring(True, True)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything has arrived; tried again until then. False at once where nothing was ever sent."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            self._hurries = True
            self._changed.notify_all()
            while not self._outbox.empty:
                left = deadline - time.monotonic()
                if left <= 0 or not self._begun:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Send what there is once more, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _ring(self, urgent: bool, quiet: bool) -> None:
        """Wake the thread where it does not know yet that there is something to send."""
        self._urgent = self._urgent or urgent
        if urgent or quiet:
            self._changed.notify_all()

    def _run(self) -> None:
        client = self._client()
        pause = FIRST_RETRY_SECONDS
        while self._wait():
            with self._changed:
                batch = self._outbox.begin()
                self._urgent = False
            try:
                answer = client.request("POST", "/v1/report", self._body(batch))
                if answer.status == 404:
                    # It was started again without its memory: present yourself, then say it again.
                    known = self._words.rejoin(client)
                    with self._changed:
                        self._outbox.resume_after(known)
                    continue
                arrived = answer.status < 500
                self._note_refusal(answer)
            except (AwayError, GivenUpError):
                arrived = False
            if arrived:
                pause = FIRST_RETRY_SECONDS
                self._arrived(batch)
            else:
                self._rest(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)

    def _body(self, batch: Batch) -> Dict[str, Any]:
        body = {"role": self._words.role, "pod_index": self._words.pod_index, **batch._asdict()}
        if (use := self._words.use()) is not None:
            body["use"] = use  # only the newest counts: one that gets lost is not sent again
        return body

    def _arrived(self, batch: Batch) -> None:
        with self._changed:
            self._outbox.done(batch)
            words = self._outbox.words()
            self._changed.notify_all()
        if words:
            self._hear(words)

    def _note_refusal(self, answer: Answer) -> None:
        """Say what the coordinator has against reports, when it is something new: it would never take them."""
        before, self._refused = self._refused, ""
        if 400 <= answer.status < 500:
            self._refused = f"{answer.status} {answer.body.get('error', '')}".strip()
            if self._refused != before:
                self._hear(f"the coordinator refuses what is reported, and it is dropped: {self._refused}")

    def _rest(self, seconds: float) -> None:
        """Before the next try; shorter where somebody waits for it."""
        with self._changed:
            hurries = self._changed.wait_for(lambda: self._hurries, seconds)
        if hurries:
            time.sleep(min(seconds, EARLY_RETRY_SECONDS))

    def _wait(self) -> bool:
        """Until there is something to send or a heartbeat is due; False at the end."""
        due = time.monotonic() + HEARTBEAT_SECONDS
        gathering = False
        with self._changed:
            while not self._closed and not self._urgent:
                if not gathering and not self._outbox.empty:
                    gathering, due = True, min(due, time.monotonic() + BATCH_SECONDS)
                left = due - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return not self._closed or not self._outbox.empty
