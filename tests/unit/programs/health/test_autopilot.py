"""The node daemon and Autopilot's tables of paths and parameters, where reading them line by line found differences."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.harness.health_daemons import TOKEN, Made, Toolbox, get, made, ping_text, serving
from workflows.programs.health import iperf
from workflows.programs.health.main import start_daemon
from workflows.programs.health.options import parse
from workflows.programs.health.peers import ConfiguredNodes, Peer, fetch
from workflows.programs.health.query import Status
from workflows.programs.health.results import Report

BEARER = f"Bearer {TOKEN}"
JOB = "ns:app=x"


class NodesOfAJob(ConfiguredNodes):
    """Told nodes, all of which have pods of `JOB`."""

    def of_job(self, job: str) -> tuple[str, ...]:
        return tuple(one.node for one in self.peers()) if job == JOB else ()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    toolbox = Toolbox(tmp_path / "bin").healthy(1)
    toolbox.prints("ping", ping_text("127.0.0.1", 10))
    monkeypatch.setenv("PATH", toolbox.path)
    return toolbox


@pytest.fixture
def pair(box: Toolbox) -> Iterator[tuple[Made, Made, int]]:
    """n0 and n1, each of which knows both, and the port of n0."""
    places: list[Peer] = []
    nodes = NodesOfAJob(places)
    one, other = made("n0", nodes=nodes), made("n1", nodes=nodes)
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(each)) for each in (one, other)]
        nodes._peers = tuple(  # pyright: ignore[reportPrivateUsage] - ports are known now only
            Peer(f"n{number}", "127.0.0.1", port) for number, port in enumerate(ports)
        )
        yield one, other, ports[0]


def reports(one: Made, monkeypatch: pytest.MonkeyPatch) -> list[Status]:
    """What its own node is asked for from now on."""
    asked: list[Status] = []
    own = one.daemon.report

    def report(status: Status) -> Report:
        asked.append(status)
        return own(status)

    monkeypatch.setattr(one.daemon, "report", report)
    return asked


def test_nodes_of_a_job_ping_each_other_and_each_answers_for_itself(
    pair: tuple[Made, Made, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other, port = pair
    asked = reports(other, monkeypatch)
    told = json.loads(get(port, f"/status?job={JOB}&check=ping", Accept="application/json")[1])
    assert [(one["node"], one["statuses"], one["why"]) for one in told["nodes"]] == [
        ("n0", ["OK"], ""),
        ("n1", ["OK"], ""),
    ], "a node that is asked for its part does not ask the others again"
    assert [one["report"]["checks"][0]["devices"][0]["identity"] for one in told["nodes"]] == ["n1", "n0"]
    assert [(status.job, status.pingnodes) for status in asked] == [(JOB, ("all",))]


def test_this_node_and_a_job_together_are_all_of_them(pair: tuple[Made, Made, int]) -> None:
    _, _, port = pair
    told = json.loads(get(port, f"/status?host=n0&job={JOB}&check=gpupower", Accept="application/json")[1])
    assert [one["node"] for one in told["nodes"]] == ["n0", "n1"]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Nobody serves: what was asked is told, and who was part of it."""
    rings: list[tuple[str, ...]] = []
    whole = iperf.iperf_matrix

    def matrix(own: str, peers: tuple[Peer, ...], query: dict[str, str], ask: object) -> str:
        rings.append(tuple(one.node for one in peers))
        return whole("nobody", peers, query, refuses)

    monkeypatch.setattr(iperf, "iperf_matrix", matrix)
    return rings


def refuses(peer: Peer, path: str) -> str:
    raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("path", ["/iperf?", "/status?check=iperf&"])
def test_an_iperf_names_whom_it_does_not_know_and_whom_it_could_not_ask_for(
    ring: list[tuple[str, ...]], path: str
) -> None:
    one = made("n0", peers=(Peer("n1", "127.0.0.1", 1),))
    text = one.text(f"{path}host=n1,n9&job={JOB}&nodelabel=a=b")
    assert ring == [("n1", "n9")]
    assert "n9: its daemon is away\n" in text
    ends = text.splitlines()[-2:]
    assert ends == [
        f"job {JOB}: needs the Kubernetes API, which this daemon does not have - ABORT.",
        "node label a=b: needs the Kubernetes API, which this daemon does not have - ABORT.",
    ]
    head = f"Running iperf3 on hosts n1,n9 or job {JOB}\n\n" if path.startswith("/status") else ""
    assert text.startswith(f"{head}\nNetwork Throughput default:\n"), "an empty line, and the matrix, come first"


def test_an_iperf_that_means_nobody_says_why() -> None:
    text = made("n0").text(f"/iperf?job={JOB}")
    assert text == f"job {JOB}: needs the Kubernetes API, which this daemon does not have - ABORT.\n"


def test_figures_of_clients_are_plain_text_unless_json_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(query: object) -> str:
        return "{}"

    monkeypatch.setattr(iperf, "run_clients", nothing)
    one = made("n0")
    assert one.answer("/iperfclients").kind == "text/plain; charset=utf-8"
    assert one.answer("/iperfclients", typed=True).kind == "application/json"


def test_the_block_of_a_node_that_is_away_has_its_empty_line(box: Toolbox) -> None:
    text = made("n0", peers=(Peer("n1", "127.0.0.1", 1),)).text("/status?host=n1")
    assert "Connection refused\n\nNode Status: Connection to Server Failed\n" in text


def test_a_reason_of_two_probes_is_said_once(box: Toolbox) -> None:
    def refuse(*_: object) -> object:
        from workflows.programs.parsers.text import ParsedOutput

        return ParsedOutput(unknown="no torch here")

    assert made("n0", run=refuse).text("/gpumem").endswith("[[ GPU-MEM ]] ABORT\nno torch here\n")


def addresses_of_this_machine() -> list[str]:
    """Those that are no loopback, as the kernel would choose them for the way out; none where there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return []
        return [asked.getsockname()[0]]


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_a_pod_answers_on_loopback_too_where_port_forward_asks(taken: bool) -> None:
    addresses = addresses_of_this_machine()
    if not addresses:
        pytest.skip("this machine has no address beside loopback")
    quiet = ["--api=none", "--loglevel=0", "--w=0", "--invasive-check-timer=0", "--readiness-port=-1"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        if taken:
            other.listen()
        else:
            other.close()
        options = parse([*quiet, "--metrics-port=-1", f"--port={port}"])
        running = start_daemon(options, {"POD_IP": addresses[0], "NODE_NAME": "n0"})
        try:
            assert running.address == addresses[0]
            assert fetch(Peer("n0", addresses[0], port), "/healthz", 20.0, {}).text == "ok\n"
            if not taken:
                assert get(port, "/healthz")[:2] == (200, "ok\n")
        finally:
            running.close()


@pytest.mark.parametrize(
    ("path", "pinged"),
    [
        ("/status?host=n0&check=ping", ["n1"]),  # itself, by its own name
        ("/status?host=n1&check=ping", ["n0"]),  # another one, alone in the question
        ("/status?host=n0,n1&check=ping", ["n1", "n0"]),
        ("/status?check=ping", ["n1", "n0"]),
        ("/status?host=all&check=ping", ["n1", "n0"]),
        ("/status?host=n1&check=gpupower,ping", ["n0"]),
        ("/status?host=n1&check=ping&batch=1&r=1", ["n0"]),
        (f"/status?host=n1&check=ping&job={JOB}", ["n0", "n1"]),
        (f"/status?job={JOB}&check=ping", ["n1", "n0"]),
        ("/status?host=n0&check=ping&pingnodes=n0", ["n1"]),
        ("/status?host=n0&check=ping&pingnodes=n1", ["n1"]),
        ("/ping", ["n1"]),
        ("/ping?host=n0", ["n1"]),
        ("/ping?host=n1", ["n1"]),
        ("/ping?host=n0,n1", ["n1"]),
        (f"/ping?job={JOB}", ["n1"]),
    ],
)
def test_every_way_of_asking_for_ping_has_another_side(
    pair: tuple[Made, Made, int], path: str, pinged: list[str]
) -> None:
    """A node that is alone in the question pings everybody; it does not only skip itself and find nobody."""
    _, _, port = pair
    told = json.loads(get(port, path, Accept="application/json")[1])
    reports = [one["report"] for one in told["nodes"]] if "nodes" in told else [told]
    pings = [one for report in reports for one in report.get("checks", [report]) if one["check"] == "ping"]
    assert [device["identity"] for one in pings for device in one["devices"]] == pinged
    assert {one["verdict"] for one in pings} == {"pass"}


def test_a_job_without_pods_is_nobody_to_ping(pair: tuple[Made, Made, int]) -> None:
    _, _, port = pair
    assert "[PING] No nodes found. ABORT" in get(port, "/ping?job=ns:app=other")[1]
