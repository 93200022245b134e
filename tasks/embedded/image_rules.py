"""Which images a workflow may name: those that the cluster has programs for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from profiles.errors import Refused
from tasks.embedded.engine.json_values import is_list, is_map
from tasks.embedded.images import find_image
from tasks.embedded.objects import Object

_CONTAINERS = ("container", "script")


def refuse_unknown_images(manifest: Object, images: Sequence[Object]) -> None:
    """Refuse a workflow with an image that its steps would wait for without end.

    Pods and JobSets are let through: they wait with `ErrImagePull` as on Kubernetes, and a run says so.

    Raises:
        Refused: by the path of the image.
    """
    if manifest.get("kind") != "Workflow":
        return
    for path, name in _images(manifest.get("spec"), "spec"):
        if "{{" not in name and find_image(images, name) is None:
            known = ", ".join(image["pattern"] for image in images)
            reason = f"no image of this cluster matches '{name}'; add it to the cluster profile's images (has {known})"
            raise Refused(path, reason)


def _images(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and name of the image of every container in a workflow's specification."""
    if is_map(value):
        for key, inner in value.items():
            image = inner.get("image") if key in _CONTAINERS and is_map(inner) else None
            if isinstance(image, str):
                yield f"{path}.{key}.image", image
            elif key == "initContainers" and is_list(inner):
                entries = ((f"{path}.{key}[{i}].image", item.get("image")) for i, item in enumerate(inner))
                yield from ((where, name) for where, name in entries if isinstance(name, str))
            else:
                yield from _images(inner, f"{path}.{key}")
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from _images(inner, f"{path}[{index}]")
