"""The other nodes' health daemons: who they are, and how one is asked.

Standard library only, Python 3.9. Used by everything of the node daemon that looks beyond its own node.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Sequence, Tuple

DEFAULT_PORT = 3333
"""Autopilot's port of the health checks."""
ANSWER_BYTES = 8 << 20
"""A longer answer is no answer."""
CONNECT_SECONDS = 2.0
"""One lost first packet is sent again after 1 s."""
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9:])?")


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
class Fetched:
    """What a daemon answered."""

    status: int
    kind: str
    """Content type."""
    text: str


def fetch(peer: Peer, path: str, seconds: float, headers: Mapping[str, str]) -> Fetched:
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


def _fetched(data: bytes) -> Fetched:
    head, marker, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if not marker or not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
        raise OSError("the answer is not HTTP, or broke off")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("content-length", "")
    if length.isdigit() and len(body) < int(length):
        raise OSError(f"the answer broke off after {len(body)} of {length} bytes")
    return Fetched(int(words[1]), fields.get("content-type", ""), body.decode("utf-8", "replace"))
