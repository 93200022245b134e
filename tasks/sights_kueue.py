"""From Kueue's objects (v1beta2) to what `primus why` and `primus queue` look at: pure readings."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from tasks.facts import seconds
from tasks.sights import Json, conditions, gpus_of, items, part, plain, requests_of
from workflows.sight import CheckSight, ClusterQueueSight, LocalQueueSight, QuotaSight, WorkloadSight

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
