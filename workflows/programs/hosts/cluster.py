"""What of Kubernetes is on a host already: whose node it is, what an old cluster left, how long certificates hold."""

from __future__ import annotations

import base64
import binascii
import calendar
import fnmatch
import glob
import hashlib
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from workflows.programs.hosts.items import CannotReadError, listed, read, read_or
from workflows.programs.hosts.options import Options

KUBECONFIGS = ("/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf")
CLUSTER_CA = "/etc/kubernetes/pki/ca.crt"
CERTIFICATES = (
    "/etc/kubernetes/pki/*.crt",
    "/etc/kubernetes/pki/etcd/*.crt",
    "/etc/kubernetes/ssl/*.crt",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
)
KUBECONFIGS_WITH_CERTIFICATES = "/etc/kubernetes/*.conf"
LEFT_FILES = (
    "/etc/kubernetes/*.conf",
    "/etc/kubernetes/manifests/*.yaml",
    "/etc/kubernetes/pki/*",
    "/etc/kubernetes/ssl/*",
    "/var/lib/etcd/member",
    "/var/lib/kubelet/config.yaml",
    "/var/lib/kubelet/pki/*",
    "/etc/cni/net.d/*.conflist",
    "/etc/cni/net.d/*.conf",
    "/var/lib/cni/networks/*",
    "/var/lib/rancher/*",
)
OTHERS_NETWORKS = ("*podman*", "*.template", "*crio*", "*containerd-net*", "*loopback*")
"""CNI configurations that come with packages and belong to no cluster."""
LEFT_PROCESSES = (
    "kubelet",
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "k3s-server",
    "k3s-agent",
    "rke2",
    "k0s",
    "microk8s",
)
"""As /proc/PID/comm cuts names, at 15 characters."""
LEFT_INTERFACES = (
    "cni[0-9]*",
    "flannel*",
    "cali*",
    "vxlan.calico",
    "cilium*",
    "lxc_health",
    "kube-ipvs*",
    "kube-bridge",
    "nodelocaldns",
    "weave*",
    "antrea*",
)
LEFT_MOUNTS = ("/var/lib/kubelet/pods/", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/", "/run/netns/cni-")
MOST_NAMED = 40
_INTEGER, _SEQUENCE, _VERSION, _UTC_TIME, _LONG_TIME = 0x02, 0x30, 0xA0, 0x17, 0x18
_PEM = re.compile("-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


def works(asked: Options) -> Dict[str, Callable[[], Any]]:
    """Item -> how it is read."""
    root = asked.root
    return {
        "memberships": lambda: [found for path in KUBECONFIGS for found in _membership(root, path)],
        "authority": lambda: _authority(root),
        "leftovers": lambda: _leftovers(root),
        "certificates": lambda: [row for path in _certified(root) for row in _certificates(root, path)],
    }


def _is_there(root: str, path: str) -> bool:
    """Whether a host has a file, which need not be for us.

    Raises:
        CannotReadError: nobody may look.
    """
    try:
        os.lstat(os.path.join(root, path.lstrip("/")))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise CannotReadError(f"{path}: {error.strerror or error}") from error
    return True


def _membership(root: str, path: str) -> Iterator[Dict[str, str]]:
    """Whose node it is, by a configuration of a client; nothing where there is no such file."""
    if not _is_there(root, path):
        return
    text = read(root, path)
    server = re.search(r"(?:^|[\s{,])server:\s*[\"']?([^\s\"',}]+)", text)
    if server is None:
        raise CannotReadError(f"{path} names no server")
    inline = re.search(r"certificate-authority-data:\s*[\"']?([A-Za-z0-9+/=]+)", text)
    named = re.search(r"certificate-authority:\s*[\"']?([^\s\"']+)", text)
    pem = base64.b64decode(inline.group(1)).decode("utf-8", "replace") if inline else ""
    if not pem and named:
        pem = read(root, named.group(1))
    yield {"file": path, "server": server.group(1), "authority_sha256": _fingerprint(pem) if pem else ""}


def _authority(root: str) -> str:
    """SHA-256 of the certificate of the cluster's authority as it lies on control planes; "" where none does."""
    if not _is_there(root, CLUSTER_CA):
        return ""
    return _fingerprint(read(root, CLUSTER_CA))


def _fingerprint(pem: str) -> str:
    return hashlib.sha256(der_of(pem)).hexdigest()


def der_of(pem: str) -> bytes:
    """The first certificate of a text.

    Raises:
        CannotReadError: there is none.
    """
    found = _PEM.search(pem)
    if found is None:
        raise CannotReadError("where a certificate should stand, there is none")
    return base64.b64decode(found.group(1))


def _found(root: str, patterns: Tuple[str, ...]) -> List[str]:
    base = root.rstrip("/")
    return sorted({path[len(base) :] for pattern in patterns for path in glob.glob(base + pattern)})


def _leftovers(root: str) -> Dict[str, List[str]]:
    """What a cluster put here, this one's too: who reads it knows whose node it is."""
    folder = os.path.join(root, "etc/kubernetes")
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise CannotReadError("/etc/kubernetes: Permission denied")
    files = [
        path
        for path in _found(root, LEFT_FILES)
        if not any(fnmatch.fnmatch(os.path.basename(path), one) for one in OTHERS_NETWORKS)
    ]
    names = {read_or(root, f"/proc/{pid}/comm") for pid in listed(root, "/proc") if pid.isdigit()}
    mounts = {line.split()[1] for line in read_or(root, "/proc/mounts").splitlines() if len(line.split()) > 1}
    links = listed(root, "/sys/class/net")
    return {
        "files": files[:MOST_NAMED],
        "processes": sorted(name for name in names if name.startswith(LEFT_PROCESSES)),
        "interfaces": [one for one in links if any(fnmatch.fnmatch(one, kind) for kind in LEFT_INTERFACES)],
        "mounts": sorted(one for one in mounts if one.startswith(LEFT_MOUNTS))[:MOST_NAMED],
    }


def _certified(root: str) -> List[str]:
    return _found(root, (*CERTIFICATES, KUBECONFIGS_WITH_CERTIFICATES))


def _certificates(root: str, path: str) -> Iterator[Dict[str, Any]]:
    """The first certificate of a file, which is its owner's; of a client's configuration, the client's own."""
    text = read(root, path)
    inline = re.search(r"client-certificate-data:\s*[\"']?([A-Za-z0-9+/=]+)", text)
    pem = base64.b64decode(inline.group(1)).decode("utf-8", "replace") if inline else text
    if inline is None and path.endswith(".conf"):
        return  # it names a file, which is looked at by itself
    ends = expires_at(der_of(pem))
    yield {"file": path, "expires_at": ends, "days_left": (ends - time.time()) / 86400}


def expires_at(der: bytes) -> float:
    """Unix seconds at which a certificate ends to be valid (RFC 5280, 4.1: Certificate, TBSCertificate, Validity).

    Raises:
        CannotReadError: it is no certificate.
    """
    try:
        whole, _ = _value(der, _SEQUENCE)
        inner, _ = _value(whole, _SEQUENCE)
        if inner[0] == _VERSION:
            _, inner = _value(inner, _VERSION)
        for kind in (_INTEGER, _SEQUENCE, _SEQUENCE):  # serial number, algorithm, issuer
            _, inner = _value(inner, kind)
        validity, _ = _value(inner, _SEQUENCE)
        _, last = _value(validity, validity[0])
        text = _value(last, last[0])[0].decode("ascii")
        if last[0] == _UTC_TIME:  # two digits of the year: from 1950 to 2049
            text = ("20" if text < "50" else "19") + text
        elif last[0] != _LONG_TIME:
            raise ValueError("no time where its end should stand")
        return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
    except (ValueError, IndexError, binascii.Error) as error:
        raise CannotReadError(f"a certificate cannot be read: {error}") from error


def _value(data: bytes, kind: int) -> Tuple[bytes, bytes]:
    """Content of the first DER value, which must be of that kind, and what follows it."""
    if data[0] != kind:
        raise ValueError(f"kind {data[0]:#x} where {kind:#x} should stand")
    length, start = data[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("it is cut off")
    return data[start : start + length], data[start + length :]
