"""From a group of nodes to a pool of a cluster profile, with where each value came from. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from flows.decisions.hardware_match import Match, nics
from flows.decisions.places_of_nodes import Places, places
from flows.decisions.pooling import Group, named, taints_of
from profiles.hardware import HardwareProfile
from profiles.quantities import amount
from workflows import labels
from workflows.inventory import NodeStock

MAX_NAME = 63


@dataclass
class Written:
    """A value of the profile in the making."""

    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    """Where a field's value came from; "": the whole value."""
    remarks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(field, what a person should look at)."""
    problems: list[str] = field(default_factory=list[str])
    """What is missing that a profile needs, and what to do; remarks too."""

    def put(self, name: str, value: object, source: str = "") -> None:
        """A field with its source."""
        self.fields[name] = value
        if source:
            self.sources[name] = source

    def remark(self, name: str, text: str) -> None:
        """Something that is not known, or that somebody should look at."""
        self.remarks.append((name, text))

    def miss(self, name: str, text: str) -> None:
        """Something without which this is no profile."""
        self.remark(name, text)
        self.problems.append(text)


def slug(text: str) -> str:
    """A name that Kubernetes takes, near to `text`; "" where nothing of it can be kept."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:MAX_NAME].strip("-")


def pool_names(groups: Sequence[Group]) -> list[str]:
    """Names by our own label, else the hardware, with what tells two of one hardware apart."""
    ours = [_own_name(group) for group in groups]
    kinds = Counter(group.hardware for group, own in zip(groups, ours, strict=True) if not own)
    taken: set[str] = set()
    found: list[str] = []
    for group, own in zip(groups, ours, strict=True):
        name = own or group.hardware
        if not own and kinds[group.hardware] > 1:
            told = slug(group.flavor or next(iter((group.selector or {}).values()), ""))
            name = (f"{group.hardware}-{told}"[:MAX_NAME] if told else name).strip("-")
        number, base = 1, name
        while name in taken:
            number += 1
            name = f"{base[: MAX_NAME - 5].rstrip('-')}-{number}"
        taken.add(name)
        found.append(name)
    return found


def _own_name(group: Group) -> str:
    values = {node.labels.get(labels.POOL, "") for node in group.nodes}
    return slug(values.pop()) if len(values) == 1 else ""


def pool(
    name: str, group: Group, hardware: HardwareProfile, matches: Mapping[str, Match], levels: Sequence[str] = ()
) -> Written:
    """One pool.

    Args:
        name: what it is called.
        group: its nodes.
        hardware: its hardware profile.
        matches: what each node is.
        levels: node labels of the Kueue Topology of its flavor, the widest first.
    """
    made = Written()
    made.sources[""] = f"{named(node.name for node in group.nodes)}: {group.seen}"
    made.put("name", name)
    made.put("hardware", hardware.name)
    made.put("nodes", len(group.nodes))
    _spares(made, group.nodes)
    _places(made, places(group.nodes, levels))
    made.put("labels", dict(group.selector or {}), "carried by these nodes and by no other that takes pods")
    _taints(made, group.nodes)
    _host(made, group.nodes)
    if group.flavor:
        made.put("queue_flavor", group.flavor, "the ResourceFlavor whose node labels these nodes carry")
    _nics(made, group.nodes, hardware)
    _now(made, group.nodes, matches)
    return made


def _spares(made: Written, nodes: Sequence[NodeStock]) -> None:
    spares = sum(node.labels.get(labels.SPARE) == "true" for node in nodes)
    if 0 < spares < len(nodes):
        made.put("spares", spares, f"nodes labelled {labels.SPARE}=true")


def _places(made: Written, found: Places) -> None:
    if not found.rack_label:
        made.remark("topology", found.told)
        return
    shape = {"nodes_per_rack": found.nodes_per_rack, "racks_per_block": found.racks_per_block}
    made.put("topology", shape, found.told)
    wanted = {found.rack_label: labels.RACK} | ({found.block_label: labels.BLOCK} if found.block_label else {})
    foreign = [f"{label} to {ours}" for label, ours in wanted.items() if label != ours]
    if foreign:
        made.remark("topology", f"gangs are placed by our own labels: copy the values of {' and '.join(foreign)}")


def _taints(made: Written, nodes: Sequence[NodeStock]) -> None:
    common, odd = taints_of(nodes)
    if common:
        made.put("taints", list(common), "on these nodes; pods of a run tolerate them")
    for taints, names in _by_value(odd).items():
        told = ", ".join(taint for taint in taints if not taint.startswith("node.kubernetes.io/"))
        if not told:  # the state it stands for is told below
            continue
        made.remark("taints", f"{named(names)} has {told}, which pods of a run do not tolerate: they stay away from it")
    bare = [node.name for node in nodes if any(taint not in node.taints for taint in common)]
    if bare:
        made.remark("taints", f"{named(bare)} lacks some of these taints")


def _by_value(odd: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, ...], list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for name, taints in odd.items():
        found.setdefault(taints, []).append(name)
    return found


def _host(made: Written, nodes: Sequence[NodeStock]) -> None:
    cpus = [_amount(node.allocatable.get("cpu", "")) for node in nodes]
    memory = [_amount(node.allocatable.get("memory", "")) for node in nodes]
    least = "the least that one of these nodes offers to pods; what daemons ask for comes off it"
    for name, found, text, told in (("cpus_per_node", cpus, _whole, least), ("memory_per_node", memory, _bytes, "")):
        known = [value for value in found if value >= 1]
        if known:
            made.put(name, text(min(known)), told)
        if len(known) < len(found):
            silent = [node.name for node, value in zip(nodes, found, strict=True) if value < 1]
            made.remark(name, f"{named(silent)} says nothing of it")


def _whole(value: Decimal) -> int:
    return int(value)


def _bytes(value: Decimal) -> str:
    """Rounded down to the largest unit that loses less than a thousandth."""
    for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        whole = int(value) // size
        if whole and (int(value) - whole * size) * 1000 < int(value):
            return f"{whole}{unit}"
    return str(int(value))


def _amount(quantity: str) -> Decimal:
    try:
        return amount(quantity)
    except (ArithmeticError, LookupError):
        return Decimal(0)


def _nics(made: Written, nodes: Sequence[NodeStock], hardware: HardwareProfile) -> None:
    """The resource that counts a node's NICs, where exactly one does it as the hardware profile says."""
    offers = [nics(node) for node in nodes]
    names = sorted({name for offer in offers for name in offer})
    if not names or not hardware.gpus_per_node:
        return
    counts = {name: [offer.get(name, 0) for offer in offers] for name in names}
    told = ", ".join(f"{name}: {_span(counts[name])}" for name in names)
    wanted = hardware.nics_per_node
    # A node whose plug-in is silent now must not hide what the others say.
    fitting = [name for name in names if 2 * sum(count == wanted for count in counts[name]) > len(nodes)]
    if wanted and len(fitting) == 1:
        made.put("nic_resource_name", fitting[0], f"nodes count {told}")
    else:
        which = "several of them could be meant" if len(fitting) > 1 else f"{hardware.name} has {wanted} NICs by node"
        made.remark("nic_resource_name", f"not written: nodes count {told}, but {which}; say which one counts its NICs")


def _span(counts: Sequence[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _now(made: Written, nodes: Sequence[NodeStock], matches: Mapping[str, Match]) -> None:
    """What is wrong with nodes today; they count all the same."""
    states = {
        "is not ready": [node.name for node in nodes if node.ready is not True],
        "is cordoned": [node.name for node in nodes if node.cordoned],
        "offers fewer GPUs than are built in": [
            node.name for node in nodes if matches[node.name].gpus_now < matches[node.name].gpus
        ],
    }
    for state, names in states.items():
        if names:
            made.remark("nodes", f"counted in, though {named(names)} {state} now")
