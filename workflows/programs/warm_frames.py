"""Frames between a launcher and its parked process: a length, JSON, descriptors. Anything else ends the talk."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

LIMIT_BYTES = 16 * 1024 * 1024
"""Of one frame: the environment and the arguments of a process may take 6 MiB at most."""
_LENGTH = struct.Struct("!I")


class FrameError(Exception):
    """What came is no frame, or only a part of one."""


def send(connection: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message, and with it copies of `descriptors`.

    Raises:
        OSError: the peer is gone, or did not take it within the connection's timeout; a part may have been sent.
    """
    body = json.dumps(message).encode()
    data = _LENGTH.pack(len(body)) + body
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sent = connection.sendmsg([data], passed)
    if sent < len(data):  # sending nothing would still fail where the peer has its answer and is gone
        connection.sendall(data[sent:])


def receive(connection: socket.socket, most: int = 0) -> Optional[Tuple[Dict[str, Any], List[int]]]:
    """The next message and the descriptors that came with it, now the caller's; None: the peer has ended.

    Args:
        connection: blocking, or with a timeout for each part.
        most: so many descriptors are taken.

    Raises:
        FrameError: garbage, too long, or the peer ended in the middle.
        OSError: nothing came within the connection's timeout.
    """
    descriptors: List[int] = []
    try:
        head = _exactly(connection, _LENGTH.size, most, descriptors)
        if not head:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > LIMIT_BYTES:
            raise FrameError(f"a frame of {length} bytes")
        message: Any = json.loads(_exactly(connection, length, 0, descriptors))
        if not isinstance(message, dict):
            raise FrameError("not an object")
    except (ValueError, RecursionError) as error:
        close(descriptors)
        raise FrameError(str(error)) from error
    except BaseException:
        close(descriptors)
        raise
    return dict(message), descriptors  # type: ignore[arg-type]


def close(descriptors: Iterable[int]) -> None:
    """Close them; those that are closed already are left alone."""
    for fd in descriptors:
        with contextlib.suppress(OSError):
            os.close(fd)


def _exactly(connection: socket.socket, count: int, most: int, descriptors: List[int]) -> bytes:
    """So many bytes; none where the peer ended before the first byte of a frame."""
    data = b""
    begins = count == _LENGTH.size and not descriptors
    while len(data) < count:
        room = socket.CMSG_SPACE(most * array.array("i").itemsize) if most else 0
        part, passed, told, _ = connection.recvmsg(min(count - len(data), 65536), room, socket.MSG_CMSG_CLOEXEC)
        for _, kind, content in passed:
            if kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                descriptors += numbers
        if told & socket.MSG_CTRUNC:
            raise FrameError("too many descriptors")
        if not part:
            if begins and not data and not descriptors:
                return b""
            raise FrameError("the end in the middle of a frame")
        data += part
    return data
