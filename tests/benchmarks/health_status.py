"""`/status` of the node daemon: one node, two nodes, a hundred with five dead ones, and two hundred callers at once.

Daemons are real and answer over HTTP on this machine; tools print at once what real ones printed, and `ping` takes the
time of ten packets as the daemon sends them. Beside each figure stands that of IBM Autopilot's own daemon with tools
that end at once (two cores; 10 s of its 11.3 s are its ping; many nodes were not measured: one that is away leaves
everybody's answer empty), and limits of the same run: a bare HTTP server that answers as many requests with as many
bytes to the same client, and the tools by hand. Goals hold the rest: what a question costs beside them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness.health_daemons import Toolbox, at_once, get, ping_text
from tests.support.harness.health_fleet import asking, fleet
from workflows.programs.health.fleet_status import ALIVE_SECONDS, MOST_AT_ONCE
from workflows.programs.health.peers import Peer, fetch
from workflows.programs.runtime.bounded import side_by_side

ROUNDS = 5
ALL = "--checks=pciebw,remapped,dcgm,ping,gpupower"
"""The periodic checks, as Autopilot has them by itself."""
PING_SECONDS = 1.83
"""Of ten packets, 0.2 s between two of them, as iputils says at the end."""
TOOLS_OF_ALL, TOOLS_OF_QUICK = ("nvidia-smi", "nvbandwidth", "dcgmi"), ("nvidia-smi",)
NODES, STOPPED, REFUSING, SILENT, CALLERS = 100, 1, 2, 2, 200
DEAD = STOPPED + REFUSING + SILENT
MOST_NODE_MS = 50.0
"""Of this machine for a node of a question, beyond its tools and bare HTTP."""
MOST_CALLER_MS = 10.0
BARE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True
BODY = b"x" * int(sys.argv[1])
server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Figure:
    """One question, measured."""

    name: str
    seconds: float
    waited: float
    """Of it that is spent waiting whatever we do: `ping`, silent nodes."""
    tools: float
    bare: float
    original: float | None
    units: int
    """Nodes, or callers."""
    most_ms: float

    @property
    def own(self) -> float:
        """Seconds that are ours."""
        return max(0.0, self.seconds - self.waited - self.tools - self.bare)

    def line(self) -> str:
        """One row of the table."""
        peer = f"{self.original:5.1f} s {self.original / self.seconds:5.1f} x" if self.original else "not measured"
        limits = f"{self.waited:7.2f} s {self.tools:7.3f} s {self.bare:9.3f} s {1e3 * self.own / self.units:8.1f} ms"
        return f"{self.name:<32}{self.seconds:6.2f} s  {peer:>15}  {limits}"


def median(work: Callable[[], object], times: int = ROUNDS) -> float:
    """Seconds of a work."""
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def by_hand(box: Toolbox, tools: tuple[str, ...], nodes: int) -> float:
    """The same tools for so many nodes, as many at once as there are cores; their output is read and left."""
    works = [_run(str(box.folder / tool)) for tool in tools for _ in range(nodes)]
    return median(lambda: side_by_side(works, len(os.sched_getaffinity(0))), 3)


def _run(tool: str) -> Callable[[], int]:
    return lambda: len(subprocess.run([tool], capture_output=True, check=True).stdout)


@contextmanager
def bare(size: int) -> Generator[Peer]:
    """A server that answers with so many bytes."""
    with subprocess.Popen([sys.executable, "-c", BARE, str(size)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Peer("bare", "127.0.0.1", int(process.stdout.readline()))
        finally:
            process.terminate()


def bare_seconds(requests: int, size: int, together: int) -> float:
    """So many requests to it, with so many at once."""
    with bare(size) as peer:
        works = [lambda: fetch(peer, "/", 60.0, {}).status] * requests
        return median(lambda: side_by_side(works, together))


def ask(port: int, target: str) -> dict[str, object]:
    """The typed answer."""
    status, text, _ = get(port, target, Accept="application/json")
    assert status == 200, text
    return json.loads(text)


def few(box: Toolbox) -> list[Figure]:
    """One node and two, all checks."""
    with fleet(1, 1, ALL, "--peers=node-000=127.0.0.1") as (other, _), asking(other, ALL) as port:
        size = len(get(port, "/status", Accept="application/json")[1])
        one = median(lambda: ask(port, "/status?host=node-000&check=pciebw,remapped,dcgm,gpupower"))
        both = median(lambda: ask(port, "/status"), 3)
        verdicts = [one["verdict"] for one in ask(port, "/status")["nodes"]]  # pyright: ignore
    assert verdicts == ["pass", "pass"], verdicts
    tools = by_hand(box, TOOLS_OF_ALL, 1)
    return [
        Figure("1 node, all checks but ping", one, 0.0, tools, bare_seconds(1, size, 1), 2.8, 1, MOST_NODE_MS),
        Figure("2 nodes, all checks", both, PING_SECONDS, 2 * tools, bare_seconds(3, size, 2), 11.3, 2, MOST_NODE_MS),
    ]


def many(box: Toolbox) -> list[Figure]:
    """A hundred nodes with dead ones, and a crowd that asks for three of them."""
    living = NODES - 1 - DEAD
    with ExitStack() as stack:
        parts = [
            stack.enter_context(fleet(first, count))[0]
            for first, count in ((1, living // 2), (101, living - living // 2))
        ]
        stopped, process = stack.enter_context(fleet(300, STOPPED))
        os.kill(process.pid, signal.SIGSTOP)
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(SILENT)]
        dead = [f"silent-{index}=127.0.0.1:{one.getsockname()[1]}" for index, one in enumerate(silent)]
        dead += [f"refusing-{index}=127.0.0.1:1" for index in range(REFUSING)]
        port = stack.enter_context(asking(",".join([*parts, stopped, *dead])))
        told: list[dict[str, object]] = []
        everybody = ",".join(part.partition("=")[0] for part in ",".join(parts).split(","))
        alive = median(lambda: ask(port, f"/status?host=node-000,{everybody}"))
        seconds = median(lambda: told.append(ask(port, "/status")))
        size = len(json.dumps(told[-1])) // NODES
        check(told)
        answers: list[tuple[int, str]] = []
        crowd = median(
            lambda: answers.extend(at_once(CALLERS, lambda: get(port, "/status?host=node-000,node-001,node-002")[:2]))
        )
    good = [one for one in answers if one[0] == 200 and "'node-002': ['OK']" in one[1]]
    assert len(good) == ROUNDS * CALLERS, f"{len(good)} of {ROUNDS * CALLERS} callers got their answer"
    http = bare_seconds(2 * living + 1, size, MOST_AT_ONCE)
    tools = by_hand(box, TOOLS_OF_QUICK, living + 1)
    return [
        Figure(f"{living + 1} nodes", alive, 0.0, tools, http, None, living + 1, MOST_NODE_MS),
        Figure(f"{NODES} nodes, {DEAD} of them dead", seconds, ALIVE_SECONDS, tools, http, None, NODES, MOST_NODE_MS),
        Figure(
            f"{CALLERS} callers at once, 3 nodes",
            crowd,
            0.0,
            0.0,
            bare_seconds(CALLERS, 3 * size, CALLERS),
            None,
            CALLERS,
            MOST_CALLER_MS,
        ),
    ]


def check(told: list[dict[str, object]]) -> None:
    """Every dead node is named in every answer, and nobody else."""
    for answer in told:
        nodes: list[dict[str, str]] = answer["nodes"]  # pyright: ignore
        away = [one["node"] for one in nodes if one["verdict"] == "unknown"]
        passed = [one for one in nodes if one["verdict"] == "pass"]
        assert (len(away), len(passed), answer["verdict"]) == (DEAD, NODES - DEAD, "unknown"), away


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    with tempfile.TemporaryDirectory() as folder:
        box = Toolbox(Path(folder)).healthy(8)
        box.prints("ping", ping_text("127.0.0.1", 10), first=f"sleep {PING_SECONDS}")
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        figures = [*few(box), *many(box)]
    print(f"/status of{'':30}  {'Autopilot':>15}  {'waiting':>9} {'tools':>9} {'bare HTTP':>11} {'rest, each':>11}")
    for one in figures:
        print(one.line())
    missed = [f"{one.name} over {one.most_ms:g} ms each" for one in figures if 1e3 * one.own / one.units > one.most_ms]
    print(f"goals missed: {', '.join(missed)}" if missed else "every goal was met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
