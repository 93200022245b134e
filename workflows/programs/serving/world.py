"""What proofs stand on: the API of the cluster, pods that live as long as a proof, and a clock that tests can hold."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar, cast
from urllib.parse import quote

from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json

STEP_SECONDS = 1.0
SHOWN_CHARACTERS = 200
T = TypeVar("T")
ENDED = ("Succeeded", "Failed")
PROGRAMS = "primus-programs"
RESOURCES: Json = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}}
POD_SECONDS = 3600
"""Longer than any proof: then the cluster itself ends a pod whose proof was killed before it could clear."""
EVERYTHING: Json = {"operator": "Exists"}
"""Toleration of a proof's pods, which may come before any node is admitted; `workflows/tolerations.py` says who may."""
STARTUP: Json = {"key": "primus-flows.io/startup", "operator": "Exists", "effect": "NoSchedule"}
"""The same of the taint with which nodes join, and of no other one."""
LOST_SECONDS = 20
"""How long a controller's pod stays with a node that is lost: Kubernetes itself would leave it there for 300 s, in
which no gang starts."""
LOST: Tuple[Json, ...] = tuple(
    {"key": f"node.kubernetes.io/{how}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_SECONDS}
    for how in ("not-ready", "unreachable")
)
"""Tolerations by which a Deployment's pods leave a lost node soon."""
RESTRICTED: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass(frozen=True)
class PodWish:
    """A pod that a proof wants."""

    name: str
    command: Tuple[str, ...]
    """Of our programs' image, behind its entry; nothing: the image's own."""
    node: str = ""
    """Where it must run; "": wherever there is room."""
    image: str = ""
    """Another image than our programs'."""
    claim: str = ""
    """A volume claim that it has at `/data`."""
    labels: Mapping[str, str] = field(default_factory=lambda: cast("Dict[str, str]", {}))
    resources: Mapping[str, str] = field(default_factory=lambda: cast("Dict[str, str]", {}))
    """Devices, as its only limits: what computes on them needs memory of the node that nobody here knows."""
    port: int = 0
    """That it serves."""


class World:
    """Everything that a proof touches. What it makes is called after its mark, and goes with it."""

    def __init__(
        self,
        api: Api,
        *,
        mark: str,
        namespace: str,
        image: str,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`deadline` is on `clock`; `mark` at least eight hexadecimal digits."""
        self.api, self.mark, self.namespace, self.image = api, mark, namespace, image
        self._deadline, self._clock, self._sleep = deadline, clock, sleep
        self._made: List[str] = []

    def path(self, plural: str, name: str = "", group: str = "", namespace: str = "") -> str:
        """Of an object in the proof's namespace, or in another; `group` with its version, "" for the core."""
        root = f"/apis/{group}" if group else "/api/v1"
        place = f"{root}/namespaces/{namespace or self.namespace}/{plural}"
        return place + (f"/{quote(name, safe='')}" if name else "")

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._deadline

    def pause(self) -> None:
        """Until it is worth looking again."""
        self._sleep(STEP_SECONDS)

    def until(self, look: Callable[[], T]) -> T:
        """What `look` sees as soon as it is something, or last."""
        while True:
            found = look()
            if found or self.late:
                return found
            self.pause()

    def make(self, path: str, body: Json) -> None:
        """Apply an object that goes when the proof ends."""
        if path not in self._made:
            self._made.append(path)
        self.api.apply(path, body)

    def clear(self) -> None:
        """Everything that was made goes, the last one first; what cannot go is left to the namespace's owner."""
        while self._made:
            try:
                self.api.delete(self._made.pop(), 0)
            except ApiError:
                continue

    def nodes(self) -> List[str]:
        """Names of nodes that are ready and take pods."""
        found: List[str] = []
        for node in self.api.items("/api/v1/nodes"):
            if condition(node, "Ready") == "True" and not part(node, "spec").get("unschedulable"):
                found.append(str(node["metadata"]["name"]))
        return found

    def node_addresses(self) -> Dict[str, str]:
        """Their addresses inside the cluster."""
        ready, found = self.nodes(), cast("Dict[str, str]", {})
        for node in self.api.items("/api/v1/nodes"):
            for address in parts(node, "status", "addresses"):
                if address.get("type") == "InternalIP" and node["metadata"]["name"] in ready:
                    found.setdefault(str(node["metadata"]["name"]), str(address.get("address")))
        return found

    def start(self, wish: PodWish) -> str:
        """Make the pod; its name."""
        name = f"primus-proof-{wish.name}-{self.mark[:8]}"
        self.make(self.path("pods", name), pod_of(wish, name, self.image))
        return name

    def waited(self, wish: PodWish, done: Optional[Callable[[Json], bool]] = None) -> Optional[Json]:
        """The pod once it has ended, or `done` says so of it; None where the time was up before."""
        path = self.path("pods", f"primus-proof-{wish.name}-{self.mark[:8]}")
        ended = done or has_ended
        while True:
            pod = self.api.get(path)
            if ended(pod):
                return pod
            if self.late:
                return None
            self.pause()

    def ran(self, wish: PodWish) -> str:
        """Run a pod to its end; "" where it succeeded, else why it did not."""
        name = self.start(wish)
        pod = self.waited(wish)
        if pod is not None and phase(pod) == "Succeeded":
            return ""
        return why_not(pod if pod is not None else self.api.get(self.path("pods", name)))


def pod_of(wish: PodWish, name: str, image: str) -> Json:
    """The pod's manifest."""
    container: Json = {
        "name": "main",
        "image": wish.image or image,
        "imagePullPolicy": "Always" if wish.image and not wish.command else "IfNotPresent",
        "resources": {**RESOURCES, "limits": dict(wish.resources)} if wish.resources else RESOURCES,
        "securityContext": RESTRICTED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if wish.command:
        container["command"] = [PROGRAMS, *wish.command] if not wish.image else list(wish.command)
    if wish.port:
        container["ports"] = [{"containerPort": wish.port}]
    spec: Json = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": POD_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [EVERYTHING],
        "containers": [container],
    }
    if wish.node:
        spec["nodeName"] = wish.node
    if wish.claim:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": wish.claim}}]
    labels = {"primus-flows.io/pipeline": "bootstrap", "primus-flows.io/use": name, **wish.labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def has_ended(pod: Json) -> bool:
    """Whether it succeeded or failed."""
    return phase(pod) in ENDED


def part(found: object, *keys: str) -> Json:
    """The object at that place inside a value of JSON; empty where there is none."""
    for key in keys:
        found = cast("Json", found).get(key) if isinstance(found, dict) else None
    return cast("Json", found) if isinstance(found, dict) else {}


def parts(found: object, *keys: str) -> List[Json]:
    """The objects of the list at that place; none where there is no list."""
    listed = part(found, *keys[:-1]).get(keys[-1])
    return [one for one in cast("List[Any]", listed) if isinstance(one, dict)] if isinstance(listed, list) else []


def condition(found: Json, kind: str) -> str:
    """Status of that condition of an object; "" where it has none."""
    listed = parts(found, "status", "conditions")
    return next((str(one.get("status")) for one in listed if one.get("type") == kind), "")


def phase(found: Json) -> str:
    """`status.phase`; "" where there is none."""
    return str(part(found, "status").get("phase") or "")


def why_not(pod: Json) -> str:
    """Why a pod did not succeed, in one line: what its container said last, or what it waits for."""
    for one in parts(pod, "status", "containerStatuses"):
        ended, waiting = part(one, "state", "terminated"), part(one, "state", "waiting")
        if ended:
            return f"exit code {ended.get('exitCode')}: {_line(ended.get('message') or ended.get('reason'))}"
        if waiting:
            return f"{waiting.get('reason')}: {_line(waiting.get('message'))}"
    listed = [one for one in parts(pod, "status", "conditions") if one.get("status") == "False" and one.get("message")]
    told = listed[0].get("message") if listed else part(pod, "status").get("message")
    return f"{phase(pod) or 'not started'}: {_line(told) or 'no reason was told'}"


def _line(text: object) -> str:
    return " ".join(str(text or "").split())[:SHOWN_CHARACTERS]
