"""iperf of the node daemons: servers, clients and the ring, with a stand-in for iperf3 that prints authentic JSON."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.cases.rows import rows
from workflows.programs.health import iperf, iperf_results
from workflows.programs.health.iperf import (
    IperfServers,
    client_argv,
    client_sums,
    interfaces_of,
    iperf_matrix,
    measure,
    run_clients,
    start_servers,
)
from workflows.programs.health.iperf_results import Flow, Sums, clients_json
from workflows.programs.health.peers import Peer

SAMPLES = Path(__file__).parents[3] / "samples" / "tools" / "iperf3"
FAKE = f"""#!{sys.executable} -IS
import socket, sys, time
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
if "-s" in words:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("0.0.0.0", port))
        except OSError:
            sys.exit("iperf3: error - unable to start listener for connections: Address already in use")
        server.listen()
        time.sleep(300)
text = open("{SAMPLES}/" + ("3.17-error-written.json" if port % 10 == 9 else "3.19-written.json")).read()
if port % 10 == 8:
    time.sleep(300)
print(text)
"""
"""Clients of ports that end in 9 are refused, those of ports that end in 8 hang."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "bin" / "iperf3"
    tool.parent.mkdir()
    tool.write_text(FAKE)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tool


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[IperfServers]:
    own = IperfServers()
    monkeypatch.setattr(iperf, "SERVERS", own)
    yield own
    own.stop()


def free_ports(count: int) -> int:
    """The first of so many consecutive ports on which nobody listens, and whose last digits do no harm."""
    for first in range(21000 + os.getpid() % 500 * 20, 60000, 20):
        if not iperf.listening() & set(range(first, first + count)):
            return first
    raise AssertionError("no free ports")


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("fake")
def test_servers_are_known_and_stopped_by_their_process_ids(servers: IperfServers) -> None:
    first = free_ports(3)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "iperf3", "-s"]) as stranger:
        try:
            told = start_servers({"numservers": "3", "startport": str(first)})
            pids = servers.pids()
            assert told.splitlines() == [f"iperf3 server on port {port} started (pid {pids[port]})" for port in pids]
            assert list(pids) == [first, first + 1, first + 2]
            again = start_servers({"numservers": "2", "startport": str(first)})
            assert again.startswith(f"iperf3 server on port {first} runs already (pid {pids[first]})")
            assert servers.pids() == pids
            stopped = iperf.stop_servers({})
            assert stopped.splitlines() == [f"iperf3 server on port {p} stopped (pid {pids[p]})" for p in pids]
            assert [pid for pid in pids.values() if alive(pid)] == []
            assert stranger.poll() is None, "what merely looks like one of ours goes on"
            assert iperf.stop_servers({}) == "no iperf3 server of ours runs\n"
        finally:
            stranger.kill()


@pytest.mark.usefixtures("fake")
def test_a_port_of_somebody_else_is_told_and_left_alone(servers: IperfServers) -> None:
    first = free_ports(2)
    with socket.create_server(("0.0.0.0", first)) as stranger:
        told = start_servers({"numservers": "2", "startport": str(first)}).splitlines()
        assert told[0] == f"FAIL iperf3 server on port {first}: another process listens there; take another startport"
        assert "started" in told[1]
        assert list(servers.pids()) == [first + 1]
        assert stranger.fileno() >= 0


def test_without_iperf3_no_server_is_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: IperfServers
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    first = free_ports(1)
    told = start_servers({"numservers": "1", "startport": str(first)})
    assert told == f"FAIL iperf3 server on port {first}: iperf3 cannot be started: No such file or directory\n"
    assert servers.pids() == {}
    answer = json.loads(run_clients({"dstip": "127.0.0.1", "numclients": "1"}))
    assert answer["errors"] == ["port 5200: iperf3 cannot be started: No such file or directory"]
    assert answer["receiver"]["mean"]["bitrate"] == "nan"


def test_a_server_that_ends_at_once_is_told_with_its_words(fake: Path, servers: IperfServers) -> None:
    fake.write_text("#!/bin/sh\necho 'iperf3: error - some reason' >&2\nexit 1\n")
    first = free_ports(1)
    told = start_servers({"numservers": "1", "startport": str(first)})
    said = "it ended with 1; it said: iperf3: error - some reason"
    assert told == f"FAIL iperf3 server on port {first}: {said}\n"
    assert servers.pids() == {}


def test_a_server_that_never_listens_is_ended(
    fake: Path, servers: IperfServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 300\n")
    monkeypatch.setattr(iperf, "LISTEN_SECONDS", 0.3)
    told = start_servers({"numservers": "1", "startport": str(free_ports(1))})
    assert "it did not listen within 0.3 s" in told
    assert not alive(int((tmp_path / "pid").read_text()))
    assert servers.pids() == {}


@pytest.mark.usefixtures("fake")
def test_servers_do_not_live_for_ever() -> None:
    own = IperfServers(lifetime_seconds=0.2)
    [line] = own.start([free_ports(1)])
    pid = int(line.rpartition("pid ")[2].rstrip(")"))
    limit = time.monotonic() + 30
    while alive(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not alive(pid)
    assert own.pids() == {}


@pytest.mark.usefixtures("fake")
def test_clients_tell_what_was_sent_and_received() -> None:
    answer = json.loads(run_clients({"dstip": "127.0.0.1", "dstport": "5200", "numclients": "2"}))
    # 121313689600 bytes in 10.000368 s, twice.
    assert answer["sender"]["aggregate"] == {"transfer": "225.96", "bitrate": "194.09"}
    assert answer["receiver"]["min"] == {"transfer": "112.98", "bitrate": "97.05"}
    assert "errors" not in answer


@pytest.mark.usefixtures("fake")
def test_clients_that_are_refused_or_hang_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf, "CLIENT_DEADLINE_SECONDS", 1.0)
    answer = json.loads(run_clients({"dstip": "127.0.0.1", "dstport": "5207", "numclients": "3"}))
    assert answer["errors"][0] == "port 5208: iperf3 did not end within 1 s"
    assert answer["errors"][1].startswith("port 5209: ")
    assert "unable to connect to server" in answer["errors"][1]
    assert answer["receiver"]["aggregate"]["bitrate"] == "97.05"


@pytest.mark.parametrize(
    "text", ["", "{}", "iperf3: error - the server is busy", '{"end": {"sum_sent": {"bytes": 1}}}']
)
def test_output_that_is_none_is_never_a_figure(text: str) -> None:
    parsed = client_sums(text)
    assert parsed.unknown or not any(one.quantity == "network_bandwidth" for one in parsed.readings)


def test_arguments_of_clients() -> None:
    argv = client_argv(Flow("10.0.0.7", 5200, 8, "10.0.0.1"), 3)
    assert argv[:7] == ["iperf3", "-c", "10.0.0.7", "-p", "5203", "-t", "5"]
    assert {"-Z", "-J"} < set(argv)
    assert argv[-2:] == ["-B", "10.0.0.1"]
    assert "-B" not in client_argv(Flow("10.0.0.7", 5200, 8), 0)


def node(name: str, *interfaces: str) -> Peer:
    index = ord(name[-1]) - ord("a") + 1
    return Peer(name, f"10.0.0.{index}", 3333, {one: f"10.0.{i}.{index}" for i, one in enumerate(interfaces)})


class Daemons:
    """Other nodes' daemons: each pair gets 10 Gb/s and a tenth for each number of its source."""

    def __init__(self, dead: Mapping[str, str] | None = None, **answers: str) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self._dead, self._answers = dead or {}, answers

    def ask(self, peer: Peer, path: str) -> str:
        split = urlsplit(path)
        self.asked.append((peer.node, split.path, dict(parse_qsl(split.query))))
        if self._dead.get(peer.node) in ("always", split.path):
            raise ConnectionRefusedError(111, "Connection refused")
        if peer.node in self._answers and split.path == "/iperfclients":
            return self._answers[peer.node]
        if split.path == "/iperfclients":
            figure = 10.0 + (ord(peer.node[-1]) - ord("a")) / 10
            return clients_json([Sums(1.0, figure, 1.0, figure)], [])
        return "iperf3 server on port 5200 started (pid 7)\n"

    def of(self, path: str) -> list[tuple[str, dict[str, str]]]:
        return [(name, query) for name, asked, query in self.asked if asked == path]


RING = [node("node-a", "eth0", "net1-0", "net1-1"), node("node-b", "eth0", "net1-0", "net1-1")]


def test_every_pair_is_measured_on_every_secondary_interface() -> None:
    daemons = Daemons()
    found = measure("somebody", RING, {"pclients": "2"}, daemons.ask)
    assert found.gbits == {
        "net1-0": {("node-a", "node-b"): 10.0, ("node-b", "node-a"): 10.1},
        "net1-1": {("node-a", "node-b"): 10.0, ("node-b", "node-a"): 10.1},
    }
    assert found.missing == ()
    assert daemons.of("/iperfservers") == [(one.node, {"numservers": "4", "startport": "5200"}) for one in RING]
    clients = {(name, query["dstip"]): query for name, query in daemons.of("/iperfclients")}
    assert clients["node-a", "10.0.1.2"] == {
        "dstip": "10.0.1.2", "dstport": "5200", "numclients": "2", "srcip": "10.0.1.1",
    }  # fmt: skip
    assert clients["node-a", "10.0.2.2"]["dstport"] == "5202", "each interface has its servers"
    assert daemons.of("/iperfstopservers") == []


def test_the_newest_ring_stands_on_the_page_of_metrics_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    measure("somebody", RING, {}, Daemons().ask)
    text = iperf.newest_metrics()
    assert text.splitlines()[1] == "# TYPE autopilot_iperf_gbits gauge"
    assert 'autopilot_iperf_gbits{iface="net1-0",source="node-a",destination="node-b"} 10' in text.splitlines()
    assert text.endswith("\n")
    measure("somebody", [*RING[:1], Peer("node-b", "")], {}, Daemons().ask)
    assert iperf.newest_metrics() == "", "what was not measured this time has no figure of the last time"
    monkeypatch.setattr(iperf_results, "NEWEST_SECONDS", -1.0)
    measure("somebody", RING, {}, Daemons().ask)
    assert iperf.newest_metrics() == ""


def test_cleanup_stops_the_servers_and_keeps_the_answer() -> None:
    daemons = Daemons()
    text = iperf_matrix("somebody", RING, {"cleanup": ""}, daemons.ask)
    assert text.startswith("\nNetwork Throughput net1-0:\n")
    assert [name for name, _ in daemons.of("/iperfstopservers")] == ["node-a", "node-b"]
    assert daemons.asked[-1][1] == "/iperfstopservers"


def test_the_management_plane_is_one_client_on_the_primary_interface() -> None:
    daemons = Daemons()
    found = measure("somebody", RING, {"plane": "mgmt", "pclients": "8"}, daemons.ask)
    assert list(found.gbits) == ["eth0"]
    assert daemons.of("/iperfservers")[0][1]["numservers"] == "1"
    assert {query["numclients"] for _, query in daemons.of("/iperfclients")} == {"1"}


@rows("programs/health/iperf")
def test_interfaces_of_a_plane(peer: Peer, plane: str, expected: dict[str, str]) -> None:
    assert interfaces_of(peer, plane) == expected


def test_a_dead_node_is_named_and_leaves_a_hole() -> None:
    peers = [node("node-a", "eth0"), node("node-b", "eth0"), node("node-c", "eth0")]
    daemons = Daemons(dead={"node-b": "always"})
    text = iperf_matrix("somebody", peers, {}, daemons.ask)
    rows = [line.split() for line in text.splitlines()[3:6]]
    assert rows == [
        ["node-a", "N/A", "N/A", "10.00"],
        ["node-b", "N/A", "N/A", "N/A"],
        ["node-c", "10.20", "N/A", "N/A"],
    ]
    assert "node-b: its daemon does not answer: [Errno 111] Connection refused" in text
    assert "eth0 Average Bandwidth Gb/s: 10.10" in text, "of what was measured"
    assert "10.0.0.2" not in {query["dstip"] for _, query in daemons.of("/iperfclients")}, "nobody waits for it"


def test_a_node_whose_daemon_is_away_is_named_and_not_asked() -> None:
    daemons = Daemons()
    found = measure("somebody", [*RING, Peer("node-c", "")], {"cleanup": ""}, daemons.ask)
    assert found.missing == ("node-c: its daemon is away",)
    assert found.nodes == ("node-a", "node-b", "node-c")
    assert list(found.gbits) == ["net1-0", "net1-1"]
    assert "node-c" not in {name for name, _, _ in daemons.asked}


def test_a_node_that_dies_on_the_way_is_asked_once_more_and_not_again() -> None:
    peers = [node(f"node-{letter}", "eth0") for letter in "abcd"]
    daemons = Daemons(dead={"node-d": "/iperfclients"})
    found = measure("somebody", peers, {}, daemons.ask)
    assert len([name for name, _ in daemons.of("/iperfclients") if name == "node-d"]) == 1
    assert found.missing == ("node-d: its daemon does not answer: [Errno 111] Connection refused",)
    assert not any(source == "node-d" for source, _ in found.gbits["eth0"])
    assert {("node-a", "node-b"), ("node-b", "node-c"), ("node-c", "node-a")} < set(found.gbits["eth0"])


def test_clients_that_failed_and_servers_that_do_not_start_are_holes() -> None:
    busy = clients_json([], ["port 5200: the server is busy running a test"])
    answers: dict[str, Any] = {"node-a": busy, "node-b": "<html>"}
    daemons = Daemons(**answers)
    found = measure("somebody", RING, {}, daemons.ask)
    assert found.gbits == {"net1-0": {}, "net1-1": {}}
    assert "node-a -> node-b on net1-0: port 5200: the server is busy running a test" in found.missing
    assert "node-b -> node-a on net1-1: answered '<html>'" in found.missing

    def refuse(peer: Peer, path: str) -> str:
        return f"FAIL iperf3 server on port 5200 of {peer.node}: iperf3 cannot be started: No such file or directory\n"

    found = measure("somebody", RING, {}, refuse)
    assert found.missing[0].startswith("node-a: FAIL iperf3 server on port 5200 of node-a: iperf3 cannot be started")


def test_a_node_that_never_answers_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf, "ASK_SECONDS", 0.2)
    daemons = Daemons()

    def ask(peer: Peer, path: str) -> str:
        if peer.node == "node-b":
            time.sleep(3)
        return daemons.ask(peer, path)

    began = time.monotonic()
    found = measure("somebody", RING, {"cleanup": ""}, ask)
    assert time.monotonic() - began < 2.5
    assert found.missing == ("node-b: its daemon does not answer: no answer within 0.2 s",)


def test_a_node_without_an_interface_is_told() -> None:
    peers = [*RING, node("node-c", "eth0", "net1-0")]
    found = measure("somebody", peers, {}, Daemons().ask)
    assert found.missing == ("node-c: has no net1-1",)
    assert len(found.gbits["net1-0"]) == 6
    assert len(found.gbits["net1-1"]) == 2


def test_one_node_is_no_ring() -> None:
    found = measure("somebody", RING[:1], {}, Daemons().ask)
    assert found.missing == ("a ring needs two nodes at least",)


@rows("programs/health/iperf")
def test_what_would_take_too_much_is_refused_before_anybody_is_asked(
    count: int, interfaces: int, query: dict[str, str], said: str
) -> None:
    names = ["eth0", *(f"net1-{index}" for index in range(interfaces))]
    peers = [Peer(f"n{i}", "10.0.0.1", 3333, dict.fromkeys(names, "10.0.0.1")) for i in range(count)]
    daemons = Daemons()
    with pytest.raises(ValueError, match="^" + said):
        measure("somebody", peers, query, daemons.ask)
    assert daemons.asked == []


@pytest.mark.usefixtures("fake")
def test_the_own_node_is_not_asked_over_the_network(servers: IperfServers) -> None:
    first = free_ports(1)
    daemons = Daemons()
    peers = [Peer("node-a", "127.0.0.1"), Peer("node-b", "127.0.0.1")]
    found = measure("node-a", peers, {"pclients": "1", "startport": str(first), "cleanup": "true"}, daemons.ask)
    assert found.missing == ()
    assert found.gbits == {"default": {("node-a", "node-b"): 97.05, ("node-b", "node-a"): 10.1}}
    assert {name for name, _, _ in daemons.asked} == {"node-b"}
    assert servers.pids() == {}


@pytest.fixture
def real_iperf3(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("no iperf3 on PATH (Debian: apt-get install iperf3): real traffic was NOT sent")
    monkeypatch.setattr(iperf, "CLIENT_SECONDS", 1)


@pytest.mark.usefixtures("real_iperf3")
def test_real_iperf3_between_two_addresses_of_this_machine(servers: IperfServers) -> None:
    first = free_ports(2)
    peers = [
        Peer("node-a", "127.0.0.1", 3333, {"lo": "127.0.0.1"}),
        Peer("node-b", "127.0.0.2", 3333, {"lo": "127.0.0.2"}),
    ]

    def ask(peer: Peer, path: str) -> str:  # both nodes are this machine: the servers are those of the first
        split = urlsplit(path)
        query = dict(parse_qsl(split.query))
        return run_clients(query) if split.path == "/iperfclients" else "the other node's servers are these\n"

    text = iperf_matrix("node-a", peers, {"pclients": "1", "startport": str(first), "cleanup": ""}, ask)
    # One server serves one client at a time: of the two directions at once at least one got through.
    figures = [cell for line in text.splitlines()[3:5] for cell in line.split()[1:] if cell != "N/A"]
    assert figures, text
    assert all(float(cell) > 0.1 for cell in figures)
    assert servers.pids() == {}


@pytest.mark.usefixtures("real_iperf3")
def test_real_iperf3_tells_of_a_server_that_is_not_there() -> None:
    answer = json.loads(run_clients({"dstip": "127.0.0.1", "dstport": str(free_ports(1)), "numclients": "1"}))
    assert "unable to connect to server" in answer["errors"][0]
    assert answer["receiver"]["aggregate"]["bitrate"] == "nan"
