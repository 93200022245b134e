"""From what is wanted and what there is to what a run gets: pool, overlay, environment, and whether it fits.

Pure: the caller brings the hardware profiles.
"""

from __future__ import annotations

from collections.abc import Mapping

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.resolve import Resolved
from profiles.room import check_room
from profiles.run import Overlay, Role, RunProfile
from profiles.suggest import did_you_mean


def resolved_on(run: RunProfile, cluster: ClusterProfile, hardware: Mapping[str, HardwareProfile]) -> Resolved:
    """One frozen value with everything the run needs to know.

    The pool is `run.pool`, else the first pool of the first hardware in `run.hardware` that the cluster has; never a
    mixture of pools. The overlay of its hardware is applied, and the hardware's fabric variables stand under the roles'
    own environment.

    Args:
        run: what is wanted.
        cluster: what there is.
        hardware: hardware profiles by name; at least those that run and cluster name.

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
    result = Resolved(run=overlaid(run, overlay, kind), cluster=cluster, pool=pool, hardware=kind)
    _check_checkpoints(result)
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


def _check_checkpoints(resolved: Resolved) -> None:
    """An absolute folder outside the shared storage would be lost with its node."""
    folder = resolved.run.checkpoint.directory
    mounts = [storage.mount_path.rstrip("/") for storage in resolved.cluster.storage]
    if folder.startswith("/") and not any(f"{folder}/".startswith(f"{mount}/") for mount in mounts):
        raise ProfileError(
            "checkpoint.directory",
            f"{folder} lies on no shared storage of cluster {resolved.cluster.name} ({', '.join(mounts)}): a lost node "
            "would take the checkpoints with it; start it with {run_dir}",
        )
