"""A node that joins: whether our start-up taint stands on it, and whether what runs need of it is there. Pure.

Ready is not enough: a kubelet is Ready before any device plug-in has told of a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profiles.vocabulary import VerdictWord
from workflows import labels
from workflows.model.manifest import Json, items, part
from workflows.model.nodes import node_of, told_by_node_object

if TYPE_CHECKING:
    from profiles.cluster import ClusterProfile, Pool
    from profiles.hardware import HardwareProfile

SHOWN_CHARACTERS = 240
"""Of what a test said."""


def joins(node: Json) -> bool:
    """Whether the start-up taint stands on a node, with whatever value and effect."""
    return any(taint.get("key") == labels.STARTUP_TAINT for taint in items(node, "spec", "taints"))


def identity_of(node: Json) -> str:
    """What tells a node from another one of its name, before or after it."""
    return str(part(node, "metadata").get("uid", ""))


def without_startup_taint(taints: Sequence[Json]) -> list[Json]:
    """The entries of `spec.taints` of everybody else."""
    return [taint for taint in taints if taint.get("key") != labels.STARTUP_TAINT]


def fit(node: Json, hardware: HardwareProfile) -> tuple[VerdictWord, str]:
    """Whether a node is Ready and offers exactly the GPUs of its hardware, and what says so.

    Unknown: its kubelet is silent, or has not told yet what it offers.
    """
    ready = node_of(node).ready
    if ready is None:
        return VerdictWord.UNKNOWN, "its kubelet tells nothing"
    if not ready:
        return VerdictWord.FAIL, f"it is not Ready: {node_of(node).reason or 'no reason is told'}"
    if not hardware.gpus_per_node:
        return VerdictWord.PASS, "Ready"
    told = told_by_node_object(node, hardware.resource_name)
    counted = [reading for reading in told.readings if reading.quantity == "allocatable_gpus"]
    if not counted or counted[0].value is None:
        return VerdictWord.UNKNOWN, told.unknown
    found, wanted = int(counted[0].value), hardware.gpus_per_node
    if found == wanted:
        return VerdictWord.PASS, f"Ready, {found} {hardware.resource_name}"
    return VerdictWord.FAIL, f"{found} of {wanted} {hardware.resource_name} in allocatable"


def last_test(node: Json) -> str:
    """What the last test of a node said, as it stands on the node; "" where none was ever written there."""
    text = part(node, "metadata", "annotations").get(labels.VERDICT_EVIDENCE)
    try:
        found = part({"said": json.loads(str(text)) if text else None}, "said")
    except ValueError:
        return ""
    words = [str(found.get(name) or "") for name in ("verdict", "depth", "evidence")]
    return ": ".join(word for word in words if word)[:SHOWN_CHARACTERS]


def pool_of(marks: Mapping[str, Any], profile: ClusterProfile) -> Pool | None:
    """The first pool of the profile whose nodes carry these labels."""
    for pool in profile.pools:
        wanted = pool.labels if profile.engine == "kubernetes" else {labels.POOL: pool.name}
        if all(marks.get(key) == value for key, value in wanted.items()):
            return pool
    return None
