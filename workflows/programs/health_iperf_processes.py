"""iperf3 as processes of this node: servers that are known by their process ids, and clients of a few seconds.

Standard library only, Python 3.9. Arguments are lists, never a shell's; only what was started here is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import tempfile
import threading
import time
from typing import IO, Any, Dict, List, Sequence, Set, Tuple, Union, cast

from workflows.programs import tool_iperf3
from workflows.programs.health_iperf_words import Flow, Sums
from workflows.programs.probe_call import Call, execute
from workflows.programs.readings import Parsed, Reading
from workflows.programs.tool_json import document, mapping, number

IPERF3 = "iperf3"
CLIENT_SECONDS = 5
"""Of one measurement."""
CLIENT_DEADLINE_SECONDS = 15.0
"""For one to start, connect, measure and tell: whoever hangs longer is killed."""
CONNECT_MILLISECONDS = 3000
"""For a client to reach its server: the kernel's own limit of two minutes would cost a step as much."""
LISTEN_SECONDS = 5.0
"""For servers to listen."""
SERVER_SECONDS = 1800.0
"""So long after the last start servers are stopped, where nobody asks for that: the longest ring takes less."""
STOP_SECONDS = 2.0
"""For a server to end by itself when it is asked to."""
SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
"""State of a listening socket in these files."""
_BYTES = "network_bytes"

Server = Tuple["subprocess.Popen[bytes]", IO[bytes]]


def listening(files: Sequence[str] = SOCKETS) -> Set[int]:
    """Ports on which somebody listens in this network namespace; asking disturbs nobody."""
    found: Set[int] = set()
    for name in files:
        with contextlib.suppress(OSError, ValueError, IndexError), open(name, encoding="ascii") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == _LISTENS:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return found


class Servers:
    """iperf3 servers that this process started, by port. Safe to call from several threads."""

    def __init__(self, lifetime_seconds: float = SERVER_SECONDS) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._lock = threading.Lock()
        self._running: Dict[int, Server] = {}
        self._end: Union[threading.Timer, None] = None
        atexit.register(self.stop)

    def start(self, ports: Sequence[int]) -> List[str]:
        """Starts what does not run yet. A line a port; one that is not served says FAIL and why."""
        with self._lock:
            self._forget_ended()
            taken = listening()
            lines = {port: self._begin(port, taken) for port in ports}
            self._await({port for port, line in lines.items() if not line}, lines)
            self._end_later()
        return [lines[port] for port in ports]

    def stop(self) -> List[str]:
        """Stops all of them. A line each."""
        with self._lock:
            running, self._running = self._running, {}
            if self._end:
                self._end.cancel()
        for process, _ in running.values():
            with contextlib.suppress(OSError):
                process.terminate()
        ends = time.monotonic() + STOP_SECONDS
        for process, errors in running.values():
            try:
                process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            errors.close()
        return [f"iperf3 server on port {port} stopped (pid {one[0].pid})" for port, one in running.items()]

    def pids(self) -> Dict[int, int]:
        """Process id by port."""
        with self._lock:
            return {port: process.pid for port, (process, _) in self._running.items()}

    def _begin(self, port: int, taken: Set[int]) -> str:
        """What is to be said of the port; nothing where a server was started that may listen soon."""
        if port in self._running:
            return f"iperf3 server on port {port} runs already (pid {self._running[port][0].pid})"
        if port in taken:
            return f"FAIL iperf3 server on port {port}: another process listens there; take another startport"
        errors = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - lives as long as the server
        argv = [IPERF3, "-s", "-p", str(port)]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        except OSError as error:
            errors.close()
            return f"FAIL iperf3 server on port {port}: {IPERF3} cannot be started: {error.strerror or error}"
        self._running[port] = (process, errors)
        return ""

    def _await(self, begun: Set[int], lines: Dict[int, str]) -> None:
        """Waits until the begun ones listen; who does not is ended."""
        ends = time.monotonic() + LISTEN_SECONDS
        waiting = set(begun)
        while waiting:
            for port in sorted(waiting & listening()):
                if self._running[port][0].poll() is None:
                    lines[port] = f"iperf3 server on port {port} started (pid {self._running[port][0].pid})"
                    waiting.discard(port)
            for port in sorted(waiting):
                if self._running[port][0].poll() is not None or time.monotonic() > ends:
                    lines[port] = f"FAIL iperf3 server on port {port}: {self._ended(port)}"
                    waiting.discard(port)
            if waiting:
                time.sleep(0.01)

    def _ended(self, port: int) -> str:
        process, errors = self._running.pop(port)
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
        with errors:
            errors.seek(0)
            said = " ".join(errors.read(2000).decode("utf-8", "replace").split())[-300:]
        what = f"it did not listen within {LISTEN_SECONDS:g} s" if code is None else f"it ended with {code}"
        return f"{what}; it said: {said}" if said else what

    def _forget_ended(self) -> None:
        for port in [port for port, (process, _) in self._running.items() if process.poll() is not None]:
            self._running.pop(port)[1].close()

    def _end_later(self) -> None:
        if self._end:
            self._end.cancel()
        self._end = threading.Timer(self._lifetime_seconds, self.stop)
        self._end.daemon = True
        self._end.start()


def send(flow: Flow) -> Tuple[List[Sums], List[str]]:
    """All clients of a flow at once: what those told that ended well, and what became of the others."""
    found: Dict[int, Parsed] = {}

    def one(index: int) -> None:
        call = Call(number=index, command=tuple(client_argv(flow, index)), parser=IPERF3)
        found[index] = execute(call, {}, CLIENT_DEADLINE_SECONDS, {IPERF3: client_sums})

    threads = [threading.Thread(target=one, args=(index,), daemon=True) for index in range(flow.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told: List[Sums] = []
    errors: List[str] = []
    for index in range(flow.clients):
        parsed = found.get(index, Parsed(unknown="the client was not started"))
        values = {(one.quantity, one.subject): one.value for one in parsed.readings}
        try:
            if parsed.unknown:
                raise KeyError(parsed.unknown)
            told.append(_sums(values))
        except KeyError as error:
            errors.append(f"port {flow.port + index}: {error.args[0]}")
    return told, errors


def client_argv(flow: Flow, index: int) -> List[str]:
    """The client of that number: JSON, without copying, for `CLIENT_SECONDS`."""
    argv = [IPERF3, "-c", flow.address, "-p", str(flow.port + index), "-t", str(CLIENT_SECONDS), "-Z", "-J"]
    argv += ["--connect-timeout", str(CONNECT_MILLISECONDS)]
    return [*argv, "-B", flow.source] if flow.source else argv


def client_sums(text: str) -> Parsed:
    """What a client printed: bandwidth as `tool_iperf3` reads it, and the bytes beside it."""
    parsed = tool_iperf3.parse(text)
    end = mapping(mapping(document(text)).get("end"))
    sizes = {subject: number(mapping(end.get(name)).get("bytes")) for name, subject in tool_iperf3.SUMS.items()}
    readings = [Reading(_BYTES, size, "B", subject) for subject, size in sizes.items() if size is not None]
    return Parsed((*parsed.readings, *readings), parsed.unknown, parsed.version)


def _sums(values: Dict[Tuple[str, str], Any]) -> Sums:
    """The sums of a client.

    Raises:
        KeyError: one of them is missing.
    """

    def of(quantity: str, subject: str) -> float:
        value = values.get((quantity, subject))
        if value is None:
            raise KeyError(f"{IPERF3} did not tell what was {subject}")
        return float(value)

    rates = [of("network_bandwidth", subject) for subject in ("sent", "received")]
    sizes = [of(_BYTES, subject) / 2**30 for subject in ("sent", "received")]
    return Sums(sizes[0], rates[0], sizes[1], rates[1])
