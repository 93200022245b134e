"""The bed as a ground for stories: the same stories as on the embedded cluster, with real pods on real nodes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from profiles.cluster import ClusterProfile
from profiles.errors import NotFound
from profiles.resolve import Resolved
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import configuration_of
from tests.bed import faults, groups, samples
from tests.bed.api import Api, RefusedError
from tests.bed.layout import Folder, folder
from tests.bed.options import Node, Options, load
from tests.bed.processes import Processes
from tests.support.harness.grounds import pods_on
from tests.support.running.waiting import patience
from workflows import labels

GONE_SECONDS = patience(60.0)
"""A kubelet confirms the end of a pod in a second or two; a revived one tidies up first."""


class BedCluster(KubernetesCluster):
    """The seam to the bed for its administrator, and what breaks it: nodes and pods are processes of this machine."""

    def __init__(self, profile: ClusterProfile, options: Options, where: Folder) -> None:
        environment = {"KUBECONFIG": str(where.kubeconfig)}
        super().__init__(profile, ApiServer(lambda: configuration_of(profile.context, environment)))
        self._options, self._where = options, where

    def pod_processes(self, pod: str) -> list[int]:
        """Pids of the pod's containers as this machine counts them, oldest first."""
        found = self.get("Pod", pod)
        if found is None:
            raise NotFound(f"there is no pod {pod}")
        uid = found["metadata"]["uid"]
        pids = [pid for group in pod_groups(found["spec"].get("nodeName", ""), uid) for pid in groups.members(group)]
        return sorted({pid for pid in pids if not is_pause(pid)}, key=_started)

    def lose_node(self, name: str, *, silent: bool = False) -> None:
        """SIGKILL to everything on it; unless `silent` its condition says so at once, as a cloud's controller does."""
        faults.kill(self._options.real_node(name), Processes(self._where))
        if not silent:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            lost = {"type": "Ready", "status": "False", "reason": "PowerLost", "message": f"node {name} lost its power"}
            node = self.get("Node", name) or {}
            others = [item for item in node["status"]["conditions"] if item["type"] != "Ready"]
            conditions = [*others, {**lost, "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}]
            self.patch("Node", name, {"status": {"conditions": conditions}})

    def hold(self, seconds: float) -> None:
        """The API server stands still."""
        processes = Processes(self._where)
        processes.send("kube-apiserver", signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            processes.send("kube-apiserver", signal.SIGCONT)


def pod_groups(node: str, uid: str) -> list[str]:
    """Control groups of a pod below its node's."""
    top = groups.TOP / "pids" / groups.ROOT / node if not groups.unified() else groups.TOP / groups.ROOT / node
    found = [path for path in top.rglob(f"*pod{uid}*") if path.is_dir()]
    return [str(path.relative_to(top.parent)) for path in found]


def is_pause(pid: int) -> bool:
    """The process that holds the pod's namespaces and runs nothing."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/pause")
    except OSError:
        return True


def _ends_anyway(cluster: BedCluster, pod: str) -> bool:
    """Whether a pod that may go does not train: no budget holds steps of workflows and what somebody has deleted."""
    found = cluster.get("Pod", pod)
    if found is None or samples.conditions(found).get("DisruptionTarget") != "EvictionByEvictionAPI":
        return True
    if labels.ROLE not in found["metadata"]["labels"]:
        return True  # the step that made the gang may still be ending on a slow machine
    gang = cluster.get("JobSet", found["metadata"]["labels"].get("jobset.sigs.k8s.io/jobset-name", ""))
    return gang is None or "deletionTimestamp" in gang["metadata"]


def _started(pid: int) -> tuple[int, int]:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]), pid
    except OSError:
        return 0, pid


class BedGround:
    """The bed of this checkout, which must be up. Flows have the rights of the product's runner, tests all of them."""

    profile = "bed"
    deadline_seconds = patience(240.0)

    def __init__(self) -> None:
        self.where = folder()
        found = load(self.where)
        assert found is not None, "the bed is not up: make bed-up"
        self.options = found
        os.environ["KUBECONFIG"] = str(self.where.account("runner"))

    def cluster(self, resolved: Resolved, home: Path) -> Any:
        """See `tests.support.harness.grounds.Ground`."""
        del home
        return BedCluster(resolved.cluster, self.options, self.where)

    def no_orphans(self, resolved: Resolved, home: Path) -> None:
        """No pod of ours trains any more, as the API says and as this machine's processes say."""
        cluster = self.cluster(resolved, home)
        deadline = time.monotonic() + GONE_SECONDS
        while left := [*self._living(cluster), *_processes_of(home)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.2)

    def drain(self, resolved: Resolved, home: Path, node: str) -> list[str]:
        """As `kubectl drain` does it, as somebody who may: what a disruption budget refuses stays.

        Raises:
            RefusedError: the eviction was refused for another reason.
            AssertionError: no budget held a pod that trains.
        """
        api, cluster = Api(self.where, self.options), self.cluster(resolved, home)
        cluster.patch("Node", node, {"spec": {"unschedulable": True}})
        for name in pods_on(cluster, node):
            where = f"/api/v1/namespaces/{resolved.cluster.namespace}/pods/{name}/eviction"
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            try:
                api.request("POST", where, eviction)
            except RefusedError as refused:
                if refused.status not in (404, 429):
                    raise
            else:
                assert _ends_anyway(cluster, name), f"{name} was thrown out"
        return pods_on(cluster, node)

    def strike(self, resolved: Resolved, home: Path) -> None:
        """Delete what is left, wait for its end where it lives, and bring every node back, empty and unmarked."""
        for node in self.options.real_nodes():
            faults.mend(node)
            faults.thaw(node)
        cluster = self.cluster(resolved, home)
        for kind in ("Workflow", "JobSet", "Secret"):
            for item in cluster.list(kind, {}):
                if labels.RUN in item["metadata"].get("labels", {}):
                    cluster.delete(kind, item["metadata"]["name"], grace_seconds=1)
        for node in self.options.real_nodes():
            self._revive(node)
        for node in cluster.list("Node"):
            _clean(cluster, node)
        self.no_orphans(resolved, home)  # the next story may have its name

    def _revive(self, node: Node) -> None:
        if not groups.members(f"{node.name}/own"):
            api = Api(self.where, self.options)
            faults.revive(self.where, self.options, node, Processes(self.where), api)

    def _living(self, cluster: BedCluster) -> list[str]:
        pods = [pod for pod in cluster.list("Pod", {}) if labels.RUN in pod["metadata"].get("labels", {})]
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]


def _clean(cluster: BedCluster, node: dict[str, Any]) -> None:
    """Take back what stories do to nodes, the played ones too: marks and cordons."""
    spec, name = node["spec"], node["metadata"]["name"]
    kept = [item for item in spec.get("taints", []) if not item["key"].startswith(labels.PREFIX)]
    marked = labels.VERDICT in node["metadata"]["labels"] or len(kept) < len(spec.get("taints", []))
    if marked or spec.get("unschedulable"):
        clean = {"metadata": {"labels": {labels.VERDICT: None}}, "spec": {"taints": kept, "unschedulable": None}}
        cluster.patch("Node", name, clean)


def _processes_of(home: Path) -> list[str]:
    """Processes in pods that carry this home in their environment."""
    found: list[str] = []
    for pid in groups.members():
        try:
            if str(home).encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()[:80]!r}")
        except OSError:
            continue
    return found
