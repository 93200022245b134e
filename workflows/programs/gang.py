"""A launcher's link to its gang: join, meet, report, hear orders.

Two threads, so that a slow name server or a dead coordinator never holds up the ranks; what they hear reaches the
launcher's loop through a queue and a pipe.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence

from workflows.programs.gang_entry import (
    EARLY_RETRY_SECONDS,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    LONG_POLL_SECONDS,
    Entry,
    GivenUpError,
    free_port,
)
from workflows.programs.gang_sender import Sender, Words
from workflows.programs.launch_options import Options, Place, Rendezvous
from workflows.programs.launcher_orders import Heard, Lost, Met, Note, orders_of
from workflows.programs.lifecycle import MEET_AGAIN_SECONDS
from workflows.programs.meter import Looks, Meter
from workflows.programs.wire import AddressError, Answer, AwayError, Client


class Gang:
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

    def _once(self, method: str, path: str, body: Optional[Dict[str, Any]], timeout_seconds: float) -> Optional[Answer]:
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
