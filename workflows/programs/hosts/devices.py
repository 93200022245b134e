"""A host's GPUs, fabric NICs and firmware, as the kernel tells them: no vendor's tool has to be there."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List

from workflows.programs.hosts.items import CannotReadError, listed, read_or
from workflows.programs.hosts.options import Options

VENDORS = {"0x1002": "amd", "0x10de": "nvidia"}
"""By PCI's number."""
GPU_CLASSES = ("0x0302", "0x0380", "0x1200")
"""PCI classes of GPUs that compute: 3D controller, other display controller, processing accelerator."""
SCREEN_CLASS = "0x0300"
"""Graphics of a workstation's card, which computes too, and of a server's console, whose vendor is none of ours."""
_DEVICES, _FABRIC = "/sys/bus/pci/devices", "/sys/class/infiniband"


def works(asked: Options) -> Dict[str, Callable[[], Any]]:
    """Item -> how it is read."""
    root = asked.root
    return {
        "gpus": lambda: _gpus(root),
        "nics": lambda: [_nic(root, name) for name in listed(root, _FABRIC)],
        "firmware": lambda: _firmware(root),
    }


def _gpus(root: str) -> List[Dict[str, str]]:
    """By their place on the bus. Without a bus there are none; where it cannot be listed nobody knows."""
    folder = os.path.join(root, _DEVICES.lstrip("/"))
    if os.path.isdir(folder) and not os.access(folder, os.R_OK):
        raise CannotReadError(f"{_DEVICES}: Permission denied")
    return [_gpu(root, place) for place in listed(root, _DEVICES) if _is_gpu(root, place)]


def _is_gpu(root: str, place: str) -> bool:
    vendor = read_or(root, f"{_DEVICES}/{place}/vendor")
    return vendor in VENDORS and read_or(root, f"{_DEVICES}/{place}/class").startswith((*GPU_CLASSES, SCREEN_CLASS))


def _gpu(root: str, place: str) -> Dict[str, str]:
    base = f"{_DEVICES}/{place}"
    driver = _driver(root, base)
    told = read_or(root, f"/proc/driver/nvidia/gpus/{place}/information")
    video = re.search(r"^Video BIOS:\s*(\S+)", told, re.MULTILINE)
    return {
        "place": place,
        "vendor": VENDORS[read_or(root, f"{base}/vendor")],
        "device": read_or(root, f"{base}/device"),
        "driver": driver,
        "driver_version": read_or(root, f"/sys/module/{driver}/version") if driver else "",
        "firmware": video.group(1) if video else read_or(root, f"{base}/vbios_version"),
    }


def _driver(root: str, base: str) -> str:
    try:
        return os.path.basename(os.readlink(os.path.join(root, base.lstrip("/"), "driver")))
    except OSError:
        return ""


def _nic(root: str, name: str) -> Dict[str, Any]:
    base = f"{_FABRIC}/{name}"
    ports = [f"{base}/ports/{port}" for port in listed(root, f"{base}/ports")]
    rate = re.match(r"([0-9.]+) Gb/sec", read_or(root, f"{ports[0]}/rate")) if ports else None
    driver = _driver(root, f"{base}/device")
    return {
        "name": name,
        "driver": driver,
        "driver_version": read_or(root, f"/sys/module/{driver}/version") if driver else "",
        "firmware": read_or(root, f"{base}/fw_ver"),
        "gbit_per_second": float(rate.group(1)) if rate else 0.0,
        "active": any(read_or(root, f"{port}/state").endswith("ACTIVE") for port in ports),
    }


def _firmware(root: str) -> Dict[str, str]:
    """Of the machine itself; empty where the kernel tells none, as in a container."""
    names = {"bios": "bios_version", "board": "board_name", "product": "product_name"}
    told = {name: read_or(root, f"/sys/class/dmi/id/{file}") for name, file in names.items()}
    return {name: value for name, value in told.items() if value}
