"""What stands in for the machine around the programs of a made-up node: its root, its clocks, its disk, its names.

The node's processes load it as they start, and a node whose programs run in the test's process uses the same stand-ins.
The programs are imported where the stand-ins are made: a process that only prints a made-up answer needs none of them.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

MadeUp = dict[str, Any]
"""What differs from this machine, as JSON (`VirtualNode`)."""
StandIn = tuple[Any, str, Any]
"""Where, which attribute, what stands there instead."""


def answer_of(made_up: MadeUp, argv: Sequence[str]) -> dict[str, Any]:
    """What a probe does instead of looking; empty: it looks."""
    name = argv[1].partition("=")[2] if argv[0] == "probe-one" else ""
    return (made_up["answers"].get(name) or made_up["probes"]) if name else {}


def give(answer: dict[str, Any]) -> None:
    """Do it, and end this process."""
    sys.stdout.write(answer["text"])
    sys.stdout.flush()
    if answer["hangs"]:
        time.sleep(600)
    if answer["signal"]:
        os.kill(os.getpid(), answer["signal"])
    os._exit(answer["code"])


def stand_ins(made_up: MadeUp, root: str) -> list[StandIn]:
    """All of them."""
    import resource
    import types

    from workflows.programs.probes import kernel_log, links, measure, node, run, services

    wanted = int(made_up["memlock_gib"] * (1 << 30)) or resource.RLIM_INFINITY

    def getrlimit(_: int) -> tuple[int, int]:
        return wanted, wanted

    limits = types.SimpleNamespace(
        getrlimit=getrlimit,
        RLIMIT_MEMLOCK=resource.RLIMIT_MEMLOCK,
        RLIM_INFINITY=resource.RLIM_INFINITY,
    )
    ahead = made_up["skew_seconds"]
    return [
        (node, "ROOT", root),
        (node, "resource", limits),
        (kernel_log, "DEVICE", os.path.join(root, "dev/kmsg")),
        (kernel_log, "ask_kernel", _refused),
        (run.nics_of, "__defaults__", (os.path.join(root, "sys/class/infiniband"),)),
        (links, "time", _later(made_up["grows"], root)),
        (services, "SSH_PORT", made_up["ssh_port"]),
        (measure, "time", types.SimpleNamespace(**{**vars(time), "time": lambda: time.time() + ahead})),
        (services, "socket", _names(made_up["names_are_lost"])),
        (os, "statvfs", _disk(*made_up["used_percent"])),
    ]


def _refused(*_: object) -> int:
    """In place of the machine's own kernel, which says what it likes."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _later(grows: dict[str, int], root: str) -> object:
    import threading

    class Later(threading.local):
        """A clock on which waiting takes no time; meanwhile counters grow."""

        waited = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.waited

        def sleep(self, seconds: float) -> None:
            self.waited += seconds
            for path, by in grows.items():
                with open(os.path.join(root, path), "r+", encoding="utf-8") as file:
                    grown = int(file.read()) + by
                    file.seek(0)
                    file.write(str(grown))

    return Later()


def _names(are_lost: bool) -> object:
    import socket
    import types

    def getaddrinfo(*_: object, **__: object) -> list[Any]:
        if are_lost:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(2, 1, 6, "", ("127.0.0.1", 0))]

    return types.SimpleNamespace(getaddrinfo=getaddrinfo, create_connection=socket.create_connection)


def _disk(space_used: float, inodes_used: float) -> object:
    import types

    def statvfs(path: object) -> object:
        space, inodes = (int(10000 * (100 - used)) for used in (space_used, inodes_used))
        return types.SimpleNamespace(
            f_blocks=1000000, f_bfree=space, f_bavail=space, f_frsize=1 << 20, f_files=1000000, f_ffree=inodes
        )

    return statvfs
