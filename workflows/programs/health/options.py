"""How the node daemon is started: its flags, Autopilot's names among them, and what the environment adds.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

from workflows.programs.health.query import LEVELS, QueryError, duration_seconds
from workflows.programs.health.results import CHECKS
from workflows.programs.runtime import flags

PERIODIC = "pciebw,remapped,dcgm,ping,gpupower"
"""Autopilot's own default of PERIODIC_CHECKS."""
SWITCHES = ("--label", "--compatible")
"""May stand without a value."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """How the daemon is started."""

    port: int = 3333
    """Health checks; 0: a free one, which is printed."""
    readiness_port: int = 8080
    """`/readinessprobe` once more; 0: a free one, -1: not there."""
    metrics_port: int = 8081
    """`/metrics` once more; 0: a free one, -1: not there."""
    address: str = ""
    """Where it listens; "": the pod's own address, outside of a pod loopback. The checks are on loopback too."""
    bw: float = 4.0
    """GB/s between host and GPU below which `pciebw` fails."""
    w: str = "24h"
    """Between two rounds of the periodic checks, `30m`, `1h`, `1d`; 0: none are made."""
    invasive_check_timer: str = "4h"
    """Between two deep tests of an idle node; 0: none are made."""
    loglevel: int = 2
    """0: only what is wrong; 1 and more: what is done."""
    logfile: str = ""
    """"": standard error."""
    checks: str = ""
    """The periodic set, with commas; "": PERIODIC_CHECKS, else Autopilot's own."""
    node: str = ""
    """Name of this node; "": NODE_NAME, PRIMUS_NODE, the host's own."""
    namespace: str = ""
    """Of the daemon's pods; "": NAMESPACE, else that of the service account."""
    pods: str = "app.kubernetes.io/name=primus-health"
    """Labels of the daemon's pods."""
    peers: str = ""
    """`node=host:port,…` instead of the pods that the API tells of."""
    api: str = ""
    """URL of the Kubernetes API instead of the cluster's own; `none`: no API."""
    label: bool = False
    """Labels `autopilot.ibm.com/*` are written on the node."""
    compatible: bool = False
    """Who starts work needs no token, as with Autopilot."""
    gpus: int = 0
    """GPUs that the node should have; 0: as many as its bus shows."""
    hbm_floor: float = 0.0
    """GB/s of GPU memory below which `gpumem` fails; 0: only wrong bytes and products do."""
    deep_level: int = 3
    """Of the diagnostic in a deep test, 2 to 4."""
    ping_peers: int = 32
    """Other nodes that one run of `ping` asks where nobody names any; the next run asks the next ones."""
    requests_per_second: float = 100.0
    """More are refused with 429, after a burst of ten times as many."""
    connections: int = 512
    """At the same time; more are refused with 429."""


def parse(argv: Sequence[str]) -> Options:
    """The options in `argv`; a single dash before a name and a switch without a value are understood.

    Raises:
        flags.UsageError: names the flag, what is wrong and what would be right.
    """
    words = [f"-{word}" if re.match(r"-[a-z]", word) else word for word in argv]
    following = [*words[1:], ""]
    words = [
        f"{word}=true" if word in SWITCHES and after not in ("true", "false") else word
        for word, after in zip(words, following)  # noqa: B905 - 3.10
    ]
    options = flags.from_argv(Options, words)
    for name, text in (("w", options.w), ("invasive_check_timer", options.invasive_check_timer)):
        try:
            duration_seconds(flags.flag(name), text)
        except QueryError as error:
            raise flags.UsageError(str(error)) from error
    for name, least, most in BOUNDS:
        if not least <= getattr(options, name) <= most:
            raise flags.UsageError(f"{flags.flag(name)}: must be {least} to {most}, got {getattr(options, name)}")
    periodic_of(options, {})
    return options


BOUNDS: Sequence[Tuple[str, float, float]] = (
    ("port", 0, 65535),
    ("readiness_port", -1, 65535),
    ("metrics_port", -1, 65535),
    ("bw", 0, 10000),
    ("hbm_floor", 0, 100000),
    ("gpus", 0, 1024),
    ("deep_level", LEVELS[1], LEVELS[-1]),
    ("ping_peers", 1, 4096),
    ("requests_per_second", 0.1, 100000),
    ("connections", 1, 16384),
)


def periodic_of(options: Options, environment: Mapping[str, str]) -> Tuple[str, ...]:
    """The periodic set.

    Raises:
        flags.UsageError: a check that nobody knows.
    """
    text = options.checks or environment.get("PERIODIC_CHECKS", "") or PERIODIC
    checks = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    unknown = [one for one in checks if one not in CHECKS]
    if unknown or not checks:
        where = "--checks" if options.checks else "PERIODIC_CHECKS"
        raise flags.UsageError(f"{where}: {', '.join(unknown) or 'names none'}; known are {', '.join(CHECKS)}")
    return checks
