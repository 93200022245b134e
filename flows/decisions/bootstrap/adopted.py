"""A cluster that is there already: which steps there are, whether it is fit, and which verbs are not ours. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flows.decisions.text import first_names
from profiles.bootstrap.request import BootstrapRequest
from profiles.errors import Refused
from profiles.vocabulary import VerdictWord
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import CLUSTER, Stage, Step, StepProof
from workflows.model.manifest import Json
from workflows.model.nodes import node_of

NOT_OURS = ("join", "leave", "upgrade")
SHOWN = 6


def refuse_node_verbs(request: BootstrapRequest) -> None:
    """Nothing where the request leaves nodes alone.

    Raises:
        Refused: nodes of an adopted cluster come, go and are upgraded by its own means.
    """
    if request.verb in NOT_OURS:
        does = f"engine adopt does nothing to nodes: {request.verb} by the cluster's own means"
        raise Refused(request.verb, f"{does}, then `primus bootstrap` again")


def adopted_steps(hosts: Collection[str]) -> tuple[Step, ...]:
    """Checks alone, which are never carried out: the cluster's own, and one of each of these hosts."""
    whole = Step(Stage.PRECHECKS, CLUSTER, "", "answers, and its nodes are Ready")
    return (whole, *(Step(Stage.PRECHECKS, name, "", "is fit to train") for name in hosts))


def cluster_proof(sight: ControlSight, hosts: Collection[str]) -> StepProof:
    """Whether the cluster answers, has the nodes of these hosts, and all nodes are Ready that nobody cordoned.

    A cordoned node is somebody's work already; a node that tells nothing is unknown, never Ready.
    """
    nodes = sight.nodes
    if nodes is None:
        return StepProof(VerdictWord.UNKNOWN, untold(sight))
    missing = [name for name in hosts if name not in nodes]
    ready = {node.name: node.ready for node in map(node_of, nodes.values()) if not node.cordoned}
    broken = [name for name, word in ready.items() if word is False]
    silent = [name for name, word in ready.items() if word is None]
    wrong = [f"there is no node {first_names(missing, SHOWN)}"] if missing else []
    if broken:
        wrong.append(f"{first_names(broken, SHOWN)}: not Ready; repair or cordon it")
    if not ready:
        wrong.append("no node takes pods")
    if wrong:
        return StepProof(VerdictWord.FAIL, "; ".join(wrong))
    if silent:
        return StepProof(VerdictWord.UNKNOWN, f"{first_names(silent, SHOWN)}: its kubelet tells nothing")
    return StepProof(VerdictWord.PASS, f"{len(ready)} nodes are Ready")


def ready_nodes(nodes: Mapping[str, Json]) -> tuple[str, ...]:
    """Names of nodes that are Ready and take pods."""
    return tuple(node.name for node in map(node_of, nodes.values()) if node.ready and not node.cordoned)


def untold(sight: ControlSight) -> str:
    """Why nobody tells which nodes there are."""
    return "; ".join(f"{name}: {why}" for name, why in sight.unseen.items()) or "no control plane tells"
