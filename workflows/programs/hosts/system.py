"""A host's operating system: what it is, how it runs, what it is set to."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from workflows.programs.hosts.items import CannotReadError, containerd, listed, read, read_or, tool
from workflows.programs.hosts.options import Options

PROGRAMS = {
    "kubelet": (["kubelet", "--version"], r"v\d\S*"),
    "kubeadm": (["kubeadm", "version", "-o", "short"], r"v\d\S*"),
    "containerd": (["containerd", "--version"], r"v?\d+\.\d+\.\S+"),
    "runc": (["runc", "--version"], r"\d+\.\d+\.\S+"),
}
"""How programs say their version, and where in what they say it stands."""
UNLIMITED = -1


def works(asked: Options) -> Dict[str, Callable[[], Any]]:
    """Item -> how it is read."""
    root = asked.root
    found: Dict[str, Callable[[], Any]] = {
        "hostname": platform.node if root == "/" else lambda: read(root, "/proc/sys/kernel/hostname").strip(),
        "machine_id": lambda: _machine_id(root),
        "system": lambda: _system(root),
        "kernel": platform.release if root == "/" else lambda: read(root, "/proc/sys/kernel/osrelease").strip(),
        "arch": platform.machine,
        "python": platform.python_version,
        "init": lambda: read(root, "/proc/1/comm").strip(),
        "systemd": lambda: tool(["systemctl", "is-system-running"], codes=(0, 1)).strip(),
        "cgroup": lambda: _cgroup(root),
        "time_synchronised": _synchronised,
        "memory": lambda: _memory(root),
        "entropy": lambda: int(read(root, "/proc/sys/kernel/random/entropy_avail")),
        "limits": _limits,
        "privilege": _privilege,
        "tuning": lambda: _tuning(root),
    }
    found.update({f"sysctl:{name}": partial(_sysctl, root, name) for name in asked.sysctls})
    found.update({f"unit:{name}": partial(_unit, name) for name in asked.units})
    found.update({f"file:{path}": partial(_digest, root, path) for path in asked.files})
    found.update({f"version:{name}": partial(_version, name) for name in PROGRAMS})
    if asked.images:
        found["images"] = _images
    return found


def _machine_id(root: str) -> str:
    found = read(root, "/etc/machine-id").strip()
    if not re.fullmatch("[0-9a-f]{32}", found):
        raise CannotReadError(f"/etc/machine-id holds no id but {found[:40]!r}: run systemd-machine-id-setup")
    return found


def _system(root: str) -> Dict[str, str]:
    pairs = (line.split("=", 1) for line in read(root, "/etc/os-release").splitlines() if "=" in line)
    told = {name.strip(): value.strip().strip("\"'") for name, value in pairs}
    return {"id": told.get("ID", ""), "version": told.get("VERSION_ID", ""), "name": told.get("PRETTY_NAME", "")}


def _cgroup(root: str) -> int:
    lines = [line.split() for line in read(root, "/proc/mounts").splitlines()]
    kinds = {words[2] for words in lines if len(words) > 2 and words[1].startswith("/sys/fs/cgroup")}
    if "cgroup" in kinds:
        return 1  # also where version 2 is mounted beside it: the controllers are here
    if "cgroup2" in kinds:
        return 2
    raise CannotReadError("no control groups are mounted below /sys/fs/cgroup")


def _synchronised() -> bool:
    return tool(["timedatectl", "show", "-p", "NTPSynchronized", "--value"]).strip() == "yes"


def _memory(root: str) -> Dict[str, int]:
    kib = {
        found.group(1): int(found.group(2))
        for found in re.finditer(r"^(\w+):\s+([0-9]+) kB$", read(root, "/proc/meminfo"), re.MULTILINE)
    }
    if "MemTotal" not in kib:
        raise CannotReadError("/proc/meminfo does not say how much memory there is")
    swaps = [line.split() for line in read_or(root, "/proc/swaps").splitlines()[1:]]  # file, type, KiB, …
    return {
        "total_bytes": kib["MemTotal"] << 10,
        "available_bytes": kib.get("MemAvailable", 0) << 10,
        "swap_bytes": sum(int(words[2]) for words in swaps if len(words) > 2) << 10,
    }


def _limits() -> Dict[str, int]:
    def hard(which: int) -> int:
        found = resource.getrlimit(which)[1]
        return UNLIMITED if found == resource.RLIM_INFINITY else found

    return {
        "open_files": hard(resource.RLIMIT_NOFILE),
        "processes": hard(resource.RLIMIT_NPROC),
        "locked_bytes": hard(resource.RLIMIT_MEMLOCK),
    }


def _privilege() -> str:
    """`root`, or how sudo refuses."""
    if os.geteuid() == 0:
        return "root"
    try:
        tool(["sudo", "-n", "true"])
    except CannotReadError as error:
        return str(error)
    return "root"


def _tuning(root: str) -> Dict[str, str]:
    """What is not a kernel parameter, or has other words there; "": the kernel has no such thing."""
    pages = re.search(r"\[(\w+)\]", read_or(root, "/sys/kernel/mm/transparent_hugepage/enabled"))
    policies = "/sys/devices/system/cpu/cpufreq"
    governors = {read_or(root, f"{policies}/{name}/scaling_governor") for name in listed(root, policies)} - {""}
    return {
        "transparent_hugepages": pages.group(1) if pages else "",
        "numa_balancing": {"0": "off", "1": "on"}.get(read_or(root, "/proc/sys/kernel/numa_balancing"), ""),
        "cpu_governor": ",".join(sorted(governors)),
    }


def _sysctl(root: str, name: str) -> str:
    return " ".join(read(root, "/proc/sys/" + name.replace(".", "/")).split())


def _unit(name: str) -> Dict[str, str]:
    told = tool(["systemctl", "show", "-p", "LoadState,ActiveState,SubState,UnitFileState", "--", name])
    pairs = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    return {
        "loaded": pairs.get("LoadState", ""),
        "active": pairs.get("ActiveState", ""),
        "state": pairs.get("SubState", ""),
        "enabled": pairs.get("UnitFileState", ""),
    }


def _digest(root: str, path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(os.path.join(root, path.lstrip("/")), "rb") as file:
            for block in iter(partial(file.read, 1 << 20), b""):
                digest.update(block)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CannotReadError(f"{path}: {error.strerror or error}") from error
    return digest.hexdigest()


def _version(name: str) -> Optional[str]:
    """As it is written there, without a leading v; "" where there is no such program."""
    argv, pattern = PROGRAMS[name]
    try:
        told = tool(argv)
    except CannotReadError as error:
        if str(error).startswith("there is no "):
            return ""
        raise
    found = re.search(pattern, told)
    if found is None:
        raise CannotReadError(f"{name} does not say its version but {told[:80]!r}")
    return found.group().lstrip("v")


def _images() -> List[Dict[str, str]]:
    lines = containerd("--namespace", "k8s.io", "images", "ls").splitlines()[1:]
    rows = [words for words in (line.split() for line in lines) if len(words) > 2]  # name, media type, digest
    return [{"name": words[0], "digest": words[2]} for words in rows]
