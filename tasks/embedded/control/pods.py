"""Creating and ending pods for an owner, and writing the owner's status.

The wish to end a pod stands in its annotation; its object is kept, and its supervisor ends the processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tasks.embedded.objects import END_ANNOTATION, Object, is_finished, new_uid, problem_of, section, timestamp
from tasks.embedded.store.cache import Cache
from tasks.embedded.store.store import BrokenObjectError


def end_pods(cache: Cache, names: Iterable[str], reason: str, message: str) -> None:
    """Ask for the end of pods that still run; asking twice changes nothing."""
    wish = json.dumps({"reason": reason, "message": message})
    fresh = [name for name in names if name in cache["Pod"] and not _asked(cache["Pod"][name])]
    if not fresh:
        return
    with cache.store.transaction() as change:
        for name in fresh:
            pod = change.get("Pod", name)
            if pod is not None and not _asked(pod):
                annotations = section(pod["metadata"], "annotations")
                pod["metadata"]["annotations"] = {**annotations, END_ANNOTATION: wish}
                cache.wrote(change.put(pod))


def _asked(pod: Object) -> bool:
    return is_finished(pod) or END_ANNOTATION in section(pod["metadata"], "annotations")


def create_pods(cache: Cache, manifests: Iterable[Object], namespace: str, owner: Object) -> None:
    """Create pods that do not exist yet.

    Raises:
        BrokenObjectError: the owner asks for what is no pod.
    """
    wanted = [manifest for manifest in manifests if manifest["metadata"]["name"] not in cache["Pod"]]
    if not wanted:
        return
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    with cache.store.transaction() as change:
        for manifest in wanted:
            if change.get("Pod", manifest["metadata"]["name"]) is not None:
                continue
            born = {"uid": new_uid(), "creationTimestamp": timestamp(), "generation": 1, "namespace": namespace}
            metadata = {**manifest["metadata"], **born, "ownerReferences": [reference]}
            whole: Object = {**manifest, "metadata": metadata, "status": {"phase": "Pending"}}
            _check(cache, whole, owner)
            cache.wrote(change.put(whole))


def _check(cache: Cache, pod: Object, owner: Object) -> None:
    numbered = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "0"}}
    problem = problem_of(numbered, "Pod", pod["metadata"]["name"])
    if problem:
        kind, name = owner["kind"], owner["metadata"]["name"]
        path = cache.store.path(kind, name)
        raise BrokenObjectError(kind, name, path, f"it asks for a pod that is none: {problem}")


def put_status(cache: Cache, kind: str, owner: Object, status: Object) -> None:
    """Write an owner's new status, unless it says nothing new or the owner is gone."""
    if owner.get("status") == status:
        return
    with cache.store.transaction() as change:
        stored = change.get(kind, owner["metadata"]["name"])
        if stored is not None and stored["metadata"]["uid"] == owner["metadata"]["uid"]:
            stored["status"] = status
            cache.wrote(change.put(stored))


def deleting(manifest: Object) -> bool:
    """Whether its deletion was asked for."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def earlier(pod: Object, grace_seconds: int | None) -> bool:
    """Whether a deletion with this grace ends the pod earlier than what was asked for before."""
    if not deleting(pod):
        return True
    before = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace_seconds is not None and (before is None or grace_seconds < before)


def end_reason(pod: Object) -> str:
    """Why the supervisor must look at its pod again; "" for no reason."""
    metadata = pod["metadata"]
    wish = section(metadata, "annotations").get(END_ANNOTATION, "")
    if deleting(pod):
        return f"deleted {metadata.get('deletionGracePeriodSeconds')} {wish}"
    return wish
