"""Background processes of a home: started once, found again by pid and start time, stopped by pid only.

A pid alone may belong to another process a moment later. No Prefect here.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten

from profiles.errors import Unavailable
from profiles.vocabulary import KnownBy
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


LAST_BYTES, MOST_CHARACTERS = 16_384, 400
"""Of a log that ended: more than any traceback of ours is not read, and more is not shown."""
NO_WORD = "it left no word: killed from outside, or for want of memory (the kernel's log tells)"
_TRACE = "Traceback (most recent call last):\n"


@dataclass(frozen=True)
class Recorded:
    """A process we started: its pid, and the start time that distinguishes it from a later one with that pid."""

    pid: int
    started_at: float
    detail: str = ""


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
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(asdict(made)))
    temporary.replace(path)
    return made


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
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal_group(found.pid, number)
            if _gone(found, grace_seconds):
                break
        else:
            raise Unavailable(f"process {found.pid} does not end", 5.0)
    path.unlink(missing_ok=True)
    return found is not None


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
