"""Which hardware profile a node is made of, and the racks and blocks of a pool: from labels, never a guess. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiles.hardware import HardwareProfile
from profiles.values import amount
from workflows import labels
from workflows.model.inventory import NodeStock

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
class HardwareMatch:
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


def match(node: NodeStock, hardware: Mapping[str, HardwareProfile]) -> HardwareMatch:
    """The hardware profile of a node, or why none fits."""
    counted = accelerators(node)
    label, product = _product(node)
    if not counted and not product:
        fits = "cpu" in hardware
        return HardwareMatch(
            "cpu" if fits else "", "no GPU", "" if fits else "there is no profile for nodes without GPUs"
        )
    seen = ", ".join([*([f"{label}={product}"] if product else []), *(f"{key}: {value}" for key, value in counted)])
    name = _known(label, product)
    if not product:
        return HardwareMatch(
            seen=seen, why="no label names its GPUs: run NVIDIA's GPU feature discovery or AMD's node labeller"
        )
    if name not in hardware:
        return HardwareMatch(seen=seen, why="no hardware profile is about this product")
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


def _counted(node: NodeStock, profile: HardwareProfile, seen: str) -> HardwareMatch:
    """Whether it counts as many GPUs as the profile says, and nothing else of that kind."""
    counted = dict(accelerators(node))
    labelled = next((node.labels[key] for key in COUNTS if node.labels.get(key, "").isdecimal()), "0")
    gpus = counted.pop(profile.resource_name, 0) or int(labelled)
    if counted:
        return HardwareMatch(
            seen=seen, why=f"a node of {profile.name} counts {profile.resource_name} and nothing beside it"
        )
    if not gpus:
        return HardwareMatch(seen=seen, why=f"it counts no {profile.resource_name}: does its device plug-in run?")
    if gpus != profile.gpus_per_node:
        return HardwareMatch(
            seen=seen, why=f"a node of {profile.name} has {profile.gpus_per_node} {profile.resource_name}"
        )
    now = _whole(node.allocatable.get(profile.resource_name, "0"))
    return HardwareMatch(profile.name, seen, gpus=gpus, gpus_now=now)


def _whole(quantity: str) -> int:
    try:
        return int(amount(quantity))
    except (ArithmeticError, LookupError):
        return 0


_AWS, _OCI, _GKE = "topology.k8s.aws/network-node-layer", "oci.oraclecloud.com/rdma", "cloud.google.com/gce-topology"
_CLOUD, _SWITCH = "cloud.provider.com/topology", "network.topology.nvidia.com"

SCHEMES: tuple[tuple[str, str], ...] = (
    (f"{_CLOUD}-block", f"{_CLOUD}-rack"),
    (f"{_GKE}-block", f"{_GKE}-subblock"),
    (f"{_AWS}-2", f"{_AWS}-3"),
    (f"{_OCI}.network_block_id", f"{_OCI}.local_block_id"),
    (f"{_SWITCH}/spine", f"{_SWITCH}/leaf"),
    ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0"),
    ("topology.kubernetes.io/block", "topology.kubernetes.io/rack"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack"),
)
"""(label of the block, of the rack): Kueue's examples, Google, AWS, Oracle, NVIDIA's Topograph, the usual words."""
CLIQUE = "nvidia.com/gpu.clique"
"""Nodes that share NVLink; stands for the rack of a GB200."""


@dataclass(frozen=True)
class PoolPlaces:
    """How a pool's nodes stand."""

    nodes_per_rack: int = 1
    racks_per_block: int = 1
    rack_label: str = ""
    """"" where no label names the racks."""
    block_label: str = ""
    note: str = ""
    """Where from, and what is uneven or not known."""


def places(nodes: Sequence[NodeStock], levels: Sequence[str] = ()) -> PoolPlaces:
    """The largest rack and the largest block of a pool.

    `levels`: node labels of the Kueue Topology of its flavor, the widest first; empty: none.
    """
    for block, rack in (*_own(levels), *SCHEMES):
        racks = label_values(nodes, rack)
        if racks is not None:
            return _placed(rack, racks, block, label_values(nodes, block))
    half = next((rack for _, rack in (*_own(levels), *SCHEMES) if any(node.labels.get(rack) for node in nodes)), "")
    why = f"only some of its nodes carry {half}" if half else "no usual label names racks"
    return PoolPlaces(note=f"racks are not known: {why}; written as one node by rack")


def _own(levels: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Ours, the clique, and Kueue's, which end with the host."""
    wide = [label for label in levels if label != labels.HOSTNAME]
    label_pairs = ((wide[-2] if len(wide) > 1 else "", wide[-1]),) if wide else ()
    return ((labels.BLOCK, labels.RACK), ("", CLIQUE), *label_pairs)


def label_values(nodes: Sequence[NodeStock], label: str) -> list[str] | None:
    """The label's value on each node; None unless all carry it."""
    values = [node.labels.get(label, "") for node in nodes]
    return values if label and all(values) else None


def _placed(rack: str, racks: Sequence[str], block: str, blocks: Sequence[str] | None) -> PoolPlaces:
    sizes = Counter(racks)
    most, least = max(sizes.values()), min(sizes.values())
    note = f"{len(sizes)} by label {rack}" + (
        f", of {least} to {most} nodes: the largest counts" if least < most else ""
    )
    if blocks is None:
        return PoolPlaces(most, 1, rack, "", f"racks: {note}; blocks are not known, written as one rack by block")
    pairs = set(zip(racks, blocks, strict=True))
    if len(pairs) > len(sizes):
        return PoolPlaces(most, 1, rack, "", f"racks: {note}; {block} cuts through racks, so blocks are not known")
    by_block: Mapping[str, int] = Counter(name for _, name in pairs)
    return PoolPlaces(
        most, max(by_block.values()), rack, block, f"racks: {note}; blocks: {len(by_block)} by label {block}"
    )
