"""A coordinator whose process has no descriptor left: played alone, since the limit holds for a whole process."""

from __future__ import annotations

import os
import resource
import socket
import time

from tests.support.harness.coordinator_talk import Talk
from tests.support.running.waiting import patience

ASKED = b"GET /healthz HTTP/1.1\r\n\r\n"
DEADLINE_SECONDS = patience(30.0)


def main() -> None:
    """Who is in is served, without spinning; who knocks meanwhile is let in later."""
    talk = Talk()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    inside, waiting = talk.connect(), talk.connect()
    talk.turn()
    late = socket.create_connection(("127.0.0.1", talk.server.port), timeout=5.0)
    used = max(int(one) for one in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
    talk.turn()
    began = time.process_time()
    for _ in range(3):
        talk.server.turn(0.1)
    spun_seconds = time.process_time() - began
    assert spun_seconds < 0.2, f"it span for {spun_seconds:.2f} s"
    inside.sendall(ASKED)
    talk.turn()
    assert inside.recv(4096).startswith(b"HTTP/1.1 200")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert answered(talk, late).startswith(b"HTTP/1.1 200")
    for one in (inside, waiting, late):
        one.close()
    talk.server.close()
    print("served, then let in")


def answered(talk: Talk, late: socket.socket) -> bytes:
    """What who came late is told in the end."""
    late.sendall(ASKED)
    late.settimeout(0.0)
    deadline = time.monotonic() + DEADLINE_SECONDS
    answer = b""
    while not answer and time.monotonic() < deadline:
        talk.server.turn(0.05)
        try:
            answer = late.recv(4096)
        except BlockingIOError:
            continue
    return answer


if __name__ == "__main__":
    main()
