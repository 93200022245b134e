"""A preflight as jobs of Slurm: one short job a node, its script, and the arguments of sbatch. Pure.

Names are deterministic: after a crash, the next caller finds the jobs of the first by them and takes them over.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex

from profiles.admission import Slurm
from profiles.errors import ProfileError
from workflows.node_tests.preflight import PREFLIGHT, PreflightPlan, pod_seconds, probe_options

REPORT, OUTPUT, SCRIPT, SENT, ARCHIVE = "report", "output", "job.sh", "job", "programs.pyz"
"""Files of a node in the test's folder: what it told, what it printed, the script, the job's number; the programs."""
CPUS = 4
"""Asked for where a test does not need the whole node: checks run side by side, and one CPU would make them late."""
SPARE_SECONDS = 300
"""So much later than we give it up, Slurm drops a job that it never began: then whoever waited for it is dead."""
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""One node: brackets and commas would make several of it."""
OURS = frozenset(
    {
        *("job-name", "nodes", "ntasks", "nodelist", "array", "wrap", "chdir", "input", "output", "error", "parsable"),
        *("time", "deadline", "begin", "hold", "wait", "dependency", "requeue", "no-requeue", "test-only"),
        *("export", "export-file"),
    }
)
"""Options of sbatch that a test stands or falls with."""


def check_settings(settings: Slurm) -> None:
    """Whether sbatch can be asked with these settings.

    Raises:
        ProfileError: names the field.
    """
    if settings.folder and not settings.folder.startswith("/"):
        raise ProfileError("slurm.folder", f"must be an absolute path that all nodes see, got {settings.folder!r}")
    for index, argument in enumerate(settings.arguments):
        field, (option, _, _) = f"slurm.arguments[{index}]", argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or not option:
            raise ProfileError(field, f"must be one long option with its value, e.g. --qos=tests, got {argument!r}")
        if option in OURS:
            raise ProfileError(field, f"--{option} is set by the test itself; remove it")


def name_of(plan: PreflightPlan, home: str) -> str:
    """Name of the test: that of the plan, and a mark that distinguishes it from those of other homes and plans.

    Two homes (`home`: PRIMUS_HOME) count their tests on their own, and never see each other.
    """
    calls = {pool: probe_options(plan, pool, path="", out_dir="").argv() for pool in plan.pools}
    identity = json.dumps([home, plan.name, plan.nodes, calls], sort_keys=True)
    return f"{plan.name}-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}"


def job_name(test: str, node: str) -> str:
    """Name of the job on a node."""
    return f"{test}.{node}"


def needs_whole_node(plan: PreflightPlan, pool: str) -> bool:
    """Whether a call must have the node or its GPUs for itself."""
    return any({"node", "gpus"} & set(call.needs) for call in plan.calls(pool).calls)


def job_script(plan: PreflightPlan, node: str, settings: Slurm, storage: str, folder: str) -> str:
    """The script of the job on a node; every word of it that is not ours is quoted.

    `storage` is the folder that is tested ("": none) and `folder` the test's own, both as the nodes see them.
    """
    own = f"{folder}/{node}"
    path = f"{storage}/{PREFLIGHT}" if storage else ""
    options = probe_options(plan, pool_of(plan, node), path=path, out_dir=own)
    probe = [settings.python, "-I", "-S", f"{folder}/{ARCHIVE}", "probe", *options.argv()]
    return "\n".join(
        (
            "#!/bin/sh",
            "# A preflight of primus: measures this node and judges nothing.",
            "umask 077",
            "# Somebody sent it twice at the same moment: the first one has told everything.",
            f"[ -e {shlex.quote(f'{own}/{REPORT}')} ] && exit 0",
            f"PRIMUS_NODE={shlex.quote(node)}",
            "export PRIMUS_NODE",
            f"exec {shlex.join(probe)}",
            "",
        )
    )


def sbatch_words(plan: PreflightPlan, node: str, settings: Slurm, test: str, folder: str) -> list[str]:
    """The words of sbatch, without the program's name.

    The user's arguments stand before all that the test stands or falls with, and after what may be chosen otherwise.
    """
    pool, whole = pool_of(plan, node), needs_whole_node(plan, pool_of(plan, node))
    hardware = plan.hardware[pool]
    gpus = hardware.gpus_per_node if settings.gpus_per_node is None else settings.gpus_per_node
    own = f"{folder}/{node}"
    last_seconds = int(settings.wait_seconds) + limit_seconds(plan) + SPARE_SECONDS
    return [
        *(["--exclusive", "--mem=0"] if whole else [f"--cpus-per-task={min(CPUS, hardware.cpus_per_node)}"]),
        *([f"--gpus-per-node={gpus}"] if gpus else []),
        *_named({"partition": settings.partition, "account": settings.account, "reservation": settings.reservation}),
        *settings.arguments,
        "--parsable",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        f"--job-name={job_name(test, node)}",
        f"--time={_clock(limit_seconds(plan))}",
        f"--deadline=now+{last_seconds}",
        # A second job of the same name waits for the first, and then finds its report.
        "--dependency=singleton",
        # What a lost node told nobody knows: it is not begun again elsewhere in time, and not here either.
        "--no-requeue",
        f"--chdir={folder}",
        f"--output={f'{own}/{OUTPUT}'.replace('%', '%%')}",
        f"{own}/{SCRIPT}",
    ]


def limit_seconds(plan: PreflightPlan) -> int:
    """Time limit of a job, in whole minutes as Slurm counts."""
    return -(-pod_seconds(plan) // 60) * 60


def pool_of(plan: PreflightPlan, node: str) -> str:
    """Pool of a node of the plan."""
    return next(rack.pool for rack in plan.racks if node in rack.nodes)


def _named(options: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items() if value]


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"
