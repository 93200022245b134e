"""What an embedded cluster is made of: nodes, images, and its own few settings. Stands in `cluster.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from profiles.errors import ProfileError


@dataclass(frozen=True)
class NodeSpec:
    """One virtual node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    capacity: Mapping[str, str] = field(default_factory=lambda: {"cpu": "8", "memory": "16Gi"})
    """Quantities by resource, e.g. `cpu`, `memory`, `amd.com/gpu`; GPUs are only counted. `pods` defaults to 110."""
    taints: tuple[Mapping[str, str], ...] = ()
    pool: str = "default"
    spare: bool = False
    """Placement takes spare nodes last."""


@dataclass(frozen=True)
class ImageSpec:
    """What stands for the images whose name matches `pattern`; the first match wins."""

    pattern: str
    """Shell pattern (`*`, `?`, `[…]`) on the image's name."""
    programs: Mapping[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    """`command[0]` -> the host's argument vector that takes its place."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """The image's own variables; the manifest's win."""
    host_path: bool = False
    """Whether a command that `programs` does not name is looked up on the host."""


@dataclass(frozen=True)
class Spec:
    """An embedded cluster. Round-trips through JSON."""

    name: str
    namespace: str = "default"
    nodes: tuple[NodeSpec, ...] = (NodeSpec("node-0"),)
    images: tuple[ImageSpec, ...] = ()
    namespaces: Literal["auto", "user", "never"] = "auto"
    """Mount namespaces of containers: `auto` takes what the machine allows, `user` insists on a user namespace even
    for root, `never` runs without (mounts must then be reachable by `PRIMUS_FOLDER_…` variables)."""
    crash_loop_initial_seconds: float = 10.0
    """Wait before the second restart of a container, doubled for each further one; the first comes at once
    (as the kubelet does)."""
    crash_loop_max_seconds: float = 300.0
    pod_backoff_initial_seconds: float = 10.0
    """Wait before a Job replaces a failed pod, doubled for each further one up to six minutes."""
    image_retry_seconds: float = 10.0
    """How long a container waits in ErrImagePull before it shows ImagePullBackOff."""
    priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Value by priority class; a class that is not named here counts 0."""
    keeper_linger_seconds: float = 1.0
    """How long the keeper stays once nothing is pending."""

    def to_json(self) -> str:
        """The text of `cluster.json`."""
        return json.dumps(self, default=vars, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """The value that `to_json` wrote.

        Raises:
            ProfileError: the text is no such value.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            found: list[dict[str, Any]] = values.pop("nodes")
            for node in found:
                node["taints"] = tuple(node["taints"])
            nodes = tuple(NodeSpec(**node) for node in found)
            images = tuple(ImageSpec(**image) for image in values.pop("images"))
            return cls(nodes=nodes, images=images, **values)
        except (ValueError, TypeError, KeyError) as error:
            raise ProfileError("cluster.json", f"not a cluster of this version ({error}); remove the folder") from error


def written_spec(path: Path) -> Spec | None:
    """What `cluster.json` says; None where there is none, or one that was cut off and is written anew.

    Raises:
        ProfileError: it belongs to another version.
    """
    text = path.read_text(errors="replace") if path.exists() else ""
    try:
        json.loads(text)
    except ValueError:
        return None
    return Spec.from_json(text)
