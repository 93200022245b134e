"""Nodes into pools: alike in hardware, taints and flavor, and set apart from all other nodes by labels. Pure.

Every node ends in exactly one pool or is left out with a reason. A pool's labels select its nodes and no others, except
such as take no pods anyway: those of the control plane, behind their taint, and those that are being deleted. The
selector is the smallest set of labels that last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from flows.decisions.cluster_import.hardware import HardwareMatch, match, nics
from flows.decisions.text import first_names
from profiles.hardware import HardwareProfile
from workflows import labels
from workflows.model.inventory import FlavorStock, NodeStock

MAX_LABELS = 3
"""A larger smallest set is not searched for: one that suffices is made smaller step by step instead."""
MAX_TRIED = 60
"""Labels that are combined; the others select no fewer nodes than one of these."""

_RANKS: tuple[tuple[str, int], ...] = (
    (rf"^{re.escape(labels.POOL)}$", 0),
    (r"^(beta\.)?amd\.com/gpu\.product-name$|^nvidia\.com/gpu\.product$", 1),
    (r"nodepool|node-pool|nodegroup|node-group|agentpool|instance-group|^karpenter\.sh/nodepool$", 3),
    (r"^(beta\.)?amd\.com/gpu\.(device-id|family|vram|cu-count)|^nvidia\.com/gpu\.(memory|count|family)$", 4),
    (r"^node\.kubernetes\.io/instance-type$|^beta\.kubernetes\.io/instance-type$", 5),
    (r"^node-role\.kubernetes\.io/", 6),
    (r"^kubernetes\.io/(arch|os)$|^topology\.kubernetes\.io/(zone|region)$", 9),
)
"""What is liked best, the lowest first. A label of a Kueue flavor ranks 2, any other 7."""
_OTHER, _FLAVOR = 7, 2
_PASSING = re.compile(
    r"hostname$|^feature\.node\.kubernetes\.io/|^beta\.kubernetes\.io/(arch|os)$|^failure-domain\."
    r"|driver|firmware|kernel|version|cuda|timestamp|\.deploy\.|upgrade|mig\.|health|verdict|status|state|unhealthy"
    r"|^autopilot\.ibm\.com/|^metricsexporter\.|^(topology|network\.topology|fabric\.topograph|accelerator\.topograph)"
    r"|^cloud\.provider\.com/topology|gce-topology|^oci\.oraclecloud\.com/|clique"
    rf"|^{re.escape(labels.PREFIX)}/(rack|block|spare|run|attempt|role)$|quarantine|cordon|maintenance|(^|[-_./])(id|uid|ip|serial)$",
    re.IGNORECASE,
)
"""Labels of one node, of a place, or of a state: they change while the node stays what it is. What ranks, lasts."""

_CONTROL = re.compile(r"^node-role\.kubernetes\.io/(control-plane|master)=")
"""A control plane without this taint takes pods, so it is a node like others."""
_PASSING_TAINT = re.compile(
    rf"^node\.kubernetes\.io/|^node\.cloudprovider\.kubernetes\.io/|^{re.escape(labels.PREFIX)}/"
    r"|^ToBeDeleted|^DeletionCandidate|^karpenter\.sh/(disrupted|disruption|unregistered)"
    r"|unhealthy|quarantine|maintenance|not-?ready|startup|drain|agent-not",
    re.IGNORECASE,
)
"""Taints of a state: tolerating them would put ranks on nodes that somebody took out."""


@dataclass(frozen=True)
class Group:
    """Nodes that become a pool."""

    hardware: str
    nodes: tuple[NodeStock, ...]
    seen: str
    """What was seen of their GPUs."""
    flavor: str = ""
    """ResourceFlavor that selects all of them; "" where none or several do."""
    selector: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Grouped:
    """All nodes of a cluster."""

    groups: tuple[Group, ...]
    left_out: tuple[tuple[str, str], ...]
    """(node, why) of every other one."""
    matches: Mapping[str, HardwareMatch]
    """What each node is."""


def grouped(
    nodes: Sequence[NodeStock],
    hardware: Mapping[str, HardwareProfile],
    flavors: Sequence[FlavorStock] = (),
    used: frozenset[str] = frozenset(),
) -> Grouped:
    """Pools of a cluster's nodes. `used`: flavors that the namespace's queues give out; they go before others."""
    matches = {node.name: match(node, hardware) for node in nodes}
    left_out = {node.name: why for node in nodes if (why := _not_ours(node) or _misfit(matches[node.name]))}
    keys: dict[tuple[str, tuple[str, ...], tuple[str, ...], str], list[NodeStock]] = {}
    for node in nodes:
        if node.name not in left_out:
            kind = matches[node.name].hardware
            alike = (kind, lasting_taints(node), tuple(nics(node)), _flavor(node, flavors, used))
            keys.setdefault(alike, []).append(node)
    taking = [node for node in nodes if not node.leaving and not _is_control(node)]
    table = LabelTable(taking, frozenset(key for flavor in flavors for key in flavor.node_labels))
    groups = [
        Group(kind, tuple(members), matches[members[0].name].seen, flavor)
        for (kind, _, _, flavor), members in sorted(keys.items())
    ]
    kept, hidden = _separated(groups, table)
    left_out |= {node.name: why for group, why in hidden for node in group.nodes}
    return Grouped(tuple(kept), tuple(sorted(left_out.items())), matches)


def lasting_taints(node: NodeStock) -> tuple[str, ...]:
    """Taints that belong to the kind of node, in their order by name."""
    return tuple(sorted(taint for taint in node.taints if not _PASSING_TAINT.search(taint.partition("=")[0])))


def taints_of(nodes: Sequence[NodeStock]) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """Taints of a pool (at least half of its nodes have them), and by node those that only it has."""
    counts = Counter(taint for node in nodes for taint in lasting_taints(node))
    common = tuple(sorted(taint for taint, count in counts.items() if 2 * count >= len(nodes)))
    odd = {node.name: tuple(taint for taint in node.taints if taint not in common) for node in nodes}
    return common, {name: taints for name, taints in odd.items() if taints}


def node_names(nodes: Iterable[str], most: int = 4) -> str:
    """The nodes in order, for people: a few of them and how many more."""
    return first_names(sorted(nodes), most)


def _not_ours(node: NodeStock) -> str:
    if _is_control(node):
        return "it runs the control plane"
    if node.leaving:
        return "it is being deleted"
    if node.labels.get("type") == "virtual-kubelet":
        return "it is no machine (virtual-kubelet)"
    system = node.labels.get("kubernetes.io/os", "linux")
    return "" if system == "linux" else f"its system is {system}"


def _is_control(node: NodeStock) -> bool:
    return any(_CONTROL.search(taint) for taint in node.taints)


def _misfit(found: HardwareMatch) -> str:
    return f"no hardware profile fits: {found.seen}; {found.why}" if found.why else ""


def _flavor(node: NodeStock, flavors: Sequence[FlavorStock], used: frozenset[str]) -> str:
    """The flavor that says most about the node, of those in use if one selects it; "" where two say as much."""
    fitting = [flavor for flavor in flavors if carries(node, flavor.node_labels)]
    fitting = [flavor for flavor in fitting if flavor.name in used] or ([] if used else fitting)
    most = max((len(flavor.node_labels) for flavor in fitting), default=0)
    best = [flavor.name for flavor in fitting if len(flavor.node_labels) == most]
    return best[0] if len(best) == 1 else ""


def _separated(groups: list[Group], table: LabelTable) -> tuple[list[Group], list[tuple[Group, str]]]:
    """Groups with their selectors; groups of one hardware that no label distinguishes become one."""
    kept: list[Group] = []
    hidden: list[tuple[Group, str]] = []
    waiting = list(groups)
    while waiting:
        group = waiting.pop(0)
        selector = table.selector(group.nodes)
        if selector is not None:
            kept.append(_with(group, group.nodes, selector))
            continue
        alike = table.lookalikes(group.nodes)
        twins = [
            other
            for other in (*kept, *waiting)
            if other.hardware == group.hardware and any(node.name in alike for node in other.nodes)
        ]
        whole = (*group.nodes, *(node for twin in twins for node in twin.nodes))
        selector = table.selector(whole) if twins else None
        if selector is None:
            hidden.append((group, _hidden(alike)))
            continue
        kept, waiting = _without(kept, twins), _without(waiting, twins)
        flavors = {group.flavor, *(twin.flavor for twin in twins)}
        merged = Group(group.hardware, whole, group.seen, flavors.pop() if len(flavors) == 1 else "")
        kept.append(_with(merged, whole, selector))
    return kept, hidden


def _without(groups: list[Group], gone: Sequence[Group]) -> list[Group]:
    return [group for group in groups if not any(group is other for other in gone)]


def _with(group: Group, nodes: Sequence[NodeStock], selector: Mapping[str, str]) -> Group:
    ordered = tuple(sorted(nodes, key=lambda node: node.name))
    return Group(group.hardware, ordered, group.seen, group.flavor, selector)


def _hidden(alike: Iterable[str]) -> str:
    return (
        f"no lasting label separates it from {node_names(alike)}, which are made of something else or left out: give "
        f"the nodes of its kind a label of their own, e.g. kubectl label node NODE {labels.POOL}=NAME, and import again"
    )


@dataclass(frozen=True)
class _Candidate:
    rank: int
    key: str
    value: str
    others: int
    """Nodes outside the group that carry it, one bit each."""


class LabelTable:
    """Which nodes carry which label. `flavor_keys`: labels by which Kueue's flavors select nodes."""

    def __init__(self, nodes: Sequence[NodeStock], flavor_keys: frozenset[str] = frozenset()) -> None:
        self._flavor_keys = flavor_keys
        self._bit = {node.name: 1 << index for index, node in enumerate(nodes)}
        self._name = {bit: name for name, bit in self._bit.items()}
        self._carriers: dict[tuple[str, str], int] = {}
        for node in nodes:
            for pair in node.labels.items():
                self._carriers[pair] = self._carriers.get(pair, 0) | self._bit[node.name]

    def selector(self, group: Sequence[NodeStock]) -> dict[str, str] | None:
        """The smallest set of lasting labels that all nodes of `group` and no others carry; None: there is none."""
        candidates = self._candidates(group)
        if self._left(candidates):
            return None
        tried = _distinct(candidates)[:MAX_TRIED]
        for size in range(1, MAX_LABELS + 1):
            fitting = [found for found in combinations(tried, size) if not self._left(found)]
            if fitting:
                best = min(fitting, key=lambda found: sorted((item.rank, item.key) for item in found))
                return _pairs(best)
        return _pairs(self._shrunk(candidates))

    def lookalikes(self, group: Sequence[NodeStock]) -> frozenset[str]:
        """Names of nodes outside that carry every lasting label that all of `group` carry."""
        left = self._left(self._candidates(group))
        return frozenset(name for bit, name in self._name.items() if bit & left)

    def _candidates(self, group: Sequence[NodeStock]) -> list[_Candidate]:
        first, *rest = group
        own = sum(self._bit[node.name] for node in group)
        common = [pair for pair in first.labels.items() if all(node.labels.get(pair[0]) == pair[1] for node in rest)]
        found = [
            _Candidate(self._rank(key), key, value, self._carriers[key, value] & ~own)
            for key, value in common
            if self._lasts(key)
        ]
        everybody = _Candidate(99, "", "", sum(self._bit.values()) & ~own)
        return sorted(found, key=lambda item: (item.rank, item.key)) or [everybody]

    def _lasts(self, key: str) -> bool:
        return self._rank(key) != _OTHER or not _PASSING.search(key)

    def _rank(self, key: str) -> int:
        listed = next((rank for pattern, rank in _RANKS if re.search(pattern, key)), _OTHER)
        return min(listed, _FLAVOR) if key in self._flavor_keys else listed

    def _left(self, found: Sequence[_Candidate]) -> int:
        left = -1
        for item in found:
            left &= item.others
        return left

    def _shrunk(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        kept = list(candidates)
        for item in reversed(candidates):  # the least liked goes first
            fewer = [other for other in kept if other is not item]
            if fewer and not self._left(fewer):
                kept = fewer
        return kept


def _distinct(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """One label of each set of others, the best liked, those that select the fewest others first."""
    best: dict[int, _Candidate] = {}
    for item in candidates:
        best.setdefault(item.others, item)
    return sorted(best.values(), key=lambda item: (item.others.bit_count(), item.rank, item.key))


def _pairs(found: Sequence[_Candidate]) -> dict[str, str]:
    return {item.key: item.value for item in sorted(found, key=lambda item: (item.rank, item.key)) if item.key}


def carries(node: NodeStock, selector: Mapping[str, str]) -> bool:
    """Whether a node is selected."""
    return selector.items() <= node.labels.items()
