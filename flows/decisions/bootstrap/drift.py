"""In what hosts and cluster differ from what is wanted: each difference with what is wanted and what is found.

Read only. What could not be seen is a difference of its own kind, `unknown`: it is never taken for the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from flows.decisions.bootstrap.adopted import untold
from flows.decisions.bootstrap.components import component_differences
from flows.decisions.bootstrap.configuration import (
    Settings,
    cluster_differences,
    host_parts,
    settings_of,
    unchangeable,
)
from flows.decisions.bootstrap.judge import Wanted, checks_of, version_proof
from flows.decisions.bootstrap.plans import section
from flows.decisions.bootstrap.services import silent_services
from profiles.bootstrap.engines import Adopt, Kubespray
from profiles.bootstrap.inventory import NodeTuning
from profiles.vocabulary import VerdictWord
from workflows.bootstrap import kubeadm_documents
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.component_configuration import FieldDifference
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.host_state import HostState, host_state
from workflows.model.host_facts import HostFacts, TuningFacts, Unread
from workflows.model.manifest import Json, items, part

COMPARED_AMONG_HOSTS = (
    "certificates",
    "clock",
    "firmware",
    "gpu-driver",
    "gpus",
    "kernel",
    "limits",
    "nics",
    "resolver",
    "swap",
    "system",
)
"""Pre-checks that also tell of a cluster that lives whether its hosts have drifted apart."""
DIGEST_CHARACTERS = 12
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
MISSING, REACHED = "missing", "reached"
KUBELET = "kubelet.service"


@dataclass(frozen=True)
class Difference:
    """One difference."""

    subject: str
    """A host, a node, or a component."""
    what: str
    """What differs, e.g. `file /etc/containerd/config.toml`."""
    wanted: str
    found: str
    word: VerdictWord = VerdictWord.FAIL
    """`unknown`: nobody could look; else `fail`."""

    @property
    def text(self) -> str:
        """In one line."""
        if self.word is VerdictWord.UNKNOWN:
            return f"{self.subject}: {self.what}: unknown: {self.found}"
        return f"{self.subject}: {self.what}: wanted {self.wanted}, found {self.found}"


def drift_of(wanted: Wanted, seen: BuildingSight, hosts: Collection[str]) -> tuple[Difference, ...]:
    """Every difference, host by host in the order of the inventory, then nodes and components.

    `hosts`: those that belong to the cluster.
    """
    found: list[Difference] = []
    for name in hosts:
        facts = seen.facts.get(name, Unread("it was not looked at"))
        if isinstance(facts, Unread):
            found.append(_unknown(name, "the host", facts.why))
        elif wanted.release is not None:  # else nothing on it is ours
            found += host_differences(name, host_state(wanted.cluster, wanted.release, name, wanted.authority), facts)
            found += tuning_differences(name, section(wanted).tuning, facts.tuning)
        elif isinstance(wanted.engine, Kubespray):  # its own files cannot be told, what it is asked for can
            found += _sysctl_differences(name, section(wanted).tuning.sysctls, facts)
            found += _unit_differences(name, (KUBELET,), facts)
            found += tuning_differences(name, section(wanted).tuning, facts.tuning)
        if isinstance(facts, HostFacts):
            found += service_differences(wanted, name, facts)
    found += _setting_differences(wanted, seen, hosts)
    found += _among_hosts(wanted, seen, hosts)
    found += node_differences(wanted, seen, hosts)
    return (*found, *_component_differences(wanted, seen))


def _setting_differences(wanted: Wanted, seen: BuildingSight, hosts: Collection[str]) -> list[Difference]:
    """Settings that the cluster keeps, those that nodes run with, and fields that can never be changed."""
    best = seen.cluster.best
    if wanted.release is None or best is None:  # nothing of it is ours, or nodes are told as unknown
        return []
    settings, unread = settings_of(wanted.cluster), list[str]()
    never = unchangeable(wanted.cluster, seen.cluster)
    found = [_of("cluster", one) for one in (*never, *cluster_differences(settings, best, unread))]
    found += [_unknown("cluster", "settings", why) for why in unread]
    for name in hosts:
        facts = seen.facts.get(name)
        if isinstance(facts, HostFacts):
            found += _settings_on(settings, name, facts, seen.cluster)
    return found


def _settings_on(settings: Settings, name: str, facts: HostFacts, sight: ControlSight) -> Iterable[Difference]:
    unread = list[str]()
    for why in host_parts(settings, name, facts, sight, unread).values():
        yield from (_of(name, one) for one in why)
    yield from (_unknown(name, "settings", why) for why in unread)


def _of(subject: str, one: FieldDifference) -> Difference:
    return Difference(subject, one.what, one.wanted, one.found)


def _component_differences(wanted: Wanted, seen: BuildingSight) -> list[Difference]:
    if not wanted.chosen:
        return []
    if isinstance(seen.components, Unread):
        return [_unknown("cluster", "components", seen.components.why)]
    differences = component_differences(wanted.chosen, seen.components)
    return [Difference(one.name, one.what, one.wanted or "none", one.found or "none") for one in differences]


def host_differences(name: str, state: HostState, facts: HostFacts) -> list[Difference]:
    """Files by their digests, kernel parameters, units and images of one host."""
    found: list[Difference] = []
    for path, digest in state.digests.items():
        told = facts.files.get(path, Unread())
        if isinstance(told, Unread):
            found.append(_unknown(name, f"file {path}", told.why))
        elif told != digest:
            found.append(Difference(name, f"file {path}", _short(digest), _short(told) or MISSING))
    found += _sysctl_differences(name, state.sysctls, facts)
    if isinstance(facts.container_runtime, Unread):
        found.append(_unknown(name, "containerd", facts.container_runtime.why))
    elif facts.container_runtime != "ok":
        found.append(Difference(name, "containerd", "ok", facts.container_runtime))
    units = _unit_differences(name, (*state.units, KUBELET), facts)
    return [*found, *units, *_image_differences(name, state, facts)]


def _sysctl_differences(name: str, sysctls: Mapping[str, str], facts: HostFacts) -> Iterable[Difference]:
    """A parameter behind a `-` may be missing on a host."""
    for key, value in sysctls.items():
        parameter = key.lstrip("-")
        told = facts.sysctls.get(parameter, Unread())
        if not isinstance(told, Unread):
            if told.split() != value.split():
                yield Difference(name, f"sysctl {parameter}", value, told)
        elif not key.startswith("-"):
            yield _unknown(name, f"sysctl {parameter}", told.why)


def _unit_differences(name: str, units: Iterable[str], facts: HostFacts) -> Iterable[Difference]:
    for unit in units:
        told = facts.units.get(unit, Unread())
        if isinstance(told, Unread):
            yield _unknown(name, f"unit {unit}", told.why)
        elif (told.active, told.enabled) != ("active", "enabled"):
            is_now = f"{told.active}, {told.enabled or 'no file'}" if told.loaded == "loaded" else told.loaded
            yield Difference(name, f"unit {unit}", "active, enabled", is_now)


def _image_differences(name: str, state: HostState, facts: HostFacts) -> list[Difference]:
    if isinstance(facts.images, Unread):
        return [_unknown(name, "images", facts.images.why)]
    there = {image.name: image.digest for image in facts.images}
    found: list[Difference] = []
    for image, digest in state.images.items():
        if image not in there:
            found.append(Difference(name, f"image {image}", digest or "any digest", MISSING))
        elif digest and there[image] != digest:
            found.append(Difference(name, f"image {image}", digest, there[image]))
    return found


def tuning_differences(name: str, tuning: NodeTuning, facts: TuningFacts | Unread) -> list[Difference]:
    """What the tuning asks for beside kernel parameters; "" asks for nothing, and what the kernel has not is passed."""
    asked = {
        "transparent_hugepages": tuning.transparent_hugepages,
        "numa_balancing": tuning.numa_balancing,
        "cpu_governor": tuning.cpu_governor,
    }
    asked = {field: value for field, value in asked.items() if value}
    if isinstance(facts, Unread):
        return [_unknown(name, f"tuning {field}", facts.why) for field in asked]
    return [
        Difference(name, f"tuning {field}", value, getattr(facts, field))
        for field, value in asked.items()
        if getattr(facts, field) not in ("", value)
    ]


def service_differences(wanted: Wanted, name: str, facts: HostFacts) -> list[Difference]:
    """Services that a node does not reach."""
    unread: list[str] = []
    silent = silent_services(wanted.cluster, facts, unread)
    found = [Difference(name, f"service {service}", REACHED, why) for service, why in silent]
    return [*found, *(_unknown(name, "services", why) for why in unread)]


def _among_hosts(wanted: Wanted, seen: BuildingSight, hosts: Collection[str]) -> list[Difference]:
    """Hosts of one pool that are not alike any more, and what runs out."""
    return [
        Difference(host, one.check, one.limit or "as all others", one.found, one.word)
        for one in checks_of(wanted, seen).findings
        if one.check in COMPARED_AMONG_HOSTS and one.word is not VerdictWord.PASS
        for host in one.hosts
        if host in hosts
    ]


def node_differences(wanted: Wanted, seen: BuildingSight, hosts: Collection[str]) -> list[Difference]:
    """Nodes that are missing, that nobody wants, or that have another version, label or taint."""
    nodes = seen.cluster.nodes
    if nodes is None:
        return [_unknown("cluster", "nodes", untold(seen.cluster))]
    found = [Difference(name, "node", "a node", MISSING) for name in hosts if name not in nodes]
    found += [
        Difference(name, "node", "none", "a node that the inventory does not name")
        for name, node in nodes.items()
        if name not in hosts and _must_be_named(wanted, node)
    ]
    for name in hosts:
        if name in nodes:
            found += _differences_of(wanted, name, nodes[name])
    if isinstance(wanted.engine, Kubespray):  # nothing else tells whether kubelet and control plane are as wanted
        for name in (name for name in hosts if name in nodes):
            proof = version_proof(name, wanted.kubernetes, seen.cluster)
            if proof.word is not VerdictWord.PASS:
                found.append(Difference(name, "Kubernetes", f"{wanted.kubernetes}, Ready", proof.why, proof.word))
    return found


def _must_be_named(wanted: Wanted, node: Json) -> bool:
    """Whether the inventory tells of all nodes like this one: that of an adopted cluster may name only some."""
    bootstrap = section(wanted)
    if not isinstance(bootstrap.engine, Adopt):
        return True
    working = sum(host.works for host in bootstrap.hosts.values())
    if CONTROL_PLANE_LABEL in part(node, "metadata", "labels"):
        return any(host.controls for host in bootstrap.hosts.values())
    return working == sum(pool.nodes for pool in wanted.cluster.pools)


def _differences_of(wanted: Wanted, name: str, node: Json) -> Iterable[Difference]:
    version = str(part(node, "status", "nodeInfo").get("kubeletVersion", "")).lstrip("v")
    if wanted.release is not None and version != wanted.release.version:
        yield Difference(name, "kubelet", wanted.release.version, version or "unknown")
    marks = part(node, "metadata", "labels")
    for key, value in kubeadm_documents.node_labels(wanted.cluster, name).items():
        if marks.get(key) != value:
            yield Difference(name, f"label {key}", value, str(marks.get(key) or MISSING))
    there = [(one.get("key"), one.get("value") or "", one.get("effect")) for one in items(node, "spec", "taints")]
    for text in kubeadm_documents.taints(wanted.cluster, name):
        entry = kubeadm_documents.taint_entry(text)
        if (entry["key"], entry.get("value", ""), entry["effect"]) not in there:
            yield Difference(name, f"taint {text}", "there", MISSING)


def _unknown(subject: str, what: str, why: str) -> Difference:
    return Difference(subject, what, "", why, VerdictWord.UNKNOWN)


def _short(digest: str) -> str:
    return digest[:DIGEST_CHARACTERS]
