"""Frames between a launcher and its parked process (a length, JSON, descriptors), and the orders in them.

Anything else ends the connection. Also which commands a fork of a Python process can carry out, from the command alone.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import re
import socket
import struct
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

LIMIT_BYTES = 16 * 1024 * 1024
"""Of one frame: the environment and the arguments of a process may take 6 MiB at most."""
_LENGTH = struct.Struct("!I")

RANK_PREFIXES = ("RANK", "LOCAL_", "WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "PRIMUS_")
"""Beginnings of variables that differ between ranks and incarnations. All others are the same for each start of a rank,
or a library that was loaded with another value (how many threads, which locale) would keep it."""
GO = b"go"
"""From the launcher to a fork, once it knows it."""
DESCRIPTORS = 3
"""With each order: the channel to its asker, standard output, standard error."""

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = frozenset("bBdEIOPqsSu")
"""Options of the interpreter that a parked process can be started with as well."""
_WITH_VALUE = frozenset("WX")


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

    At most `most` descriptors are taken.

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


@dataclass(frozen=True)
class ParkedProgram:
    """Which program a process was parked for."""

    name: str
    """Script as it was named, or module."""
    module: bool
    working_directory: str


@dataclass(frozen=True)
class ForkOrder:
    """One program to become."""

    target: ParkedProgram
    argv: Tuple[str, ...]
    """The whole command, as a plain start would have it."""
    arguments: Tuple[str, ...]
    """Of the program."""
    environment: Mapping[str, str]
    terminal: bool
    """Standard output is a pseudo terminal: the program leads a session."""

    def message(self) -> Dict[str, Any]:
        """As it travels."""
        return {
            "name": self.target.name,
            "module": self.target.module,
            "working_directory": self.target.working_directory,
            "argv": list(self.argv),
            "arguments": list(self.arguments),
            "environment": dict(self.environment),
            "terminal": self.terminal,
        }


def parse_order(message: Mapping[str, Any]) -> ForkOrder:
    """The order that a message holds.

    Raises:
        FrameError: it holds something else.
    """
    return ForkOrder(
        target=ParkedProgram(_text(message, "name"), _truth(message, "module"), _text(message, "working_directory")),
        argv=_texts(message, "argv"),
        arguments=_texts(message, "arguments"),
        environment=_environment(message),
        terminal=_truth(message, "terminal"),
    )


def mismatch(target: ParkedProgram, environment: Mapping[str, str], order: ForkOrder) -> str:
    """Why an order does not fit a process that was parked for `target` with `environment`; "": it does."""
    if order.target != target:
        return f"it was parked for {target.name} in {target.working_directory}, not for {order.target.name}"
    differing = [
        name
        for name in sorted({*environment, *order.environment})
        if not name.startswith(RANK_PREFIXES) and environment.get(name) != order.environment.get(name)
    ]
    if differing:
        return f"it was parked with another {', '.join(differing[:5])}, which a library may have read meanwhile"
    return ""


def _text(message: Mapping[str, Any], field: str) -> str:
    value = message.get(field)
    if not isinstance(value, str) or "\0" in value:
        raise FrameError(f"{field}: not a text")
    return value


def _truth(message: Mapping[str, Any], field: str) -> bool:
    value = message.get(field)
    if not isinstance(value, bool):
        raise FrameError(f"{field}: neither true nor false")
    return value


def _texts(message: Mapping[str, Any], field: str) -> Tuple[str, ...]:
    value: Any = message.get(field)
    if not isinstance(value, list):
        raise FrameError(f"{field}: not a list")
    items: List[Any] = list(value)  # type: ignore[arg-type]
    return tuple(_text({field: item}, field) for item in items)


def _environment(message: Mapping[str, Any]) -> Dict[str, str]:
    value: Any = message.get("environment")
    if not isinstance(value, dict):
        raise FrameError("environment: not an object")
    found: Dict[str, str] = {}
    for name, text in value.items():  # type: ignore[union-attr]
        if not name or "=" in name or "\0" in name:
            raise FrameError("environment: not a name")
        found[name] = _text({"environment": text}, "environment")
    return found


@dataclass(frozen=True)
class Program:
    """A command that a fork of a Python process can carry out."""

    interpreter: str
    options: Tuple[str, ...]
    """Of the interpreter."""
    name: str
    """Script, archive or folder as it was named; or module."""
    module: bool
    arguments: Tuple[str, ...]


def parse_command(command: Sequence[str]) -> Optional[Program]:
    """How a command can be forked; None: it is no Python script or module, or its options are not known here."""
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):
        return None
    words = list(command[1:])
    options: List[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            return None if word.endswith(".pyc") or not word else _program(command[0], options, word, False, words)
        taken = _option(word, words)
        if taken is None:
            return None
        mine, module = taken
        options += mine
        if module:
            return _program(command[0], options, module, True, words)
    return None


def _program(interpreter: str, options: List[str], name: str, module: bool, arguments: List[str]) -> Program:
    return Program(interpreter, tuple(options), name, module, tuple(arguments))


def _option(word: str, words: List[str]) -> Optional[Tuple[List[str], str]]:
    """One word of options, as the interpreter reads it: what is kept of it, and the module it names; None: unknown."""
    letters = word[1:]
    for place, letter in enumerate(letters):
        if letter in _FLAGS:
            continue
        before, rest = letters[:place], letters[place + 1 :]
        if letter not in _WITH_VALUE and letter != "m":
            return None
        if not rest and not words:
            return None
        value = rest or words.pop(0)
        kept = [f"-{before}"] if before else []
        return (kept, value) if letter == "m" else ([*kept, f"-{letter}{value}"], "")
    return ([word], "") if letters else None
