"""Ten thousand connections to a real coordinator, none of which is a launcher's: a gang trains on undisturbed."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.harness.launcher_harness import PORT, GangOnLoopback, until

CROWD, SPARE = 10_000, 300
MOST_BYTES = 512 << 20
"""What the coordinator's container may use."""
SAID = (
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET /status HTTP/1.1\r\n",
    b"POST /v1/report HTTP/1.1\r\nContent-Length: 4000\r\n\r\n{",
    b"GET /status HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n",
)
"""Nothing, another protocol, half a head, half a body, a wrong token."""


@contextlib.contextmanager
def many_descriptors() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CROWD + SPARE:
        pytest.skip(f"this machine allows a process {hard} descriptors, and {CROWD + SPARE} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + SPARE), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def test_ten_thousand_strangers_disturb_nobody(gang: GangOnLoopback) -> None:
    coordinator = gang.coordinate()
    gang.launch(0, "--steps=100000", STEPS="100000")
    until(lambda: gang.ask("/status").get("step"), "a step")
    with many_descriptors(), contextlib.ExitStack() as crowd:
        strangers: list[socket.socket] = []
        for index in range(CROWD):
            strangers.append(crowd.enter_context(socket.create_connection((f"{gang.net}.1", PORT), timeout=30.0)))
            strangers[-1].sendall(SAID[index % len(SAID)])
        before = gang.ask("/status")
        assert [one["role"] for one in before["members"]] == ["trainer"], "nobody else is believed"
        until(lambda: gang.ask("/status")["step"] > before["step"] + 100, "further steps")
        assert resident_bytes(coordinator.process.pid) < MOST_BYTES
        assert strangers[-1].recv(4096).startswith(b"HTTP/1.1 401 ")
    until(lambda: gang.ask("/status")["step"] > before["step"] + 200, "further steps without them")
    assert coordinator.process.poll() is None
