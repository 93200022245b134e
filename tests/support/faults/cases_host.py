"""Cases of what the kernel says, of settings, disks and services, and of nodes that differ from their peers.

Kernel lines are printed ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from profiles.hardware import HardwareProfile
from profiles.vocabulary import FaultClass, NodeAction
from tests.support.faults.cases import (
    DISK,
    GPU,
    LINK,
    LOCKED_UP,
    NAMES,
    PASSES,
    PASSES_QUIETLY,
    UNKNOWN,
    UNKNOWN_WARNING,
    WARNED_OF,
    WRONG_SETTING,
    Case,
    fails,
)
from tests.support.faults.changes import BOTH, Change, gives, node, offers, services, writes
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import amd_metric, smi_xml
from tests.support.faults.trees import INFINIBAND, healthy

A, F = NodeAction, FaultClass
STUCK = fails(F.HANG, A.DRAIN)
OFFER = fails(F.SCHEDULING, A.REPAIR, certain=False)


def _stuck(made: VirtualNode, ran_at_milliseconds: float) -> None:
    made.write("proc/4711/stat", "4711 (ls) D 1 4711 4711 0 -1\n")
    made.write("proc/4711/sched", f"ls (4711, #threads: 1)\nse.exec_start      :   {ran_at_milliseconds:.6f}\n")


def says(*lines: str, first: str = "Linux version 6.8.0-60-generic (buildd@lcy02)") -> Change:
    """The kernel said these lines a minute ago."""

    def change(made: VirtualNode) -> None:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        young = [f"<3>[{max(now - 60.0, 1.0):12.6f}] {line}" for line in lines]
        made.tool("dmesg", {"-r": Said("\n".join([f"<5>[    0.000000] {first}", *young, ""]))})

    return change


XID = "NVRM: Xid (PCI:0000:14:00): {}, pid='<unknown>', name=<unknown>, {}"
FATAL: tuple[tuple[str, str], ...] = (
    ("a GPU fell off the bus", XID.format(79, "GPU has fallen off the bus.")),
    (
        "a double error of the memory",
        XID.format(48, "An uncorrectable double bit error (DBE) has been detected on GPU"),
    ),
    ("an uncontained error", XID.format(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")),
    (
        "the GPU's processor does not answer",
        XID.format(119, "Timeout after 6s of waiting for RPC response from GPU1 GSP!"),
    ),
    ("a remap failed", XID.format(64, "Row remapper error.")),
    ("an NVLink error", XID.format(74, "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0)")),
)
KERNEL: list[Case] = [
    *node("a quiet kernel", "kernel-log", PASSES, says("eth0: NIC Link is Up"), BOTH),
    *(
        case
        for name, line in FATAL
        for case in node(f"the kernel tells that {name}", "kernel-log", GPU, says(line), changed=line[:60])
    ),
    *node(
        "an Xid of a program",
        "kernel-log",
        PASSES,
        says(XID.format(13, "Graphics Exception: ESR 0x504730=0x7")),
        changed="Xid 13",
    ),
    *node(
        "an Xid that counts a remap",
        "kernel-log",
        GPU,
        says(XID.format(63, "Row Remapper: New row marked for remapping")),
        changed="Xid 63: Azure NHC fails it",
    ),
    *node(
        "the kernel tells of uncorrectable errors",
        "kernel-log",
        GPU,
        says("amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0, 1 uncorrectable hardware errors detected in umc block"),
        ("mi300x",),
        "umc block",
    ),
    *node(
        "a GPU's reset failed",
        "kernel-log",
        GPU,
        says("amdgpu 0000:05:00.0: amdgpu: GPU Recovery Failed: -110"),
        ("mi300x",),
        "GPU Recovery Failed",
    ),
    *node(
        "a processor is stuck",
        "kernel-lockups",
        LOCKED_UP,
        says("watchdog: BUG: soft lockup - CPU#63 stuck for 26s! [python3:48123]"),
        ("mi300x",),
        "soft lockup",
    ),
    *node(
        "a task hangs",
        "kernel-lockups",
        LOCKED_UP,
        says("INFO: task python3:48123 blocked for more than 122 seconds."),
        ("mi300x",),
        "blocked for more than 122 seconds",
    ),
    *node(
        "a carrier lost four times",
        "link-flaps",
        PASSES,
        says(*["mlx5_core 0000:83:00.0 ens83f0np0: Link down"] * 4),
        ("mi300x",),
        "four lines",
    ),
    *node(
        "a carrier lost five times",
        "link-flaps",
        LINK,
        says(*["mlx5_core 0000:83:00.0 ens83f0np0: Link down"] * 5),
        ("mi300x",),
        "five lines",
    ),
    *node(
        "a log that nobody may read",
        "kernel-log",
        UNKNOWN,
        lambda made: made.tool("dmesg", {"-r": Said("dmesg: read kernel buffer failed: Operation not permitted\n", 1)}),
        ("mi300x",),
        "exit code 1",
    ),
    *node(
        "a log that is empty",
        "kernel-log",
        UNKNOWN,
        lambda made: made.tool("dmesg", {"-r": Said("")}),
        ("mi300x",),
        "nothing printed",
    ),
]
SETTINGS: list[Case] = [
    *node("settings of a good node", "iommu", PASSES_QUIETLY, kinds=BOTH),
    *node(
        "transfers are translated",
        "iommu",
        WARNED_OF,
        writes("sys/kernel/iommu_groups/0/type", "DMA-FQ\n"),
        ("mi300x",),
        "DMA-FQ",
    ),
    *node(
        "no huge pages",
        "transparent-hugepages",
        WARNED_OF,
        writes("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        ("mi300x",),
        "[never]",
    ),
    *node(
        "memory is balanced by the kernel",
        "numa-balancing",
        WARNED_OF,
        writes("proc/sys/kernel/numa_balancing", "1\n"),
        ("mi300x",),
        "1",
    ),
    *node(
        "processors that save power",
        "cpu-governor",
        WARNED_OF,
        writes("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("mi300x",),
        "powersave",
    ),
    *node(
        "memory is kept for huge pages",
        "hugepages",
        WARNED_OF,
        writes("proc/meminfo", "MemTotal: 2113404636 kB\nHugePages_Total: 409600\nHugepagesize: 2048 kB\n"),
        ("h100",),
        "409600 pages",
    ),
    *node(
        "few processes may live",
        "process-ids",
        WARNED_OF,
        writes("proc/sys/kernel/pid_max", "32768\n"),
        ("h100",),
        "pid_max 32768",
    ),
    *node("pinned memory is limited", "memlock", WRONG_SETTING, gives(memlock_gib=0.0625), ("mi300x",), "64 MiB"),
    *node("the clock is right", "clock", PASSES, kinds=("h100", "cpu")),
    *node("the clock goes ahead", "clock", WRONG_SETTING, gives(skew_seconds=45.0), ("h100", "cpu"), "45 s"),
    *node(
        "names are lost",
        "dns",
        NAMES,
        gives(names_are_lost=True),
        ("h100", "cpu"),
        "Temporary failure in name resolution",
    ),
    *node("the SSH server is away", "ssh", NAMES, gives(greeting=""), ("h100", "cpu"), "Connection refused"),
    *node("another server greets", "ssh", NAMES, gives(greeting="220 mail ESMTP\r\n"), ("cpu",), "220 mail ESMTP"),
    *node(
        "the disk is nearly full",
        "disk-space-soon",
        WARNED_OF,
        gives(used_percent=(82.0, 10.0)),
        ("h100", "cpu"),
        "82 %",
    ),
    *node("the disk is full", "disk-space", DISK, gives(used_percent=(86.0, 10.0)), ("h100", "cpu"), "86 %"),
    *node("the disk has no more files", "inodes", DISK, gives(used_percent=(40.0, 97.0)), ("h100", "cpu"), "97 %"),
    *node(
        "a process sleeps for good",
        "stuck-processes",
        STUCK,
        lambda made: _stuck(made, 1_000_000.0),
        ("h100", "cpu"),
        "state D since 89061 s",
    ),
    *node(
        "a process sleeps for a moment",
        "stuck-processes",
        PASSES,
        lambda made: _stuck(made, 90_060_000.0),
        ("h100", "cpu"),
        "state D since 1 s",
    ),
    *node(
        "services run",
        "nvidia-services",
        PASSES_QUIETLY,
        services("active\nactive\n", 0),
        ("h100", "h200"),
    ),
    *node(
        "the fabric manager is down",
        "nvidia-services",
        WARNED_OF,
        services("active\ninactive\n", 3),
        ("h100", "h200"),
        "inactive",
    ),
    *node(
        "nobody tells of services",
        "nvidia-services",
        UNKNOWN_WARNING,
        services("", 1),
        changed="exit code 1",
    ),
    *node("all GPUs are offered", "allocatable-gpus", PASSES, offers(8.0, "True"), BOTH),
    *node(
        "the device plug-in offers seven",
        "allocatable-gpus",
        OFFER,
        offers(7.0, "True"),
        ("mi300x",),
        "7",
    ),
    *node(
        "the kubelet is not ready",
        "kubelet",
        LOCKED_UP,
        offers(8.0, "False"),
        ("mi300x",),
        "Ready: False",
    ),
]


def drift(check: str, path: str, text: str, kind: str = "mi300x") -> Case:
    """A node that differs from the four others."""

    def make(made: VirtualNode, hardware: HardwareProfile) -> None:
        healthy(made, hardware)
        made.write(path, text)

    return Case(f"{check} differs from all others ({kind})", kind, check, WARNED_OF, make, text.strip(), peers=healthy)


def slower(name: str, check: str, tool: str, answers: Mapping[str, str], kind: str, changed: str) -> Case:
    """A node whose tool tells other clocks than those of the four others."""

    def make(made: VirtualNode, hardware: HardwareProfile) -> None:
        healthy(made, hardware)
        made.tool(tool, {arguments: Said(text) for arguments, text in answers.items()})

    return Case(f"{name} ({kind})", kind, check, WARNED_OF, make, changed, peers=healthy)


CLOCKS = [
    slower(
        "a GPU is held at 1700 MHz",
        "gpu-clock-amd",
        "amd-smi",
        {"metric --clock --json": amd_metric("clock", {5: {"gfx_0": {"max_clk": {"value": 1700, "unit": "MHz"}}}})},
        "mi300x",
        "1700 MHz of 2100",
    ),
    slower(
        "a GPU of another product",
        "memory-clock-nvidia",
        "nvidia-smi",
        {"-q -x": smi_xml("h100", 8, {3: (("<mem_clock>2619 MHz<", "<mem_clock>1593 MHz<"),)})},
        "h100",
        "1593 MHz of 2619",
    ),
    slower(
        "somebody wished a lower clock",
        "gpu-clock-set-nvidia",
        "nvidia-smi",
        {"-q -x": smi_xml("h100", 8, {3: (("<graphics_clock>1980 MHz<", "<graphics_clock>1395 MHz<"),)})},
        "h100",
        "1395 MHz of 1980",
    ),
]
DRIFT: list[Case] = [
    *CLOCKS,
    drift("cpu-clocks", "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "2400000\n"),
    drift("kernel-version", "proc/sys/kernel/osrelease", "5.15.0-164-generic\n"),
    drift("driver-version", "sys/module/amdgpu/version", "6.10.5\n"),
    drift("driver-version", "sys/module/nvidia/version", "535.161.08\n", "h100"),
    drift("gpu-library-version", "opt/rocm/.info/version", "6.4.1-83\n"),
    drift("boot-arguments", "proc/cmdline", "BOOT_IMAGE=/vmlinuz-6.8.0 root=UUID=1 ro iommu=pt\n"),
    drift("nic-firmware", f"{INFINIBAND}/mlx5_0/fw_ver", "28.36.1010\n", "h100"),
]


CASES: tuple[Case, ...] = (*KERNEL, *SETTINGS, *DRIFT)
