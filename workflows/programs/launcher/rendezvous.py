"""How a launcher enters its gang: it joins, publishes or learns the rendezvous, and waits for the others.

Also the events that the link passes to the launcher, and the parser of the coordinator's orders.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Union, cast

from workflows.programs.launcher.options import Options, Place, Rendezvous
from workflows.programs.runtime.http_client import Client, HttpAnswer, UnreachableError
from workflows.wire import LauncherCause

LONG_POLL_SECONDS = 20.0
FIRST_RETRY_SECONDS = 0.01
LAST_RETRY_SECONDS = 1.0
EARLY_RETRY_SECONDS = 0.1
"""Longest pause between two tries in the first ten seconds, in which all pods start."""


class JoinError(Exception):
    """The gang cannot be entered; `cause` says in a word why."""

    def __init__(self, message: str, cause: LauncherCause) -> None:
        super().__init__(message)
        self.cause: LauncherCause = cause


class JoinAnswer(NamedTuple):
    """The coordinator's answer to a join."""

    incarnation: int
    sequence: int
    """Number of the last batch of reports that it knows."""


class GangEntry:
    """Brings one launcher into its gang."""

    def __init__(self, client: Client, options: Options, place: Place) -> None:
        self._client = client
        self._options = options
        self._place = place

    def join(self, seconds: float, incarnation: int = 1, heard_order: int = 0) -> JoinAnswer:
        """Join the gang.

        `seconds` is how long the coordinator may be away; `heard_order` is the number of the last order received.

        Raises:
            JoinError: the coordinator was away for longer, or refused.
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
        """Wait for the whole gang; the first pod publishes the rendezvous.

        All ranks of earlier incarnations of this pod are dead; `seconds` is how long the other pods may take.

        Raises:
            JoinError: not all pods came in time, or the gang is in another incarnation.
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
            data = self._insist("GET", path, None, deadline).body
            if data.get("incarnation") is not None:
                if int(data["incarnation"]) != incarnation:
                    why = f"the gang meets in incarnation {data['incarnation']}, not {incarnation}"
                    raise JoinError(why, "gang-incomplete")
                first = int(data["assignments"][str(place.pod_index)])
                return Rendezvous(int(data["incarnation"]), str(data["master_addr"]), int(data["master_port"]), first)
            if time.monotonic() >= deadline:
                why = f"not all {options.pods_together} pods of {options.role} joined within {seconds:g} s"
                raise JoinError(why, "gang-incomplete")

    def _insist(self, method: str, path: str, body: Any, deadline: float) -> HttpAnswer:
        """Repeat a request until it is answered; raises JoinError at the deadline, or where it is refused."""
        began = time.monotonic()
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                answer = self._client.request(method, path, body, timeout_seconds=LONG_POLL_SECONDS + 5)
            except UnreachableError as error:
                if time.monotonic() >= deadline:
                    why = f"the coordinator did not answer in time: {error}"
                    raise JoinError(why, "coordinator-away") from error
            else:
                if answer.status == 200:
                    return answer
                if answer.status < 500:
                    why = f"the coordinator refused {path}: {answer.body.get('error', answer.status)}"
                    raise JoinError(why, "coordinator-refused")
            time.sleep(pause)
            longest = EARLY_RETRY_SECONDS if time.monotonic() - began < 10 else LAST_RETRY_SECONDS
            pause = min(pause * 1.5, longest)


def free_port(address: str) -> int:
    """A port of `address` that nobody uses now, below the range from which the system serves outgoing connections.

    Between this look and the rank's own bind nothing but another launcher on the same address could take it.

    Raises:
        JoinError: the address is not this machine's, or none of its ports is free.
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
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise JoinError(f"PRIMUS_POD_IP: no port of {address} can be taken: {error.strerror}", "address") from error
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class GangComplete:
    """The gang is complete."""

    meeting: Rendezvous


@dataclass(frozen=True)
class StopOrder:
    """The coordinator orders the end."""

    why: str
    save: bool


@dataclass(frozen=True)
class RestartOrder:
    """The coordinator orders a restart in place."""

    incarnation: int
    resume_from: str
    """Value of the trainer's resume argument; "": from scratch."""
    resume_step: Optional[int]
    why: str


@dataclass(frozen=True)
class StacksOrder:
    """The coordinator asks for the stacks of the ranks, which go on."""

    id: str
    why: str


@dataclass(frozen=True)
class SurplusReleased:
    """Checkpoints that nobody needs may go now, says the ledger of this identity."""

    ledger: str


@dataclass(frozen=True)
class LogNote:
    """A line for the log, without further effect."""

    text: str


@dataclass(frozen=True)
class GangLost:
    """The gang cannot be joined."""

    why: str
    cause: LauncherCause


LinkEvent = Union[GangComplete, StopOrder, RestartOrder, StacksOrder, SurplusReleased, LogNote, GangLost]


class NumberedOrder(NamedTuple):
    """An order and its number; 0: none."""

    number: int
    order: LinkEvent


def parse_orders(body: Mapping[str, Any]) -> List[NumberedOrder]:
    """The orders in an answer of `GET /v1/orders`; an order that is not understood becomes a note, never a stop."""
    data: Any = body.get("orders", [])
    if not isinstance(data, list):
        return [NumberedOrder(0, _refusal_note(data))]
    return [_parse_order(one) for one in cast("List[Any]", data)]


def _parse_order(data: Any) -> NumberedOrder:
    if not isinstance(data, dict):
        return NumberedOrder(0, _refusal_note(data))
    known = cast("Dict[str, Any]", data)
    number = known.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return NumberedOrder(0, _refusal_note(known))
    try:
        return NumberedOrder(number, _ORDERS[str(known.get("order"))](known))
    except (KeyError, ValueError, TypeError):
        return NumberedOrder(number, _refusal_note(known))


def _refusal_note(data: Any) -> LogNote:
    return LogNote(f"an order of the coordinator is not understood, and nothing is done about it: {str(data)[:300]}")


def _stop(data: Mapping[str, Any]) -> LinkEvent:
    return StopOrder(str(data.get("why", "")), bool(data.get("save")))


def _restart(data: Mapping[str, Any]) -> LinkEvent:
    step = data.get("resume_step")
    resume_from = str(data.get("resume_from") or "")
    return RestartOrder(
        int(data["incarnation"]), resume_from, None if step is None else int(step), str(data.get("why", ""))
    )


def _stacks(data: Mapping[str, Any]) -> LinkEvent:
    return StacksOrder(str(data["id"]), str(data.get("why", "")))


_ORDERS: Dict[str, Callable[[Mapping[str, Any]], LinkEvent]] = {"stop": _stop, "restart": _restart, "stacks": _stacks}
