"""The control plane's own components: etcd, API server, controller manager, scheduler, and the name server."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import yaml

from tests.bed.api import Api, Manifest
from tests.bed.commands import until
from tests.bed.layout import Cache, Folder
from tests.bed.options import NAMESPACE, Options
from tests.bed.processes import Processes, Program

ETCD = "http://127.0.0.1:2379"
ETCD_HEALTH_PORT = 2381
DNS_HEALTH_PORT = 8181


def healthy(url: str) -> bool:
    """Whether a plain health address answers 200; OSError where nobody does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=2) as answer:
        return answer.status == 200


def plane_program(cache: Cache, name: str, *arguments: str) -> Program:
    """A program of the control plane."""
    return Program(name, [str(cache.binaries / name), *arguments], NAMESPACE, f"plane/{name}")


def etcd(cache: Cache, folder: Folder) -> Program:
    """One member, without encryption, on the namespace's own loopback address."""
    peers = "http://127.0.0.1:2380"
    return plane_program(
        cache,
        "etcd",
        "--name=bed",
        f"--data-dir={folder.root}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=bed={peers}",
        f"--listen-metrics-urls=http://0.0.0.0:{ETCD_HEALTH_PORT}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    )


def apiserver(cache: Cache, folder: Folder, options: Options) -> Program:
    """RBAC and node restriction are on, and every request is in the audit log."""
    signed, policy = folder.certificates, folder.settings / "audit.yaml"
    write(policy, {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]} | AUDIT)
    return plane_program(
        cache,
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        "--secure-port=6443",
        f"--advertise-address={options.plane}",
        f"--client-ca-file={signed}/ca.crt",
        f"--tls-cert-file={signed}/apiserver.crt",
        f"--tls-private-key-file={signed}/apiserver.key",
        f"--service-account-key-file={signed}/service-accounts.pub",
        f"--service-account-signing-key-file={signed}/service-accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={options.services}",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={signed}/kubelet-client.crt",
        f"--kubelet-client-key={signed}/kubelet-client.key",
        f"--kubelet-certificate-authority={signed}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--endpoint-reconciler-type=lease",
        "--profiling=false",
        f"--default-not-ready-toleration-seconds={options.tolerate_s}",
        f"--default-unreachable-toleration-seconds={options.tolerate_s}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder.audit}",
        "--audit-log-maxsize=200",
        "--v=1",
    )


AUDIT: Manifest = {"rules": [{"level": "Metadata"}]}


def controller_manager(cache: Cache, folder: Folder, options: Options) -> Program:
    """Each controller has the service account of its own."""
    signed = folder.certificates
    return plane_program(
        cache,
        "kube-controller-manager",
        f"--kubeconfig={folder.kubeconfigs}/controller-manager",
        f"--service-account-private-key-file={signed}/service-accounts.key",
        f"--root-ca-file={signed}/ca.crt",
        f"--cluster-signing-cert-file={signed}/ca.crt",
        f"--cluster-signing-key-file={signed}/ca.key",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--controllers=*,-service-lb-controller,-node-route-controller,-node-ipam-controller",
        f"--node-monitor-grace-period={options.grace_s}s",
        "--node-monitor-period=1s",
        "--v=1",
    )


def scheduler(cache: Cache, folder: Folder) -> Program:
    """As it comes."""
    kubeconfig = f"--kubeconfig={folder.kubeconfigs}/scheduler"
    return plane_program(cache, "kube-scheduler", kubeconfig, "--leader-elect=false", "--v=1")


def dns(cache: Cache, folder: Folder, options: Options) -> Program:
    """CoreDNS for `cluster.local`, watching with an identity of its own."""
    corefile = folder.settings / "Corefile"
    corefile.write_text(
        f".:53 {{\n  bind {options.plane}\n  ready {options.plane}:{DNS_HEALTH_PORT}\n  errors\n"
        f"  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {folder.kubeconfigs}/dns bed\n"
        "    pods insecure\n    ttl 1\n  }\n}\n",
        encoding="utf-8",
    )
    return plane_program(cache, "dns", "-conf", str(corefile))


def dns_rights() -> list[Manifest]:
    """What CoreDNS may read."""
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    group, name = "rbac.authorization.k8s.io", "system:coredns"
    about = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    binding = {
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    return [{**about, "kind": "ClusterRole", "rules": rules}, {**about, "kind": "ClusterRoleBinding", **binding}]


def start(cache: Cache, folder: Folder, options: Options, processes: Processes) -> Api:
    """The four that everything else stands on; returns when the API server is ready."""
    processes.start(etcd(cache, folder))
    processes.start(apiserver(cache, folder, options))
    processes.start(controller_manager(cache, folder, options))
    processes.start(scheduler(cache, folder))
    api = Api(folder, options)
    until(f"API server ready, see {processes.log('kube-apiserver')}", api.healthy, limit_s=60)
    return api


def write(path: Path, content: object) -> Path:
    """A configuration file."""
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path
