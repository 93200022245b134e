"""`primus health serve`: the node daemon in the foreground, the same program that runs in a pod of each node."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tasks.settings import Settings


@dataclass(frozen=True)
class Serving:
    """What the command line says; what it leaves out is as `programs.pyz health` has it."""

    port: int = 3333
    readiness_port: int = 8080
    """-1: not there."""
    metrics_port: int = 8081
    """-1: not there."""
    address: str = ""
    """Where it listens; "": the pod's own address, outside of a pod loopback."""
    node: str = ""
    """Name of this node; "": as Kubernetes or the host says."""
    peers: str = ""
    """`node=host:port,…`; "": the daemon's pods, as the Kubernetes API tells."""
    interval: str = "24h"
    """Between two rounds of the periodic checks; `0`: none."""
    deep_interval: str = "4h"
    """Between two deep tests of an idle node; `0`: none."""
    checks: str = ""
    """The periodic set."""
    pcie_gb_per_second: float = 4.0
    gpus: int = 0
    """GPUs that the node should have; 0: as many as its bus shows."""
    label: bool = False
    compatible: bool = False


def serve(asked: Serving) -> int:
    """Serve until SIGTERM or Ctrl-C. The token is that of all our HTTP endpoints (PRIMUS_TOKEN, PRIMUS_TOKEN_FILE).

    Returns:
        0 after a signal, 2 where it cannot be started as asked; the reason is on standard error.

    Raises:
        ProfileError: the token cannot be read.
    """
    from workflows.programs import health, health_options

    environment = dict(os.environ)
    if not asked.compatible:
        environment["PRIMUS_TOKEN"] = Settings.from_environment(os.environ).token()
    options = health_options.Options(
        port=asked.port,
        readiness_port=asked.readiness_port,
        metrics_port=asked.metrics_port,
        address=asked.address,
        node=asked.node,
        peers=asked.peers,
        w=asked.interval,
        invasive_check_timer=asked.deep_interval,
        checks=asked.checks,
        bw=asked.pcie_gb_per_second,
        gpus=asked.gpus,
        label=asked.label,
        compatible=asked.compatible,
    )
    # The same words, the same refusals: as if they had been typed after `programs.pyz health`.
    return health.serve(options.argv(), environment)
