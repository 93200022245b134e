"""What kubeadm is told, as documents of kubeadm.k8s.io/v1beta4. Pure.

They hold no secret: tokens and the key of certificates are `@…@` words that are put in on the host, in a file that
only root may read and that lies in memory for as long as kubeadm runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

import yaml

from profiles.bootstrap.arguments import ControlProgram
from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.inventory import API_PORT, Bootstrap, ClusterHost
from profiles.cluster import ClusterProfile, Pool
from workflows import labels
from workflows.bootstrap.container_runtime import SOCKET
from workflows.bootstrap.host_state import inventory_of, sections

API = "kubeadm.k8s.io/v1beta4"
TOKEN, KEY, PIN, SERVER = "@TOKEN@", "@KEY@", "@PIN@", "@SERVER@"
"""A bootstrap token, the key of certificates, the digest of the authority, and the API server that is joined."""
CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"
STARTUP_TAINT = f"{labels.STARTUP_TAINT}:NoSchedule"
ETCD_QUOTA_BYTES = 8 << 30
"""The most that etcd's own documentation advises; with its default of 2 GiB workflows of a large cluster fill it."""
API_SERVER_VARIABLES: Mapping[str, str] = {
    "HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
    "HTTP2_PING_TIMEOUT_SECONDS": "5",
}
"""An API server notices within 10 s that a connection (to a webhook on a lost host, say) is dead, instead of 30 + 15 s:
names and defaults of `k8s.io/apimachinery/pkg/util/net`, http.go."""
CONTROL_VARIABLES: Mapping[ControlProgram, Mapping[str, str]] = {"kube-apiserver": API_SERVER_VARIABLES}
"""Of the environments of the control plane's programs."""
TOKEN_MINUTES = 15
"""A token lives no longer, whatever becomes of us; it is taken back after the join."""

Document = Mapping[str, Any]


def init_documents(cluster: ClusterProfile, version: str, name: str) -> str:
    """What the first control plane is made from, as YAML."""
    bootstrap, engine = sections(cluster)
    usages = {"usages": ["signing", "authentication"], "groups": ["system:bootstrappers:kubeadm:default-node-token"]}
    init = {
        "apiVersion": API,
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": TOKEN, "ttl": f"{TOKEN_MINUTES}m", **usages}],
        "localAPIEndpoint": _local(bootstrap, name),
        "nodeRegistration": registration(cluster, name),
    }
    return _yaml(
        init, cluster_configuration(cluster, version), kubelet_configuration(engine), kube_proxy_configuration(engine)
    )


def join_document(cluster: ClusterProfile, name: str) -> str:
    """What a further node is made from, as YAML."""
    bootstrap, _ = sections(cluster)
    host = bootstrap.hosts[name]
    plane = {"localAPIEndpoint": _local(bootstrap, name), "certificateKey": KEY}
    discovery = {"token": TOKEN, "apiServerEndpoint": SERVER, "caCertHashes": [PIN]}
    join = {
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": discovery},
        "nodeRegistration": registration(cluster, name),
        **({"controlPlane": plane} if host.controls else {}),
    }
    return _yaml(join)


def certificates_documents(cluster: ClusterProfile, version: str, name: str) -> str:
    """By which the certificates of all control planes are handed on, encrypted with the key, as YAML.

    Without the version kubeadm asks the internet for the newest one.
    """
    local = {"localAPIEndpoint": _local(sections(cluster)[0], name)}
    init = {"apiVersion": API, "kind": "InitConfiguration", "certificateKey": KEY, **local}
    return _yaml(init, cluster_configuration(cluster, version))


def configuration_documents(cluster: ClusterProfile, version: str, name: str) -> str:
    """By which a cluster that stands, and one of its control planes, are given other settings, as YAML."""
    bootstrap, engine = sections(cluster)
    init = {
        "apiVersion": API,
        "kind": "InitConfiguration",
        "localAPIEndpoint": _local(bootstrap, name),
        "nodeRegistration": registration(cluster, name),
    }
    return _yaml(
        init, cluster_configuration(cluster, version), kubelet_configuration(engine), kube_proxy_configuration(engine)
    )


def cluster_configuration(cluster: ClusterProfile, version: str) -> Document:
    """ClusterConfiguration."""
    bootstrap, _ = sections(cluster)
    arguments = control_arguments(cluster)
    given = {program: [_argument(*pair) for pair in sorted(own.items())] for program, own in arguments.items()}
    api = {"extraArgs": given["kube-apiserver"]} if given["kube-apiserver"] else {}
    scheduler = {"scheduler": {"extraArgs": given["kube-scheduler"]}} if given["kube-scheduler"] else {}
    networks, planes = bootstrap.networks, bootstrap.control_planes
    names = [bootstrap.hosts[plane].ip for plane in planes]
    endpoint = bootstrap.endpoint
    return {
        "apiVersion": API,
        "kind": "ClusterConfiguration",
        "clusterName": cluster.name,
        "kubernetesVersion": f"v{version}",
        "controlPlaneEndpoint": server_of(bootstrap),
        "networking": {
            "podSubnet": networks.pods,
            "serviceSubnet": networks.services,
            "dnsDomain": networks.domain,
        },
        "apiServer": {
            "certSANs": sorted({*names, *planes, *([endpoint.address] if endpoint else [])}),
            **api,
            "extraEnvs": [_argument(*pair) for pair in sorted(API_SERVER_VARIABLES.items())],
        },
        "controllerManager": {"extraArgs": given["kube-controller-manager"]},
        **scheduler,
        "etcd": {"local": {"extraArgs": given["etcd"]}},
    }


def control_arguments(cluster: ClusterProfile) -> dict[ControlProgram, dict[str, str]]:
    """Arguments of the control plane's programs over kubeadm's own, the profile's over ours."""
    bootstrap, engine = sections(cluster)
    own: dict[ControlProgram, dict[str, str]] = {
        "kube-apiserver": {},
        "kube-controller-manager": {"node-cidr-mask-size": str(bootstrap.networks.pods_of_node)},
        "kube-scheduler": {},
        "etcd": {"quota-backend-bytes": str(ETCD_QUOTA_BYTES)},
    }
    return {program: {**given, **engine.arguments.get(program, {})} for program, given in own.items()}


def kubelet_configuration(engine: Kubeadm) -> Document:
    """KubeletConfiguration, the profile's fields over ours."""
    own = {"cgroupDriver": "systemd", "serializeImagePulls": False, "rotateCertificates": True}
    return {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **own, **engine.kubelet}


def kube_proxy_configuration(engine: Kubeadm) -> Document:
    """KubeProxyConfiguration, the profile's fields over ours."""
    kind = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
    return {**kind, "mode": "nftables", **engine.kube_proxy}


def registration(cluster: ClusterProfile, name: str) -> Document:
    """How a node makes itself known: with all its taints, so that no pod is quicker than they are."""
    bootstrap, engine = sections(cluster)
    own: dict[str, Any] = {
        "name": name,
        "criSocket": SOCKET,
        "taints": [taint_entry(text) for text in register_taints(cluster, name)],
        "imagePullPolicy": "IfNotPresent",
        "kubeletExtraArgs": [_argument("node-ip", bootstrap.hosts[name].ip)],
    }
    return own | ({"ignorePreflightErrors": list(engine.ignore_preflight)} if engine.ignore_preflight else {})


def register_taints(cluster: ClusterProfile, name: str) -> tuple[str, ...]:
    """Taints with which a node begins, as `key=value:Effect`."""
    bootstrap = inventory_of(cluster)
    return tuple(dict.fromkeys([*([STARTUP_TAINT] if bootstrap.hosts[name].works else []), *taints(cluster, name)]))


def taints(cluster: ClusterProfile, name: str) -> tuple[str, ...]:
    """Taints that a node keeps, as `key=value:Effect`."""
    bootstrap = inventory_of(cluster)
    host = bootstrap.hosts[name]
    of_pool = pool_of(cluster, host).taints if host.works else (CONTROL_PLANE_TAINT,)
    return tuple(dict.fromkeys([*of_pool, *host.taints]))


def node_labels(cluster: ClusterProfile, name: str) -> dict[str, str]:
    """Labels of a node as the rest of the product reads them."""
    bootstrap = inventory_of(cluster)
    host = bootstrap.hosts[name]
    place = {labels.RACK: host.rack, labels.BLOCK: host.block}
    found = {key: value for key, value in place.items() if value}
    if host.works:
        pool = pool_of(cluster, host)
        spare = {labels.SPARE: "true"} if name in cluster.spare_hosts else {}
        found = {**pool.labels, labels.POOL: pool.name, **spare, **found}
    return dict(sorted({**found, **host.labels}.items()))


def pool_of(cluster: ClusterProfile, host: ClusterHost) -> Pool:
    """The pool that a host belongs to."""
    return next((pool for pool in cluster.pools if pool.name == host.pool), cluster.pools[0])


def server_of(bootstrap: Bootstrap) -> str:
    """Where the API is found, as `address:port`."""
    if bootstrap.endpoint is not None:
        return f"{bootstrap.endpoint.address}:{bootstrap.endpoint.port}"
    return f"{bootstrap.hosts[bootstrap.control_planes[0]].ip}:{API_PORT}"


def api_service(bootstrap: Bootstrap) -> str:
    """The API as a service, `address:port`: the first address of their network, whoever made the cluster."""
    return f"{ip_network(bootstrap.networks.services)[1]}:443"


def taint_entry(text: str) -> dict[str, str]:
    """`key=value:Effect` as an entry of `spec.taints`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def _local(bootstrap: Bootstrap, name: str) -> Document:
    return {"advertiseAddress": bootstrap.hosts[name].ip, "bindPort": API_PORT}


def _argument(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _yaml(*documents: Document) -> str:
    return "---\n".join(yaml.safe_dump(document, sort_keys=False, width=1000) for document in documents)
