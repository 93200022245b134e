"""Whether a gang can ever be placed in its pool; what stands in the way today (other runs, cordons) does not count."""

from __future__ import annotations

from profiles.errors import ProfileError
from profiles.quantities import amount
from profiles.resolve import Resolved
from profiles.run import Role


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
