"""Probes of links as sysfs shows them: fabric NICs with their counters, and PCIe of GPUs and NICs. Nothing is changed.

Standard library only, Python 3.9. What a machine does not tell is left out, and the check that asks for it is unknown.
"""

from __future__ import annotations

import os
import time
from typing import Dict, List, Mapping, Optional, Tuple

from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes import node
from workflows.programs.probes.node import listed, parsed_or_reason, read

INFINIBAND = "sys/class/infiniband"
PCI = "sys/bus/pci/devices"
FATAL_COUNTERS = ("link_downed", "excessive_buffer_overrun_errors", "local_link_integrity_errors", "rnr_nak_retry_err")
"""Any growth of them is fatal (NVSentinel)."""
SYMBOL_ERRORS = "symbol_error"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:"
GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, processing accelerators: the first two bytes of a PCI class."""
NIC_CLASSES = ("0x0200", "0x0207")
"""Ethernet and InfiniBand controllers."""
GPU_MAKERS = ("0x1002", "0x10de")
"""AMD, NVIDIA: a server's own screen is no GPU."""
WIDTHS = ("0", "1", "2", "4", "8", "12", "16", "32")
"""Lanes that a link can have; 0: it is down."""
EXTENDED_AT, ACS_CAPABILITY, ACS_CONTROL = 0x100, 0x000D, 6
"""PCI Express: extended capabilities begin here; the identity of ACS; where its control register lies in it."""
MOST_CAPABILITIES = 64

Arguments = Mapping[str, str]
Port = Tuple[str, str]
"""NIC and port."""


def nics(arguments: Arguments) -> ParsedOutput:
    """Ports, rates, addresses and firmware of the fabric's NICs, and how their counters grew within `seconds` (5)."""
    seconds = float(arguments.get("seconds", "5"))
    ports = [(nic, port) for nic in listed(INFINIBAND) for port in listed(f"{INFINIBAND}/{nic}/ports")]
    if not ports:
        return ParsedOutput(unknown="there is no RDMA device in /sys/class/infiniband")
    before, began = {port: _counters(port) for port in ports}, time.monotonic()
    time.sleep(seconds)
    grown = {
        port: {
            name: max(0, value - before[port][name]) for name, value in _counters(port).items() if name in before[port]
        }
        for port in ports
    }
    hours = (time.monotonic() - began) / 3600.0
    return parsed_or_reason([*_ports(ports), *_errors(grown, hours), *_firmware()], "no port tells its state")


def _ports(ports: List[Port]) -> List[Reading]:
    states = {port: read(f"{_folder(port)}/state") or "" for port in ports}
    up = [port for port, state in states.items() if state.endswith("ACTIVE")]
    down = [f"{_name(port)}: {state or 'no state'}" for port, state in states.items() if port not in up]
    found = [Reading("nic_ports_up", float(len(up)), "count", line="; ".join(down) or f"{len(up)} are active")]
    bare = [_name(port) for port in up if not _has_gid(port)]
    line = ", ".join(bare) or "every active port has one"
    found.append(Reading("nic_ports_without_gid", float(len(bare)), "count", line=line))
    for port in ports:
        text = read(f"{_folder(port)}/rate") or ""
        rate = text.split()[0] if text.split() else ""
        if text.split()[1:2] == ["Gb/sec"] and _is_figure(rate):
            found.append(Reading("nic_link_rate", float(rate), "Gb/s", _name(port), line=text))
    return found


def _has_gid(port: Port) -> bool:
    """Whether the port has an address that reaches further than its own link, or on InfiniBand any at all."""
    gids = [read(f"{_folder(port)}/gids/{index}") or NO_GID for index in listed(f"{_folder(port)}/gids")]
    own = [gid for gid in gids if gid != NO_GID]
    if (read(f"{_folder(port)}/link_layer") or "InfiniBand") == "InfiniBand":
        return bool(own)
    return any(not gid.startswith(LINK_LOCAL) for gid in own)


def _errors(grown: Mapping[Port, Mapping[str, int]], hours: float) -> List[Reading]:
    fatal = [
        f"{_name(port)}: {counter} +{by}"
        for port, counters in grown.items()
        for counter, by in counters.items()
        if counter in FATAL_COUNTERS and by
    ]
    found: List[Reading] = []
    if any(counter in FATAL_COUNTERS for counters in grown.values() for counter in counters):
        line = "; ".join(fatal[:4]) or f"none within {hours * 3600.0:.0f} s"
        found.append(Reading("nic_fatal_errors", float(len(fatal)), "count", line=line))
    for port, counters in grown.items():
        if SYMBOL_ERRORS in counters:
            rate = counters[SYMBOL_ERRORS] / hours if hours else 0.0
            line = f"+{counters[SYMBOL_ERRORS]} within {hours * 3600.0:.0f} s"
            found.append(Reading("nic_symbol_errors", rate, "1/h", _name(port), line=line))
    return found


def _firmware() -> List[Reading]:
    """One word for all: NICs of one node are meant to be alike."""
    words = {nic: read(f"{INFINIBAND}/{nic}/fw_ver") or "" for nic in listed(INFINIBAND)}
    distinct = sorted({word for word in words.values() if word})
    return [Reading("nic_firmware", word=", ".join(distinct), line=f"of {len(words)} NICs")] if distinct else []


def _counters(port: Port) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for folder in ("counters", "hw_counters"):
        for name in (*FATAL_COUNTERS, SYMBOL_ERRORS):
            text = read(f"{_folder(port)}/{folder}/{name}")
            if text is not None and text.isdigit():
                found[name] = found.get(name, 0) + int(text)
    return found


def _folder(port: Port) -> str:
    return f"{INFINIBAND}/{port[0]}/ports/{port[1]}"


def _name(port: Port) -> str:
    return f"{port[0]}/{port[1]}"


def _is_figure(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def pcie_links(_: Arguments) -> ParsedOutput:
    """Width and speed of the PCIe links of GPUs and NICs, and bridges that send peers' traffic through the root."""
    devices = [name for name in listed(PCI) if _is_looked_at(name)]
    found: List[Reading] = []
    for device in devices:
        found += _link(device)
    controls = {name: control for name in listed(PCI) if (control := _acs_control(name)) is not None}
    if controls:
        on = [name for name, control in controls.items() if control]
        line = ", ".join(on[:4]) or f"off on all {len(controls)} bridges that have it"
        found.append(Reading("pcie_acs_enabled", float(len(on)), "count", line=line))
    return parsed_or_reason(found, "there is no GPU and no NIC on the PCI bus whose link can be read")


def _link(device: str) -> List[Reading]:
    width, speed = read(f"{PCI}/{device}/current_link_width"), read(f"{PCI}/{device}/current_link_speed")
    most = f"at most x{read(f'{PCI}/{device}/max_link_width')}, {read(f'{PCI}/{device}/max_link_speed')}"
    found: List[Reading] = []
    if width is not None and width.isdigit():
        # A device that fell off the bus answers with ones only: x255 or x63.
        lanes, lost = (float(width), "") if width in WIDTHS else (0.0, ": it does not answer")
        found.append(Reading("pcie_link_width", lanes, "count", device, line=f"x{width}{lost}, {most}"))
    figure = speed.split()[0] if speed else ""
    if speed is not None and "GT/s" in speed and _is_figure(figure):
        found.append(Reading("pcie_link_speed", float(figure), "GT/s", device, line=f"{speed}, {most}"))
    return found


def _is_looked_at(device: str) -> bool:
    kind, maker = (read(f"{PCI}/{device}/class") or "")[:6], read(f"{PCI}/{device}/vendor")
    if kind in GPU_CLASSES:
        return maker in GPU_MAKERS
    return kind in NIC_CLASSES and bool(listed(f"{PCI}/{device}/infiniband"))


def _acs_control(device: str) -> Optional[int]:
    """The control register of a bridge's ACS; None where it has none, or we may not read that far."""
    if not (read(f"{PCI}/{device}/class") or "").startswith("0x0604"):
        return None
    try:
        with open(os.path.join(node.ROOT, PCI, device, "config"), "rb") as file:
            config = file.read(4096)
    except OSError:
        return None
    at = EXTENDED_AT
    for _ in range(MOST_CAPABILITIES):
        if at < EXTENDED_AT or at + ACS_CONTROL + 2 > len(config):
            return None
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == ACS_CAPABILITY:
            return int.from_bytes(config[at + ACS_CONTROL : at + ACS_CONTROL + 2], "little")
        at = header >> 20
    return None


PROBES = {"nics": nics, "pcie-links": pcie_links}
"""By the names of `profiles/checks/catalogue.py`."""
