"""Pods of tests that see all GPUs of a node: in an image of the site, with the vendor's tools and torch.

Our programs come into it as into any training image, and are started by its own Python. Where the cluster profile names
no such image they run in their own, ask for no GPUs, and what would open one is unknown.
"""

from __future__ import annotations

from typing import Any

from hera.workflows import UserContainer, models

from profiles.cluster import ClusterProfile, Pool
from profiles.hardware import HardwareProfile
from workflows import commands, pods

Fields = dict[str, Any]
SHARED_MEMORY = "shared-memory"
SHARED_MEMORY_MOUNT = "/dev/shm"  # noqa: S108 - a mount path


def sees_gpus(cluster: ClusterProfile, hardware: HardwareProfile) -> bool:
    """Whether tests on such nodes run in an image that can open GPUs, and so need the node's GPUs for themselves."""
    return bool(cluster.admission.gpu_image) and hardware.gpus_per_node > 0


def command(program: str, words: list[str], *, own_image: bool) -> list[str]:
    """How one of our programs is started; the image's own Python keeps its site packages, for torch.

    Args:
        program: its name.
        words: its flags.
        own_image: it runs in an image of the site.
    """
    if not own_image:
        return [commands.PROGRAMS, program, *words]
    archive = f"{pods.PROGRAMS_MOUNT}/programs.pyz"
    return ["python3", "-I", archive, program, *words]


def with_gpus(fields: Fields, cluster: ClusterProfile, pool: Pool, hardware: HardwareProfile) -> Fields:
    """The fields of a pod of ours (`node_pods.pod_fields`), in the site's image and with the node's devices."""
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
