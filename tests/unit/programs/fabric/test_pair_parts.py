"""Parts of the two of a pair: the echo, a tool's server, calls, options and reports."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from tests.support.fakes.pair_tools import script
from tests.support.running.waiting import patience
from workflows.programs.fabric import pair_member
from workflows.programs.fabric.pair_member import Options, PairCall, ServerProcess, listens, pair_calls, to_json
from workflows.programs.fabric.report import PairReport, parse_pair_report
from workflows.programs.fabric.transport import ECHO, TOKEN_BYTES, EchoServer, datagrams, measure, round_trips
from workflows.programs.runtime import flags

PATIENCE_SECONDS = patience(60.0)


def test_the_echo_answers_only_whoever_knows_its_number_and_with_no_more_bytes() -> None:
    echo = EchoServer("127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(5)
            asking.sendto(b"x" * 100, ("127.0.0.1", echo.port))
            asking.sendto(echo.token + b"hello", ("127.0.0.1", echo.port))
            assert asking.recv(1 << 16) == echo.token + b"hello"
            assert len(echo.token) == TOKEN_BYTES
    finally:
        echo.close()


def test_a_server_that_never_listens_is_taken_for_ready_while_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_member, "READY_SECONDS", 0.05)
    server = ServerProcess()
    began = time.monotonic()
    assert server.start([str(script(tmp_path, "quiet", "#!/bin/sh\necho one\nexec sleep 600\n"))], began + 30) == ""
    server.end()
    assert listens(os.getpgrp(), str(tmp_path)) is False


calls = st.builds(
    PairCall,
    number=st.integers(0, 9),
    probe=st.text(max_size=5),
    command=st.lists(st.text(max_size=9), max_size=3).map(tuple),
    peer_command=st.lists(st.text(max_size=9), max_size=3).map(tuple),
    quantities=st.lists(st.text(max_size=9), max_size=2).map(tuple),
)


@given(st.lists(calls, max_size=4), st.integers(0, 1), st.floats(1, 1e4))
def test_options_and_calls_become_flags_and_come_back(made: list[PairCall], rank: int, seconds: float) -> None:
    options = Options("/a b", to_json(made), 3, rank, 2, seconds, 2 * seconds)
    assert flags.from_argv(Options, options.argv()) == options
    assert list(pair_calls(options.calls)) == made


@given(st.text(max_size=20), st.text(max_size=400), st.floats(0, 1e9))
def test_a_report_comes_back(node: str, why: str, at: float) -> None:
    report = PairReport(node, 1, 0, at, "n2", "xyz", why[:200], "", 1.5)
    assert parse_pair_report(report.text()) == report


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"node": 1}', "{broken"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_pair_report(text)


@rows("programs/fabric/pair_parts")
def test_wrong_flags_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pair_member.main(words) == 2
    assert said in capsys.readouterr().err


class Lossy:
    """An echo that swallows every so many-th datagram; 1: all of them."""

    def __init__(self, swallows: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = ("127.0.0.1", int(self._socket.getsockname()[1]))
        self._swallows = swallows
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.address)
        self._thread.join(PATIENCE_SECONDS)
        self._socket.close()

    def _answer(self) -> None:
        seen = 0
        while True:
            data, whom = self._socket.recvfrom(1 << 16)
            if not data:
                return
            seen += 1
            if seen % self._swallows:
                self._socket.sendto(data, whom)


@pytest.mark.parametrize(("swallows", "sent", "back"), [(1000, 100, 100), (25, 100, 96), (1, 64, 0)])
def test_what_does_not_come_back_is_lost_and_into_silence_little_is_sent(swallows: int, sent: int, back: int) -> None:
    lossy = Lossy(swallows)
    try:
        token = bytes(TOKEN_BYTES)
        assert datagrams(lossy.address, token, 100, time.monotonic() + PATIENCE_SECONDS) == (sent, back)
        assert datagrams(lossy.address, token, 100, time.monotonic()) == (0, 0), "the time is up"
    finally:
        lossy.close()


class Mute:
    """A line whose partner answers each word a while later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def send(self, message: bytes) -> None:
        assert message.startswith(ECHO)

    def receive(self) -> bytes:
        time.sleep(self.seconds)
        return ECHO


def test_too_few_round_trips_are_unknown_and_enough_of_them_in_order() -> None:
    lossy = Lossy(1000)
    try:
        token, until = bytes(TOKEN_BYTES), time.monotonic() + 0.1
        slow = measure(Mute(0.02), lossy.address, token, {}, until)  # type: ignore[arg-type]
        assert slow.readings == ()
        assert "100 are needed; no datagram was sent in time" in slow.unknown
    finally:
        lossy.close()
    took = round_trips(Mute(0.0005), 30, time.monotonic() + PATIENCE_SECONDS)  # type: ignore[arg-type]
    assert len(took) == 30
    assert took == sorted(took)
    assert took[0] >= 500
