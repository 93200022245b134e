"""One coordinator and a gang of 12,500 launchers with 8 ranks each: `python -m tests.benchmarks.coordinator`.

Over real sockets, as many as the descriptors of this machine allow: launchers join, wait for orders and send a
heartbeat a second; the coordinator's own processor time and memory count, not those of the load. The rest by driving
its core: every rank's report of a step, the decision on all of them, the restart from a journal.
"""

from __future__ import annotations

import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.store import ExpectedGang
from workflows.programs.coordinator.stragglers import STEPS_PER_WINDOW, WARM_ROWS
from workflows.programs.runtime.http_server import Request

LAUNCHERS, RANKS = 12_500, 8
SECONDS = 10
GOALS = {"cores": 1.0, "GiB": 1.0, "decision ms": 50.0, "restart s": 1.0}
MAIN = Path(__file__).parents[2] / "workflows" / "programs" / "main.py"
TOKEN = "a-benchmark"
SPARE_DESCRIPTORS = 300
STEPS_IN_JOURNAL = 10_000


def request(method: str, path: str, body: str = "") -> bytes:
    """One request as launchers send it."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n{body}".encode()


def used(pid: int) -> tuple[float, float]:
    """Processor seconds and GiB of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(words[11]) + int(words[12])) / ticks, pages * resource.getpagesize() / 2**30


class Load:
    """Launchers that are nothing but their connections."""

    def __init__(self, port: int, launchers: int) -> None:
        self._address, self._selector = ("127.0.0.1", port), selectors.DefaultSelector()
        self.links: list[socket.socket] = []
        self.waiting: list[socket.socket] = []
        self.answers = 0
        for index in range(launchers):
            link = self._connect()
            body = (
                f'{{"role":"trainer","pod_index":{index},"pod":"pod-{index}","node":"node-{index}","pods":{launchers}}}'
            )
            link.sendall(request("POST", "/v1/join", body))
            self._selector.register(link, selectors.EVENT_READ)
            self.links.append(link)
            self.read(0.0)
        self.until(launchers)

    def _connect(self) -> socket.socket:
        link = socket.create_connection(self._address)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def wait_for_orders(self, count: int) -> None:
        """So many of them keep a second connection, parked."""
        for index in range(count):
            link = self._connect()
            link.sendall(request("GET", f"/v1/orders?role=trainer&pod_index={index}&since=0&wait=60"))
            self.waiting.append(link)

    def read(self, seconds: float) -> None:
        """Take answers."""
        for key, _ in self._selector.select(seconds):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            self.answers += sock.recv(65536).count(b"HTTP/1.1 200")

    def until(self, answers: int) -> None:
        """All of them have come."""
        while self.answers < answers:
            self.read(1.0)

    def beat(self, seconds: int) -> float:
        """A heartbeat a second of each, spread evenly; the seconds it took."""
        began, sent = time.monotonic(), 0
        rest = '"sequence":1,"reports":[],"state":"","why":"","pids":{},"incarnation":1}'
        bodies = (f'{{"role":"trainer","pod_index":{index},{rest}' for index in range(len(self.links)))
        beats = [request("POST", "/v1/report", body) for body in bodies]
        self.answers = 0
        while sent < seconds * len(self.links):
            due = min(seconds * len(self.links), int((time.monotonic() - began) * len(self.links)))
            for number in range(sent, due):
                self.links[number % len(self.links)].sendall(beats[number % len(self.links)])
            sent = due
            self.read(0.005)
        self.until(sent)
        return time.monotonic() - began

    def close(self) -> None:
        """Hang up."""
        for link in (*self.links, *self.waiting):
            link.close()


def over_sockets(folder: Path) -> tuple[int, int, float, float, float]:
    """Launchers and parked polls, then cores and GiB of the coordinator, and heartbeats a second that were served."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    launchers = min(LAUNCHERS, hard - SPARE_DESCRIPTORS)
    parked = min(launchers, hard - SPARE_DESCRIPTORS - launchers)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [sys.executable, "-I", "-S", str(MAIN), "coordinate", f"--pods={launchers}", f"--port={port}"]
    environment = {**os.environ, "PRIMUS_TOKEN": TOKEN, "PRIMUS_RUN_DIR": str(folder), "PRIMUS_POD_IP": "127.0.0.1"}
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        load = Load(port, launchers)
        load.wait_for_orders(parked)
        before, _ = used(process.pid)
        took = load.beat(SECONDS)
        after, memory = used(process.pid)
        load.close()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    beats = launchers * SECONDS
    return launchers, parked, (after - before) / beats * LAUNCHERS, memory, beats / took


def coordinator() -> Coordinator:
    """One that nobody has joined yet."""
    return Coordinator(ExpectedGang("trainer", LAUNCHERS, RANKS, 0, 3), {"PRIMUS_TOKEN": TOKEN})


def post(one: Coordinator, path: str, index: int, **body: object) -> None:
    """What a launcher sends."""
    one.handle(Request("POST", path, {}, TOKEN, {"role": "trainer", "pod_index": index, **body}))


def join(one: Coordinator) -> None:
    """All launchers have joined and run their ranks."""
    for index in range(LAUNCHERS):
        post(one, "/v1/join", index, pod=f"pod-{index}", node=f"node-{index}")
        pids = {str(index * RANKS + local): 1 for local in range(RANKS)}
        post(one, "/v1/report", index, sequence=1, state="running", pids=pids)


def processor_seconds(work: Callable[[], object]) -> float:
    """What it costs."""
    began = time.process_time()
    work()
    return time.process_time() - began


def driven(steps: int = WARM_ROWS + STEPS_PER_WINDOW) -> tuple[float, float]:
    """Cores for a step a second of every rank, and median ms to decide on all of them."""
    one, costs, decisions = coordinator(), list[float](), list[float]()
    join(one)
    for step in range(1, steps + 1):
        bodies: list[dict[str, object]] = []
        for index in range(LAUNCHERS):
            told = [
                {"report": "StepSeen", "step": step, "at": 100.0 + step, "rank": index * RANKS + local,
                 "seconds": 1.0, "compute_seconds": 0.9 + 0.01 * ((index * 7 + local * 3 + step) % 5)}
                for local in range(RANKS)
            ]  # fmt: skip
            bodies.append({"role": "trainer", "pod_index": index, "sequence": step + 1, "reports": told})
        asked = [Request("POST", "/v1/report", {}, TOKEN, body) for body in bodies]
        costs.append(processor_seconds(lambda asked=asked: [one.handle(each) for each in asked]))
        decisions.append(1000 * processor_seconds(lambda: one.store.hangs[0].tick(one.state, {}, time.time())))
    (numbers,) = one.store.statistics
    for _ in range(STEPS_PER_WINDOW):
        decisions.append(1000 * processor_seconds(lambda: numbers._close_step(steps, 0.0)))  # pyright: ignore[reportPrivateUsage]
    return statistics.median(costs), max(decisions)


def restarted(folder: Path) -> tuple[float, int]:
    """Seconds until a coordinator has read its journal again, and how many bytes that is."""
    path, one = folder / "journal.jsonl", coordinator()
    one.open_journal(str(path))
    join(one)
    for step in range(1, STEPS_IN_JOURNAL + 1):
        told = {"report": "StepSeen", "step": step, "at": 100.0 + step, "loss": 2.0, "seconds": 1.0}
        post(one, "/v1/report", 0, sequence=step + 1, reports=[told])
    one.close()
    again = coordinator()
    took = processor_seconds(lambda: again.open_journal(str(path)))
    assert len(again.state.members) == LAUNCHERS, len(again.state.members)
    assert again.state.progress.step == STEPS_IN_JOURNAL, again.state.progress.step
    again.close()
    return took, path.stat().st_size


def said(what: str, value: float, goal: float, unit: str) -> bool:
    """Print a figure beside its goal; whether it was met."""
    met = value <= goal
    print(f"{what}: {value:.2f} {unit}, goal <= {goal:g} {unit}: {'met' if met else 'MISSED'}", flush=True)
    return met


def main() -> int:
    """Print the figures; 1 where a goal was missed."""
    good = True
    with TemporaryDirectory() as place:
        folder = Path(place)
        launchers, parked, cores, memory, rate = over_sockets(folder)
        print(f"{launchers:,} launchers over real sockets, {parked:,} with a parked long poll, {rate:,.0f} beats/s")
        good &= said(f"heartbeats of {LAUNCHERS:,} launchers at 1 Hz", cores, GOALS["cores"], "cores")
        good &= said("memory of the coordinator", memory, GOALS["GiB"], "GiB")
        cost, decision = driven()
        print(f"a step a second of all {LAUNCHERS * RANKS:,} ranks, in one process: {cost:.2f} cores")
        good &= said(f"deciding on {LAUNCHERS * RANKS:,} ranks, worst", decision, GOALS["decision ms"], "ms")
        took, size = restarted(folder)
        what = f"reading a journal of {LAUNCHERS:,} launchers and {STEPS_IN_JOURNAL:,} steps ({size / 2**20:.1f} MiB)"
        good &= said(what, took, GOALS["restart s"], "s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
