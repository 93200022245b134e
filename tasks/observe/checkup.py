"""Looking at a whole cluster for `primus doctor`. Touches nothing: what is tried is tried as a dry run."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import Permanent, PrimusError, Refused, Transient
from profiles.loading.load import load_hardware
from tasks.cluster import Cluster, Manifest
from tasks.clusters import open_cluster
from tasks.embedded.start_keeper import probe_namespaces
from workflows import labels
from workflows.model.checkup import Attempted, CheckupFacts, PoolFacts
from workflows.model.cluster import jobset_of
from workflows.model.manifest import conditions, part
from workflows.model.nodes import node_of
from workflows.model.workflow import workflow_of

UNSEEN_SECONDS = 60.0
"""A workflow without a phase for so long has no controller."""
TRIAL = "primus-doctor"


def look_over(profile: ClusterProfile, home: Path) -> CheckupFacts:
    """Everything that can be found out about a cluster; what does not answer is part of the answer."""
    try:
        cluster = open_cluster(profile, home)
        versions = dict(cluster.versions())
        if profile.engine == "embedded":
            return _embedded(profile, cluster, home, versions)
        return _kubernetes(profile, cluster, versions)
    except PrimusError as error:
        return CheckupFacts(profile, Attempted(False, str(error)))


def _embedded(profile: ClusterProfile, cluster: Cluster, home: Path, versions: dict[str, str]) -> CheckupFacts:
    nodes = cluster.list("Node")
    return CheckupFacts(
        profile,
        Attempted(True, f"{len(nodes)} nodes in {home / 'clusters' / profile.name}"),
        versions=versions,
        skew_seconds=_file_skew(home),
        namespaces=probe_namespaces("auto"),
        free_bytes=shutil.disk_usage(home).free,
    )


def _file_skew(home: Path) -> float | None:
    """The clock of the home's file system minus ours; another machine's on a network mount."""
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".clock-") as file:
            file.write(b".")
            file.flush()
            return os.stat(file.name).st_mtime - time.time()
    except OSError:
        return None


def _kubernetes(profile: ClusterProfile, cluster: Cluster, versions: dict[str, str]) -> CheckupFacts:
    from tasks.kubernetes import checkup  # noqa: PLC0415 - half a second that a laptop need not pay

    server = checkup.server_of(profile)
    queue = bool(profile.queue)
    try:
        return CheckupFacts(
            profile,
            Attempted(True, f"{versions.get('engine')} {versions.get('kubernetes')}"),
            versions=versions,
            served=checkup.served(server, queue),
            rights=tuple(checkup.rights(server, profile.namespace)),
            pools=_pools(profile, cluster),
            claims={item.source: _claim(cluster, item.source) for item in profile.storage if item.kind == "claim"},
            skew_seconds=checkup.skew_seconds(server),
            jobset=try_jobset(profile, cluster),
            argo=_argo(cluster),
            queue=_queue(profile, cluster) if queue else Attempted(None),
        )
    finally:
        server.close()


def _pools(profile: ClusterProfile, cluster: Cluster) -> tuple[PoolFacts, ...] | None:
    try:
        return tuple(_pool(pool, cluster.list("Node", pool.labels)) for pool in profile.pools)
    except Permanent:
        return None


def _pool(pool: Pool, nodes: list[Manifest]) -> PoolFacts:
    hardware = load_hardware(pool.hardware)
    ready = {node["metadata"]["name"]: node for node in nodes if node_of(node).ready is True}
    return PoolFacts(
        name=pool.name,
        resource=hardware.resource_name,
        gpus_per_node=hardware.gpus_per_node,
        expected=pool.nodes,
        gpus={
            name: int(part(node, "status", "allocatable").get(hardware.resource_name) or 0)
            for name, node in ready.items()
        },
        not_ready=tuple(node["metadata"]["name"] for node in nodes if node["metadata"]["name"] not in ready),
    )


def _claim(cluster: Cluster, name: str) -> str | None:
    try:
        found = cluster.get("PersistentVolumeClaim", name)
    except Permanent:
        return None
    return "" if found is None else str(part(found, "status").get("phase") or "Pending")


def trial_jobset(profile: ClusterProfile) -> Manifest:
    """A JobSet that is only ever sent as a dry run; with the profile's queue, so that Kueue's webhook is asked too."""
    marks = {labels.RUN: TRIAL} | ({"kueue.x-k8s.io/queue-name": profile.queue} if profile.queue else {})
    container = {"name": "main", "image": profile.programs_image, "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"name": "main", "replicas": 1, "template": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": TRIAL, "labels": marks},
        "spec": {"replicatedJobs": [job]},
    }


def try_jobset(profile: ClusterProfile, cluster: Cluster) -> Attempted:
    """Whether the webhooks of JobSet, and of Kueue where the profile names a queue, answer a dry run."""
    try:
        stored = jobset_of(cluster.apply(trial_jobset(profile), dry_run=True))
    except Refused as error:
        # The pipelines' account applies JobSets, not ours: that we may not says nothing about the controllers.
        return Attempted(None if "forbidden" in str(error) else False, str(error))
    except (Transient, Permanent) as error:
        return Attempted(False, str(error))
    if profile.queue and not stored.suspended:
        return Attempted(False, "Kueue's webhook did not hold a JobSet that names a queue (dry run)")
    return Attempted(True, "a dry run passed the webhooks")


def _argo(cluster: Cluster) -> Attempted:
    try:
        found = [workflow_of(item) for item in cluster.list("Workflow")]
    except Permanent as error:
        return Attempted(None, str(error))
    unseen = [item for item in found if not item.phase and time.time() - (item.created_at or 0.0) > UNSEEN_SECONDS]
    if unseen:
        return Attempted(False, f"nobody looks at workflow {unseen[0].name}")
    if any(item.phase for item in found):
        return Attempted(True, f"{len(found)} workflows, all looked at")
    return Attempted(None, "no workflow yet by which to tell")


def _queue(profile: ClusterProfile, cluster: Cluster) -> Attempted:
    try:
        found = cluster.get("LocalQueue", profile.queue)
    except Permanent as error:
        return Attempted(None, str(error))
    if found is None:
        return Attempted(False, "does not exist")
    active = next((item for item in conditions(found) if item.type == "Active"), None)
    if active is None:
        return Attempted(None, "Kueue has not said whether it is active")
    return Attempted(active.status == "True", active.message or active.reason)
