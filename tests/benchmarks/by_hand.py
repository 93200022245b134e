"""What a person could do at best: the trainer's processes started by hand, nothing between them and the machine.

The limit that starts and recoveries are held against in the same run.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STEP = re.compile(rb"^step (\d+)/", re.MULTILINE)
"""A step that is done; not the one that was restored."""


def first_step_seconds(archive: Path, options: Sequence[str], ranks: int, folder: Path) -> float:
    """Seconds from starting all ranks to the first step line of rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    began = time.perf_counter()
    processes = [
        subprocess.Popen(
            [sys.executable, str(archive), "demo-train", *options],
            env={**common, **threads, "RANK": str(rank), "LOCAL_RANK": str(rank), "PRIMUS_ATTEMPT": "1"},
            cwd=folder,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    try:
        output = processes[0].stdout
        assert output is not None
        for line in output:
            if STEP.search(line):
                return time.perf_counter() - began
        raise RuntimeError("the trainer printed no step")
    finally:
        for process in processes:
            process.kill()
            process.communicate()
