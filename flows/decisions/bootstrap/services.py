"""Whether nodes reach services: each of them tries the API at its service address. Pure.

A node may be Ready and have routes to all pods while its kube-proxy has laid nothing: no pod on it finds API or DNS.
"""

from __future__ import annotations

from profiles.bootstrap.engines import Adopt, Kubeadm
from profiles.cluster import ClusterProfile
from profiles.vocabulary import VerdictWord
from workflows.bootstrap.host_state import inventory_of
from workflows.bootstrap.kubeadm_documents import api_service
from workflows.model.bootstrap import StepProof
from workflows.model.host_facts import HostFacts, Unread


def tried_services(cluster: ClusterProfile) -> tuple[str, ...]:
    """Services, `address:port`, that every node tries; none where somebody else answers for them.

    On an adopted cluster that is whoever made it; where a network of the site's own comes as a component, that one.
    """
    bootstrap = inventory_of(cluster)
    match bootstrap.engine:
        case Adopt() | Kubeadm(network="none"):
            return ()
        case _:
            return (api_service(bootstrap),)


def silent_services(cluster: ClusterProfile, facts: HostFacts | Unread, unread: list[str]) -> list[tuple[str, str]]:
    """Services that a node does not reach, each with why; of what nobody knows a line is added to `unread`."""
    found: list[tuple[str, str]] = []
    for service in tried_services(cluster):
        told = facts if isinstance(facts, Unread) else facts.services.get(service, Unread())
        if isinstance(told, Unread):
            unread.append(f"service {service}: {told.why}")
        elif told:
            found.append((service, told))
    return found


def reaching(proof: StepProof, cluster: ClusterProfile, facts: HostFacts | Unread) -> StepProof:
    """A node's proof, which holds only where the node reaches services too."""
    if proof.word is not VerdictWord.PASS:
        return proof
    unread: list[str] = []
    if silent := silent_services(cluster, facts, unread):
        return StepProof(VerdictWord.FAIL, f"{proof.why}, and {unreached(silent)}")
    return StepProof(VerdictWord.UNKNOWN, f"{proof.why}; {'; '.join(unread)}") if unread else proof


def unreached(silent: list[tuple[str, str]]) -> str:
    """In words."""
    return "; ".join(f"it does not reach service {service}: {why}" for service, why in silent)
