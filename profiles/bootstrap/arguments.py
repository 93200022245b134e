"""Arguments of the control plane's programs as kubeadm sets them: which a profile may set otherwise, which never."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

ControlProgram = Literal["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"]
"""A program that kubeadm runs on each control plane as a static pod."""

KUBEADM_DEFAULTS: Mapping[ControlProgram, Mapping[str, str]] = {
    "kube-apiserver": {
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
    },
    "kube-controller-manager": {
        "bind-address": "127.0.0.1",
        "controllers": "*,bootstrapsigner,tokencleaner",
        "leader-elect": "true",
        "use-service-account-credentials": "true",
    },
    "kube-scheduler": {"bind-address": "127.0.0.1", "leader-elect": "true"},
    "etcd": {
        "experimental-initial-corrupt-check": "true",
        "experimental-watch-progress-notify-interval": "5s",
        "feature-gates": "InitialCorruptCheck=true",
        "listen-metrics-urls": "http://127.0.0.1:2381",
        "snapshot-count": "10000",
        "watch-progress-notify-interval": "5s",
    },
}
"""What kubeadm sets where nobody says otherwise, with its value; a version may leave some of it out."""

_KUBECONFIGS = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
KUBEADM_OWN: Mapping[ControlProgram, frozenset[str]] = {
    "kube-apiserver": frozenset(
        {
            *("advertise-address", "client-ca-file", "enable-bootstrap-token-auth", "secure-port"),
            *("etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-servers"),
            *("kubelet-client-certificate", "kubelet-client-key", "proxy-client-cert-file", "proxy-client-key-file"),
            *("requestheader-allowed-names", "requestheader-client-ca-file", "requestheader-extra-headers-prefix"),
            *("requestheader-group-headers", "requestheader-username-headers", "service-account-issuer"),
            *("service-account-key-file", "service-account-signing-key-file", "service-cluster-ip-range"),
            *("tls-cert-file", "tls-private-key-file"),
        }
    ),
    "kube-controller-manager": frozenset(
        {
            *(*_KUBECONFIGS, "allocate-node-cidrs", "client-ca-file", "cluster-cidr", "cluster-name"),
            *("cluster-signing-cert-file", "cluster-signing-key-file", "node-cidr-mask-size", "root-ca-file"),
            *("requestheader-client-ca-file", "service-account-private-key-file", "service-cluster-ip-range"),
        }
    ),
    "kube-scheduler": frozenset(_KUBECONFIGS),
    "etcd": frozenset(
        {
            *("advertise-client-urls", "cert-file", "client-cert-auth", "data-dir", "initial-advertise-peer-urls"),
            *("initial-cluster", "initial-cluster-state", "key-file", "listen-client-urls", "listen-peer-urls"),
            *("name", "peer-cert-file", "peer-client-cert-auth", "peer-key-file", "peer-trusted-ca-file"),
            "trusted-ca-file",
        }
    ),
}
"""What holds the cluster together, or is said by a field of the section `bootstrap`: a profile may not set it."""
