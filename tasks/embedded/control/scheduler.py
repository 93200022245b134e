"""Placement in action: facts out of the keeper's picture, bindings into the store."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

from tasks.embedded.control.nodes import node_facts
from tasks.embedded.engine.kube.placement import Bound, Gang, PodRequest, Unschedulable, place
from tasks.embedded.engine.kube.quantity import pod_requests
from tasks.embedded.objects import JOBSET_LABEL, Object, entries, is_finished, section, timestamp
from tasks.embedded.runtime.start import hosts_text
from tasks.embedded.store.cache import Cache
from tasks.embedded.store.store import write_file

HOSTS_ANNOTATION = "primus-flows.io/hosts"
STORAGE_CLASS = "folders"
"""The only class of volumes that are made for a pod: a folder beside its other ones, which goes with it."""
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Scheduler:
    """Places waiting pods; `priorities` has the value of each priority class."""

    def __init__(self, cache: Cache, priorities: dict[str, int]) -> None:
        self._cache = cache
        self._priorities = {**_SYSTEM_PRIORITIES, **priorities}
        self._wishes: dict[str, tuple[PodRequest, str]] = {}
        self._addresses = _Addresses(cache.store.root)

    def run(self) -> list[Object]:
        """Bind every gang that fits; the pods that were bound. Others get the condition that says why they wait."""
        pods = list(self._cache["Pod"].values())
        waiting = [pod for pod in pods if not pod["spec"].get("nodeName") and _may_start(pod)]
        if not waiting:
            return []
        for uid in self._wishes.keys() - {pod["metadata"]["uid"] for pod in pods}:
            del self._wishes[uid]
        placed = [
            (pod["spec"]["nodeName"], self._wish(pod)[0])
            for pod in pods
            if pod["spec"].get("nodeName") and not is_finished(pod)
        ]
        gangs = self._gangs(waiting)
        nodes = [node_facts(node) for node in self._cache["Node"].values()]
        bound: list[Object] = []
        members = {gang.key: {pod.name for pod in gang.pods} for gang in gangs}
        for decision in place(nodes, placed, gangs):
            match decision:
                case Bound(key, where):
                    bound += self._bind(key, where)
                case Unschedulable(key, message):
                    self._explain(sorted(members[key]), message)
        return bound

    def gang_of(self, pod: Object) -> Gang:
        """The pod as a gang of its own."""
        return self._gang("alone", [pod])

    def _gangs(self, waiting: list[Object]) -> list[Gang]:
        groups: dict[str, list[Object]] = {}
        for pod in waiting:
            jobset = section(pod["metadata"], "labels").get(JOBSET_LABEL)
            groups.setdefault(f"jobset/{jobset}" if jobset else f"pod/{pod['metadata']['name']}", []).append(pod)
        return [self._gang(key, pods) for key, pods in groups.items()]

    def _gang(self, key: str, pods: list[Object]) -> Gang:
        wishes = [self._wish(pod) for pod in pods]
        return Gang(
            key,
            tuple(wish for wish, _ in wishes),
            priority=max(self._priority(pod["spec"]) for pod in pods),
            created=min(pod["metadata"]["creationTimestamp"] for pod in pods),
            signature=wishes[0][1] if len(wishes) == 1 else "",
        )

    def _priority(self, spec: Object) -> int:
        value = spec.get("priority")
        return value if value is not None else self._priorities.get(spec.get("priorityClassName") or "", 0)

    def _wish(self, pod: Object) -> tuple[PodRequest, str]:
        uid = pod["metadata"]["uid"]
        found = self._wishes.get(uid)
        if found is None or found[0].problem:
            found = self._wishes[uid] = self._read_wish(pod)
        return found

    def _read_wish(self, pod: Object) -> tuple[PodRequest, str]:
        spec = pod["spec"]
        wish = PodRequest(
            name=pod["metadata"]["name"],
            requests=pod_requests(spec),
            labels=section(pod["metadata"], "labels"),
            node_selector=section(spec, "nodeSelector"),
            affinity=section(spec, "affinity"),
            tolerations=tuple(spec.get("tolerations") or ()),
            problem=self._claims_problem(spec),
        )
        asked: list[Any] = [wish.requests, wish.node_selector, wish.affinity, wish.tolerations, wish.problem]
        # Labels matter to neighbours only, so pods with neither kind of affinity to pods are alike without them.
        asked.append(wish.labels if "podAffinity" in wish.affinity or "podAntiAffinity" in wish.affinity else None)
        return wish, json.dumps(asked, sort_keys=True)

    def _claims_problem(self, spec: Object) -> str:
        for volume in entries(spec, "volumes"):
            claim = section(volume, "persistentVolumeClaim").get("claimName")
            if claim and self._cache.store.get("PersistentVolumeClaim", claim) is None:
                return f'persistentvolumeclaim "{claim}" not found'
            wanted = section(volume, "ephemeral", "volumeClaimTemplate", "spec").get("storageClassName")
            if wanted not in (None, STORAGE_CLASS):
                return f'storageclass "{wanted}" not found: volumes are folders here, of the class "{STORAGE_CLASS}"'
        return ""

    def _bind(self, key: str, where: Any) -> list[Object]:
        used = {
            pod["status"]["podIP"]
            for pod in self._cache["Pod"].values()
            if pod["status"].get("podIP") and not is_finished(pod)
        }
        addresses = {name: self._addresses.next(used) for name in sorted(where)}
        self._write_hosts(key, addresses)
        bound: list[Object] = []
        with self._cache.store.transaction() as change:
            for name, node in where.items():
                pod = change.get("Pod", name)
                if pod is None or not _may_start(pod):
                    continue
                pod["spec"]["nodeName"] = node
                pod["status"]["podIP"] = addresses[name]
                pod["status"]["podIPs"] = [{"ip": addresses[name]}]
                pod["status"]["hostIP"] = "127.0.0.1"
                _set_scheduled(pod, "True")
                self._cache.wrote(change.put(pod))
                bound.append(pod)
        return bound

    def _write_hosts(self, key: str, addresses: dict[str, str]) -> None:
        """One file for the gang, written in place: it is bound over /etc/hosts of pods that run already."""
        members = [self._cache["Pod"][name] for name in addresses]
        gang = section(members[0]["metadata"], "annotations").get(HOSTS_ANNOTATION)
        if not gang:
            return
        jobset = key.removeprefix("jobset/")
        entries: list[tuple[str, list[str]]] = []
        for pod in sorted(self._cache.pods(JOBSET_LABEL, jobset), key=lambda pod: pod["metadata"]["name"]):
            address = addresses.get(pod["metadata"]["name"]) or pod["status"].get("podIP")
            if address and not is_finished(pod):
                entries.append((address, pod_names(pod)))
        path = os.path.join(self._cache.store.root, "hosts", gang)
        content = hosts_text(entries).encode()
        if not os.path.exists(path):
            write_file(path, content)
            return
        with open(path, "r+b") as file:
            file.write(content)
            file.truncate()

    def _explain(self, names: list[str], message: str) -> None:
        stale = [name for name in names if message_of(self._cache["Pod"][name]) != message]
        if not stale:
            return
        with self._cache.store.transaction() as change:
            for name in stale:
                pod = change.get("Pod", name)
                if pod is not None and _may_start(pod):
                    _set_scheduled(pod, "False", message)
                    self._cache.wrote(change.put(pod))


class _Addresses:
    """Addresses in 127/8: ten bits identify the cluster on this machine, fourteen the pod."""

    def __init__(self, root: str) -> None:
        self._cluster = zlib.crc32(root.encode()) % 1023 + 1
        self._last = 0

    def next(self, used: set[str]) -> str:
        for _ in range(1 << 14):
            self._last = self._last % ((1 << 14) - 2) + 1
            number = (self._cluster << 14) | self._last
            address = f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            if address not in used:
                used.add(address)
                return address
        raise RuntimeError("more than 16,000 pods at once")


def _may_start(pod: Object) -> bool:
    ending = pod["metadata"].get("deletionTimestamp") or "primus-flows.io/end" in (
        section(pod["metadata"], "annotations")
    )
    return not is_finished(pod) and not pod["spec"].get("nodeName") and not ending


def _set_scheduled(pod: Object, status: str, message: str = "") -> None:
    conditions = [entry for entry in entries(pod["status"], "conditions") if entry["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": timestamp()}
    if message:
        condition |= {"reason": "Unschedulable", "message": message}
    pod["status"]["conditions"] = [*conditions, condition]


def message_of(pod: Object) -> str:
    """Why the pod waits, in the scheduler's words."""
    for condition in entries(pod["status"], "conditions"):
        if condition["type"] == "PodScheduled":
            return condition.get("message", "")
    return ""


def pod_names(pod: Object) -> list[str]:
    """Host names of the pod, the longest name first."""
    spec, namespace = pod["spec"], pod["metadata"].get("namespace", "default")
    host = spec.get("hostname") or pod["metadata"]["name"]
    if not spec.get("subdomain"):
        return [host]
    full = f"{host}.{spec['subdomain']}"
    return [full, host, f"{full}.{namespace}", f"{full}.{namespace}.svc", f"{full}.{namespace}.svc.cluster.local"]
