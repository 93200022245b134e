"""What all workflows about nodes share: a short pod on each node, rack by rack, and pods that see a node's GPUs.

Such pods tolerate every taint. Pods that see all GPUs run in an image of the site, with the vendor's tools and torch:
our programs come into it as into any training image, and are started by its own Python. Where the cluster profile names
no such image they run in their own, ask for no GPUs, and a check that would open one is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hera.workflows import Step, Steps, UserContainer, models

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.values import did_you_mean
from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.placeholders import storage_volume
from workflows.attempt.templates import MAIN
from workflows.tolerations import EVERYTHING

Fields = dict[str, Any]

AT_ONCE = 32
"""Pods at the same time: no more than an API server and a registry notice."""
KEEP_SECONDS = 3600
"""What was found is in the ledger by then."""
SHARED_MEMORY = "shared-memory"
SHARED_MEMORY_MOUNT = "/dev/shm"  # noqa: S108 - a mount path


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
        "tolerations": [models.Toleration.model_validate(EVERYTHING)],
        "volumes": [models.Volume.model_validate(volume) for volume in volumes],
    }


def no_more(_: str) -> str:
    """The default of `more`: nothing follows the pods of a rack."""
    return ""


def rack_steps(racks: Sequence[Rack], template: Callable[[str], str], more: Callable[[str], str] = no_more) -> None:
    """The steps, one a rack, inside a workflow's context.

    `template` names the template of a pool; `more` one that follows on the same nodes ("": none).
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


def places_of(profile: ClusterProfile, named: Sequence[str], share: float) -> dict[str, str]:
    """The named nodes with their pool; where none is named, so large a share of each pool's.

    The names of an embedded cluster follow from its profile; those of others are taken for nodes of the first pool.

    Raises:
        ProfileError: an embedded cluster has no node of that name.
    """
    if not named:
        return first_nodes(profile, share)
    if profile.engine != "embedded":
        return dict.fromkeys(named, profile.pools[0].name)
    known = first_nodes(profile, 1.0)
    for name in named:
        if name not in known:
            raise ProfileError("--nodes", f"{profile.name} has no node {name}{did_you_mean(name, known, 'there are')}")
    return {name: known[name] for name in named}


def sees_gpus(cluster: ClusterProfile, hardware: HardwareProfile) -> bool:
    """Whether tests on such nodes run in an image that can open GPUs, and so need the node's GPUs for themselves."""
    return bool(cluster.admission.gpu_image) and hardware.gpus_per_node > 0


def command(program: str, words: list[str], *, own_image: bool) -> list[str]:
    """How one of our programs is started; in an image of the site (`own_image`) Python keeps its own packages."""
    if not own_image:
        return [commands.PROGRAMS, program, *words]
    archive = f"{pods.PROGRAMS_MOUNT}/programs.pyz"
    return ["python3", "-I", archive, program, *words]


def with_gpus(fields: Fields, cluster: ClusterProfile, pool: Pool, hardware: HardwareProfile) -> Fields:
    """The fields of a pod of ours (`pod_fields`), in the site's image and with the node's devices."""
    admission = cluster.admission
    mounts = [*fields["volume_mounts"], *_mounts()]
    return {
        **fields,
        "image": admission.gpu_image,
        "resources": models.ResourceRequirements.model_validate(
            {
                "requests": {"cpu": admission.gpu_image_cpu, "memory": admission.gpu_image_memory}
                | devices(pool, hardware),
                "limits": {"memory": admission.gpu_image_memory} | devices(pool, hardware),
            }
        ),
        "volume_mounts": mounts,
        "init_containers": [_bring_programs(cluster)],
        "volumes": [
            models.Volume.model_validate(pods.empty_volume(commands.PROGRAMS_VOLUME)),
            models.Volume(name=SHARED_MEMORY, empty_dir=models.EmptyDirVolumeSource(medium="Memory")),
        ],
    }


def devices(pool: Pool, hardware: HardwareProfile) -> dict[str, str]:
    """All GPUs of a node, and its fabric NICs where a device plug-in counts them."""
    found = {hardware.resource_name: str(hardware.gpus_per_node)}
    nics = pool.nic_resource_name or hardware.nic_resource_name
    return found | ({nics: str(hardware.nics_per_node)} if nics and hardware.nics_per_node else {})


def variables_of(pool: Pool, hardware: HardwareProfile) -> dict[str, str]:
    """What the fabric needs in the environment of every program that uses it: the hardware's, the site's over them."""
    return {**hardware.fabric_environment, **pool.fabric_environment}


def _mounts() -> list[models.VolumeMount]:
    own = {commands.PROGRAMS_VOLUME: pods.PROGRAMS_MOUNT, SHARED_MEMORY: SHARED_MEMORY_MOUNT}
    return [models.VolumeMount(name=name, mount_path=path) for name, path in own.items()]


def _bring_programs(cluster: ClusterProfile) -> UserContainer:
    mounts = [{"name": commands.PROGRAMS_VOLUME, "mountPath": pods.PROGRAMS_MOUNT}]
    return UserContainer(
        name="programs",
        image=cluster.programs_image,
        command=commands.copy(),
        env=[models.EnvVar.model_validate(item) for item in pods.folder_environment(mounts)],
        resources=models.ResourceRequirements.model_validate(pods.OWN_RESOURCES),
        security_context=models.SecurityContext.model_validate(pods.container_security()),
        volume_mounts=[models.VolumeMount.model_validate(mount) for mount in mounts],
    )
