"""Changes of a cluster that lives: which hosts may leave or be upgraded together, in which order, and when not at all.

Control planes go one by one and never below their quorum; workers go in batches of one rack each, never more than the
brake's share of them at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from flows.decisions.text import first_names
from profiles.bootstrap.engines import Kubespray, minor_of
from profiles.bootstrap.inventory import Bootstrap
from workflows.bootstrap.leaving import SNAPSHOTS
from workflows.model.bootstrap import Stage, Step

SHOWN = 6


def batches(bootstrap: Bootstrap, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """These workers in batches, each of one rack and of no more hosts than the brake allows (one always may be).

    A host without a rack is a rack of its own. The order of the inventory is kept within a rack, and racks follow each
    other by their first host.
    """
    most = max(1, int(bootstrap.batch_share * len(bootstrap.workers)))
    racks: dict[str, list[str]] = {}
    for name in names:
        racks.setdefault(bootstrap.hosts[name].rack or f"host {name}", []).append(name)
    return tuple(tuple(rack[start : start + most]) for rack in racks.values() for start in range(0, len(rack), most))


def quorum_of(members: int) -> int:
    """So many members of etcd must live."""
    return members // 2 + 1


def why_not_leave(bootstrap: Bootstrap, leaving: Sequence[str], members: Mapping[str, bool] | None, dead: bool) -> str:
    """Why these hosts may not leave now; "" where they may.

    Args:
        bootstrap: the inventory.
        leaving: names of hosts.
        members: members of etcd as a living one sees them -> whether it serves; None: nobody could tell.
        dead: they are said not to answer.
    """
    unknown = [name for name in leaving if name not in bootstrap.hosts]
    if unknown:
        return f"{first_names(unknown, SHOWN)}: no such host in the inventory"
    planes = [name for name in leaving if bootstrap.hosts[name].controls]
    return _why_not_shrink(bootstrap, planes, members, dead) if planes else ""


def _why_not_shrink(bootstrap: Bootstrap, planes: Sequence[str], members: Mapping[str, bool] | None, dead: bool) -> str:
    """The same for the control planes among them."""
    if members is None:
        return f"{first_names(planes, SHOWN)} carries a control plane, and no other one tells how etcd stands"
    if len(planes) > 1:
        return f"{first_names(planes, SHOWN)}: control planes leave one by one, each after the one before it is proven"
    staying = {name: serves for name, serves in members.items() if name not in planes}
    if not staying:
        return f"{planes[0]} is the last control plane: the cluster ends with it (--uninstall removes what runs on it)"
    if isinstance(bootstrap.engine, Kubespray) and planes[0] == bootstrap.control_planes[0]:
        another = "name another control plane first in bootstrap.hosts, then let it leave"
        return f"{planes[0]} is the first control plane, through which Kubespray does everything: {another}"
    serving = sum(staying.values())
    needed = quorum_of(len(staying))
    if serving < needed:
        silent = [name for name, serves in staying.items() if not serves]
        left = f"without {planes[0]} {serving} of {len(staying)} members of etcd would serve"
        return f"{left}, {needed} must: bring {first_names(silent, SHOWN)} back first"
    if dead and members.get(planes[0]):
        return f"{planes[0]} is said to be dead, and its etcd serves: let it leave without --dead"
    return ""


def leave_steps(bootstrap: Bootstrap, leaving: Sequence[str], dead: bool) -> tuple[Step, ...]:
    """One step a host: workers batch by batch, then control planes one by one."""
    workers = [name for name in leaving if not bootstrap.hosts[name].controls]
    planes = [name for name in leaving if bootstrap.hosts[name].controls]
    what = "is taken out without being asked" if dead else "is emptied and leaves"
    return _in_turn(Stage.LEAVE, (*batches(bootstrap, workers), *((name,) for name in planes)), "gone", what)


def why_not_upgrade(running: Iterable[str], wanted: str) -> str:
    """Why the cluster may not be brought to a version now; "" where it may.

    Args:
        running: versions of Kubernetes that nodes and control planes run now.
        wanted: e.g. 1.36.4.
    """
    found = sorted({version.lstrip("v") for version in running if version})
    if not found:
        return "nobody tells which version runs now"
    for version in found:
        step = minor_of(wanted) - minor_of(version)
        if _parts(wanted) < _parts(version):
            return (
                f"{version} runs already: Kubernetes does not go back to {wanted}; restore a snapshot of etcd instead"
            )
        if step > 1:
            return f"from {version} to {wanted} leaves minor versions out: go to 1.{minor_of(version) + 1} first"
    return ""


def upgrade_steps(bootstrap: Bootstrap, version: str) -> tuple[Step, ...]:
    """One step a host: control planes one by one, the first one first, then workers batch by batch.

    Kubespray goes through control planes one by one by itself: one act is asked for all of them.
    """
    together = isinstance(bootstrap.engine, Kubespray)
    planes = (bootstrap.control_planes,) if together else tuple((name,) for name in bootstrap.control_planes)
    steps = _in_turn(Stage.UPGRADE, (*planes, *batches(bootstrap, bootstrap.workers)), version, f"goes to {version}")
    return steps


def way_back(running: Iterable[str], wanted: str) -> str:
    """What an upgrade by our plays can never take back, and what there is instead."""
    found = sorted({version.lstrip("v") for version in running if version}, key=_parts)
    since = f"from {found[0]} to {wanted}" if found else f"to {wanted}"
    never = "there is no way back: Kubernetes goes back neither with its programs nor with what it wrote to etcd"
    kept = (
        f"etcd is kept in {SNAPSHOTS} before each control plane changes; whoever restores that loses all later writes"
    )
    return f"{since} {never}; {kept}"


def _in_turn(stage: Stage, groups: Iterable[Sequence[str]], wanted: str, what: str) -> tuple[Step, ...]:
    """Steps of which each group waits for all before it."""
    fingerprint = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    return tuple(
        Step(stage, name, fingerprint, f"{name} {what}", turn=turn)
        for turn, group in enumerate(groups, 1)
        for name in group
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.lstrip("v").split("-")[0].split("."))
