"""Holding nodes for a test that needs them alone, and releasing them, whatever happens.

A hold is our taint with its owner and, beside it, the time at which it ends by itself: any process that finds it later
removes it, so that a dead owner never holds a node. It is set only on a node that nothing uses, and checked again
afterwards: a pod may have come between the look and the taint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError
from profiles.loading.load import load_hardware
from tasks.cluster import Cluster, Manifest, current, each
from tasks.context import world
from tasks.nodes.marks import LANES, TAINT_VALUE_CHARACTERS, change_node
from workflows import labels
from workflows.model.cluster import Pod, pod_of
from workflows.model.manifest import seconds

HELD_BY_OTHER = "held by "


def users(profile: ClusterProfile) -> dict[str, str]:
    """Nodes whose GPUs are in use, and by what: pods of any owner that ask for GPUs there, and training pods of ours.

    Raises:
        Unavailable, Refused.
    """
    names = {load_hardware(pool.hardware).resource_name for pool in profile.pools} - {""}
    return using_gpus(map(pod_of, each(current(), "Pod")), names)


def using_gpus(pods: Iterable[Pod], names: set[str]) -> dict[str, str]:
    """Node -> the pod that uses its GPUs, of pods that live.

    `names` are those of the extended resources that count GPUs.
    """
    living = (pod for pod in pods if pod.node and pod.lives)
    using = (pod for pod in living if pod.trains or any(pod.requests.get(name, "0") != "0" for name in names))
    return {pod.node: pod.run or pod.name for pod in using}


def hold_nodes(
    profile: ClusterProfile,
    nodes: Sequence[str],
    owner: str,
    *,
    least_seconds: float = 0.0,
    own: Callable[[str], bool] = lambda _: False,
) -> dict[str, str]:
    """Hold these nodes for `profile.admission.hold_seconds`; those that are not held, and why.

    Args:
        profile: of the cluster.
        nodes: their names.
        owner: the test, of which there is one; holding again what it holds already makes the hold longer.
        least_seconds: at least for so long.
        own: whether a user of that name is the test itself, which was begun before.

    Raises:
        Unavailable, Refused: nothing is held.
    """
    cluster, until = current(), world().now() + max(profile.admission.hold_seconds, least_seconds)
    refused = {node: f"{who} uses it" for node, who in users(profile).items() if node in nodes and not own(who)}
    free = [node for node in nodes if node not in refused]
    try:
        with ThreadPoolExecutor(LANES, thread_name_prefix="hold") as lanes:
            said = list(lanes.map(partial(_hold, cluster, owner=owner, until=until, now=world().now()), free))
        refused |= {node: why for node, why in zip(free, said, strict=True) if why}
        # The second look: whoever came before the taint stays, and the node is his.
        late = {node: f"{who} came first" for node, who in users(profile).items() if node in free and not own(who)}
        give_nodes_back([node for node in free if node in late], owner)
    except PrimusError:
        with suppress(PrimusError):
            give_nodes_back(free, owner)
        raise
    return {node: why for node, why in {**late, **refused}.items() if node in nodes}


def give_nodes_back(nodes: Sequence[str], owner: str) -> None:
    """Take this owner's hold from each; a node that is gone, or has another owner's hold, is left alone.

    Raises:
        Unavailable, Refused: some are still held; their holds end by themselves.
    """
    cluster = current()
    with ThreadPoolExecutor(LANES, thread_name_prefix="hold") as lanes:
        for future in [lanes.submit(change_node, cluster, node, partial(_freed, owner=owner)) for node in nodes]:
            future.result()


def free_expired(nodes: Iterable[Manifest] | None = None) -> list[str]:
    """Release every node whose hold has expired, whichever owner set it; returns their names.

    Without `nodes` they are listed.

    Raises:
        Unavailable, Refused.
    """
    cluster, now = current(), world().now()
    freed: list[str] = []
    for node in each(cluster, "Node") if nodes is None else nodes:
        owner, until = hold_of(node)
        if owner and (until is None or until <= now):
            change_node(cluster, str(node["metadata"]["name"]), partial(_freed, owner=owner))
            freed.append(str(node["metadata"]["name"]))
    return freed


def held_nodes() -> dict[str, str]:
    """Nodes that are held for a test, with the hold's owner.

    Raises:
        Unavailable, Refused.
    """
    found = ((str(node["metadata"]["name"]), hold_of(node)[0]) for node in each(current(), "Node"))
    return {name: owner for name, owner in found if owner}


def hold_of(node: Manifest) -> tuple[str, float | None]:
    """Owner of the node's hold ("": it is not held) and when it ends, Unix seconds (None: it does not say)."""
    taint = next((item for item in _taints(node) if item.get("key") == labels.HOLD_TAINT), None)
    if taint is None:
        return "", None
    notes: Mapping[str, str] = node["metadata"].get("annotations") or {}
    return str(taint.get("value") or "nobody"), seconds(notes.get(labels.HOLD_UNTIL))


def _hold(cluster: Cluster, node: str, *, owner: str, until: float, now: float) -> str:
    """Why the node is not held; "" where it is."""
    said = [""]

    def change(found: Manifest) -> Manifest | None:
        other, ends_at = hold_of(found)
        said[0] = ""
        if other not in ("", owner) and ends_at is not None and ends_at > now:
            said[0] = f"{HELD_BY_OTHER}{other}"
            return None
        ours: Manifest = {"key": labels.HOLD_TAINT, "value": owner[:TAINT_VALUE_CHARACTERS], "effect": "NoSchedule"}
        return _patch(found, [*_others(found), ours], datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    there = change_node(cluster, node, change)
    return said[0] if there else "the node no longer exists"


def _freed(found: Manifest, *, owner: str) -> Manifest | None:
    other, _ = hold_of(found)
    return _patch(found, _others(found), None) if other in (owner[:TAINT_VALUE_CHARACTERS], owner) else None


def _patch(found: Manifest, taints: list[Manifest], until: str | None) -> Manifest:
    version = str(found["metadata"]["resourceVersion"])
    return {
        "metadata": {"resourceVersion": version, "annotations": {labels.HOLD_UNTIL: until}},
        "spec": {"taints": taints},
    }


def _taints(node: Manifest) -> list[Manifest]:
    spec: Manifest = node.get("spec") or {}
    return spec.get("taints") or []


def _others(node: Manifest) -> list[Manifest]:
    return [item for item in _taints(node) if item.get("key") != labels.HOLD_TAINT]
