"""Writing objects: creation, merge-update, patch, deletion. Used by the API and by resource steps of workflows."""

from __future__ import annotations

import copy
import os
from typing import Any

from profiles.errors import Conflict, Foreign, NotFound, Refused
from tasks.embedded.engine.json_values import is_list, is_map
from tasks.embedded.objects import Object, mark_deleted, merge, new_uid, section, timestamp
from tasks.embedded.schema.validate import validate
from tasks.embedded.store.store import Store, Transaction

IMMUTABLE = {"JobSet": {"suspend"}, "Workflow": {"suspend", "shutdown"}, "Pod": {"activeDeadlineSeconds"}}
"""Kinds whose spec may not change once created, and the fields of it that may."""
OWN = ("Pod", "JobSet", "Workflow")
"""Kinds whose deletion takes time: their processes are ended first."""
OWNER = "primus-flows.io/ledger"
"""Annotation: whose the object is. Of two that say so none writes over the other's."""
_DATA = ("data", "stringData", "binaryData", "type", "immutable")


def admit(store: Store, namespace: str, manifest: Object, *, dry_run: bool = False) -> Object:
    """Create the object or merge the manifest into ours; returns it as stored.

    Raises:
        Refused: the manifest is not accepted, or would change what cannot change.
        Conflict: the object is being deleted, or was changed since the version that the manifest names.
        Foreign: its annotations say that it is another ledger's.
    """
    validate(manifest, namespace)
    fresh = copy.deepcopy(manifest)
    metadata = fresh["metadata"]
    if not metadata.get("name"):
        metadata["name"] = metadata["generateName"] + new_uid()[:5]
    for field in ("managedFields", "generation", "creationTimestamp", "uid"):
        metadata.pop(field, None)
    if dry_run:
        stored = store.get(fresh["kind"], metadata["name"])
        return _combine(store, namespace, stored, fresh)
    with store.transaction() as change:
        stored = change.get(fresh["kind"], metadata["name"])
        combined = _combine(store, namespace, stored, fresh)
        if combined == stored:
            return combined
        _make_folder(store, combined)
        return change.put(combined)


def _combine(store: Store, namespace: str, stored: Object | None, fresh: Object) -> Object:
    kind = fresh["kind"]
    if stored is None:
        if kind == "Node":
            raise Refused("metadata.name", f"there is no node {fresh['metadata']['name']!r}; nodes are in the profile")
        return _created(namespace, fresh)
    if stored["metadata"].get("deletionTimestamp"):
        raise Conflict(f"{kind} {stored['metadata']['name']} is being deleted; apply it once it is gone")
    if len({_owner(stored), _owner(fresh)} - {""}) > 1:
        raise Foreign(f"{kind} {stored['metadata']['name']} belongs to another ledger ({_owner(stored)[:8]})")
    version = fresh["metadata"].pop("resourceVersion", None)
    if version is not None and version != stored["metadata"]["resourceVersion"]:
        raise Conflict(f"{kind} {stored['metadata']['name']} was changed since version {version}; read it again")
    if kind in IMMUTABLE:
        _refuse_changes(section(stored, "spec"), section(fresh, "spec"), IMMUTABLE[kind])
    fresh.pop("status", None)
    combined = merge(stored, {key: value for key, value in fresh.items() if key not in _DATA})
    return combined | {key: fresh[key] for key in _DATA if key in fresh}


def _owner(manifest: Object) -> str:
    return str(section(section(manifest, "metadata"), "annotations").get(OWNER) or "")


def _created(namespace: str, fresh: Object) -> Object:
    kind, metadata = fresh["kind"], fresh["metadata"]
    for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(field, None)
    metadata |= {"uid": new_uid(), "creationTimestamp": timestamp(), "generation": 1, "namespace": namespace}
    fresh.pop("status", None)
    if kind == "Pod":
        fresh["status"] = {"phase": "Pending"}
    elif kind == "PersistentVolumeClaim":
        fresh["status"] = {"phase": "Bound"}
    elif kind in OWN:
        fresh["status"] = {}
    return fresh


def _refuse_changes(before: Object, after: Object, mutable: set[str]) -> None:
    path = difference(_without(before, {*mutable, "nodeName"}), _without(after, {*mutable, "nodeName"}), "spec")
    if path:
        raise Refused(path, "cannot be changed after creation; delete the object, or apply another name")


def _without(spec: Object, fields: set[str]) -> Object:
    return {key: value for key, value in spec.items() if key not in fields}


def difference(before: Any, after: Any, path: str) -> str:
    """Path of the first place where two values differ, "" where they are equal."""
    if before == after:
        return ""
    if is_map(before) and is_map(after):
        keys = [*before, *(key for key in after if key not in before)]
        found = (difference(before.get(key), after.get(key), f"{path}.{key}") for key in keys)
        return next((inner for inner in found if inner), path)
    if is_list(before) and is_list(after) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return next((inner for i, pair in pairs if (inner := difference(*pair, f"{path}[{i}]"))), path)
    return path


def _make_folder(store: Store, manifest: Object) -> None:
    if manifest["kind"] == "PersistentVolumeClaim":
        os.makedirs(os.path.join(store.root, "volumes", manifest["metadata"]["name"]), exist_ok=True)


def patch(store: Store, namespace: str, kind: str, name: str, change_wanted: Object) -> Object:
    """Merge a JSON merge patch into an object; returns it as stored.

    Raises:
        NotFound: no such object.
        Conflict: the patch names a version that is not the newest.
        Refused: the result is not accepted.
    """
    with store.transaction() as change:
        stored = change.get(kind, name)
        if stored is None:
            raise NotFound(f"there is no {kind} {name}")
        version = section(change_wanted, "metadata").get("resourceVersion")
        if version is not None and version != stored["metadata"]["resourceVersion"]:
            raise Conflict(f"{kind} {name} was changed since version {version}; read it again")
        combined = merge(stored, change_wanted)
        for field in ("name", "uid", "namespace", "creationTimestamp", "resourceVersion"):
            if field in stored["metadata"]:
                combined["metadata"][field] = stored["metadata"][field]
        combined |= {"kind": kind, "apiVersion": stored["apiVersion"]}
        if kind in IMMUTABLE:
            _refuse_changes(section(stored, "spec"), section(combined, "spec"), IMMUTABLE[kind])
        elif kind != "Event":
            validate(combined, namespace)
        return stored if combined == stored else change.put(combined)


def delete(store: Store, kind: str, name: str, grace_seconds: int | None) -> bool:
    """Ask for an object's deletion; returns whether its processes must be ended first."""
    with store.transaction() as change:
        stored = change.get(kind, name)
        if stored is None:
            return False
        if kind not in OWN:
            _forget(change, kind, name)
            return False
        before = copy.deepcopy(stored)
        if mark_deleted(stored, grace_seconds) != before:
            change.put(stored)
    return True


def _forget(change: Transaction, kind: str, name: str) -> None:
    if kind == "Node":
        raise Refused("kind", "a node cannot be deleted; take it out of the cluster profile")
    change.remove(kind, name)
