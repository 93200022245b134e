"""How a launcher enters its gang: presents itself, says or learns where the ranks meet, and waits for the others.

What a launcher hears of its gang: values, and how the coordinator's orders are read. Pure.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Union, cast

from workflows.programs.launcher.options import Options, Place, Rendezvous
from workflows.programs.runtime.http_client import AwayError, Client, HttpAnswer

LONG_POLL_SECONDS = 20.0
FIRST_RETRY_SECONDS = 0.01
LAST_RETRY_SECONDS = 1.0
EARLY_RETRY_SECONDS = 0.1
"""Longest pause between two tries in the first ten seconds: everybody starts at the same time."""


class GivenUpError(Exception):
    """The coordinator could not be reached in time, or refused."""


class JoinAnswer(NamedTuple):
    """What the coordinator says to one who joins."""

    incarnation: int
    sequence: int
    """Of the last batch of reports that it knows."""


class Entry:
    """One launcher's way in.

    Args:
        client: of the coordinator.
        options: of the launcher.
        place: of the launcher.
    """

    def __init__(self, client: Client, options: Options, place: Place) -> None:
        self._client = client
        self._options = options
        self._place = place

    def join(self, seconds: float, incarnation: int = 1, heard_order: int = 0) -> JoinAnswer:
        """Present yourself.

        Args:
            seconds: how long the coordinator may be away.
            incarnation: whose ranks this pod runs, or waits to start.
            heard_order: number of the last order that was heard.

        Raises:
            GivenUpError: it was away for longer, or refused.
        """
        options, place = self._options, self._place
        body: Dict[str, Any] = {
            "role": options.role,
            "pod_index": place.pod_index,
            "pod": place.pod,
            "node": place.node,
            "address": place.pod_ip,
            "pods": options.pods,
            "processes": options.processes_per_node,
            "essential": options.decides or options.in_place,
            "pids": {},
            "incarnation": incarnation,
            "heard_order": heard_order,
            "resume_from": place.resume_from,
            "resume_step": place.resume_step,
        }
        answer = self._insist("POST", "/v1/join", body, time.monotonic() + seconds)
        return JoinAnswer(int(answer.body.get("incarnation", 1)), int(answer.body.get("sequence", 0)))

    def meet(self, incarnation: int, seconds: float) -> Rendezvous:
        """Wait for the whole gang; the first pod says where it meets.

        Args:
            incarnation: whose ranks are to meet; none of an earlier one lives in this pod any more.
            seconds: how long the others may take.

        Raises:
            GivenUpError: not all pods came in time, or the gang is in another incarnation.
        """
        options, place = self._options, self._place
        deadline = time.monotonic() + seconds
        if incarnation > 1:
            body = {"role": options.role, "pod_index": place.pod_index, "incarnation": incarnation}
            self._insist("POST", "/v1/clear", body, deadline)
        if place.pod_index == options.first_pod(place.pod_index):
            body = {
                "role": options.role,
                "pod_index": place.pod_index,
                "incarnation": incarnation,
                "master_addr": place.pod_ip,
                "master_port": free_port(place.pod_ip),
            }
            self._insist("POST", "/v1/publish", body, deadline)
        wait = min(LONG_POLL_SECONDS, seconds)
        path = f"/v1/rendezvous?role={options.role}&pod_index={place.pod_index}&wait={wait:g}"
        while True:
            said = self._insist("GET", path, None, deadline).body
            if said.get("incarnation") is not None:
                if int(said["incarnation"]) != incarnation:
                    raise GivenUpError(f"the gang meets in incarnation {said['incarnation']}, not {incarnation}")
                first = int(said["assignments"][str(place.pod_index)])
                return Rendezvous(int(said["incarnation"]), str(said["master_addr"]), int(said["master_port"]), first)
            if time.monotonic() >= deadline:
                waited = f"{seconds:g} s"
                raise GivenUpError(f"not all {options.pods_together} pods of {options.role} joined within {waited}")

    def _insist(self, method: str, path: str, body: Any, deadline: float) -> HttpAnswer:
        """Ask until there is an answer.

        Raises:
            GivenUpError: none until the deadline, or one that refuses.
        """
        began = time.monotonic()
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                answer = self._client.request(method, path, body, timeout_seconds=LONG_POLL_SECONDS + 5)
            except AwayError as error:
                if time.monotonic() >= deadline:
                    raise GivenUpError(f"the coordinator did not answer in time: {error}") from error
            else:
                if answer.status == 200:
                    return answer
                if answer.status < 500:
                    raise GivenUpError(f"the coordinator refused {path}: {answer.body.get('error', answer.status)}")
            time.sleep(pause)
            longest = EARLY_RETRY_SECONDS if time.monotonic() - began < 10 else LAST_RETRY_SECONDS
            pause = min(pause * 1.5, longest)


def free_port(address: str) -> int:
    """A port of `address` that nobody uses now, below the range from which the system serves outgoing connections.

    Between this look and the rank's own bind nothing but another launcher on the same address could take it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for number in memoryview(os.urandom(100)).cast("H"):
        port = 20000 + number % 12000
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Met:
    """The gang is complete."""

    meeting: Rendezvous


@dataclass(frozen=True)
class Stop:
    """The coordinator orders the end."""

    why: str
    save: bool


@dataclass(frozen=True)
class RestartOrder:
    """The coordinator orders that ranks begin again inside their pods."""

    incarnation: int
    resume_from: str
    """As the trainer is told; "": from scratch."""
    resume_step: Optional[int]
    why: str


@dataclass(frozen=True)
class Stacks:
    """The coordinator wants to see where the ranks stand; they go on."""

    id: str
    why: str


@dataclass(frozen=True)
class Note:
    """Something to be said in the log; nothing follows from it."""

    text: str


@dataclass(frozen=True)
class Lost:
    """The gang cannot be joined."""

    why: str


Heard = Union[Met, Stop, RestartOrder, Stacks, Note, Lost]


class Numbered(NamedTuple):
    """An order and its number; 0: it has none."""

    number: int
    order: Heard


def orders_of(body: Mapping[str, Any]) -> List[Numbered]:
    """The orders in an answer of `GET /v1/orders`; what is not understood is a note that says so, and never a stop."""
    said: Any = body.get("orders", [])
    if not isinstance(said, list):
        return [Numbered(0, _refused(said))]
    return [_numbered(one) for one in cast("List[Any]", said)]


def _numbered(said: Any) -> Numbered:
    if not isinstance(said, dict):
        return Numbered(0, _refused(said))
    known = cast("Dict[str, Any]", said)
    number = known.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return Numbered(0, _refused(known))
    try:
        return Numbered(number, _ORDERS[str(known.get("order"))](known))
    except (KeyError, ValueError, TypeError):
        return Numbered(number, _refused(known))


def _refused(said: Any) -> Note:
    return Note(f"an order of the coordinator is not understood, and nothing is done about it: {str(said)[:300]}")


def _stop(said: Mapping[str, Any]) -> Heard:
    return Stop(str(said.get("why", "")), bool(said.get("save")))


def _restart(said: Mapping[str, Any]) -> Heard:
    step = said.get("resume_step")
    resume_from = str(said.get("resume_from") or "")
    return RestartOrder(
        int(said["incarnation"]), resume_from, None if step is None else int(step), str(said.get("why", ""))
    )


def _stacks(said: Mapping[str, Any]) -> Heard:
    return Stacks(str(said["id"]), str(said.get("why", "")))


_ORDERS: Dict[str, Callable[[Mapping[str, Any]], Heard]] = {"stop": _stop, "restart": _restart, "stacks": _stacks}
