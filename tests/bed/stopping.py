"""Take a bed down and show that nothing of it is left."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bed import groups, machine, network, supervisor
from tests.bed.commands import run
from tests.bed.layout import Folder
from tests.bed.processes import Processes

KEPT = {"log", "shared", "times.json"}
"""What stays in the folder for reading afterwards; the next `up` clears the logs away."""


def down(folder: Folder) -> list[str]:
    """Stop everything of the bed; returns what is left of it, which should be nothing."""
    processes = Processes(folder)
    supervisor.end(processes)
    for name in ("kube-apiserver", "etcd"):
        processes.send(name, signal.SIGTERM)  # they may flush; all others have nothing to lose
    groups.end()
    for name in processes.names():
        processes.stop(name)
    _unmount(folder)
    network.down()
    groups.remove()
    machine.restore(folder)
    left = leftovers(folder)
    if not left:  # a mount that is still there may lead to files that are not the bed's
        _clear(folder)
    return left


def _clear(folder: Folder) -> None:
    """Remove all but what is kept: a node's unpacked images are a hundred thousand files, which `rm` takes quickest."""
    found = [path for path in folder.root.iterdir() if path.name not in KEPT] if folder.root.exists() else []
    nodes = list(folder.root.glob("nodes/*"))
    with ThreadPoolExecutor(max_workers=4) as lanes:
        list(lanes.map(_remove, nodes))
    for path in found:
        _remove(path)


def _remove(path: Path) -> None:
    run("rm", "-rf", "--one-file-system", str(path))


def mounts(folder: Folder) -> list[str]:
    """Mount points below the bed's folder, the deepest first."""
    lines = Path("/proc/mounts").read_text().splitlines()
    points = (line.split()[1].replace("\\040", " ") for line in lines)
    return sorted((point for point in points if point.startswith(f"{folder.root}/")), reverse=True)


def _unmount(folder: Folder) -> None:
    for point in mounts(folder):
        run("umount", "-l", point, check=False)


def leftovers(folder: Folder) -> list[str]:
    """Everything of the bed that is still there, in words."""
    processes = Processes(folder)
    return [
        *(f"process {name}" for name in processes.names() if processes.running(name)),
        *(f"process {number} in a control group" for number in sorted(groups.members())),
        *(f"mount {point}" for point in mounts(folder)),
        *(f"network {name}" for name in network.leftovers()),
        *(f"control group {path}" for path in groups.leftovers()),
        *machine.leftovers(folder),
    ]
