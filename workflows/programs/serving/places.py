"""Proofs of what nodes and networks give: a volume that two nodes share, names, a GPU that computes, a way in."""

from __future__ import annotations

import socket
from typing import List, Mapping
from urllib.parse import quote

from workflows.programs.runtime.kubernetes_api import Json
from workflows.programs.serving.ask import FAIL, PASS, UNKNOWN, NoAnswerError, Seen, ask
from workflows.programs.serving.world import PodWish, World, part, phase

GATEWAY = "gateway.networking.k8s.io/v1"
PORT = 8080
KERNEL = (
    "import torch; a = torch.ones(1024, 1024, device='cuda'); "
    "assert float((a @ a).double().sum()) == 1024.0 ** 3, 'the product is wrong'"
)
"""A multiplication on the device whose result is known; torch is in the image of the site."""


def storage(world: World, parameters: Mapping[str, str]) -> Seen:
    """A volume is bound, a pod on one node writes, and a pod on another one reads the same."""
    kind, mode = parameters["storage_class"], parameters.get("access_mode", "ReadWriteOnce")
    claim = f"primus-proof-{kind}"[:63]
    spec: Json = {"accessModes": [mode], "storageClassName": kind, "resources": {"requests": {"storage": "1Gi"}}}
    _free_volumes(world, kind, claim)
    path = world.path("persistentvolumeclaims", claim)
    body: Json = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}}
    world.make(path, {**body, "spec": spec})
    nodes = world.nodes()
    if not nodes:
        return Seen(UNKNOWN, "no node is ready to mount anything")
    here, there = nodes[0], nodes[-1]
    file = f"--file=/data/{world.mark}"
    wrote = world.ran(
        PodWish("writes", ("serving-helper", "--do=write", file, f"--text={world.mark}"), here, claim=claim)
    )
    if wrote:
        bound = phase(world.api.get(path)) == "Bound"
        return Seen(FAIL, f"{'' if bound else f'a claim of {kind} was not bound; '}not written on {here}: {wrote}")
    read = world.ran(
        PodWish("reads", ("serving-helper", "--do=read", file, f"--text={world.mark}"), there, claim=claim)
    )
    if read:
        return Seen(FAIL, f"written on {here}, and on {there} not read: {read}")
    if here == there and mode == "ReadWriteMany" and len(world.api.items("/api/v1/nodes")) > 1:
        return Seen(UNKNOWN, f"written and read again on {here}, and no other node is ready to read it too")
    if here == there:
        return Seen(PASS, f"bound, written and read again on {here}, the only node that is ready")
    return Seen(PASS, f"bound, written on {here}, read on {there}")


def _free_volumes(world: World, kind: str, claim: str) -> None:
    """Volumes of an earlier proof that are kept can be bound by the same claim again, and by no other one."""
    for volume in world.api.items("/api/v1/persistentvolumes"):
        spec, held = part(volume, "spec"), part(volume, "spec", "claimRef")
        ours = (held.get("namespace"), held.get("name")) == (world.namespace, claim)
        kept = spec.get("persistentVolumeReclaimPolicy") == "Retain" and spec.get("storageClassName") == kind
        if ours and kept and phase(volume) == "Released":
            name = quote(str(part(volume, "metadata").get("name")), safe="")
            body: Json = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
            world.api.patch(f"/api/v1/persistentvolumes/{name}", body)


def dns(world: World, parameters: Mapping[str, str]) -> Seen:
    """A name of the cluster resolves from this pod, and one that nobody has does not."""
    name = parameters.get("name", "kubernetes.default.svc")
    try:
        address = str(socket.getaddrinfo(name, 443, proto=socket.IPPROTO_TCP)[0][4][0])
    except OSError as error:
        return Seen(FAIL, f"{name} does not resolve: {error}")
    try:
        other = socket.getaddrinfo(f"primus-{world.mark}.default.svc", 443, proto=socket.IPPROTO_TCP)
    except OSError:
        return Seen(PASS, f"{name} is {address}")
    return Seen(FAIL, f"a name that nobody has resolves to {other[0][4][0]}: everything does")


def gpu(world: World, parameters: Mapping[str, str]) -> Seen:
    """A node offers the resource, and a kernel runs on it."""
    resource, image = parameters["resource"], parameters.get("image", "")

    def offering() -> List[str]:
        return [
            str(node["metadata"]["name"])
            for node in world.api.items("/api/v1/nodes")
            if str(part(node, "status", "allocatable").get(resource, "0")) != "0"
        ]

    nodes = world.until(offering)
    if not nodes:
        return Seen(FAIL, f"no node offers {resource}")
    if not image:
        return Seen(
            UNKNOWN, f"{len(nodes)} nodes offer {resource}; no kernel ran: name an image in admission.gpu_image"
        )
    command = parameters["command"].split() if parameters.get("command") else ["python3", "-c", KERNEL]
    wish = PodWish("kernel", tuple(command), image=image, resources={resource: "1"})
    why = world.ran(wish)
    return (
        Seen(FAIL, f"a kernel on {resource}: {why}")
        if why
        else Seen(PASS, f"a kernel ran; {len(nodes)} nodes offer {resource}")
    )


def gateway(world: World, parameters: Mapping[str, str]) -> Seen:
    """A request from outside of the service goes through a made route to a made pod, which answers with our mark."""
    name, url = f"primus-proof-{world.mark[:8]}", parameters["url"].rstrip("/")
    prefix = f"/primus-proof-{world.mark}"
    command = ("serving-helper", "--do=answer", f"--text={world.mark}", f"--port={PORT}")
    world.start(PodWish("answers", command, labels={"proof": name}, port=PORT))
    ports = [{"port": PORT, "targetPort": PORT}]
    _make(world, "v1", "Service", name, {"selector": {"proof": name}, "ports": ports})
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    through = {"gatewayClassName": parameters["gateway_class"], "listeners": listeners}
    _make(world, GATEWAY, "Gateway", name, through)
    matches = [{"path": {"type": "PathPrefix", "value": prefix}}]
    rules = [{"matches": matches, "backendRefs": [{"name": name, "port": PORT}]}]
    _make(world, GATEWAY, "HTTPRoute", name, {"parentRefs": [{"name": name}], "rules": rules})
    last: List[str] = [""]

    def through_it() -> bool:
        try:
            reply = ask("GET", f"{url}{prefix}")
        except NoAnswerError as error:
            last[0] = str(error)
            return False
        last[0] = f"{url}{prefix} answered {reply.shown}"
        return reply.status == 200 and world.mark in reply.text

    found = world.until(through_it)
    return Seen(PASS, f"a request went through {url} to a pod") if found else Seen(FAIL, last[0])


def _make(world: World, version: str, kind: str, name: str, spec: Json) -> None:
    path = world.path(f"{kind.lower()}s", name, version if "/" in version else "")
    world.make(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
