"""What a control plane knows of its cluster, and what is done to its etcd: asked on the host itself, as root.

    python3 -I -c "$(cat plane.py)" WHAT WORD…

`look ENDPOINT OWN`, `nodes SECONDS NAME…`, `knows NAME`, `snapshot KEEP`, `remove MEMBER ADDRESS`. It stands on the
standard library alone and is sent as it is. etcd is spoken to through the JSON gateway of its own
API, so no etcdctl has to be on the host. The last line of what it prints is JSON; of an error it is the reason.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import ssl
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

PKI = "/etc/kubernetes/pki"
ADMIN = "/etc/kubernetes/admin.conf"
SNAPSHOTS = "/var/lib/primus-flows/etcd-snapshots"
ETCD = "127.0.0.1:2379"
SECONDS = 5.0
SNAPSHOT_SECONDS = 120.0
DIGEST_BYTES = 32
"""etcd ends a snapshot with the SHA-256 of what precedes."""
VERSION = re.compile(r"kubernetesVersion: (v[0-9.]+)")
CONTROL_PODS = "/api/v1/namespaces/kube-system/pods?labelSelector=tier%3Dcontrol-plane"
SETTINGS = {
    "cluster": ("kubeadm-config", "ClusterConfiguration"),
    "kubelet": ("kubelet-config", "kubelet"),
    "kube-proxy": ("kube-proxy", "config.conf"),
}
"""What the cluster keeps of kubeadm's configuration: in which object, under which key."""
DNS = "/apis/apps/v1/namespaces/kube-system/deployments?fieldSelector=metadata.name%3Dcoredns"
"""As a list: that there is none is an answer, too."""
OUR_NOTES = "primus-flows.io/"
"""Beginning of the annotations that are told."""
PEER_PORT = 2380
"""On which members of etcd speak to each other: kubeadm's own."""


def etcd_context() -> ssl.SSLContext:
    """By the certificate that kubeadm makes for asking etcd how it is."""
    context = ssl.create_default_context(cafile=f"{PKI}/etcd/ca.crt")
    context.load_cert_chain(f"{PKI}/etcd/healthcheck-client.crt", f"{PKI}/etcd/healthcheck-client.key")
    return context


def post(path: str, body: Dict[str, Any], where: str = ETCD) -> Dict[str, Any]:
    """Ask etcd; OSError or ValueError where it does not answer as it should."""
    connection = http.client.HTTPSConnection(where, timeout=SECONDS, context=etcd_context())
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read() or b"{}")
        if answer.status != 200:
            raise OSError(f"etcd: {told.get('message') or told.get('error') or answer.status}")
        return told


def members() -> List[Dict[str, Any]]:
    """Its members: `name` ("": it never began), `id`, `url`, `peers`, whether it learns, and why it does not serve."""
    told = post("/v3/cluster/member/list", {})
    found: List[Dict[str, Any]] = []
    for one in told.get("members", []):
        url = (one.get("clientURLs") or [""])[0]
        state = {"name": one.get("name", ""), "id": str(one.get("ID", "")), "url": url}
        state["peers"] = one.get("peerURLs") or []
        state["learner"] = bool(one.get("isLearner"))
        state["why"] = _sick(url)
        found.append(state)
    return found


def _sick(url: str) -> str:
    """Why a member does not serve; "" where it does."""
    if not url:
        return "it has not begun yet"
    try:
        told = post("/v3/maintenance/status", {}, url.partition("//")[2])
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return "; ".join(str(one) for one in told.get("errors", []))


def snapshot(keep: int) -> Dict[str, Any]:
    """Write etcd's content to a file with its digest beside it, prove it by etcd's own digest, keep the newest."""
    os.makedirs(SNAPSHOTS, mode=0o700, exist_ok=True)
    path = os.path.join(SNAPSHOTS, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{os.getpid()}.db")
    half = f"{path}.half"
    for name in os.listdir(SNAPSHOTS):
        if name.endswith(".half"):  # of one that was killed: no two are taken at a time
            os.remove(os.path.join(SNAPSHOTS, name))
    try:
        found = _receive(half)
        os.replace(half, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(half)
    with open(f"{path}.sha256", "w") as file:
        file.write(f"{found}  {os.path.basename(path)}\n")
    old = sorted(name for name in os.listdir(SNAPSHOTS) if name.endswith(".db"))[:-keep]
    for name in old:
        for ending in ("", ".sha256"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(SNAPSHOTS, name + ending))
    return {"path": path, "sha256": found, "bytes": os.path.getsize(path)}


def _receive(half: str) -> str:
    """SHA-256 of the whole file."""
    connection = http.client.HTTPSConnection(ETCD, timeout=SNAPSHOT_SECONDS, context=etcd_context())
    whole, content, tail = hashlib.sha256(), hashlib.sha256(), b""
    with (
        contextlib.closing(connection),
        open(os.open(half, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file,
    ):
        connection.request("POST", "/v3/maintenance/snapshot", "{}", {"Content-Type": "application/json"})
        for line in connection.getresponse():
            told = json.loads(line)
            if "result" not in told:
                raise OSError(f"etcd: no snapshot: {told.get('error')}")
            blob = base64.b64decode(told["result"].get("blob", ""))
            whole.update(blob)
            file.write(blob)
            tail += blob
            content.update(tail[:-DIGEST_BYTES])
            tail = tail[-DIGEST_BYTES:]
        file.flush()
        os.fsync(file.fileno())
    if tail != content.digest():
        raise OSError("etcd: the snapshot is not whole: its own digest does not fit")
    return whole.hexdigest()


def remove(name: str, address: str) -> Dict[str, Any]:
    """Take a member out; refused where those that answer would be no majority any more.

    One that never began has no name in the list of members: it is known by the address of its host.
    """
    known, peer = members(), f"https://{address}:{PEER_PORT}"
    gone = [one for one in known if one["name"] == name or (not one["name"] and peer in one["peers"])]
    if not gone:
        return {"removed": False}
    rest = [one for one in known if one not in gone and not one["learner"]]
    well = sum(not one["why"] for one in rest)
    if not all(one["learner"] for one in gone) and well * 2 <= len(rest):
        raise OSError(f"etcd: without {name} only {well} of {len(rest)} members answer: that is no majority")
    for one in gone:
        post("/v3/cluster/member/remove", {"ID": one["id"]})
    return {"removed": True}


def admin() -> Tuple[str, ssl.SSLContext]:
    """The API server of admin.conf and how we are known there."""
    with open(ADMIN) as file:
        text = file.read()
    found = dict(re.findall(r"^\s*(server|certificate-authority-data|client-[a-z]+-data): (\S+)", text, re.MULTILINE))
    context = ssl.create_default_context(cadata=base64.b64decode(found["certificate-authority-data"]).decode())
    handle = os.memfd_create("pair")  # the module ssl takes a path only; in memory it leaves nothing behind
    try:
        for name in ("client-certificate-data", "client-key-data"):
            os.write(handle, base64.b64decode(found[name]) + b"\n")
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return found["server"].partition("//")[2], context


def get(where: str, context: ssl.SSLContext, path: str) -> str:
    """What an API server answers; OSError where it is no 200."""
    connection = http.client.HTTPSConnection(where, timeout=SECONDS, context=context)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode("utf-8", "replace")
        if answer.status != 200:
            raise OSError(f"{where}{path}: {answer.status} {body[:200]}")
        return body


def look(endpoint: str, own: str) -> Dict[str, Any]:
    """Nodes, pods of the control plane, members of etcd, whether the API serves here and through the endpoint."""
    if not os.path.exists(ADMIN):
        return {"there": False}
    _, context = admin()

    def asked(path: str) -> Any:
        return _or_none(lambda: json.loads(get(own, context, path)))

    settings = _settings(asked)
    version = VERSION.search((settings or {}).get("cluster", ""))
    every, pods = asked("/api/v1/nodes"), asked(CONTROL_PODS)
    told: Dict[str, Any] = {
        "there": True,
        "own": _why(lambda: get(own, context, "/readyz")),
        "endpoint": _why(lambda: get(endpoint, context, "/readyz")),
        "version": version.group(1) if version else "",
        "nodes": None if every is None else [_slim(one) for one in every["items"]],
        "pods": None if pods is None else [_slim(one) for one in pods["items"]],
        "members": _or_none(members),
        "dns": _tolerated(asked(DNS)),
        "settings": settings,
        "names": _or_none(lambda: _certified(own, context)),
    }
    with contextlib.suppress(OSError):
        told["snapshots"] = sorted(name for name in os.listdir(SNAPSHOTS) if name.endswith(".db"))
    return told


def _settings(asked: Callable[[str], Any]) -> Optional[Dict[str, str]]:
    """Text of each configuration, "" where there is none; None where they could not be asked for."""
    told: Dict[str, str] = {}
    for name, (kept, key) in SETTINGS.items():
        found = asked(f"/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3D{kept}")
        if found is None:
            return None
        told[name] = "".join(one.get("data", {}).get(key, "") for one in found["items"])
    return told


def _certified(where: str, context: ssl.SSLContext) -> List[str]:
    """Names and addresses in the certificate that an API server shows."""
    connection = http.client.HTTPSConnection(where, timeout=SECONDS, context=context)
    with contextlib.closing(connection):
        connection.connect()
        shown: Any = connection.sock.getpeercert() or {}
        return sorted(str(value) for _, value in shown.get("subjectAltName", ()))


def _tolerated(found: Optional[Dict[str, Any]]) -> Optional[List[str]]:
    """Keys of the taints that pods of these deployments tolerate; None where they could not be asked for."""
    if found is None:
        return None
    pods = [one["spec"]["template"]["spec"] for one in found["items"]]
    return [one.get("key", "") for pod in pods for one in pod.get("tolerations", [])]


def nodes(seconds: float, names: List[str]) -> Dict[str, Any]:
    """All nodes with the range of their pods, once the named ones have theirs, or when the time is up."""
    until = time.monotonic() + seconds
    while True:
        server, context = admin()
        found = [_node(one) for one in json.loads(get(server, context, "/api/v1/nodes"))["items"]]
        if {one["name"] for one in found if one["range"]} >= set(names) or time.monotonic() > until:
            return {"nodes": found}
        time.sleep(1.0)


def knows(name: str) -> Dict[str, bool]:
    """Whether there is a node of this name, and a member of etcd."""
    server, context = admin()
    found = json.loads(get(server, context, "/api/v1/nodes"))["items"]
    return {
        "node": any(one["metadata"]["name"] == name for one in found),
        "member": any(one["name"] == name and not one["learner"] for one in members()),
    }


def _node(item: Dict[str, Any]) -> Dict[str, Any]:
    name, marks, spec = item["metadata"]["name"], item["metadata"].get("labels", {}), item.get("spec", {})
    addresses = [one["address"] for one in item.get("status", {}).get("addresses", []) if one["type"] == "InternalIP"]
    taints = [
        f"{one['key']}{'=' if one.get('value') else ''}{one.get('value', '')}:{one['effect']}"
        for one in spec.get("taints", [])
    ]
    own = spec.get("podCIDR", "")
    return {
        "name": name,
        "range": own,
        "route": f"{own} {addresses[0]}" if own and addresses else "",
        "labels": [f"{key}={value}" for key, value in marks.items()],
        "taints": taints,
    }


def _slim(item: Dict[str, Any]) -> Dict[str, Any]:
    """What is judged of a node or a pod, and no more: a cluster has many."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    kept = {key: spec[key] for key in ("podCIDR", "taints", "unschedulable") if key in spec}
    containers = [{"name": one.get("name"), "image": one.get("image")} for one in spec.get("containers", [])]
    seen: Dict[str, Any] = {key: status[key] for key in ("addresses", "allocatable", "phase") if key in status}
    seen["conditions"] = [one for one in status.get("conditions", []) if one.get("type") == "Ready"]
    if "nodeInfo" in status:
        seen["nodeInfo"] = {"kubeletVersion": status["nodeInfo"].get("kubeletVersion", "")}
    notes = {key: text for key, text in metadata.get("annotations", {}).items() if key.startswith(OUR_NOTES)}
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels", {}), "annotations": notes},
        "spec": {**kept, **({"containers": containers} if containers else {})},
        "status": seen,
    }


def _why(work: Callable[[], Any]) -> str:
    """Why it cannot be done; "" where it can."""
    try:
        work()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return ""


def _or_none(work: Callable[[], Any]) -> Optional[Any]:
    try:
        return work()
    except (OSError, ValueError, http.client.HTTPException):
        return None


def main(argv: List[str]) -> int:
    """Exit code 1: it could not be done."""
    try:
        if argv[0] == "look":
            told = look(argv[1], argv[2])
        elif argv[0] == "nodes":
            told = nodes(float(argv[1]), argv[2:])
        elif argv[0] == "knows":
            told = knows(argv[1])
        elif argv[0] == "snapshot":
            told = snapshot(int(argv[1]))
        else:
            told = remove(argv[1], argv[2])
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
