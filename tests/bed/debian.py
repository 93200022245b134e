"""What the machine itself must have: root, Go, and a few of Debian's packages, which are installed where they miss."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.bed import versions
from tests.bed.commands import BedError, run

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "/bin/busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "sysctl": "procps",
}
"""What is looked for, and the package that has it."""


def need_root() -> None:
    """BedError unless root: namespaces, mounts and control groups are made."""
    if os.geteuid() != 0:
        raise BedError("the bed needs root: it makes network namespaces, mounts and control groups of its own")


def need_go() -> None:
    """BedError unless the Go that the modules ask for is installed."""
    wanted = versions.go_needed()
    words = ".".join(map(str, wanted))
    if shutil.which("go") is None:
        raise BedError(f"no Go on PATH: install Go {words} or newer, the bed's programs are compiled from source")
    told = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+(?:\.\d+)*)", told)
    if found is None or tuple(int(part) for part in found.group(1).split(".")) < wanted:
        raise BedError(f"Go {words} or newer is needed, found {told.strip() or 'one that does not tell its version'}")


def missing(wanted: Mapping[str, str] = PACKAGES) -> list[str]:
    """Packages that are not installed."""
    return sorted({package for what, package in wanted.items() if shutil.which(what) is None and not _file(what)})


def _file(path: str) -> bool:
    return path.startswith("/") and Path(path).exists()


def install(wanted: Mapping[str, str] = PACKAGES) -> list[str]:
    """Install what is missing; returns what was. BedError where that cannot be done."""
    packages = missing(wanted)
    if not packages:
        return []
    if shutil.which("apt-get") is None:
        raise BedError(f"install these first (no apt-get here to do it): {', '.join(packages)}")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq")
    run(*quiet, "update")
    run(*quiet, "install", "-y", "--no-install-recommends", *packages)
    left = missing(wanted)
    if left:
        raise BedError(f"apt-get installed {', '.join(packages)}, but still missing: {', '.join(left)}")
    return packages
