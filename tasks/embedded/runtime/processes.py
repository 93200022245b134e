"""Finding and killing the processes of a cluster without trusting a pid alone.

A process belongs to the cluster when its first environment carries `PRIMUS_CLUSTER_DIR=<root>`, and to a pod when it
also carries the pod's `PRIMUS_POD_UID` or sees one of the pod's own folders at `/.life` (a program that wiped its
environment and left every session cannot leave its mount namespace). A pid is signalled through a pidfd that was
opened before its start time was compared.
"""

from __future__ import annotations

import os
import select
import signal
import time

from tasks.embedded.runtime.mounts import LIFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


CLUSTER_VARIABLE = "PRIMUS_CLUSTER_DIR"
POD_VARIABLE = "PRIMUS_POD_UID"
CONTAINER_VARIABLE = "PRIMUS_CONTAINER"
ZYGOTE = "primus-zygote"
"""Name of the process that forks supervisors."""
MAX_LOOKS = 20
"""On a machine where processes end all the time no look at all of them is ever settled."""
KILL_DEADLINE_SECONDS = 10.0
"""A process in an uninterruptible wait may outlive SIGKILL; nobody waits longer than this for it."""


class Process:
    """One living process of the cluster; `pod_uid` is empty for keepers and supervisors."""

    __slots__ = ("pid", "pod_uid", "start")

    def __init__(self, pid: int, start: int, pod_uid: str) -> None:
        self.pid = pid
        self.start = start
        self.pod_uid = pod_uid


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent's pid and start time (clock ticks since boot), None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and parentheses; what follows its last one is numbers.
    fields = content[content.rfind(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1]), int(fields[19])


def start_time(pid: int) -> int | None:
    """Start time of a living process, None where it is gone or a zombie."""
    found = read_stat(pid)
    return None if found is None or found[0] in "ZX" else found[2]


def pids() -> Iterator[int]:
    """Every pid of this machine at this moment."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def children(pid: int) -> list[int]:
    """Living direct children of a process."""
    found: list[int] = []
    for candidate in pids():
        stat = read_stat(candidate)
        if stat is not None and stat[1] == pid and stat[0] not in "ZX":
            found.append(candidate)
    return found


def kill_children(spared: Callable[[int], bool]) -> None:
    """SIGKILL the whole tree below this process, a subreaper, save the children that `spared` names.

    A killed parent's children become ours, so killing children again and again comes to an end.
    """
    deadline = time.monotonic() + KILL_DEADLINE_SECONDS
    while time.monotonic() < deadline and _has_children():
        victims = [
            Process(pid, start, "")
            for pid in children(os.getpid())
            if not spared(pid) and (start := start_time(pid)) is not None
        ]
        if not victims:
            return
        kill_each(victims, deadline)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def has_variable(pid: int, name: str, values: set[str]) -> bool:
    """Whether the process was started with the variable set to one of the values."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return False
    return any(f"{name}={value}".encode() in entries for value in values)


def find(root: str) -> list[Process]:
    """All living processes of the cluster under `root` save the caller."""
    return _scan(root)[0]


def _scan(root: str) -> tuple[list[Process], bool]:
    """What `find` finds, and whether every process lived through the look at it.

    One that did not may have left a child that the listing lacks.
    """
    marker = f"{CLUSTER_VARIABLE}={root}".encode()
    lives = _lives(root)
    own = os.getpid()
    found: list[Process] = []
    settled = True
    for pid in pids():
        uid = None if pid == own else _pod_of(pid, marker, lives)
        if uid is None:
            settled = settled and os.path.exists(f"/proc/{pid}")
            continue
        start = start_time(pid)
        if start is not None:
            found.append(Process(pid, start, uid))
        else:
            settled = False
    return found, settled


def kill(root: str, wanted: Callable[[Process], bool]) -> None:
    """SIGKILL every process that `wanted` chooses, and every stray, again and again until none is left."""
    deadline = time.monotonic() + KILL_DEADLINE_SECONDS
    looks = 0
    while time.monotonic() < deadline:
        found, settled = _scan(root)
        victims = [process for process in found if wanted(process)] + _strays(found)
        looks += not victims
        if not victims and (settled or looks > MAX_LOOKS):
            return
        kill_each(victims, deadline)


def _strays(found: list[Process]) -> list[Process]:
    """Orphans of dead supervisors that wiped their environment: they became children of the zygote, a subreaper.

    Without mount namespaces nothing else tells them from strangers.
    """
    zygotes = {process.pid for process in found if not process.pod_uid and _name(process.pid) == ZYGOTE}
    if not zygotes:
        return []
    known = {process.pid for process in found}
    strays: list[Process] = []
    for pid in pids():
        stat = None if pid in known else read_stat(pid)
        if stat is not None and stat[1] in zygotes and stat[0] not in "ZX" and not _has_mark(pid):
            strays.append(Process(pid, stat[2], ""))
    return strays


def _has_mark(pid: int) -> bool:
    """Whether the process carries the mark of any cluster: a supervisor that was forked this moment does."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{CLUSTER_VARIABLE}=".encode() in file.read()
    except OSError:
        return True


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def kill_each(victims: list[Process], deadline: float) -> None:
    """SIGKILL these processes and wait until they are gone or the (monotonic) deadline passed."""
    descriptors = [descriptor for descriptor in map(open_verified, victims) if descriptor is not None]
    poller = select.poll()
    waiting: set[int] = set()
    for descriptor in descriptors:
        if send(descriptor, signal.SIGKILL):
            poller.register(descriptor, select.POLLIN)
            waiting.add(descriptor)
    while waiting and (rest := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(rest * 1000):
            poller.unregister(descriptor)
            waiting.discard(descriptor)
    for descriptor in descriptors:
        os.close(descriptor)


def open_verified(process: Process) -> int | None:
    """A pidfd of exactly this process, None where it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (ProcessLookupError, OSError):
        return None
    if start_time(process.pid) == process.start:
        return descriptor
    os.close(descriptor)
    return None


def send(descriptor: int, number: int) -> bool:
    """Signal the process behind a pidfd; whether it still was there."""
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _lives(root: str) -> dict[tuple[int, int], str]:
    """Device and inode of the folder of every life of a container -> uid of its pod."""
    found: dict[tuple[int, int], str] = {}
    pods = os.path.join(root, "pods")
    try:
        uids = os.listdir(pods)
    except (FileNotFoundError, NotADirectoryError):
        return found
    for uid in uids:
        lives = os.path.join(pods, uid, "lives")
        try:
            for life in os.listdir(lives):
                status = os.stat(os.path.join(lives, life))
                found[status.st_dev, status.st_ino] = uid
        except (FileNotFoundError, NotADirectoryError):
            continue
    return found


def _pod_of(pid: int, marker: bytes, lives: dict[tuple[int, int], str]) -> str | None:
    """Uid of the pod, "" for a process of the cluster outside pods, None for a stranger."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        entries = []
    if marker in entries:
        prefix = f"{POD_VARIABLE}=".encode()
        return next((entry[len(prefix) :].decode() for entry in entries if entry.startswith(prefix)), "")
    try:
        status = os.stat(f"/proc/{pid}/root{LIFE}")
    except OSError:
        return None
    return lives.get((status.st_dev, status.st_ino))
