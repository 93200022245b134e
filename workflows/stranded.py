"""A coordinator that went with a node on which no rank stood. Pure."""

from __future__ import annotations

from workflows.evidence import AttemptView
from workflows.labels import COORDINATOR_ROLE


def stranded_coordinator(view: AttemptView) -> str:
    """Name of the coordinator's pod where its node is proven dead and no rank went with it; "": there is none.

    Three ways must be closed: the node's condition, its kubelet, and the pod itself, while the cluster answers. A Job
    makes the pod anew only when it is gone, and nobody on a dead node confirms its end.
    """
    if view.unheard_since is None:
        return ""
    lost = {node.name for node in view.nodes if node.ready is False} & set(view.unreached)
    lost -= {pod.node for pod in view.pods if pod.role != COORDINATOR_ROLE}
    living = [pod for pod in view.pods if pod.role == COORDINATOR_ROLE and pod.phase in ("Running", "Pending")]
    return next((pod.name for pod in living if pod.node in lost), "")
