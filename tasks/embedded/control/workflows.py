"""Workflows in action: facts out of the keeper's picture for the interpreter, its next step into the store."""

from __future__ import annotations

import json
import os
import time
import traceback
import zlib
from typing import Any

from profiles.errors import Conflict, PrimusError, Unavailable
from tasks.embedded import admission
from tasks.embedded.control.pods import create_pods, end_pods, put_status
from tasks.embedded.engine.argo.names import NodeFailure
from tasks.embedded.engine.argo.state import PodFacts, ResourceFacts
from tasks.embedded.engine.argo.workflow import advance
from tasks.embedded.objects import (
    BREAKS,
    OUTPUT_VALUES_ANNOTATION,
    WORKFLOW_LABEL,
    Object,
    entries,
    is_finished,
    mark_deleted,
    parse_timestamp,
    section,
    timestamp,
)
from tasks.embedded.store.cache import Cache
from tasks.embedded.store.store import BrokenObjectError, read_json, write_file

DONE = ("Succeeded", "Failed", "Error")
REST_FACTOR = 2.0
"""A workflow rests this many times as long as its last step took, so that many small events become one step."""
CREATOR_ANNOTATION = "primus-flows.io/created-by"


class WorkflowDriver:
    """Advances workflows; `settings` is the content of `cluster.json`."""

    def __init__(self, cache: Cache, settings: Object) -> None:
        self._cache = cache
        self._namespace: str = settings["namespace"]
        self._wakes: dict[str, float] = {}
        self._rests: dict[str, float] = {}
        self._facts: dict[str, tuple[str, PodFacts]] = {}
        self._results: dict[str, dict[str, ResourceFacts]] = {}

    def run(self, names: list[str]) -> None:
        """Bring these workflows forward."""
        now = time.monotonic()
        for name in names:
            workflow = self._cache["Workflow"].get(name)
            if workflow is None or workflow["metadata"].get("deletionTimestamp"):
                self._wakes.pop(name, None)
                self._rests.pop(name, None)
            elif self._rests.get(name, 0.0) > now:
                self._wakes[name] = min(self._rests[name], self._wakes.get(name, self._rests[name]))
            else:
                self._wakes.pop(name, None)
                self._advance_safely(name, workflow)
                ended = time.monotonic()
                self._rests[name] = ended + (ended - now) * REST_FACTOR
                now = ended

    def pending(self) -> bool:
        """Whether a workflow may still change by itself."""
        return any(
            section(workflow, "status").get("phase") not in DONE for workflow in list(self._cache["Workflow"].values())
        )

    def wake_at(self) -> float | None:
        """Monotonic time of the next timer."""
        return min(self._wakes.values(), default=None)

    def due(self, now: float) -> list[str]:
        """Names whose timer is due at this monotonic time."""
        return [name for name, moment in self._wakes.items() if moment <= now]

    def resting(self, name: str) -> bool:
        """Whether the workflow has not got its newest events yet."""
        return name in self._wakes and self._wakes[name] <= self._rests.get(name, 0.0)

    def _advance_safely(self, name: str, workflow: Object) -> None:
        """A workflow that the interpreter breaks on ends with an error of its own; the others go on."""
        try:
            self._advance(name, workflow)
        except (*BREAKS, NodeFailure) as error:
            status: Object = section(workflow, "status")
            if status.get("phase") not in DONE:
                traceback.print_exc()
                message = f"the interpreter broke on this workflow: {type(error).__name__}: {error}"
                status = {**status, "phase": "Error", "message": message, "finishedAt": timestamp()}
                put_status(self._cache, "Workflow", workflow, status)
            mine = [pod["metadata"]["name"] for pod in self._cache.pods(WORKFLOW_LABEL, name) if _owned(pod, workflow)]
            end_pods(self._cache, mine, "WorkflowEnded", str(status.get("message", "")))

    def _advance(self, name: str, workflow: Object) -> None:
        pods = self._cache.pods(WORKFLOW_LABEL, name)
        facts = {pod["metadata"]["name"]: self._pod_facts(pod) for pod in pods if _owned(pod, workflow)}
        results = self._resource_facts(workflow)
        while True:
            now = time.time()
            step = advance(workflow, facts, results, now)
            # Pods before the status: a node without a pod would look as if somebody had deleted it.
            create_pods(self._cache, step.create_pods, self._namespace, workflow)
            for node_id, action, manifest in step.apply_resources:
                results[node_id] = self._apply(workflow, node_id, action, manifest)
            put_status(self._cache, "Workflow", workflow, step.status)
            if not step.apply_resources:
                break
            workflow = self._cache["Workflow"][name]
            facts |= {pod["metadata"]["name"]: self._pod_facts(pod) for pod in self._cache.pods(WORKFLOW_LABEL, name)}
        end_pods(self._cache, step.delete_pods, "WorkflowEnded", "the workflow ended this step")
        self._collect_garbage(workflow, step.status)
        if step.wake_at is not None:
            self._wakes[name] = time.monotonic() + max(0.0, step.wake_at - now)

    # Facts.

    def _pod_facts(self, pod: Object) -> PodFacts:
        uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
        known = self._facts.get(uid)
        if known is None or known[0] != version:
            try:
                known = self._facts[uid] = (version, pod_facts(pod))
            except BREAKS as error:
                name = pod["metadata"]["name"]
                path = self._cache.store.path("Pod", name)
                raise BrokenObjectError("Pod", name, path, f"{type(error).__name__}: {error}") from error
        return known[1]

    def _resource_facts(self, workflow: Object) -> dict[str, ResourceFacts]:
        uid = workflow["metadata"]["uid"]
        if uid not in self._results:
            folder = self._folder(uid)
            names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            stored = [_outcome(os.path.join(folder, name)) for name in names if name[0] != "."]
            self._results[uid] = {entry["node"]: ResourceFacts(**entry["facts"]) for entry in stored if entry}
        return self._results[uid]

    def _folder(self, uid: str) -> str:
        return os.path.join(self._cache.store.root, "owners", uid)

    # Resources.

    def _apply(self, workflow: Object, node_id: str, action: str, manifest: Object) -> ResourceFacts:
        """Apply once and remember what came of it; a keeper killed in between finds its own object and adopts it."""
        try:
            stored = self._carry_out(workflow, node_id, action, manifest)
            facts: dict[str, Any] = {"phase": "Succeeded", "object": stored}
        except BrokenObjectError:
            raise  # it is put aside, and the step is done then
        except PrimusError as error:
            facts = {"phase": "Failed", "message": str(error)}
        folder = self._folder(workflow["metadata"]["uid"])
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"{zlib.crc32(node_id.encode()):08x}-{node_id[-100:]}")
        write_file(path, json.dumps({"node": node_id, "facts": facts}).encode())
        return ResourceFacts(**facts)

    def _carry_out(self, workflow: Object, node_id: str, action: str, manifest: Object) -> Object:
        store, namespace = self._cache.store, self._namespace
        creator = f"{workflow['metadata']['uid']}/{node_id}"
        metadata = dict(section(manifest, "metadata"))
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = f"{metadata['generateName']}{zlib.crc32(creator.encode()):08x}"
        if action == "create":
            metadata["annotations"] = {**section(metadata, "annotations"), CREATOR_ANNOTATION: creator}
            there = store.get(str(manifest.get("kind")), str(metadata.get("name")))
            if there is not None and section(there["metadata"], "annotations").get(CREATOR_ANNOTATION) != creator:
                raise Conflict(f"{manifest.get('kind')} {metadata.get('name')} exists already")
        return admission.admit(store, namespace, {**manifest, "metadata": metadata})

    # What a finished workflow leaves.

    def _collect_garbage(self, workflow: Object, status: Object) -> None:
        """`podGC`: pods whose end stands in the workflow's status are deleted as the strategy says."""
        strategy = section(workflow["spec"], "podGC").get("strategy")
        if not strategy:
            return
        phase, doomed = status.get("phase"), list[str]()
        for pod in self._cache.pods(WORKFLOW_LABEL, workflow["metadata"]["name"]):
            if is_finished(pod) and not pod["metadata"].get("deletionTimestamp"):
                succeeded = pod["status"]["phase"] == "Succeeded"
                recorded = _recorded(pod, status)
                collected = {
                    "OnPodCompletion": recorded,
                    "OnPodSuccess": recorded and succeeded,
                    "OnWorkflowCompletion": phase in DONE,
                    "OnWorkflowSuccess": phase == "Succeeded",
                }
                if collected.get(strategy, False):
                    doomed.append(pod["metadata"]["name"])
        if doomed:
            with self._cache.store.transaction() as change:
                for name in doomed:
                    stored = change.get("Pod", name)
                    if stored is not None:
                        self._cache.wrote(change.put(mark_deleted(stored, None)))


def _outcome(path: str) -> Object | None:
    """What came of a resource step; one whose file is broken is done again, which finds what was done before."""
    try:
        return read_json(path)
    except Unavailable:
        traceback.print_exc()
        return None


def _owned(pod: Object, workflow: Object) -> bool:
    owners: list[Object] = entries(pod["metadata"], "ownerReferences")
    return any(owner["uid"] == workflow["metadata"]["uid"] for owner in owners)


def _recorded(pod: Object, status: Object) -> bool:
    node_id = section(pod["metadata"], "annotations").get("workflows.argoproj.io/node-id", "")
    return section(status, "nodes", node_id).get("phase") in DONE


def pod_facts(pod: Object) -> PodFacts:
    """A pod as the interpreter gets it."""
    status, annotations = section(pod, "status"), section(pod["metadata"], "annotations")
    containers = [*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")]
    nothing: Object = {}
    main = next((entry for entry in containers if entry["name"] == "main"), nothing)
    end: Object = section(main, "state", "terminated")
    values: Object = json.loads(annotations.get(OUTPUT_VALUES_ANNOTATION, "{}"))
    reason, message = _why(pod, containers, end)
    lost = end.get("reason") == "ContainerStatusUnknown"
    return PodFacts(
        phase=status.get("phase", "Pending"),
        exit_code=None if not end or lost else end["exitCode"],
        message=message,
        started_at=parse_timestamp(status.get("startTime")),
        finished_at=parse_timestamp(end.get("finishedAt")),
        outputs=section(values, "outputs"),
        too_large=section(values, "too_large"),
        artifacts=section(values, "artifacts"),
        result=values.get("result"),
        reason=reason,
        node=pod["spec"].get("nodeName") or "",
    )


def _why(pod: Object, containers: list[Object], end: Object) -> tuple[str, str]:
    """Reason and message: of the pod as a whole, of the container's end, or of what is waited for."""
    status = section(pod, "status")
    if status.get("phase") == "Pending":
        for entry in containers:
            waiting = section(entry["state"], "waiting")
            if waiting.get("message"):
                return waiting["reason"], f"{waiting['reason']}: {waiting['message']}"
        conditions: list[Object] = entries(status, "conditions")
        nothing: Object = {}
        waits = (entry for entry in conditions if entry["type"] == "PodScheduled" and entry.get("message"))
        found = next(waits, nothing)
        return found.get("reason", ""), f"{found['reason']}: {found['message']}" if found else ""
    if status.get("reason"):
        return status["reason"], status.get("message") or ""
    failed = next((one for one in containers if section(one["state"], "terminated").get("exitCode")), None)
    if not end.get("exitCode") and failed is not None:
        terminated = failed["state"]["terminated"]
        return terminated["reason"], f"{failed['name']}: {terminated['reason']} (exit code {terminated['exitCode']})"
    return end.get("reason", ""), end.get("message", "")
