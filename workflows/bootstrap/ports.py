"""TCP ports of Kubernetes: who listens where, and who must reach whom (kubernetes.io, "Ports and Protocols")."""

from __future__ import annotations

from collections.abc import Mapping

from profiles.bootstrap.inventory import Bootstrap

API, ETCD_CLIENTS, ETCD_PEERS, KUBELET = 6443, 2379, 2380, 10250
CONTROL_PLANE_PORTS: Mapping[int, str] = {
    ETCD_CLIENTS: "etcd",
    ETCD_PEERS: "etcd",
    10257: "kube-controller-manager",
    10259: "kube-scheduler",
}
"""Port -> who has it on a control plane, beside the API's own."""
NODE_PORTS: Mapping[int, str] = {KUBELET: "kubelet", 10256: "kube-proxy"}
"""Port -> who has it on every node."""
OWNERS = ("kube-apiserver", "etcd", "kube-controller", "kube-scheduler", "kube-proxy", "kubelet")
"""Processes of a cluster's own that may have such a port, as the kernel cuts their names."""


def api_port(bootstrap: Bootstrap) -> int:
    """At which each control plane's own API server listens."""
    endpoint = bootstrap.endpoint
    return endpoint.port if endpoint is not None and endpoint.kind == "virtual" else API


def ports_of(bootstrap: Bootstrap, host: str) -> dict[int, str]:
    """Ports that must be free on a host -> who will have them."""
    if not bootstrap.hosts[host].controls:
        return dict(NODE_PORTS)
    return {api_port(bootstrap): "kube-apiserver", **CONTROL_PLANE_PORTS, **NODE_PORTS}


def ports_between(bootstrap: Bootstrap, source: str, target: str) -> tuple[int, ...]:
    """Ports of `target` that must be open from `source`.

    Everybody asks the API; control planes ask each other's etcd; the API asks every kubelet, and so does whatever
    measures pods (metrics-server), wherever it runs.
    """
    if not bootstrap.hosts[target].controls:
        return (KUBELET,)
    etcd = (ETCD_CLIENTS, ETCD_PEERS) if bootstrap.hosts[source].controls else ()
    return (api_port(bootstrap), KUBELET, *etcd)


def ports_reached(bootstrap: Bootstrap, host: str) -> tuple[int, ...]:
    """Ports of a host that must be open from anywhere else."""
    if not bootstrap.hosts[host].controls:
        return (KUBELET,)
    etcd = (ETCD_CLIENTS, ETCD_PEERS) if len(bootstrap.control_planes) > 1 else ()
    return (api_port(bootstrap), KUBELET, *etcd)
