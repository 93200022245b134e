"""A coordinator for tests of launchers: it lets one pod in, gives the orders that a test writes, keeps answers."""

from __future__ import annotations

import os
import threading
from typing import Any

from tests.support.harness.launcher_harness import PORT, GangOnLoopback, until
from workflows.programs.runtime.http_server import DeferredResponse, Request, Response, Server


def number_of(order: Any, otherwise: int) -> int:
    """Of what is meant to be an order."""
    return order.get("number", otherwise) if isinstance(order, dict) else otherwise  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]


class ScriptedCoordinator:
    """A server in a thread.

    Args:
        gang: whose coordinator it is.
        stacks_status: what `POST /v1/stacks` is answered with, one after the other; afterwards 200.
    """

    def __init__(self, gang: GangOnLoopback, *stacks_status: int) -> None:
        self._address = f"{gang.net}.10"
        self._statuses = list(stacks_status)
        self.orders: list[Any] = []
        self.stacks: list[dict[str, Any]] = []
        self.seen: list[Request] = []
        self.on_report = Response(200, {})
        self._server = Server(f"{gang.net}.1", PORT, self._answer)
        self._bell, self._end = os.pipe()
        self._server.watch(self._bell)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.open = True

    def order(self, *orders: Any) -> None:
        """Give these from now on."""
        self.orders += orders
        os.write(self._end, b"o")

    def posted(self, count: int) -> list[dict[str, Any]]:
        """So many answers to orders of stacks."""
        return until(lambda: len(self.stacks) >= count and self.stacks, f"{count} answers")

    def _answer(self, request: Request) -> Response | DeferredResponse:
        self.seen.append(request)
        if request.path == "/v1/rendezvous":
            meeting = {"incarnation": 1, "master_addr": self._address, "master_port": 23456, "assignments": {"0": 0}}
            return Response(200, meeting)
        if request.path == "/v1/orders":
            since = int(request.query["since"])
            return DeferredResponse(
                lambda: self._orders(since), float(request.query["wait"]), Response(200, {"orders": []})
            )
        if request.path == "/v1/stacks":
            self.stacks.append(dict(request.body))
            return Response(self._statuses.pop(0) if self._statuses else 200, {})
        return self.on_report if request.path == "/v1/report" else Response(200, {})

    def _orders(self, since: int) -> Response | None:
        found = [one for one in self.orders if number_of(one, since + 1) > since]
        return Response(200, {"orders": found}) if found else None

    def _run(self) -> None:
        while True:
            if self._bell in self._server.turn(30.0):
                if b"!" in os.read(self._bell, 64):
                    return
                self._server.wake()

    def close(self) -> None:
        """End it."""
        self.open = False
        os.write(self._end, b"!")
        self._thread.join()
        self._server.close()
        os.close(self._bell)
        os.close(self._end)
