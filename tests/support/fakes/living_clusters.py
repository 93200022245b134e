"""Living clusters made by hand: nodes as their labellers write them, and pools of a profile turned into nodes."""

from __future__ import annotations

from typing import Any

from profiles.cluster import Pool
from profiles.hardware import HardwareProfile
from profiles.loading.load import list_profiles, load_hardware
from workflows import labels
from workflows.model.inventory import Inventory, NodeStock

HARDWARE = {item.name: load_hardware(item.name) for item in list_profiles() if item.kind == "hardware"}
PRODUCTS = {
    "a100": ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"),
    "h100": ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
    "h200": ("nvidia.com/gpu.product", "NVIDIA-H200"),
    "b200": ("nvidia.com/gpu.product", "NVIDIA-B200"),
    "gb200": ("nvidia.com/gpu.product", "NVIDIA-GB200"),
    "mi250x": ("amd.com/gpu.product-name", "AMD_Instinct_MI250X"),
    "mi300x": ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM"),
    "mi325x": ("amd.com/gpu.product-name", "AMD_Instinct_MI325X_OAM"),
    "mi355x": ("amd.com/gpu.product-name", "AMD_Instinct_MI355X"),
}


def node(name: str, hardware: str = "cpu", gpus: int | None = None, **fields: Any) -> NodeStock:
    """A node of a kind; `labels` come on top of its own, `extra` resources too."""
    kind = HARDWARE[hardware]
    marks = {labels.HOSTNAME: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if hardware in PRODUCTS:
        key, value = PRODUCTS[hardware]
        marks |= {key: value, f"{key.partition('/')[0]}/driver-version": f"550.{len(name)}"}
    offer = {"cpu": str(kind.cpus_per_node), "memory": kind.memory_per_node, "pods": "110"}
    if kind.resource_name:
        offer[kind.resource_name] = str(kind.gpus_per_node if gpus is None else gpus)
    offer |= fields.pop("extra", {})
    values = {"labels": marks | fields.pop("labels", {}), "capacity": offer, "allocatable": offer, "ready": True}
    return NodeStock(name, **(values | fields))


def nodes_of(pool: Pool, kind: HardwareProfile) -> list[NodeStock]:
    """The nodes that a pool's profile describes, with racks and blocks by our own labels."""
    found: list[NodeStock] = []
    for index in range(pool.nodes):
        rack = index // pool.topology.nodes_per_rack
        place = {
            labels.RACK: f"{pool.name}-rack-{rack}",
            labels.BLOCK: f"{pool.name}-block-{rack // pool.topology.racks_per_block}",
        }
        spare = {labels.SPARE: "true"} if index >= pool.nodes - pool.spares else {}
        host = {
            "cpu": str(pool.cpus_per_node or kind.cpus_per_node),
            "memory": pool.memory_per_node or kind.memory_per_node,
        }
        nic = {pool.nic_resource_name: str(kind.nics_per_node)} if pool.nic_resource_name else {}
        marks = {**pool.labels, **place, **spare}
        found.append(
            node(f"{pool.name}-{index:03d}", kind.name, labels=marks, extra={**host, **nic}, taints=pool.taints)
        )
    return found


def stock(*nodes: NodeStock, **fields: Any) -> Inventory:
    """A cluster with these nodes."""
    return Inventory("big", "training", **({"namespace_exists": True, "nodes": nodes} | fields))
