"""The training run that proves a cluster, started as a person would start it, and looked up in the ledger."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from profiles.vocabulary import RunState
from tasks.bootstrap.site import Tell
from tasks.context import world
from workflows.model.records import RunRecord

PRIMUS = (sys.executable, "-m", "deployments.cli.main")
AGAIN = "the proof of the cluster is asked for again"
FINGERPRINT_CHARACTERS = 12


def proof_run_name(wanted: str) -> str:
    """Name of the run that proves a cluster of this fingerprint: a proven state is not trained on again."""
    return f"proof-{wanted[:FINGERPRINT_CHARACTERS]}"


def find_proof_run(wanted: str) -> RunRecord | None:
    """The run, as the ledger has it; None: it was never begun.

    Raises:
        Unavailable: the ledger does not answer.
    """
    return world().ledger.run(proof_run_name(wanted))


def train_proof(cluster: str, profile: str, wanted: str, tell: Tell, primus: Sequence[str] = PRIMUS) -> str:
    """Train the run profile on the cluster until it ends; why it did not succeed, or "".

    A run that was begun is taken up; one that failed before is resumed. Who is killed meanwhile leaves a run that goes
    on, and finds it again by its name.

    Args:
        cluster: name or path, as on the command line.
        profile: of the run, likewise.
        wanted: fingerprint of what is proven.
        tell: gets each line that the command prints.
        primus: the command line itself.
    """
    name, before = proof_run_name(wanted), find_proof_run(wanted)
    begin = ("train", profile, "--name", name, "--cluster", cluster)
    resume = ("resume", name, "--why", AGAIN)
    words = resume if before is not None and before.state in (RunState.FAILED, RunState.STOPPED) else begin
    own = {**os.environ, "PRIMUS_HOME": str(world().settings.home)}
    last = ""
    with subprocess.Popen(
        [*primus, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=own,
    ) as process:
        for line in process.stdout or ():
            if line.strip():
                last = line.strip()
                tell(f"training: {last}")
    return "" if process.returncode == 0 else f"primus {words[0]} ended with {process.returncode}: {last}"
