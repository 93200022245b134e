"""Many node daemons in one process, each on a port of its own: `python -m tests.support.harness.health_fleet FIRST
COUNT [FLAG …]`.

Prints `node=host:port,…` once all of them serve, and ends with its standard input.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workflows.programs.health.main import start_daemon
from workflows.programs.health.options import parse

QUIET = [
    "--port=0",
    "--readiness-port=-1",
    "--metrics-port=-1",
    "--api=none",
    "--loglevel=0",
    "--w=0",
    "--invasive-check-timer=0",
]
QUICK = "--checks=remapped,gpupower"
"""What one call of one tool answers."""


@contextmanager
def fleet(first: int, count: int, *flags: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """`node-<first>` and so many after it in a process of their own: their places, as `--peers` has them.

    Args:
        first: number of the first one.
        count: how many.
        flags: further ones of each daemon; none: `QUICK`.
    """
    command = [sys.executable, "-m", "tests.support.harness.health_fleet", str(first), str(count), *(flags or [QUICK])]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
            process.wait(30)


@contextmanager
def asking(peers: str, *flags: str) -> Generator[int]:
    """The daemon of `node-000` in this process, which knows `peers`: its port."""
    wanted = [*QUIET, "--node=node-000", f"--peers={peers}", *(flags or [QUICK])]
    running = start_daemon(parse(wanted), {})
    try:
        yield running.ports["health"]
    finally:
        running.close()


def main(first: int, count: int, flags: Sequence[str]) -> None:
    running = [
        start_daemon(parse([*QUIET, f"--node=node-{index:03d}", *flags]), {}) for index in range(first, first + count)
    ]
    print(",".join(f"{one.daemon.plan.node}=127.0.0.1:{one.ports['health']}" for one in running), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
