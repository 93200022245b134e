"""A launcher's link to its gang: join, meet, report, hear orders.

Two threads, so that a slow name server or a dead coordinator never holds up the ranks; what they hear reaches the
launcher's loop through a queue and a pipe.

What a launcher has to say, on its way to the coordinator: gathered, sent in a thread of its own until it arrives.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence

from workflows.programs.launcher.lifecycle import MEET_AGAIN_SECONDS
from workflows.programs.launcher.meter import Looks, Meter
from workflows.programs.launcher.options import Options, Place, Rendezvous
from workflows.programs.launcher.outbox import Batch, Outbox
from workflows.programs.launcher.rendezvous import (
    EARLY_RETRY_SECONDS,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    LONG_POLL_SECONDS,
    Entry,
    GivenUpError,
    Heard,
    Lost,
    Met,
    Note,
    free_port,
    orders_of,
)
from workflows.programs.runtime.http_client import AddressError, AwayError, Client, HttpAnswer

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

    def _note_refusal(self, answer: HttpAnswer) -> None:
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


class CoordinatorLink:
    """The link. `fd` is readable when `heard` has something.

    Args:
        options: of the launcher.
        place: of the launcher; without a coordinator's URL there is no gang and one pod is enough.
    """

    def __init__(self, options: Options, place: Place) -> None:
        self._meter = Meter(lambda: Looks(lambda words: self.hear(Note(words))).look)
        self._options = options
        self._place = place
        self._heard: Deque[Heard] = deque()
        self.fd, self._wake = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._wake, False)
        self._closed = False
        self._incarnation = 1
        self._heard_order = 0
        words = Words(options.role, place.pod_index, self._meter.newest, self._rejoined)
        self._sender = Sender(self._client, words, lambda said: self.hear(Note(said)))

    def start(self) -> None:
        """Begin to join."""
        if not self._place.coordinator_url:
            self._alone()
            return
        threading.Thread(target=self._run, name="reports", daemon=True).start()

    def heard(self) -> List[Heard]:
        """What was heard since the last call."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass
        found: List[Heard] = []
        while self._heard:
            found.append(self._heard.popleft())
        return found

    def hear(self, news: Heard) -> None:
        """Let the launcher hear something; from any thread."""
        self._heard.append(news)
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-up calls already
            os.write(self._wake, b"!")

    def report(self, report: Dict[str, Any], urgent: bool = False) -> None:
        """Let a report travel; an urgent one at once."""
        self.report_all([report], urgent)

    def report_all(self, reports: Sequence[Dict[str, Any]], urgent: bool = False) -> None:
        """Let reports travel, in order; urgent ones at once."""
        if reports and self._place.coordinator_url:
            self._sender.report(reports, urgent)

    def say(self, state: str, why: str = "", pids: Optional[Dict[str, int]] = None) -> None:
        """Tell the coordinator this pod's state, at once."""
        self._sender.say(state, why, pids, self._incarnation)
        if pids and self._place.coordinator_url:
            self._meter.watch(pids)

    def meet_again(self, incarnation: int) -> None:
        """Meet the gang once more; none of this pod's ranks may live any more. Earlier meetings are forgotten."""
        self._incarnation = incarnation
        threading.Thread(target=self._meet_again, args=(incarnation,), name="meeting", daemon=True).start()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything has arrived; a coordinator that is away is tried again until then."""
        return self._sender.flush(timeout_seconds)

    def ask(self, path: str, timeout_seconds: float) -> Optional[Dict[str, Any]]:
        """One question on a connection of its own; None where no answer came."""
        answer = self._once("GET", path, None, timeout_seconds)
        return answer.body if answer is not None and answer.status == 200 else None

    def post(self, path: str, body: Dict[str, Any], timeout_seconds: float) -> Optional[int]:
        """Post on a connection of its own: the status; None where no answer came."""
        answer = self._once("POST", path, body, timeout_seconds)
        return None if answer is None else answer.status

    def close(self) -> None:
        """Stop reporting; the threads end by themselves."""
        self._closed = True
        self._sender.close()

    def _once(
        self, method: str, path: str, body: Optional[Dict[str, Any]], timeout_seconds: float
    ) -> Optional[HttpAnswer]:
        if not self._place.coordinator_url:
            return None
        client = self._client()
        try:
            return client.request(method, path, body, timeout_seconds)
        except AwayError:
            return None
        finally:
            client.close()

    def _client(self) -> Client:
        return Client(self._place.coordinator_url, self._place.token, self._place.hosts_file)

    def _alone(self) -> None:
        if self._options.pods > 1:
            self.hear(Lost("PRIMUS_COORDINATOR_URL: must be set for a gang of more than one pod"))
            return
        address = self._place.pod_ip
        self.hear(Met(Rendezvous(1, address, free_port(address), 0)))

    def _run(self) -> None:
        """Enter. From the moment of joining on, heartbeats go out and orders come in: the others may take long."""
        try:
            entry = Entry(self._client(), self._options, self._place)
            known = entry.join(self._options.join_seconds)
            self._sender.begin(known.sequence)
            threading.Thread(target=self._hear_orders, name="orders", daemon=True).start()
            self._incarnation = known.incarnation
            self.hear(Met(entry.meet(known.incarnation, self._options.rendezvous_seconds)))
        except AddressError as error:
            self.hear(Lost(f"PRIMUS_COORDINATOR_URL: {error}"))
        except GivenUpError as error:
            self.hear(Lost(str(error)))

    def _meet_again(self, incarnation: int) -> None:
        """Until the gang has met, or begins yet another incarnation: the launcher says when it has taken too long."""
        client = self._client()
        entry = Entry(client, self._options, self._place)
        while self._incarnation == incarnation and not self._closed:
            try:
                met = Met(entry.meet(incarnation, MEET_AGAIN_SECONDS))
            except GivenUpError:
                time.sleep(EARLY_RETRY_SECONDS)
                continue
            self.hear(met)
            break
        client.close()

    def _rejoined(self, client: Client) -> int:
        entry = Entry(client, self._options, self._place)
        return entry.join(0, self._incarnation, self._heard_order).sequence

    def _hear_orders(self) -> None:
        client = self._client()
        pause = FIRST_RETRY_SECONDS
        role, index = self._options.role, self._place.pod_index
        while not self._closed:
            path = f"/v1/orders?role={role}&pod_index={index}&since={self._heard_order}"
            try:
                answer = client.request(
                    "GET", f"{path}&wait={LONG_POLL_SECONDS:g}", timeout_seconds=LONG_POLL_SECONDS + 5
                )
            except AwayError:
                time.sleep(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)
                continue
            pause = FIRST_RETRY_SECONDS
            if answer.status != 200:
                time.sleep(LAST_RETRY_SECONDS)
                continue
            before, orders = self._heard_order, orders_of(answer.body)
            for number, order in orders:
                self._heard_order = max(self._heard_order, number)
                self.hear(order)
            if orders and self._heard_order == before:
                time.sleep(LAST_RETRY_SECONDS)  # nobody said a number: it will say the same again at once
