"""The nodes of a Workflow's status, however its controller stored them: from 1 MiB on Argo compresses them."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
from collections.abc import Mapping
from typing import Any

from tasks.cluster import Manifest
from tasks.embedded.engine.json_values import as_map


def unpacked(manifest: Manifest) -> Manifest:
    """The object with `status.nodes` in it, also where the controller stored them compressed.

    Nodes that were offloaded to a database, or compressed by something newer than gzip, stay away.
    """
    status = dict(as_map(manifest.get("status")))
    packed = status.get("compressedNodes")
    if packed and not status.get("nodes"):
        try:
            status["nodes"] = json.loads(gzip.decompress(base64.b64decode(packed)))
        except (OSError, ValueError, EOFError, binascii.Error):
            return manifest
        del status["compressedNodes"]
    return {**manifest, "status": status}


def nodes_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes that can be read, in the order of the status; none before there is one."""
    return list(as_map(as_map(unpacked(dict(manifest))["status"]).get("nodes")).values())


def parameter_of(part: object, name: str) -> str:
    """The value of a parameter in the `inputs` or `outputs` of a node; "" where it has none of that name."""
    listed: list[Any] = as_map(part).get("parameters") or []
    return next((str(item.get("value", "")) for item in listed if item.get("name") == name), "")
