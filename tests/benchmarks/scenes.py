"""A home with a server for benchmarks, as a user has it: the driver is a process, the server runs in the background."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deployments.processes.console import ensure_console, stop_console
from tests.support.harness.grounds import EmbeddedGround
from tests.support.harness.stages import Stage

TRAINER = "$(PRIMUS_FOLDER_PROGRAMS)/programs.pyz"


@contextmanager
def stage_of_a_user() -> Iterator[Stage]:
    """A stage whose Prefect server is the one that `primus up` starts."""
    home = Path(tempfile.mkdtemp(prefix="primus-bench-"))
    made = Stage(home, ensure_console(home), EmbeddedGround())
    try:
        yield made
    finally:
        if made.run:
            made.cluster.stop()
        made.ledger.close()
        stop_console(home)
        shutil.rmtree(home, ignore_errors=True)


def wide_cluster(home: Path, nodes: int) -> str:
    """A cluster profile with many nodes and a loose brake, so that one run can lose many."""
    path = home / "wide.yaml"
    path.write_text(
        f"extends: local\nname: wide\npools:\n  - name: cpu\n    hardware: cpu\n    nodes: {nodes}\n    spares: 1\n"
        "    node_prefix: node-\nbrake:\n  max_quarantined_share: 1.0\n  max_evictions: 1000\n"
    )
    return str(path)


def command(*options: str) -> str:
    """An override that starts the demo trainer with these options."""
    words = ["python3", TRAINER, "demo-train", "--steps", "{steps}", "--seed", "{seed}"]
    words += ["--checkpoint-dir", "{checkpoint_dir}", "--save-every", "{interval_steps}"]
    words += ["--fault-file", "{run_dir}/fault.json", *options]
    return "roles.trainer.command=[" + ", ".join(f'"{word}"' for word in words) + "]"


def shown(seconds: Sequence[float]) -> str:
    """Median, best and worst of some seconds."""
    median = statistics.median(seconds)
    return f"median {median:.2f} s (best {min(seconds):.2f}, worst {max(seconds):.2f}, n={len(seconds)})"


def wait_for_first_step(stage: Stage, attempt: int, deadline_seconds: float = 60.0) -> float:
    """When the attempt's first step was completed, Unix seconds."""
    deadline = time.monotonic() + deadline_seconds
    while True:
        attempts = stage.story.attempts
        if len(attempts) >= attempt and attempts[attempt - 1].first_step_at is not None:
            return float(attempts[attempt - 1].first_step_at or 0.0)
        if time.monotonic() > deadline:
            raise RuntimeError(stage.tell())
        time.sleep(0.01)
