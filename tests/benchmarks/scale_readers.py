"""What readers of the product need for all of a large cluster, one a process: its seconds and its largest memory.

`python -m tests.benchmarks.scale_readers queue|candidates|gang PROFILE` prints one JSON document.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from flows.decisions.explain.queue import entries
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_hardware
from profiles.resolve import Resolved
from tasks.cluster import using
from tasks.context import at_hand
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.observe.run import read_queues
from tasks.runs.actions import node_candidates
from tasks.runs.watch import AttemptWatch
from tasks.settings import Settings
from tests.benchmarks.scale_monitor import largest_kib
from tests.support.builders.attempt_plans import TRAINER, a_run
from workflows.model.records import AttemptRecord

LIMIT_SECONDS = 120.0


def queue(profile: ClusterProfile) -> str:
    """What `primus queue` reads and says."""
    sight = read_queues(KubernetesCluster(profile), profile)
    return f"{len(sight.jobsets)} JobSets, {len(sight.pods)} pods, {len(entries(sight, time.time()))} rows"


def resolved_of(profile: ClusterProfile) -> Resolved:
    """A run of 512 ranks on the profile's pool."""
    pool = profile.pools[0]
    run = a_run(roles=(TRAINER.model_copy(update={"replicas": 512}),))
    return Resolved(run=run, cluster=profile, pool=pool, hardware=load_hardware(pool.hardware))


def candidates(profile: ClusterProfile) -> str:
    """What a driver reads before it chooses nodes: the pool, and who is on which node."""
    with at_hand(Settings.from_environment(os.environ)), using(KubernetesCluster(profile)):
        found = node_candidates(resolved_of(profile), "another", 1)
    return f"{len(found)} nodes, {sum(bool(item.busy) for item in found)} of them busy"


def gang(profile: ClusterProfile) -> str:
    """A driver's watch of a gang of 512 pods among all others, until it knows all of it."""
    attempt, began = AttemptRecord("run-499", 1, time.time(), "first", submitted_at=time.time()), time.monotonic()
    with AttemptWatch(KubernetesCluster(profile), resolved_of(profile), attempt, time.time, lambda: "") as watch:
        while True:
            view, nodes = watch.wait(1.0), watch.all_nodes()
            if len(view.pods) >= 512 and len(nodes) >= profile.pools[0].nodes:
                return f"{len(view.pods)} pods on {len(view.nodes)} of {len(nodes)} nodes"
            assert time.monotonic() - began < LIMIT_SECONDS, (len(view.pods), len(nodes), view.away)


READERS: dict[str, Callable[[ClusterProfile], str]] = {"queue": queue, "candidates": candidates, "gang": gang}


def main(what: str, profile: str) -> None:
    """Print what was read, in how many seconds, with how much memory."""
    known, began = load_cluster(profile), time.monotonic()
    said = READERS[what](known)
    took = time.monotonic() - began
    kib = largest_kib(os.getpid())
    print(json.dumps({"said": said, "seconds": took, "kib": kib}))


if __name__ == "__main__":
    main(*sys.argv[1:])
