"""Parts of pods that training pods and pipeline pods share, in Kubernetes' own JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.run import Role
from workflows import labels
from workflows.attempt.placeholders import folder_variable, storage_volume
from workflows.attempt.plan import AttemptPlan
from workflows.programs.checkpoints import proofs

Part = dict[str, Any]

SHARED_MEMORY_VOLUME = "shared-memory"
TOKEN_VOLUME = "token"  # noqa: S105 - a volume's name
TOKEN_KEY = "token"  # noqa: S105 - the key's name, not a token
TOKEN_MOUNT = "/primus/token"  # noqa: S105 - a mount path
PROGRAMS_MOUNT = "/primus/programs"
OUTPUTS_MOUNT = "/primus/outputs"
NODE_LIST_LIMIT = 512
"""A list of node names stands in every pod of its role, so the bytes in etcd grow with the square of the nodes: 512
names of 20 bytes are 5 MB over all pods. Larger gangs are placed by their pool's labels and the list of suspects."""
OWN_RESOURCES: Part = {
    "requests": {"cpu": "50m", "memory": "64Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
"""Of our own containers: they wait more than they work, but a checkpoint is read with two threads' buffers."""

PING_GROUPS = {"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}
"""Lets every user of the pod send ICMP echoes: a capability is no use to those who are not root. Kubernetes counts it
among the safe sysctls (since 1.18), which every Pod Security level allows."""


def volume_mounts(cluster: ClusterProfile, own: Mapping[str, str]) -> list[Part]:
    """The cluster's storage and the volumes in `own` (volume -> mount path)."""
    paths = {storage_volume(index): storage.mount_path for index, storage in enumerate(cluster.storage)} | dict(own)
    return [{"name": name, "mountPath": path} for name, path in paths.items()]


def folder_environment(mounts: Sequence[Part]) -> list[Part]:
    """One variable a mount: where the folder is, on any engine."""
    return [variable(folder_variable(mount["name"]), mount["mountPath"]) for mount in mounts]


def storage_volumes(cluster: ClusterProfile) -> list[Part]:
    """The cluster's shared folders as volumes."""
    volumes: list[Part] = []
    for index, storage in enumerate(cluster.storage):
        if storage.kind == "claim":
            source: Part = {"persistentVolumeClaim": {"claimName": storage.source}}
        else:
            # On real nodes a missing folder is a lost mount: writing into an empty local one would lose checkpoints.
            kind = "DirectoryOrCreate" if cluster.engine == "embedded" else "Directory"
            source = {"hostPath": {"path": storage.source, "type": kind}}
        volumes.append({"name": storage_volume(index), **source})
    return volumes


def empty_volume(name: str) -> Part:
    """A folder that lives as long as its pod."""
    return {"name": name, "emptyDir": {}}


def token_volume(secret: str) -> Part:
    """The folder with the token that `secret` holds; whoever may see the container's environment does not see it."""
    return {"name": TOKEN_VOLUME, "secret": {"secretName": secret}}


def token_variable() -> Part:
    """The environment variable that names the token's file."""
    return variable("PRIMUS_TOKEN_FILE", f"$({folder_variable(TOKEN_VOLUME)})/{TOKEN_KEY}")


def variable(name: str, value: str) -> Part:
    """A plain environment variable."""
    return {"name": name, "value": value}


def field_variable(name: str, path: str) -> Part:
    """An environment variable read from the pod itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secret_variable(name: str, secret: str, key: str) -> Part:
    """An environment variable read from a Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def own_environment(plan: AttemptPlan, mounts: Sequence[Part]) -> list[Part]:
    """The environment of every container of ours."""
    return [
        *folder_environment(mounts),
        variable("PRIMUS_RUN", plan.run),
        variable("PRIMUS_ATTEMPT", str(plan.attempt)),
        field_variable("PRIMUS_NODE", "spec.nodeName"),
        field_variable("PRIMUS_POD", "metadata.name"),
    ]


def owner_environment(plan: AttemptPlan) -> list[Part]:
    """The environment variable that says which ledger owns the run's folder.

    No flag: a run that lives through an upgrade keeps its image, whose programs refuse flags that they do not know.
    """
    return [variable(proofs.VARIABLE, plan.ledger)] if plan.ledger else []


def resources(plan: AttemptPlan, role: Role) -> Part:
    """Requests and limits of one pod of `role`: devices and memory with a limit, CPUs by request only.

    Raises:
        ProfileError: devices are asked for that the hardware does not have.
    """
    asked, hardware = role.resources, plan.resolved.hardware
    field = f"roles[{plan.resolved.run.roles.index(role)}].resources"
    devices = {
        **_devices(plan.gpus(role), hardware.resource_name, hardware.gpus_per_node, f"{field}.gpus"),
        **_devices(nics(plan, role), hardware.nic_resource_name, hardware.nics_per_node, f"{field}.nics"),
    }
    memory = {"memory": asked.memory} if asked.memory else {}
    # A CPU limit would throttle the ranks' own threads; the request already reserves what the profile asks for.
    requests = {**({"cpu": asked.cpu} if asked.cpu else {}), **memory, **devices}
    limits = {**memory, **devices}
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def nics(plan: AttemptPlan, role: Role) -> int:
    """Fabric NICs one pod of `role` requests: all of a node for pods with GPUs, unless the profile says otherwise."""
    if role.resources.nics is not None:
        return role.resources.nics
    hardware = plan.resolved.hardware
    return hardware.nics_per_node if hardware.nic_resource_name and plan.gpus(role) else 0


def _devices(count: int, resource: str, available: int, field: str) -> dict[str, str]:
    if not count:
        return {}
    if not resource or count > available:
        raise ProfileError(
            field, f"{count} asked for, but a node of this hardware offers {available if resource else 0}"
        )
    return {resource: str(count)}


def tolerations(pool: Pool) -> list[Part]:
    """Tolerations of the pool's taints (`key=value:Effect` or `key:Effect`)."""
    found: list[Part] = []
    for taint in pool.taints:
        rest, _, effect = taint.rpartition(":")
        key, equals, value = rest.partition("=")
        how: Part = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
        found.append({"key": key, **how, "effect": effect})
    return found


def node_selector(cluster: ClusterProfile, pool: Pool) -> dict[str, str]:
    """Labels of the pool's nodes. Ours stands only on embedded nodes: on Kubernetes the pool's own labels select."""
    ours = {labels.POOL: pool.name} if cluster.engine == "embedded" else {}
    return ours | pool.labels


def node_affinity(plan: AttemptPlan, only: Sequence[str]) -> Part:
    """Required node affinity: one of `only` (empty: any), none of the plan's suspects; {} where anything goes."""
    terms: list[Part] = []
    if only:
        terms.append({"key": labels.HOSTNAME, "operator": "In", "values": list(only)})
    if plan.avoid_nodes:
        terms.append({"key": labels.HOSTNAME, "operator": "NotIn", "values": list(plan.avoid_nodes)})
    if not terms:
        return {}
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def pod_security(cluster: ClusterProfile) -> Part:
    """Security context of a pod that runs our own programs."""
    return {**rank_security(cluster), "seccompProfile": {"type": "RuntimeDefault"}}


def rank_security(cluster: ClusterProfile) -> Part:
    """Security context of a pod of ranks; may be empty.

    No seccomp profile is asked for: the runtime's own refuses `mbind` and `set_mempolicy`, which bind ranks and
    collective libraries to the memory next to their GPU.
    """
    return {} if cluster.run_as_user is None else {"runAsUser": cluster.run_as_user}


def container_security(*, locks_memory: bool = False, reads_kernel_log: bool = False) -> Part:
    """Security context of a container; `locks_memory`: RDMA registers memory, which needs one capability.

    `reads_kernel_log`: kernels tell what they said only with another one.

    Not all capabilities are dropped: an image that runs as root must still read and write folders of other users on
    shared storage.
    """
    wanted = [*(["IPC_LOCK"] if locks_memory else []), *(["SYSLOG"] if reads_kernel_log else [])]
    added = {"add": wanted} if wanted else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"], **added}}
