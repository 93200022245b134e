"""Items by themselves: each is a value or the reason why it cannot be read, and none holds up or spoils another one."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from workflows.programs.runtime.bounded import run_program

TOOL_SECONDS = 10.0
SOCKET = "/run/containerd/containerd.sock"
DIAL_SECONDS = 3
"""For a socket that nobody serves: by itself ctr tries as long as a tool may take here, and would not say why."""
MOST_TEXT = 1 << 20
"""Bytes of one file; what is read here has some hundred."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"
"""Behind the caller's own: a login that runs no shell has a shorter one."""
WHY_CHARACTERS = 300

Item = Dict[str, Any]
"""`{"is": value}` or `{"why": reason}`."""


class CannotReadError(Exception):
    """An item cannot be read; the message says why, and what would help."""


def read(root: str, path: str) -> str:
    """A file of the host as text.

    Raises:
        CannotReadError: it is not there, or not for us.
    """
    try:
        with open(os.path.join(root, path.lstrip("/")), "rb") as file:
            return file.read(MOST_TEXT).decode("utf-8", "replace")
    except OSError as error:
        raise CannotReadError(f"{path}: {error.strerror or error}") from error


def read_or(root: str, path: str, otherwise: str = "") -> str:
    """A file of the host, stripped; `otherwise` where it cannot be read."""
    try:
        return read(root, path).strip()
    except CannotReadError:
        return otherwise


def listed(root: str, path: str) -> List[str]:
    """Names in a folder of the host, in order; none where there is no such folder."""
    try:
        return sorted(os.listdir(os.path.join(root, path.lstrip("/"))))
    except OSError:
        return []


def tool(argv: Sequence[str], codes: Sequence[int] = (0,)) -> str:
    """What a tool of the host prints.

    Raises:
        CannotReadError: it is not there, does not end in time or ends with another code.
    """
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}".lstrip(":"), "LC_ALL": "C"}
    found = _which(argv[0], environment["PATH"])
    if found is None:
        raise CannotReadError(f"there is no {argv[0]} on it")
    ended = run_program([found, *argv[1:]], TOOL_SECONDS, name=argv[0], environment=environment)
    if ended.problem:
        raise CannotReadError(ended.problem)
    if ended.code not in codes:
        raise CannotReadError(f"{argv[0]} ended with {ended.code}: {ended.last_words}")
    return ended.output


def containerd(*words: str) -> str:
    """What containerd's own client prints.

    Raises:
        CannotReadError: containerd is not there, or does not answer.
    """
    if not os.path.exists(SOCKET):
        raise CannotReadError(f"containerd does not run: there is no {SOCKET}")
    return tool(["ctr", f"--connect-timeout={DIAL_SECONDS}s", *words])


def _which(name: str, path: str) -> Optional[str]:
    places = (os.path.join(folder, name) for folder in path.split(":") if folder)
    return next((place for place in places if os.access(place, os.X_OK) and os.path.isfile(place)), None)


def item_of(work: Callable[[], Any]) -> Item:
    """What it returns, or why it cannot; no error leaves it."""
    try:
        return {"is": work()}
    except CannotReadError as error:
        return {"why": str(error)[:WHY_CHARACTERS]}
    except Exception as error:  # a host may hold anything: one item of it is lost, and says so
        return {"why": f"{type(error).__name__}: {error}"[:WHY_CHARACTERS]}


def side_by_side(works: Mapping[str, Callable[[], Any]], seconds: float) -> Dict[str, Item]:
    """All items at once; one that hangs (a dead file server) is told as that, and left to end with the program."""
    told: Dict[str, Item] = {}

    def look(name: str) -> None:
        told[name] = item_of(works[name])

    threads = {name: threading.Thread(target=look, args=(name,), daemon=True) for name in works}
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    late = {"why": f"it could not be read within {seconds:g} s"}
    return {name: told.get(name, late) for name in works}
