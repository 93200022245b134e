"""The tags that hold for a whole workflow and never change: its name, parameters, labels, time of creation."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from tasks.embedded.engine.calls import arguments_of
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, as_map, maps
from tasks.embedded.engine.substitution import substitute

STRFTIME = "BbmAadHIMSYypZz"
"""The characters of `workflow.creationTimestamp.<character>` that mean the same to Go's strftime and Python's."""


def constants_of(spec: Json, metadata: Json) -> dict[str, str]:
    """The tags and their values."""
    parameters = maps(as_map(spec.get("arguments")).get("parameters"))
    extra = as_map(spec.get("workflowMetadata"))
    labels = as_map(metadata.get("labels")) | as_map(extra.get("labels"))
    annotations = as_map(metadata.get("annotations")) | as_map(extra.get("annotations"))
    found = {
        "workflow.name": str(metadata.get("name")),
        "workflow.namespace": str(metadata.get("namespace") or "default"),
        "workflow.uid": str(metadata.get("uid") or ""),
        "workflow.serviceAccountName": str(spec.get("serviceAccountName") or ""),
        "workflow.mainEntrypoint": str(spec.get("entrypoint")),
        **_created(str(metadata.get("creationTimestamp") or "")),
        "workflow.parameters": json.dumps(parameters, separators=(",", ":")),
        "workflow.labels.json": json.dumps(labels, separators=(",", ":")),
        "workflow.annotations.json": json.dumps(annotations, separators=(",", ":")),
    }
    found["workflow.parameters.json"] = found["workflow.parameters"]
    if spec.get("priority") is not None:
        found["workflow.priority"] = str(spec["priority"])
    found |= {f"workflow.labels.{key}": str(value) for key, value in labels.items()}
    found |= {f"workflow.annotations.{key}": str(value) for key, value in annotations.items()}
    return found | {f"workflow.parameters.{name}": _replaced(value, found) for name, value in arguments_of(spec)}


def _replaced(text: str, known: dict[str, str]) -> str:
    """A parameter's value with the tags replaced that are known from the start."""
    try:
        return substitute(text, known.get)
    except NodeFailure:
        return text


def _created(text: str) -> dict[str, str]:
    """The moment of creation, whole seconds as Kubernetes has it."""
    if not text:
        return {}
    when = datetime.fromisoformat(text).astimezone(UTC)
    stamp = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {"workflow.creationTimestamp": stamp, "workflow.creationTimestamp.RFC3339": stamp}
    return found | {f"workflow.creationTimestamp.{letter}": when.strftime(f"%{letter}") for letter in STRFTIME}
