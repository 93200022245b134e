"""Nodes into pools: alike in hardware, taints and flavor, and told from all other nodes by labels. Pure.

Every node ends in exactly one pool or is left out with a reason. A pool's labels select its nodes and no others, except
such as take no pods anyway: those of the control plane, behind their taint, and those that are being deleted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.hardware_match import Match, match, nics
from flows.decisions.node_labels import LabelTable, carries
from profiles.hardware import HardwareProfile
from workflows import labels
from workflows.inventory import FlavorStock, NodeStock

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
    matches: Mapping[str, Match]
    """What each node is."""


def grouped(
    nodes: Sequence[NodeStock],
    hardware: Mapping[str, HardwareProfile],
    flavors: Sequence[FlavorStock] = (),
    used: frozenset[str] = frozenset(),
) -> Grouped:
    """Pools of a cluster's nodes.

    Args:
        nodes: all of them.
        hardware: the hardware profiles that there are, by name.
        flavors: Kueue's.
        used: flavors that the namespace's queues give out; they go before others.
    """
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


def named(nodes: Iterable[str], most: int = 4) -> str:
    """Names for people: a few of them and how many more."""
    names = sorted(nodes)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


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


def _misfit(found: Match) -> str:
    return f"no hardware profile fits: {found.seen}; {found.why}" if found.why else ""


def _flavor(node: NodeStock, flavors: Sequence[FlavorStock], used: frozenset[str]) -> str:
    """The flavor that says most about the node, of those in use if one selects it; "" where two say as much."""
    fitting = [flavor for flavor in flavors if carries(node, flavor.node_labels)]
    fitting = [flavor for flavor in fitting if flavor.name in used] or ([] if used else fitting)
    most = max((len(flavor.node_labels) for flavor in fitting), default=0)
    best = [flavor.name for flavor in fitting if len(flavor.node_labels) == most]
    return best[0] if len(best) == 1 else ""


def _separated(groups: list[Group], table: LabelTable) -> tuple[list[Group], list[tuple[Group, str]]]:
    """Groups with their selectors; those of one hardware that no label tells apart become one."""
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
        f"no lasting label tells it from {named(alike)}, which are made of something else or left out: give the nodes "
        f"of its kind a label of their own, e.g. kubectl label node NODE {labels.POOL}=NAME, and import again"
    )
