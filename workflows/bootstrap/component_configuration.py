"""What kubeadm makes of a profile's settings, whole, and in which fields that which is found differs. Pure.

A document that kubeadm wrote has more fields than it was told: its own, which stand here too, and those that Go writes
though nobody set them (`0s`, `""`, `{}`). The latter are nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_network
from typing import Any, cast

import yaml

from profiles.cluster import ClusterProfile
from workflows.bootstrap import kubeadm_documents
from workflows.bootstrap.container_runtime import SOCKET
from workflows.bootstrap.host_state import sections
from workflows.model.host_facts import Unread
from workflows.model.manifest import Json

AUTHORITY = "/etc/kubernetes/pki/ca.crt"
RESOLVED = "/run/systemd/resolve/resolv.conf"
"""What kubeadm writes as `resolvConf` on a host whose names systemd-resolved resolves."""
DNS_PLACE = 10
"""Which address of the network of services is the DNS server's."""
ABSENT = object()
"""Of a field that is not there."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DURATION = re.compile(r"(?:[0-9.]+(?:ns|us|µs|ms|s|m|h))+")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class FieldDifference:
    """One setting that is not as wanted."""

    what: str
    """E.g. `kubelet maxPods`."""
    wanted: str
    found: str

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.what}: wanted {self.wanted}, found {self.found}"


def wanted_kubelet(cluster: ClusterProfile) -> dict[str, Any]:
    """KubeletConfiguration with what kubeadm adds."""
    bootstrap, engine = sections(cluster)
    networks = bootstrap.networks
    own: dict[str, Any] = {
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": AUTHORITY},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [str(ip_network(networks.services)[DNS_PLACE])],
        "clusterDomain": networks.domain,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": 10248,
        "staticPodPath": "/etc/kubernetes/manifests",
    }
    return _over(own, kubeadm_documents.kubelet_configuration(engine))


def wanted_kubelet_on_host(cluster: ClusterProfile) -> dict[str, Any]:
    """The same as it lies on a host."""
    return {**wanted_kubelet(cluster), "containerRuntimeEndpoint": SOCKET}


def wanted_kube_proxy(cluster: ClusterProfile) -> dict[str, Any]:
    """KubeProxyConfiguration with what kubeadm adds."""
    bootstrap, engine = sections(cluster)
    own: dict[str, Any] = {
        "bindAddress": "0.0.0.0",  # noqa: S104 - kubeadm's own
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        "clusterCIDR": bootstrap.networks.pods,
    }
    return _over(own, kubeadm_documents.kube_proxy_configuration(engine))


def wanted_cluster(cluster: ClusterProfile) -> dict[str, Any]:
    """ClusterConfiguration with what kubeadm adds, but for the version, which only an upgrade changes."""
    own: dict[str, Any] = {
        "caCertificateValidityPeriod": "87600h0m0s",
        "certificateValidityPeriod": "8760h0m0s",
        "certificatesDir": "/etc/kubernetes/pki",
        "encryptionAlgorithm": "RSA-2048",
        "etcd": {"local": {"dataDir": "/var/lib/etcd"}},
        "imageRepository": "registry.k8s.io",
    }
    return without_version(_over(own, kubeadm_documents.cluster_configuration(cluster, "")))


def without_version(document: Json) -> dict[str, Any]:
    """The document without the field that only an upgrade changes."""
    return {key: value for key, value in document.items() if key != "kubernetesVersion"}


def on_host(document: Json, wanted: Json) -> dict[str, Any]:
    """A host's KubeletConfiguration without what kubeadm wrote there for this host alone."""
    own = document.get("resolvConf") == RESOLVED and "resolvConf" not in wanted
    return {key: value for key, value in document.items() if not (own and key == "resolvConf")}


def differences(what: str, wanted: Json, found: Json, *, exact: bool = False) -> list[FieldDifference]:
    """Fields in which a document differs.

    Args:
        what: whose configuration it is; each difference begins with it.
        wanted: the document as it is to be.
        found: as it is.
        exact: both were written by kubeadm, which writes a field that was set to nothing and leaves out no other.
    """
    unlike = _unlike(_plain(wanted), _plain(found), "", exact)
    return [FieldDifference(f"{what} {path}", _said(one), _said(other)) for path, one, other in unlike]


@lru_cache(maxsize=1024)
def document_of(text: str) -> Json | Unread:
    """A document of YAML; of thousands of hosts all have one of a few."""
    try:
        found: object = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return Unread(f"it is no YAML: {' '.join(str(error).split())[:200]}")
    return cast("Json", found) if isinstance(found, dict) else Unread("it holds no fields")


def _over(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `given` over those of `own`, objects merged."""
    whole = {**own, **given}
    both = [key for key in own if isinstance(own[key], dict) and isinstance(given.get(key), dict)]
    return {**whole, **{key: _over(own[key], given[key]) for key in both}}


def _plain(value: object) -> Any:
    """Arguments (`{name, value}`) as an object by their names."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in cast("Mapping[object, object]", value).items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    listed = cast("Sequence[object]", value)
    pairs = [cast("Mapping[str, Any]", one) for one in listed if isinstance(one, Mapping)]
    if listed and len(pairs) == len(listed) and all(set(one) == {"name", "value"} for one in pairs):
        return {str(one["name"]): one["value"] for one in pairs}
    return [_plain(one) for one in listed]


def _unlike(wanted: Any, found: Any, path: str, exact: bool) -> Iterator[tuple[str, object, object]]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        one, other = cast("dict[str, Any]", wanted), cast("dict[str, Any]", found)
        for key in sorted({*one, *other}):
            where = f"{path}.{key}" if path else key
            yield from _unlike(one.get(key, ABSENT), other.get(key, ABSENT), where, exact)
    elif not _same(cast("object", wanted), cast("object", found), exact):
        yield path, wanted, found


def _same(wanted: object, found: object, exact: bool) -> bool:
    if wanted is ABSENT or found is ABSENT:
        return all(_is_nothing(one, exact) for one in (wanted, found))
    return wanted == found or (_seconds(wanted) is not None and _seconds(wanted) == _seconds(found))


def _is_nothing(value: object, exact: bool) -> bool:
    """What Go writes of a field that nobody set, or leaves out of one that was set to it.

    `exact`: false and 0 are something, since Go leaves them out only where nobody said them.
    """
    if isinstance(value, dict):
        return all(_is_nothing(one, exact) for one in cast("dict[str, object]", value).values())
    if exact and isinstance(value, int):
        return False
    return value is ABSENT or not value or value in ("0", "0s")


def _seconds(value: object) -> float | None:
    """Of a duration as Go writes it; `1m` is `1m0s` to it."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        return None
    try:
        return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([a-zµ]+)", value))
    except ValueError:
        return None


def _said(value: object) -> str:
    if value is ABSENT:
        return "none"
    return value if isinstance(value, str) and value else json.dumps(value, sort_keys=True, default=str)
