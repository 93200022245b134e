"""What the two members of a pair say to each other while they measure: short messages over connections of their doors.

Each message is its length and its bytes. A message that begins with `ECHO` is sent back as it came, at once: that is
what a round trip is measured by.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any, Dict

from workflows.programs.gang_doors import Doors, PeerLostError

ECHO = b"echo"
SIZE = struct.Struct(">I")
MOST_BYTES = 1 << 16
"""A longer message is none of ours."""
LEAST_SECONDS = 0.01


class Line:
    """Both ways between us and our partner."""

    def __init__(self, doors: Doors, partner: int, until: float) -> None:
        """Connect both ways; waits for the partner.

        Args:
            doors: ours.
            partner: its rank.
            until: by the monotonic clock; whoever says nothing by then is lost.

        Raises:
            PeerLostError: it does not come.
        """
        self.partner, self._until = partner, until
        self._out, self._in = doors.to(partner, 0), doors.coming(partner, 0)

    def say(self, message: bytes) -> None:
        """Send a message.

        Raises:
            PeerLostError: the partner ended, or takes nothing more.
        """
        try:
            self._ready(self._out).sendall(SIZE.pack(len(message)) + message)
        except OSError as error:
            raise PeerLostError(self.partner, "ended") from error

    def hear(self) -> bytes:
        """The next message.

        Raises:
            PeerLostError: the partner ended, fell silent or says what is no message.
        """
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        if size > MOST_BYTES:
            raise PeerLostError(self.partner, f"says {size} bytes at once, which no member does")
        return self._exactly(size)

    def tell(self, **words: Any) -> None:
        """Send words as JSON; raises as `say`."""
        self.say(json.dumps(words).encode())

    def told(self) -> Dict[str, Any]:
        """The next message that is not to be echoed, as words; those before it are echoed.

        Raises:
            PeerLostError: as `hear`.
        """
        while (message := self.hear()).startswith(ECHO):
            self.say(message)
        try:
            words: Dict[str, Any] = dict(json.loads(message))
        except (ValueError, TypeError) as error:
            raise PeerLostError(self.partner, "says something that is no word of ours") from error
        return words

    def asked(self, **words: Any) -> Dict[str, Any]:
        """Send words and wait for the answer; raises as `hear`."""
        self.tell(**words)
        return self.told()

    def _ready(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(max(LEAST_SECONDS, self._until - time.monotonic()))
        return connection

    def _exactly(self, size: int) -> bytes:
        got = b""
        try:
            self._ready(self._in)
            while len(got) < size:
                more = self._in.recv(size - len(got))
                if not more:
                    raise PeerLostError(self.partner, "ended")
                got += more
        except socket.timeout as error:
            raise PeerLostError(self.partner, "fell silent") from error
        except OSError as error:
            if isinstance(error, PeerLostError):
                raise
            raise PeerLostError(self.partner, "ended") from error
        return got
