"""The node daemon: Autopilot's HTTP interface over our checks, in a pod of each node or as a plain process.

    python3 programs.pyz health --port=3333 --peers=node-a=10.0.0.1:3333,node-b=10.0.0.2:3333

Standard library only, Python 3.9. Flags and variables of Autopilot's own daemon have its names and meanings. The token
comes from PRIMUS_TOKEN or the file that PRIMUS_TOKEN_FILE names, never from a flag.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import List, Mapping, Sequence

from workflows.programs.health_options import parse
from workflows.programs.health_start import started


def main(argv: List[str]) -> int:
    """Serve until SIGTERM; 2 where it cannot be started as asked."""
    return serve(argv, os.environ)


def serve(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Serve in the foreground until SIGTERM or SIGINT; call it from the main thread.

    Args:
        argv: flags of `Options`.
        environment: PRIMUS_TOKEN or PRIMUS_TOKEN_FILE, and Autopilot's own variables.

    Returns:
        0 after a signal, 2 where it cannot be started as asked; the reason is on standard error.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    try:
        running = started(parse(argv), environment)
    except (ValueError, OSError) as error:
        print(f"health: {error}", file=sys.stderr, flush=True)
        return 2
    print(f"health: {running.where()}", flush=True)
    ended.wait()
    running.close()
    return 0
