"""The system calls that Python 3.11 does not offer: namespaces, mounts, inotify, process controls.

Used by the supervisor and its children, so it stays small: ctypes and nothing else.
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_REC = 0x4000
MS_UNBINDABLE = 1 << 17
MS_PRIVATE = 1 << 18
MS_RELATIME = 1 << 21
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
IOPRIO_WHO_PROCESS = 1
KERNEL_SIGACTION_BYTES = 32
OWN_SIGNALS = (32, 33)
"""Of the C library: its threads are cancelled and change their user by them."""
IN_MODIFY = 0x2
IN_MOVED_TO = 0x80
IN_CREATE = 0x100

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount as the system call does; the error names the target."""
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data))
    _check(result, f"mount {source or kind or ''} on {target}")


def pivot_root_here() -> None:
    """Make the working directory the root and forget the old one as container runtimes do."""
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Set the host name of this UTS namespace (at most 64 bytes)."""
    encoded = os.fsencode(name)[:64]
    _check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def set_parent_death_signal(number: int) -> None:
    """Have the kernel send `number` to this process when its parent dies. A new user namespace clears it."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number)), "prctl")


def set_process_name(name: str) -> None:
    """The name that `ps` shows, at most 15 bytes."""
    _check(_libc.prctl(PR_SET_NAME, os.fsencode(name)[:15]), "prctl")


def set_io_class(io_class: int) -> None:
    """Scheduling class of this process' input and output; 0: none of its own."""
    numbers = {"x86_64": 251, "aarch64": 30}
    if (number := numbers.get(os.uname().machine)) is not None:
        _check(_libc.syscall(number, IOPRIO_WHO_PROCESS, 0, io_class << 13), "ioprio_set")


def take_default_action(number: int) -> None:
    """The default action for a signal that the C library keeps for itself, and ignores in what it spawns."""
    numbers = {"x86_64": 13, "aarch64": 134}
    if (call := numbers.get(os.uname().machine)) is not None:
        _check(_libc.syscall(call, number, bytes(KERNEL_SIGACTION_BYTES), None, 8), "rt_sigaction")


def become_subreaper() -> None:
    """Descendants whose parent died become children of this process, so none escapes."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)), "prctl")


def inotify(folder: str) -> int:
    """A descriptor that becomes readable when a file in `folder` is written, created or renamed into it."""
    descriptor = _check(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify_init1")
    try:
        mask = ctypes.c_uint32(IN_MODIFY | IN_MOVED_TO | IN_CREATE)
        _check(_libc.inotify_add_watch(descriptor, _bytes(folder), mask), f"inotify_add_watch {folder}")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def drain(descriptor: int) -> None:
    """Read away what is pending on a non-blocking descriptor."""
    try:
        while os.read(descriptor, 65536):
            pass
    except BlockingIOError:
        return
