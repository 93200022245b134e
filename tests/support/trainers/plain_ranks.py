"""The demo's two ranks as plain processes, without pace or pods: what a run must equal to which something happens."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.loading.load import load_run
from tests.support.running.once import once
from tests.support.running.waiting import patience

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_SECONDS = patience(120.0)
WORLD_SIZE = 2


def weights_of_plain_ranks(folders: pytest.TempPathFactory, profile: Path, steps: int = 0) -> str:
    """Digest of the weights of a story's run to which nothing happens; made once for all workers.

    Args:
        folders: of this worker.
        profile: of the run; its seed counts.
        steps: other than the profile's.
    """
    run = load_run(str(profile))
    wanted = steps or run.steps
    return once(folders, f"plain-ranks-{run.seed}-{wanted}", lambda: _trained(run.seed, wanted))


def _trained(seed: int, steps: int) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [_start(rank, port, f"--steps={steps}", f"--seed={seed}") for rank in range(WORLD_SIZE)]
    said = [rank.communicate(timeout=DEADLINE_SECONDS)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * WORLD_SIZE, said
    [digest] = re.findall(rf"^final step {steps} .* weights sha256 ([0-9a-f]{{64}})$", said[0], re.MULTILINE)
    return digest


def _start(rank: int, port: int, *words: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "RANK": str(rank),
        "WORLD_SIZE": str(WORLD_SIZE),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, "-m", "workflows.programs.demo.train", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)
