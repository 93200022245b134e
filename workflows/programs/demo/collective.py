"""All-reduce of the demo trainer over plain sockets: a star around rank 0, always added in the order of ranks.

The fixed order makes a sum the same bits in every run. Each message carries a sequence number, so that ranks that fell
out of step notice instead of adding different things.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any, Dict, List, Optional, Tuple

HEADER = struct.Struct(">QQ")
"""Sequence number and length of what follows."""
HELLO_LIMIT_BYTES = 65536


class RankLostError(ConnectionError):
    """Another rank is gone, silent or out of step; the message names it."""


class MismatchError(ValueError):
    """Rank 0 and this rank do not belong together; the message says in what they differ."""


class Collective:
    """The connections of one rank. Rank 0 holds one to every other rank, the others one to rank 0."""

    def __init__(self, rank: int, world_size: int, peers: Dict[int, socket.socket]) -> None:
        self.rank = rank
        self.world_size = world_size
        self._peers = peers
        self._sequence = 0

    def all_reduce(self, values: Any) -> None:
        """Replace the float32 vector `values` by the sum over all ranks, added in the order of ranks."""
        import numpy as np

        if self.rank != 0:
            self._send(0, memoryview(values).cast("B"))
            self._receive_into(0, memoryview(values).cast("B"))
        else:
            other = np.empty_like(values)
            for peer in range(1, self.world_size):
                self._receive_into(peer, memoryview(other).cast("B"))
                values += other
            for peer in range(1, self.world_size):
                self._send(peer, memoryview(values).cast("B"))
        self._sequence += 1

    def gather(self, data: bytes) -> List[bytes]:
        """Rank 0: what every rank gave, in the order of ranks. Others: an empty list, after rank 0 has it all."""
        if self.rank != 0:
            self._send(0, data)
            self._receive(0)
            gathered: List[bytes] = []
        else:
            gathered = [data, *(self._receive(peer) for peer in range(1, self.world_size))]
            for peer in range(1, self.world_size):
                self._send(peer, b"")
        self._sequence += 1
        return gathered

    def close(self) -> None:
        """Close every connection."""
        for peer in self._peers.values():
            peer.close()

    def _send(self, peer: int, data: Any) -> None:
        try:
            self._peers[peer].sendall(HEADER.pack(self._sequence, len(data)))
            self._peers[peer].sendall(data)
        except OSError as error:
            raise self._lost(peer, error.strerror or str(error)) from error

    def _receive(self, peer: int) -> bytes:
        data = bytearray(self._length(peer))
        self._fill(peer, memoryview(data))
        return bytes(data)

    def _receive_into(self, peer: int, view: memoryview) -> None:
        length = self._length(peer)
        if length != len(view):
            raise self._lost(peer, f"sent {length} bytes where {len(view)} were expected")
        self._fill(peer, view)

    def _length(self, peer: int) -> int:
        header = bytearray(HEADER.size)
        self._fill(peer, memoryview(header))
        sequence, length = HEADER.unpack(header)
        if sequence != self._sequence:
            raise self._lost(peer, f"is at exchange {sequence}, this rank at {self._sequence}")
        return length

    def _fill(self, peer: int, view: memoryview) -> None:
        try:
            while len(view):
                count = self._peers[peer].recv_into(view)
                if count == 0:
                    raise self._lost(peer, "closed the connection")
                view = view[count:]
        except RankLostError:
            raise
        except OSError as error:
            raise self._lost(peer, error.strerror or str(error)) from error

    def _lost(self, peer: int, why: str) -> RankLostError:
        return RankLostError(f"all-reduce failed: rank {peer} {why} (exchange {self._sequence})")


def connect(
    rank: int, world_size: int, address: Tuple[str, int], identity: Dict[str, Any], deadline_seconds: float
) -> Collective:
    """Join the other ranks at rank 0's `address`, within `deadline_seconds`.

    `identity` is a text that must be equal on all ranks (run, attempt, resumed step).

    Raises:
        RankLostError: not all ranks came in time.
        MismatchError: a rank differs from rank 0 in `identity`.
    """
    if world_size == 1:
        return Collective(rank, world_size, {})
    deadline = time.monotonic() + deadline_seconds
    if rank == 0:
        return Collective(rank, world_size, _accept_all(world_size, address, identity, deadline))
    return Collective(rank, world_size, {0: _join(rank, address, identity, deadline)})


def _accept_all(
    world_size: int, address: Tuple[str, int], identity: Dict[str, Any], deadline: float
) -> Dict[int, socket.socket]:
    peers: Dict[int, socket.socket] = {}
    with _listener(address, world_size) as listener:
        while len(peers) < world_size - 1:
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                peer, _ = listener.accept()
            except socket.timeout as error:
                missing = sorted(set(range(1, world_size)) - set(peers))
                raise RankLostError(f"ranks {missing} did not come to the rendezvous in time") from error
            joined = _welcome(peer, world_size, identity)
            if joined is not None:
                peers[joined] = peer
    return peers


def _welcome(peer: socket.socket, world_size: int, identity: Dict[str, Any]) -> Optional[int]:
    """The rank that said hello, or None where somebody else knocked at the port."""
    _prepare(peer)
    peer.settimeout(5.0)
    try:
        hello = json.loads(_read_frame(peer))
        rank, theirs = int(hello["rank"]), hello["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        peer.close()
        return None
    differences = {key: [value, theirs.get(key)] for key, value in identity.items() if theirs.get(key) != value}
    if not 0 < rank < world_size:
        differences["rank"] = [f"1..{world_size - 1}", rank]
    answer = json.dumps({"differences": differences}).encode()
    peer.sendall(HEADER.pack(0, len(answer)) + answer)
    peer.settimeout(None)
    if differences:
        raise MismatchError(f"rank {rank} does not fit to rank 0: {_say(differences)}")
    return rank


def _join(rank: int, address: Tuple[str, int], identity: Dict[str, Any], deadline: float) -> socket.socket:
    hello = json.dumps({"rank": rank, "identity": identity}).encode()
    why = "no try was made"
    while time.monotonic() < deadline:
        try:
            peer = socket.create_connection((resolve(address[0]), address[1]), timeout=5.0)
            _prepare(peer)
            peer.sendall(HEADER.pack(0, len(hello)) + hello)
            peer.settimeout(max(0.001, deadline - time.monotonic()))
            answer = json.loads(_read_frame(peer))
        except (OSError, ValueError) as error:
            why = str(error)
            time.sleep(0.02)
            continue
        if answer["differences"]:
            raise MismatchError(f"rank {rank} does not fit to rank 0: {_say(answer['differences'])}")
        peer.settimeout(None)
        return peer
    raise RankLostError(f"rank 0 did not answer at {address[0]}:{address[1]} in time: {why}")


def _say(differences: Dict[str, Any]) -> str:
    return "; ".join(f"{key} is {theirs!r} instead of {ours!r}" for key, (ours, theirs) in differences.items())


def _read_frame(peer: socket.socket) -> bytes:
    header = _exactly(peer, HEADER.size)
    length = HEADER.unpack(header)[1]
    if length > HELLO_LIMIT_BYTES:
        raise ValueError("not one of our ranks")
    return _exactly(peer, length)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("closed the connection")
        data += part
    return data


def _prepare(peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _listener(address: Tuple[str, int], backlog: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((resolve(address[0]), address[1]))
    except OSError:
        # A service name may stand for this pod without being one of its own addresses.
        listener.bind(("", address[1]))
    listener.listen(backlog)
    return listener


def resolve(host: str) -> str:
    """The address of `host` in the file that `PRIMUS_HOSTS_FILE` names (as /etc/hosts), else `host` itself."""
    try:
        with open(os.environ.get("PRIMUS_HOSTS_FILE", ""), encoding="utf-8") as hosts:
            for line in hosts:
                words = line.split("#")[0].split()
                if host in words[1:]:
                    return words[0]
    except OSError:
        pass
    return host
