"""Who makes Kubernetes of hosts: an existing cluster, our own plays around kubeadm, or the site's Kubespray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, cast

from pydantic import Discriminator, Field, Tag, model_validator

from profiles.bootstrap.arguments import KUBEADM_OWN, ControlProgram
from profiles.values import (
    COMMIT_PATTERN,
    IMAGE_DIGEST_PATTERN,
    KUBERNETES_PATTERN,
    REGISTRY_PATTERN,
    SHA256_PATTERN,
    Text,
    Value,
    wrong,
)

KUBEADM_MINORS = (34, 35, 36)
"""Minor versions whose kubeadm our plays know: those with the API kubeadm.k8s.io/v1beta4 that are still maintained."""
SAID_BY_FIELDS = {
    "kube_version": "engine.version",
    "kube_pods_subnet": "networks.pods",
    "kube_network_node_prefix": "networks.pods_of_node",
    "kube_service_addresses": "networks.services",
    "cluster_name": "networks.domain",
    "dns_domain": "networks.domain",
    "loadbalancer_apiserver": "endpoint",
    "kube_apiserver_endpoint": "endpoint",
    "kube_vip_address": "endpoint.address",
}
"""Kubespray's variables that fields of the section `bootstrap` stand for."""
ArgumentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
"""Of a program, without the dashes before it."""
ArgumentValue = Annotated[str, Field(pattern=r"^[!-~]*( [!-~]+)*$")]
RELIED_ON: Mapping[str, object] = {
    "etcd_deployment_type": "kubeadm",
    "kube_apiserver_port": 6443,
    "kube_config_dir": "/etc/kubernetes",
    "dns_mode": "coredns",
}
"""Kubespray's variables by which a control plane is found and asked, and nodes have names: no other value could be
proven."""
Digest = Annotated[str, Field(pattern=SHA256_PATTERN)]
"""A SHA-256 digest in hexadecimal digits."""


class Adopt(Value):
    """A cluster that exists already: nothing is done to its hosts; it gets components, a join gate and the proof."""

    kind: Literal["adopt"]
    """Always `adopt`."""


class Kubeadm(Value):
    """Our own plays: containerd, kubelet, kubeadm, keepalived and a network of pods, phase by phase."""

    kind: Literal["kubeadm"] = "kubeadm"
    """Always `kubeadm`."""
    release: str = "kubernetes-1.36"
    """Name or path of the release: which files and images, each with its digest."""
    ignore_preflight: tuple[Text, ...] = ()
    """Checks of kubeadm itself that may fail, by name; each is written down. Never `all`."""
    kubelet: dict[str, object] = {}
    """Fields of KubeletConfiguration over ours."""
    kube_proxy: dict[str, object] = {}
    """Fields of KubeProxyConfiguration over ours."""
    arguments: dict[ControlProgram, dict[ArgumentName, ArgumentValue]] = {}
    """Arguments of the control plane's programs over kubeadm's, e.g. `kube-apiserver: {profiling: "false"}`. A file
    that one names must lie below /etc/kubernetes/pki of every control plane: the pods see no other folder."""
    containerd: dict[str, bool | int | str] = {}
    """Fields of containerd's CRI plug-in over ours, e.g. `restrict_oom_score_adj: true`."""
    network: Literal["routed-bridge", "none"] = "routed-bridge"
    """`routed-bridge`: a bridge on each node and a route to each other one's pods, for hosts of one network; it
    enforces no network policies. `none`: a component brings the network."""

    @model_validator(mode="after")
    def _ignores_no_more_than_it_says(self) -> Kubeadm:
        if "all" in self.ignore_preflight:
            raise wrong("ignore_preflight", "must name single checks: `all` would hide what breaks the cluster")
        return self

    @model_validator(mode="after")
    def _leaves_kubeadm_its_own(self) -> Kubeadm:
        for program, given in self.arguments.items():
            for name in sorted(KUBEADM_OWN[program] & set(given)):
                own = "is kubeadm's own, or said by a field of networks, endpoint or hosts: leave it out"
                raise wrong(f"arguments.{program}.{name}", own)
        if not self.kubelet.get("rotateCertificates", True):
            raise wrong("kubelet.rotateCertificates", "is true whatever is said: kubeadm sets it so")
        return self


class GitSource(Value):
    """A commit of a repository; a branch or a tag may change under one's hands."""

    url: Annotated[str, Field(pattern=r"^[^-\s]\S*$")]
    """Of the repository, or the path of a local one."""
    commit: Annotated[str, Field(pattern=COMMIT_PATTERN)]
    """The whole commit."""


class ArchiveSource(Value):
    """A tar archive, for sites without a network."""

    archive: Text
    """Path or URL."""
    sha256: Digest
    """Of the archive."""


class ImageSource(Value):
    """Kubespray's own image, which carries its Ansible."""

    image: Annotated[str, Field(pattern=REGISTRY_PATTERN)]
    """Without tag, e.g. quay.io/kubespray/kubespray."""
    digest: Annotated[str, Field(pattern=IMAGE_DIGEST_PATTERN)]
    """Of the image."""


def _source_kind(said: object) -> str:
    """By the field that only one of them has: what is wrong in a source is told of that kind. No word is a field's."""
    names = set(cast("dict[str, object]", said)) if isinstance(said, dict) else set(dir(said))
    return next((f"of {kind}" for kind in ("archive", "image") if kind in names), "of git")


Source = Annotated[
    Annotated[GitSource, Tag("of git")]
    | Annotated[ArchiveSource, Tag("of archive")]
    | Annotated[ImageSource, Tag("of image")],
    Discriminator(_source_kind),
]


class Kubespray(Value):
    """The site's own copy of Kubespray, run by its own Ansible."""

    kind: Literal["kubespray"]
    """Always `kubespray`."""
    source: Source
    """Which copy, pinned."""
    environment: str = ""
    """Folder of a Python environment whose Ansible the copy accepts; it is compared before anything runs. Needed but
    for an image."""
    version: Annotated[str, Field(pattern=KUBERNETES_PATTERN)]
    """Of Kubernetes; the copy must know its checksums."""
    variables: dict[str, object] = {}
    """Group variables over ours, but for those that say what a field says: plan and proof go by the field."""

    @model_validator(mode="after")
    def _says_nothing_twice(self) -> Kubespray:
        for name, field in SAID_BY_FIELDS.items():
            if name in self.variables:
                raise wrong(f"variables.{name}", f"must be said in {field}: the plan and the proof go by that")
        for name, value in RELIED_ON.items():
            if name in self.variables and str(self.variables[name]) != str(value):
                raise wrong(f"variables.{name}", f"must be {value}, or be left out: the proof asks there")
        return self

    @model_validator(mode="after")
    def _has_an_ansible(self) -> Kubespray:
        if not isinstance(self.source, ImageSource) and not PurePosixPath(self.environment).is_absolute():
            need = "must be the absolute path of a Python environment with the Ansible that the copy wants"
            raise wrong("environment", f"{need}, got {self.environment!r}")
        return self


Engine = Annotated[Adopt | Kubeadm | Kubespray, Field(discriminator="kind")]


def minor_of(version: str) -> int:
    """The minor version of `1.36.3` or `v1.36.3`.

    Raises:
        ValueError: it is no version of Kubernetes.
    """
    found = re.fullmatch(r"v?1\.([0-9]+)\.[0-9]+.*", version)
    if not found:
        raise ValueError(f"must be a version of Kubernetes such as 1.36.3, got {version!r}")
    return int(found.group(1))
