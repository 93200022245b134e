"""Which mounts work where a machine forbids mount namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from profiles.errors import Refused
from tasks.embedded.engine.json_values import is_list, is_map
from tasks.embedded.layout import SHARED_MEMORY, folder_variable
from tasks.embedded.objects import Object, entries


def refuse_unreachable_mounts(manifest: Object, namespaces: Callable[[], str]) -> None:
    """Refuse a mount that only a mount namespace could make, where there are none.

    Args:
        manifest: a Pod, JobSet or Workflow; anything else passes.
        namespaces: says `none` where this machine or the cluster's setting forbids them; asked only if it matters.

    Raises:
        Refused: by the path of the mount, or of an input artifact, which is one.
    """
    artifact = next(_input_artifacts(manifest), "")
    if artifact and namespaces() == "none":
        raise Refused(artifact, "this machine allows no mount namespaces, so no file can be laid out at a path")
    unreachable = next((found for found in _mounts(manifest.get("spec"), "spec") if not _reachable(*found[1:])), None)
    if unreachable is not None and namespaces() == "none":
        path, mount, _ = unreachable
        variable = folder_variable(mount["name"])
        reason = f"this machine allows no mount namespaces: give the container a variable {variable} and use that"
        raise Refused(path, reason)


def _input_artifacts(manifest: Object) -> Iterator[str]:
    """The paths of a workflow's input artifacts that a container sees."""
    if manifest.get("kind") != "Workflow" or not is_map(manifest.get("spec")):
        return
    templates = manifest["spec"].get("templates")
    for index, template in enumerate(templates if is_list(templates) else ()):
        inputs = template.get("inputs") if is_map(template) else None
        artifacts = inputs.get("artifacts") if is_map(inputs) else None
        for number, artifact in enumerate(artifacts if is_list(artifacts) else ()):
            if is_map(artifact) and "path" in artifact:
                yield f"spec.templates[{index}].inputs.artifacts[{number}].path"


def _mounts(value: Any, path: str) -> Iterator[tuple[str, Object, Object]]:
    """Path, mount and container of every volume mount, wherever containers stand in the manifest."""
    if is_map(value):
        mounts = value.get("volumeMounts")
        for index, mount in enumerate(mounts if is_list(mounts) else ()):
            if is_map(mount):
                yield f"{path}.volumeMounts[{index}]", mount, value
        for key, inner in value.items():
            yield from _mounts(inner, f"{path}.{key}")
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from _mounts(inner, f"{path}[{index}]")


def _reachable(mount: Object, container: Object) -> bool:
    if str(mount.get("mountPath", "")).rstrip("/") == SHARED_MEMORY:
        return True
    wanted = folder_variable(str(mount.get("name", "")))
    return any(entry.get("name") == wanted for entry in entries(container, "env"))
