"""What a site's Kubespray gets: its inventory, its group variables and the playbooks of each verb. Pure.

Copies from 2.28 on (Kubernetes 1.32) are spoken to: versions without a `v`, playbooks in the folder itself.
It has no variable for the certificate authority of a mirror: hosts must trust that already, which a pre-check sees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from profiles.bootstrap.engines import Kubespray
from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.errors import Refused
from workflows.bootstrap import kubeadm_documents

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


@dataclass(frozen=True)
class KubesprayPlaybook:
    """One call of ansible-playbook."""

    playbook: str
    """Path below the copy."""
    limit: tuple[str, ...] = ()
    """Hosts; none: all."""
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    """Extra variables; no secrets: they stand before all others."""


def kubespray_files(
    cluster: ClusterProfile, *, start_up_taint: str = "", removed: Collection[str] = ()
) -> dict[str, str]:
    """Text of each file that a run gets beside the copy, by its path.

    `start_up_taint`: of nodes that come and must prove themselves first, as `key=value:Effect`; empty: none.
    `removed`: variables that the copy refuses because they are gone.

    Raises:
        Refused: the cluster's engine is another one, or cannot do what the profile says.
    """
    bootstrap, engine = section_of(cluster)
    return {
        INVENTORY: _text(_inventory(cluster, bootstrap, start_up_taint)),
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


# Verbs.


def validation() -> tuple[KubesprayPlaybook, ...]:
    """Its own look at the inventory and variables; no host is asked."""
    return (KubesprayPlaybook("playbooks/boilerplate.yml"),)


def cluster_up() -> tuple[KubesprayPlaybook, ...]:
    """All hosts of the inventory, from nothing, or on from where it ended; hosts that are right stay as they are."""
    return (KubesprayPlaybook("cluster.yml"),)


def node_in(bootstrap: Bootstrap, hosts: Sequence[str]) -> tuple[KubesprayPlaybook, ...]:
    """New hosts. Facts of all first: with a limit the others are known from the cache alone."""
    planes = set(bootstrap.control_planes)
    facts = KubesprayPlaybook("playbooks/facts.yml")
    if planes & set(hosts):
        return (facts, KubesprayPlaybook("cluster.yml", tuple(dict.fromkeys([*bootstrap.control_planes, *hosts]))))
    return (facts, KubesprayPlaybook("scale.yml", tuple(hosts)))


def node_out(bootstrap: Bootstrap, hosts: Sequence[str], *, dead: bool) -> tuple[KubesprayPlaybook, ...]:
    """Hosts that leave; `dead`: they do not answer, and nothing is cleaned up on them.

    Raises:
        Refused: the first control plane cannot leave: Kubespray makes and joins everything through it.
    """
    first = bootstrap.control_planes[0] if bootstrap.control_planes else ""
    if first in hosts:
        reorder = "name another control plane first in bootstrap.hosts, run `primus bootstrap`, then let it leave"
        raise Refused(
            f"bootstrap.hosts.{first}", f"is the first control plane, which Kubespray cannot remove: {reorder}"
        )
    gone = {"reset_nodes": False, "allow_ungraceful_removal": True} if dead else {}
    return (
        KubesprayPlaybook("remove-node.yml", variables={"node": ",".join(hosts), "skip_confirmation": True, **gone}),
    )


def upgrade(bootstrap: Bootstrap, version: str, hosts: Sequence[str] = ()) -> tuple[KubesprayPlaybook, ...]:
    """To a version of Kubernetes, control planes one at a time, workers in batches; `hosts`: these alone."""
    serial = f"{max(1, round(bootstrap.batch_share * 100))}%"
    wanted = {"kube_version": version, "serial": serial}
    facts = (KubesprayPlaybook("playbooks/facts.yml"),) if hosts else ()
    return (*facts, KubesprayPlaybook("upgrade-cluster.yml", tuple(hosts), wanted))


# Files.


def _text(data: object) -> str:
    return yaml.safe_dump(data, sort_keys=False, width=1000, allow_unicode=True)


def _inventory(cluster: ClusterProfile, bootstrap: Bootstrap, taint: str) -> dict[str, Any]:
    planes = bootstrap.control_planes
    working = [name for name, host in bootstrap.hosts.items() if host.works]
    hosts = {name: _host(cluster, bootstrap, name, taint) for name in bootstrap.hosts}
    return {
        "all": {
            "vars": _connection(bootstrap),
            "hosts": hosts,
            "children": {
                "kube_control_plane": {"hosts": dict.fromkeys(planes)},
                "etcd": {"hosts": dict.fromkeys(planes)},
                "kube_node": {"hosts": dict.fromkeys(working)},
            },
        }
    }


def _host(cluster: ClusterProfile, bootstrap: Bootstrap, name: str, taint: str) -> dict[str, Any]:
    """A control plane without work is tainted by Kubespray itself."""
    host = bootstrap.hosts[name]
    said: dict[str, Any] = {"ansible_host": host.address, "ip": host.ip, "access_ip": host.ip}
    said |= {"ansible_port": host.port} if host.port else {}
    said |= {"ansible_user": host.user, "ansible_become": host.user != "root"} if host.user else {}
    said |= {"ansible_ssh_private_key_file": host.private_key_file} if host.private_key_file else {}
    said |= {"ansible_ssh_common_args": _ssh_arguments(bootstrap, host.jump)} if host.jump else {}
    node_labels, kept = kubeadm_documents.node_labels(cluster, name), kubeadm_documents.taints(cluster, name)
    node_taints = [text for text in kept if host.works or text != kubeadm_documents.CONTROL_PLANE_TAINT]
    node_taints += [taint] if taint and host.works else []
    said |= {"node_labels": node_labels} if node_labels else {}
    said |= {"node_taints": node_taints} if node_taints else {}
    return said


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
