"""Which pod goes to which node: all pods of a gang at once or none. Pure, and the same for the same facts.

Label selectors, node selector terms and tolerations are read as the scheduler reads them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.embedded.objects import entries, section

Requests = Mapping[str, int]

SEARCH_STEPS = 2000
"""A gang that fits is found by the first descent nearly always; a search longer than this is given up as no fit."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True)
class NodeFacts:
    """A node as placement sees it."""

    name: str
    labels: Mapping[str, str]
    allocatable: Requests
    """Thousandths by resource."""
    taints: tuple[Mapping[str, Any], ...] = ()
    ready: str = "True"
    """Status of the condition Ready: True, False or Unknown."""
    unschedulable: bool = False
    spare: bool = False


@dataclass(frozen=True)
class PodRequest:
    """A pod that wants a node, or has one (then only its claims on resources and neighbours count)."""

    name: str
    requests: Requests = field(default_factory=dict[str, int])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    affinity: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerations: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""
    """Why no node at all will do (an unknown volume claim); "" for none."""


@dataclass(frozen=True)
class Gang:
    """Pods that start together or not at all."""

    key: str
    pods: tuple[PodRequest, ...]
    priority: int = 0
    created: str = ""
    signature: str = ""
    """Gangs of the same signature ask for the same: when one does not fit, the others need not be tried."""


@dataclass(frozen=True)
class Bound:
    """The gang fits: pod -> node."""

    key: str
    nodes: Mapping[str, str]


@dataclass(frozen=True)
class Unschedulable:
    """The gang does not fit now; the message is the scheduler's."""

    key: str
    message: str


Decision = Bound | Unschedulable


def place(
    nodes: Sequence[NodeFacts], placed: Sequence[tuple[str, PodRequest]], gangs: Sequence[Gang]
) -> tuple[Decision, ...]:
    """Decide on waiting gangs, higher priority first, then older first; `placed` has (node, pod) of running ones."""
    room = FreeRoom(nodes, placed)
    decisions: list[Decision] = []
    hopeless: dict[str, str] = {}
    for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.created, natural(gang.key))):
        message = hopeless.get(gang.signature) if gang.signature else None
        if message is None:
            found = room.fit(gang.pods)
            if isinstance(found, dict):
                for pod in gang.pods:
                    room.take(found[pod.name], pod)
                decisions.append(Bound(gang.key, found))
                continue
            message = found
            if gang.signature:
                hopeless[gang.signature] = message
        decisions.append(Unschedulable(gang.key, message))
    return tuple(decisions)


def natural(name: str) -> list[Any]:
    """Sorting key by which `node-2` comes before `node-10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


class FreeRoom:
    """What is free; grows fuller while gangs are placed."""

    def __init__(self, nodes: Sequence[NodeFacts], placed: Sequence[tuple[str, PodRequest]]) -> None:
        self._nodes = {node.name: node for node in sorted(nodes, key=lambda node: natural(node.name))}
        self._free = {node.name: dict(node.allocatable) for node in nodes}
        self._pods: dict[str, list[PodRequest]] = {node.name: [] for node in nodes}
        self._repelling: list[tuple[str, Mapping[str, Any]]] = []
        for node, pod in placed:
            if node in self._pods:
                self.take(node, pod)

    def take(self, node: str, pod: PodRequest) -> None:
        """Put the pod on the node."""
        free = self._free[node]
        for resource, amount in pod.requests.items():
            free[resource] = free.get(resource, 0) - amount
        self._pods[node].append(pod)
        self._repelling += [(node, term) for term in _terms(pod.affinity, "podAntiAffinity")]

    def _release(self, node: str, pod: PodRequest) -> None:
        for resource, amount in pod.requests.items():
            self._free[node][resource] += amount
        self._pods[node].remove(pod)
        for term in _terms(pod.affinity, "podAntiAffinity"):
            self._repelling.remove((node, term))

    def fit(self, pods: Sequence[PodRequest]) -> dict[str, str] | str:
        """Pod -> node for all of them, or the message about the first that fits nowhere; takes nothing."""
        for pod in pods:
            if pod.problem:
                return f"0/{len(self._nodes)} nodes are available: {pod.problem}."
        # The hungriest first: what asks for little finds a place among the rest.
        order = sorted(pods, key=lambda pod: -sum(v for k, v in pod.requests.items() if "/" in k))
        self._steps = SEARCH_STEPS
        self._message = ""
        found: dict[str, str] = {}
        fits = self._descend(order, 0, found)
        for name, pod in ((found[pod.name], pod) for pod in order if pod.name in found):
            self._release(name, pod)
        return found if fits else self._message

    def _descend(self, order: Sequence[PodRequest], at: int, found: dict[str, str]) -> bool:
        if at == len(order):
            return True
        pod = order[at]
        reasons = {name: self.objections(name, pod) for name in self._nodes}
        candidates = sorted((name for name, why in reasons.items() if not why), key=lambda name: self._rank(name, pod))
        if not candidates and not self._message:
            self._message = _message(reasons)
        for name in candidates:
            self._steps -= 1
            if self._steps < 0:
                break
            self.take(name, pod)
            found[pod.name] = name
            if self._descend(order, at + 1, found):
                return True
            self._release(name, pod)
            del found[pod.name]
        return False

    def _rank(self, name: str, pod: PodRequest) -> tuple[Any, ...]:
        node = self._nodes[name]
        preferred = entries(pod.affinity, "nodeAffinity", _PREFERRED)
        weight = sum(term["weight"] for term in preferred if node_term_holds(term["preference"], name, node.labels))
        prefer_no = sum(
            taint.get("effect") == "PreferNoSchedule" and not is_tolerated(taint, pod.tolerations)
            for taint in node.taints
        )
        return (node.spare, -weight, prefer_no, len(self._pods[name]))

    def objections(self, name: str, pod: PodRequest) -> list[str]:
        """Why the pod cannot go to the node; empty where it can. The first filter that objects speaks."""
        node = self._nodes[name]
        for check in (_not_ready, _tainted, _unaffine):
            reason = check(node, pod)
            if reason:
                return [reason]
        free = self._free[name]
        lacking = [resource for resource, amount in pod.requests.items() if amount > free.get(resource, 0)]
        if lacking:
            return ["Too many pods" if resource == "pods" else f"Insufficient {resource}" for resource in lacking]
        return self._neighbours(node, pod)

    def _neighbours(self, node: NodeFacts, pod: PodRequest) -> list[str]:
        for term in _terms(pod.affinity, "podAntiAffinity"):
            if any(_selects(term, other) for other in self._domain(node, term["topologyKey"])):
                return ["node(s) didn't match pod anti-affinity rules"]
        for term in _terms(pod.affinity, "podAffinity"):
            if not self._attracted(node, pod, term):
                return ["node(s) didn't match pod affinity rules"]
        for other_name, term in self._repelling:
            key = term["topologyKey"]
            same = self._nodes[other_name].labels.get(key) == node.labels.get(key)
            if same and _selects(term, pod):
                return ["node(s) didn't satisfy existing pods anti-affinity rules"]
        return []

    def _attracted(self, node: NodeFacts, pod: PodRequest, term: Mapping[str, Any]) -> bool:
        if any(_selects(term, other) for other in self._domain(node, term["topologyKey"])):
            return True
        # The first of a group that wants to be together may go anywhere.
        nobody = not any(_selects(term, other) for others in self._pods.values() for other in others)
        return nobody and _selects(term, pod)

    def _domain(self, node: NodeFacts, key: str) -> list[PodRequest]:
        value = node.labels.get(key)
        if value is None:
            return []
        names = (name for name, other in self._nodes.items() if other.labels.get(key) == value)
        return [pod for name in names for pod in self._pods[name]]


def _not_ready(node: NodeFacts, pod: PodRequest) -> str:
    if node.unschedulable and not is_tolerated(_UNSCHEDULABLE, pod.tolerations):
        return "node(s) were unschedulable"
    if node.ready == "Unknown":
        return "node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
    return "" if node.ready == "True" else "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"


def _tainted(node: NodeFacts, pod: PodRequest) -> str:
    for taint in node.taints:
        if taint.get("effect") != "PreferNoSchedule" and not is_tolerated(taint, pod.tolerations):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"
    return ""


def _unaffine(node: NodeFacts, pod: PodRequest) -> str:
    wanted = all(node.labels.get(key) == value for key, value in pod.node_selector.items())
    required = section(pod.affinity, "nodeAffinity").get(_REQUIRED)
    if required is not None:
        wanted = wanted and any(node_term_holds(term, node.name, node.labels) for term in required["nodeSelectorTerms"])
    return "" if wanted else "node(s) didn't match Pod's node affinity/selector"


def _terms(affinity: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]]:
    return entries(affinity, kind, _REQUIRED)


def _selects(term: Mapping[str, Any], pod: PodRequest) -> bool:
    return selector_holds(term.get("labelSelector"), pod.labels)


def _message(reasons: Mapping[str, Sequence[str]]) -> str:
    counts = Counter(reason for why in reasons.values() for reason in why)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(reasons)} nodes are available: {listed}." if listed else "0/0 nodes are available: no nodes."


def expression_holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One entry of `matchExpressions`; an unknown operator never holds."""
    key, values = expression["key"], [str(value) for value in entries(expression, "values")]
    value = labels.get(key)
    match expression["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _integer(value) is not None and int(value or 0) > int(values[0])
        case "Lt":
            return _integer(value) is not None and int(value or 0) < int(values[0])
        case _:
            return False


def selector_holds(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A label selector; none selects nothing, an empty one everything."""
    if selector is None:
        return False
    plain = all(labels.get(key) == value for key, value in section(selector, "matchLabels").items())
    return plain and all(expression_holds(entry, labels) for entry in entries(selector, "matchExpressions"))


def node_term_holds(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """One node selector term; an empty one matches no node, as Kubernetes says."""
    expressions, fields = entries(term, "matchExpressions"), entries(term, "matchFields")
    if not expressions and not fields:
        return False
    return all(expression_holds(entry, labels) for entry in expressions) and all(
        expression_holds(entry, {"metadata.name": name}) for entry in fields
    )


def is_tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
