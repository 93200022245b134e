"""Cases of what bus, driver, NICs, kernel, settings and services show, of nodes that differ from their peers, and of
tools between two nodes. Kernel lines are printed ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.hardware import HardwareProfile
from tests.support.cases.rows import values
from tests.support.faults.cases import LINK, PASSES, UNKNOWN, WARNED_OF, Case, Expect
from tests.support.faults.changes import Changed
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import amd_metric, smi_xml
from tests.support.faults.trees import healthy, nics


@dataclass(frozen=True)
class Drift:
    """A node of which one file differs from those of the four others."""

    check: str
    path: str
    text: str
    kind: str = "mi300x"

    def case(self) -> Case:
        """Named by its check."""

        def make(made: VirtualNode, hardware: HardwareProfile) -> None:
            healthy(made, hardware)
            made.write(self.path, f"{self.text}\n")

        name = f"{self.check} differs from all others ({self.kind})"
        return Case(name, self.kind, self.check, WARNED_OF, make, self.text, peers=healthy)


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


CHANGED = values("faults/node", "one_thing_changed", Changed)
DRIFT = values("faults/node", "other_than_its_peers", Drift)
CASES: tuple[Case, ...] = (
    *(case for name, changed in CHANGED.items() for case in changed.cases(name)),
    *PAIRS,
    *CLOCKS,
    *(drift.case() for drift in DRIFT.values()),
)
