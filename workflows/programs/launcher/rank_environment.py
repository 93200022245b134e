"""Environment variables of one rank, which describe the rank, its gang and its run. Pure."""

from __future__ import annotations

import os
from typing import Dict, Mapping

from workflows.programs.launcher.options import SECRETS, Options, Place, Rendezvous
from workflows.programs.runtime import files
from workflows.programs.runtime.report_token import VARIABLE, report_token

PYTHON_START = os.path.join(files.PROGRAMS, "stacks", "python_start")
"""Its `sitecustomize` makes any Python answer with its stacks when it is asked."""


def python_path(before: str) -> str:
    """`PYTHONPATH` of a rank: our folder, then the pod's own value `before`."""
    if os.pathsep in PYTHON_START:  # it would be read as two folders that are not there
        return before
    return os.pathsep.join([PYTHON_START, *([before] if before else [])])


def _replica(options: Options, first_pod: int) -> Dict[str, str]:
    """The rank's replica group, in torchft's variables; empty where there is only one."""
    if options.replica_groups == 1:
        return {}
    return {
        "REPLICA_GROUP_ID": str(first_pod // options.pods_together),
        "NUM_REPLICA_GROUPS": str(options.replica_groups),
    }


def rank_environment(
    base: Mapping[str, str], options: Options, place: Place, meeting: Rendezvous, local_rank: int
) -> Dict[str, str]:
    """The environment of one rank: the pod's own, torchrun's names and ours; no secret but its own."""
    first = options.first_pod(place.pod_index)
    rank = meeting.first_rank + local_rank - first * options.processes_per_node
    world_size = options.world_size // options.replica_groups
    environment = {name: value for name, value in base.items() if name not in SECRETS}
    if options.processes_per_node > 1:
        # As torchrun does it: else each of the ranks would start as many threads as the node has cores.
        environment.setdefault("OMP_NUM_THREADS", "1")
    return {
        **environment,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(options.processes_per_node),
        "GROUP_RANK": str(place.pod_index - first),
        "GROUP_WORLD_SIZE": str(options.pods_together),
        "ROLE_NAME": options.role,
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        **_replica(options, first),
        "MASTER_ADDR": meeting.master_address,
        "MASTER_PORT": str(meeting.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(meeting.incarnation - 1),
        "TORCHELASTIC_RUN_ID": f"{place.run}-a{place.attempt}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": python_path(environment.get("PYTHONPATH", "")),
        "PRIMUS_RUN": place.run,
        "PRIMUS_ATTEMPT": str(place.attempt),
        "PRIMUS_INCARNATION": str(meeting.incarnation),
        "PRIMUS_CHECKPOINT_DIR": place.checkpoint_dir,
        "PRIMUS_RESUME_FROM": place.resume_from,
        "PRIMUS_RESUME_STEP": "" if place.resume_step is None else str(place.resume_step),
        "PRIMUS_COORDINATOR_URL": place.coordinator_url,
        **_reporting(options, place, meeting.first_rank + local_rank),
    }


def _reporting(options: Options, place: Place, rank: int) -> Dict[str, str]:
    """Address and token by which a rank may report its progress to the coordinator, and do nothing else there."""
    if not (place.token and place.coordinator_url):
        return {}
    own = report_token(place.token, options.role, place.pod_index)
    return {VARIABLE: own, "PRIMUS_POD_INDEX": str(place.pod_index), "PRIMUS_RANK": str(rank)}
