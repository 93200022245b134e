"""One view and one parser for each kind of Kueue's objects (v1beta2) that runs wait for.

Absent means not known. Times are Unix seconds; quantities keep their Kubernetes text (`8`, `500m`, `16Gi`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from workflows.model.manifest import (
    Condition,
    Json,
    Quantities,
    add,
    conditions,
    gpus_of,
    items,
    part,
    plain,
    requests_of,
    seconds,
)

Usage = Mapping[tuple[str, str], Json]
"""By flavor and resource."""


@dataclass(frozen=True)
class AdmissionCheck:
    """One admission check of a Workload."""

    name: str
    state: str
    """`Pending`, `Ready`, `Retry` or `Rejected`."""
    message: str = ""


@dataclass(frozen=True)
class Workload:
    """A Workload of Kueue."""

    name: str
    owner: str = ""
    """Name of the JobSet (or other job) that it stands for."""
    uid: str = ""
    queue: str = ""
    cluster_queue: str = ""
    """Where quota is reserved; "" where none is."""
    priority: int = 0
    priority_class: str = ""
    active: bool = True
    created_at: float | None = None
    conditions: tuple[Condition, ...] = ()
    checks: tuple[AdmissionCheck, ...] = ()
    requeue_at: float | None = None
    """Not looked at again before."""
    requeues: int = 0
    gpus: int = 0
    requests: Quantities = field(default_factory=dict[str, str])
    """All pods together, by resource."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type."""
        return next((item for item in self.conditions if item.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether the condition of that type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


def workload_of(workload: Json) -> Workload:
    """A Workload of Kueue, v1beta2."""
    metadata, spec, status = part(workload, "metadata"), part(workload, "spec"), part(workload, "status")
    owners = [item for item in items(metadata, "ownerReferences") if item.get("controller", True)]
    total: dict[str, Decimal] = {}
    for pod_set in items(spec, "podSets"):
        add(total, requests_of(part(pod_set, "template", "spec")), int(pod_set.get("count") or 1))
    requeue = part(status, "requeueState")
    return Workload(
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
            AdmissionCheck(item.get("name", ""), item.get("state", "Pending"), item.get("message") or "")
            for item in items(status, "admissionChecks")
        ),
        requeue_at=seconds(requeue.get("requeueAt")),
        requeues=int(requeue.get("count") or 0),
        gpus=gpus_of(total),
        requests=plain(total),
    )


@dataclass(frozen=True)
class LocalQueue:
    """A LocalQueue of the namespace."""

    name: str
    cluster_queue: str = ""
    stopped: str = ""
    """Its stop policy; "" where it is not stopped."""
    pending: int = 0
    admitted: int = 0
    conditions: tuple[Condition, ...] = ()


def local_queue_of(queue: Json) -> LocalQueue:
    """A LocalQueue."""
    spec, status = part(queue, "spec"), part(queue, "status")
    return LocalQueue(
        name=part(queue, "metadata").get("name", ""),
        cluster_queue=spec.get("clusterQueue") or "",
        stopped=_stopped(spec),
        pending=int(status.get("pendingWorkloads") or 0),
        admitted=int(status.get("admittedWorkloads") or 0),
        conditions=conditions(queue),
    )


@dataclass(frozen=True)
class Quota:
    """Quota of one resource in one flavor of a ClusterQueue."""

    flavor: str
    resource: str
    nominal: str
    borrowing_limit: str = ""
    """"" where there is none."""
    used: str = "0"
    reserved: str = "0"
    borrowed: str = "0"


@dataclass(frozen=True)
class ClusterQueue:
    """A ClusterQueue."""

    name: str
    cohort: str = ""
    stopped: str = ""
    strategy: str = "BestEffortFIFO"
    pending: int = 0
    admitted: int = 0
    conditions: tuple[Condition, ...] = ()
    quotas: tuple[Quota, ...] = ()


def cluster_queue_of(queue: Json) -> ClusterQueue:
    """A ClusterQueue with its quotas, by flavor and resource."""
    spec, status = part(queue, "spec"), part(queue, "status")
    used, reserved = _usage(status, "flavorsUsage"), _usage(status, "flavorsReservation")
    quotas = [
        _quota(flavor.get("name", ""), resource, used, reserved)
        for group in items(spec, "resourceGroups")
        for flavor in items(group, "flavors")
        for resource in items(flavor, "resources")
    ]
    return ClusterQueue(
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


def _quota(flavor: str, resource: Json, used: Usage, reserved: Usage) -> Quota:
    key = flavor, str(resource.get("name", ""))
    limit = resource.get("borrowingLimit")
    return Quota(
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
