"""The note of a component in the cluster: what it was installed as, and how it served when it was asked last."""

from __future__ import annotations

from typing import Mapping

from workflows.programs.runtime.kubernetes_api import Api
from workflows.programs.serving.objects import COMPONENT

NOTE = "primus-component-"


def note_path(namespace: str, component: str) -> str:
    """Of the note's object."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{NOTE}{component}"


def write_note(api: Api, namespace: str, component: str, data: Mapping[str, str]) -> None:
    """Make the note say this, and nothing else.

    Raises:
        ApiError.
    """
    metadata = {"name": f"{NOTE}{component}", "labels": {COMPONENT: component}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
    api.apply(note_path(namespace, component), body)
