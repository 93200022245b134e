"""How a launcher enters its gang: presents itself, says or learns where the ranks meet, and waits for the others."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Dict, NamedTuple

from workflows.programs.launch_options import Options, Place, Rendezvous
from workflows.programs.wire import Answer, AwayError, Client

LONG_POLL_SECONDS = 20.0
FIRST_RETRY_SECONDS = 0.01
LAST_RETRY_SECONDS = 1.0
EARLY_RETRY_SECONDS = 0.1
"""Longest pause between two tries in the first ten seconds: everybody starts at the same time."""


class GivenUpError(Exception):
    """The coordinator could not be reached in time, or refused."""


class Known(NamedTuple):
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

    def join(self, seconds: float, incarnation: int = 1, heard_order: int = 0) -> Known:
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
        return Known(int(answer.body.get("incarnation", 1)), int(answer.body.get("sequence", 0)))

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

    def _insist(self, method: str, path: str, body: Any, deadline: float) -> Answer:
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
