"""A stand-in for the network plug-in of a cluster: whether its network policies let one pod reach a port of another.

As Kubernetes states it for ingress. Pods and policies are manifests, made ones or those of a real API server. It knows
no addresses: a policy with an `ipBlock`, and one for egress, is refused, since none of ours has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]
OPERATORS = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, _: found is not None,
    "DoesNotExist": lambda found, _: found is None,
}


@dataclass(frozen=True)
class Traffic:
    """The policies of a cluster, and the labels of its namespaces."""

    policies: tuple[Manifest, ...]
    namespaces: Mapping[str, Mapping[str, str]]

    def admits(self, source: Manifest, target: Manifest, port: int) -> bool:
        """Whether `source` reaches TCP `port` of `target`; a pod in its node's own network has no policy."""
        if target.get("spec", {}).get("hostNetwork"):
            return True
        mine = [item for item in self.policies if _namespace(item) == _namespace(target) and _chooses(item, target)]
        rules = [rule for item in mine for rule in item["spec"].get("ingress", [])]
        return not mine or any(self._peers(rule, source, target) and _port(rule, port, target) for rule in rules)

    def _peers(self, rule: Manifest, source: Manifest, target: Manifest) -> bool:
        peers = rule.get("from", [])
        return not peers or any(self._is(peer, source, target) for peer in peers)

    def _is(self, peer: Manifest, source: Manifest, target: Manifest) -> bool:
        assert "ipBlock" not in peer, "addresses are not known here"
        if source.get("spec", {}).get("hostNetwork"):
            return False  # it comes from its node's address, which no selector means
        wanted, space = peer.get("namespaceSelector"), _namespace(source)
        near = space == _namespace(target) if wanted is None else selects(wanted, self.namespaces[space])
        return near and selects(peer.get("podSelector", {}), _labels(source))


def selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels; an empty one takes all."""
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    told = selector.get("matchExpressions", [])
    return exact and all(OPERATORS[one["operator"]](labels.get(one["key"]), one.get("values", [])) for one in told)


def traffic(objects: Iterable[Manifest]) -> Traffic:
    """Of all that stands in a cluster."""
    found = list(objects)
    policies = tuple(item for item in found if item["kind"] == "NetworkPolicy")
    assert all(item["spec"].get("policyTypes", ["Ingress"]) == ["Ingress"] for item in policies)
    spaces = {item["metadata"]["name"]: _labels(item) for item in found if item["kind"] == "Namespace"}
    # The API server writes this label itself.
    return Traffic(policies, {name: {"kubernetes.io/metadata.name": name, **marks} for name, marks in spaces.items()})


def ports_of(pod: Manifest) -> dict[str, int]:
    """Ports that its containers declare, by name."""
    declared = [port for one in pod["spec"]["containers"] for port in one.get("ports", [])]
    return {port.get("name", str(port["containerPort"])): port["containerPort"] for port in declared}


def _chooses(policy: Manifest, pod: Manifest) -> bool:
    return selects(policy["spec"]["podSelector"], _labels(pod))


def _port(rule: Manifest, port: int, target: Manifest) -> bool:
    said = [one for one in rule.get("ports", []) if one.get("protocol", "TCP") == "TCP"]
    if "ports" not in rule or not rule["ports"]:
        return True
    numbers = [(ports_of(target).get(one["port"], 0) if isinstance(one["port"], str) else one["port"]) for one in said]
    return any(number <= port <= one.get("endPort", number) for number, one in zip(numbers, said, strict=True))


def _namespace(item: Manifest) -> str:
    return item["metadata"].get("namespace", "default")


def _labels(item: Manifest) -> Mapping[str, str]:
    return item["metadata"].get("labels", {})
