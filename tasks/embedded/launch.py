"""Starting a keeper: by whoever wrote something that needs one and found none."""

from __future__ import annotations

import os
import sys

from tasks.embedded import locks
from tasks.embedded.processes import CLUSTER_VARIABLE

_PROGRAM = (
    "import sys;sys.path.insert(0,sys.argv[1]);from tasks.embedded.keeper import main;sys.exit(main(sys.argv[2]))"
)
_DETACH = '"$@" </dev/null >/dev/null 2>>"$0" &'


def keeper_lock(root: str) -> str:
    """The lock that a living keeper holds."""
    return os.path.join(root, "keeper.lock")


def busy_mark(root: str) -> str:
    """A file that stands while a keeper has something pending; with no keeper alive it says that one was killed."""
    return os.path.join(root, "keeper.busy")


def keeper_command(root: str) -> list[str]:
    """The argument vector of a keeper: no site packages, no user settings, only this project's own folder."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, here, root]


def keeper_environment(root: str) -> dict[str, str]:
    """The whole environment of keeper and supervisors; the marker makes them findable."""
    return {CLUSTER_VARIABLE: root, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def start_keeper(root: str) -> None:
    """Start a keeper unless one lives. Returns at once; of two started together one leaves."""
    if locks.holder(keeper_lock(root)) is not None:
        return
    # A shell puts it into the background and is gone, so the keeper is nobody's child who would have to reap it.
    argv = ["/bin/sh", "-c", _DETACH, os.path.join(root, "keeper.log"), *keeper_command(root)]
    pid = os.posix_spawn("/bin/sh", argv, keeper_environment(root), setsid=True)
    os.waitpid(pid, 0)


def probe_namespaces(setting: str) -> str:
    """What `detect_namespaces` finds, asked in a process of its own: a caller with threads must not fork."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = "import sys;sys.path.insert(0,sys.argv[1]);from tasks.embedded.container import detect_namespaces as d;"
    argv = [sys.executable, "-I", "-S", "-c", f"{program}print(d(sys.argv[2]),end='')", here, setting]
    reading, writing = os.pipe()
    try:
        moves = [(os.POSIX_SPAWN_DUP2, writing, 1)]
        pid = os.posix_spawn(sys.executable, argv, {"PATH": "/usr/bin:/bin"}, file_actions=moves)
    finally:
        os.close(writing)
    with open(reading) as answers:
        answer = answers.read()
    os.waitpid(pid, 0)
    return answer if answer in ("mount", "user") else "none"


def revive_keeper(root: str) -> None:
    """Start a keeper where one was killed with something pending."""
    if os.path.exists(busy_mark(root)):
        start_keeper(root)
