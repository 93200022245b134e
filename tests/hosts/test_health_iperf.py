"""iperf through real daemons on two nodes of their own networks, with real traffic over a slow and a fast direction."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.prometheus_server import eventually
from workflows.programs.probes import run

pytestmark = [pytest.mark.story, pytest.mark.alone]  # it measures bandwidth

MAIN = Path(run.__file__).parents[1] / "main.py"
TOKEN = "a-token-of-this-story"
NODES = {"node-a": "10.77.0.1", "node-b": "10.77.0.2"}
SLOW = "200mbit"
"""What node-b can send."""
ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]} if sys.argv[2] else {})
try:
    print(urllib.request.urlopen(request, timeout=60).read().decode(), end="")
except urllib.error.HTTPError as error:
    print("refused", error.code)
"""


def missing() -> str:
    if os.geteuid() != 0:
        return "not root: networks of their own cannot be made, iperf was NOT run between nodes"
    absent = [name for name in ("ip", "tc", "iperf3") if shutil.which(name) is None]
    return f"{', '.join(absent)} not on PATH: iperf was NOT run between nodes" if absent else ""


def command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


@dataclass
class Place:
    """A node: a network of its own with one daemon in it."""

    node: str
    space: str
    daemon: subprocess.Popen[bytes]

    def ask(self, path: str, token: str = TOKEN) -> str:
        url = f"http://{NODES[self.node]}:3333{path}"
        inside = ["ip", "netns", "exec", self.space, sys.executable, "-I", "-c", ASK, url, token]
        return subprocess.run(inside, check=True, capture_output=True, text=True, timeout=120).stdout

    def servers(self) -> list[str]:
        """Processes of iperf3 in this network."""
        pids = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True, check=True).stdout
        names = {pid: Path(f"/proc/{pid}/comm") for pid in pids.split()}
        return [pid for pid, file in names.items() if file.exists() and file.read_text().strip() == "iperf3"]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    mark = f"pf{os.getpid() % 100000}"
    spaces = {node: f"{mark}-{node}" for node in NODES}
    log = tmp_path_factory.mktemp("iperf") / "log"
    with ExitStack() as stack, log.open("ab") as file:
        for space in spaces.values():
            command("ip", "netns", "add", space)
            stack.callback(command, "ip", "netns", "del", space)
        here, there = spaces.values()
        command("ip", "-n", here, "link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", there)
        for node, space in spaces.items():
            command("ip", "-n", space, "addr", "add", f"{NODES[node]}/24", "dev", "lan")
            for device in ("lo", "lan"):
                command("ip", "-n", space, "link", "set", device, "up")
        limit = f"tc qdisc add dev lan root tbf rate {SLOW} burst 256k latency 50ms"
        command("ip", "netns", "exec", there, *limit.split())
        peers = ",".join(f"{node}={address}:3333" for node, address in NODES.items())
        made: list[Place] = []
        for node, space in spaces.items():
            flags = [f"--node={node}", f"--address={NODES[node]}", f"--peers={peers}", "--w=0", "--api=none"]
            inside = ["ip", "netns", "exec", space, sys.executable, str(MAIN), "health", *flags]
            environment = {**os.environ, "PRIMUS_TOKEN": TOKEN}
            daemon = subprocess.Popen(inside, stdout=file, stderr=file, env=environment)
            stack.callback(ended, daemon)
            made.append(Place(node, space, daemon))
        for place in made:
            eventually(f"{place.node} answers", lambda one=place: answers(one))
        yield made


def answers(place: Place) -> bool:
    assert place.daemon.poll() is None, "the daemon ended at once"
    try:
        return "refused" not in place.ask("/healthz", "")
    except subprocess.CalledProcessError:
        return False


def ended(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    daemon.wait(20)


def test_who_has_no_token_starts_no_traffic(places: list[Place]) -> None:
    assert places[0].ask("/iperf", "") == "refused 401\n"
    assert places[0].ask("/iperfclients?dstip=10.77.0.2", "wrong") == "refused 401\n"
    assert [place.servers() for place in places] == [[], []]


def test_each_direction_is_measured_by_itself(places: list[Place]) -> None:
    text = places[0].ask("/iperf?workload=ring&pclients=2&cleanup")
    lines = text.splitlines()
    assert lines[:2] == ["", "Network Throughput default:"]
    assert lines[2].split() == ["src/dst", "node-a", "node-b"]
    fast, slow = float(lines[3].split()[2]), float(lines[4].split()[1])
    assert 0.1 < slow < 0.25, text
    assert fast > 2 * slow, text
    assert [place.servers() for place in places] == [[], []], "they were asked to clean up"
    shown = [line for line in places[0].ask("/metrics", "").splitlines() if line.startswith("autopilot_iperf_gbits{")]
    assert len(shown) == 2
    assert f'source="node-b",destination="node-a"}} {slow:g}' in shown[1]


def test_clients_answer_and_servers_end_with_their_daemon(places: list[Place]) -> None:
    here, there = places
    started = there.ask("/iperfservers?numservers=1&startport=5300")
    assert re.fullmatch(r"iperf3 server on port 5300 started \(pid [0-9]+\)\n", started)
    answer = json.loads(here.ask("/iperfclients?dstip=10.77.0.2&dstport=5300&numclients=1"))
    assert float(answer["receiver"]["aggregate"]["bitrate"]) > 0.25
    assert len(there.servers()) == 1
    ended(there.daemon)
    assert there.servers() == []
    told = here.ask("/iperf?pclients=1")
    assert "node-b: its daemon does not answer" in told, "a dead node is named, and the answer comes"
    assert here.ask("/iperfclients?dstip=node-b") == "refused 400\n"
