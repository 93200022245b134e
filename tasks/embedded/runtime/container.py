"""Starting the first process of a container: fork, namespaces, mounts, exec.

Everything between fork and exec happens in the child; what goes wrong there comes back through a pipe that exec closes.
"""

from __future__ import annotations

import os
import signal

from tasks.embedded import linux
from tasks.embedded.runtime.inherited import UMASK, reset_signals
from tasks.embedded.runtime.mounts import TMP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tasks.embedded.runtime.mounts import View


_KEPT_FLAGS = {
    1: linux.MS_RDONLY,
    2: linux.MS_NOSUID,
    4: linux.MS_NODEV,
    8: linux.MS_NOEXEC,
    1024: linux.MS_NOATIME,
    2048: linux.MS_NODIRATIME,
    4096: linux.MS_RELATIME,
}
"""statvfs flag -> mount flag: a user namespace may not drop a flag that the mount had outside."""


class Launch:
    """Everything a container's first process needs.

    `view` is what its file system shall look like, None to run without namespaces; `user_namespace` says whether a user
    namespace is needed to mount. `stdout` and `stderr` are descriptors, given to the child only.
    """

    def __init__(  # noqa: PLR0913 - a value, built in one place
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        working_folder: str,
        view: View | None,
        user_namespace: bool,
        host_name: str,
        stdout: int,
        stderr: int,
    ) -> None:
        self.argv = list(argv)
        self.environment = dict(environment)
        self.working_folder = working_folder
        self.view = view
        self.user_namespace = user_namespace
        self.host_name = host_name
        self.stdout = stdout
        self.stderr = stderr


def start(launch: Launch) -> tuple[int, str]:
    """Start it; returns its pid and "", or its pid (ended, still to be reaped) and why it could not be started."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _in_child(writing, lambda: _become(launch, parent))
    os.close(writing)
    message = b""
    while piece := os.read(reading, 4096):
        message += piece
    os.close(reading)
    return pid, message.decode(errors="replace")


def detect_namespaces(setting: str) -> str:
    """`mount`, `user` (a user namespace is needed) or `none`: what this machine and the cluster's setting allow."""
    if setting == "never":
        return "none"
    wanted = ("user",) if setting == "user" or os.geteuid() != 0 else ("mount", "user")
    return next((mode for mode in wanted if _can_mount(user=mode == "user")), "none")


def _can_mount(*, user: bool) -> bool:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _in_child(writing, lambda: _try_mount(user=user))
    os.close(writing)
    failed = bool(os.read(reading, 1))
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    return not failed and status == 0


def _try_mount(*, user: bool) -> None:
    _enter_namespaces(user=user)
    linux.mount("tmpfs", TMP, "tmpfs", 0)
    root = os.path.join(TMP, "root")
    os.mkdir(root)
    linux.mount("/", root, None, linux.MS_BIND | linux.MS_REC)
    os.chdir(root)
    linux.pivot_root_here()
    os._exit(0)


def _in_child(writing: int, work: Callable[[], None]) -> None:
    """Run `work`, which ends in exec or exit; any failure is written to the pipe."""
    try:
        work()
    except BaseException as error:
        os.write(writing, (str(error) or type(error).__name__).encode()[:4000])
    finally:
        os._exit(128)


def _become(launch: Launch, parent: int) -> None:
    os.setsid()
    os.umask(UMASK)
    reset_signals()
    _descriptors(launch)
    if launch.view is not None:
        _enter_namespaces(user=launch.user_namespace)
        linux.set_host_name(launch.host_name)
        build(launch.view)
    os.chdir(launch.working_folder)
    program = find_program(launch.argv[0], launch.environment.get("PATH", ""))
    # Only now: entering a user namespace clears it. A parent that died before is seen by its pid.
    linux.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)
    os.execve(program, launch.argv, launch.environment)  # noqa: S606 - a container's program, never a shell's text


def _descriptors(launch: Launch) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(launch.stdout, 1)
    os.dup2(launch.stderr, 2)


def find_program(name: str, path: str) -> str:
    """The file to execute, as execvp would find it.

    Raises:
        FileNotFoundError: with the words that container runtimes use.
    """
    if "/" in name:
        if os.access(name, os.X_OK) and not os.path.isdir(name):
            return name
        problem = "permission denied" if os.path.exists(name) else "no such file or directory"
        raise FileNotFoundError(f'exec: "{name}": {problem}')
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(f'exec: "{name}": executable file not found in $PATH')


def _enter_namespaces(*, user: bool) -> None:
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare((linux.CLONE_NEWUSER if user else 0) | linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, text.encode())
            os.close(descriptor)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)


def build(view: View) -> None:
    """Carry out the operations of a view and make it this process's root."""
    os.makedirs(view.root, exist_ok=True)
    if view.root_on_disk:
        linux.mount(view.root, view.root, None, linux.MS_BIND)
    else:
        linux.mount("tmpfs", view.root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
    # Folders that hold the new root are bound into it; unbindable keeps it from being copied into itself.
    linux.mount(None, view.root, None, linux.MS_UNBINDABLE)
    for operation in view.operations:
        _carry_out(operation)
    for folder in ("tmp", "dev/shm"):
        os.chmod(f"{view.root}/{folder}", 0o1777)  # noqa: S103 - as /tmp is everywhere
    os.chdir(view.root)
    linux.pivot_root_here()


def _carry_out(operation: tuple[str, ...]) -> None:
    match operation:
        case ("dir", path):
            os.makedirs(path, exist_ok=True)
        case ("file", path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        case ("link", path, target):
            if not os.path.lexists(path):
                os.symlink(target, path)
        case ("tmpfs", path):
            linux.mount("tmpfs", path, "tmpfs", linux.MS_NOSUID, "mode=755")
        case (kind, source, path):
            _bind(kind, source, path)
        case _:
            raise ValueError(f"unknown operation {operation}")


def _bind(kind: str, source: str, path: str) -> None:
    try:
        linux.mount(source, path, None, linux.MS_BIND | linux.MS_REC)
    except OSError:
        if kind != "try-bind":
            raise
    if kind == "bind-ro":
        linux.mount(None, path, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | _kept_flags(path))


def _kept_flags(path: str) -> int:
    flags = os.statvfs(path).f_flag
    return sum(mount for bit, mount in _KEPT_FLAGS.items() if flags & bit)
