"""Looking at a whole cluster for `primus doctor`. Touches nothing: what is tried is tried as a dry run."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import Permanent, PrimusError, Refused, Transient
from profiles.loading.load import load_hardware
from tasks.cluster import Cluster, Manifest
from tasks.clusters import open_cluster
from tasks.embedded.start_keeper import probe_namespaces
from tasks.ledger.ledger import Ledger
from tasks.prefect.server import answers
from tasks.prefect.services import Service, Tries, alive, log_of, serving, wish_of
from tasks.processes import last_words, no_room
from workflows import labels
from workflows.model.checkup import Attempted, CheckupFacts, HomeFacts, PoolFacts
from workflows.model.cluster import jobset_of
from workflows.model.manifest import conditions, part
from workflows.model.nodes import Node, beat_of, node_of
from workflows.model.workflow import workflow_of

SILENT_SECONDS = 30.0
"""A monitor whose loop has turned for so long no more stands still: flows take it for dead as well."""
UNSEEN_SECONDS = 60.0
"""A workflow without a phase for so long has no controller."""
TRIAL = "primus-doctor"


def look_over(profile: ClusterProfile, home: Path, ledger: Ledger | None = None) -> CheckupFacts:
    """Everything that can be found out about a cluster; what does not answer is part of the answer.

    With a `ledger` also about the home, whose ledger it is.
    """
    found = _of_cluster(profile, home)
    return found if ledger is None else replace(found, home=_home(profile, home, ledger))


def _home(profile: ClusterProfile, home: Path, ledger: Ledger) -> HomeFacts:
    services = {str(one): _service(profile, home, ledger, one) for one in Service}
    return HomeFacts(_ledger(home, ledger), no_room(home), services)


def _ledger(home: Path, ledger: Ledger) -> Attempted:
    path = ledger.database.path
    if path is not None and not path.exists():
        runs = len(list((home / "runs").glob("*")))
        said = f"{path} is gone, though this home has {runs} runs" if runs else f"{path} is made with the first run"
        return Attempted(not runs, said)
    try:
        wrong = ledger.database.damage()
    except Permanent as error:
        return Attempted(False, str(error))
    except PrimusError as error:
        return Attempted(None, str(error))
    return Attempted(not wrong, wrong or f"every page and index was read; {len(ledger.runs())} runs")


def _service(profile: ClusterProfile, home: Path, ledger: Ledger, service: Service) -> Attempted:
    wish = wish_of(home)
    if wish is None:
        return Attempted(True, "nobody asked for it: `primus up` does")
    if service is Service.SERVER and wish.api_url:
        error = answers(wish.api_url)
        return Attempted(None if error else True, error or f"answers at {wish.api_url}")
    found = alive(home, service)
    if found is None:
        tried = Tries(home).known().get(service)
        again = f"; started {tried.number} times in a row" if tried else ""
        return Attempted(False, f"it is dead: {last_words(log_of(home, service))}{again}")
    match service:
        case Service.SERVER:
            error = answers(found.detail)
            return Attempted(not error, f"does not answer: {error}" if error else f"answers at {found.detail}")
        case Service.RUNNER:
            serves = bool(serving(home))
            return Attempted(serves or None, f"process {found.pid} serves" + ("" if serves else " nothing yet"))
        case Service.MONITOR:
            return _monitor(profile, ledger, found.pid)


def _monitor(profile: ClusterProfile, ledger: Ledger, pid: int) -> Attempted:
    try:
        beat = ledger.cursor(beat_of(profile.name))
    except PrimusError as error:
        return Attempted(None, str(error))
    if beat is None:
        return Attempted(None, f"process {pid} has completed no round of {profile.name} yet")
    ago = ledger.database.clock() - beat.at
    said = f"process {pid} completed a round of {profile.name} {ago:.0f} s ago"
    return Attempted(ago < SILENT_SECONDS, said)


def _of_cluster(profile: ClusterProfile, home: Path) -> CheckupFacts:
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
        free_bytes=shutil.disk_usage(home).free if home.exists() else None,
        nodes=_powered([node_of(item) for item in nodes]),
    )


def _powered(nodes: list[Node]) -> Attempted:
    """Whether each takes pods: it has power and is ready, and nobody has taken it out."""
    dead = sorted(node.name for node in nodes if node.ready is not True)
    out = sorted(node.name for node in nodes if node.name not in dead and (node.quarantined or node.cordoned))
    well = len(nodes) - len(dead) - len(out)
    parts = [f"{well} of {len(nodes)} take pods"]
    parts += [f"without power or not ready: {', '.join(dead)}"] if dead else []
    parts += [f"taken out: {', '.join(out)}"] if out else []
    return Attempted(not dead and well > 0, "; ".join(parts))


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
