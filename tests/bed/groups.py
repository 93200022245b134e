"""Control groups: every process of the bed is in one of ours, so that all can be found again by nothing but that.

On version 1 of control groups each controller is a tree of its own; our processes are held in the tree `pids`, and the
kubelets' roots exist in all trees. Version 2 has one tree; that way was written after the documentation and not run.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.bed.commands import until

TOP = Path("/sys/fs/cgroup")
ROOT = "primus-bed"


def unified() -> bool:
    """One tree (version 2)."""
    return (TOP / "cgroup.controllers").exists()


def trees() -> list[Path]:
    """The mounted trees in which groups are made."""
    if unified():
        return [TOP]
    return [
        path for path in sorted(TOP.iterdir()) if path.is_dir() and not path.is_symlink() and path.name != "unified"
    ]


def trees_of_others() -> list[Path]:
    """Where container runtimes make groups after ours without being told: version 2 beside version 1."""
    beside = TOP / "unified"
    return [] if unified() or not beside.is_dir() else [beside]


def holding() -> Path:
    """The tree in which the bed's own processes are found."""
    return TOP if unified() else TOP / "pids"


def make(group: str) -> Path:
    """A group for processes of our own, as in `plane/etcd`; returns its folder."""
    path = holding() / ROOT / group
    path.mkdir(parents=True, exist_ok=True)
    return path


def make_kubelet_root(node: str) -> str:
    """The root of one kubelet in every tree; returns it as the kubelet wants it.

    Each kubelet needs its own, else one removes the other's pods as orphans.
    """
    name = f"{ROOT}/{node}"
    for tree in trees():
        for part in (ROOT, name):
            path = tree / part
            path.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (path / setting).exists() and not unified():
                    (path / setting).write_text((path.parent / setting).read_text())
            if unified():
                controllers = (path.parent / "cgroup.controllers").read_text().split()
                wanted = " ".join(f"+{controller}" for controller in controllers)
                with contextlib.suppress(OSError):
                    (path.parent / "cgroup.subtree_control").write_text(wanted)
    return f"/{name}"


def members(group: str = "") -> set[int]:
    """Ids of all processes in a group of ours and below, in whatever tree."""
    found: set[int] = set()
    for tree in trees():
        top = tree / ROOT / group
        for folder in [top, *below(top)]:
            with contextlib.suppress(OSError):
                found.update(int(word) for word in (folder / "cgroup.procs").read_text().split())
    return found


def below(top: Path) -> Iterator[Path]:
    """Groups below `top`, the deepest first."""
    for path, _, _ in os.walk(top, topdown=False):
        if Path(path) != top:
            yield Path(path)


def send(group: str, number: signal.Signals) -> int:
    """Signal every process of a group; returns how many there were."""
    found = members(group)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    return len(found)


def end(group: str = "", limit_s: float = 10.0) -> None:
    """SIGKILL until nothing is left; a fork may outrun one round."""
    until(f"the end of all processes of group {group or ROOT}", lambda: send(group, signal.SIGKILL) == 0, limit_s)


def remove() -> None:
    """All of our groups in all trees."""
    for tree in [*trees(), *trees_of_others()]:
        top = tree / ROOT
        for path in [*below(top), top]:
            with contextlib.suppress(FileNotFoundError):
                until(f"removal of {path}", lambda path=path: removed(path), limit_s=5.0)


def removed(path: Path) -> bool:
    """Remove one folder; a group that was just emptied may be busy for a moment (OSError)."""
    if path.exists():
        path.rmdir()
    return True


def leftovers() -> list[str]:
    """Groups of ours that are still there."""
    return [str(tree / ROOT) for tree in [*trees(), *trees_of_others()] if (tree / ROOT).exists()]
