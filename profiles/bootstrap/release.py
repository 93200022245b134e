"""A release: which files and images make one version of Kubernetes, each by its digest. Data in `profiles/releases`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from profiles.bootstrap.engines import KUBEADM_MINORS, Digest, minor_of
from profiles.values import IMAGE_DIGEST_PATTERN, KUBERNETES_PATTERN, OR_EMPTY, Text, Value, wrong

NEEDED = ("kubeadm", "kubelet", "kubectl")
"""Files without which no host becomes a node."""


class ReleaseFile(Value):
    """One file of a release."""

    path: Text
    """Below the mirror's base URL or folder."""
    sha256: Digest | None = None
    """Digest of the file; none: the site's mirror has to say it before anything is fetched (`bootstrap mirror`)."""
    origin: str = ""
    """Where its project publishes it; `bootstrap mirror --fill` takes it from there."""
    unpack: bool = False
    """A tar archive, unpacked below /usr/local (containerd) or into /opt/cni/bin (CNI plug-ins)."""


class ReleaseImage(Value):
    """One image of a release."""

    name: Text
    """With its tag, as Kubernetes names it, e.g. registry.k8s.io/pause:3.10.2."""
    digest: Annotated[str, Field(pattern=IMAGE_DIGEST_PATTERN + OR_EMPTY)] = ""
    """Of the image; empty: the site's mirror has to say it."""


class ReleaseProfile(Value):
    """One version of Kubernetes with everything that a host needs for it."""

    name: Text
    """Of the release, e.g. kubernetes-1.36."""
    description: str = ""
    """One sentence for people."""
    version: Annotated[str, Field(pattern=KUBERNETES_PATTERN)]
    """Of Kubernetes."""
    files: dict[str, ReleaseFile]
    """By program: kubeadm, kubelet, kubectl, and where hosts do not have them: containerd, runc, cni-plugins, crictl.
    What is not here must be on the hosts already."""
    images: tuple[ReleaseImage, ...] = ()
    """What control planes and nodes run."""
    image_archives: tuple[ReleaseFile, ...] = ()
    """Archives with these images, imported on each host instead of pulled."""
    verified: bool = False
    """True where somebody ran this project on it."""

    @model_validator(mode="after")
    def _is_whole(self) -> ReleaseProfile:
        missing = [name for name in NEEDED if name not in self.files]
        if missing:
            raise wrong("files", f"{', '.join(missing)} missing: no host becomes a node without")
        if minor_of(self.version) not in KUBEADM_MINORS:
            known = ", ".join(f"1.{minor}" for minor in KUBEADM_MINORS)
            raise wrong("version", f"{self.version} is outside of what our plays know: {known}")
        return self
