"""From an inventory of Kubespray or Ansible to a cluster profile, or to all that is wrong with it. Pure.

Ansible itself has read the inventory (`InventoryText.listing`): ranges, variables of groups and files beside it are
done. It takes the last of two hosts of one name without a word; that is looked for in the text.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any, cast

import yaml

from profiles.bootstrap.inventory import MOST_ETCD_MEMBERS
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.document import write
from profiles.loading.validation import checked
from profiles.values import SHOWN
from workflows.model.bootstrap import InventoryText

CONTROL, WORK, ETCD, BASTION = "kube_control_plane", "kube_node", "etcd", "bastion"
OLD_NAMES = {
    "kube-master": CONTROL,
    "kube_master": CONTROL,
    "kube-control-plane": CONTROL,
    "kube-node": WORK,
    "k8s-cluster": "k8s_cluster",
    "calico-rr": "calico_rr",
}
"""Groups as Kubespray called them before, and what they are called now."""
OF_KUBESPRAY = {"all", "ungrouped", CONTROL, WORK, ETCD, BASTION, "k8s_cluster", "calico_rr", "no_floating"}
TAKEN = {
    *("ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user", "ansible_ssh_user"),
    *("ansible_ssh_private_key_file", "ansible_private_key_file", "ansible_ssh_common_args", "ansible_ssh_extra_args"),
    *("ansible_python_interpreter", "ip", "access_ip", "rack", "block", "node_labels", "node_taints"),
    *("kube_version", "kube_pods_subnet", "kube_service_addresses", "kube_network_node_prefix", "cluster_name"),
    *("dns_domain", "loadbalancer_apiserver", "kube_vip_address"),
}
WITHOUT_EFFECT = {"ansible_become", "ansible_become_method", "ansible_connection", "etcd_member_name", "inventory_dir"}
"""Variables that say what is done here anyway, or nothing."""
ADDRESSES = ("ansible_host", "ansible_ssh_host", "ip", "access_ip")
_SECTION = re.compile(r"\[([^\]:]+)(?::(children|vars))?\]\s*(?:[#;].*)?$")
_JUMP = re.compile(r"(?:-J\s*|ProxyJump[= ]\s*)[\"']?([^\s\"',]+)|-W\s+%h:%p\s+(?:-\S+\s+)*([^\s\"']+)")
_KNOWN_HOSTS = re.compile(r"UserKnownHostsFile[= ]\s*[\"']?([^\s\"']+)")
_SECRET = re.compile(r"pass|secret|token|vault", re.IGNORECASE)
_TAINT = re.compile(r"([^=:\s\[\]\"',]+(?:=[^:\s]*)?):(NoSchedule|PreferNoSchedule|NoExecute)")

Variables = Mapping[str, Any]
Groups = Mapping[str, Mapping[str, None]]
"""Hosts by group, in their order: ten thousand are looked up one by one."""
NOBODY: Mapping[str, None] = {}


@dataclass(frozen=True)
class InventoryFinding:
    """Something that a person has to know of."""

    where: str
    """A host, a group in brackets, or a variable."""
    what: str
    wrong: bool = True
    """False: nothing stops, but look at it."""


@dataclass(frozen=True)
class Imported:
    """A cluster profile, or why there is none."""

    profile_text: str
    """YAML; empty where anything is wrong."""
    findings: tuple[InventoryFinding, ...]

    @property
    def wrong(self) -> tuple[InventoryFinding, ...]:
        """What has to be corrected in the inventory first."""
        return tuple(finding for finding in self.findings if finding.wrong)


def imported(name: str, told: InventoryText, hardware: Iterable[str]) -> Imported:
    """The cluster profile `name` of an inventory.

    `hardware`: names of hardware profiles; a group of hosts whose name holds one becomes a pool of it.
    """
    groups = _groups(told.listing)
    variables: dict[str, Variables] = dict(told.listing.get("_meta", {}).get("hostvars", {}))
    found = [*_in_text(told)]
    if told.complaint:
        found.append(InventoryFinding("inventory", f"Ansible cannot read it: {told.complaint}"))
    else:
        found += [*_of_groups(groups), *_of_unknown(groups, variables), *_of_hosts(groups, variables)]
    if any(finding.wrong for finding in found):
        return Imported("", _once(found))
    reading = _Reading(name, groups, variables, sorted(hardware, key=len, reverse=True))
    data = reading.profile()
    found += [*_of_names(told.listing), *reading.notes()]
    try:
        checked(ClusterProfile, data, "")
    except ProfileError as error:
        wrong = InventoryFinding(error.field.removeprefix("bootstrap."), error.reason)
        return Imported("", _once([*found, wrong]))
    return Imported(_written(data, found, reading.version), _once(found))


def _once(found: Iterable[InventoryFinding]) -> tuple[InventoryFinding, ...]:
    """Each once, what is wrong first."""
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: not finding.wrong))


def _written(data: Mapping[str, Any], found: Iterable[InventoryFinding], version: str) -> str:
    """`version`: of Kubernetes, where the inventory says it."""
    told = [f"#   {finding.where}: {' '.join(finding.what.split())}" for finding in found]
    head = (
        "# Made of an Ansible inventory, which says nothing of hardware, storage and racks: look at each line.",
        "# A cluster that exists already is `engine: {kind: adopt}`; one of your own copy of Kubespray is",
        f"# `engine: {{kind: kubespray, source: {{url: …, commit: …}}, environment: …, version: {version or '…'}}}`,",
        "# with what its group variables say beside all below in `variables` (docs/bootstrap.md, Engines).",
        *(["# Worth a look:", *told] if told else []),
    )
    return "\n".join(head) + "\n" + write(data)


# What only the text shows.


def _in_text(told: InventoryText) -> Iterator[InventoryFinding]:
    said = list(_yaml_hosts(told.text) if told.is_yaml else _ini_hosts(told.text))
    lines: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for line, group, host, variables in said:
        lines.setdefault((group, host), []).append((line, variables))
        for variable, value in re.findall(
            r"\b(ansible_host|ansible_ssh_host|ip|access_ip)[=:]\s*([^\s,}\"']+)", variables
        ):
            if why := _no_address(value):
                yield InventoryFinding(host, f"{variable} {value}: {why}")
    for (group, host), places in lines.items():
        if len(places) > 1 and any(variables for _, variables in places):
            where = ", ".join(str(line) for line, _ in places)
            twice = f"{len(places)} hosts of [{group}] are called so (lines {where}), and Ansible takes the last one"
            yield InventoryFinding(host, f"{twice}: give each a name of its own")


def _ini_hosts(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, group, name and variables of each line that is a host."""
    group, kind = "ungrouped", ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if section := _SECTION.match(line):
            group, kind = section[1], section[2] or ""
        elif not kind:
            try:
                name, *variables = shlex.split(line, comments=True)
            except ValueError:
                continue  # Ansible refuses it, too, and says why
            yield number, group, name, " ".join(variables)


def _yaml_hosts(text: str) -> Iterator[tuple[int, str, str, str]]:
    try:
        root = cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.YAMLError:
        return  # Ansible refuses it, too, and says why
    waiting: list[tuple[str, yaml.Node | None]] = [("", root)]
    while waiting:
        group, node = waiting.pop(0)
        for key, value in _pairs(node):
            if key.value == "hosts":
                for host, variables in _pairs(value):
                    end = variables.end_mark.index if isinstance(variables, yaml.MappingNode) else 0
                    said = text[variables.start_mark.index : end].replace("\n", " ")
                    yield host.start_mark.line + 1, group, str(host.value), said
            elif key.value != "vars":
                waiting.append((group if key.value == "children" else str(key.value), value))


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value) if isinstance(node, yaml.MappingNode) else []


def _no_address(value: str) -> str:
    """Why something that looks like an address is none; "" for addresses and names."""
    if not re.fullmatch(r"[0-9.]+", value):
        return ""
    try:
        IPv4Address(value)
    except ValueError:
        octets = len(value.split("."))
        return "is no address: it has " + (f"{octets} numbers, not 4" if octets != 4 else "a number beyond 255")
    return ""


# What Ansible's reading shows.


def _groups(listing: Mapping[str, Any]) -> Groups:
    """Hosts of each group in their order, those of its children with them, old names of groups as today's."""

    def hosts(group: str, seen: frozenset[str]) -> Iterator[str]:
        told = listing.get(group, {})
        yield from told.get("hosts", ())
        for child in told.get("children", ()):
            if child not in seen:
                yield from hosts(child, seen | {child})

    found: dict[str, dict[str, None]] = {}
    for group in listing:
        if group != "_meta":
            found.setdefault(OLD_NAMES.get(group, group), {}).update(dict.fromkeys(hosts(group, frozenset({group}))))
    return found


def _of_groups(groups: Groups) -> Iterator[InventoryFinding]:
    control, etcd = groups.get(CONTROL, NOBODY), groups.get(ETCD, NOBODY)
    if not control:
        yield InventoryFinding(f"[{CONTROL}]", "names no host: a cluster needs a control plane, or three")
    for group, members in ((ETCD, etcd), (CONTROL, control if set(etcd) != set(control) else NOBODY)):
        if members and len(members) % 2 == 0:
            less = f"{len(members)} members bear the loss of no more than {len(members) - 1} do"
            yield InventoryFinding(f"[{group}]", f"{less} ({', '.join(list(members)[:8])}): make it an odd number")
    if len(etcd) > MOST_ETCD_MEMBERS:
        yield InventoryFinding(f"[{ETCD}]", f"{len(etcd)} members: etcd takes {MOST_ETCD_MEMBERS} at most")
    apart = sorted(set(etcd) - set(control))
    if etcd and control and apart:
        stacked = "members of etcd that are no control planes; here each control plane carries its own"
        yield InventoryFinding(f"[{ETCD}]", f"{', '.join(apart[:8])}: {stacked}")
    if not groups.get(WORK):
        yield InventoryFinding(f"[{WORK}]", "names no host: nothing could train")


def _of_unknown(groups: Groups, variables: Mapping[str, Variables]) -> Iterator[InventoryFinding]:
    """Hosts that only a group names: Ansible takes each name for a host."""
    if any(_address(told) for told in variables.values()):
        for group, members in groups.items():
            unknown = [host for host in members if not _address(variables.get(host, {}))]
            if unknown and group in {CONTROL, WORK, ETCD, BASTION}:
                only = "which nothing gives an address (ansible_host), as the others have"
                yield InventoryFinding(f"[{group}]", f"names {', '.join(unknown[:8])}, {only}: unknown hosts?")


def _of_hosts(groups: Groups, variables: Mapping[str, Variables]) -> Iterator[InventoryFinding]:
    taken: dict[str, str] = {}
    for host in dict.fromkeys([*groups.get(CONTROL, ()), *groups.get(WORK, ()), *groups.get(ETCD, ())]):
        told = variables.get(host, {})
        for variable in ADDRESSES:
            if why := _no_address(str(told.get(variable, ""))):
                yield InventoryFinding(host, f"{variable} {told[variable]}: {why}")
        ip = str(told.get("ip") or _address(told))
        if ip and taken.setdefault(ip, host) != host:
            yield InventoryFinding(host, f"{ip} is the address of {taken[ip]} too")


def _of_names(listing: Mapping[str, Any]) -> Iterator[InventoryFinding]:
    for old in sorted(OLD_NAMES.keys() & listing.keys()):
        yield InventoryFinding(f"[{old}]", f"is an old name, taken as [{OLD_NAMES[old]}]", wrong=False)


def _address(told: Variables) -> str:
    return str(told.get("ansible_host") or told.get("ansible_ssh_host") or told.get("ip") or "")


@dataclass(frozen=True)
class _Reading:
    """What the profile says, from groups and variables that nothing is wrong with."""

    name: str
    groups: Groups
    variables: Mapping[str, Variables]
    hardware: Sequence[str]
    """The longest names first: `gb200` before `b200`."""

    @property
    def version(self) -> str:
        """Of Kubernetes, where a host's variables say it; "": none does."""
        said = (told.get("kube_version") for told in self.variables.values())
        return next((str(one).removeprefix("v") for one in said if one), "")

    def profile(self) -> dict[str, Any]:
        hosts = {host: self._host(host) for host in self._nodes}
        pools = Counter(self._pool(host)[0] for host in hosts if hosts[host]["role"] != "control-plane")
        kinds = dict(self._pool(host) for host in hosts)
        for host, said in hosts.items():
            if said["role"] != "control-plane" and len(pools) > 1:
                said["pool"] = self._pool(host)[0]
        common = self._common()
        for said in hosts.values():
            for field, value in common.items():
                if said.get(field) == value:
                    del said[field]
        return {
            "name": self.name,
            "engine": "kubernetes",
            "read_kernel_log": True,  # else no preflight could pass a node
            "pools": [{"name": pool, "hardware": kinds[pool], "nodes": nodes} for pool, nodes in pools.items()],
            "storage": [{"kind": "claim", "source": "primus-shared", "mount_path": "/mnt/primus"}],
            "bootstrap": {
                "ssh": common | self._ssh(),
                "hosts": hosts,
                **self._endpoint(),
                "networks": self._networks(),
                "engine": {"kind": "kubeadm"},
            },
        }

    def notes(self) -> Iterator[InventoryFinding]:
        everything = {name: value for told in self.variables.values() for name, value in told.items()}
        left = sorted(everything.keys() - TAKEN - WITHOUT_EFFECT)
        secret = [name for name in left if _SECRET.search(name)]
        if secret:
            why = "is not taken over: log in with a key, and let sudo ask for no password"
            yield InventoryFinding(", ".join(secret[:SHOWN]), why, wrong=False)
        others = [name for name in left if name not in secret]
        if others:
            more = f", … ({len(others) - SHOWN} more)" if len(others) > SHOWN else ""
            have = "have an effect in Ansible and none here; with engine kubespray say them in engine.variables"
            yield InventoryFinding(", ".join(others[:SHOWN]) + more, have, wrong=False)
        if self.version:
            says = f"{self.version}: here the engine says it, kubeadm by its release, kubespray by its version"
            yield InventoryFinding("kube_version", says, wrong=False)
        args = " ".join(str(told.get("ansible_ssh_common_args", "")) for told in self.variables.values())
        if re.search(r"StrictHostKeyChecking[= ]\"?no", args):
            yield InventoryFinding(
                "ansible_ssh_common_args", "StrictHostKeyChecking=no is not taken over: keys are compared", wrong=False
            )
        inside = {**self._nodes, **self.groups.get(BASTION, {})}
        outside = [host for host in self.groups.get("all", ()) if host not in inside]
        if outside:
            left_out = "in no group of the cluster: left out"
            yield InventoryFinding(", ".join(outside[:SHOWN]), left_out, wrong=False)
        different = [host for host in self._nodes if self._says(host, "access_ip") not in ("", self._ip(host))]
        if different:
            yield InventoryFinding(", ".join(different[:SHOWN]), "access_ip is not taken over: node_ip is", wrong=False)
        if any(kind == "cpu" for _, kind in map(self._pool, self.groups.get(WORK, ()))):
            yield InventoryFinding("pools", "`hardware: cpu` is a guess: name the hosts' hardware profile", wrong=False)

    @cached_property
    def _nodes(self) -> dict[str, None]:
        return dict.fromkeys([*self.groups.get(CONTROL, ()), *self.groups.get(WORK, ())])

    def _says(self, host: str, *names: str) -> str:
        told = self.variables.get(host, {})
        return next((str(told[name]) for name in names if told.get(name) not in (None, "")), "")

    def _ip(self, host: str) -> str:
        return self._says(host, "ip") or _address(self.variables.get(host, {})) or host

    def _pool(self, host: str) -> tuple[str, str]:
        """Name and hardware of the pool: the first group of the site's own whose name holds a kind of hardware."""
        for group, members in self.groups.items():
            if group not in OF_KUBESPRAY and host in members:
                kind = next((kind for kind in self.hardware if kind in group.lower()), "")
                if kind:
                    return re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-"), kind
        return "workers", "cpu"

    def _host(self, host: str) -> dict[str, Any]:
        controls, works = host in self.groups.get(CONTROL, ()), host in self.groups.get(WORK, ())
        address = self._says(host, "ansible_host", "ansible_ssh_host") or self._ip(host)
        said: dict[str, Any] = {"address": address}
        if self._ip(host) != address:
            said["node_ip"] = self._ip(host)
        said["role"] = "both" if controls and works else "control-plane" if controls else "worker"
        port = self._says(host, "ansible_port", "ansible_ssh_port")
        said |= {
            "rack": self._says(host, "rack"),
            "block": self._says(host, "block"),
            "user": self._says(host, "ansible_user", "ansible_ssh_user"),
            "port": int(port) if port.isdigit() else None,
            "private_key_file": self._says(host, "ansible_ssh_private_key_file", "ansible_private_key_file"),
            "jump": self._jump(host),
            "labels": {str(key): str(value) for key, value in self._mapping(host, "node_labels").items()},
            "taints": ["".join((key, ":", effect)) for key, effect in _TAINT.findall(self._says(host, "node_taints"))],
        }
        return {field: value for field, value in said.items() if value not in ("", None, {}, [])}

    def _mapping(self, host: str, name: str) -> Mapping[str, Any]:
        value = self.variables.get(host, {}).get(name)
        return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}

    def _jump(self, host: str) -> str:
        found = _JUMP.search(self._says(host, "ansible_ssh_common_args", "ansible_ssh_extra_args"))
        if found:
            return found[1] or found[2]
        for bastion in self.groups.get(BASTION, ()):
            told = self.variables.get(bastion, {})
            user, port = self._says(bastion, "ansible_user"), self._says(bastion, "ansible_port")
            return (f"{user}@" if user else "") + (_address(told) or bastion) + (f":{port}" if port else "")
        return ""

    def _common(self) -> dict[str, Any]:
        """What most hosts have stands once, in `ssh`."""
        common: dict[str, Any] = {}
        for field in ("user", "port", "private_key_file", "jump"):
            values = Counter(self._host(host).get(field) for host in self._nodes)
            value, hosts = values.most_common(1)[0]
            if value is not None and hosts > len(self._nodes) / 2:
                common[field] = value
        return common

    def _ssh(self) -> dict[str, Any]:
        pythons = Counter(self._says(host, "ansible_python_interpreter") for host in self._nodes)
        python = pythons.most_common(1)[0][0]
        args = " ".join(self._says(host, "ansible_ssh_common_args") for host in self._nodes)
        known = _KNOWN_HOSTS.search(args)
        return ({"python": python} if python and not python.startswith("auto") else {}) | (
            {"known_hosts_file": known[1]} if known and known[1] != "/dev/null" else {}
        )

    def _anywhere(self, name: str) -> Any:
        """A variable of all hosts; templates are not carried out."""
        values = [told[name] for host, told in self.variables.items() if name in told and host in self._nodes]
        return next((value for value in values if "{{" not in str(value)), None)

    def _endpoint(self) -> dict[str, Any]:
        if address := self._anywhere("kube_vip_address"):
            return {"endpoint": {"address": str(address), "kind": "virtual"}}
        told = self._anywhere("loadbalancer_apiserver")
        if not isinstance(told, dict):
            return {}
        balancer = cast("dict[str, Any]", told)
        port = {"port": int(balancer["port"])} if str(balancer.get("port", "")).isdigit() else {}
        return {"endpoint": {"address": str(balancer.get("address", "")), "kind": "external", **port}}

    def _networks(self) -> dict[str, Any]:
        said = {
            "pods": self._anywhere("kube_pods_subnet"),
            "services": self._anywhere("kube_service_addresses"),
            "domain": self._anywhere("dns_domain") or self._anywhere("cluster_name"),
        }
        prefix = self._anywhere("kube_network_node_prefix")
        found: dict[str, Any] = {field: str(value) for field, value in said.items() if value}
        return found | ({"pods_of_node": int(prefix)} if prefix and str(prefix).isdigit() else {})
