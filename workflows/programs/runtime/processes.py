"""Processes of ranks: started, told, killed and reaped so that none is ever left behind.

A rank has its own process group, pipes (or pseudo terminals) of its own, and dies with its launcher; the launcher is
the subreaper, so what a rank's children leave behind becomes the launcher's child and is found here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import time
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, NoReturn, Tuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
"""As shells say it."""
EXIT_REFUSED = 71
"""The system or a storage refuses for now (EX_OSERR of sysexits.h): no mistake of whoever wrote the command."""
MISTAKES = (errno.EACCES, errno.ENOEXEC, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL,
            errno.E2BIG, errno.ENAMETOOLONG)  # fmt: skip
"""Why a program can never be started."""
PIPE_BYTES = (1 << 20, 256 << 10)
"""Asked of the kernel for each pipe, the first that it grants: a burst fits without stopping the rank."""
TERMINAL_COLUMNS = 200
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "tini", "dumb-init"})
_F_SETPIPE_SZ = 1031
_LIBC = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """A rank's program cannot be started; `exit_code` is the one of shells, the message names the program."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Start:
    """How to start one rank."""

    rank: int
    local_rank: int
    argv: Tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str
    pseudo_terminal: bool = False


@dataclass(frozen=True)
class RankProcess:
    """A rank that was started."""

    rank: int
    local_rank: int
    pid: int
    stdout: int
    """File descriptor, non-blocking."""
    stderr: int


def become_subreaper() -> bool:
    """Orphans of this process's descendants become its children; False where the kernel refuses."""
    return _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def find_executable(program: str, environment: Mapping[str, str], working_directory: str) -> str:
    """The file that a shell would run for `program`.

    Raises:
        StartError: not there, or not executable.
    """
    if "/" in program:
        places = [os.path.join(working_directory, program)]
    else:
        folders = environment.get("PATH", os.defpath).split(os.pathsep)
        places = [os.path.join(working_directory, folder, program) for folder in folders]
    files = [place for place in places if os.path.isfile(place)]
    for file in files:
        if os.access(file, os.X_OK):
            return file
    if files:
        raise StartError(EXIT_NOT_EXECUTABLE, f"{program}: {files[0]} is not executable")
    where = "" if "/" in program else f" in PATH={environment.get('PATH', os.defpath)}"
    raise StartError(EXIT_NOT_FOUND, f"{program}: not found{where}")


def start(plan: Start) -> RankProcess:
    """Start a rank.

    Raises:
        StartError: its program cannot be found or the system has no room for another process.
    """
    executable = find_executable(plan.argv[0], plan.environment, plan.working_directory)
    parent = os.getpid()
    descriptors: List[int] = []
    try:
        descriptors += channel(plan.pseudo_terminal)
        descriptors += channel(plan.pseudo_terminal)
        pid = os.fork()
    except OSError as error:
        for fd in descriptors:
            os.close(fd)
        raise StartError(start_code(error), f"{plan.argv[0]}: cannot be started: {error.strerror}") from error
    out_read, out_write, err_read, err_write = descriptors
    if pid == 0:
        _become(plan, executable, out_write, err_write, parent)
    os.close(out_write)
    os.close(err_write)
    if not plan.pseudo_terminal:  # there the child makes a session, which a group's leader must not
        with contextlib.suppress(OSError):  # the child was faster: it is in its group already, or gone
            os.setpgid(pid, pid)
    for fd in (out_read, err_read):
        os.set_blocking(fd, False)
    return RankProcess(plan.rank, plan.local_rank, pid, out_read, err_read)


def start_code(error: OSError) -> int:
    """The exit code of a program that the system did not start."""
    if error.errno == errno.ENOENT:
        return EXIT_NOT_FOUND
    return EXIT_NOT_EXECUTABLE if error.errno in MISTAKES else EXIT_REFUSED


def channel(pseudo_terminal: bool) -> Tuple[int, int]:
    """Ends to read and to write, of what a rank prints.

    Raises:
        OSError: no descriptor is left.
    """
    if not pseudo_terminal:
        read, write = os.pipe()
        import fcntl

        for size in PIPE_BYTES:
            try:
                fcntl.fcntl(write, _F_SETPIPE_SZ, size)
                break
            except OSError:
                continue  # a user with many pipes gets less, or the standard size: slower bursts, nothing lost
        return read, write
    import fcntl
    import struct
    import termios

    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, TERMINAL_COLUMNS, 0, 0))
    return master, slave


def _become(plan: Start, executable: str, out_fd: int, err_fd: int, parent: int) -> NoReturn:
    """The child's way to its program: nothing here may raise or return."""
    try:
        if plan.pseudo_terminal:
            os.setsid()
        else:
            os.setpgid(0, 0)
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(EXIT_NOT_EXECUTABLE)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(out_fd, 1)
        os.dup2(err_fd, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(plan.working_directory)
        os.execve(executable, list(plan.argv), dict(plan.environment))  # noqa: S606 - the point of it all
    except OSError as error:
        os.write(err_fd, f"{executable}: cannot be started: {error.strerror}\n".encode())
        os._exit(start_code(error))
    except BaseException:
        # A child of a fork must never go on as a second launcher.
        os._exit(EXIT_NOT_EXECUTABLE)
    os._exit(EXIT_NOT_EXECUTABLE)


def reap() -> List[Tuple[int, int]]:
    """Ended children since the last call: pid and wait status. Never waits."""
    ended: List[Tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def tell(pid: int, number: int) -> None:
    """Signal a rank's program, not the workers it started; a shell around it is left alone, or it would die first.

    Without job control a shell answers SIGTERM by dying at once, and the trainer inside it would never hear of it.
    """
    family = _family()
    for one in _programs(pid, family):
        _signal(one, number)


def kill_groups(pids: Iterable[int]) -> None:
    """SIGKILL to ranks that were not reaped yet, and to their groups: what is quick. `sweep` finds the rest."""
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            _signal(pid, signal.SIGKILL)


def sweep(spare: FrozenSet[int] = frozenset()) -> None:
    """SIGKILL to all descendants of ranks, orphans included; `spare` are children that are not ranks."""
    for pid in descendants(os.getpid(), spare):
        _signal(pid, signal.SIGKILL)


def kill_everything(spare: FrozenSet[int], limit_seconds: float = 5.0) -> List[int]:
    """Kill until no descendant is left; what the kernel will not let die (stuck in I/O) is returned.

    Nothing is reaped: the dead wait for `reap`, so that no end goes unnoticed.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        left = descendants(os.getpid(), spare)
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.001)


def descendants(pid: int, spare: FrozenSet[int] = frozenset()) -> List[int]:
    """Every living process below `pid`, without those in `spare` and below them."""
    family = _family()
    found: List[int] = []
    waiting = [pid]
    while waiting:
        for child in family.get(waiting.pop(), ()):
            if child not in spare:
                found.append(child)
                waiting.append(child)
    return found


def _family() -> Dict[int, List[int]]:
    """Children by parent; zombies are left out."""
    family: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The program's name may hold anything, also brackets and spaces.
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(words) > 1 and words[0] not in (b"Z", b"X"):
            family.setdefault(int(words[1]), []).append(int(name))
    return family


def _programs(pid: int, family: Mapping[int, List[int]]) -> List[int]:
    children = family.get(pid, [])
    if not children or _name(pid) not in SHELLS:
        return [pid]
    return [one for child in children for one in _programs(child, family)]


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    # It ended meanwhile, which is what was wanted; or it is another user's by now.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def describe_status(status: int) -> str:
    """A wait status in words."""
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
