"""From a run profile and a cluster profile to one frozen value: what a run is, whatever happens to the files later.

Resolving picks the pool, applies the overlay of its hardware and the environment, and checks that the run fits. Pure:
the caller brings the hardware profiles. `check_room` says whether the gang can ever be placed in its pool; what stands
in the way today (other runs, cordons) does not count. `digest` and `differences` say whether two resolved profiles mean
the same run, and where not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.fields import written
from profiles.hardware import HardwareProfile
from profiles.run import SET_FOR_RANKS, TORCHRUN_VARIABLES, Overlay, Role, RunProfile
from profiles.values import Value, amount, did_you_mean

FOR_PEOPLE = frozenset({"description", "verified", "source", "trial"})
"""Fields that change nothing about a run."""
MAX_SHOWN = 80
ABSENT = "(not set)"

_FOREIGN_SOURCE = frozenset({"storage"})
"""`source` of a storage is a folder, no citation."""

_FREE_KEYS = frozenset({"environment", "fabric_environment", "labels", "programs", "priority_classes", "by_hardware"})
"""Mappings whose keys are the user's own words."""


class Resolved(Value):
    """Everything a run needs to know, stored with the run."""

    run: RunProfile
    """The run profile with the overlay of its hardware already applied (`by_hardware` is empty here)."""
    cluster: ClusterProfile
    """The cluster."""
    pool: Pool
    """The pool whose nodes are used."""
    hardware: HardwareProfile
    """The pool's hardware."""

    @property
    def gpus_per_pod(self) -> int:
        """GPUs one pod of the deciding role takes; 0 on CPU nodes."""
        asked = self.run.deciding_role.resources.gpus
        return self.hardware.gpus_per_node if asked is None else asked

    @property
    def gpus(self) -> int:
        """GPUs the whole gang holds; on CPU nodes each rank of the deciding role counts as one."""
        role = self.run.deciding_role
        return role.replicas * (self.gpus_per_pod or role.processes_per_node)

    @property
    def world_size(self) -> int:
        """Ranks of the deciding role."""
        role = self.run.deciding_role
        return role.replicas * role.processes_per_node

    @property
    def storage_path(self) -> str:
        """Where pods see the shared storage that holds the runs' folders."""
        return self.cluster.storage[0].mount_path


def resolved_on(run: RunProfile, cluster: ClusterProfile, hardware: Mapping[str, HardwareProfile]) -> Resolved:
    """One frozen value with everything the run needs to know.

    The pool is `run.pool`, else the first pool of the first hardware in `run.hardware` that the cluster has; never a
    mixture of pools. The overlay of its hardware is applied, and the hardware's fabric variables stand under the roles'
    own environment. `hardware`: hardware profiles by name; at least those that run and cluster name.

    Raises:
        ProfileError: an unknown name, no fitting pool, or a gang that can never be placed there.
    """
    _check_names(run, cluster, hardware)
    pool = _chosen_pool(run, cluster)
    _check_selector(cluster, pool)
    _check_priority(run, cluster)
    overlay = run.by_hardware.get(pool.hardware, Overlay())
    if overlay.queue_flavor is not None:
        pool = pool.model_copy(update={"queue_flavor": overlay.queue_flavor})
    kind = _at_site(hardware[pool.hardware], pool)
    run = overlaid(run, overlay, kind)
    roles = tuple(
        _with_shared_memory_that_fits(role, pool.memory_per_node or kind.memory_per_node) for role in run.roles
    )
    result = Resolved(run=run.model_copy(update={"roles": roles}), cluster=cluster, pool=pool, hardware=kind)
    _check_folders(result)
    _check_environment(result)
    check_room(result)
    return result


def _at_site(hardware: HardwareProfile, pool: Pool) -> HardwareProfile:
    """The hardware with what its site says differently."""
    changes: dict[str, object] = {
        "fabric_environment": {**hardware.fabric_environment, **pool.fabric_environment},
        "nic_resource_name": pool.nic_resource_name or hardware.nic_resource_name,
    }
    return hardware.model_copy(update=changes)


def overlaid(run: RunProfile, overlay: Overlay, hardware: HardwareProfile) -> RunProfile:
    """The run with the overlay of its hardware applied and `by_hardware` empty."""
    deciding = run.deciding_role.name
    roles = tuple(_overlaid_role(role, overlay, hardware, decides=role.name == deciding) for role in run.roles)
    changes: dict[str, object] = {
        "roles": roles,
        "by_hardware": {},
        "queue": run.queue if overlay.queue is None else overlay.queue,
        "verified": run.verified if overlay.verified is None else overlay.verified,
    }
    return run.model_copy(update=changes)


def _overlaid_role(role: Role, overlay: Overlay, hardware: HardwareProfile, *, decides: bool) -> Role:
    changes: dict[str, object] = {
        "environment": {**hardware.fabric_environment, **role.environment, **overlay.environment}
    }
    if decides:
        own = {
            "image": overlay.image,
            "command": overlay.command,
            "resources": overlay.resources,
            "processes_per_node": overlay.processes_per_node,
        }
        changes |= {name: value for name, value in own.items() if value is not None}
    return role.model_copy(update=changes)


def _with_shared_memory_that_fits(role: Role, of_node: str) -> Role:
    """The role whose shared memory is at most its pod's memory, where nobody has said how much it should be."""
    resources, most = role.resources, role.resources.memory or of_node
    if "shared_memory" in resources.model_fields_set or amount(resources.shared_memory) <= amount(most):
        return role
    return role.model_copy(update={"resources": resources.model_copy(update={"shared_memory": most})})


def _check_names(run: RunProfile, cluster: ClusterProfile, hardware: Mapping[str, HardwareProfile]) -> None:
    named = [(f"hardware[{index}]", name) for index, name in enumerate(run.hardware)]
    named += [(f"by_hardware.{name}", name) for name in run.by_hardware]
    named += [(f"cluster.pools[{index}].hardware", pool.hardware) for index, pool in enumerate(cluster.pools)]
    for field, name in named:
        if name not in hardware:
            raise ProfileError(field, f'no hardware profile is called "{name}"' + did_you_mean(name, hardware))


def _chosen_pool(run: RunProfile, cluster: ClusterProfile) -> Pool:
    if run.pool:
        return _named_pool(run, cluster)
    for name in run.hardware:
        for pool in cluster.pools:
            if pool.hardware == name:
                return pool
    offered = ", ".join(f"{pool.name} ({pool.hardware})" for pool in cluster.pools)
    raise ProfileError(
        "hardware",
        f"cluster {cluster.name} has none of {', '.join(run.hardware)}; its pools: {offered}. "
        "Name another cluster, or add its hardware where the program runs on it",
    )


def _named_pool(run: RunProfile, cluster: ClusterProfile) -> Pool:
    pool = next((pool for pool in cluster.pools if pool.name == run.pool), None)
    if pool is None:
        known = did_you_mean(run.pool, [pool.name for pool in cluster.pools], "pools")
        raise ProfileError("pool", f'cluster {cluster.name} has no pool called "{run.pool}"' + known)
    if pool.hardware not in run.hardware:
        raise ProfileError(
            "pool",
            f"pool {pool.name} is made of {pool.hardware}, but the run may use {', '.join(run.hardware)} only; "
            "name another pool, or add it to hardware where the program runs on it",
        )
    return pool


def _check_selector(cluster: ClusterProfile, chosen: Pool) -> None:
    """On Kubernetes the pool's labels select its nodes: they must not select another hardware's nodes as well."""
    if cluster.engine == "embedded":
        return
    for index, other in enumerate(cluster.pools):
        if other.hardware != chosen.hardware and chosen.labels.items() <= other.labels.items():
            own = ", ".join(f"{key}={value}" for key, value in chosen.labels.items()) or "no label"
            raise ProfileError(
                f"cluster.pools[{cluster.pools.index(chosen)}].labels",
                f"{own} selects nodes of pool {other.name} ({other.hardware}, pools[{index}]) too, and one gang never "
                f"spans kinds of hardware or vendors; add a label that only nodes of pool {chosen.name} carry",
            )


def _check_priority(run: RunProfile, cluster: ClusterProfile) -> None:
    if run.priority and run.priority not in cluster.priority_classes:
        known = did_you_mean(run.priority, cluster.priority_classes, "priorities")
        raise ProfileError("priority", f'cluster {cluster.name} has no priority called "{run.priority}"' + known)
    returning = cluster.returning_priorities.get(run.priority, "")
    if returning and returning not in cluster.priority_classes:
        known = did_you_mean(returning, cluster.priority_classes, "priorities")
        raise ProfileError("cluster.returning_priorities", f'"{returning}" is no priority of {cluster.name}' + known)


def _check_folders(resolved: Resolved) -> None:
    """Folders by an absolute path: what lies outside the shared storage would be lost with its node.

    Nodes of an embedded cluster share this machine's disk, but not what each container has for itself.
    """
    cluster, mounts = resolved.cluster, [f"{item.mount_path.rstrip('/')}/" for item in resolved.cluster.storage]
    folders = {
        f"roles[{index}].working_directory": role.working_directory for index, role in enumerate(resolved.run.roles)
    }
    for field, folder in {"checkpoint.directory": resolved.run.checkpoint.directory, **folders}.items():
        inside = f"{folder}/"
        if not folder.startswith("/") or inside.startswith(tuple(mounts)):
            continue
        if cluster.engine == "embedded":
            if inside.startswith(_OWN_IN_CONTAINERS):
                raise ProfileError(
                    field,
                    f"{folder} cannot be seen by the run: each container has its own /{folder.split('/')[1]}; "
                    f"use another folder, or one below {mounts[0]}",
                )
        elif field == "checkpoint.directory":
            raise ProfileError(
                field,
                f"{folder} lies on no shared storage of cluster {cluster.name} ({', '.join(mounts)}): a lost node "
                "would take the checkpoints with it; start it with {run_dir}",
            )


_OWN_IN_CONTAINERS = ("/tmp/", "/dev/shm/")  # noqa: S108 - no file is made there


def _check_environment(resolved: Resolved) -> None:
    """A variable that is set for each rank anyway would be overridden in silence."""
    for index, role in enumerate(resolved.run.roles):
        torchrun = TORCHRUN_VARIABLES if role.torchrun_variables else ()
        for name in [*role.environment, *(one.name for one in role.secret_environment)]:
            if name in torchrun or name in SET_FOR_RANKS:
                way = "; torchrun_variables: false leaves all of torchrun's out" if name in torchrun else ""
                raise ProfileError(f"roles[{index}].environment.{name}", f"is set for each rank by us{way}")


def check_room(resolved: Resolved) -> None:
    """Nothing, or an error where no state of the pool would ever let the gang start.

    Raises:
        ProfileError: names the field of the run that asks for too much.
    """
    for index, role in enumerate(resolved.run.roles):
        _check_nodes(resolved, role, f"roles[{index}]")
        _check_devices(resolved, role, f"roles[{index}].resources")
        _check_host(resolved, role, f"roles[{index}].resources")
    _check_together(resolved)
    _check_topology(resolved)


def gpus_of(resolved: Resolved, role: Role) -> int:
    """GPUs one pod of `role` takes."""
    return resolved.gpus_per_pod if role.name == resolved.run.deciding_role.name else role.resources.gpus or 0


def _check_nodes(resolved: Resolved, role: Role, field: str) -> None:
    pool = resolved.pool
    free = pool.nodes - pool.spares
    if role.replicas > free:
        spares = f", {pool.spares} of them spare" if pool.spares else ""
        raise ProfileError(
            f"{field}.replicas",
            f"{role.replicas} nodes wanted, but pool {pool.name} has {pool.nodes}{spares}; "
            f"ask for at most {free}, or name another pool",
        )


def _check_devices(resolved: Resolved, role: Role, field: str) -> None:
    hardware = resolved.hardware
    offers = [
        ("gpus", gpus_of(resolved, role), hardware.gpus_per_node),
        ("nics", role.resources.nics or 0, hardware.nics_per_node if hardware.nic_resource_name else 0),
    ]
    for name, asked, offered in offers:
        if asked > offered:
            has = f"a node of {hardware.name} offers {offered}" if offered else f"nodes of {hardware.name} offer none"
            raise ProfileError(f"{field}.{name}", f"{asked} asked for one pod, but {has}")


def _check_host(resolved: Resolved, role: Role, field: str) -> None:
    pool, hardware, asked = resolved.pool, resolved.hardware, role.resources
    memory = pool.memory_per_node or hardware.memory_per_node
    cpus = str(pool.cpus_per_node or hardware.cpus_per_node)
    limits = [("cpu", asked.cpu, cpus), ("memory", asked.memory, memory)]
    limits.append(("shared_memory", asked.shared_memory, asked.memory or memory))
    for name, wanted, offered in limits:
        if wanted is not None and amount(wanted) > amount(offered):
            reason = f"{wanted} asked for one pod, but at most {offered} fit a node of pool {pool.name}"
            raise ProfileError(
                f"{field}.{name}", reason if name != "shared_memory" else f"{reason} or the pod's memory"
            )


def _check_together(resolved: Resolved) -> None:
    """All pods with GPUs at once: GPUs are never shared."""
    free = (resolved.pool.nodes - resolved.pool.spares) * resolved.hardware.gpus_per_node
    asked = sum(role.replicas * gpus_of(resolved, role) for role in resolved.run.roles)
    if asked > free:
        raise ProfileError(
            "roles",
            f"all roles together ask for {asked} GPUs, but pool {resolved.pool.name} has {free} without its spares",
        )


def _check_topology(resolved: Resolved) -> None:
    wish, shape = resolved.run.topology, resolved.pool.topology
    domains = {"rack": shape.nodes_per_rack, "block": shape.nodes_per_rack * shape.racks_per_block}
    if not wish.required or wish.level == "none":
        return
    nodes, most = max(role.replicas for role in resolved.run.roles), domains[wish.level]
    if nodes > most:
        raise ProfileError(
            "topology.required",
            f"{nodes} nodes never stand in one {wish.level} of pool {resolved.pool.name}, which has {most}; "
            "ask for fewer nodes or a wider level, or prefer instead of require",
        )


def digest(resolved: BaseModel) -> str:
    """SHA-256 of what the value means, as hex digits.

    Values left at their default do not count, so a new field of a later version does not make every run a stranger.
    """
    data = _meaning(resolved.model_dump(mode="json", exclude_defaults=True))
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def differences(old: Resolved, new: Resolved) -> list[str]:
    """What differs, one line a field: `steps: 100 -> 200`; empty exactly where the digests are equal.

    Fields of the run are named as `--set` names them; others start with `cluster.`, `pool.` or `hardware.`.
    """
    lines: list[str] = []
    _compare(_meaning(old.model_dump(mode="json")), _meaning(new.model_dump(mode="json")), (), lines)
    return lines


def _meaning(data: Any, inside: str = "") -> Any:
    if isinstance(data, dict):
        ignored = FOR_PEOPLE - {"source"} if inside in _FOREIGN_SOURCE else FOR_PEOPLE
        items = cast("dict[str, Any]", data).items()
        free = inside in _FREE_KEYS
        return {key: _meaning(value, key) for key, value in items if free or key not in ignored}
    if isinstance(data, list):
        return [_meaning(item, inside) for item in cast("list[Any]", data)]
    return data


def _compare(old: Any, new: Any, path: tuple[str | int, ...], lines: list[str]) -> None:
    if old == new:
        return
    left, right = _named(old), _named(new)
    if left is None or right is None:
        name = path[1:] if path[0] == "run" else path
        lines.append(f"{written(name)}: {_shown(old)} -> {_shown(new)}")
        return
    for key in [*left, *(key for key in right if key not in left)]:
        _compare(left.get(key, ABSENT), right.get(key, ABSENT), (*path, key), lines)


def _named(value: Any) -> dict[str, Any] | None:
    """A mapping, or a list of named things as a mapping; None for everything else."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    names = [cast("dict[str, Any]", item).get("name") for item in items if isinstance(item, dict)]
    unique = len(names) == len(items) and len(set(names)) == len(names) and None not in names
    return {str(name): item for name, item in zip(names, items, strict=True)} if unique and items else None


def _shown(value: Any) -> str:
    if value is ABSENT:
        return ABSENT
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
