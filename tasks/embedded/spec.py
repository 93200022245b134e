"""What an embedded cluster is made of: nodes, images, and its own few settings. Stands in `cluster.json`.

An image is a set of the host's programs, chosen by the first pattern that matches its name.
"""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from profiles.errors import ProfileError
from tasks.embedded.runtime.mounts import TMP
from tasks.embedded.store.store import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.embedded.objects import Object


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


def find_image(images: Sequence[Object], name: str) -> tuple[int, Object] | None:
    """Place in the list and value of the first image whose pattern matches."""
    for index, image in enumerate(images):
        if fnmatch.fnmatchcase(name, image["pattern"]):
            return index, image
    return None


def host_argv(image: Object, argv: Sequence[str], own_folders: Sequence[str]) -> list[str]:
    """The host's argument vector for the container's `argv`, whose variables are expanded.

    Paths below `own_folders` (the container's mount points) are not programs of the image and always allowed.

    Raises:
        FileNotFoundError: the image has no such program.
    """
    if not argv:
        raise FileNotFoundError("no command specified")
    program = image["programs"].get(argv[0])
    if program is not None:
        return [*program, *argv[1:]]
    inside = any(argv[0].startswith(folder.rstrip("/") + "/") for folder in own_folders)
    if image["host_path"] or inside:
        return list(argv)
    raise FileNotFoundError(
        f'exec: "{argv[0]}": executable file not found in $PATH (the image of pattern {image["pattern"]!r} has the '
        f"programs {', '.join(sorted(image['programs'])) or 'none'})"
    )


def programs_folder(root: str, index: int) -> str:
    """A folder for PATH in which an image's programs stand under their own names."""
    return os.path.join(root, "images", str(index))


def write_programs(root: str, images: Sequence[Mapping[str, Any]]) -> None:
    """Write one small script for each program with a bare name, so that a shell inside the image finds it as well."""
    for index, image in enumerate(images):
        folder = programs_folder(root, index)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        programs: Mapping[str, Sequence[str]] = image["programs"]
        names = {name for name in programs if "/" not in name}
        for stale in set(os.listdir(folder)) - names:
            os.unlink(os.path.join(folder, stale))
        for name in names:
            quoted = " ".join("'" + part.replace("'", "'\\''") + "'" for part in programs[name])
            path = os.path.join(folder, name)
            write_file(path, f'#!/bin/sh\nexec {quoted} "$@"\n'.encode())
            os.chmod(path, 0o755)  # noqa: S103 - a program; its folder is closed to others


def shown_folders(image: Object) -> list[str]:
    """Folders under /tmp that the image's programs or variables name: a private /tmp must show them."""
    words = [part for argv in image["programs"].values() for part in argv]
    words += [part for value in image["environment"].values() for part in value.split(":")]
    found = {"/".join(word.split("/")[:3]) for word in words if word.startswith(TMP + "/")}
    return sorted(folder for folder in found if os.path.exists(folder))
