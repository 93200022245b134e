"""Control planes, whoever made them: what they see of their cluster, who is asked, and etcd kept before a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from profiles.cluster import ClusterProfile
from profiles.errors import Refused, Unavailable
from tasks.bootstrap.access import run_on
from tasks.bootstrap.kubeadm_variables import SNAPSHOTS_KEPT, own_server, program
from tasks.ssh.masking import masked
from workflows.bootstrap import kubeadm_documents
from workflows.bootstrap.control_sight import ControlSight, PlaneSight, plane_sight
from workflows.bootstrap.host_state import inventory_of

LOOK_SECONDS = 120.0
SNAPSHOT_SECONDS = 300.0
JOURNAL = ("journalctl", "--unit=kubelet", "--unit=containerd", "--lines=300", "--output=cat", "--no-pager")


def look_at_planes(cluster: ClusterProfile, planes: Iterable[str] | None = None) -> ControlSight:
    """Ask control planes (all that the inventory names, or these) what they see. Nothing is changed.

    Each is asked over a connection of its own: a look comes before every move, and Ansible takes seconds for it.
    """
    asked = tuple(inventory_of(cluster).control_planes if planes is None else planes)
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        answers = list(pool.map(partial(_ask, cluster), asked))
    seen: dict[str, PlaneSight] = {}
    unseen: dict[str, str] = {}
    for name, (text, why) in zip(asked, answers, strict=True):
        found = plane_sight(name, text)
        if found is not None:
            seen[name] = found
        else:
            unseen[name] = why or "its answer cannot be read"
    return ControlSight(seen, unseen)


def _ask(cluster: ClusterProfile, name: str) -> tuple[str, str]:
    """What a control plane prints, and why it printed nothing."""
    bootstrap = inventory_of(cluster)
    servers = (kubeadm_documents.server_of(bootstrap), own_server(bootstrap, name))
    words = (bootstrap.ssh.python, "-I", "-c", program("plane"), "look", *servers)
    try:
        return run_on(cluster, name, words, LOOK_SECONDS), ""
    except Unavailable as error:
        return "", str(error)


def anchor_of(sight: ControlSight, without: Iterable[str]) -> str:
    """A control plane that serves, and is none of these.

    Raises:
        Refused: there is none.
    """
    left_out = set(without)
    for name in sight.serving:
        if name not in left_out:
            return name
    told = [f"{name}: {one.own}" for name, one in sight.planes.items() if one.there and one.own]
    told += [f"{name} was not reached: {why}" for name, why in sight.unseen.items()]
    raise Refused("control-plane", "; ".join(["no control plane serves", *told]))


def begins(sight: ControlSight, name: str) -> bool:
    """Whether a control plane is to begin a cluster; False: it joins one.

    Raises:
        Refused: another host may hold the cluster, and cannot be asked.
    """
    others = [other for other in sight.serving if other != name]
    if others:
        return False
    if sight.unseen:
        who = ", ".join(f"{other} ({why})" for other, why in sight.unseen.items())
        raise Refused(f"control-plane/{name}", f"a second cluster might be begun: not reached were {who}")
    for other, one in sight.planes.items():
        if other != name and one.there:
            need = f"{other} holds a cluster whose API does not serve ({one.own}): bring it back, or take {other} out"
            raise Refused(f"control-plane/{name}", need)
    return True


def keep_snapshot(cluster: ClusterProfile, name: str) -> None:
    """Keep etcd's content on a control plane, proven by etcd's own digest; the newest few stay.

    Raises:
        Unavailable: it could not be taken, in the host's own words.
    """
    words = (inventory_of(cluster).ssh.python, "-I", "-c", program("plane"), "snapshot", str(SNAPSHOTS_KEPT))
    run_on(cluster, name, words, SNAPSHOT_SECONDS)


def journals(cluster: ClusterProfile, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What kubelet and containerd said last on each of these hosts, the newest last; nothing where it is silent."""
    with ThreadPoolExecutor(max(1, min(len(names), inventory_of(cluster).ssh.at_once))) as pool:
        return dict(zip(names, pool.map(partial(_journal, cluster), names), strict=True))


def _journal(cluster: ClusterProfile, name: str) -> tuple[str, ...]:
    try:
        return tuple(masked(run_on(cluster, name, JOURNAL, LOOK_SECONDS)).splitlines())
    except Unavailable:
        return ()
