"""What every part of the embedded cluster uses of stored objects: fields, times, labels, and their soundness. Pure."""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeGuard

    Object = dict[str, Any]
else:
    Object = dict  # annotations are never evaluated; `typing` would cost every supervisor 2 MB

API_VERSIONS = {
    "Workflow": "argoproj.io/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Job": "batch/v1",
    "Workload": "kueue.x-k8s.io/v1beta1",
    "Pod": "v1",
    "Node": "v1",
    "Secret": "v1",
    "ConfigMap": "v1",
    "PersistentVolumeClaim": "v1",
    "Event": "v1",
}
FINISHED = ("Succeeded", "Failed")
BREAKS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a value of the wrong kind raises. A full disk or a lost folder is no object's fault."""
WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
END_ANNOTATION = "primus-flows.io/end"
"""JSON {"reason", "message", "grace_seconds"}: the pod is to end and its object is kept."""
BROKEN_ANNOTATION = "primus-flows.io/broken"
"""Why the object is not the one that was stored: it stands in for one whose file was broken."""
OUTPUTS_ANNOTATION = "primus-flows.io/outputs"
"""JSON {parameter: path}: files that are read when the main container ended."""
OUTPUT_VALUES_ANNOTATION = "primus-flows.io/output-values"
"""JSON {"outputs": {parameter: text or null}, "result": text or null}, written by the supervisor."""

_WORKING = ("Pod", "JobSet", "Workflow", "Node")
"""Kinds that the keeper acts on: they have an identity, a specification and a status."""


def section(manifest: Mapping[str, Any], *keys: str) -> Object:
    """The object under these keys, an empty one where there is none."""
    current: Any = manifest
    for key in keys:
        current = current.get(key) or {}
    return current


def entries(manifest: Mapping[str, Any], *keys: str) -> list[Object]:
    """The list of objects under these keys, an empty one where there is none."""
    return section(manifest, *keys[:-1]).get(keys[-1]) or []


def timestamp(seconds: float | None = None) -> str:
    """RFC 3339 with microseconds, UTC; the present moment where nothing is given."""
    moment = time.time() if seconds is None else seconds
    whole = int(moment)
    parts = time.gmtime(whole)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int((moment - whole) * 1e6):06d}Z"


def parse_timestamp(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 timestamp in UTC, None for none."""
    if not text:
        return None
    head, _, fraction = text.rstrip("Z").partition(".")
    parts = [int(piece) for piece in head.replace("T", "-").replace(":", "-").split("-")]
    days = _days(parts[0], parts[1], parts[2])
    return days * 86400 + parts[3] * 3600 + parts[4] * 60 + parts[5] + (float("0." + fraction) if fraction else 0.0)


def _days(year: int, month: int, day: int) -> int:
    # Days since 1970-01-01 in the civil calendar; `calendar` and `datetime` are too large for a supervisor.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def new_uid() -> str:
    """A random identifier in the form of a UUID."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def matches(manifest: Object, labels: Mapping[str, str] | None) -> bool:
    """Whether the object carries all of `labels`."""
    if not labels:
        return True
    own = section(manifest, "metadata", "labels")
    return all(own.get(key) == value for key, value in labels.items())


def merge(target: Object, patch: Mapping[str, Any]) -> Object:
    """JSON merge patch (RFC 7386) as a new value: null deletes, objects merge, everything else replaces."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge(section(result, key) if isinstance(result.get(key), dict) else {}, section(patch, key))
        else:
            result[key] = value
    return result


def is_finished(pod: Object) -> bool:
    """Whether the pod has ended."""
    return pod.get("status", {}).get("phase") in FINISHED


def mark_deleted(manifest: Object, grace_seconds: float | None) -> Object:
    """The object with its deletion asked for; a shorter grace than an earlier one wins."""
    metadata = manifest["metadata"]
    metadata.setdefault("deletionTimestamp", timestamp())
    if grace_seconds is not None:
        before = metadata.get("deletionGracePeriodSeconds")
        metadata["deletionGracePeriodSeconds"] = grace_seconds if before is None else min(before, grace_seconds)
    return manifest


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
