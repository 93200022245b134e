"""What a site's Kubespray gets: its inventory, its group variables and the playbooks of each verb. Pure.

Copies from 2.28 on (Kubernetes 1.32) are spoken to: versions without a `v`, playbooks in the folder itself.
It has no variable for the certificate authority of a mirror: hosts must trust that already, which a pre-check sees.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from profiles.bootstrap.engines import Kubespray
from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.errors import Refused
from workflows import labels
from workflows.bootstrap import kubeadm_documents
from workflows.model.manifest import Json, items

INVENTORY, VARIABLES = "inventory/hosts.yaml", "inventory/group_vars/all/primus.yaml"
"""Of the folder that ansible-runner reads."""
ALL_IMAGES = ("kube_image_repo", "gcr_image_repo", "docker_image_repo", "quay_image_repo", "github_image_repo")
FILE_URLS = {
    "github_url": "github.com",
    "dl_k8s_io_url": "dl.k8s.io",
    "storage_googleapis_url": "storage.googleapis.com",
    "get_helm_url": "get.helm.sh",
}
"""On these four all URLs of files are built, with the paths of the projects' own sites below; `files_repo` alone is a
name that only a sample file uses."""
ALIVE_SECONDS, ALIVE_COUNT = 5, 6
"""A host that answers nothing for the product of both is lost."""
BALANCER = "lb-apiserver.kubernetes.local"
"""Kubespray's own name of the API's balancer; only hosts of its clusters know it."""
_RESERVED = re.compile(r"[-a-z0-9.]*(?:kubernetes|k8s)\.io/")
"""Keys of taints that Kubespray's role `node-taint` leaves on a node; it takes away all others that it is not told."""


@dataclass(frozen=True)
class KubesprayPlaybook:
    """One call of ansible-playbook."""

    playbook: str
    """Path below the copy."""
    limit: tuple[str, ...] = ()
    """Hosts; none: all."""
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    """Extra variables; no secrets: they stand before all others."""


@dataclass(frozen=True)
class KubesprayScope:
    """Which hosts an inventory names, and which of them are nodes now."""

    hosts: tuple[str, ...] | None = None
    """Of the profile's, in its order; None: all. Of a host that left, or is left out, no playbook knows."""
    nodes: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Node objects by name, as the API told them."""

    def names(self, bootstrap: Bootstrap) -> tuple[str, ...]:
        """Hosts of the inventory in its order."""
        return tuple(name for name in bootstrap.hosts if self.hosts is None or name in self.hosts)

    def planes(self, bootstrap: Bootstrap) -> tuple[str, ...]:
        """Those that carry a control plane; the first one begins the cluster, and everything joins through it."""
        return tuple(name for name in self.names(bootstrap) if bootstrap.hosts[name].controls)


def kubespray_files(
    cluster: ClusterProfile, scope: KubesprayScope | None = None, removed: Collection[str] = ()
) -> dict[str, str]:
    """Text of each file that a run gets beside the copy, by its path.

    `removed`: variables that the copy refuses because they are gone.

    Raises:
        Refused: the cluster's engine is another one, or cannot do what the profile says.
    """
    bootstrap, engine = section_of(cluster)
    return {
        INVENTORY: _text(_inventory(cluster, bootstrap, scope or KubesprayScope())),
        VARIABLES: _text(_variables(bootstrap, engine, removed) | dict(engine.variables)),
    }


def section_of(cluster: ClusterProfile) -> tuple[Bootstrap, Kubespray]:
    """The sections that this engine reads.

    Raises:
        Refused: as `kubespray_files`.
    """
    bootstrap = cluster.bootstrap
    if bootstrap is None or not isinstance(bootstrap.engine, Kubespray):
        raise Refused("bootstrap.engine", "is not Kubespray")
    if bootstrap.mirror.files_folder:
        need = "Kubespray fetches files by URL from each host: serve this folder and name it in files_url"
        raise Refused("bootstrap.mirror.files_folder", need)
    return bootstrap, bootstrap.engine


def balancer_name(engine: Kubespray) -> str:
    """By which nodes find the API where the endpoint is an address: Kubespray writes this name into their files."""
    return str(engine.variables.get("apiserver_loadbalancer_domain_name", BALANCER))


# Verbs.


def validation() -> tuple[KubesprayPlaybook, ...]:
    """Its own look at the inventory and variables; no host is asked."""
    return (KubesprayPlaybook("playbooks/boilerplate.yml"),)


def cluster_up() -> tuple[KubesprayPlaybook, ...]:
    """All hosts of the inventory, from nothing, or on from where it ended; hosts that are right stay as they are."""
    return (KubesprayPlaybook("cluster.yml"),)


def node_in(planes: Sequence[str], hosts: Sequence[str]) -> tuple[KubesprayPlaybook, ...]:
    """New hosts. Facts of all first: with a limit the others are known from the cache alone.

    `planes`: control planes of the inventory.
    """
    facts = KubesprayPlaybook("playbooks/facts.yml")
    if set(planes) & set(hosts):
        return (facts, KubesprayPlaybook("cluster.yml", tuple(dict.fromkeys([*planes, *hosts]))))
    return (facts, KubesprayPlaybook("scale.yml", tuple(hosts)))


def node_out(hosts: Sequence[str], *, dead: bool) -> tuple[KubesprayPlaybook, ...]:
    """Hosts that leave; `dead`: they do not answer, and nothing is cleaned up on them."""
    gone = {"reset_nodes": False, "allow_ungraceful_removal": True} if dead else {}
    return (
        KubesprayPlaybook("remove-node.yml", variables={"node": ",".join(hosts), "skip_confirmation": True, **gone}),
    )


def upgrade(version: str, hosts: Sequence[str], at_once: int) -> tuple[KubesprayPlaybook, ...]:
    """These hosts to a version of Kubernetes, so many at a time; control planes always go one by one."""
    wanted = {"kube_version": version, "serial": at_once}
    return (
        KubesprayPlaybook("playbooks/facts.yml"),
        KubesprayPlaybook("upgrade-cluster.yml", tuple(hosts), wanted),
    )


# Files.


def _text(data: object) -> str:
    return yaml.safe_dump(data, sort_keys=False, width=1000, allow_unicode=True)


def _inventory(cluster: ClusterProfile, bootstrap: Bootstrap, scope: KubesprayScope) -> dict[str, Any]:
    names, planes = scope.names(bootstrap), scope.planes(bootstrap)
    working = [name for name in names if bootstrap.hosts[name].works]
    return {
        "all": {
            "vars": _connection(bootstrap),
            "hosts": {name: _host(cluster, bootstrap, name, scope.nodes.get(name)) for name in names},
            "children": {
                "kube_control_plane": {"hosts": dict.fromkeys(planes)},
                "etcd": {"hosts": dict.fromkeys(planes)},
                "kube_node": {"hosts": dict.fromkeys(working)},
            },
        }
    }


def _host(cluster: ClusterProfile, bootstrap: Bootstrap, name: str, node: Json | None) -> dict[str, Any]:
    host = bootstrap.hosts[name]
    said: dict[str, Any] = {"ansible_host": host.address, "ip": host.ip, "access_ip": host.ip}
    said |= {"ansible_port": host.port} if host.port else {}
    said |= {"ansible_user": host.user, "ansible_become": host.user != "root"} if host.user else {}
    said |= {"ansible_ssh_private_key_file": host.private_key_file} if host.private_key_file else {}
    said |= {"ansible_ssh_common_args": _ssh_arguments(bootstrap, host.jump)} if host.jump else {}
    node_labels, node_taints = kubeadm_documents.node_labels(cluster, name), _taints(cluster, name, node)
    said |= {"node_labels": node_labels} if node_labels else {}
    said |= {"node_taints": node_taints} if node_taints else {}
    return said


def _taints(cluster: ClusterProfile, name: str, node: Json | None) -> list[dict[str, str]]:
    """All that a node is to have: Kubespray takes away what is not named, so those that it got since stand there too.

    One that is no node yet begins with the start-up taint, which a test takes away and nothing puts back. What
    Kubespray leaves alone is named only where it is missing; a control plane without work it taints by itself.
    """
    works = kubeadm_documents.inventory_of(cluster).hosts[name].works
    kept = kubeadm_documents.register_taints(cluster, name) if node is None else kubeadm_documents.taints(cluster, name)
    wanted = [kubeadm_documents.taint_entry(text) for text in kept]
    there = [{key: str(one[key]) for key in ("key", "value", "effect") if one.get(key)} for one in _of(node)]
    found = {(one["key"], one["effect"]): one for one in there if not _RESERVED.match(one["key"])}
    reserved = {(one["key"], one["effect"]) for one in there if _RESERVED.match(one["key"])}
    reserved |= set() if works else {_identity(kubeadm_documents.CONTROL_PLANE_TAINT)}
    found |= {(one["key"], one["effect"]): one for one in wanted if (one["key"], one["effect"]) not in reserved}
    return list(found.values())


def _of(node: Json | None) -> list[Json]:
    return items(node, "spec", "taints") if node is not None else []


def _identity(text: str) -> tuple[str, str]:
    entry = kubeadm_documents.taint_entry(text)
    return entry["key"], entry["effect"]


def _connection(bootstrap: Bootstrap) -> dict[str, Any]:
    ssh = bootstrap.ssh
    key = {"ansible_ssh_private_key_file": ssh.private_key_file} if ssh.private_key_file else {}
    return {
        "ansible_connection": "ssh",
        "ansible_user": ssh.user,
        "ansible_port": ssh.port,
        "ansible_become": ssh.user != "root",
        "ansible_python_interpreter": ssh.python,
        "ansible_ssh_common_args": _ssh_arguments(bootstrap, ssh.jump),
        **key,
    }


def _ssh_arguments(bootstrap: Bootstrap, jump: str) -> str:
    """A host's key is always compared, whatever the user's own configuration says."""
    ssh = bootstrap.ssh
    options = {
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(ssh.connect_seconds))),
        "ServerAliveInterval": str(ALIVE_SECONDS),
        "ServerAliveCountMax": str(ALIVE_COUNT),
        **({"UserKnownHostsFile": ssh.known_hosts_file} if ssh.known_hosts_file else {}),
        **({"ProxyJump": jump} if jump else {}),
    }
    return " ".join(f"-o {name}={value}" for name, value in options.items())


def _variables(bootstrap: Bootstrap, engine: Kubespray, removed: Collection[str]) -> dict[str, Any]:
    networks, tuning = bootstrap.networks, bootstrap.tuning
    limit = {"containerd_base_runtime_spec_rlimit_nofile": tuning.nofile} if tuning.nofile else {}
    return {
        "kube_version": engine.version,
        "container_manager": "containerd",
        # A member of etcd on each control plane, kept by kubeadm: as with the engine kubeadm.
        "etcd_deployment_type": "kubeadm",
        "kube_pods_subnet": networks.pods,
        "kube_network_node_prefix": networks.pods_of_node,
        "kube_service_addresses": networks.services,
        "cluster_name": networks.domain,
        "dns_domain": networks.domain,
        # Nodes that no test has passed yet need names, too: nothing else could prove them.
        "dns_extra_tolerations": [{"key": labels.STARTUP_TAINT, "operator": "Exists"}],
        **_endpoint(bootstrap, removed),
        **_mirror(bootstrap),
        **limit,
        "additional_sysctl": [{"name": name, "value": value} for name, value in sorted(tuning.sysctls.items())],
        # What it prints is kept beside the run: not what only kubeadm may know.
        "unsafe_show_logs": False,
    }


def _endpoint(bootstrap: Bootstrap, removed: Collection[str]) -> dict[str, Any]:
    endpoint = bootstrap.endpoint
    if endpoint is None:
        return {}
    named = not endpoint.address.replace(".", "").isdigit()
    if "loadbalancer_apiserver" in removed:
        said: dict[str, Any] = {"kube_apiserver_endpoint": f"https://{endpoint.address}:{endpoint.port}"}
    else:
        said = {"loadbalancer_apiserver": {"address": endpoint.address, "port": endpoint.port}}
        said |= {"apiserver_loadbalancer_domain_name": endpoint.address} if named else {}
    said |= {"supplementary_addresses_in_ssl_keys": [endpoint.address]}
    if endpoint.kind == "external":
        return said
    return {
        **said,
        "kube_vip_enabled": True,
        "kube_vip_controlplane_enabled": True,
        "kube_vip_arp_enabled": True,
        "kube_vip_address": endpoint.address,
        **({"kube_vip_interface": endpoint.interface} if endpoint.interface else {}),
        "kube_proxy_strict_arp": True,
    }


def _mirror(bootstrap: Bootstrap) -> dict[str, Any]:
    mirror = bootstrap.mirror
    said: dict[str, Any] = {}
    if mirror.files_url:
        base = mirror.files_url.rstrip("/")
        said |= {"files_repo": base, **{name: f"{base}/{path}" for name, path in FILE_URLS.items()}}
    if mirror.registry:
        host = mirror.registry.partition("/")[0]
        scheme = "http" if mirror.registry_insecure else "https"
        reached = {"host": f"{scheme}://{host}", "capabilities": ["pull", "resolve"]}
        reached |= {"skip_verify": mirror.registry_insecure}
        said |= {"registry_host": mirror.registry, **dict.fromkeys(ALL_IMAGES, mirror.registry)}
        said |= {"containerd_registries_mirrors": [{"prefix": host, "mirrors": [reached]}]}
    return said
