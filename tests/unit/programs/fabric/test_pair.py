"""Two nodes of a pair as processes that meet, ask each other and report: tools that fail, partners that go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.pair_tools import script, tool
from tests.support.running.waiting import patience
from workflows.programs.fabric import pair_member
from workflows.programs.fabric.pair_member import Options, PairCall, PairMember, to_json
from workflows.programs.fabric.report import PairReport, parse_pair_report
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.run import parsers, unpack_answers

MAIN = Path(pair_member.__file__).parents[1] / "main.py"
PATIENCE_SECONDS = patience(60.0)
SOCKETS = PairCall(0, probe="pair-sockets", deadline_seconds=30.0, arguments={"round_trips": "200", "datagrams": "100"})


def perftest(number: int = 0, **more: Any) -> PairCall:
    words: dict[str, Any] = {
        "command": ("ib_write_bw", "-p", "{port}", "{peer}"),
        "peer_command": ("ib_write_bw", "-p", "{port}"),
        "parser": "ib-write-bw",
        "quantities": ("rdma_bandwidth",),
        "deadline_seconds": 30.0,
        **more,
    }
    return PairCall(number, **words)


class Pair:
    """Both nodes, each a process with an address and tools of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[int, subprocess.Popen[str]] = {}

    def tools(self, rank: int) -> Path:
        return self.folder / f"tools-{rank}"

    def start(self, rank: int, *calls: PairCall, **more: Any) -> None:
        words = {"meet_seconds": 30.0, "deadline_seconds": 50.0, **more}
        options = Options(str(self.folder / "shared" / "round-1"), to_json(calls), 0, rank, **words)
        environment = {
            **os.environ,
            "PATH": f"{self.tools(rank)}:/usr/bin:/bin",
            "PRIMUS_NODE": f"node-{rank}",
            "PRIMUS_POD_IP": f"127.0.2.{rank + 1}",
        }
        command = [sys.executable, "-I", "-S", str(MAIN), "probe-pair", *options.argv()]
        self.members[rank] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def report(self, rank: int) -> PairReport:
        told, _ = self.members[rank].communicate(timeout=PATIENCE_SECONDS)
        assert self.members[rank].returncode == 0
        return parse_pair_report(told)

    def both(self, *calls: PairCall, **more: Any) -> list[PairReport]:
        for rank in (0, 1):
            self.start(rank, *calls, **more)
        return [self.report(rank) for rank in (0, 1)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for member in made.members.values():
        if member.poll() is None:
            member.kill()
        member.wait()
        if member.stdout:
            member.stdout.close()


def told(report: PairReport, number: int = 0) -> list[ParsedOutput]:
    return unpack_answers(report.answers)[number]


def wait_for(path: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_both_measure_round_trips_and_datagrams_when_they_ask(pair: Pair) -> None:
    for report, other in zip(pair.both(SOCKETS), ("node-1", "node-0"), strict=True):
        assert (report.partner, report.why) == (other, "")
        [parsed] = told(report)
        figures = {one.quantity: one.value for one in parsed.readings}
        assert parsed.unknown == ""
        assert 0 < (figures["pair_round_trip"] or 0) <= (figures["pair_round_trip_p99"] or 0)
        assert figures["pair_lost_datagrams"] == 0.0
        assert "one machine stands for both nodes" in report.notes
    assert list((pair.folder / "shared").iterdir()) == [], "cards and folders are gone"


def test_a_tool_is_asked_in_both_directions_once_its_server_listens(pair: Pair) -> None:
    for rank in (0, 1):
        tool(pair.tools(rank), "ib_write_bw", "ib-write-bw/6-duration-gbits.txt")
        tool(pair.tools(rank), "ib_write_lat", "ib-write-lat/6-connectx.txt")
        tool(pair.tools(rank), "iperf3", "iperf3/3.19-written.json")
        script(
            pair.tools(rank), "ping", f"#!/bin/sh\ncat {Path(__file__).parents[3]}/samples/tools/ping/iputils-20.txt\n"
        )
    others = [
        ("ib_write_lat", "ib-write-lat", "rdma_latency"),
        ("iperf3", "iperf3", "network_bandwidth"),
    ]
    calls = [perftest(0, attempts=2)]
    for number, (name, parser, quantity) in enumerate(others, 1):
        words = {"command": (name, "-p", "{port}", "{peer}"), "peer_command": (name, "-p", "{port}")}
        calls.append(perftest(number, **words, parser=parser, quantities=(quantity,)))
    ping = {"command": ("ping", "{peer}"), "peer_command": (), "parser": "ping", "quantities": ("packet_loss",)}
    calls.append(perftest(3, **ping))
    for report in pair.both(*calls):
        assert report.why == ""
        assert [[one.value for one in parsed.readings] for parsed in told(report)] == [[181.32], [181.32]]
        assert [one.quantity for one in told(report, 1)[0].readings] == ["rdma_latency"]
        assert {one.quantity for one in told(report, 2)[0].readings} == {"network_bandwidth"}
        assert [one.value for one in told(report, 3)[0].readings] == [0.0]
        assert all(parsed.unknown == "" for number in range(4) for parsed in told(report, number))


FAILING = [
    ("", "cannot be started: No such file", "missing"),
    ("#!/bin/sh\necho what is this\nexit 3\n", "ended with 3 before its client came; it said: what is this", "dead"),
]


@pytest.mark.parametrize(("text", "why"), [row[:2] for row in FAILING], ids=[row[2] for row in FAILING])
def test_a_server_that_does_not_serve_leaves_who_asks_unknown(pair: Pair, text: str, why: str) -> None:
    tool(pair.tools(0), "ib_write_bw", "ib-write-bw/6-duration-gbits.txt")
    if text:
        script(pair.tools(1), "ib_write_bw", text)
    [asked, _] = pair.both(perftest(), PairCall(1, probe="pair-sockets", deadline_seconds=30.0))
    [parsed] = told(asked)
    assert parsed.readings == ()
    assert f"node-1: ib_write_bw {why}" in parsed.unknown
    assert told(asked, 1)[0].unknown == "", "what comes after it is measured all the same"


def test_a_client_that_prints_garbage_hangs_or_dies_is_unknown_with_the_reason(pair: Pair) -> None:
    tool(pair.tools(1), "server", "ib-write-bw/6-duration-gbits.txt")
    tool(pair.tools(0), "server", "ib-write-bw/6-duration-gbits.txt")
    for rank in (0, 1):
        script(pair.tools(rank), "garbage", "#!/bin/sh\necho ' 65536 oops'\n")
        script(pair.tools(rank), "hangs", "#!/bin/sh\nexec sleep 600\n")
        script(pair.tools(rank), "dies", "#!/bin/sh\nkill -9 $$\n")
    names = ("garbage", "hangs", "dies")
    peer = ("server", "-p", "{port}")
    calls = [
        perftest(number, command=(name, "{peer}"), peer_command=peer, deadline_seconds=2.0)
        for number, name in enumerate(names)
    ]
    for report in pair.both(*calls):
        unknown = [told(report, number)[0].unknown for number in range(3)]
        assert all(told(report, number)[0].readings == () for number in range(3))
        assert "did not end within" in unknown[1]
        assert "ended by signal 9" in unknown[2]
        assert unknown[0]


def test_what_a_server_left_behind_ends_with_its_client(pair: Pair) -> None:
    script(pair.tools(0), "client", "#!/bin/sh\ntrue\n")
    pid = pair.folder / "pid"
    script(
        pair.tools(1),
        "server",
        f"#!{sys.executable} -IS\nimport os, socket, sys, time\nserver = socket.create_server(('127.0.2.2', 0))\n"
        f"child = os.fork()\nopen({str(pid)!r} + str(os.getpid()), 'w').close()\ntime.sleep(600)\n",
    )
    pair.both(perftest(command=("client", "{peer}"), peer_command=("server",)))
    left = [int(path.name.removeprefix("pid")) for path in pair.folder.glob("pid*")]
    assert left
    for one in left:
        until = time.monotonic() + PATIENCE_SECONDS
        while Path(f"/proc/{one}").exists() and "Z" not in Path(f"/proc/{one}/stat").read_text().split()[2]:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_partner_that_does_not_come_is_waited_for_no_longer_than_said(pair: Pair) -> None:
    pair.start(0, SOCKETS, meet_seconds=0.3)
    report = pair.report(0)
    assert (report.partner, report.why) == ("", "its partner did not come in time")
    assert unpack_answers(report.answers) == {}


def test_a_partner_that_is_killed_leaves_what_was_told_before(pair: Pair) -> None:
    begun = pair.folder / "begun"
    for rank in (0, 1):
        script(pair.tools(rank), "waits", f"#!/bin/sh\ntouch {begun}\nexec sleep 600\n")
    hanging = perftest(1, command=("waits",), peer_command=("waits",), deadline_seconds=4.0)
    for rank in (0, 1):
        pair.start(rank, SOCKETS, hanging)
    wait_for(begun)
    os.kill(pair.members[1].pid, signal.SIGKILL)
    report = pair.report(0)
    assert told(report)[0].readings
    assert report.why == "node-1 ended"


def test_a_partner_that_hangs_does_not_keep_us_beyond_the_deadline(pair: Pair) -> None:
    begun = pair.folder / "begun"
    script(pair.tools(1), "waits", f"#!/bin/sh\ntouch {begun}\nexec sleep 600\n")
    script(pair.tools(0), "waits", "#!/bin/sh\ntrue\n")
    for rank in (0, 1):
        pair.start(rank, perftest(command=("true",), peer_command=("waits",)), deadline_seconds=6.0)
    wait_for(begun)
    os.kill(pair.members[1].pid, signal.SIGSTOP)
    try:
        report = pair.report(0)
    finally:
        os.kill(pair.members[1].pid, signal.SIGCONT)
    assert "node-1 fell silent" in report.why
    assert report.seconds < 7


def test_rails_are_asked_by_their_place_and_a_node_with_fewer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tool(tmp_path, "bw", "ib-write-bw/6-duration-gbits.txt", slow='{"node-x/b1": 50}')
    monkeypatch.setenv("PRIMUS_NODE", "node-x")
    words = (str(shown), "-p", "{port}", "-d", "{nic}")
    call = perftest(command=(*words, "{peer}"), peer_command=words)
    folder = str(tmp_path / "shared" / "round-1")
    options = [Options(folder, to_json([call]), 0, rank, 2, 20.0, 40.0) for rank in (0, 1)]
    made = [
        PairMember(own, f"node-{own.rank}", "", nics, parsers())
        for own, nics in zip(options, (("a0", "a1"), ("b0",)), strict=True)
    ]
    threads = [threading.Thread(target=half.measure) for half in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    [first] = told(made[0].timed())
    assert [one.subject for one in first.readings] == ["a0"]
    assert "a1: node-1: it has 1 of what bw asks about, not 2" in first.unknown
    [second] = told(made[1].timed())
    assert [(one.subject, one.value) for one in second.readings] == [("b0", 181.32)]


def test_without_a_nic_a_call_about_nics_is_unknown(pair: Pair) -> None:
    [report, _] = pair.both(perftest(command=("true", "{nic}"), peer_command=()))
    if pair_member.nics_of():
        pytest.skip("this machine has RDMA devices")
    assert told(report)[0].unknown == "true: there is no GPU or NIC to ask about"
