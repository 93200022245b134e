"""The next state of a JobSet: its jobs' outcomes, its status, the pods to create and to end. Pure.

The outcomes follow JobSet 0.12 and the Job controller for what runs here: indexed jobs that start at once, and no
restarts of the whole set. Pods have the labels, names and variables that JobSet 0.12 writes.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.embedded.objects import entries, parse_timestamp, section, timestamp

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet of generated names."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
JOBSET = "jobset.sigs.k8s.io/"


def create_pod(jobset: Object, replicated: Object, job_index: int, index: int, earlier: int) -> Object:
    """The complete manifest of a pod; `earlier` is the number of former pods of this index, so that names differ."""
    metadata, role = jobset["metadata"], replicated["name"]
    template = copy.deepcopy(replicated["template"]["spec"]["template"])
    host = f"{metadata['name']}-{role}-{job_index}-{index}"
    identity = f"{metadata['uid']}/{host}/{earlier}"
    own: Object = section(template, "metadata")
    marks = _marks(jobset, replicated, job_index)
    spec: Object = template["spec"]
    spec["hostname"] = host
    network: Object = section(jobset["spec"], "network")
    spec["subdomain"] = network.get("subdomain") or metadata["name"]
    for container in [*entries(spec, "initContainers"), *spec["containers"]]:
        container["env"] = _with_index(entries(container, "env"))
    annotations = {**section(own, "annotations"), **marks, INDEX_ANNOTATION: str(index)}
    if network.get("enableDNSHostnames", True):
        annotations["primus-flows.io/hosts"] = metadata["uid"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{host}-{suffix(identity)}",
            "namespace": metadata.get("namespace", "default"),
            "labels": {**section(own, "labels"), **marks, **_job_labels(metadata, role, job_index, index)},
            "annotations": annotations,
        },
        "spec": spec,
    }


def suffix(text: str) -> str:
    """Five characters that are always the same for the same text."""
    number = zlib.crc32(text.encode())
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[digit]
    return letters


def _marks(jobset: Object, replicated: Object, job_index: int) -> dict[str, str]:
    replicas = 1 if replicated.get("replicas") is None else replicated["replicas"]
    marks = {
        "jobset-name": jobset["metadata"]["name"],
        "jobset-uid": jobset["metadata"]["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": str(replicas),
        "job-index": str(job_index),
        "restart-attempt": "0",
    }
    coordinator = jobset["spec"].get("coordinator")
    if coordinator:
        name, network = jobset["metadata"]["name"], section(jobset["spec"], "network")
        which = f"{coordinator.get('jobIndex') or 0}-{coordinator.get('podIndex') or 0}"
        host = f"{name}-{coordinator['replicatedJob']}-{which}.{network.get('subdomain') or name}"
        marks["coordinator"] = host
    return {JOBSET + key: value for key, value in marks.items()}


def _job_labels(metadata: Object, role: str, job_index: int, index: int) -> dict[str, str]:
    job = f"{metadata['name']}-{role}-{job_index}"
    return {"batch.kubernetes.io/job-name": job, "job-name": job, INDEX_ANNOTATION: str(index)}


def _with_index(env: list[Object]) -> list[Object]:
    if any(entry["name"] == "JOB_COMPLETION_INDEX" for entry in env):
        return env
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}
    return [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]


SUSPENDED = "Suspended"
"""Reason of ending a pod whose JobSet is suspended: no failure of its job."""
BACKOFF_LIMIT = 6
"""The Job controller's default."""
BACKOFF_MAX_SECONDS = 360.0
Object = dict[str, Any]


@dataclass(frozen=True)
class PodState:
    """One pod of the JobSet."""

    name: str
    role: str
    job_index: int
    index: int
    phase: str
    """Pending, Running, Succeeded or Failed."""
    exit_codes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of ended containers, by name."""
    conditions: frozenset[tuple[str, str]] = frozenset()
    """Type and status."""
    restarts: int = 0
    ready: bool = False
    ending: str = ""
    """Why we ended it, "" where we did not."""
    created_at: float = 0.0
    finished_at: float | None = None

    @property
    def unfinished(self) -> bool:
        """Whether something of it may still run."""
        return self.phase not in ("Succeeded", "Failed")


@dataclass(frozen=True)
class JobSetStep:
    """What to do next; all of it may be done again."""

    status: Object
    create: tuple[Object, ...] = ()
    end: tuple[str, ...] = ()
    """Pods to end; their objects are kept, except where `forget` is set."""
    end_reason: str = ""
    end_message: str = ""
    forget: bool = False
    delete: bool = False
    """The time to live after the end is over."""
    wake_at: float | None = None
    """When to ask again even if nothing happens; seconds since 1970."""


@dataclass(frozen=True)
class JobState:
    """One job (one replica of a replicated job)."""

    name: str
    role: str
    outcome: str
    """`active`, `complete` or `failed`."""
    message: str = ""
    ended_at: float = 0.0
    ready: bool = False
    running: bool = False
    missing: tuple[tuple[int, int], ...] = ()
    """Index and how many pods it had, for every pod to create now."""
    wake_at: float | None = None


def advance_jobset(jobset: Object, pods: Sequence[PodState], now: float, backoff_seconds: float) -> JobSetStep:
    """The next step of a JobSet at `now` (seconds since 1970), from all of its pods that still have an object.

    A failed pod is replaced after `backoff_seconds` at first.
    """
    status: Object = section(jobset, "status")
    unfinished = tuple(sorted(pod.name for pod in pods if pod.unfinished))
    if status.get("terminalState"):
        return _after_the_end(jobset, status, unfinished, now)
    if jobset["spec"].get("suspend"):
        return _is_suspended(jobset, pods, now)
    jobs = [
        _job(jobset, replicated, index, pods, now, backoff_seconds)
        for replicated in jobset["spec"]["replicatedJobs"]
        for index in range(_replicas(replicated))
    ]
    conditions = [entry for entry in entries(status, "conditions") if entry["type"] != SUSPENDED]
    status = {**status, "restarts": 0, "conditions": conditions, "replicatedJobsStatus": _summary(jobset, jobs)}
    ended = _outcome(jobset["spec"], jobs)
    if ended is not None:
        return _end(jobset, status, ended, unfinished, now)
    wakes = [job.wake_at for job in jobs if job.wake_at is not None]
    return JobSetStep(status, create=_new_pods(jobset, jobs), wake_at=min(wakes, default=None))


def _replicas(replicated: Object) -> int:
    return 1 if replicated.get("replicas") is None else replicated["replicas"]


def _new_pods(jobset: Object, jobs: Sequence[JobState]) -> tuple[Object, ...]:
    replicated = {entry["name"]: entry for entry in jobset["spec"]["replicatedJobs"]}
    return tuple(
        create_pod(jobset, replicated[job.role], int(job.name.rpartition("-")[2]), index, earlier)
        for job in jobs
        for index, earlier in job.missing
    )


# One job.


def _job(
    jobset: Object, replicated: Object, job_index: int, pods: Sequence[PodState], now: float, backoff_seconds: float
) -> JobState:
    role = replicated["name"]
    name = f"{jobset['metadata']['name']}-{role}-{job_index}"
    spec = replicated["template"]["spec"]
    mine = [pod for pod in pods if pod.role == role and pod.job_index == job_index and pod.ending != SUSPENDED]
    parallelism = 1 if spec.get("parallelism") is None else spec["parallelism"]
    completions = parallelism if spec.get("completions") is None else spec["completions"]
    failed = _failure(spec, mine, now)
    if failed:
        ended_at = min((pod.finished_at for pod in mine if pod.phase == "Failed" and pod.finished_at), default=now)
        return JobState(name, role, "failed", failed, ended_at)
    done = {pod.index for pod in mine if pod.phase == "Succeeded"}
    if len(done) >= completions:
        ended_at = max((pod.finished_at or now for pod in mine if pod.phase == "Succeeded"), default=now)
        return JobState(name, role, "complete", "", ended_at)
    active = {pod.index for pod in mine if pod.unfinished}
    free = max(0, min(parallelism, completions - len(done)) - len(active))
    wanted = [index for index in range(completions) if index not in done and index not in active][:free]
    due = _backed_off(spec, mine, backoff_seconds)
    missing = [(index, sum(pod.index == index for pod in mine)) for index in wanted]
    ready = len(done) + sum(pod.ready for pod in mine) >= min(parallelism, completions)
    wakes = [moment for moment in (due if wanted else None, _deadline(spec, mine)) if moment is not None]
    later = due is not None and due > now
    return JobState(
        name,
        role,
        "active",
        ready=ready,
        running=bool(active),
        missing=() if later else tuple(missing),
        wake_at=min((moment for moment in wakes if moment > now), default=None),
    )


def _failure(spec: Object, pods: Sequence[PodState], now: float) -> str:
    """Why the job has failed, "" where it has not."""
    counted = 0
    for pod in sorted(pods, key=lambda pod: (pod.finished_at or now, pod.name)):
        if pod.phase != "Failed":
            continue
        action, index = _policy(spec, pod)
        if action == "FailJob":
            return f"PodFailurePolicy: pod {pod.name} matched FailJob rule at index {index}"
        counted += action != "Ignore"
    limit = BACKOFF_LIMIT if spec.get("backoffLimit") is None else spec["backoffLimit"]
    if counted > limit:
        return "BackoffLimitExceeded: Job has reached the specified backoff limit"
    if spec["template"]["spec"].get("restartPolicy") == "OnFailure":
        # A Job counts restarts of containers in pods that still live; at limit 0 the first is one too many.
        restarts = sum(pod.restarts for pod in pods if pod.unfinished)
        if restarts > 0 and restarts >= limit:
            return "BackoffLimitExceeded: Job has reached the specified backoff limit"
    deadline = _deadline(spec, pods)
    if deadline is not None and now >= deadline:
        return "DeadlineExceeded: Job was active longer than specified deadline"
    return ""


def _deadline(spec: Object, pods: Sequence[PodState]) -> float | None:
    if spec.get("activeDeadlineSeconds") is None or not pods:
        return None
    return min(pod.created_at for pod in pods) + spec["activeDeadlineSeconds"]


def _policy(spec: Object, pod: PodState) -> tuple[str, int]:
    """Action of the first matching rule of the pod failure policy, and its index; "Count" where none matches."""
    for index, rule in enumerate(entries(spec, "podFailurePolicy", "rules")):
        if _matches(rule, pod):
            return rule["action"], index
    return "Count", -1


def _matches(rule: Object, pod: PodState) -> bool:
    if rule.get("onExitCodes"):
        wanted = rule["onExitCodes"]
        name = wanted.get("containerName")
        codes = [code for container, code in pod.exit_codes.items() if code != 0 and name in (None, "", container)]
        inside = wanted["operator"] == "In"
        return any((code in wanted["values"]) == inside for code in codes)
    return any(
        (entry["type"], entry.get("status") or "True") in pod.conditions for entry in entries(rule, "onPodConditions")
    )


def _backed_off(spec: Object, pods: Sequence[PodState], backoff_seconds: float) -> float | None:
    failures = [pod for pod in pods if pod.phase == "Failed" and _policy(spec, pod)[0] != "Ignore"]
    newest = max((pod.finished_at for pod in failures if pod.finished_at is not None), default=None)
    if newest is None:
        return None
    return newest + min(BACKOFF_MAX_SECONDS, backoff_seconds * 2 ** min(len(failures) - 1, 20))


# The whole set.


def _outcome(spec: Object, jobs: Sequence[JobState]) -> tuple[str, str, str] | None:
    """Terminal state, reason and message, None while it goes on. A failed job outweighs a success policy."""
    failed = sorted((job for job in jobs if job.outcome == "failed"), key=lambda job: (job.ended_at, job.name))
    if failed:
        reason, text = (
            ("FailedJobs", "jobset failed due to one or more job failures")
            if spec.get("failurePolicy") is None
            else ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
        )
        return "Failed", reason, f"{text} (first failed job: {failed[0].name}: {failed[0].message})"
    policy = section(spec, "successPolicy")
    targets = policy.get("targetReplicatedJobs") or [entry["name"] for entry in spec["replicatedJobs"]]
    states = [job.outcome == "complete" for job in jobs if job.role in targets]
    met = any(states) if policy.get("operator", "All") == "Any" else all(states)
    return ("Completed", "AllJobsCompleted", "jobset completed successfully") if met else None


def _end(
    jobset: Object, status: Object, ended: tuple[str, str, str], unfinished: tuple[str, ...], now: float
) -> JobSetStep:
    state, reason, message = ended
    condition = {"type": state, "status": "True", "reason": reason, "message": message}
    condition["lastTransitionTime"] = timestamp(now)
    status = {**status, "terminalState": state, "conditions": [*status["conditions"], condition]}
    return _after_the_end(jobset, status, unfinished, now)


def _after_the_end(jobset: Object, status: Object, unfinished: tuple[str, ...], now: float) -> JobSetStep:
    state = status["terminalState"]
    message = next((entry["message"] for entry in status["conditions"] if entry["type"] == state), "")
    lifetime = jobset["spec"].get("ttlSecondsAfterFinished")
    ended = next((entry["lastTransitionTime"] for entry in status["conditions"] if entry["type"] == state), None)
    expires = None if lifetime is None else (parse_timestamp(ended) or now) + lifetime
    return JobSetStep(
        status,
        end=unfinished,
        end_reason=f"JobSet{state}",
        end_message=message,
        delete=expires is not None and now >= expires,
        wake_at=None if expires is None or now >= expires else expires,
    )


def _is_suspended(jobset: Object, pods: Sequence[PodState], now: float) -> JobSetStep:
    status: Object = section(jobset, "status")
    conditions: list[Object] = entries(status, "conditions")
    if not any(entry["type"] == SUSPENDED for entry in conditions):
        reason, message = "SuspendedJobs", "jobset is suspended"
        condition = {"type": SUSPENDED, "status": "True", "reason": reason, "message": message}
        conditions = [*conditions, {**condition, "lastTransitionTime": timestamp(now)}]
    jobs = [
        {"name": entry["name"], "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": _replicas(entry)}
        for entry in jobset["spec"]["replicatedJobs"]
    ]
    status = {**status, "restarts": 0, "conditions": conditions, "replicatedJobsStatus": jobs}
    everything = tuple(sorted(pod.name for pod in pods))
    return JobSetStep(status, end=everything, end_reason=SUSPENDED, end_message="jobset is suspended", forget=True)


def _summary(jobset: Object, jobs: Sequence[JobState]) -> list[Object]:
    rows: list[Object] = []
    for replicated in jobset["spec"]["replicatedJobs"]:
        own = [job for job in jobs if job.role == replicated["name"]]
        rows.append(
            {
                "name": replicated["name"],
                "ready": sum(job.ready and job.outcome == "active" for job in own),
                "succeeded": sum(job.outcome == "complete" for job in own),
                "failed": sum(job.outcome == "failed" for job in own),
                "active": sum(job.running for job in own),
                "suspended": 0,
            }
        )
    return rows
