"""The node daemon: Autopilot's HTTP interface over our checks, in a pod of each node or as a plain process.

    python3 programs.pyz health --port=3333 --peers=node-a=10.0.0.1:3333,node-b=10.0.0.2:3333

Flags and variables of Autopilot's own daemon have its names and meanings. The token comes from PRIMUS_TOKEN or the file
that PRIMUS_TOKEN_FILE names, never from a flag. Only this module of the daemon reads the environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Sequence, TextIO

from workflows.programs.health import iperf
from workflows.programs.health.daemon import Daemon, Plan
from workflows.programs.health.diagnostic import fatal_words
from workflows.programs.health.fleet_status import Fleet
from workflows.programs.health.gpu_checks import GpuLimits, Tools, cpu_model
from workflows.programs.health.kubernetes import Hold, NoHold, TaintHold, iso, owner_of
from workflows.programs.health.labels import NodeLabels
from workflows.programs.health.node_checks import CLASS
from workflows.programs.health.options import Options, parse, periodic_of
from workflows.programs.health.peers import (
    ClusterNodes,
    ConfiguredNodes,
    Nodes,
    Peer,
    by_node,
    is_node_name,
    peers_from,
)
from workflows.programs.health.query import duration_seconds
from workflows.programs.health.routes import Gate, Pages
from workflows.programs.health.server import (
    READING_ROOM,
    UNCOUNTED,
    ConnectionLimiter,
    HealthPort,
    HealthPorts,
    RateLimiter,
)
from workflows.programs.probes.node import read
from workflows.programs.runtime import flags
from workflows.programs.runtime.kubernetes_api import ACCOUNT, Api, api_from
from workflows.programs.runtime.report_token import forget_secrets, token_from

Say = Callable[[str], None]
LOOPBACK = "127.0.0.1"
ANYWHERE = "0.0.0.0"  # noqa: S104 - in a pod without an address of its own in the environment


@dataclass(frozen=True)
class RunningDaemon:
    """A daemon that serves."""

    daemon: Daemon
    servers: HealthPorts
    address: str
    ports: Mapping[str, int]
    """`health`, `readiness`, `metrics` -> port."""

    def where(self) -> str:
        """One line: where it listens."""
        listed = ", ".join(f"{name} {port}" for name, port in self.ports.items())
        return f"{self.daemon.plan.node} listening on {self.address}: {listed}"

    def close(self) -> None:
        """No more rounds, nobody is answered, what was started ends."""
        self.daemon.end()
        self.servers.close()
        iperf.stop_servers({})


def start_daemon(options: Options, environment: Mapping[str, str]) -> RunningDaemon:
    """A daemon that serves and makes its rounds.

    Raises:
        flags.UsageError, PeerError: a flag or a variable cannot be used.
        OSError: a port cannot be bound, or the log cannot be written.
    """
    token = token_from(environment)
    say = _log(options)
    node = options.node or environment.get("NODE_NAME") or environment.get("PRIMUS_NODE") or os.uname().nodename
    if not is_node_name(node):
        raise flags.UsageError(f"--node: {node[:80]!r} is no name of a node")
    api = api_from(environment, options.api)
    address = options.address or _address(environment)
    own = Peer(node, LOOPBACK if address == ANYWHERE else address, options.port)
    namespace = (
        options.namespace or environment.get("NAMESPACE") or (read(os.path.join(ACCOUNT, "namespace")) or "autopilot")
    )
    nodes = _nodes(options, api, namespace, own)
    hold: Hold = TaintHold(api) if api is not None else NoHold()
    plan = _plan(options, environment, node, namespace)
    marks = NodeLabels(node, api if options.label else None, plan.fatal, plan.periodic, say)
    daemon = Daemon(plan, Tools(options.gpus), nodes, api, hold, marks=marks, say=say)
    fleet = Fleet(node, nodes, daemon.report, token)
    pages = Pages(daemon, fleet, Gate(token, options.compatible), token, cpu_model(read("proc/cpuinfo") or ""))
    running = _serve(options, address, daemon, pages)
    _begin(running, options, hold if api is not None else None, say)
    return running


def _plan(options: Options, environment: Mapping[str, str], node: str, namespace: str) -> Plan:
    paths = environment.get("AUTOPILOT_DCGM_RESULT_PATHS", "")
    return Plan(
        node,
        namespace,
        periodic_of(options, environment),
        GpuLimits(options.bw, options.hbm_floor),
        fatal_words(environment.get("DCGM_FATAL_ERRORS", "")),
        tuple(one.strip() for one in paths.split(",") if one.strip()),
        environment.get(CLASS, ""),
        options.deep_level,
        options.ping_peers,
    )


def _nodes(options: Options, api: Optional[Api], namespace: str, own: Peer) -> Nodes:
    if options.peers or api is None:
        named: Dict[str, Peer] = by_node(peers_from(options.peers))
        return ConfiguredNodes([*named.values()] if own.node in named else [*named.values(), own])
    return ClusterNodes(api, namespace, options.pods, options.port, own)


def _address(environment: Mapping[str, str]) -> str:
    pod = environment.get("PRIMUS_POD_IP") or environment.get("POD_IP", "")
    return pod or (ANYWHERE if environment.get("KUBERNETES_SERVICE_HOST") else LOOPBACK)


def _serve(options: Options, address: str, daemon: Daemon, pages: Pages) -> RunningDaemon:
    servers, rate = HealthPorts(), RateLimiter(options.requests_per_second)
    main, side = ConnectionLimiter(options.connections), ConnectionLimiter(READING_ROOM)
    count = daemon.known.count
    wanted = (
        ("health", "--port", options.port, (), main),
        ("readiness", "--readiness-port", options.readiness_port, UNCOUNTED[:2], side),
        ("metrics", "--metrics-port", options.metrics_port, UNCOUNTED, side),
    )
    ports: Dict[str, int] = {}
    try:
        for name, flag, port, paths, room in wanted:
            if port >= 0:
                try:
                    ports[name] = servers.add(HealthPort((address, port), pages, paths, rate, room, count))
                except OSError as error:
                    advice = "name another one" + ("" if name == "health" else ", or -1 for none")
                    why = error.strerror or error
                    raise OSError(f"{flag}: {address}:{port} cannot be bound ({why}): {advice}") from error
        if _is_elsewhere(address):
            with contextlib.suppress(OSError):  # somebody else of the node has it: then there is no port-forward
                servers.add(HealthPort((LOOPBACK, ports["health"]), pages, (), rate, main, count))
    except BaseException:
        servers.close()
        raise
    return RunningDaemon(daemon, servers, address, ports)


def _is_elsewhere(address: str) -> bool:
    """Whether loopback is not among the addresses on which it listens: `kubectl port-forward` asks there."""
    return address != ANYWHERE and not address.startswith("127.") and address not in ("localhost", "::", "::1")


def _begin(running: RunningDaemon, options: Options, hold: Optional[Hold], say: Say) -> None:
    def work() -> None:
        node = running.daemon.plan.node
        if hold is not None:
            left = hold.release(node, owner_of(node))  # of a daemon that was killed during a deep test
            if left:
                say(f"a hold may be left over on {node}: {left}")
        rounds = duration_seconds("--w", options.w)
        running.daemon.begin(rounds, duration_seconds("--invasive-check-timer", options.invasive_check_timer))

    threading.Thread(target=work, daemon=True).start()


def _log(options: Options) -> Say:
    if options.loglevel < 1:
        return lambda _: None
    stream: TextIO = open(options.logfile, "a", encoding="utf-8") if options.logfile else sys.stderr  # noqa: SIM115
    lock = threading.Lock()

    def say(line: str) -> None:
        at = iso(time.time())
        with lock:
            print(f"{at} health: {' '.join(line.split())}", file=stream, flush=True)

    return say


def main(argv: List[str]) -> int:
    """Serve until SIGTERM; 2 where it cannot be started as asked."""
    return serve(argv, os.environ)


def serve(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Serve in the foreground until SIGTERM or SIGINT; call it from the main thread.

    `environment` has PRIMUS_TOKEN or PRIMUS_TOKEN_FILE and Autopilot's own variables. The exit code is 0 after a signal
    and 2, with the reason on standard error, where the daemon cannot start.
    """
    environment = dict(environment)
    forget_secrets(os.environ)  # checks run the tools of others
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    try:
        running = start_daemon(parse(argv), environment)
    except (ValueError, OSError) as error:
        print(f"health: {error}", file=sys.stderr, flush=True)
        return 2
    print(f"health: {running.where()}", flush=True)
    ended.wait()
    running.close()
    return 0
