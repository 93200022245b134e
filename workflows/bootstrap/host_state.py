"""What a host is to be before Kubernetes comes to it: files, programs, units, kernel parameters and images. Pure.

Nothing here is secret: what is secret (tokens, the key of certificates) never becomes part of a host's state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.inventory import Bootstrap
from profiles.bootstrap.release import ReleaseFile, ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from workflows.bootstrap import container_runtime, pod_network, tuning, virtual_address
from workflows.bootstrap.host_file import PROGRAMS, STATE, HostFile

KUBELET_UNIT = "/etc/systemd/system/kubelet.service"
MODULES = {"overlay": "/sys/module/overlay", "br_netfilter": "/proc/sys/net/bridge"}
"""Kernel modules, each with what is there once it is (also where it is built in)."""
NETWORK_SYSCTLS = {
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.ipv4.ip_forward": "1",
}
"""What Kubernetes' own page on container runtimes asks for; pods of other nodes are not reached without."""
_ARCHIVES = {"containerd": "/usr/local", "cni-plugins": container_runtime.PLUGINS}
"""Where archives of the release are unpacked."""
_KUBELET = f"""[Unit]
Description=kubelet: the agent of a Kubernetes node
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0

[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart={PROGRAMS}/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Download:
    """One file of the release on a host."""

    name: str
    path: str
    """Below the mirror's URL or folder."""
    sha256: str
    target: str
    """The file, or for an archive the folder into which it is unpacked."""
    unpack: bool = False

    @property
    def stamp(self) -> str:
        """For an archive: the file that says which one was unpacked; it holds the digest."""
        return f"{STATE}/unpacked/{self.name}"


@dataclass(frozen=True)
class HostState:
    """All of it, for one host."""

    files: tuple[HostFile, ...]
    downloads: tuple[Download, ...]
    units: tuple[str, ...]
    """Active and begun at each boot."""
    sysctls: Mapping[str, str]
    modules: Mapping[str, str]
    images: Mapping[str, str]
    """Name with tag -> digest; "" where the release does not say it."""
    archives: tuple[Download, ...]
    """Archives with the images, imported where one is missing."""

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file that must lie on the host, by path."""
        own = {file.path: file.sha256 for file in self.files}
        plain = {item.target: item.sha256 for item in self.downloads if not item.unpack}
        return {**own, **plain, **{item.stamp: _sha256(item.sha256) for item in self.downloads if item.unpack}}

    @property
    def fingerprint(self) -> str:
        """Another one is another state."""
        return fingerprint(asdict(self))


def host_state(cluster: ClusterProfile, release: ReleaseProfile, name: str, authority: str = "") -> HostState:
    """The state of a host of this name.

    Args:
        cluster: with its section `bootstrap`, whose engine is kubeadm.
        release: which files and images.
        name: of the host.
        authority: content of the mirror's `ca_file`, PEM; "": none.

    Raises:
        ProfileError: the release does not say a file's digest.
    """
    bootstrap, engine = sections(cluster)
    host = bootstrap.hosts[name]
    files = [
        *tuning.files(bootstrap.tuning, {**NETWORK_SYSCTLS, **bootstrap.tuning.sysctls}, tuple(MODULES)),
        *container_runtime.files(engine, bootstrap, release, authority),
        HostFile(KUBELET_UNIT, _KUBELET),
    ]
    units = ["containerd.service", *tuning.units(bootstrap.tuning)]
    if host.controls and bootstrap.endpoint is not None and bootstrap.endpoint.kind == "virtual":
        files += virtual_address.files(bootstrap, bootstrap.endpoint, name)
        units.append(virtual_address.UNIT)
    if engine.network == "routed-bridge":
        files += pod_network.host_files(bootstrap.networks)
    return HostState(
        files=tuple(sorted(files, key=lambda file: file.path)),
        downloads=tuple(_download(key, file) for key, file in sorted(release.files.items())),
        units=tuple(units),
        sysctls=tuning.sysctls(bootstrap.tuning, {**NETWORK_SYSCTLS, **bootstrap.tuning.sysctls}),
        modules=MODULES,
        images={image.name: image.digest for image in release.images},
        archives=tuple(_archive(index, file) for index, file in enumerate(release.image_archives)),
    )


def sections(cluster: ClusterProfile) -> tuple[Bootstrap, Kubeadm]:
    """The section `bootstrap` and its engine.

    Raises:
        ProfileError: there is none, or another engine.
    """
    bootstrap = inventory_of(cluster)
    if not isinstance(bootstrap.engine, Kubeadm):
        raise ProfileError("bootstrap.engine", f"must be kubeadm here, got {bootstrap.engine.kind}")
    return bootstrap, bootstrap.engine


def inventory_of(cluster: ClusterProfile) -> Bootstrap:
    """The section `bootstrap`, whatever its engine.

    Raises:
        ProfileError: there is none.
    """
    if cluster.bootstrap is None:
        raise ProfileError("bootstrap", "is missing: the profile does not say which hosts there are")
    return cluster.bootstrap


def fingerprint(value: object) -> str:
    """A short digest of a value of plain data: equal values have equal ones."""
    return _sha256(json.dumps(value, sort_keys=True, default=str))[:16]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _download(name: str, file: ReleaseFile) -> Download:
    target = _ARCHIVES.get(name, "/usr/local") if file.unpack else f"{PROGRAMS}/{name}"
    return Download(name, file.path, _digest(f"files.{name}", file), target, file.unpack)


def _archive(index: int, file: ReleaseFile) -> Download:
    name = PurePosixPath(file.path).name
    return Download(name, file.path, _digest(f"image_archives[{index}]", file), f"{STATE}/images/{name}")


def _digest(field: str, file: ReleaseFile) -> str:
    if file.sha256 is None:
        need = f"is missing: nothing is put on a host without; the mirror's own digest of {file.path} belongs here"
        raise ProfileError(f"release.{field}.sha256", need)
    return file.sha256
