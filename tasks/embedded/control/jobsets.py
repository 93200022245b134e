"""JobSets in action: facts out of the keeper's picture, the next step into the store."""

from __future__ import annotations

import json
import time

from tasks.embedded.control.pods import create_pods, end_pods, put_status
from tasks.embedded.engine.kube.jobset import INDEX_ANNOTATION, JOBSET, JobSetStep, PodState, advance_jobset
from tasks.embedded.objects import (
    END_ANNOTATION,
    JOBSET_LABEL,
    Object,
    entries,
    is_finished,
    mark_deleted,
    parse_timestamp,
    section,
)
from tasks.embedded.store.cache import Cache


class JobSetDriver:
    """Advances JobSets; `settings` is the content of `cluster.json`."""

    def __init__(self, cache: Cache, settings: Object) -> None:
        self._cache = cache
        self._namespace: str = settings["namespace"]
        self._backoff_seconds: float = settings["pod_backoff_initial_seconds"]
        self._wakes: dict[str, float] = {}

    def run(self, names: list[str]) -> None:
        """Bring these JobSets forward."""
        for name in names:
            self._wakes.pop(name, None)
            jobset = self._cache["JobSet"].get(name)
            if jobset is not None and not jobset["metadata"].get("deletionTimestamp"):
                self._advance(name, jobset)

    def pending(self) -> bool:
        """Whether a JobSet may still change by itself; a time to live alone keeps no keeper awake."""
        return any(going(jobset) for jobset in self._cache["JobSet"].values())

    def wake_at(self) -> float | None:
        """Monotonic time of the next timer."""
        return min(self._wakes.values(), default=None)

    def due(self, now: float) -> list[str]:
        """Names whose timer is due at this monotonic time."""
        return [name for name, moment in self._wakes.items() if moment <= now]

    def resting(self, name: str) -> bool:
        """Never: a JobSet gets its events at once."""
        del name
        return False

    def _advance(self, name: str, jobset: Object) -> None:
        now = time.time()
        pods = [pod_state(pod) for pod in self._cache.pods(JOBSET_LABEL, name) if _belongs(pod, jobset)]
        step = advance_jobset(jobset, pods, now, self._backoff_seconds)
        create_pods(self._cache, step.create, self._namespace, jobset)
        # The decision is written before pods are ended for it: their ends are then no failures of their own.
        put_status(self._cache, "JobSet", jobset, step.status)
        end_pods(self._cache, step.end, step.end_reason, step.end_message)
        self._delete(name, jobset, step)
        if step.wake_at is not None:
            self._wakes[name] = time.monotonic() + max(0.0, step.wake_at - now)

    def _delete(self, name: str, jobset: Object, step: JobSetStep) -> None:
        if not step.delete and not step.forget:
            return
        with self._cache.store.transaction() as change:
            doomed = [("JobSet", name)] if step.delete else [("Pod", pod) for pod in step.end]
            for kind, which in doomed:
                stored = change.get(kind, which)
                if stored is None or stored["metadata"].get("deletionTimestamp"):
                    continue
                if kind == "Pod" or stored["metadata"]["uid"] == jobset["metadata"]["uid"]:
                    self._cache.wrote(change.put(mark_deleted(stored, None)))


def going(jobset: Object) -> bool:
    """Whether the JobSet may still change by itself."""
    return not section(jobset, "status").get("terminalState") and not jobset["spec"].get("suspend")


def _belongs(pod: Object, jobset: Object) -> bool:
    return section(pod["metadata"], "labels").get(JOBSET + "jobset-uid") == jobset["metadata"]["uid"]


def pod_state(pod: Object) -> PodState:
    """A pod as the engine gets it."""
    metadata, status = pod["metadata"], section(pod, "status")
    labels, annotations = metadata["labels"], section(metadata, "annotations")
    containers = [*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")]
    ends = {entry["name"]: entry["state"]["terminated"] for entry in containers if "terminated" in entry["state"]}
    conditions: list[Object] = entries(status, "conditions")
    moments = [parse_timestamp(end.get("finishedAt")) for end in ends.values()]
    return PodState(
        name=metadata["name"],
        role=labels[JOBSET + "replicatedjob-name"],
        job_index=int(labels[JOBSET + "job-index"]),
        index=int(annotations[INDEX_ANNOTATION]),
        phase=status.get("phase", "Pending"),
        exit_codes={name: end["exitCode"] for name, end in ends.items()},
        conditions=frozenset((entry["type"], entry["status"]) for entry in conditions),
        restarts=sum(entry.get("restartCount", 0) for entry in containers),
        ready=any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions),
        ending=json.loads(annotations.get(END_ANNOTATION, "{}")).get("reason", ""),
        created_at=parse_timestamp(metadata["creationTimestamp"]) or 0.0,
        finished_at=max((moment for moment in moments if moment), default=None) if is_finished(pod) else None,
    )
