"""What the bed changes on the machine outside of its own folder: noted before, put back and checked afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.bed.layout import Folder

KERNEL_SETTINGS = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""A kubelet sets these for the whole machine."""
FOLDERS = (
    "/etc/kueue",
    "/run/containerd",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""Paths that are written into the programs and no setting moves; only those that were not there before are removed."""


def note(folder: Folder) -> None:
    """Write down how the machine is before the bed touches it; nothing where that was done."""
    if not folder.machine.exists():
        absent = [path for path in FOLDERS if not Path(path).exists()]
        folder.machine.write_text(json.dumps({"kernel": kernel(), "absent": absent}, indent=1) + "\n", encoding="utf-8")


def kernel() -> dict[str, str]:
    """What the kernel's settings are now, by name."""
    return {name: Path("/proc/sys", name).read_text().strip() for name in KERNEL_SETTINGS}


def _noted(folder: Folder) -> tuple[dict[str, str], list[str]]:
    if not folder.machine.exists():
        return {}, []
    noted = json.loads(folder.machine.read_text(encoding="utf-8"))
    return noted["kernel"], noted["absent"]


def restore(folder: Folder) -> None:
    """Put everything back."""
    settings, absent = _noted(folder)
    for name, value in settings.items():
        if kernel()[name] != value:
            Path("/proc/sys", name).write_text(value)
    for path in absent:
        shutil.rmtree(path, ignore_errors=True)


def leftovers(folder: Folder) -> list[str]:
    """What is not as it was, in words."""
    settings, absent = _noted(folder)
    now = kernel()
    return [
        *(f"kernel setting {name}={now[name]}, was {value}" for name, value in settings.items() if now[name] != value),
        *(f"folder {path}" for path in absent if Path(path).exists()),
    ]
