"""Workflows about nodes: a short pod on each of them, rack by rack, whoever else keeps away from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hera.workflows import Step, Steps, models

from profiles.cluster import ClusterProfile, Pool
from workflows import commands, labels, pods
from workflows.placeholders import storage_volume
from workflows.templates import MAIN

AT_ONCE = 32
"""Pods at the same time: no more than an API server and a registry notice."""
KEEP_SECONDS = 3600
"""What was found is in the ledger by then."""
EVERYTHING = models.Toleration(operator="Exists")
"""A node that others keep away from is looked at all the same."""


@dataclass(frozen=True)
class Rack:
    """Nodes that are looked at side by side."""

    pool: str
    nodes: tuple[str, ...]


def racks_of(pool: Pool, nodes: Sequence[str]) -> list[Rack]:
    """Nodes of a pool, given in their order, rack by rack; small racks together."""
    size = pool.topology.nodes_per_rack
    step = size * max(1, AT_ONCE // size)
    return [Rack(pool.name, tuple(nodes[begin : begin + step])) for begin in range(0, len(nodes), step)]


def racks_by_pool(cluster: ClusterProfile, pools: Mapping[str, str]) -> tuple[Rack, ...]:
    """Nodes (name -> pool) in their order, rack by rack, in the order of the cluster's pools."""
    own = [(pool, [node for node, name in pools.items() if name == pool.name]) for pool in cluster.pools]
    return tuple(rack for pool, nodes in own for rack in racks_of(pool, nodes))


def rounds_of(racks: Sequence[Rack]) -> int:
    """How often so many pods are started at once."""
    return sum(-(-len(rack.nodes) // AT_ONCE) for rack in racks)


def workflow_fields(cluster: ClusterProfile, marks: Mapping[str, str], deadline_seconds: int) -> dict[str, Any]:
    """What every such workflow says of itself, but for its name."""
    volumes = [*pods.storage_volumes(cluster), pods.empty_volume(commands.OUTPUTS_VOLUME)]
    secrets = [models.LocalObjectReference(name=secret) for secret in cluster.image_pull_secrets]
    return {
        "namespace": cluster.namespace,
        "labels": dict(marks),
        "annotations": {labels.FENCING: "0"},
        "entrypoint": MAIN,
        "service_account_name": cluster.service_account,
        "active_deadline_seconds": deadline_seconds,
        "parallelism": AT_ONCE,
        "pod_gc": models.PodGC(strategy="OnPodCompletion"),
        "ttl_strategy": models.TTLStrategy(seconds_after_completion=KEEP_SECONDS),
        "pod_metadata": models.Metadata(labels=dict(marks)),
        "image_pull_secrets": secrets or None,
        "security_context": models.PodSecurityContext.model_validate(pods.pod_security(cluster)),
        "tolerations": [EVERYTHING],
        "volumes": [models.Volume.model_validate(volume) for volume in volumes],
    }


def no_more(_: str) -> str:
    """Nothing follows the pods of a rack."""
    return ""


def rack_steps(racks: Sequence[Rack], template: Callable[[str], str], more: Callable[[str], str] = no_more) -> None:
    """The steps, one a rack, inside a workflow's context.

    Args:
        racks: in their order.
        template: names the one of a pool.
        more: names one that follows on the same nodes; "": none.
    """
    steps = [(f"rack-{number}", rack, template(rack.pool)) for number, rack in enumerate(racks)]
    steps += [(f"then-{number}", rack, more(rack.pool)) for number, rack in enumerate(racks) if more(rack.pool)]
    with Steps(name=MAIN):
        for name, rack, own in steps:
            Step(
                name=name,
                template=own,
                arguments={"node": "{{item}}"},
                with_items=list(rack.nodes),
                # A node whose pod is lost keeps nobody else from being looked at.
                continue_on=models.ContinueOn(error=True, failed=True),
            )


def pod_fields(cluster: ClusterProfile, *, read_only: bool) -> dict[str, Any]:
    """What every such pod says of itself: no GPUs, next to nothing else; `read_only`: the storage cannot be written."""
    mounts = pods.volume_mounts(cluster, {commands.OUTPUTS_VOLUME: pods.OUTPUTS_MOUNT})
    storage = {storage_volume(index) for index in range(len(cluster.storage))} if read_only else set[str]()
    looked_at = [{**mount, "readOnly": True} if mount["name"] in storage else mount for mount in mounts]
    environment = [*pods.folder_environment(mounts), pods.field_variable("PRIMUS_NODE", "spec.nodeName")]
    security = pods.container_security(reads_kernel_log=cluster.read_kernel_log)
    return {
        "image": cluster.programs_image,
        "env": [models.EnvVar.model_validate(item) for item in environment],
        "resources": models.ResourceRequirements.model_validate(pods.OWN_RESOURCES),
        "security_context": models.SecurityContext.model_validate(security),
        "volume_mounts": [models.VolumeMount.model_validate(mount) for mount in looked_at],
        "node_selector": {labels.HOSTNAME: "{{inputs.parameters.node}}"},
    }


def first_nodes(profile: ClusterProfile, share: float) -> dict[str, str]:
    """So large a share of each pool's nodes, by the names that an embedded cluster gives, with their pool."""
    found: dict[str, str] = {}
    for number, pool in enumerate(profile.pools):
        prefix = pool.node_prefix or ("node-" if number == 0 else f"{pool.name}-")
        found |= {f"{prefix}{index}": pool.name for index in range(math.ceil(share * pool.nodes))}
    return found or {"node-0": profile.pools[0].name}
