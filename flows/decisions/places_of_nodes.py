"""Racks and blocks of a pool from the labels that usually tell them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workflows import labels
from workflows.inventory import NodeStock

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
class Places:
    """How a pool's nodes stand."""

    nodes_per_rack: int = 1
    racks_per_block: int = 1
    rack_label: str = ""
    """"" where no label tells the racks."""
    block_label: str = ""
    told: str = ""
    """Where from, and what is uneven or not known."""


def places(nodes: Sequence[NodeStock], levels: Sequence[str] = ()) -> Places:
    """The largest rack and the largest block of a pool.

    Args:
        nodes: the pool's.
        levels: node labels of the Kueue Topology of its flavor, the widest first; empty: none.
    """
    for block, rack in (*_own(levels), *SCHEMES):
        racks = _told(nodes, rack)
        if racks is not None:
            return _placed(rack, racks, block, _told(nodes, block))
    half = next((rack for _, rack in (*_own(levels), *SCHEMES) if any(node.labels.get(rack) for node in nodes)), "")
    why = f"only some of its nodes carry {half}" if half else "no usual label tells racks"
    return Places(told=f"racks are not known: {why}; written as one node by rack")


def _own(levels: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Ours, the clique, and Kueue's, which end with the host."""
    wide = [label for label in levels if label != labels.HOSTNAME]
    told = ((wide[-2] if len(wide) > 1 else "", wide[-1]),) if wide else ()
    return ((labels.BLOCK, labels.RACK), ("", CLIQUE), *told)


def _told(nodes: Sequence[NodeStock], label: str) -> list[str] | None:
    """The label's value on each node; None unless all carry it."""
    values = [node.labels.get(label, "") for node in nodes]
    return values if label and all(values) else None


def _placed(rack: str, racks: Sequence[str], block: str, blocks: Sequence[str] | None) -> Places:
    sizes = Counter(racks)
    most, least = max(sizes.values()), min(sizes.values())
    told = f"{len(sizes)} by label {rack}" + (
        f", of {least} to {most} nodes: the largest counts" if least < most else ""
    )
    if blocks is None:
        return Places(most, 1, rack, "", f"racks: {told}; blocks are not known, written as one rack by block")
    pairs = set(zip(racks, blocks, strict=True))
    if len(pairs) > len(sizes):
        return Places(most, 1, rack, "", f"racks: {told}; {block} cuts through racks, so blocks are not known")
    by_block: Mapping[str, int] = Counter(name for _, name in pairs)
    return Places(most, max(by_block.values()), rack, block, f"racks: {told}; blocks: {len(by_block)} by label {block}")
