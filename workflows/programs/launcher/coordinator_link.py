"""A launcher's link to the coordinator: it joins the gang, sends reports and receives orders.

It has two threads, so that a slow name server or a dead coordinator never holds up the ranks. One joins and polls for
orders, which reach the launcher's loop through a queue and a pipe; the other batches reports and retries until they
arrive.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence

from workflows.programs.launcher.lifecycle import REJOIN_SECONDS, refusal_cause
from workflows.programs.launcher.meter import LifeSigns, Meter, UsageSampler
from workflows.programs.launcher.options import Options, Place, Rendezvous
from workflows.programs.launcher.outbox import Batch, Outbox
from workflows.programs.launcher.rendezvous import (
    EARLY_RETRY_SECONDS,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    LONG_POLL_SECONDS,
    GangComplete,
    GangEntry,
    GangLost,
    JoinError,
    LinkEvent,
    LogNote,
    SurplusReleased,
    free_port,
    parse_orders,
)
from workflows.programs.runtime.http_client import AddressError, Client, HttpAnswer, UnreachableError

HEARTBEAT_SECONDS = 1.0
BATCH_SECONDS = 0.1
"""How long reports are batched, unless one of them is urgent."""


class SenderContext(NamedTuple):
    """What the sender needs from the link."""

    role: str
    pod_index: int
    use: Callable[[], Optional[Dict[str, Any]]]
    """The pod's newest usage; None where that was sent already."""
    life: Callable[[], Optional[Dict[str, Any]]]
    """What the pod's ranks show of life, where that is due."""
    rejoin: Callable[[Client], int]
    """Presents the pod anew; the number of the last batch that the coordinator knows. May raise as `Entry.join`."""
    release: Callable[[str], None]
    """Takes the identity of the ledger that lets checkpoints go which nobody needs."""


class Sender:
    """Sends reports and states, and a heartbeat where there are none.

    `hear` gets what a person should know, from any thread.
    """

    def __init__(self, client: Callable[[], Client], words: SenderContext, hear: Callable[[str], None]) -> None:
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
        self._life_wanted = False

    def begin(self, sequence: int) -> None:
        """Start to send: the coordinator is there and knows batches up to this number."""
        with self._changed:
            self._begun = True
            self._outbox.resume_after(sequence)
        threading.Thread(target=self._run, name="sender", daemon=True).start()

    def report(self, reports: Sequence[Dict[str, Any]], urgent: bool) -> None:
        """Queue reports, in order; urgent ones are sent at once."""
        with self._changed:
            quiet = self._outbox.is_empty
            for report in reports:
                self._outbox.add(report)
            self._wake(urgent, quiet)
            words = self._outbox.take_notice()
        if words:
            self._hear(words)

    def report_state(self, state: str, why: str, pids: Optional[Dict[str, int]], incarnation: int) -> None:
        """Send a new state of the pod, at once."""
        with self._changed:
            self._outbox.add_state(state, why, pids, incarnation)
            self._wake(True, True)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything has arrived; tried again until then. False at once where nothing was ever sent."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            self._hurries = True
            self._changed.notify_all()
            while not self._outbox.is_empty:
                left = deadline - time.monotonic()
                if left <= 0 or not self._begun:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Send what is queued, once, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wake(self, urgent: bool, quiet: bool) -> None:
        """Wake the thread where it does not know yet that there is something to send."""
        self._urgent = self._urgent or urgent
        if urgent or quiet:
            self._changed.notify_all()

    def _run(self) -> None:
        client = self._client()
        pause = FIRST_RETRY_SECONDS
        while self._wait():
            with self._changed:
                batch = self._outbox.next_batch()
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
                self._life_wanted = answer.body.get("life") is True
                if isinstance(ledger := answer.body.get("surplus"), str) and ledger:
                    self._words.release(ledger)
                self._note_refusal(answer)
            except (UnreachableError, JoinError):
                arrived = False
            if arrived:
                pause = FIRST_RETRY_SECONDS
                self._confirm(batch)
            else:
                self._rest(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)

    def _body(self, batch: Batch) -> Dict[str, Any]:
        body = {"role": self._words.role, "pod_index": self._words.pod_index, **batch._asdict()}
        if (use := self._words.use()) is not None:
            body["use"] = use  # only the newest counts: one that gets lost is not sent again
        if self._life_wanted and (life := self._words.life()) is not None:
            body["life"] = life
        return body

    def _confirm(self, batch: Batch) -> None:
        with self._changed:
            self._outbox.confirm(batch)
            words = self._outbox.take_notice()
            self._changed.notify_all()
        if words:
            self._hear(words)

    def _note_refusal(self, answer: HttpAnswer) -> None:
        """Note the coordinator's reason for refusing reports, once for each reason."""
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
                if not gathering and not self._outbox.is_empty:
                    gathering, due = True, min(due, time.monotonic() + BATCH_SECONDS)
                left = due - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return not self._closed or not self._outbox.is_empty


class CoordinatorLink:
    """The link. `fd` is readable when `heard` has something.

    Without a coordinator's URL in `place` there is no gang, and one pod is enough.
    """

    def __init__(self, options: Options, place: Place) -> None:
        self._meter = Meter(lambda: UsageSampler(lambda words: self.add_event(LogNote(words))).sample)
        self._life = LifeSigns()
        self._options = options
        self._place = place
        self._heard: Deque[LinkEvent] = deque()
        self.fd, self._wake = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._wake, False)
        self._closed = False
        self._incarnation = 1
        self._heard_order = 0
        words = SenderContext(
            options.role,
            place.pod_index,
            self._meter.take_newest,
            self._life.take,
            self._rejoin,
            self._release,
        )
        self._sender = Sender(self._client, words, lambda reason: self.add_event(LogNote(reason)))

    def start(self) -> None:
        """Begin to join."""
        if not self._place.coordinator_url:
            self._form_gang_alone()
            return
        threading.Thread(target=self._run, name="reports", daemon=True).start()

    def take_events(self) -> List[LinkEvent]:
        """What was heard since the last call."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass
        found: List[LinkEvent] = []
        while self._heard:
            found.append(self._heard.popleft())
        return found

    def add_event(self, news: LinkEvent) -> None:
        """Let the launcher hear something; from any thread."""
        self._heard.append(news)
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-up calls already
            os.write(self._wake, b"!")

    def report(self, report: Dict[str, Any], urgent: bool = False) -> None:
        """Let a report travel; an urgent one at once."""
        self.report_all([report], urgent)

    def report_all(self, reports: Sequence[Dict[str, Any]], urgent: bool = False) -> None:
        """Queue reports, in order; urgent ones are sent at once."""
        if reports and self._place.coordinator_url:
            self._sender.report(reports, urgent)

    def report_state(self, state: str, why: str = "", pids: Optional[Dict[str, int]] = None) -> None:
        """Tell the coordinator this pod's state, at once."""
        self._sender.report_state(state, why, pids, self._incarnation)
        if pids and self._place.coordinator_url:
            self._meter.watch(pids)
            self._life.watch(pids)

    def note_output(self) -> None:
        """A rank has printed something."""
        self._life.note_output()

    def join_incarnation(self, incarnation: int) -> None:
        """Meet the gang once more; none of this pod's ranks may live any more. Earlier meetings are forgotten."""
        self._incarnation = incarnation
        threading.Thread(target=self._join_incarnation, args=(incarnation,), name="meeting", daemon=True).start()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything has arrived; a coordinator that is away is tried again until then."""
        return self._sender.flush(timeout_seconds)

    def get(self, path: str, timeout_seconds: float) -> Optional[Dict[str, Any]]:
        """One question on a connection of its own; None where no answer came."""
        answer = self._request_once("GET", path, None, timeout_seconds)
        return answer.body if answer is not None and answer.status == 200 else None

    def post(self, path: str, body: Dict[str, Any], timeout_seconds: float) -> Optional[int]:
        """Post on a connection of its own: the status; None where no answer came."""
        answer = self._request_once("POST", path, body, timeout_seconds)
        return None if answer is None else answer.status

    def close(self) -> None:
        """Stop reporting; the threads end by themselves."""
        self._closed = True
        self._sender.close()

    def _request_once(
        self, method: str, path: str, body: Optional[Dict[str, Any]], timeout_seconds: float
    ) -> Optional[HttpAnswer]:
        if not self._place.coordinator_url:
            return None
        client = self._client()
        try:
            return client.request(method, path, body, timeout_seconds)
        except UnreachableError:
            return None
        finally:
            client.close()

    def _client(self) -> Client:
        return Client(self._place.coordinator_url, self._place.token, self._place.hosts_file)

    def _form_gang_alone(self) -> None:
        if self._options.pods > 1:
            self.add_event(GangLost("PRIMUS_COORDINATOR_URL: must be set for a gang of more than one pod", "address"))
            return
        address = self._place.pod_ip
        try:
            self.add_event(GangComplete(Rendezvous(1, address, free_port(address), 0)))
        except (JoinError, OSError) as error:
            self.add_event(_lost(error))

    def _run(self) -> None:
        """Enter. From the moment of joining on, heartbeats go out and orders come in: the others may take long."""
        try:
            entry = GangEntry(self._client(), self._options, self._place)
            known = entry.join(self._options.join_seconds)
            self._sender.begin(known.sequence)
            threading.Thread(target=self._poll_orders, name="orders", daemon=True).start()
            self._incarnation = known.incarnation
            self.add_event(GangComplete(entry.meet(known.incarnation, self._options.rendezvous_seconds)))
        except AddressError as error:
            self.add_event(GangLost(f"PRIMUS_COORDINATOR_URL: {error}", "address"))
        except (JoinError, OSError, ValueError, LookupError) as error:
            self.add_event(_lost(error))

    def _join_incarnation(self, incarnation: int) -> None:
        """Until the gang has met, or begins yet another incarnation: the launcher says when it has taken too long."""
        client = self._client()
        entry = GangEntry(client, self._options, self._place)
        while self._incarnation == incarnation and not self._closed:
            try:
                met = GangComplete(entry.meet(incarnation, REJOIN_SECONDS))
            except (JoinError, OSError):
                time.sleep(EARLY_RETRY_SECONDS)
                continue
            self.add_event(met)
            break
        client.close()

    def _release(self, ledger: str) -> None:
        self.add_event(SurplusReleased(ledger))

    def _rejoin(self, client: Client) -> int:
        entry = GangEntry(client, self._options, self._place)
        return entry.join(0, self._incarnation, self._heard_order).sequence

    def _poll_orders(self) -> None:
        client = self._client()
        pause = FIRST_RETRY_SECONDS
        role, index = self._options.role, self._place.pod_index
        while not self._closed:
            path = f"/v1/orders?role={role}&pod_index={index}&since={self._heard_order}"
            try:
                answer = client.request(
                    "GET", f"{path}&wait={LONG_POLL_SECONDS:g}", timeout_seconds=LONG_POLL_SECONDS + 5
                )
            except UnreachableError:
                time.sleep(pause)
                pause = min(pause * 2, LAST_RETRY_SECONDS)
                continue
            pause = FIRST_RETRY_SECONDS
            if answer.status != 200:
                time.sleep(LAST_RETRY_SECONDS)
                continue
            before, orders = self._heard_order, parse_orders(answer.body)
            for number, order in orders:
                self._heard_order = max(self._heard_order, number)
                self.add_event(order)
            if orders and self._heard_order == before:
                time.sleep(LAST_RETRY_SECONDS)  # nobody said a number: it will say the same again at once


def _lost(error: Exception) -> GangLost:
    """Why the gang cannot be entered: a thread that ended without a word would leave its launcher waiting for ever."""
    if isinstance(error, JoinError):
        return GangLost(str(error), error.cause)
    if isinstance(error, OSError):
        return GangLost(f"the system refused: {error}", refusal_cause(error))
    return GangLost(f"the coordinator's answer makes no sense: {error!r}", "coordinator-refused")
