"""Background processes of a home: started once, found again by pid and start time, stopped by pid only.

A pid alone may belong to another process a moment later. No Prefect here.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten

from profiles.errors import Unavailable
from profiles.vocabulary import KnownBy
from tasks.secret_files import STARTER, by_files
from workflows.model.records import Actor


def process_start(pid: int) -> float | None:
    """Start time of a process in clock ticks since boot, None where it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else float(fields[19])


def own_user() -> Actor:
    """Who runs this process, by its real user id and what this machine calls that: `ada@login-1`, `uid-4711@login-1`.

    Nothing of the environment is asked. `sudo` changes the real user id, so what it runs is root's. The id is the
    kernel's word and not the C library's, which `fakeroot` answers for; with any preloaded library names are not asked.
    In a user namespace anybody may be any user: what is there is `unverified`. Whoever runs other code than ours can
    write what he wants, as can whoever may write the ledger.
    """
    host = socket.gethostname()
    try:
        status, ids = (Path(f"/proc/self/{name}").read_text(errors="replace") for name in ("status", "uid_map"))
    except OSError:
        return Actor(f"uid-{os.getuid()}@{host}", KnownBy.UNVERIFIED)
    uid = int(status.partition("\nUid:")[2].split(maxsplit=1)[0])
    if ids.split() != _ALL_USERS:
        return Actor(f"uid-{uid}@{host}", KnownBy.UNVERIFIED)
    return Actor(f"{_name_of(uid)}@{host}", KnownBy.OS_USER)


_ALL_USERS = ["0", "0", "4294967295"]
"""Inside and outside ids are the same, and there are all: only the machine's own namespace is so, for who has no rights
over it."""
_NAME = re.compile(r"[A-Za-z0-9_.+$\\@-]{1,64}")
USERS = Path("/etc/passwd")


def _name_of(uid: int) -> str:
    """Its name where it is one that people tell apart at a glance, else its number."""
    with suppress(KeyError, OSError):
        name, file = pwd.getpwuid(uid).pw_name, USERS.stat()
        # Of root's, and no other file laid over it: some containers of users without rights let them do that.
        is_the_machines = file.st_uid == 0 and file.st_dev == USERS.parent.stat().st_dev
        if _NAME.fullmatch(name) and is_the_machines and not os.environ.get("LD_PRELOAD"):
            return name
    return f"uid-{uid}"


LAST_SECONDS = 5.0
"""For the kernel to take a killed process away, whatever grace it was given before."""
LAST_BYTES, MOST_CHARACTERS = 16_384, 400
"""Of a log that ended: more than any traceback of ours is not read, and more is not shown."""
NO_WORD = "it left no word: killed from outside, or for want of memory (the kernel's log tells)"
_TRACE = "Traceback (most recent call last):\n"


ROOM_BYTES = 16 << 20
"""What a background process may need of a home's disk to begin: an empty server's database with its log takes 6 MB."""
FULL = (errno.ENOSPC, errno.EDQUOT)
DRIVER = "primus-driver"
"""Name in the kernel of what a service forked to drive runs, which outlives the service."""


@dataclass(frozen=True)
class Recorded:
    """A process we started: its pid, and the start time that distinguishes it from a later one with that pid."""

    pid: int
    started_at: float
    detail: str = ""

    def lived(self) -> float:
        """For how many seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started_at / os.sysconf("SC_CLK_TCK")


def no_room(folder: Path, size: int = ROOM_BYTES) -> str:
    """Why `size` bytes cannot be written below a folder, by trying; "" where they can."""
    probe = folder / f".room-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        return unwritten(folder, error, size)
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


def unwritten(folder: Path, error: OSError, size: int = 0) -> str:
    """What it means that something could not be written below a folder, and what to do."""
    if error.errno not in FULL:
        return f"{folder} cannot be written ({error.strerror}): look at its owner, its mode and its mount"
    with suppress(OSError):
        free = os.statvfs(folder)
        needed = f", {size / 1e6:.0f} MB are needed" if size else ""
        has = f"{free.f_bavail * free.f_frsize / 1e6:.1f} MB are free{needed}"
        return f"disk full: {has} at {folder}: free some space (`primus gc` removes what no run needs)"
    return f"disk full at {folder}: free some space"


def start_recorded(
    path: Path, module: str, words: Sequence[str], log: Path, environment: Mapping[str, str], detail: str
) -> int:
    """Start the service that a module is, with its secrets by files; returns its pid.

    Its pid file is `path`, in the home: where that cannot be written, nothing is left alive.

    Raises:
        Unavailable: the disk is full or cannot be written; nothing runs.
    """
    if why := no_room(path.parent):
        raise Unavailable(f"{path.stem} is not started: {why}", 5.0)
    try:
        command, seen = by_files(path.parent, module, environment)
        pid = spawn([*command, *words], log, seen)
    except OSError as error:
        raise Unavailable(f"{path.stem} cannot be started: {error}", 5.0) from error
    record_or_end(path, pid, detail)
    return pid


def record_or_end(path: Path, pid: int, detail: str = "") -> None:
    """Write the pid file of a process that was just started; where that fails the process is ended.

    Raises:
        Unavailable: the file could not be written.
    """
    try:
        record(path, pid, detail)
    except BaseException as error:
        _end(Recorded(pid, process_start(pid) or 0.0), 0.0)
        if isinstance(error, OSError):
            raise Unavailable(f"{path.stem} was ended again: {unwritten(path.parent, error)}", 5.0) from error
        raise


def services_of(home: Path, modules: Collection[str]) -> dict[int, str]:
    """Living processes that `python -m` started for this home, by pid: what no pid file may name any more.

    Drivers that one of them forked are not among them.
    """
    found = dict[int, str]()
    wanted = f"PREFECT_HOME={home / 'prefect'}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, ValueError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            at = words.index(b"-m") + 1
            module = words[at + 1 if words[at].decode() == STARTER else at].decode()
            if module not in modules or wanted not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            if (folder / "comm").read_text().strip() != DRIVER:
                found[int(folder.name)] = module
    return found


def name_driver() -> None:
    """Say that this process, forked from a service, drives runs: who ends the services of a home leaves it alone."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(DRIVER)


def end_services(home: Path, modules: Collection[str], grace_seconds: float = 10.0) -> list[str]:
    """End them, those that no pid file names as well; the modules of those that lived.

    Raises:
        Unavailable: one is still there after SIGKILL.
    """
    found = services_of(home, modules)
    for pid in found:
        if (began := process_start(pid)) is not None:
            _end(Recorded(pid, began), grace_seconds)
    return [module for module in modules if module in found.values()]


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str], *, stdin: int | None = None) -> int:
    """Start a process in a session of its own; its output goes to `log`. Returns its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=sink,
            stderr=sink,
            env=dict(environment),
            start_new_session=True,
            cwd="/",
        )
    process.returncode = 0  # it outlives us on purpose: no warning that it still runs
    return process.pid


def record(path: Path, pid: int, detail: str = "") -> Recorded:
    """Write the pid file atomically."""
    made = Recorded(pid, process_start(pid) or 0.0, detail)
    write_whole(path, json.dumps(asdict(made)))
    return made


def write_whole(path: Path, text: str) -> None:
    """Write a small state file at once: whoever reads sees all of it or what stood there before."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def written(path: Path) -> Recorded | None:
    """The process that a pid file names, which may have ended; None where there is no such file."""
    try:
        return Recorded(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def recorded(path: Path) -> Recorded | None:
    """The living process of a pid file, None where there is none."""
    found = written(path)
    return found if found is not None and process_start(found.pid) == found.started_at else None


def last_words(log: Path) -> str:
    """How a process ended, by its log: the error that it did not survive, else the last line."""
    try:
        text = log.read_bytes()[-LAST_BYTES:].decode("utf-8", "replace").rstrip()
    except OSError:
        text = ""
    if not text:
        return NO_WORD
    _, found, trace = text.rpartition(_TRACE)
    lines = trace.splitlines()
    error = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), None)
    said = " ".join(lines[error:]) if found and error is not None else lines[-1]
    return shorten(said, MOST_CHARACTERS, placeholder=" …")


def stop(path: Path, grace_seconds: float = 10.0) -> bool:
    """End the process of a pid file with everything it started; True where one lived.

    Raises:
        Unavailable: it is still there after SIGKILL.
    """
    found = recorded(path)
    if found is not None:
        _end(found, grace_seconds)
    remove(path)
    return found is not None


def remove(path: Path) -> None:
    """Remove a state file; what is not there need not be removed, also where nothing may be written."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        if path.exists():
            raise


def _end(found: Recorded, grace_seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(found.pid, number)
        if _gone(found, grace_seconds if number is signal.SIGTERM else max(grace_seconds, LAST_SECONDS)):
            return
    raise Unavailable(f"process {found.pid} does not end", 5.0)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _gone(found: Recorded, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while process_start(found.pid) == found.started_at:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
