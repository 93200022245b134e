"""From a cluster profile to a cluster that answers."""

from __future__ import annotations

import sys
from pathlib import Path

from profiles.cluster import ClusterProfile, ImageMapping, Pool
from profiles.loading.load import load_hardware
from tasks.cluster import Cluster
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.spec import ImageSpec, NodeSpec, Spec
from tasks.programs_archive import programs_archive
from workflows import labels


def open_cluster(profile: ClusterProfile, home: Path) -> Cluster:
    """The cluster of a profile. Nothing is started and nothing is asked until the first call."""
    if profile.engine == "kubernetes":
        from tasks.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - half a second that a laptop need not pay

        return KubernetesCluster(profile)
    return embedded_cluster(profile, home)


def embedded_cluster(profile: ClusterProfile, home: Path) -> EmbeddedCluster:
    """The laptop cluster of a profile, with what only it can do (losing nodes, listing processes)."""
    return EmbeddedCluster(home / "clusters" / profile.name, embedded_spec(profile, home))


def embedded_spec(profile: ClusterProfile, home: Path) -> Spec:
    """What the embedded cluster needs to know of a profile."""
    nodes = [node for position, pool in enumerate(profile.pools) for node in _nodes(pool, first=position == 0)]
    return Spec(
        name=profile.name,
        namespace=profile.namespace,
        nodes=tuple(nodes),
        images=tuple(_image(mapping, home) for mapping in profile.images),
        priority_classes=dict(profile.priority_classes),
    )


def _image(mapping: ImageMapping, home: Path) -> ImageSpec:
    words = {"{python}": sys.executable}
    if any("{programs}" in command for command in mapping.programs.values()):
        words["{programs}"] = str(programs_archive(home))
    programs = {name: [words.get(word, word) for word in command.split()] for name, command in mapping.programs.items()}
    return ImageSpec(
        pattern=mapping.pattern, programs=programs, host_path=mapping.host_path, environment=dict(mapping.environment)
    )


def _nodes(pool: Pool, *, first: bool) -> list[NodeSpec]:
    hardware = load_hardware(pool.hardware)
    prefix = pool.node_prefix or ("node-" if first else f"{pool.name}-")
    capacity = {
        "cpu": str(pool.cpus_per_node or hardware.cpus_per_node),
        "memory": pool.memory_per_node or hardware.memory_per_node,
    }
    if hardware.resource_name:
        capacity[hardware.resource_name] = str(hardware.gpus_per_node)
    nics = pool.nic_resource_name or hardware.nic_resource_name
    if nics:
        capacity[nics] = str(hardware.nics_per_node)
    return [
        NodeSpec(
            name=f"{prefix}{index}",
            labels=_labels(pool, f"{prefix}{index}", index),
            capacity=capacity,
            taints=tuple(_taint(text) for text in pool.taints),
            pool=pool.name,
            spare=index >= pool.nodes - pool.spares,
        )
        for index in range(pool.nodes)
    ]


def _labels(pool: Pool, node: str, index: int) -> dict[str, str]:
    rack = index // pool.topology.nodes_per_rack
    block = rack // pool.topology.racks_per_block
    spare = {labels.SPARE: "true"} if index >= pool.nodes - pool.spares else {}
    return {
        **pool.labels,
        **spare,
        labels.HOSTNAME: node,
        labels.POOL: pool.name,
        labels.RACK: f"{pool.name}-rack-{rack}",
        labels.BLOCK: f"{pool.name}-block-{block}",
    }


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.partition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
