"""The closed lists that suites are written with: depths, units, probes, parsers, placeholders. Each stands here once.

A word that is not here is refused when the suite is read, so that no check waits for ever for a reading that nobody
makes. Knows no profile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Depth = Literal["smoke", "device", "fabric", "storage", "training"]
DEPTHS: tuple[Depth, ...] = ("smoke", "device", "fabric", "storage", "training")
"""From the shortest test to the longest one."""
PAST_DAYS = 90
"""So long the figures of a node are kept: a test of a whole training step is made about once a month."""
Direction = Literal["higher_is_better", "lower_is_better", "equal", "text_equal"]
Span = Literal["node", "pair", "gang"]
Need = Literal["gpus", "nics", "disk", "node"]
Launcher = Literal["kubernetes", "ansible", "slurm"]
Severity = Literal["fatal", "warning"]
Combination = Literal["best", "median", "worst", "all"]
GpuVendor = Literal["amd", "nvidia"]

Rate = Literal["TFLOP/s", "GFLOP/s", "TB/s", "GB/s", "Gb/s", "GT/s", "1/s", "1/h"]
Unit = Literal[Rate, "MHz", "W", "degC", "%", "GiB", "s", "ms", "us", "count", ""]
"""GB/s count bytes, Gb/s bits on a wire; "" stands for words."""
SCALES: dict[str, tuple[str, float]] = {
    "TFLOP/s": ("arithmetic", 1e12),
    "GFLOP/s": ("arithmetic", 1e9),
    "TB/s": ("bytes", 1e12),
    "GB/s": ("bytes", 1e9),
    "Gb/s": ("bytes", 1e9 / 8),
    "W": ("power", 1.0),
}
"""Units of peaks, and those that can be told in them: what they measure, and how much of it one unit is."""

FIGURES: dict[str, Unit] = {
    "gpus_per_node": "count",
    "gpu_memory_gib": "GiB",
    "nics_per_node": "count",
    "nic_gbit_per_second": "Gb/s",
    "cpus_per_node": "count",
}
"""Figures of a hardware profile that a limit may name, with their units."""

PLACEHOLDERS = {
    "gpu": "index of a GPU; the command runs once for each GPU of the node, side by side",
    "gpus": "number of GPUs of the node",
    "nic": "RDMA device of a fabric NIC, e.g. mlx5_0; the command runs once for each of them, one after the other",
    "path": "an empty folder on the storage that is tested, removed afterwards",
    "peer": "address of the other node; checks of a pair only",
    "port": "a free port of the node on which `peer_command` runs; checks of a pair only",
}
"""What `{word}` in a command or an argument of a probe becomes."""

VendorParser = Literal[
    "rocm-smi", "amd-smi", "rvs", "agfhc", "rocblas-bench", "transferbench", "nvidia-smi", "dcgm-diag", "nvbandwidth"
]
PortParser = Literal["ibstat", "ibv-devinfo", "rdma-link", "ethtool"]
NodeParser = Literal[PortParser, "lspci", "chrony", "timedatectl", "sysfs", "kernel-log", "fio"]
GangParser = Literal["nccl-tests", "babelstream", "ib-write-bw", "ib-write-lat", "iperf3", "ping", "ior", "mdtest"]
Parser = Literal[VendorParser, NodeParser, GangParser]
"""Names of the parsers of tools' output."""

VENDOR_OF: dict[str, GpuVendor] = {
    **dict.fromkeys(("rocm-smi", "amd-smi", "rvs", "agfhc", "rocblas-bench", "transferbench", "TransferBench"), "amd"),
    **dict.fromkeys(("hipblaslt-bench", "rocminfo", "hip-stream"), "amd"),
    **dict.fromkeys(("nvidia-smi", "dcgm-diag", "dcgmi", "nvbandwidth", "cuda-stream"), "nvidia"),
}
"""Parsers and programs that speak of one vendor's devices only."""


@dataclass(frozen=True)
class Probe:
    """What one of our own probes measures."""

    what: str
    """One sentence."""
    quantities: dict[str, Unit]
    """What it measures, with units; "": it tells a word."""
    arguments: tuple[str, ...] = field(default=())
    """Names of its arguments; all may be left out."""
    gpus: bool = False
    """It looks at GPUs, so that a check says of which vendors."""
    nics: bool = False
    """It looks at NICs of the fabric, so that nodes without any are not tested with it."""


PROBES: dict[str, Probe] = {
    "gpu-devices": Probe(
        "GPUs as driver, device files and management tool show them; the smallest count holds.",
        {"gpu_count": "count", "gpu_driver": "", "gpu_foreign_processes": "count", "gpu_memory_used": "GiB"},
        gpus=True,
    ),
    "gpu-smoke": Probe(
        "Opens each GPU in a process of its own, multiplies two matrices there and counts results that are not finite.",
        {"gpus_bindable": "count", "gemm_not_finite": "count"},
        ("seconds",),
        gpus=True,
    ),
    "gpu-gemm": Probe(
        "Large matrix products on every GPU at once, checked against a second computation.",
        {
            **dict.fromkeys(("bf16_gemm", "fp16_gemm", "fp8_gemm", "fp32_gemm", "fp64_gemm"), "TFLOP/s"),
            "gemm_wrong_values": "count",
        },
        ("type", "size", "seconds"),
        gpus=True,
    ),
    "gpu-memory": Probe(
        "Reads and writes nearly all memory of every GPU at once and compares what comes back.",
        {"hbm_bandwidth": "GB/s", "gpu_memory_wrong_bytes": "count"},
        ("share", "seconds"),
        gpus=True,
    ),
    "gpu-copy": Probe(
        "Copies between host and GPU and between each two GPUs, one after the other.",
        dict.fromkeys(("host_to_gpu_bandwidth", "gpu_to_host_bandwidth", "gpu_to_gpu_bandwidth"), "GB/s"),
        ("bytes",),
        gpus=True,
    ),
    "gpu-load": Probe(
        "Keeps every GPU busy and reads power, heat, clock and throttle reasons meanwhile.",
        {"power": "W", "gpu_temperature": "degC", "gpu_clock": "MHz", "gpus_throttled": "count"},
        ("seconds",),
        gpus=True,
    ),
    "gpu-launch": Probe(
        "Queues the smallest kernel again and again on every GPU: the host's time for one.",
        {"kernel_launch_time": "us"},
        ("launches",),
        gpus=True,
    ),
    "gpu-overlap": Probe(
        "Matrix products while data move: how much of the shorter one's time the other one hides.",
        {"copy_overlap": "%", "all_reduce_overlap": "%", "overlap_wrong_values": "count"},
        ("transfer", "size", "bytes"),
        gpus=True,
    ),
    "collective": Probe(
        "A collective over the GPUs of a node, a pair or a gang; checks the result, too.",
        {
            **dict.fromkeys(("all_reduce_bus_bandwidth", "gang_all_reduce_bus_bandwidth"), "GB/s"),
            **dict.fromkeys(("all_to_all_bus_bandwidth", "gang_all_to_all_bus_bandwidth"), "GB/s"),
            "collective_wrong_values": "count",
        },
        ("operation", "bytes", "iterations"),
        gpus=True,
    ),
    "train-step": Probe(
        "Trains a small model with fixed seeds and compares the loss with that of a proven run.",
        {"tokens_per_second": "1/s", "model_rate": "TFLOP/s", "loss_not_finite": "count", "loss_differences": "count"},
        ("model", "steps", "digest"),
        gpus=True,
    ),
    "pcie-links": Probe(
        "Links of GPUs and NICs as sysfs shows them, once the devices were woken: an idle link may show less.",
        {"pcie_link_width": "count", "pcie_link_speed": "GT/s", "pcie_acs_enabled": "count"},
    ),
    "nics": Probe(
        "Ports, addresses and counters of the fabric's NICs as sysfs shows them, counters as growth between two looks.",
        {
            "nic_ports_up": "count",
            "nic_ports_without_gid": "count",
            "nic_link_rate": "Gb/s",
            "nic_fatal_errors": "count",
            "nic_symbol_errors": "1/h",
            "nic_firmware": "",
        },
        ("seconds",),
        nics=True,
    ),
    "node-settings": Probe(
        "What kernel and control group grant; where a limit is `unlimited`, the node's memory is told.",
        {
            **dict.fromkeys(("iommu_mode", "boot_arguments", "transparent_hugepages"), ""),
            **dict.fromkeys(("cpu_governor", "cpu_clocks"), ""),
            **dict.fromkeys(("memlock", "shared_memory"), "GiB"),
            "numa_balancing": "count",
            "process_ids": "count",
            "hugepages_reserved": "%",
        },
    ),
    "versions": Probe(
        "Versions of kernel, driver and libraries, as words.",
        dict.fromkeys(("kernel_version", "driver_version", "gpu_library_version", "collective_library_version"), ""),
    ),
    "clock": Probe("This node's clock against the shared storage's.", {"clock_skew": "s"}),
    "names": Probe(
        "Whether names can be resolved; without `names` the node's own.", {"names_unresolved": "count"}, ("names",)
    ),
    "ssh": Probe("Whether the node's own SSH server greets.", {"ssh_silent": "count"}, ("port",)),
    "fabric-environment": Probe(
        "Variables of the fabric in the pod against those of pool and hardware.",
        {"fabric_environment_wrong": "count"},
        ("wanted",),
    ),
    "disk-space": Probe("How full a file system is.", {"disk_used": "%", "inodes_used": "%"}, ("path",)),
    "kernel-log": Probe(
        "Lines of the kernel that are younger than `hours`, by the rules of the diagnosis.",
        dict.fromkeys(("kernel_fatal_lines", "kernel_lockups", "kernel_link_losses"), "count"),
        ("hours",),
    ),
    "processes": Probe(
        "Processes that have been asleep without a way out, or dead and not fetched, for longer than `seconds`.",
        {"stuck_processes": "count"},
        ("seconds",),
    ),
    "services": Probe("Services of the node that should run.", {"services_down": "count"}, ("names",)),
    "kubernetes-node": Probe(
        "What the kubelet offers on the node, with its device plug-ins.",
        {"allocatable_gpus": "count", "allocatable_nics": "count", "kubelet_ready": ""},
    ),
    "tool-time": Probe(
        "How long the vendor's management tool takes to list devices.", {"tool_seconds": "s"}, ("tool",)
    ),
    "storage": Probe(
        "Writes a file, makes it durable, reads it back past the cache and compares.",
        {
            **dict.fromkeys(("storage_write_bandwidth", "storage_read_bandwidth"), "GB/s"),
            "storage_sync_time": "ms",
            "storage_wrong_bytes": "count",
        },
        ("path", "bytes"),
    ),
    "volume": Probe(
        "A volume that is claimed for the test: bound, mounted, written, read back past the cache, and gone again.",
        {"volume_faults": "count", "volume_claims_stuck": "count", "volume_seconds": "s"},
        ("bytes",),
    ),
    "cpu-gemm": Probe(
        "Matrix products on the CPU, checked.", {"cpu_gemm": "GFLOP/s", "cpu_gemm_wrong_values": "count"}, ("size",)
    ),
    "memory-bandwidth": Probe("Copies in host memory.", {"memory_bandwidth": "GB/s"}, ("bytes",)),
    "loopback": Probe(
        "A TCP connection of the node with itself.",
        {"loopback_bandwidth": "GB/s", "loopback_latency": "us"},
        ("bytes",),
    ),
    "process-all-reduce": Probe(
        "An all-reduce between processes of this node by sockets.",
        {"process_all_reduce_bandwidth": "GB/s", "process_all_reduce_wrong_values": "count"},
        ("processes", "bytes"),
    ),
    "gang-sockets": Probe(
        "An all-reduce between nodes by sockets; where they share one machine, each hop of the ring by itself.",
        {"gang_socket_bandwidth": "GB/s", "gang_socket_wrong_values": "count"},
        ("bytes", "iterations"),
    ),
    "pair-sockets": Probe(
        "Round trips by TCP and lost datagrams by UDP between two nodes, by sockets.",
        {**dict.fromkeys(("pair_round_trip", "pair_round_trip_p99"), "us"), "pair_lost_datagrams": "%"},
        ("round_trips", "datagrams"),
    ),
}
"""Our own probes by name."""
