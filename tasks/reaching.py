"""Which kubelets the cluster does not reach: asked about the few nodes that are in doubt, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from profiles.errors import PrimusError
from tasks.cluster import Cluster
from workflows.evidence import NodeFacts, PodFacts

REACH_SECONDS = 2.0
"""Limit of the question to a kubelet."""
MOST = 16
"""Nodes about which a healthy gang's supervisor asks; where more are in doubt, not the nodes are the trouble."""
LANES = 32
"""Questions at a time: a rack that lost its power is asked about within seconds."""


def reached(cluster: Cluster, pods: Mapping[str, str]) -> dict[str, bool | None]:
    """By node: whether its kubelet answers; None where the cluster cannot say.

    Args:
        cluster: who is asked.
        pods: by node, a pod on it.
    """

    def ask(pod: str) -> bool | None:
        try:
            return cluster.reaches(pod, timeout_seconds=REACH_SECONDS)
        except PrimusError:
            return None

    if not pods:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(pods), LANES)) as threads:
        return dict(zip(pods, threads.map(ask, pods.values()), strict=True))


def said_to_live(pods: Iterable[PodFacts]) -> dict[str, str]:
    """By node, a pod that is still said to run there, or to be about to."""
    return {pod.node: pod.name for pod in pods if pod.phase in ("Pending", "Running") and pod.node}


def unready(nodes: Iterable[NodeFacts]) -> frozenset[str]:
    """Nodes whose condition says that they are not ready; one of which nothing is known is another matter."""
    return frozenset(node.name for node in nodes if node.ready is False)


def out_of_reach(
    cluster: Cluster, pods: Iterable[PodFacts], doubted: frozenset[str], most: int | None = None
) -> tuple[str, ...]:
    """Nodes that are said not to be well, where pods are said to live, and whose kubelets do not answer.

    A kubelet that calls itself not ready, because its container runtime is down for instance, lives, and so may what it
    started; one of which nothing is known may have lived through an absence of the API server. Only one that does not
    answer either went with its node.

    Args:
        cluster: who is asked.
        pods: of the gang.
        doubted: names of nodes that their conditions do not call ready.
        most: where more are doubted nobody is asked; None: all are.
    """
    doubtful = {node: pod for node, pod in said_to_live(pods).items() if node in doubted}
    if not doubtful or (most is not None and len(doubtful) > most):
        return ()
    return tuple(sorted(node for node, told in reached(cluster, doubtful).items() if told is False))
