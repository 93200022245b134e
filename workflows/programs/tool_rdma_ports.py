"""Reads the ports of RDMA NICs from `ibstat`, `ibv_devinfo [-v]` and `rdma link` (text and JSON)."""

from __future__ import annotations

import re
from typing import Dict

from workflows.programs.readings import Parsed
from workflows.programs.tool_json import document, listing, looks_like_json, mapping, no_document, number, string
from workflows.programs.tool_text import Told, amount, close, scaled, whole_lines

_CA = re.compile(r"CA '([\w.-]{1,40})'")
_PORT = re.compile(r"[Pp]ort:?\s{0,20}([0-9]{1,3}):?")
_ACTIVE = re.compile(r"([0-9]{1,3})X \([0-9]{1,3}\)")
_SPEED = re.compile(r"([0-9.]{1,8}) Gbps \([0-9]{1,4}\)")
_LINK = re.compile(r"(?:link |[0-9]{1,4}/[0-9]{1,4}: )([\w.-]{1,40}/[0-9]{1,4}):? (.{1,400})")
UP = frozenset(("ACTIVE", "Active", "PORT_ACTIVE (4)", "LinkUp", "LINK_UP", "LINK_UP (5)"))
"""What a port says that carries traffic."""


def parse_ibstat(text: str) -> Parsed:
    """Readings by `mlx5_0/1`: `nic_state` and `nic_physical_state` (1: up), `nic_link_rate` (Gb/s), firmware."""
    lines, cut = whole_lines(text)
    told = Told()
    device = port = ""
    wanted: Dict[str, float] = {}
    ports: Dict[str, None] = {}
    for line in lines:
        stripped = line.strip()
        adapter, number_of = _CA.fullmatch(stripped), _PORT.fullmatch(stripped)
        name, colon, value = stripped.partition(": ")
        if adapter:
            device = port = adapter.group(1)
        elif number_of and device:
            port = f"{device}/{int(number_of.group(1))}"
        elif name == "Number of ports" and device:
            wanted[device] = amount(value) or 0.0
        elif colon and device:
            _ibstat_field(told, name, value.strip(), port, line)
            if name == "Link layer":
                ports[port] = None
    whole = len(ports) >= sum(wanted.values())
    return close(told, "ibstat", text, cut, "" if whole else "a port's last line is missing")


def _ibstat_field(told: Told, name: str, value: str, port: str, line: str) -> None:
    if name in ("State", "Physical state"):
        told.flag("nic_state" if name == "State" else "nic_physical_state", value in UP, value, port, line)
    elif name == "Rate":
        told.figure("nic_link_rate", amount(value), "Gb/s", port, line)
    elif name == "Firmware version":
        told.word("nic_firmware", value, port, line)
    elif name == "Link layer":
        told.word("nic_link_layer", value, port, line)


def parse_devinfo(text: str) -> Parsed:
    """Readings as of `ibstat`; the rate only with `-v`, from width and speed; `nic_mtu` in bytes."""
    lines, cut = whole_lines(text)
    told = Told()
    device = port = ""
    lanes = 0.0
    ended = True
    for line in lines:
        name, _, value = line.strip().partition(":")
        value = value.strip()
        if name == "hca_id":
            device, port, ended = value[:40], value[:40], False
        elif name == "port" and device and amount(value) is not None:
            port = f"{device}/{int(amount(value) or 0)}"
        elif name == "active_width":
            width = _ACTIVE.fullmatch(value)
            lanes = amount(width.group(1)) or 0.0 if width else 0.0
        elif name == "active_speed" and lanes:
            speed = _SPEED.fullmatch(value)
            rate = amount(speed.group(1)) if speed else None
            told.figure("nic_link_rate", None if rate is None else scaled(rate, lanes), "Gb/s", port, line)
        elif device:
            _devinfo_field(told, name, value, port, line)
        ended = ended or name == "link_layer"
    return close(told, "ibv_devinfo", text, cut, "" if ended else "the last adapter's ports are missing")


def _devinfo_field(told: Told, name: str, value: str, port: str, line: str) -> None:
    if name in ("state", "phys_state"):
        told.flag("nic_state" if name == "state" else "nic_physical_state", value in UP, value, port, line)
    elif name == "active_mtu":
        told.figure("nic_mtu", amount(value.partition(" ")[0]), "count", port, line)
    elif name == "fw_ver":
        told.word("nic_firmware", value, port, line)
    elif name == "link_layer":
        told.word("nic_link_layer", value, port, line)


def parse_rdma_link(text: str) -> Parsed:
    """Readings `nic_state` and `nic_physical_state` (1: up) and `nic_netdev` by `mlx5_0/1`."""
    if looks_like_json(text):
        return _rdma_json(text)
    lines, cut = whole_lines(text)
    told = Told()
    for line in lines:
        link = _LINK.fullmatch(line.strip())
        if link:
            words = link.group(2).split(None, 60)
            fields = dict(zip(words[::2], words[1::2]))  # noqa: B905 - 3.10
            _rdma(told, link.group(1), fields, line)
    return close(told, "rdma link", text, cut)


def _rdma(told: Told, port: str, fields: Dict[str, str], line: str) -> None:
    for name in ("state", "physical_state"):
        if name in fields:
            told.flag(f"nic_{name}", fields[name] in UP, fields[name], port, line)
    told.word("nic_netdev", fields.get("netdev", ""), port, line)


def _rdma_json(text: str) -> Parsed:
    links = [mapping(link) for link in listing(document(text))]
    links = [link for link in links if "ifname" in link and "state" in link]
    if not links:
        return no_document("rdma link", text)
    told = Told()
    for link in links:
        port = f"{string(link.get('ifname'))[:40]}/{int(number(link.get('port')) or 0)}"
        fields = {name: string(value) for name, value in link.items()}
        _rdma(told, port, fields, f"{port} " + " ".join(f"{name} {value}" for name, value in fields.items() if value))
    return told.parsed()
