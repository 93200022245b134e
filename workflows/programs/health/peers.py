"""The other nodes' health daemons: which there are, which of them a job or a label means, and requests to them.

They come from the command line or from Kubernetes.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple
from urllib.parse import quote

from workflows.programs.parsers.text import as_list, as_mapping
from workflows.programs.runtime.http_client import parse_head
from workflows.programs.runtime.kubernetes_api import Api, ApiError

Json = Dict[str, Any]

DEFAULT_PORT = 3333
"""Autopilot's port of the health checks."""
ANSWER_BYTES = 8 << 20
"""A longer answer is no answer."""
CONNECT_SECONDS = 2.0
"""One lost first packet is sent again after 1 s."""
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9:])?")

NETWORKS = "k8s.v1.cni.cncf.io/network-status"
"""Multus writes a pod's interfaces with their addresses there."""
KEPT_SECONDS = 2.0
"""So long a list of pods is used again: many callers at once cost the API one."""

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu")
"""Beginnings of the names under which device plug-ins offer GPUs and parts of them."""


@dataclass(frozen=True)
class Peer:
    """One node's daemon."""

    node: str
    """Name of the node."""
    host: str
    """Address or name under which its daemon answers."""
    port: int = DEFAULT_PORT
    addresses: Mapping[str, str] = field(default_factory=lambda: {})
    """Interface -> IP address, in the order in which they were announced; the first is the primary one. Empty: only
    `host` is known."""

    @property
    def url(self) -> str:
        """`http://host:port`; an IPv6 address stands in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class PeerError(ValueError):
    """A list of peers that cannot be read; the message says where and what would be right."""


def peers_from(text: str) -> Tuple[Peer, ...]:
    """The peers in `node=host:port,node=host`; an IPv6 host with a port stands in brackets; blanks do no harm.

    Raises:
        PeerError: names the part that is wrong.
    """
    found: List[Peer] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        node, equals, place = part.partition("=")
        if not equals or not is_node_name(node):
            raise PeerError(f"--peers: {part!r}: write node=host:port")
        found.append(Peer(node, *place_of(part, place)))
    double = sorted({one.node for one in found if sum(other.node == one.node for other in found) > 1})
    if double:
        raise PeerError(f"--peers: {', '.join(double)}: named twice")
    return tuple(found)


def place_of(part: str, place: str) -> Tuple[str, int]:
    """Host and port of `host:port`, `host`, `[v6]:port` or a bare IPv6 address."""
    host, port = place, ""
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else rest
    elif place.count(":") == 1:
        host, _, port = place.partition(":")
        port = port or "none"
    if not _HOST.fullmatch(host) or (port and not (port.isdigit() and 0 < int(port) < 65536)):
        raise PeerError(f"--peers: {part!r}: write node=host:port, with a port from 1 to 65535")
    return host, int(port or DEFAULT_PORT)


def is_node_name(text: str) -> bool:
    """Whether it can be the name of a node: letters, digits, dots, dashes and underscores."""
    return _NODE.fullmatch(text) is not None


def by_node(peers: Sequence[Peer]) -> Dict[str, Peer]:
    """The peers by the names of their nodes, in their order."""
    return {one.node: one for one in peers}


@dataclass(frozen=True)
class PeerResponse:
    """What a daemon answered."""

    status: int
    kind: str
    """Content type."""
    text: str


def fetch(peer: Peer, path: str, seconds: float, headers: Mapping[str, str]) -> PeerResponse:
    """One GET, with everything in `seconds`.

    Plain HTTP/1.0 over a socket: the time holds for the whole answer, not for each of its pieces.

    Raises:
        OSError: nobody answers there, or not in time, or not in HTTP.
    """
    ends = time.monotonic() + seconds
    with socket.create_connection((peer.host, peer.port), min(seconds, CONNECT_SECONDS)) as connection:
        lines = [f"GET {path} HTTP/1.0", f"Host: {peer.host}:{peer.port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.settimeout(_left(ends))
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        data = bytearray()
        while True:
            connection.settimeout(_left(ends))
            piece = connection.recv(65536)
            if not piece:
                return _fetched(bytes(data))
            data += piece
            if len(data) > ANSWER_BYTES:
                raise OSError(f"the answer is longer than {ANSWER_BYTES} bytes")


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise socket.timeout("no whole answer in time")
    return left


def _fetched(data: bytes) -> PeerResponse:
    head, marker, body = data.partition(b"\r\n\r\n")
    try:
        status, fields = parse_head(head if marker else b"")
    except ValueError as error:
        raise OSError("the answer is not HTTP, or broke off") from error
    length = fields.get("content-length", "")
    if length.isdigit() and len(body) < int(length):
        raise OSError(f"the answer broke off after {len(body)} of {length} bytes")
    return PeerResponse(status, fields.get("content-type", ""), body.decode("utf-8", "replace"))


class LookupFailedError(Exception):
    """Nobody could be asked who is meant; the message says why."""


class Nodes(Protocol):
    """Who there is."""

    def peers(self) -> Tuple[Peer, ...]:
        """All daemons, this node's own too; one without an address is away.

        Raises:
            LookupFailedError: the API does not tell.
        """
        ...

    def of_job(self, job: str) -> Tuple[str, ...]:
        """Nodes on which pods of `namespace:key=value` are; raises LookupFailedError."""
        ...

    def labelled(self, selector: str) -> Tuple[str, ...]:
        """Nodes with the label `key=value`; raises LookupFailedError."""
        ...


class ConfiguredNodes:
    """Those of the command line."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = tuple(peers)

    def peers(self) -> Tuple[Peer, ...]:
        """As told."""
        return self._peers

    def of_job(self, job: str) -> Tuple[str, ...]:
        """Nobody knows: raises LookupFailedError."""
        raise LookupFailedError(f"job {job}: needs the Kubernetes API, which this daemon does not have")

    def labelled(self, selector: str) -> Tuple[str, ...]:
        """Nobody knows: raises LookupFailedError."""
        raise LookupFailedError(f"node label {selector}: needs the Kubernetes API, which this daemon does not have")


class ClusterNodes:
    """Peers from the cluster: the pods of the daemon's DaemonSet, with the own one even where the API lacks it yet."""

    def __init__(self, api: Api, namespace: str, selector: str, port: int, own: Peer) -> None:
        self._api, self._namespace, self._selector = api, namespace, selector
        self._port, self._own = port, own
        self._lock = threading.Lock()
        self._kept: Tuple[Peer, ...] = ()
        self._until = 0.0

    def peers(self) -> Tuple[Peer, ...]:
        """All daemons' pods; raises LookupFailedError."""
        with self._lock:
            if time.monotonic() < self._until:
                return self._kept
            try:
                path = f"/api/v1/namespaces/{quote(self._namespace)}/pods"
                pods = self._api.items(path, {"labelSelector": self._selector})
            except ApiError as error:
                raise LookupFailedError(str(error)) from error
            found = {peer.node: peer for peer in (peer_of(pod, self._port) for pod in _oldest_last(pods)) if peer}
            own = found.get(self._own.node)
            if own is None or not own.host:
                found[self._own.node] = self._own
            self._kept = tuple(found[node] for node in sorted(found))
            self._until = time.monotonic() + KEPT_SECONDS
            return self._kept

    def of_job(self, job: str) -> Tuple[str, ...]:
        """Nodes on which pods of `namespace:key=value` are; raises LookupFailedError."""
        namespace, _, selector = job.partition(":")
        try:
            pods = self._api.items(f"/api/v1/namespaces/{quote(namespace)}/pods", {"labelSelector": selector})
        except ApiError as error:
            raise LookupFailedError(str(error)) from error
        nodes = [str(_part(pod, "spec").get("nodeName") or "") for pod in pods]
        return tuple(dict.fromkeys(node for node in nodes if node))

    def labelled(self, selector: str) -> Tuple[str, ...]:
        """Nodes with the label; raises LookupFailedError."""
        try:
            nodes = self._api.items("/api/v1/nodes", {"labelSelector": selector})
        except ApiError as error:
            raise LookupFailedError(str(error)) from error
        return tuple(str(_part(node, "metadata").get("name")) for node in nodes)


def _oldest_last(pods: Sequence[Json]) -> List[Json]:
    """So that of two pods of a node the running one wins."""
    return sorted(pods, key=lambda pod: _part(pod, "status").get("phase") == "Running")


def peer_of(pod: Json, port: int) -> Optional[Peer]:
    """The daemon of a pod; None where it has no node yet."""
    node = str(_part(pod, "spec").get("nodeName") or "")
    status = _part(pod, "status")
    running = status.get("phase") == "Running" and "deletionTimestamp" not in _part(pod, "metadata")
    host = str(status.get("podIP") or "") if running else ""
    return Peer(node, host, port, addresses_of(_part(pod, "metadata"))) if node else None


def addresses_of(metadata: Json) -> Dict[str, str]:
    """Interface -> first address, as Multus announces them; empty where it does not."""
    text = _part(metadata, "annotations").get(NETWORKS)
    try:
        announced: Any = json.loads(text) if isinstance(text, str) else []
    except ValueError:
        return {}
    found: Dict[str, str] = {}
    for entry in map(as_mapping, as_list(announced)):
        addresses = as_list(entry.get("ips"))
        if addresses:
            found.setdefault(str(entry.get("interface") or "eth0"), str(addresses[0]))
    return found


def _part(value: Mapping[str, Any], name: str) -> Json:
    return as_mapping(value.get(name))


def gpus_asked(pods: Sequence[Json]) -> List[str]:
    """Names of pods that have not ended and ask for GPUs, in any container."""
    busy: List[str] = []
    for pod in pods:
        spec = _part(pod, "spec")
        if _part(pod, "status").get("phase") in ("Succeeded", "Failed"):
            continue
        if any(_asks(one) for part in ("containers", "initContainers") for one in as_list(spec.get(part))):
            metadata = _part(pod, "metadata")
            busy.append(f"{metadata.get('namespace')}/{metadata.get('name')}")
    return busy


def _asks(container: Any) -> bool:
    resources = _part(as_mapping(container), "resources")
    asked = {**_part(resources, "limits"), **_part(resources, "requests")}
    return any(
        name.startswith(GPU_RESOURCES) and (str(amount or "0").strip() not in ("0", ""))
        for name, amount in asked.items()
    )


def pods_on(api: Api, node: str) -> List[Json]:
    """Pods that are bound to a node; raises ApiError."""
    return api.items("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
