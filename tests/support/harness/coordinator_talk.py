"""A coordinator with a gang of two, and clients that write bytes to it."""

from __future__ import annotations

import socket
import time

from tests.unit.programs.coordinator.test_http import ask
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.store import ExpectedGang

TOKEN = "secret"


def gang() -> Coordinator:
    one = Coordinator(ExpectedGang("trainer", 2, 1, 100, 3), {"PRIMUS_TOKEN": TOKEN})
    for index in range(2):
        joined = {"role": "trainer", "pod_index": index, "pod": f"p{index}", "node": f"n{index}"}
        assert ask(one, "POST", "/v1/join", joined, TOKEN).status == 200
        told = {"role": "trainer", "pod_index": index, "sequence": 1, "state": "running", "pids": {str(index): 7}}
        assert ask(one, "POST", "/v1/report", told, TOKEN).status == 200
    return one


class Talk:
    """A server that is turned by hand, and clients that write bytes to it."""

    def __init__(self) -> None:
        self.coordinator = gang()
        self.server = self.coordinator.serve("127.0.0.1", 0)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=5.0)

    def turn(self) -> None:
        for _ in range(4):
            self.server.turn(0.0)

    def say(self, data: bytes) -> bytes:
        with self.connect() as client:
            client.settimeout(0.0)
            view, heard = memoryview(data), b""
            deadline = time.monotonic() + 5.0
            while time.monotonic() < deadline:
                try:
                    view = view[client.send(view) :] if view else view
                    self.turn()
                    part = client.recv(65536)
                except BlockingIOError:
                    if view:
                        continue
                    return heard
                except ConnectionError:
                    return heard
                heard += part
                if not part:
                    return heard
            return heard

    def healthy(self) -> bool:
        return self.say(b"GET /healthz HTTP/1.1\r\n\r\n").endswith(b'{"ok":true}')
