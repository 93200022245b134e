"""The folder of a preflight that all nodes of Slurm see: made, read, removed. Ours alone, and not for long."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from profiles.errors import Refused, Unavailable
from tasks.preflighting import Told
from tasks.programs import programs_archive
from workflows.programs.probe import unpacked
from workflows.slurm_job import ARCHIVE, OUTPUT, REPORT, SENT

PREFIX = ".primus-preflight-"
"""Beginning of the folders' names; a test's name follows, which begins so itself."""
LEFT_OVER_SECONDS = 2 * 86400.0
"""After so long nobody reads a test: whoever followed it was killed."""
MOST_BYTES = 1 << 20
"""No report is larger: they are packed, some KB each."""
LAST_CHARACTERS = 300
"""Of what a job printed, for a reason."""


def made(shared: Path, test: str, home: Path) -> Path:
    """The test's own folder in `shared`, with the programs in it; made where it is not there.

    Raises:
        Unavailable: it cannot be made or written.
        Refused: something of that name is there, and not ours.
    """
    folder = shared / f".{test}"
    archive = programs_archive(home).read_bytes()
    try:
        shared.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(shared)
        _own(folder)
        if not (folder / ARCHIVE).is_file() or (folder / ARCHIVE).read_bytes() != archive:
            write(folder / ARCHIVE, archive)
    except OSError as error:
        raise Unavailable(f"{folder} cannot be used ({error.strerror}): it must be writable for you", 5.0) from error
    return folder


def write(path: Path, content: bytes) -> None:
    """A complete file or none, in a folder of ours that is made where it is missing.

    Raises:
        Unavailable: it cannot be written.
    """
    try:
        _own(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be written ({error.strerror}): free space or check the rights", 5.0
        ) from error


def sent(own: Path) -> int:
    """Number of the job that was sent for the node of this folder; 0: none that we know of."""
    text = _read(own / SENT).strip()
    return int(text) if text.isdigit() else 0


def report(own: Path, node: str) -> Told | None:
    """What the node of this folder told; None: nothing yet. A report that cannot be read is its reason.

    Args:
        own: the node's folder.
        node: its name.
    """
    try:
        (own / REPORT).lstat()
    except OSError:
        return None  # not there, or the storage does not answer just now
    try:
        told: dict[str, Any] = json.loads(_read(own / REPORT))
        at, seconds = float(told["at"]), float(told["seconds"])
        if not (math.isfinite(at) and at > 0):
            raise ValueError("it says no time")
        return Told(node, at, seconds, unpacked(str(told["answers"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Told(node, why=f"its report cannot be read: {type(error).__name__}: {str(error)[:200]}")


def last_output(own: Path) -> str:
    """The end of what the job printed, in one line; "" where it printed nothing that can be seen here."""
    said = "".join(mark if mark.isprintable() else " " for mark in _read(own / OUTPUT, from_end=True))
    return " ".join(said.split())[-LAST_CHARACTERS:]


def forget(folder: Path) -> None:
    """It was read: remove it. What cannot be removed now is removed by a later test."""
    shutil.rmtree(folder, ignore_errors=True)


def _own(folder: Path) -> None:
    """Make a folder for ourselves, or find it.

    Raises:
        Refused: it is a link, a file, or somebody else's: our programs must not be changed by others.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise Refused("slurm.folder", f"{folder} is there and not ours alone: remove it") from None


def _remove_left_overs(shared: Path) -> None:
    """Folders of tests whose callers were killed."""
    now = time.time()
    for folder in shared.glob(f"{PREFIX}*"):
        try:
            found = folder.lstat()
        except OSError:
            continue  # somebody else was quicker
        old = now - found.st_mtime > LEFT_OVER_SECONDS
        if old and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and (folder / ARCHIVE).exists():
            forget(folder)


def _read(path: Path, *, from_end: bool = False) -> str:
    """Text of a plain file, at most `MOST_BYTES` of it; "" where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return ""
        if from_end and found.st_size > MOST_BYTES:
            file.seek(-MOST_BYTES, os.SEEK_END)
        try:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
