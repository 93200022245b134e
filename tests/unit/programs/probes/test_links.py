"""Probes of links on made-up nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import links
from workflows.programs.probes.links import nics, pcie_links

Write = Callable[[str, str], None]
GLOBAL, LOCAL = "0000:0000:0000:0000:0000:ffff:0a00:0001", "fe80:0000:0000:0000:0000:0000:0000:0001"


def nic(write: Write, name: str, state: str = "4: ACTIVE", layer: str = "Ethernet", gid: str = GLOBAL) -> str:
    folder = f"sys/class/infiniband/{name}/ports/1"
    write(f"sys/class/infiniband/{name}/fw_ver", "28.39.1002\n")
    for path, text in (("state", state), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", layer), ("gids/0", gid)):
        write(f"{folder}/{path}", text + "\n")
    for counter in (*links.FATAL_COUNTERS[:3], "symbol_error"):
        write(f"{folder}/counters/{counter}", "5\n")
    return folder


def told(parsed: ParsedOutput, quantity: str) -> dict[str, float | None]:
    return {one.subject: one.value for one in parsed.readings if one.quantity == quantity}


def line(parsed: ParsedOutput, quantity: str) -> str:
    return next(one.line for one in parsed.readings if one.quantity == quantity)


def test_good_nics(write: Write) -> None:
    nic(write, "mlx5_0")
    nic(write, "mlx5_1")
    found = nics({"seconds": "0"})
    assert told(found, "nic_ports_up") == {"": 2.0}
    assert told(found, "nic_ports_without_gid") == {"": 0.0}
    assert told(found, "nic_link_rate") == {"mlx5_0/1": 400.0, "mlx5_1/1": 400.0}
    assert told(found, "nic_fatal_errors") == {"": 0.0}
    assert [one.word for one in found.readings if one.quantity == "nic_firmware"] == ["28.39.1002"]


def test_a_port_that_is_down_is_named(write: Write) -> None:
    nic(write, "mlx5_0")
    nic(write, "mlx5_1", state="1: DOWN")
    found = nics({"seconds": "0"})
    assert (told(found, "nic_ports_up"), line(found, "nic_ports_up")) == ({"": 1.0}, "mlx5_1/1: 1: DOWN")


@pytest.mark.parametrize(
    ("layer", "gid", "without"),
    [
        ("Ethernet", LOCAL, 1.0),
        ("Ethernet", GLOBAL, 0.0),
        ("InfiniBand", LOCAL, 0.0),
        ("InfiniBand", links.NO_GID, 1.0),
    ],
)
def test_an_address_must_reach_further_than_the_link_where_packets_are_routed(
    write: Write, layer: str, gid: str, without: float
) -> None:
    nic(write, "mlx5_0", layer=layer, gid=gid)
    assert told(nics({"seconds": "0"}), "nic_ports_without_gid") == {"": without}


def test_counters_count_by_what_they_grew(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = nic(write, "mlx5_0")
    clock = iter((1000.0, 1036.0))
    monkeypatch.setattr(links.time, "monotonic", lambda: next(clock))

    def meanwhile(_: float) -> None:
        write(f"{folder}/counters/link_downed", "7\n")
        write(f"{folder}/counters/symbol_error", "8\n")
        write(f"{folder}/counters/local_link_integrity_errors", "0\n")
        write(f"{folder}/hw_counters/rnr_nak_retry_err", "9\n")

    monkeypatch.setattr(links.time, "sleep", meanwhile)
    found = nics({"seconds": "36"})
    assert (told(found, "nic_fatal_errors"), line(found, "nic_fatal_errors")) == ({"": 1.0}, "mlx5_0/1: link_downed +2")
    assert told(found, "nic_symbol_errors") == {"mlx5_0/1": pytest.approx(300.0)}


def test_a_node_without_links_is_unknown(write: Write) -> None:
    assert nics({}).unknown == "there is no RDMA device in /sys/class/infiniband"
    assert pcie_links({}).unknown == "there is no GPU and no NIC on the PCI bus whose link can be read"


def device(write: Write, name: str, kind: str, maker: str, width: str = "16", speed: str = "32.0 GT/s PCIe") -> str:
    folder = f"sys/bus/pci/devices/{name}"
    for path, text in (
        ("class", kind),
        ("vendor", maker),
        ("current_link_width", width),
        ("current_link_speed", speed),
        ("max_link_width", "16"),
        ("max_link_speed", "32.0 GT/s PCIe"),
    ):
        write(f"{folder}/{path}", text + "\n")
    return folder


def test_links_of_gpus_and_fabric_nics_are_read_and_no_others(write: Write) -> None:
    device(write, "0000:05:00.0", "0x120000", "0x1002")
    device(write, "0000:06:00.0", "0x030200", "0x10de", "8", "16.0 GT/s PCIe")
    device(write, "0000:07:00.0", "0x030000", "0x1a03")
    write(device(write, "0000:08:00.0", "0x020000", "0x15b3") + "/infiniband/mlx5_0/x", "")
    device(write, "0000:09:00.0", "0x020000", "0x8086")
    device(write, "0000:0a:00.0", "0x030200", "0x10de", "255", "Unknown")
    found = pcie_links({})
    assert told(found, "pcie_link_width") == {
        "0000:05:00.0": 16.0,
        "0000:06:00.0": 8.0,
        "0000:08:00.0": 16.0,
        "0000:0a:00.0": 0.0,  # it fell off the bus
    }
    assert told(found, "pcie_link_speed") == {"0000:05:00.0": 32.0, "0000:06:00.0": 16.0, "0000:08:00.0": 32.0}
    assert told(found, "pcie_acs_enabled") == {}, "nobody told of it"


def config(control: int) -> bytes:
    """4 KiB with two extended capabilities: advanced errors (1), then ACS at 0x148."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | (2 << 16) | (0x148 << 20))
    struct.pack_into("<IHH", space, 0x148, 0x000D | (1 << 16), 0x5F, control)
    return bytes(space)


def test_bridges_that_send_peers_traffic_through_the_root_are_counted(write: Write, tmp_path: Path) -> None:
    for name, control in (("0000:00:01.0", 0x1D), ("0000:00:02.0", 0), ("0000:00:03.0", 0x1D)):
        folder = tmp_path / device(write, name, "0x060400", "0x1022")
        (folder / "config").write_bytes(config(control) if name != "0000:00:03.0" else config(control)[:256])
    found = pcie_links({})
    assert told(found, "pcie_acs_enabled") == {"": 1.0}
    assert line(found, "pcie_acs_enabled") == "0000:00:01.0"


@pytest.mark.parametrize("damaged", [b"", b"\xff" * 4096, config(1)[:0x100] + b"\x0d\x00\x01\x00"])
def test_a_config_space_that_makes_no_sense_says_nothing(write: Write, tmp_path: Path, damaged: bytes) -> None:
    folder = tmp_path / device(write, "0000:00:01.0", "0x060400", "0x1022")
    (folder / "config").write_bytes(damaged)
    assert told(pcie_links({}), "pcie_acs_enabled") == {}
