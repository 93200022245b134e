"""Broken objects: the file is kept as evidence, and a finished object of the same identity takes its place.

Where the file still names its object, that becomes a failed pod, a failed JobSet, a workflow in error, or a node of
unknown state, so clients learn of it as of any other failure. Where it does not, the object counts as deleted.

A search for the object that breaks a round runs only after a round broke, so a sound cluster pays nothing for it. It
runs each object alone through the functions of a round, without writing. Workflows are not searched: the interpreter
breaks on one workflow at a time, and their driver ends that one.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator

from tasks.embedded.control.jobsets import going, pod_state
from tasks.embedded.control.nodes import node_facts, node_object, set_ready
from tasks.embedded.control.pods import earlier, end_reason
from tasks.embedded.control.scheduler import Scheduler, message_of, pod_names
from tasks.embedded.control.workflows import pod_facts
from tasks.embedded.engine.json_values import is_map
from tasks.embedded.engine.kube.jobset import PodState, advance_jobset
from tasks.embedded.engine.kube.placement import Gang, NodeFacts, PodRequest, place
from tasks.embedded.objects import (
    API_VERSIONS,
    BREAKS,
    BROKEN_ANNOTATION,
    END_ANNOTATION,
    JOBSET_LABEL,
    WORKFLOW_LABEL,
    Object,
    are_owners,
    is_texts,
    is_uid,
    parse_timestamp,
    section,
    timestamp,
)
from tasks.embedded.spec import NodeSpec
from tasks.embedded.store.cache import Cache
from tasks.embedded.store.store import BrokenObjectError, Store, Transaction

REASON = "BrokenObject"


def put_aside(store: Store, kind: str, name: str, problem: str, settings: Object) -> None:
    """Keep the file under `broken/` with the reason, and put something sound in its place.

    Safe to repeat: what breaks although it stands in for a broken object is removed.

    Raises:
        Unavailable: the folder cannot be written.
    """
    path = store.path(kind, name)
    with store.transaction() as change:
        found = _read(path)
        _keep(store.root, kind, name, path, problem)
        before = _metadata(found, name)
        again = BROKEN_ANNOTATION in section(before, "annotations")
        place = None if again else _stand_in(kind, name, before, _parse(found), problem, settings)
        if place is not None:
            change.put(place)
        else:
            _remove(change, kind, name, before, problem)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _keep(root: str, kind: str, name: str, path: str, problem: str) -> None:
    """The file as it is, and a line that says why."""
    folder = os.path.join(root, "broken", kind)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    kept = os.path.join(folder, name)
    if os.path.isdir(path):
        os.rename(path, f"{kept}.{os.getpid()}")
    elif os.path.exists(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(kept)
        os.link(path, kept)  # the file itself is replaced by a rename
    with open(os.path.join(root, "broken", "reasons"), "a") as reasons:
        reasons.write(f"{timestamp()} {kind}/{name}: {problem}\n")


def _parse(content: bytes) -> Object:
    """The whole object; empty where the file holds none."""
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if is_map(found) else {}


def _metadata(content: bytes, name: str) -> Object:
    """The metadata, as far as it is well-formed, also out of the beginning of a file that was cut off."""
    text, key = content.decode(errors="replace"), '"metadata":'
    position = text.find(key)
    while position >= 0:
        with contextlib.suppress(ValueError, RecursionError):
            found: object = json.JSONDecoder().raw_decode(text[position + len(key) :].lstrip())[0]
            if is_map(found) and found.get("name") == name:
                return _clean(found)
        position = text.find(key, position + 1)
    return {}


def _clean(metadata: Object) -> Object:
    known: Object = {"name": metadata["name"]}
    known |= {key: dict(metadata[key]) for key in ("labels", "annotations") if is_texts(metadata.get(key))}
    section(known, "annotations").pop(END_ANNOTATION, None)
    if are_owners(metadata.get("ownerReferences")):
        known["ownerReferences"] = metadata["ownerReferences"]
    lost = [key for key in ("labels", "ownerReferences") if metadata.get(key) is not None and key not in known]
    # Without them nobody would know it for his own: then it is better gone, as everybody can see.
    if is_uid(metadata.get("uid")) and not lost:
        known["uid"] = metadata["uid"]
    with contextlib.suppress(*BREAKS):
        parse_timestamp(metadata["creationTimestamp"])
        known["creationTimestamp"] = metadata["creationTimestamp"]
    return known


def _stand_in(kind: str, name: str, metadata: Object, parsed: Object, problem: str, settings: Object) -> Object | None:
    """The object in the place of the broken one, None where too little is known."""
    if kind == "Node":
        return _node(name, metadata, problem, settings)
    if kind not in ("Pod", "JobSet", "Workflow") or "uid" not in metadata:
        return None
    now, said = timestamp(), f"its file was broken: {problem}"
    whole = _broken_object(kind, {"creationTimestamp": now, **metadata}, problem)
    match kind:
        case "Pod":
            whole["spec"] = {"containers": [{"name": "main", "image": ""}], **_place(parsed)}
            whole["status"] = {"phase": "Failed", "reason": REASON, "message": said}
        case "JobSet":
            condition = {"type": "Failed", "status": "True", "reason": REASON, "message": said}
            whole["spec"] = {"replicatedJobs": []}
            whole["status"] = {"terminalState": "Failed", "conditions": [{**condition, "lastTransitionTime": now}]}
        case _:
            whole["spec"] = {}
            whole["status"] = {"phase": "Error", "message": said, "startedAt": now, "finishedAt": now, "nodes": {}}
    return whole


def _broken_object(kind: str, metadata: Object, problem: str) -> Object:
    annotations = {**section(metadata, "annotations"), BROKEN_ANNOTATION: problem[:500]}
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": {**metadata, "annotations": annotations}}


def _place(pod: Object) -> Object:
    """Where the pod ran, which shows what may be to blame."""
    spec = pod.get("spec")
    node = spec.get("nodeName") if is_map(spec) else None
    return {"nodeName": node} if isinstance(node, str) else {}


def _node(name: str, metadata: Object, problem: str, settings: Object) -> Object | None:
    """The node of the profile with its labels kept; nothing is known of it until it is restored."""
    spec = next((entry for entry in settings["nodes"] if entry["name"] == name), None)
    if spec is None:
        return None
    fresh = node_object(NodeSpec(**spec))
    kept = {key: metadata[key] for key in ("uid", "creationTimestamp", "annotations") if key in metadata}
    labels = {**section(metadata, "labels"), **fresh["metadata"]["labels"]}
    whole = _broken_object("Node", {**fresh["metadata"], **kept, "labels": labels}, problem)
    whole |= {"spec": fresh["spec"], "status": fresh["status"]}
    return set_ready(whole, "Unknown", REASON, f"its file was broken: {problem}")


def _remove(change: Transaction, kind: str, name: str, metadata: Object, problem: str) -> None:
    """Delete it by way of a well-formed object, which watchers and a writer killed in the middle can read."""
    last = _broken_object(kind, {"uid": "unknown", **metadata, "name": name}, problem)
    last |= {"spec": {}, "status": {"phase": "Failed", "reason": REASON, "message": f"its file was broken: {problem}"}}
    change.put(last)
    change.remove(kind, name)


ROOM = {"cpu": 10**12, "memory": 10**18, "pods": 10**6}


def find_broken(cache: Cache, settings: Object) -> Iterator[tuple[str, str, str]]:
    """Kind and name of every object that breaks the keeper by itself, and how."""
    probes: dict[str, Callable[[Cache, Object, Object], None]] = {
        "Node": _try_node,
        "Pod": _try_pod,
        "JobSet": _try_jobset,
    }
    for kind, probe in probes.items():
        for name, manifest in list(cache[kind].items()):
            try:
                probe(cache, manifest, settings)
            except BrokenObjectError as error:
                yield error.kind, error.name, error.problem
            except BREAKS as error:
                yield kind, name, f"{type(error).__name__}: {error}"


def _try_node(cache: Cache, node: Object, settings: Object) -> None:
    del cache, settings
    wish = PodRequest("probe", requests={"cpu": 1}, node_selector={"kubernetes.io/hostname": "probe"})
    place([node_facts(node)], [(node["metadata"]["name"], wish)], [Gang("probe", (wish,))])


def _try_pod(cache: Cache, pod: Object, settings: Object) -> None:
    metadata, labels = pod["metadata"], section(pod["metadata"], "labels")
    texts = {"nodeName": pod["spec"], "podIP": pod["status"], "creationTimestamp": metadata}
    for field, part in texts.items():
        if not isinstance(part.get(field), str | None):
            raise TypeError(f"{field}: a text is needed, not {part[field]!r}")
    end_reason(pod)
    earlier(pod, 0)
    json.loads(section(metadata, "annotations").get(END_ANNOTATION, "{}")).get("reason")
    pod_names(pod)
    message_of(pod)
    gang = Scheduler(cache, section(settings, "priority_classes")).gang_of(pod)
    place([NodeFacts("probe", {}, ROOM)], [("probe", gang.pods[0])], [gang])
    if JOBSET_LABEL in labels:
        pod_state(pod)
    if WORKFLOW_LABEL in labels:
        pod_facts(pod)


def _try_jobset(cache: Cache, jobset: Object, settings: Object) -> None:
    going(jobset)
    mine = cache.pods(JOBSET_LABEL, jobset["metadata"]["name"])
    sound = [state for pod in mine if (state := _or_none(pod)) is not None]
    advance_jobset(jobset, sound, time.time(), settings["pod_backoff_initial_seconds"])


def _or_none(pod: Object) -> PodState | None:
    """A broken pod is blamed itself, not its JobSet."""
    try:
        return pod_state(pod)
    except BREAKS:
        return None
