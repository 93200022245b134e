"""Settings of the kernel that all hosts share with this machine: noted before, put back and checked afterwards.

A host's `net.*` is its own; `fs.*`, `kernel.*` and `vm.*` are the machine's, whoever writes them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.lab.layout import Folder

TOP = Path("/proc/sys")
SHARED = ("fs", "kernel", "vm")
OWN_WILL = ("fs/binfmt_misc/", "kernel/ns_last_pid", "kernel/random/", "kernel/pty/", "kernel/seccomp/")
"""What changes by itself, or is no setting."""


def settings() -> dict[str, str]:
    """All that can be read and written, by name."""
    found: dict[str, str] = {}
    for top in SHARED:
        for folder, _, names in os.walk(TOP / top):
            for path in (Path(folder, name) for name in names):
                name = path.relative_to(TOP).as_posix()
                if path.stat().st_mode & 0o600 == 0o600 and not name.startswith(OWN_WILL):
                    found |= _read(name, path)
    return found


def _read(name: str, path: Path) -> dict[str, str]:
    try:
        return {name: path.read_text().strip()}
    except (OSError, UnicodeDecodeError):
        return {}


def note(folder: Folder) -> None:
    """Write down how the machine is before a host touches it."""
    folder.machine.write_text(json.dumps(settings(), indent=1) + "\n", encoding="utf-8")


def _noted(folder: Folder) -> dict[str, str]:
    return json.loads(folder.machine.read_text(encoding="utf-8")) if folder.machine.exists() else {}


def changed(folder: Folder) -> dict[str, str]:
    """Settings that are not as they were, with their value of before."""
    now = settings()
    return {name: value for name, value in _noted(folder).items() if now.get(name) != value}


def restore(folder: Folder) -> None:
    """Put everything back."""
    for name, value in changed(folder).items():
        (TOP / name).write_text(value)


def leftovers(folder: Folder) -> list[str]:
    """What is not as it was, in words."""
    return [f"kernel setting {name}, was {value}" for name, value in changed(folder).items()]
