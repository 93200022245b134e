"""Many node daemons in one process, each on a port of its own: `python -m tests.health_fleet FIRST COUNT`.

Prints `node=host:port,…` once all of them serve, and ends with its standard input.
"""

from __future__ import annotations

import sys

from workflows.programs.health import parse
from workflows.programs.health_start import started

QUIET = ["--port=0", "--readiness-port=-1", "--metrics-port=-1", "--api=none", "--loglevel=0", "--w=0"]


def main(first: int, count: int) -> None:
    running = []
    for index in range(first, first + count):
        options = parse([*QUIET, "--invasive-check-timer=0", f"--node=node-{index:03d}", "--checks=remapped,gpupower"])
        running.append(started(options, {}))
    print(",".join(f"{one.daemon.plan.node}=127.0.0.1:{one.ports['health']}" for one in running), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
