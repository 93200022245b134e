"""Cases of what bus, driver and NICs show, and of tools between two nodes."""

from __future__ import annotations

from profiles.hardware import HardwareProfile
from profiles.vocabulary import FaultClass, NodeAction
from tests.support.faults.cases import (
    DRIVER,
    GPU,
    LINK,
    PASSES,
    PASSES_QUIETLY,
    SETTING,
    SLOW_DRIVER,
    SLOW_GPU,
    UNKNOWN,
    WARNED_OF,
    Case,
    Expect,
    fails,
)
from tests.support.faults.changes import BOTH, EVERY, SOME, grows, node, removes, tells, writes
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.trees import INFINIBAND, PCI, acs_bridge, address, nics
from workflows.programs.parsers.text import Reading

A, F = NodeAction, FaultClass
PROGRAM = fails(F.PROCESS_KILLED, A.REPAIR, certain=False)
HELD = fails(F.GPU_OOM, A.REPAIR, certain=False)


def _unloaded(made: VirtualNode) -> None:
    for name in ("initstate", "version"):
        (made.folder / "root/sys/module/amdgpu" / name).unlink()


def _compute(made: VirtualNode, text: str, code: int) -> None:
    query = "--query-compute-apps=pid --format=csv,noheader,nounits"
    made.tool("nvidia-smi", {query: Said(text, code), "*": Said("1\n" * 8)})


KFD = "sys/class/kfd/kfd"
GPUS: list[Case] = [
    *node("all GPUs are there", "gpu-count", PASSES, kinds=EVERY),
    *node(
        "the driver lost a GPU",
        "gpu-count",
        GPU,
        writes(f"{KFD}/topology/nodes/3/gpu_id", "0\n"),
        ("mi300x", "mi250x", "mi355x"),
        "one node of the driver's topology has no id",
    ),
    *node(
        "a GPU is not on the bus",
        "gpu-count",
        GPU,
        writes(f"{PCI}/{address(2)}/vendor", "0xffff\n"),
        ("h100", "a100", "mi300x", "gb200"),
        "its vendor reads ffff",
    ),
    *node("no driver for AMD", "gpu-driver", DRIVER, _unloaded, ("mi250x",), "no module"),
    *node(
        "AMD's driver is going",
        "gpu-driver",
        DRIVER,
        writes("sys/module/amdgpu/initstate", "going\n"),
        ("mi300x", "mi355x"),
        "initstate: going",
    ),
    *node(
        "NVIDIA's driver is coming",
        "gpu-driver",
        DRIVER,
        writes("sys/module/nvidia/initstate", "coming\n"),
        ("h100", "a100"),
        "initstate: coming",
    ),
    *node("nobody uses the GPUs", "gpu-foreign-process", PASSES, kinds=BOTH),
    *node(
        "somebody computes on AMD's",
        "gpu-foreign-process",
        PROGRAM,
        writes(f"{KFD}/proc/4711/pasid", "32769\n"),
        ("mi300x",),
        "process 4711",
    ),
    *node(
        "somebody computes on NVIDIA's",
        "gpu-foreign-process",
        PROGRAM,
        lambda made: _compute(made, "4711\n", 0),
        changed="process 4711",
    ),
    *node(
        "nvidia-smi does not say who computes",
        "gpu-foreign-process",
        UNKNOWN,
        lambda made: _compute(made, "No devices were found\n", 6),
        changed="exit code 6",
    ),
    *node(
        "memory that somebody holds",
        "gpu-memory-in-use",
        HELD,
        writes(f"{PCI}/{address(1)}/mem_info_vram_used", f"{40 << 30}\n"),
        ("mi300x", "mi325x"),
        "40 GiB of GPU 1",
    ),
    *node("the tool answers in time", "management-tool-amd", PASSES, kinds=("mi300x",)),
    *node("the tool answers in time", "management-tool-nvidia", PASSES),
    *node(
        "the tool takes seven seconds",
        "management-tool-amd",
        SLOW_DRIVER,
        tells("tool-time", Reading("tool_seconds", 7.3, "s")),
        ("mi300x",),
        "7.3 s",
    ),
    *node(
        "the tool takes seven seconds",
        "management-tool-nvidia",
        SLOW_DRIVER,
        tells("tool-time", Reading("tool_seconds", 7.3, "s")),
        changed="7.3 s",
    ),
]


BUS: list[Case] = [
    *node("links of full width", "pcie-width", PASSES, kinds=SOME),
    *node(
        "a GPU with eight lanes",
        "pcie-width",
        GPU,
        writes(f"{PCI}/{address(3)}/current_link_width", "8\n"),
        ("h100", "a100", "mi300x", "mi355x"),
        "x8",
    ),
    *node(
        "a GPU that answers with ones only",
        "pcie-width",
        GPU,
        writes(f"{PCI}/{address(3)}/current_link_width", "255\n"),
        BOTH,
        "x255",
    ),
    *node(
        "a NIC with eight lanes", "pcie-width", GPU, writes(f"{PCI}/0000:83:00.0/current_link_width", "8\n"), BOTH, "x8"
    ),
    *node(
        "a GPU a generation down",
        "pcie-generation",
        SLOW_GPU,
        writes(f"{PCI}/{address(3)}/current_link_speed", "16.0 GT/s PCIe\n"),
        ("h100", "mi300x", "mi325x"),
        "16 GT/s",
    ),
    *node(
        "an A100 two generations down",
        "pcie-generation",
        SLOW_GPU,
        writes(f"{PCI}/{address(3)}/current_link_speed", "2.5 GT/s PCIe\n"),
        ("a100", "mi250x"),
        "2.5 GT/s",
    ),
    *node("no bridge sends peers through the root", "pcie-acs", PASSES_QUIETLY, kinds=BOTH),
    *node(
        "a bridge sends peers through the root",
        "pcie-acs",
        WARNED_OF,
        lambda made: acs_bridge(made, on=True),
        BOTH,
        "its control register is 1d",
    ),
]


def _no_counters(made: VirtualNode) -> None:
    for file in (made.folder / "root" / INFINIBAND).glob("*/ports/1/counters/*"):
        file.unlink()


def _no_nics(made: VirtualNode) -> None:
    (made.folder / "root" / INFINIBAND).rename(made.folder / "away")


PORT = f"{INFINIBAND}/mlx5_4/ports/1"
NIC = "gb200"
FABRIC: list[Case] = [
    *node("all ports are up", "nic-ports", PASSES, kinds=SOME),
    *node("a port is down", "nic-ports", LINK, writes(f"{PORT}/state", "1: DOWN\n"), BOTH, "1: DOWN"),
    *node(
        "a port waits for the subnet manager",
        "nic-ports",
        LINK,
        writes(f"{PORT}/state", "2: INIT\n"),
        ("h100", "a100"),
        "2: INIT",
    ),
    *node(
        "a port at half its rate",
        "nic-link-rate",
        LINK,
        writes(f"{PORT}/rate", "200 Gb/sec (2X NDR)\n"),
        BOTH,
        "200 Gb/sec",
    ),
    *node(
        "a port of 100 Gb/s",
        "nic-link-rate",
        LINK,
        writes(f"{PORT}/rate", "100 Gb/sec (4X EDR)\n"),
        ("a100", "mi250x"),
        "100 Gb/sec",
    ),
    *node(
        "an Ethernet port with its own address only",
        "nic-gids",
        LINK,
        writes(f"{PORT}/link_layer", "Ethernet\n"),
        BOTH,
        "link_layer: Ethernet",
    ),
    *node("a port without any address", "nic-gids", LINK, removes(f"{PORT}/gids/0"), BOTH, "no GID"),
    *(
        case
        for counter in ("link_downed", "excessive_buffer_overrun_errors", "local_link_integrity_errors")
        for case in node(f"{counter} grows", "nic-errors", LINK, grows(counter, 1), BOTH, f"{counter}: +1")
    ),
    *node(
        "counters of another day",
        "nic-errors",
        PASSES,
        writes(f"{PORT}/counters/link_downed", "12\n"),
        BOTH,
        "link_downed: 12, and stays",
    ),
    *node("symbol errors grow", "nic-symbol-errors", LINK, grows("symbol_error", 3), BOTH, "+3 in 5 s"),
    *node("counters that nobody may read", "nic-errors", UNKNOWN, _no_counters, changed="no counters"),
    *node(
        "no RDMA device at all",
        "nic-ports",
        UNKNOWN,
        _no_nics,
        BOTH,
        "/sys/class/infiniband is empty",
    ),
    *node(
        "variables of the fabric as they should be",
        "fabric-environment",
        PASSES,
        tells("fabric-environment", Reading("fabric_environment_wrong", 0.0, "count")),
        BOTH,
    ),
    *node(
        "a variable of the fabric is wrong",
        "fabric-environment",
        SETTING,
        tells("fabric-environment", Reading("fabric_environment_wrong", 1.0, "count", line="NCCL_IB_HCA")),
        BOTH,
        "one differs",
    ),
]


def pair(name: str, check: str, expect: Expect, program: str, answers: dict[str, Said], changed: str = "") -> Case:
    """A tool between two nodes, seen from one of them."""

    def make(made: VirtualNode, hardware: HardwareProfile) -> None:
        nics(made, hardware)
        made.tool(program, answers)

    return Case(name, "h100", check, expect, make, changed)


def _sent(lost: int) -> str:
    got = 10 - lost
    return (
        "PING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.\n64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.038 ms\n\n"
        "--- 127.0.0.1 ping statistics ---\n"
        f"10 packets transmitted, {got} received, {10 * lost}% packet loss, time 1800ms\n"
        "rtt min/avg/max/mdev = 0.038/0.047/0.080/0.011 ms\n"
    )


def _written(gigabits: float) -> str:
    rule = "-" * 87
    head = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
    line = f" 1048576    1037502         0.00               {gigabits:.2f}               0.345834"
    return "\n".join([rule, head, line, rule, ""])


def _write(nic: int) -> str:
    # The two halves of a pair agree on a port; here is one half only, and nobody fills it in.
    return f"-p {{port}} -d mlx5_{nic} -s 1048576 -D 10 --report_gbits 127.0.0.1"


LONELY = "Couldn't connect to 127.0.0.1:18515\n Unable to open file descriptor for socket connection\n"
PAIRS: list[Case] = [
    pair("all packets arrive", "reach", PASSES, "ping", {"*": Said(_sent(0))}),
    pair("half of the packets are lost", "reach", LINK, "ping", {"*": Said(_sent(5))}, "50% packet loss"),
    pair(
        "no packet arrives", "reach", LINK, "ping", {"*": Said(_sent(10).replace("rtt", "pipe"), 1)}, "100% packet loss"
    ),
    pair("all NICs write at full rate", "rdma-write", PASSES, "ib_write_bw", {"*": Said(_written(391.0))}),
    pair(
        "one NIC of eight is slow",
        "rdma-write",
        LINK,
        "ib_write_bw",
        {_write(6): Said(_written(142.0)), "*": Said(_written(391.0))},
        "mlx5_6: 142.00",
    ),
    pair(
        "the other side does not answer one NIC",
        "rdma-write",
        UNKNOWN,
        "ib_write_bw",
        {_write(2): Said(LONELY, 1), "*": Said(_written(391.0))},
        "mlx5_2 cannot connect",
    ),
]


CASES: tuple[Case, ...] = (*GPUS, *BUS, *FABRIC, *PAIRS)
