"""A trial of a run: the same gang with a name and a folder of its own, on nodes that are held for it. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence

from profiles.errors import ProfileError
from profiles.resolve import Resolved, digest
from profiles.run import RunProfile
from workflows import labels

OWN_FOLDER = "{run_dir}/checkpoints"
"""Of the trial: its `{run_dir}` is its own."""
MARGIN_SECONDS = 120
"""Beyond the deadline, before the cluster ends what nobody came back for."""


def trial_key(resolved: Resolved, pools: Mapping[str, str], ledger: str = "") -> str:
    """The same key for the same run profile on the same nodes (name -> pool); another one in each ledger."""
    asked = [digest(resolved), resolved.run.trial.model_dump(mode="json"), list(pools.items()), ledger]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[: labels.TRIAL_KEY_CHARACTERS]


def gang_key(nodes: Sequence[str]) -> str:
    """The same for the same nodes in the same order."""
    return hashlib.sha256(json.dumps(list(nodes)).encode()).hexdigest()[: labels.TRIAL_KEY_CHARACTERS]


def steps_of(run: RunProfile) -> int:
    """Steps that a trial must see: at least two reports after those that do not count.

    Raises:
        ProfileError: the run tells no steps, or is too short for that.
    """
    every, trial = run.progress.every_steps, run.trial
    if run.progress.framework == "none":
        raise ProfileError("progress.framework", "must tell steps: a trial sees nothing else; docs/profiles.md")
    least = every * (max(1, math.ceil(trial.skip_steps / every)) + 1)
    wanted = every * math.ceil(max(trial.steps, least) / every)
    if not run.steps or wanted <= run.steps:
        return wanted
    if least > run.steps:
        raise ProfileError("trial.skip_steps", f"{least} steps are needed for a rate, and the run has {run.steps}")
    return run.steps // every * every


def tried(resolved: Resolved, owner: str) -> Resolved:
    """The run as it is tried: nothing of it is changed but where checkpoints go and what keeps its pods away.

    `owner`: of the holds on the nodes.

    Raises:
        ProfileError: the program would write into the run's own checkpoints, or tells no steps.
    """
    steps_of(resolved.run)
    _refuse_fixed_folder(resolved.run)
    checkpoint = resolved.run.checkpoint.model_copy(update={"directory": OWN_FOLDER})
    hold = f"{labels.HOLD_TAINT}={owner}:NoSchedule"
    pool = resolved.pool.model_copy(update={"taints": (*resolved.pool.taints, hold)})
    return resolved.model_copy(update={"run": resolved.run.model_copy(update={"checkpoint": checkpoint}), "pool": pool})


def lasts_seconds(run: RunProfile) -> int:
    """After so long the cluster ends a trial by itself."""
    return math.ceil(run.trial.deadline_seconds) + MARGIN_SECONDS


def _refuse_fixed_folder(run: RunProfile) -> None:
    """A folder that is written out in the command would be the run's own also in a trial."""
    fixed = run.checkpoint.directory.rstrip("/")
    if "{" in fixed:
        return
    written = re.compile(re.escape(fixed) + r"(?![\w.-])")
    for index, role in enumerate(run.roles):
        texts = {"command": " ".join(role.command), "environment": " ".join(role.environment.values())}
        for field, text in texts.items():
            if written.search(text):
                what = f"names {fixed}, where the run's own checkpoints are: write {{checkpoint_dir}} for a trial"
                raise ProfileError(f"roles[{index}].{field}", what)
