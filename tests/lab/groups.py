"""Control groups: one a host in every tree, so that its processes are found by nothing but that.

systemd is started inside, so what it takes for the top of each tree is the host's own group. The bed's module knows the
trees; version 2 alone was not tried.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.bed.commands import until
from tests.bed.groups import below, removed, trees, trees_of_others
from tests.lab.layout import NAMESPACE


def paths(host: str = "") -> list[Path]:
    """The groups of a host, or ("") of all of them, in every tree where they are."""
    return [path for tree in [*trees(), *trees_of_others()] if (path := tree / NAMESPACE / host).exists()]


def make(host: str) -> list[Path]:
    """Make them; returns the ones that a process has to enter."""
    made: list[Path] = []
    for tree in trees():
        for path in (tree / NAMESPACE, tree / NAMESPACE / host):
            path.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (path / setting).exists():
                    (path / setting).write_text((path.parent / setting).read_text())
        made.append(tree / NAMESPACE / host)
    return made


def spawn(host: str, lines: Sequence[str], log: Path) -> None:
    """Start lines of a shell in the groups of a host; they outlive us, and nobody waits for them."""
    enter = [f"echo $$ >{path}/cgroup.procs" for path in make(host)]
    command = ["setsid", "--fork", "/bin/sh", "-c", "\n".join([*enter, *lines])]
    with log.open("ab") as said:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", check=True)


def members(host: str = "") -> set[int]:
    """Ids of all processes of a host, or of all of them."""
    found: set[int] = set()
    for top in paths(host):
        for path in [top, *below(top)]:
            with contextlib.suppress(OSError):
                found.update(int(word) for word in (path / "cgroup.procs").read_text().split())
    return found


def remove(host: str = "") -> None:
    """Remove them, the deepest first; they must be empty."""
    for top in paths(host):
        for path in [*below(top), top]:
            with contextlib.suppress(FileNotFoundError):
                until(f"removal of {path}", lambda path=path: removed(path), limit_s=5.0)
