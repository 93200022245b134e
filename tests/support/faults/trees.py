"""Files in place of /proc and /sys, and tools, of healthy nodes of every kind of hardware."""

from __future__ import annotations

from profiles.hardware import HardwareProfile
from tests.support.cases.tool_samples import printed
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import (
    XML,
    amd_links,
    amd_metric,
    amd_pages,
    bandwidths,
    dcgm,
    nvlink,
    peer_copies,
    smi_xml,
)

PCI, INFINIBAND = "sys/bus/pci/devices", "sys/class/infiniband"
OLD_LINKS = ("a100", "mi250x")
"""On PCI Express 4.0 and NICs of 200 Gb/s; the others on 5.0."""
RATES = {200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)"}
COUNTERS = ("link_downed", "symbol_error", "excessive_buffer_overrun_errors", "local_link_integrity_errors")
PEER_COPY = {"mi250x": 50.0, "mi300x": 47.2, "mi325x": 47.2, "mi355x": 57.4}
"""GB/s between two GPUs, as AMD's acceptance guides show them or a little above the suite's limit."""
GEMM_GIGAFLOPS = {"mi250x": 42_000.0, "mi300x": 81_300.0, "mi325x": 81_300.0, "mi355x": 60_100.0}
STREAM_FACTOR = {"mi250x": 0.5, "mi300x": 1.0, "mi325x": 1.2, "mi355x": 1.4}
"""Share of what the sample's MI300X printed."""


def address(index: int) -> str:
    """A GPU's place on the bus."""
    return f"0000:{0x11 + index:02x}:00.0"


def pci_device(node: VirtualNode, place: str, maker: str, kind: str, width: str = "16", speed: str = "32.0") -> str:
    """One device; its folder."""
    folder = f"{PCI}/{place}"
    for name, text in (("vendor", maker), ("class", kind), ("current_link_width", width), ("max_link_width", "16")):
        node.write(f"{folder}/{name}", f"{text}\n")
    for name in ("current_link_speed", "max_link_speed"):
        node.write(f"{folder}/{name}", f"{speed} GT/s PCIe\n")
    return folder


def gpus(node: VirtualNode, hardware: HardwareProfile) -> None:
    """GPUs with their driver, used by nobody."""
    speed = "16.0" if hardware.name in OLD_LINKS else "32.0"
    amd = hardware.vendor == "amd"
    module = "amdgpu" if amd else "nvidia"
    node.write(f"sys/module/{module}/initstate", "live\n")
    node.write(f"sys/module/{module}/version", "6.12.12\n" if amd else "555.42.06\n")
    if amd:
        node.write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n")
        (node.folder / "root/sys/class/kfd/kfd/proc").mkdir(parents=True, exist_ok=True)
    for index in range(hardware.gpus_per_node):
        maker, kind = ("0x1002", "0x120000") if amd else ("0x10de", "0x030200")
        folder = pci_device(node, address(index), maker, kind, "16", speed)
        if amd:
            node.write(f"{folder}/mem_info_vram_used", f"{283 << 20}\n")
            node.write(f"sys/class/kfd/kfd/topology/nodes/{index + 1}/gpu_id", f"{28851 + index}\n")
        else:
            node.write(f"proc/driver/nvidia/gpus/{address(index)}/information", f"Model: {XML[hardware.name][1]}\n")


def nics(node: VirtualNode, hardware: HardwareProfile) -> None:
    """Fabric NICs, all ports up, no errors."""
    rate = RATES[int(hardware.nic_gbit_per_second or 400)]
    for index in range(hardware.nics_per_node or 0):
        port = f"{INFINIBAND}/mlx5_{index}/ports/1"
        for name, text in (("state", "4: ACTIVE"), ("rate", rate), ("link_layer", "InfiniBand")):
            node.write(f"{port}/{name}", f"{text}\n")
        node.write(f"{port}/gids/0", f"fe80:0000:0000:0000:b83f:d203:00{index:02x}:1f2e\n")
        node.write(f"{INFINIBAND}/mlx5_{index}/fw_ver", "28.39.1002\n")
        for name in COUNTERS:
            node.write(f"{port}/counters/{name}", "0\n")
        speed = "16.0" if hardware.name in OLD_LINKS else "32.0"
        folder = pci_device(node, f"0000:{0x81 + index:02x}:00.0", "0x15b3", "0x020700", "16", speed)
        node.write(f"{folder}/infiniband/mlx5_{index}/node_type", "1: CA\n")
    pci_device(node, "0000:00:1c.0", "0x8086", "0x060400")
    acs_bridge(node, on=False)


def acs_bridge(node: VirtualNode, on: bool) -> None:
    """A bridge with access control services."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x000D | 1 << 16).to_bytes(4, "little")
    config[0x106:0x108] = (0x1D if on else 0).to_bytes(2, "little")
    (node.folder / "root" / PCI / "0000:00:1c.0" / "config").write_bytes(bytes(config))


def kernel(node: VirtualNode, hardware: HardwareProfile) -> None:
    """Settings, versions, memory, processes."""
    plain = {
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz-6.8.0 root=UUID=1 ro iommu=pt pci=realloc=off\n",
        "proc/sys/kernel/numa_balancing": "0\n",
        "proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/sys/kernel/threads-max": "4127744\n",
        "proc/meminfo": "MemTotal:       2113404636 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n",
        "proc/uptime": "90061.00 1.00\n",
        "proc/4242/stat": "4242 (python3) S 1 4242 4242 0 -1\n",
        "sys/kernel/iommu_groups/0/type": "identity\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq": "1500000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "3700000\n",
        "dev/shm/.keep": "",
    }
    if hardware.vendor == "amd":
        plain |= {"opt/rocm/.info/version": "7.0.2-56\n", "opt/rocm/lib/librccl.so.1.0.70002": ""}
    else:
        cuda = '{"cuda": {"name": "CUDA SDK", "version": "12.5.20240613"}}\n'
        plain |= {"usr/local/cuda/version.json": cuda, "usr/lib/x86_64-linux-gnu/libnccl.so.2.22.3": ""}
    for path, text in plain.items():
        node.write(path, text)


def nvidia_tools(node: VirtualNode, hardware: HardwareProfile, answers: dict[str, Said] | None = None) -> None:
    """nvidia-smi as it is asked; `answers` by arguments instead."""
    name, count = hardware.name, hardware.gpus_per_node
    told = {
        "-q -x": Said(smi_xml(name, count)),
        "nvlink -s": Said(nvlink(name, "-s", gpus=count)),
        "nvlink -e": Said(nvlink(name, "-e", gpus=count)),
        "-L": Said("".join(f"GPU {index}: {XML[name][1]} (UUID: GPU-{index})\n" for index in range(count))),
        "--query-compute-apps=pid --format=csv,noheader,nounits": Said(""),
        "--query-gpu=pci.bus_id,memory.used --format=csv,noheader,nounits": Said(
            "".join(f"0000{address(index).upper()}, 1\n" for index in range(count))
        ),
    }
    node.tool("nvidia-smi", {**told, **(answers or {})})


def amd_tools(node: VirtualNode, hardware: HardwareProfile, answers: dict[str, Said] | None = None) -> None:
    """amd-smi as it is asked; `answers` by arguments instead."""
    count = hardware.gpus_per_node
    told = {
        "metric --ecc --json": Said(amd_metric("ecc", gpus=count)),
        "metric --ecc-blocks --json": Said(amd_metric("ecc_blocks", gpus=count)),
        "metric --clock --json": Said(amd_metric("clock", gpus=count)),
        "metric --violation --json": Said(amd_metric("throttle", gpus=count)),
        "bad-pages --json": Said(amd_pages(gpus=count)),
        "xgmi --link-status --json": Said(amd_links(gpus=count)),
        "list": Said("".join(f"GPU: {index}\n    BDF: {address(index)}\n" for index in range(count))),
    }
    node.tool("amd-smi", {**told, **(answers or {})})


def deep_tools(node: VirtualNode, hardware: HardwareProfile) -> None:
    """The vendors' long tests, whose output is judged where an image has them."""
    count = hardware.gpus_per_node
    if hardware.vendor == "nvidia":
        node.tool("dcgmi", {"diag -r 3 -j": Said(dcgm(gpus=count))})
        figure = {"a100": 24.6, "gb200": 204.0}.get(hardware.name, 55.2)
        node.tool("nvbandwidth", {"-j -t host_to_device_memcpy_ce": Said(bandwidths([figure] * count))})
    else:
        node.tool("rvs", {"-r 4": Said(rvs(count))})
        node.tool("agfhc", {"-r all_lvl3": Said(printed("agfhc", "1.23.2-all-lvl1-mi350x.txt"))})
        node.tool("TransferBench", {"p2p": Said(peer_copies({}, PEER_COPY[hardware.name], count))})
        node.tool("rocblas-bench", {"*": Said(gemm(GEMM_GIGAFLOPS[hardware.name]))})
        node.tool("hip-stream", {"*": Said(stream(STREAM_FACTOR[hardware.name]))})
    node.tool("all_reduce_perf", {"*": Said(all_reduce({"b200": 840.0, "gb200": 840.0}.get(hardware.name, 480.0)))})


def gemm(gigaflops: float) -> str:
    """`rocblas-bench`, its figure changed."""
    return printed("rocblas-bench", "6.2-fp32-mi300x.txt").replace(" 97190.6,", f" {gigaflops:g},")


def stream(factor: float) -> str:
    """BabelStream, its figures multiplied."""
    lines: list[str] = []
    for line in printed("babelstream", "5.0-mi300x.txt").splitlines():
        name, _, rest = line.partition(" ")
        figure, _, times = rest.partition(" ")
        kernel_line = name in ("Copy", "Mul", "Add", "Triad", "Dot")
        lines.append(f"{name} {float(figure) * factor:.3f} {times}" if kernel_line else line)
    return "\n".join([*lines, ""])


def all_reduce(bus: float, wrong: int = 0) -> str:
    """`all_reduce_perf`, its last line changed."""
    text = printed("nccl-tests", "rccl-mi350x-allreduce.txt")
    text = text.replace("360.97      0", f"{bus:6.2f}      {wrong}").replace(
        "367.51      0", f"{bus:6.2f}      {wrong}"
    )
    return text if not wrong else text.replace("Out of bounds values : 0 OK", f"Out of bounds values : {wrong} FAILED")


def rvs(gpus: int, slow: int = -1, hot: int = -1, broken: int = -1) -> str:
    """`rvs -r 4`: gst, iet and mem, a result a GPU; the index of one that misses its target."""
    lines: list[str] = []
    action = "gst-581Tflops-8K-rand-bf16"
    for index in range(gpus):
        met = ("512004", "FALSE") if index == slow else ("612900", "TRUE")
        result = f"[GPU:: {28851 + index}] GFLOPS {met[0]} Target GFLOPS: 581000 met: {met[1]}"
        lines.append(f"[RESULT] [1102003.{864000 + index}] [{action}] {result}")
    for index in range(gpus):
        done = "FALSE" if index == hot else "TRUE"
        lines.append(f"[RESULT] [1102657.{372000 + index}] [iet-750W] [GPU:: {28851 + index}] Power(W) 748.000000")
        lines.append(f"[RESULT] [1102657.{373000 + index}] [iet-750W] [GPU:: {28851 + index}] pass: {done}")
    for test in range(1, 12):
        lines.append(
            f"[RESULT] [214775.{947000 + test}] [action_1] mem Test {test} : {'FAIL' if test == broken else 'PASS'}"
        )
    return "\n".join([*lines, ""])


def quiet_kernel(node: VirtualNode) -> None:
    """Its kernel has said nothing but that it began."""
    first = "<5>[    0.000000] Linux version 6.8.0-60-generic (buildd@lcy02)"
    node.tool("dmesg", {"-r": Said(f"{first}\n")})


def healthy(node: VirtualNode, hardware: HardwareProfile) -> None:
    """A whole node with nothing wrong."""
    if hardware.vendor != "none":
        gpus(node, hardware)
        nics(node, hardware)
        (nvidia_tools if hardware.vendor == "nvidia" else amd_tools)(node, hardware)
        deep_tools(node, hardware)
    kernel(node, hardware)
