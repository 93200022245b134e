"""Any Argo Workflow on any cluster: checked, submitted, watched to its end. Through the seam, without Prefect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from profiles.errors import Conflict, NotFound, Refused, Unavailable
from tasks.cluster import Cluster, Manifest
from tasks.embedded.engine.json_values import as_map, is_list, is_map
from workflows.labels import PREFIX
from workflows.ownership import owner_of, refuse_foreign

SUBMITTED = f"{PREFIX}/submitted"
"""Label by which a watch asks for one workflow and not for all of a namespace; its value is the workflow's name."""
ENDED = ("Succeeded", "Failed", "Error")
WATCH_SECONDS = 60.0
"""One watch; then the object is read anew, whatever the watch told."""
PATIENCE_SECONDS = 60.0
"""A cluster that does not answer for so long while its workflow is watched counts as away."""


def check_workflow(cluster: Cluster, manifest: Manifest, namespace: str) -> None:
    """What the cluster says of the manifest before anything starts.

    Raises:
        Refused: a field is not accepted; its path is named.
        Conflict: a workflow of that name exists already and ended, or is another one.
    """
    asked = as_map(manifest.get("metadata")).get("namespace")
    if asked and asked != namespace:
        raise Refused("metadata.namespace", f"'{asked}' is not '{namespace}', the namespace of cluster {cluster.name}")
    name = manifest["metadata"]["name"]
    existing = cluster.get("Workflow", name)
    if existing is None:
        cluster.apply(labelled(manifest), dry_run=True)
    elif phase_of(existing) in ENDED or not _same(existing, manifest):
        state = phase_of(existing) or "not started"
        raise Conflict(f"a workflow {name} exists ({state}); choose another with --name, or write a generateName")


def submit_workflow(cluster: Cluster, manifest: Manifest) -> Manifest:
    """Create the workflow, or adopt the one that the same request created before; the object as stored.

    Raises:
        Foreign: the one of that name says that it belongs to another ledger than the manifest.
        Unavailable, Refused.
    """
    existing = cluster.get("Workflow", manifest["metadata"]["name"])
    refuse_foreign(existing, owner_of(manifest))
    return cluster.apply(labelled(manifest)) if existing is None else existing


def labelled(manifest: Manifest) -> Manifest:
    """The manifest with our label."""
    metadata = dict(as_map(manifest["metadata"]))
    metadata["labels"] = {**as_map(metadata.get("labels")), SUBMITTED: metadata["name"]}
    return {**manifest, "metadata": metadata}


def _same(existing: Manifest, manifest: Manifest) -> bool:
    """Whether the object came from this manifest: every field of the manifest's specification stands in it."""
    ours = existing["metadata"].get("labels", {}).get(SUBMITTED) == existing["metadata"]["name"]
    return ours and _within(manifest.get("spec"), existing.get("spec"))


def _within(small: Any, large: Any) -> bool:
    if is_map(small) and is_map(large):
        return all(_within(value, large.get(key)) for key, value in small.items())
    if is_list(small) and is_list(large):
        pairs = zip(small, large, strict=False)
        return len(small) == len(large) and all(_within(one, other) for one, other in pairs)
    return small == large


def follow_workflow(cluster: Cluster, name: str) -> Iterator[Manifest]:
    """The object after each change, the last one ended; a cluster that is away for a moment is waited for.

    Raises:
        NotFound: somebody deleted it.
        Unavailable: the cluster did not answer for `PATIENCE_SECONDS`.
    """
    answered = time.monotonic()
    while True:
        try:
            for found in _changes(cluster, name):
                answered = time.monotonic()
                yield found
                if phase_of(found) in ENDED:
                    return
        except Unavailable as error:
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            time.sleep(min(error.retry_after_seconds, 5.0))


def _changes(cluster: Cluster, name: str) -> Iterator[Manifest]:
    for event in cluster.watch("Workflow", {SUBMITTED: name}, timeout_seconds=WATCH_SECONDS):
        if event.type == "DELETED":
            raise NotFound(f"workflow {name} was deleted while it was watched")
        if event.type != "SYNC":
            yield event.object
    current = cluster.get("Workflow", name)
    if current is None:
        raise NotFound(f"workflow {name} was deleted while it was watched")
    yield current


def phase_of(manifest: Manifest) -> str:
    """Its `status.phase`, "" before it has one."""
    return str(as_map(manifest.get("status")).get("phase") or "")
