"""From a living cluster's objects to a cluster profile, with where each value came from and what is not known. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from flows.decisions.cluster_import.hardware import HardwareMatch, PoolPlaces, nics, places
from flows.decisions.cluster_import.pools import Group, Grouped, grouped, node_names, taints_of
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.loading.validation import checked
from workflows import labels
from workflows.labels import RETURNING
from workflows.model.inventory import Inventory, NodeStock, ServiceStock
from workflows.model.manifest import readable_amount

MAX_NAME = 63

NOT_SAID = ("programs_image", "service_account", "image_pull_secrets", "run_as_user", "read_kernel_log", "brake")
"""What no object of a cluster says; these fields keep their defaults."""
_SHARED = ("ReadWriteMany",)
_NOT_METRICS = (
    "alertmanager|exporter|operator|pushgateway|adapter|webhook|grafana|state-metrics|coredns|etcd|kubelet"
    "|kube-(proxy|sch|con)"
)
_METRICS = re.compile(rf"^(?!.*({_NOT_METRICS})).*(prometheus|vmselect|vmsingle)")
_NOT_LOGS = "canary|memberlist|headless|promtail|compactor|ruler|ingester|distributor|cache|operator"
_LOGS = re.compile(rf"^(?!.*({_NOT_LOGS})).*loki")
"""How services are usually called: of kube-prometheus-stack, VictoriaMetrics, and Loki's own chart."""
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME_LABELS = ("app.kubernetes.io/name", "app")
_PORTS = ("web", "http-web", "http", "http-metrics")


@dataclass
class ProfileDraft:
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
        """Something that is not known, or that a person should look at."""
        self.remarks.append((name, text))

    def miss(self, name: str, text: str) -> None:
        """Something without which this is no profile."""
        self.remark(name, text)
        self.problems.append(text)


@dataclass(frozen=True)
class ClusterImport:
    """A profile as it was found, perhaps not whole."""

    fields: Mapping[str, Any]
    """The profile's data; `pools` and `storage` may be empty."""
    sources: Mapping[str, str]
    """By field, e.g. `pools[0].labels`: where the value came from."""
    remarks: tuple[tuple[str, str], ...]
    """(field, what a person should look at), in the order of the fields."""
    left_out: tuple[tuple[str, str], ...]
    """(node, why) of nodes that are in no pool."""
    profile: ClusterProfile | None
    """The value; None where something is missing that it needs."""
    problem: str = ""
    """What is missing and what to do; "" where nothing is."""
    unknown: bool = False
    """It is missing because the cluster would not tell."""


def imported(
    stock: Inventory, name: str, hardware: Mapping[str, HardwareProfile], storage: Sequence[str] = ()
) -> ClusterImport:
    """The profile of a living cluster.

    `name`: of the profile; "" for the context's. `storage`: shared folders that a person named, each as `CLAIM`,
    `/PATH`, or either with `:MOUNT`; they go before what was found.

    Raises:
        ProfileError: a shared folder is named in a way that means nothing.
    """
    made, queues = ProfileDraft(), {item.name for item in stock.cluster_queues}
    used = frozenset(quota.flavor for item in stock.cluster_queues for quota in item.quotas)
    found = grouped(stock.nodes, hardware, stock.flavors, used)
    _head(made, stock, name, found)
    _queue(made, stock, queues)
    made.put("pools", [])
    _pools(made, stock, found, hardware)
    _storage(made, stock, storage)
    _priorities(made, stock)
    _endpoints(made, stock)
    for why, nodes in _by_reason(found.left_out).items():
        made.remark("pools", f"left out: {node_names(nodes)}: {why}")
    return _finished(made, stock, found)


def _head(made: ProfileDraft, stock: Inventory, name: str, found: Grouped) -> None:
    gpus = sum(found.matches[node.name].gpus for group in found.groups for node in group.nodes)
    nodes = sum(len(group.nodes) for group in found.groups)
    where = f"context {stock.context}" if stock.context else "the cluster around this pod"
    made.put("name", slug(name or stock.context) or "imported")
    made.put("engine", "kubernetes")
    made.put("description", f"{nodes} nodes with {gpus} GPUs, as {where} showed them.")
    made.put("context", stock.context)
    made.put("namespace", stock.namespace)
    if stock.namespace_exists is False:
        made.remark("namespace", "there is no such namespace: make it, e.g. with primus render workspace")


def _queue(made: ProfileDraft, stock: Inventory, readable: set[str]) -> None:
    names = sorted(item.name for item in stock.local_queues)
    if "LocalQueue" in stock.unread:
        made.remark("queue", f"not known: {stock.unread['LocalQueue']}")
        return
    if not names:
        made.remark("queue", f"namespace {stock.namespace} has no LocalQueue: runs will not wait in a queue of Kueue")
        return
    if len(names) > 1 and "default" not in names:
        made.remark("queue", f"not written: one of {', '.join(names)}; choose, or name it in each run")
        return
    queue = next(item for item in stock.local_queues if item.name == (names[0] if len(names) == 1 else "default"))
    which = "the only LocalQueue" if len(names) == 1 else "the LocalQueue for whatever names none"
    made.put("queue", queue.name, f"{which} of the namespace; its ClusterQueue is {queue.cluster_queue or 'not named'}")
    if queue.cluster_queue not in readable:
        why = stock.unread.get("ClusterQueue", "there is none of that name")
        made.remark("queue", f"ClusterQueue {queue.cluster_queue} is not known: {why}")


def _pools(made: ProfileDraft, stock: Inventory, found: Grouped, hardware: Mapping[str, HardwareProfile]) -> None:
    levels = {flavor.name: stock.topologies.get(flavor.topology, ()) for flavor in stock.flavors}
    for index, (name, group) in enumerate(zip(pool_names(found.groups), found.groups, strict=True)):
        part = pool(name, group, hardware[group.hardware], found.matches, levels.get(group.flavor, ()))
        _unserved(part, stock, group, bool(made.fields.get("queue")))
        made.fields["pools"].append(part.fields)
        at = f"pools[{index}]"
        made.sources |= {f"{at}.{field}" if field else at: text for field, text in part.sources.items()}
        made.remarks += [(f"{at}.{field}", text) for field, text in part.remarks]
    if not found.groups:
        what = "its nodes may not be read" if "Node" in stock.unread else "no node can be used"
        made.miss("pools", f"no pool: {what}")


def _unserved(part: ProfileDraft, stock: Inventory, group: Group, queued: bool) -> None:
    if group.flavor or not queued:
        return
    if "ResourceFlavor" in stock.unread:
        part.remark("queue_flavor", f"not known: {stock.unread['ResourceFlavor']}")
    else:
        part.remark("queue_flavor", "no single ResourceFlavor of the queue selects all of these nodes")


def _storage(made: ProfileDraft, stock: Inventory, requests: Sequence[str]) -> None:
    found = [_given_storage(text) for text in requests]
    shared = [item for item in stock.volumes if set(_SHARED) & set(item.modes)]
    named_claims = {item["source"] for item in found}
    for claim in sorted(shared, key=lambda item: item.name):
        if claim.phase != "Bound":
            made.remark("storage", f"claim {claim.name} may be shared but is {claim.phase}: not written")
        elif claim.name not in named_claims:
            found.append({"kind": "claim", "source": claim.name, "mount_path": f"/mnt/{slug(claim.name)}"})
            note = f"{claim.size} of class {claim.storage_class or 'unnamed'}"
            made.sources[f"storage[{len(found) - 1}]"] = f"a bound ReadWriteMany claim, {note}; the mount path is ours"
    for index, text in enumerate(requests):
        made.sources[f"storage[{index}]"] = f"as you said: {text}"
    made.put("storage", found)
    if len(found) > 1:
        made.remark("storage", "the first one holds the runs' folders: put the right one there")
    if not found:
        made.miss("storage", _no_storage(stock))


def _no_storage(stock: Inventory) -> str:
    if "PersistentVolumeClaim" in stock.unread:
        why = f"the claims could not be read ({stock.unread['PersistentVolumeClaim']})"
    else:
        why = f"namespace {stock.namespace} has no bound PersistentVolumeClaim with ReadWriteMany"
    classes = ", ".join(f"{name} ({provisioner})" for name, provisioner in stock.storage_classes)
    make = f"make one (classes here: {classes})" if classes else "make one"
    return (
        f"no shared folder: {why}, and runs keep logs and checkpoints in one; {make}, or name one with "
        "--storage CLAIM[:MOUNT], or a folder that all nodes share with --storage /PATH[:MOUNT]"
    )


def _given_storage(text: str) -> dict[str, str]:
    source, _, mount = text.partition(":")
    folder = source.startswith(("/", "{home}"))
    if not folder and not _CLAIM.fullmatch(source):
        raise ProfileError(
            "--storage", f"{text!r} is neither a claim's name nor an absolute path, with or without :MOUNT"
        )
    path = mount or (source if folder else f"/mnt/{source}")
    return {"kind": "host_path" if folder else "claim", "source": source, "mount_path": path}


def _returning(made: ProfileDraft, both: Mapping[str, int]) -> None:
    """Sisters of priorities as our workspaces make them: only those that stand above the priority itself."""
    sisters = {name: f"{name}-{RETURNING}" if name else RETURNING for name in ["", *both]}
    found = {name: sister for name, sister in sisters.items() if both.get(sister, -1) > both.get(name, 0)}
    if found:
        made.put("returning_priorities", found, "classes above a priority for attempts that answer a failure")


def _priorities(made: ProfileDraft, stock: Inventory) -> None:
    """A run's priority names a PriorityClass of its pods and, in a queue, Kueue's class of the same name."""
    pods = {name: value for name, value in stock.priority_classes.items() if not name.startswith("system-")}
    if not made.fields.get("queue"):
        if pods:
            made.put("priority_classes", dict(sorted(pods.items())), "PriorityClasses, with their values")
        return
    both = {name: value for name, value in stock.workload_priority_classes.items() if name in pods}
    if both:
        source = "WorkloadPriorityClasses that are PriorityClasses too, with Kueue's values"
        made.put("priority_classes", dict(sorted(both.items(), key=lambda item: item[1])), source)
        _returning(made, both)
    alone = sorted(stock.workload_priority_classes.keys() - pods.keys())
    if alone:
        made.remark("priority_classes", f"left out: {', '.join(alone)}: no PriorityClass of that name, which pods need")
    odd = sorted(name for name, value in both.items() if pods[name] != value)
    if odd:
        made.remark("priority_classes", f"{', '.join(odd)}: Kueue's value and that of the PriorityClass differ")
    for kind in ("WorkloadPriorityClass", "PriorityClass"):
        if kind in stock.unread:
            made.remark("priority_classes", f"not known: {stock.unread[kind]}")


def _endpoints(made: ProfileDraft, stock: Inventory) -> None:
    urls: dict[str, str] = {}
    notes: list[str] = []
    for name, pattern in (("prometheus_url", _METRICS), ("logs_url", _LOGS)):
        like = [(_label(item), item) for item in stock.services if _port(item) and pattern.search(_label(item))]
        like.sort(key=lambda pair: (_oddness(pair[1]), pair[1].namespace, pair[1].name))
        if like:
            service = like[0][1]
            urls[name] = f"http://{service.name}.{service.namespace}:{_port(service)}"
            more = f", one of {len(like)}" if len(like) > 1 else ""
            notes.append(f"{name}: a guess from the name and labels of Service {service.name}{more}")
    if urls:
        made.put("endpoints", urls, "; ".join(notes))
    if "Service" in stock.unread:
        made.remark("endpoints", f"left out: services of all namespaces may not be read ({stock.unread['Service']})")


def _label(service: ServiceStock) -> str:
    """What it is: what its labels call it, then its own name."""
    labelled = next((service.labels[key] for key in _NAME_LABELS if service.labels.get(key)), "")
    return f"{labelled} {service.name}".lower()


def _oddness(service: ServiceStock) -> tuple[bool, int]:
    """Few extras in the name, and a gateway before what stands behind it."""
    return "gateway" not in service.name, len(service.name)


def _port(service: ServiceStock) -> int:
    named_ports = {name: number for name, number in service.ports}
    usual = [named_ports[name] for name in _PORTS if name in named_ports]
    usual += [number for _, number in service.ports if number in (9090, 3100, 80)]
    return next(iter(usual), 0)


def _by_reason(left_out: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, why in left_out:
        found.setdefault(why, []).append(node)
    return found


def _finished(made: ProfileDraft, stock: Inventory, found: Grouped) -> ClusterImport:
    order = list(ClusterProfile.model_fields)
    remarks = sorted(made.remarks, key=lambda item: order.index(re.split(r"[.\[]", item[0])[0]))
    missing = [name for name in ("pools", "storage") if not made.fields[name]]
    problem = "; ".join(made.problems)
    profile = None
    if not missing:
        try:
            profile = checked(ClusterProfile, made.fields, "what was found")
        except ProfileError as error:
            problem = str(error)
    unread = {"pools": "Node", "storage": "PersistentVolumeClaim"}
    return ClusterImport(
        fields=made.fields,
        sources=made.sources,
        remarks=tuple(remarks),
        left_out=found.left_out,
        profile=profile,
        problem=problem,
        unknown=bool(missing) and all(unread[name] in stock.unread for name in missing),
    )


def slug(text: str) -> str:
    """A name that Kubernetes takes, near to `text`; "" where nothing of it can be kept."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:MAX_NAME].strip("-")


def pool_names(groups: Sequence[Group]) -> list[str]:
    """Names by our own label, else the hardware, with what distinguishes two pools of one hardware."""
    ours = [_own_name(group) for group in groups]
    kinds = Counter(group.hardware for group, own in zip(groups, ours, strict=True) if not own)
    taken: set[str] = set()
    found: list[str] = []
    for group, own in zip(groups, ours, strict=True):
        name = own or group.hardware
        if not own and kinds[group.hardware] > 1:
            suffix = slug(group.flavor or next(iter((group.selector or {}).values()), ""))
            name = (f"{group.hardware}-{suffix}"[:MAX_NAME] if suffix else name).strip("-")
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
    name: str, group: Group, hardware: HardwareProfile, matches: Mapping[str, HardwareMatch], levels: Sequence[str] = ()
) -> ProfileDraft:
    """One pool."""
    made = ProfileDraft()
    made.sources[""] = f"{node_names(node.name for node in group.nodes)}: {group.seen}"
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


def _spares(made: ProfileDraft, nodes: Sequence[NodeStock]) -> None:
    spares = sum(node.labels.get(labels.SPARE) == "true" for node in nodes)
    if 0 < spares < len(nodes):
        made.put("spares", spares, f"nodes labelled {labels.SPARE}=true")


def _places(made: ProfileDraft, found: PoolPlaces) -> None:
    if not found.rack_label:
        made.remark("topology", found.note)
        return
    shape = {"nodes_per_rack": found.nodes_per_rack, "racks_per_block": found.racks_per_block}
    made.put("topology", shape, found.note)
    wanted = {found.rack_label: labels.RACK} | ({found.block_label: labels.BLOCK} if found.block_label else {})
    foreign = [f"{label} to {ours}" for label, ours in wanted.items() if label != ours]
    if foreign:
        made.remark("topology", f"gangs are placed by our own labels: copy the values of {' and '.join(foreign)}")


def _taints(made: ProfileDraft, nodes: Sequence[NodeStock]) -> None:
    common, odd = taints_of(nodes)
    if common:
        made.put("taints", list(common), "on these nodes; pods of a run tolerate them")
    for taints, names in _by_value(odd).items():
        listed = ", ".join(taint for taint in taints if not taint.startswith("node.kubernetes.io/"))
        if not listed:  # the node's state has a remark of its own below
            continue
        made.remark(
            "taints", f"{node_names(names)} has {listed}, which pods of a run do not tolerate: they stay away from it"
        )
    bare = [node.name for node in nodes if any(taint not in node.taints for taint in common)]
    if bare:
        made.remark("taints", f"{node_names(bare)} lacks some of these taints")


def _by_value(odd: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, ...], list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for name, taints in odd.items():
        found.setdefault(taints, []).append(name)
    return found


def _host(made: ProfileDraft, nodes: Sequence[NodeStock]) -> None:
    cpus = [readable_amount(node.allocatable.get("cpu", "")) for node in nodes]
    memory = [readable_amount(node.allocatable.get("memory", "")) for node in nodes]
    least = "the least that one of these nodes offers to pods; what daemons ask for comes off it"
    for name, found, text, choose in (("cpus_per_node", cpus, _whole, least), ("memory_per_node", memory, _bytes, "")):
        known = [value for value in found if value >= 1]
        if known:
            made.put(name, text(min(known)), choose)
        if len(known) < len(found):
            silent = [node.name for node, value in zip(nodes, found, strict=True) if value < 1]
            made.remark(name, f"{node_names(silent)} says nothing of it")


def _whole(value: Decimal) -> int:
    return int(value)


def _bytes(value: Decimal) -> str:
    """Rounded down to the largest unit that loses less than a thousandth."""
    for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        whole = int(value) // size
        if whole and (int(value) - whole * size) * 1000 < int(value):
            return f"{whole}{unit}"
    return str(int(value))


def _nics(made: ProfileDraft, nodes: Sequence[NodeStock], hardware: HardwareProfile) -> None:
    """The resource that counts a node's NICs, where exactly one does it as the hardware profile says."""
    offers = [nics(node) for node in nodes]
    names = sorted({name for offer in offers for name in offer})
    if not names or not hardware.gpus_per_node:
        return
    counts = {name: [offer.get(name, 0) for offer in offers] for name in names}
    listed = ", ".join(f"{name}: {_span(counts[name])}" for name in names)
    wanted = hardware.nics_per_node
    # A node whose plug-in is silent now must not hide what the others say.
    fitting = [name for name in names if 2 * sum(count == wanted for count in counts[name]) > len(nodes)]
    if wanted and len(fitting) == 1:
        made.put("nic_resource_name", fitting[0], f"nodes count {listed}")
    else:
        which = "several of them could be meant" if len(fitting) > 1 else f"{hardware.name} has {wanted} NICs by node"
        made.remark(
            "nic_resource_name", f"not written: nodes count {listed}, but {which}; say which one counts its NICs"
        )


def _span(counts: Sequence[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _now(made: ProfileDraft, nodes: Sequence[NodeStock], matches: Mapping[str, HardwareMatch]) -> None:
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
            made.remark("nodes", f"counted in, though {node_names(names)} {state} now")
