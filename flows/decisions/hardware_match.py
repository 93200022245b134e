"""Which hardware profile a node is made of, from its labels and what it counts. Never a guess. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from profiles.hardware import HardwareProfile
from profiles.quantities import amount
from workflows.inventory import NodeStock

NVIDIA_PRODUCT = "nvidia.com/gpu.product"
AMD_PRODUCTS = ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
AMD_DEVICES = ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id")
COUNTS = ("nvidia.com/gpu.count",)
"""Labels that count GPUs, for nodes whose device plug-in is silent now."""

PRODUCTS: Mapping[str, str] = {
    "NVIDIA-A100-SXM4-80GB": "a100",
    "A100-SXM4-80GB": "a100",
    "NVIDIA-H100-80GB-HBM3": "h100",
    "NVIDIA-H200": "h200",
    "NVIDIA-B200": "b200",
    "NVIDIA-GB200": "gb200",
    "AMD-INSTINCT-MI250X": "mi250x",
    "AMD-INSTINCT-MI300X": "mi300x",
    "AMD-INSTINCT-MI300X-OAM": "mi300x",
    "AMD-INSTINCT-MI300X-VF": "mi300x",
    "AMD-INSTINCT-MI325X": "mi325x",
    "AMD-INSTINCT-MI325-OAM": "mi325x",
    "AMD-INSTINCT-MI325X-OAM": "mi325x",
    "AMD-INSTINCT-MI325X-VF": "mi325x",
    "AMD-INSTINCT-MI355X": "mi355x",
    "AMD-INSTINCT-MI355X-OAM": "mi355x",
    "AMD-INSTINCT-MI355X-VF": "mi355x",
}
"""Hardware profile by the product's name, as NVIDIA's GPU feature discovery and AMD's node labeller write it, here in
capitals and with `-`. Whole names only: PCIe, NVL, 40 GB, shared (`-SHARED`) and cut (`-MIG-1g.10gb`) ones differ."""
DEVICES: Mapping[str, str] = {
    "7408": "mi250x",
    "74a1": "mi300x",
    "74b5": "mi300x",
    "74a5": "mi325x",
    "74b9": "mi325x",
    "75a3": "mi355x",
    "75b3": "mi355x",
}
"""Hardware profile by AMD's PCI device id (libdrm's amdgpu.ids; the second of each is its virtual function). 740c is
not here: it stands for MI250 and MI250X alike."""

_ACCELERATOR = re.compile(r"gpu|tpu|npu|xpu|gaudi|neuron|mig-|i915|accelerator", re.IGNORECASE)
_NIC = re.compile(
    r"^rdma/|rdma|sriov|roce|infiniband|hostdev|mlnx|(^|[^a-z])(v?nics?|hca|efa|ib)([^a-z]|$)", re.IGNORECASE
)
"""Extended resources that count fabric NICs: `rdma/hca`, `vpc.amazonaws.com/efa`, `nvidia.com/hostdev`, …"""


@dataclass(frozen=True)
class Match:
    """What a node is."""

    hardware: str = ""
    """Name of the profile; "" where none fits."""
    seen: str = ""
    """What was seen of its GPUs."""
    why: str = ""
    """Why no profile fits; "" where one does."""
    gpus: int = 0
    """GPUs built in."""
    gpus_now: int = 0
    """GPUs that pods may take now."""


def match(node: NodeStock, hardware: Mapping[str, HardwareProfile]) -> Match:
    """The hardware profile of a node, or why none fits.

    Args:
        node: the node.
        hardware: the profiles that there are, by name.
    """
    counted = accelerators(node)
    label, product = _product(node)
    if not counted and not product:
        fits = "cpu" in hardware
        return Match("cpu" if fits else "", "no GPU", "" if fits else "there is no profile for nodes without GPUs")
    seen = ", ".join([*([f"{label}={product}"] if product else []), *(f"{key}: {value}" for key, value in counted)])
    name = _known(label, product)
    if not product:
        return Match(
            seen=seen, why="no label names its GPUs: run NVIDIA's GPU feature discovery or AMD's node labeller"
        )
    if name not in hardware:
        return Match(seen=seen, why="no hardware profile is about this product")
    return _counted(node, hardware[name], seen)


def accelerators(node: NodeStock) -> list[tuple[str, int]]:
    """Extended resources that count GPUs and their like, as built in."""
    names = [name for name in node.capacity if "/" in name and _ACCELERATOR.search(name) and not _NIC.search(name)]
    found = [(name, _whole(node.capacity[name])) for name in sorted(names)]
    return [(name, count) for name, count in found if count]


def nics(node: NodeStock) -> dict[str, int]:
    """Extended resources that count fabric NICs, with what pods may take now."""
    found = {name: _whole(value) for name, value in node.allocatable.items() if "/" in name and _NIC.search(name)}
    return {name: count for name, count in sorted(found.items()) if count}


def _product(node: NodeStock) -> tuple[str, str]:
    """(label, value) of what names the GPUs; ("", "") where nothing does. A name in the tables goes first."""
    found = [(key, node.labels[key]) for key in (NVIDIA_PRODUCT, *AMD_PRODUCTS, *AMD_DEVICES) if node.labels.get(key)]
    # The labeller also counts: `beta.amd.com/gpu.device-id.74a1: "8"`.
    found += [
        (prefix, key.removeprefix(f"{prefix}."))
        for prefix in (*AMD_PRODUCTS, *AMD_DEVICES)
        for key in sorted(node.labels)
        if key.startswith(f"{prefix}.")
    ]
    return next((pair for pair in found if _known(*pair)), found[0] if found else ("", ""))


def _known(label: str, product: str) -> str:
    """Name of the profile of a product or device id; "" where the tables have none."""
    if label in AMD_DEVICES:
        return DEVICES.get(product.lower().removeprefix("0x"), "")
    return PRODUCTS.get(re.sub(r"[-_ ]+", "-", product.upper()), "")


def _counted(node: NodeStock, profile: HardwareProfile, seen: str) -> Match:
    """Whether it counts as many GPUs as the profile says, and nothing else of that kind."""
    counted = dict(accelerators(node))
    labelled = next((node.labels[key] for key in COUNTS if node.labels.get(key, "").isdecimal()), "0")
    gpus = counted.pop(profile.resource_name, 0) or int(labelled)
    if counted:
        return Match(seen=seen, why=f"a node of {profile.name} counts {profile.resource_name} and nothing beside it")
    if not gpus:
        return Match(seen=seen, why=f"it counts no {profile.resource_name}: does its device plug-in run?")
    if gpus != profile.gpus_per_node:
        return Match(seen=seen, why=f"a node of {profile.name} has {profile.gpus_per_node} {profile.resource_name}")
    now = _whole(node.allocatable.get(profile.resource_name, "0"))
    return Match(profile.name, seen, gpus=gpus, gpus_now=now)


def _whole(quantity: str) -> int:
    try:
        return int(amount(quantity))
    except (ArithmeticError, LookupError):
        return 0
