"""The connections of one member of a group: one door for each rail, and who may come in.

A connection belongs to the rank that made it and is used for what that rank sends. Whoever comes proves that it knows
the key on the listener's card (HMAC of a fresh number), or is sent away.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
import time
from typing import Dict, List, Optional, Sequence, Tuple

from workflows.programs.gang_meet import Card, Folder

GREETING_SECONDS = 5.0
"""Whoever does not greet so long is sent away."""
WELCOME = b"ok"
NONCE_BYTES = 16
HELLO = struct.Struct(">I32s")
"""Rank of who comes, and its proof."""
LOOK_SECONDS = 0.25
"""So often whoever waits for a connection looks whether the group is over."""
BACKLOG = 128
MOST_GUESTS = 64
"""At the door at the same time."""


class PeerLostError(ConnectionError):
    """A member did not come, ended or fell silent."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"rank {rank} {why}")
        self.rank = rank


class Doors:
    """Listens on the address of each rail and keeps who came in."""

    def __init__(self, rank: int, folder: Folder, hosts: Sequence[str], until: float) -> None:
        self.rank, self.folder, self._until = rank, folder, until
        self.key = os.urandom(32)
        self._listeners = [socket.create_server((host, 0), backlog=BACKLOG) for host in hosts]
        self._came: Dict[Tuple[int, int], socket.socket] = {}
        self._made: Dict[Tuple[int, int], socket.socket] = {}
        self._news = threading.Condition()
        self._guests = threading.Semaphore(MOST_GUESTS)
        for rail, listener in enumerate(self._listeners):
            threading.Thread(target=self._keep_door, args=(rail, listener), daemon=True).start()

    @property
    def addresses(self) -> Tuple[Tuple[str, int], ...]:
        """Of each rail."""
        return tuple((str(name[0]), int(name[1])) for name in (one.getsockname() for one in self._listeners))

    def to(self, rank: int, rail: int) -> socket.socket:
        """The connection on which we send to a rank.

        Raises:
            PeerLostError: it does not take it.
        """
        known = self._made.get((rank, rail))
        if known is None:
            known = self._made[rank, rail] = self._knock(rank, rail)
        return known

    def coming(self, rank: int, rail: int) -> socket.socket:
        """The connection on which a rank sends to us; waits for it.

        Raises:
            PeerLostError: it does not come in time.
        """
        while True:
            left = self._until - time.monotonic()
            with self._news:
                if self._news.wait_for(lambda: (rank, rail) in self._came, max(0.0, min(LOOK_SECONDS, left))):
                    return self._came[rank, rail]
            if left <= 0:
                raise PeerLostError(rank, "did not connect")
            missed = self._missed()  # whoever waits for a third one will not connect either
            if missed is not None:
                raise PeerLostError(missed, "is missed by another member")

    def close(self) -> None:
        """Close everything."""
        every: List[socket.socket] = [*self._listeners, *self._came.values(), *self._made.values()]
        for one in every:
            with contextlib.suppress(OSError):
                one.close()

    def _missed(self) -> Optional[int]:
        with contextlib.suppress(OSError):
            return self.folder.over()
        return None

    def _knock(self, rank: int, rail: int) -> socket.socket:
        try:
            card: Card = self.folder.card(rank)
            if rail >= len(card.addresses):
                raise PeerLostError(rank, f"has {len(card.addresses)} rails, not {rail + 1}")
            left = max(0.1, self._until - time.monotonic())
            own = self._listeners[rail].getsockname()[0]  # by this rail's card, not by the default route
            connection = socket.create_connection(card.addresses[rail], min(left, GREETING_SECONDS), (own, 0))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = _exactly(connection, NONCE_BYTES)
            connection.sendall(HELLO.pack(self.rank, _proof(bytes.fromhex(card.key), nonce, self.rank)))
            if _exactly(connection, len(WELCOME)) != WELCOME:
                raise PeerLostError(rank, "sent us away")
            connection.setblocking(False)
            return connection
        except PeerLostError:
            raise
        except (OSError, ValueError) as error:
            raise PeerLostError(rank, f"cannot be reached: {getattr(error, 'strerror', None) or error}") from error

    def _keep_door(self, rail: int, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                guest, _ = listener.accept()
                if self._guests.acquire(blocking=False):
                    threading.Thread(target=self._greet, args=(rail, guest), daemon=True).start()
                else:
                    guest.close()

    def _greet(self, rail: int, guest: socket.socket) -> None:
        try:
            guest.settimeout(GREETING_SECONDS)
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = os.urandom(NONCE_BYTES)
            guest.sendall(nonce)
            rank, proof = HELLO.unpack(_exactly(guest, HELLO.size))
            if not hmac.compare_digest(proof, _proof(self.key, nonce, rank)):
                guest.close()
                return
            guest.sendall(WELCOME)
            guest.setblocking(False)
            with self._news:
                self._came[rank, rail] = guest
                self._news.notify_all()
        except OSError:
            guest.close()
        finally:
            self._guests.release()


def _proof(key: bytes, nonce: bytes, rank: int) -> bytes:
    return hmac.new(key, nonce + struct.pack(">I", rank), hashlib.sha256).digest()


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Raises OSError where it ends before."""
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionResetError(104, "ended while it was greeted")
        got += more
    return got
