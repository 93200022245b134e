"""What every part of the embedded cluster takes for granted about an object that is stored. Pure."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

    from tasks.embedded.objects import Object

_WORKING = ("Pod", "JobSet", "Workflow", "Node")
"""Kinds that the keeper acts on: they have an identity, a specification and a status."""


def parse_object(content: bytes, kind: str, name: str) -> Object:
    """The object in a file.

    Raises:
        ValueError, RecursionError: it is none of this kind and name.
    """
    found: object = json.loads(content)
    problem = problem_of(found, kind, name)
    if problem:
        raise ValueError(problem)
    return found  # pyright: ignore[reportReturnType] - just checked


def problem_of(manifest: object, kind: str, name: str) -> str:
    """Why this is no object of the kind and name, "" where it is one. Its content deeper down is not looked at."""
    if not _is_object(manifest):
        return f"an object is needed, not {_kind(manifest)}"
    if manifest.get("kind") != kind:
        return f"its kind is {manifest.get('kind')!r}"
    metadata = manifest.get("metadata")
    if not _is_object(metadata):
        return f"metadata: an object is needed, not {_kind(metadata)}"
    return _metadata(metadata, name) or (_body(manifest, metadata, kind) if kind in _WORKING else "")


def _metadata(metadata: dict[str, object], name: str) -> str:
    if metadata.get("name") != name:
        return f"its name is {metadata.get('name')!r}"
    if not str(metadata.get("resourceVersion", "")).isdecimal():
        return f"metadata.resourceVersion: {metadata.get('resourceVersion')!r} is no version"
    for field in ("labels", "annotations"):
        if metadata.get(field) is not None and not is_texts(metadata[field]):
            return f"metadata.{field}: texts by name are needed"
    if metadata.get("ownerReferences") is not None and not are_owners(metadata["ownerReferences"]):
        return "metadata.ownerReferences: objects with an identity are needed"
    return ""


def _body(manifest: dict[str, object], metadata: dict[str, object], kind: str) -> str:
    if not is_uid(metadata.get("uid")):
        return f"metadata.uid: {metadata.get('uid')!r} is no identity"
    for field in ("spec", "status"):
        optional = kind == "Node" and field == "spec"
        if not _is_object(manifest.get(field)) and not (optional and manifest.get(field) is None):
            return f"{field}: an object is needed, not {_kind(manifest.get(field))}"
    return ""


def is_uid(value: object) -> bool:
    """Whether this can identify an object; it names folders."""
    return isinstance(value, str) and bool(value) and "/" not in value


def are_owners(value: object) -> bool:
    """Whether this is a list of references to owners."""
    return _is_list(value) and all(_is_object(owner) and is_uid(owner.get("uid")) for owner in value)


def is_texts(value: object) -> TypeGuard[dict[str, str]]:
    """Whether this is an object of texts."""
    return _is_object(value) and all(isinstance(entry, str) for entry in value.values())


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
