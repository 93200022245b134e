"""From the cluster's objects to what `primus why` looks at: pure readings, tolerant of what is missing.

From Kueue's objects (v1beta2) to what `primus why` and `primus queue` look at: pure readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from profiles.values import amount
from tasks.observe.objects import jobset_state, nodes_of, seconds
from workflows import labels
from workflows.model.cluster import (
    CheckSight,
    ClaimSight,
    ClusterQueueSight,
    ConditionFacts,
    ContainerFacts,
    EventSight,
    JobSetSight,
    LocalQueueSight,
    PodSight,
    QuotaSight,
    StepSight,
    WorkflowSight,
    WorkloadSight,
)

Json = Mapping[str, Any]
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
DONE = ("Succeeded", "Skipped", "Omitted")


def part(manifest: Json, *keys: str) -> Json:
    """The object under these keys; {} where there is none."""
    found: Json = manifest
    for key in keys:
        found = found.get(key) or {}
    return found


def items(manifest: Json, *keys: str) -> list[Json]:
    """The list under these keys; [] where there is none."""
    return list(part(manifest, *keys[:-1]).get(keys[-1]) or [])


def conditions(manifest: Json) -> tuple[ConditionFacts, ...]:
    """`status.conditions`."""
    return tuple(
        ConditionFacts(
            type=str(item.get("type", "")),
            status=str(item.get("status", "Unknown")),
            reason=item.get("reason") or "",
            message=item.get("message") or "",
            at=seconds(item.get("lastTransitionTime")),
        )
        for item in items(manifest, "status", "conditions")
    )


def requests_of(spec: Json) -> dict[str, Decimal]:
    """What a pod's containers ask for together; a resource with a limit only asks for its limit."""
    total: dict[str, Decimal] = {}
    for container in items(spec, "containers"):
        asked = {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
        for name, value in asked.items():
            total[name] = total.get(name, Decimal(0)) + _amount(str(value))
    return total


def _amount(quantity: str) -> Decimal:
    """The quantity, 0 where it is none of those that resources are written in."""
    try:
        return amount(quantity)
    except (ArithmeticError, LookupError):
        return Decimal(0)


def gpus_of(requests: Mapping[str, Decimal]) -> int:
    """GPUs among the resources: extended ones called after them (`amd.com/gpu`, `nvidia.com/gpu`, shared ones too)."""
    return int(sum(value for name, value in requests.items() if "/" in name and "gpu" in name.rpartition("/")[2]))


def plain(requests: Mapping[str, Decimal]) -> dict[str, str]:
    """Amounts as text without exponents."""
    return {name: f"{value.normalize():f}" for name, value in sorted(requests.items())}


def pod_sight(pod: Json) -> PodSight:
    """A Pod."""
    metadata, spec, status = part(pod, "metadata"), part(pod, "spec"), part(pod, "status")
    marks = part(metadata, "labels")
    images = {item.get("name", ""): item.get("image", "") for item in _containers(spec)}
    states = [*items(status, "initContainerStatuses"), *items(status, "containerStatuses")]
    return PodSight(
        name=metadata.get("name", ""),
        role=marks.get(labels.ROLE, ""),
        attempt=_whole(marks.get(labels.ATTEMPT)),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        created_at=seconds(metadata.get("creationTimestamp")),
        deleted_at=seconds(metadata.get("deletionTimestamp")),
        conditions=conditions(pod),
        containers=tuple(_container(item, images) for item in states),
        gates=tuple(str(item.get("name", "")) for item in items(spec, "schedulingGates")),
        requests=plain(requests_of(spec)),
    )


def _containers(spec: Json) -> list[Json]:
    return [*items(spec, "initContainers"), *items(spec, "containers")]


def _container(status: Json, images: Mapping[str, str]) -> ContainerFacts:
    state = part(status, "state")
    word = next((word for word in ("running", "terminated", "waiting") if word in state), "waiting")
    told, last = part(state, word), part(status, "lastState", "terminated")
    ended = f"exit code {last.get('exitCode')} ({last.get('reason', '')})" if last else ""
    return ContainerFacts(
        name=status.get("name", ""),
        # The status names what was pulled; where nothing could be, the spec names what was asked for.
        image=images.get(status.get("name", ""), "") or status.get("image", ""),
        state=word,
        reason=told.get("reason") or "",
        message=told.get("message") or "",
        restarts=int(status.get("restartCount") or 0),
        last_exit=ended,
    )


def event_sight(event: Json) -> EventSight:
    """An Event, of the old series or the new."""
    about = part(event, "involvedObject") or part(event, "regarding")
    at = event.get("lastTimestamp") or part(event, "series").get("lastObservedTime") or event.get("eventTime")
    created = part(event, "metadata").get("creationTimestamp")
    return EventSight(
        kind=about.get("kind", ""),
        name=about.get("name", ""),
        reason=event.get("reason") or "",
        message=event.get("message") or event.get("note") or "",
        at=seconds(at or event.get("firstTimestamp") or created),
        count=int(event.get("count") or part(event, "series").get("count") or 1),
        warning=event.get("type") != "Normal",
    )


def jobset_sight(jobset: Json, priorities: Mapping[str, int] | None = None) -> JobSetSight:
    """A JobSet.

    Args:
        jobset: the object.
        priorities: value of each priority class, where the cluster keeps no object for it.
    """
    metadata, spec = part(jobset, "metadata"), part(jobset, "spec")
    marks = part(metadata, "labels")
    total: dict[str, Decimal] = {}
    pods, classes = 0, [marks.get(PRIORITY_LABEL, "")]
    for job in items(spec, "replicatedJobs"):
        template = part(job, "template", "spec")
        pod = part(template, "template", "spec")
        count = int(job.get("replicas", 1)) * int(template.get("parallelism", 1))
        pods += count
        classes.append(pod.get("priorityClassName") or "")
        for name, value in requests_of(pod).items():
            total[name] = total.get(name, Decimal(0)) + value * count
    priority_class = next((name for name in classes if name), "")
    return JobSetSight(
        name=metadata.get("name", ""),
        run=marks.get(labels.RUN, ""),
        attempt=_whole(marks.get(labels.ATTEMPT)),
        queue=marks.get(QUEUE_LABEL, ""),
        priority=(priorities or {}).get(priority_class, 0),
        priority_class=priority_class,
        suspended=bool(spec.get("suspend")),
        state=jobset_state({"status": part(jobset, "status")}),
        created_at=seconds(metadata.get("creationTimestamp")),
        conditions=conditions(jobset),
        pods=pods,
        gpus=gpus_of(total),
    )


def workflow_sight(workflow: Json) -> WorkflowSight:
    """A Workflow with its steps that are not done well."""
    metadata, status = part(workflow, "metadata"), part(workflow, "status")
    steps = [
        StepSight(
            name=node.get("displayName") or node.get("name", ""),
            kind=node.get("type", ""),
            phase=node.get("phase") or "Pending",
            message=node.get("message") or "",
        )
        for node in nodes_of(workflow)
        if node.get("phase") not in DONE
    ]
    return WorkflowSight(
        name=metadata.get("name", ""),
        phase=status.get("phase") or "",
        message=status.get("message") or "",
        suspended=bool(part(workflow, "spec").get("suspend")),
        created_at=seconds(metadata.get("creationTimestamp")),
        steps=tuple(steps),
    )


def claim_sight(claim: Json) -> ClaimSight:
    """A PersistentVolumeClaim."""
    return ClaimSight(
        name=part(claim, "metadata").get("name", ""),
        phase=part(claim, "status").get("phase") or "Pending",
        storage_class=part(claim, "spec").get("storageClassName") or "",
    )


def _whole(text: object) -> int:
    return int(str(text)) if str(text or "").isdigit() else 0


Usage = Mapping[tuple[str, str], Json]
"""By flavor and resource."""


def workload_sight(workload: Json) -> WorkloadSight:
    """A Workload of Kueue, v1beta2."""
    metadata, spec, status = part(workload, "metadata"), part(workload, "spec"), part(workload, "status")
    owners = [item for item in items(metadata, "ownerReferences") if item.get("controller", True)]
    total: dict[str, Decimal] = {}
    for pod_set in items(spec, "podSets"):
        for name, value in requests_of(part(pod_set, "template", "spec")).items():
            total[name] = total.get(name, Decimal(0)) + value * int(pod_set.get("count") or 1)
    requeue = part(status, "requeueState")
    return WorkloadSight(
        name=metadata.get("name", ""),
        owner=str(owners[0].get("name", "")) if owners else "",
        uid=metadata.get("uid", ""),
        queue=spec.get("queueName") or "",
        cluster_queue=part(status, "admission").get("clusterQueue") or "",
        priority=int(spec.get("priority") or 0),
        priority_class=part(spec, "priorityClassRef").get("name") or "",
        active=spec.get("active") is not False,
        created_at=seconds(metadata.get("creationTimestamp")),
        conditions=conditions(workload),
        checks=tuple(
            CheckSight(item.get("name", ""), item.get("state", "Pending"), item.get("message") or "")
            for item in items(status, "admissionChecks")
        ),
        requeue_at=seconds(requeue.get("requeueAt")),
        requeues=int(requeue.get("count") or 0),
        gpus=gpus_of(total),
        requests=plain(total),
    )


def local_queue_sight(queue: Json) -> LocalQueueSight:
    """A LocalQueue."""
    spec, status = part(queue, "spec"), part(queue, "status")
    return LocalQueueSight(
        name=part(queue, "metadata").get("name", ""),
        cluster_queue=spec.get("clusterQueue") or "",
        stopped=_stopped(spec),
        pending=int(status.get("pendingWorkloads") or 0),
        admitted=int(status.get("admittedWorkloads") or 0),
        conditions=conditions(queue),
    )


def cluster_queue_sight(queue: Json) -> ClusterQueueSight:
    """A ClusterQueue with its quotas, by flavor and resource."""
    spec, status = part(queue, "spec"), part(queue, "status")
    used, reserved = _usage(status, "flavorsUsage"), _usage(status, "flavorsReservation")
    quotas = [
        _quota(flavor.get("name", ""), resource, used, reserved)
        for group in items(spec, "resourceGroups")
        for flavor in items(group, "flavors")
        for resource in items(flavor, "resources")
    ]
    return ClusterQueueSight(
        name=part(queue, "metadata").get("name", ""),
        cohort=spec.get("cohortName") or "",
        stopped=_stopped(spec),
        strategy=spec.get("queueingStrategy") or "BestEffortFIFO",
        pending=int(status.get("pendingWorkloads") or 0),
        admitted=int(status.get("admittedWorkloads") or 0),
        conditions=conditions(queue),
        quotas=tuple(quotas),
    )


def _usage(status: Json, key: str) -> Usage:
    return {
        (flavor.get("name", ""), resource.get("name", "")): resource
        for flavor in items(status, key)
        for resource in items(flavor, "resources")
    }


def _quota(flavor: str, resource: Json, used: Usage, reserved: Usage) -> QuotaSight:
    key = flavor, str(resource.get("name", ""))
    limit = resource.get("borrowingLimit")
    return QuotaSight(
        flavor=flavor,
        resource=key[1],
        nominal=str(resource.get("nominalQuota", "0")),
        borrowing_limit="" if limit is None else str(limit),
        used=str(used.get(key, {}).get("total", "0")),
        reserved=str(reserved.get(key, {}).get("total", "0")),
        borrowed=str(used.get(key, {}).get("borrowed", "0")),
    )


def _stopped(spec: Json) -> str:
    policy = spec.get("stopPolicy") or "None"
    return "" if policy == "None" else str(policy)
