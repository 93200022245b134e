"""Probes of what kernel and control group grant a node, read from /proc and /sys. Nothing is changed.

Standard library only, Python 3.9. What a machine does not tell is left out, and the check that asks for it is unknown.
"""

from __future__ import annotations

import os
import resource
from typing import List, Mapping, Optional, Tuple

from workflows.programs.parsers.text import ParsedOutput, Reading

ROOT = "/"
"""Below it /proc and /sys are looked for."""
GIB = float(1 << 30)
VOLATILE = ("BOOT_IMAGE", "root", "initrd", "ip", "hostname", "BOOTIF", "systemd.machine_id", "rd.luks.uuid")
"""Boot arguments that differ between nodes that are alike."""
SECRET = ("pass", "secret", "token", "key")
"""Parts of names of boot arguments that nobody else is to read."""
STUCK_STATES = {"D": "asleep without a way out", "Z": "dead and not fetched"}
STORAGE_VARIABLE = "PRIMUS_PREFLIGHT_PATH"
"""Folder on the storage that is tested."""

Arguments = Mapping[str, str]
"""Of a probe, as a suite gives them."""


class ArgumentError(ValueError):
    """An argument that cannot be measured with; the message names it."""


def number(arguments: Arguments, name: str, default: int, least: int = 1) -> int:
    """An argument as a whole number.

    Raises:
        ArgumentError: it is none, or too small.
    """
    text = arguments.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise ArgumentError(f"{name}: must be a whole number, got {text!r}") from None
    if value < least:
        raise ArgumentError(f"{name}: must be at least {least}, got {value}")
    return value


def read(path: str) -> Optional[str]:
    """A small file below `ROOT`; None where it cannot be read."""
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def listed(path: str) -> List[str]:
    """Names in a folder below `ROOT`, in order; none where it is not there."""
    try:
        return sorted(os.listdir(os.path.join(ROOT, path)))
    except OSError:
        return []


def parsed_or_reason(readings: List[Reading], nothing: str) -> ParsedOutput:
    """The readings, or why there is none."""
    return ParsedOutput(tuple(readings), "" if readings else nothing)


def settings(_: Arguments) -> ParsedOutput:
    """Settings of the kernel, and what this pod may use of the node."""
    found: List[Reading] = []
    arguments = read("proc/cmdline")
    if arguments is not None:
        found.append(Reading("boot_arguments", word=lasting(arguments), line="/proc/cmdline"))
    words = {"iommu_mode": _iommu(), "transparent_hugepages": _hugepages(), "cpu_governor": _governor()}
    words["cpu_clocks"] = _clocks()
    found += [Reading(name, word=word, line=line) for name, (word, line) in words.items() if word]
    balancing = read("proc/sys/kernel/numa_balancing")
    if balancing is not None and balancing.isdigit():
        found.append(Reading("numa_balancing", float(balancing), "count", line=f"kernel.numa_balancing = {balancing}"))
    return parsed_or_reason(found + _process_ids() + _memory(), "neither /proc nor /sys can be read")


def lasting(arguments: str) -> str:
    """Boot arguments by name, without those that keep a secret or differ between nodes that are alike."""
    words = [(word.partition("=")[0], word) for word in arguments.split()]
    return " ".join(
        sorted(word for name, word in words if name not in VOLATILE and not any(part in name for part in SECRET))
    )


def _iommu() -> Tuple[str, str]:
    """`passthrough`, `translated` or `off`, and what says so."""
    groups = listed("sys/kernel/iommu_groups")
    if not groups:
        return "off", "/sys/kernel/iommu_groups is empty"
    kinds = {read(f"sys/kernel/iommu_groups/{group}/type") or "" for group in groups}
    line = f"types of {len(groups)} groups: {', '.join(sorted(kinds))}"
    if kinds == {"identity"}:
        return "passthrough", line
    return ("", line) if kinds == {""} else ("translated", line)


def _hugepages() -> Tuple[str, str]:
    text = read("sys/kernel/mm/transparent_hugepage/enabled") or ""
    return text.partition("[")[2].partition("]")[0], text


def _governor() -> Tuple[str, str]:
    """The governor of all processors; `none` where the machine has no say in its clocks; several: all of them."""
    cpus = [name for name in listed("sys/devices/system/cpu") if name[:3] == "cpu" and name[3:].isdigit()]
    if not cpus:
        return "", ""
    words = {read(f"sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor") or "none" for cpu in cpus}
    return ", ".join(sorted(words)), f"of {len(cpus)} processors"


def _clocks() -> Tuple[str, str]:
    """Least and most that the processors may run at, and whether beyond their base clock; `none` as of the governor."""
    cpus = [name for name in listed("sys/devices/system/cpu") if name[:3] == "cpu" and name[3:].isdigit()]
    if not cpus:
        return "", ""
    words = sorted({_clock_range(f"sys/devices/system/cpu/{cpu}/cpufreq") for cpu in cpus})
    boost = read("sys/devices/system/cpu/cpufreq/boost")
    turned_off = read("sys/devices/system/cpu/intel_pstate/no_turbo")
    if turned_off in ("0", "1"):
        boost = "1" if turned_off == "0" else "0"
    more = {"0": "; boost off", "1": "; boost on"}.get(boost or "", "")
    return ", ".join(words) + more, f"of {len(cpus)} processors"


def _clock_range(folder: str) -> str:
    least, most = (read(f"{folder}/scaling_{end}_freq") or "" for end in ("min", "max"))
    if not (least.isdigit() and most.isdigit()):
        return "none"
    return f"{int(least) // 1000} to {int(most) // 1000} MHz"


def _process_ids() -> List[Reading]:
    """How many processes and threads the kernel lets live at once: the smaller of its two limits."""
    texts = [read(f"proc/sys/kernel/{name}") or "" for name in ("pid_max", "threads-max")]
    limits = [int(text) for text in texts if text.isdigit()]
    line = f"pid_max {texts[0] or 'unknown'}, threads-max {texts[1] or 'unknown'}"
    return [Reading("process_ids", float(min(limits)), "count", line=line)] if len(limits) == len(texts) else []


def _memory() -> List[Reading]:
    lines = [line.partition(":") for line in (read("proc/meminfo") or "").splitlines()]
    sizes = {name: int(rest.split()[0]) for name, _, rest in lines if rest.split()[:1] and rest.split()[0].isdigit()}
    total = sizes.get("MemTotal", 0) * 1024.0
    found: List[Reading] = []
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard != resource.RLIM_INFINITY or total:
        unlimited = hard == resource.RLIM_INFINITY
        line = "unlimited: all of the node's memory" if unlimited else f"{hard} bytes"
        found.append(Reading("memlock", (total if unlimited else hard) / GIB, "GiB", line=line))
    try:
        shared = os.statvfs(os.path.join(ROOT, "dev/shm"))
        found.append(Reading("shared_memory", shared.f_blocks * shared.f_frsize / GIB, "GiB", line="size of /dev/shm"))
    except OSError:
        pass
    if total and "HugePages_Total" in sizes and "Hugepagesize" in sizes:
        reserved = sizes["HugePages_Total"] * sizes["Hugepagesize"] * 1024.0
        line = f"{sizes['HugePages_Total']} pages of {sizes['Hugepagesize']} KiB"
        found.append(Reading("hugepages_reserved", 100.0 * reserved / total, "%", line=line))
    return found


def versions(_: Arguments) -> ParsedOutput:
    """Versions of kernel, driver and libraries, as far as files tell them."""
    places = {
        "kernel_version": ("proc/sys/kernel/osrelease",),
        "driver_version": ("sys/module/amdgpu/version", "sys/module/nvidia/version"),
        "gpu_library_version": ("opt/rocm/.info/version", "usr/local/cuda/version.json"),
    }
    found: List[Reading] = []
    for quantity, paths in places.items():
        for path in paths:
            text = read(path)
            if text:
                found.append(Reading(quantity, word=_version(text), line=f"/{path}"))
                break
    library = _collective_library()
    if library:
        found.append(Reading("collective_library_version", word=library, line="name of the library's file"))
    return parsed_or_reason(found, "no version can be read")


def _version(text: str) -> str:
    """The version in a file: its first line, or of CUDA's list the toolkit's own."""
    if text.startswith("{"):
        return text.partition('"cuda"')[2].partition('"version"')[2].partition('"')[2].partition('"')[0]
    return text.splitlines()[0].strip()


def _collective_library() -> str:
    for folder in ("opt/rocm/lib", "usr/lib/x86_64-linux-gnu", "usr/lib64"):
        for name in reversed(listed(folder)):
            kind, _, version = name.partition(".so.")
            if kind in ("librccl", "libnccl") and version.count(".") >= 1:
                return f"{kind[3:]} {version}"
    return ""


def disk_space(arguments: Arguments) -> ParsedOutput:
    """How full the file system of `path` is; without it the storage that is tested.

    Raises:
        OSError: it is not there.
    """
    path = arguments.get("path") or os.environ.get(STORAGE_VARIABLE) or ROOT
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)  # a folder that nobody has made yet lies on the file system of the one above
    space = os.statvfs(path)
    found: List[Reading] = []
    usable = space.f_blocks - space.f_bfree + space.f_bavail
    if usable:
        used = 100.0 * (space.f_blocks - space.f_bfree) / usable
        free = space.f_bavail * space.f_frsize / GIB
        found.append(Reading("disk_used", used, "%", path, line=f"{free:.1f} GiB are free for everybody"))
    if space.f_files:
        used = 100.0 * (space.f_files - space.f_ffree) / space.f_files
        found.append(Reading("inodes_used", used, "%", path, line=f"{space.f_ffree} are free"))
    return parsed_or_reason(found, f"the file system of {path} tells neither its size nor its inodes")


def processes(arguments: Arguments) -> ParsedOutput:
    """Processes that have not run for longer than `seconds` (300) and cannot be ended, as far as this pod sees them."""
    limit = float(arguments.get("seconds", "300"))
    uptime = read("proc/uptime")
    if uptime is None:
        return ParsedOutput(unknown="/proc/uptime cannot be read")
    now = float(uptime.split()[0])
    stuck: List[str] = []
    for pid in (name for name in listed("proc") if name.isdigit()):
        state = (read(f"proc/{pid}/stat") or "").rpartition(") ")[2][:1]
        if state not in STUCK_STATES:
            continue
        ran_at = _last_ran(pid)
        if ran_at is None and os.path.exists(os.path.join(ROOT, "proc", pid)):
            return ParsedOutput(
                unknown=f"process {pid} is {STUCK_STATES[state]}, and this kernel does not tell since when"
            )
        if ran_at is not None and now - ran_at > limit:
            stuck.append(f"process {pid} is {STUCK_STATES[state]} and has not run for {now - ran_at:.0f} s")
    return ParsedOutput((Reading("stuck_processes", float(len(stuck)), "count", line="; ".join(stuck[:4])),))


def _last_ran(pid: str) -> Optional[float]:
    """When a process last had a processor, seconds since boot; None: the kernel does not tell."""
    for line in (read(f"proc/{pid}/sched") or "").splitlines():
        if line.startswith("se.exec_start"):
            try:
                return float(line.rpartition(":")[2]) / 1000.0
            except ValueError:
                return None
    return None


PROBES = {"node-settings": settings, "versions": versions, "disk-space": disk_space, "processes": processes}
"""By the names of `profiles/checks/catalogue.py`."""
