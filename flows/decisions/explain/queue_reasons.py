"""What holds a workload in Kueue: from its conditions, its queues and the other workloads. Pure.

The message of QuotaReserved=False is taken apart. Its wording is that of Kueue 0.19 (`pkg/scheduler/flavorassigner`,
`pkg/cache/scheduler/tas_flavor_snapshot.go`, `pkg/controller/core`). Finer reasons than `Pending` and `Inadmissible`
come only with its gate UnadmittedWorkloadsObservability, so the message decides and the reason helps. The order of a
queue says which workload comes before which, and which hold the quota.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flows.decisions.explain.reasons import BLOCKS_FIRST, Hold, Reason, Witness, of_condition
from workflows.model.manifest import Condition
from workflows.model.queues import ClusterQueue, LocalQueue, Quota, Workload

_MORE = re.compile(r"insufficient unused quota for (\S+) in flavor ([^\s,;]+), ([^\s,;]+) more needed")
_NEVER = re.compile(
    r"insufficient quota for (\S+) in flavor ([^\s,;]+), (?:previously considered podsets requests \(([^)]*)\) \+ "
    r"current podset request \(([^)]*)\)|request) > maximum capacity \(([^)]*)\)"
)
_TAINT = re.compile(r"untolerated taint (?:&?Taint)?\{([^}]*)\} in flavor ([^\s,;]+)")
_AFFINITY = re.compile(r"flavor ([^\s,;]+) doesn't match node affinity")
_TOPOLOGY = re.compile(
    r"topology \"([^\"]+)\" (doesn't allow to fit[^.,;]*|allows to fit only[^.,;]*)"
    r"(?:\. Total nodes: \d+; excluded: ([^;]*))?"
)
_NO_LEVEL = re.compile(
    r"Flavor \"([^\"]+)\" (?:does not contain the requested level|does not support Topology|supports only)"
)
_PREEMPTING = re.compile(r"Pending the preemption of (\d+) workload")
_BLOCKED_QUEUE = re.compile(r"(LocalQueue|ClusterQueue) (\S+) (doesn't exist|not found|is inactive|is stopped)")
_PREEMPTED = re.compile(r"Preempted to accommodate a workload \(UID: ([^,)]+)(?:, JobUID: ([^)]+))?\) due to ([^;]+)")
_PODS_READY = "admitted workloads to be in PodsReady condition"


@dataclass(frozen=True)
class Shortage:
    """Quota that is lacking now and may become free."""

    resource: str
    flavor: str
    more: str


@dataclass(frozen=True)
class Ceiling:
    """A request above everything that the queue can ever give."""

    resource: str
    flavor: str
    requested: str
    capacity: str


@dataclass(frozen=True)
class Misfit:
    """A flavor that does not fit, whatever its quota."""

    flavor: str
    why: str


@dataclass(frozen=True)
class NoPlace:
    """Topology-aware scheduling finds no place for the pods beside each other."""

    topology: str
    detail: str
    excluded: str = ""
    """Which nodes were left out, and why, in Kueue's words."""


@dataclass(frozen=True)
class Preemption:
    """The workload that took its place."""

    uid: str
    job_uid: str
    why: str


@dataclass(frozen=True)
class Refusal:
    """One message of Kueue, taken apart; every part may be empty."""

    shortages: tuple[Shortage, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    places: tuple[NoPlace, ...] = ()
    preempting: int = 0
    """Workloads that are being preempted for it."""
    queue: tuple[str, str, str] | None = None
    """(kind, name, what is wrong with it)."""
    preempted: Preemption | None = None
    pods_ready: bool = False
    """It waits until the pods of those admitted before are ready."""


def read_refusal(message: str) -> Refusal:
    """What the message of QuotaReserved, Evicted or Preempted says."""
    pending, blocked = _PREEMPTING.search(message), _BLOCKED_QUEUE.search(message)
    preempted = _PREEMPTED.search(message)
    return Refusal(
        shortages=tuple(Shortage(*found) for found in _MORE.findall(message)),
        ceilings=tuple(
            Ceiling(resource, flavor, asked or "", capacity)
            for resource, flavor, _, asked, capacity in _NEVER.findall(message)
        ),
        misfits=(
            *(
                Misfit(flavor, f"its taint {_taint(taint)} is not tolerated")
                for taint, flavor in _TAINT.findall(message)
            ),
            *(Misfit(flavor, "its labels do not match the pods' selector") for flavor in _AFFINITY.findall(message)),
            *(Misfit(flavor, "it does not have the requested topology") for flavor in _NO_LEVEL.findall(message)),
        ),
        places=tuple(
            NoPlace(name, detail.strip(), excluded.strip(" .")) for name, detail, excluded in _TOPOLOGY.findall(message)
        ),
        preempting=int(pending.group(1)) if pending else 0,
        queue=(blocked.group(1), blocked.group(2), blocked.group(3)) if blocked else None,
        preempted=Preemption(preempted.group(1), preempted.group(2) or "", preempted.group(3).strip())
        if preempted
        else None,
        pods_ready=_PODS_READY in message,
    )


def _taint(text: str) -> str:
    """`key=value:Effect` of Go's own print of a taint."""
    words = text.split()
    if len(words) >= 4:
        return f"{words[0]}={words[1]}:{words[2]}"
    return f"{words[0]}:{words[1]}" if len(words) == 3 else text


@dataclass(frozen=True)
class NamespaceQueues:
    """Everything of a namespace that has to do with queues."""

    now: float
    workloads: tuple[Workload, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    cluster_queues: tuple[ClusterQueue, ...] = ()
    unread: frozenset[str] = frozenset()
    """Kinds that could not be read: nothing is concluded from their absence."""

    def local_queue(self, workload: Workload) -> LocalQueue | None:
        """The workload's LocalQueue."""
        return next((item for item in self.local_queues if item.name == workload.queue), None)

    def cluster_queue_of(self, workload: Workload) -> str:
        """Name of its ClusterQueue; "" where it is not known."""
        local = self.local_queue(workload)
        return workload.cluster_queue or (local.cluster_queue if local else "")

    def cluster_queue(self, workload: Workload) -> ClusterQueue | None:
        """Its ClusterQueue."""
        name = self.cluster_queue_of(workload)
        return next((item for item in self.cluster_queues if item.name == name), None)


def finished(workload: Workload) -> bool:
    """Whether its job has ended."""
    return workload.holds("Finished")


def pending(workload: Workload) -> bool:
    """Whether it waits: neither admitted nor over nor put away."""
    return not (finished(workload) or workload.holds("QuotaReserved") or not workload.active)


def waits_since(workload: Workload) -> float:
    """The moment that counts in the line: when it was created, or evicted because its pods were not ready in time."""
    evicted = workload.condition("Evicted")
    late = evicted is not None and evicted.status == "True" and evicted.reason == "PodsReadyTimeout"
    at = evicted.at if evicted is not None and late else workload.created_at
    return at or 0.0


def in_order(workloads: Sequence[Workload]) -> list[Workload]:
    """As Kueue looks at them: higher priority first, then those that wait longer."""
    return sorted(workloads, key=lambda item: (-item.priority, waits_since(item), item.name))


def position(workload: Workload, queues: NamespaceQueues) -> tuple[int, int]:
    """(place counted from 1, how many wait) among those of the same queue that this namespace shows; 0: not in line."""
    queue = queues.cluster_queue_of(workload) or workload.queue
    waiting = [
        item for item in queues.workloads if pending(item) and (queues.cluster_queue_of(item) or item.queue) == queue
    ]
    names = [item.name for item in in_order(waiting)]
    return (names.index(workload.name) + 1 if workload.name in names else 0), len(names)


def holders(workload: Workload, queues: NamespaceQueues) -> list[Workload]:
    """The workloads that hold quota of the same ClusterQueue, as far as this namespace shows; the largest first."""
    queue = queues.cluster_queue_of(workload)
    held = [item for item in queues.workloads if item.cluster_queue and item.cluster_queue == queue]
    held = [item for item in held if item.name != workload.name and not finished(item)]
    return sorted(held, key=lambda item: (-item.gpus, item.name))


def quota(workload: Workload, queues: NamespaceQueues, flavor: str, resource: str) -> Quota | None:
    """The quota in question."""
    queue = queues.cluster_queue(workload)
    quotas = queue.quotas if queue else ()
    return next((item for item in quotas if (item.flavor, item.resource) == (flavor, resource)), None)


_NAMED = 4
"""So many others are named in one sentence."""
QUEUE_GONE = ("doesn't exist", "not found")
_BY_REASON = {
    "WaitingForPreemptedWorkloads": Hold.PREEMPTING,
    "WaitingForQuota": Hold.QUOTA,
    "TopologyPlacementFailed": Hold.TOPOLOGY,
    "ExceedsMaxQuota": Hold.QUOTA_NEVER,
    "NoMatchingFlavor": Hold.FLAVOR,
    "Misconfigured": Hold.QUEUE_MISSING,
    "Suspended": Hold.QUEUE_STOPPED,
    "WaitingForPodsReady": Hold.PODS_READY,
}
"""Kueue's own finer reasons, where it is configured to give them."""


def queue_reasons(workload: Workload, queues: NamespaceQueues) -> tuple[Reason, ...]:
    """Why Kueue does not let it run; empty where it is admitted or over."""
    if finished(workload) or workload.holds("Admitted"):
        return ()
    if not workload.active:
        return (_deactivated(workload),)
    if workload.holds("QuotaReserved"):
        return (_checks(workload),)
    found = [rule(workload, queues) for rule in (_missing, _stopped, _later, _refused, _preempted)]
    reasons = {reason.hold: reason for reason in reversed(found) if reason is not None}
    return tuple(sorted(reasons.values(), key=lambda reason: BLOCKS_FIRST[reason.hold])) or (_queued(workload, queues),)


def reservation(workload: Workload) -> Condition:
    """Condition QuotaReserved; an empty one where Kueue has not said anything yet."""
    return workload.condition("QuotaReserved") or Condition("QuotaReserved", "Unknown")


def _condition_witnesses(workload: Workload, *kinds: str) -> tuple[Witness, ...]:
    found = (workload.condition(kind) for kind in kinds)
    return tuple(of_condition("Workload", workload.name, item) for item in found if item is not None)


def _deactivated(workload: Workload) -> Reason:
    evicted = workload.condition("Evicted")
    why = evicted.message or evicted.reason if evicted else "somebody set spec.active to false"
    limit = evicted is not None and "RequeuingLimitExceeded" in f"{evicted.reason} {evicted.message}"
    gave_up = f"Kueue gave up after {workload.requeues} tries" if limit else "the workload is deactivated"
    return Reason(
        Hold.DEACTIVATED,
        f"{gave_up}: {why}",
        f"after the fix set spec.active of Workload {workload.name} to true, or stop and resume the run",
        _condition_witnesses(workload, "Evicted", "QuotaReserved")
        or (Witness("Workload", workload.name, "spec.active=false"),),
    )


def _checks(workload: Workload) -> Reason:
    waiting = [item for item in workload.checks if item.state != "Ready"]
    states = ", ".join(f"{item.name} ({item.state})" for item in waiting[:_NAMED])
    rejected = any(item.state == "Rejected" for item in waiting)
    if not waiting:
        condition = workload.condition("Admitted")
        why = condition.message if condition else "Kueue has not admitted it yet"
        return Reason(
            Hold.ADMISSION_CHECK,
            f"quota is reserved, admission is pending: {why}",
            "wait; it takes seconds, unless Kueue's controller is away",
            _condition_witnesses(workload, "Admitted", "QuotaReserved"),
        )
    return Reason(
        Hold.ADMISSION_CHECK,
        f"quota is reserved, but admission checks are not passed: {states}",
        "the check rejected it: read its message" if rejected else "wait for the check, or ask whoever runs it",
        (
            *(Witness("Workload", workload.name, f"check {item.name}", item.state, item.message) for item in waiting),
            *_condition_witnesses(workload, "QuotaReserved"),
        ),
    )


def _missing(workload: Workload, queues: NamespaceQueues) -> Reason | None:
    condition, refusal = reservation(workload), read_refusal(reservation(workload).message)
    kind, name = ("LocalQueue", workload.queue)
    gone = "LocalQueue" not in queues.unread and queues.local_queue(workload) is None
    if refusal.queue and refusal.queue[2] in QUEUE_GONE:
        kind, name, _ = refusal.queue
        gone = True
    elif not gone and "ClusterQueue" not in queues.unread and queues.cluster_queue(workload) is None:
        kind, name = "ClusterQueue", queues.cluster_queue_of(workload)
        gone = bool(name)
    if not gone:
        return None
    return Reason(
        Hold.QUEUE_MISSING,
        f"{kind} {name or '(none named)'} does not exist",
        f"create {kind} {name}, or name another queue in the profile (`queue`)",
        (of_condition("Workload", workload.name, condition),),
    )


def _stopped(workload: Workload, queues: NamespaceQueues) -> Reason | None:
    local, queue = queues.local_queue(workload), queues.cluster_queue(workload)
    for kind, item in (("LocalQueue", local), ("ClusterQueue", queue)):
        if item is None:
            continue
        inactive = next(
            (entry for entry in item.conditions if entry.type == "Active" and entry.status == "False"), None
        )
        if inactive is None and item.stopped in ("", "None"):
            continue
        witness = of_condition(kind, item.name, inactive) if inactive else Witness(kind, item.name, "spec.stopPolicy")
        why = inactive.message if inactive else f"stop policy {item.stopped}"
        return Reason(
            Hold.QUEUE_STOPPED,
            f"{kind} {item.name} admits nobody: {why}",
            f"ask the owner of {kind} {item.name} to set it right or to start it again",
            (witness, *_condition_witnesses(workload, "QuotaReserved")),
        )
    refusal = read_refusal(reservation(workload).message)
    if refusal.queue and refusal.queue[2] not in QUEUE_GONE:
        kind, name, wrong = refusal.queue
        return Reason(
            Hold.QUEUE_STOPPED,
            f"{kind} {name} {wrong}",
            f"ask the owner of {kind} {name} to start it again",
            _condition_witnesses(workload, "QuotaReserved"),
        )
    return None


def _later(workload: Workload, queues: NamespaceQueues) -> Reason | None:
    if workload.requeue_at is None or workload.requeue_at <= queues.now:
        return None
    return Reason(
        Hold.REQUEUE_LATER,
        f"evicted {workload.requeues} times; Kueue looks at it again in {workload.requeue_at - queues.now:.0f} s",
        "wait; find out why its pods were not ready in time (primus logs, pod events)",
        _condition_witnesses(workload, "Evicted", "Requeued", "QuotaReserved"),
    )


def _preempted(workload: Workload, queues: NamespaceQueues) -> Reason | None:
    if not (workload.holds("Preempted") or workload.holds("Evicted")):
        return None
    condition = workload.condition("Preempted") if workload.holds("Preempted") else workload.condition("Evicted")
    if condition is None or "reempt" not in f"{condition.type}{condition.reason}":
        return None
    by = read_refusal(condition.message).preempted
    taker = next((item for item in queues.workloads if by and by.uid in (item.uid, item.name)), None)
    who = (
        f"Workload {taker.name} (priority {taker.priority})" if taker else f"workload {by.uid}" if by else "another one"
    )
    return Reason(
        Hold.PREEMPTED,
        f"preempted: its quota went to {who}{', ' + by.why if by else ''}",
        "it comes back from its newest checkpoint when quota is free; a higher priority brings it back sooner",
        _condition_witnesses(workload, "Preempted", "Evicted"),
    )


def _queued(workload: Workload, queues: NamespaceQueues) -> Reason:
    place, of = position(workload, queues)
    condition = reservation(workload)
    return Reason(
        Hold.QUEUED,
        f"in line at queue {workload.queue}{_place(place, of)}; Kueue has not decided yet",
        "wait; if it stays so for minutes, look whether Kueue's controller runs",
        (of_condition("Workload", workload.name, condition),),
    )


def _place(place: int, of: int) -> str:
    return f", place {place} of {of}" if place else ""


# A message that says why no flavor was assigned. What is nearest to being admitted comes first.


def _refused(workload: Workload, queues: NamespaceQueues) -> Reason | None:
    condition = reservation(workload)
    refusal = read_refusal(condition.message)
    kind = _BY_REASON.get(condition.reason) or next((hold for hold, holds in _NEAREST if holds(refusal)), None)
    witnesses = _condition_witnesses(workload, "QuotaReserved")
    match kind:
        case None:
            return None
        case Hold.QUOTA:
            return _quota(workload, queues, refusal, witnesses)
        case Hold.TOPOLOGY:
            return _topology(refusal, condition, witnesses)
        case Hold.QUOTA_NEVER:
            return _never(workload, queues, refusal, witnesses)
        case _:
            return _plainly(kind, refusal, condition, witnesses)


def _plainly(kind: Hold, refusal: Refusal, condition: Condition, witnesses: tuple[Witness, ...]) -> Reason:
    misfits = "; ".join(f"{item.flavor}: {item.why}" for item in refusal.misfits) or condition.message
    sentence, advice = {
        Hold.PREEMPTING: (
            f"waits until {refusal.preempting or 'others'} preempted workload(s) have left",
            "wait: their pods save and end",
        ),
        Hold.FLAVOR: (
            f"no ResourceFlavor fits ({misfits})",
            "correct the pool's taints, labels or topology in the profiles, or the ResourceFlavor",
        ),
        Hold.PODS_READY: (
            "Kueue admits no workload until the pods of those admitted earlier are ready",
            "look at the workload admitted last: primus queue",
        ),
        Hold.QUEUE_MISSING: (condition.message, "create what is missing, or name another queue in the profile"),
        Hold.QUEUE_STOPPED: (condition.message, "ask the queue's owner to start it again"),
    }[kind]
    return Reason(kind, sentence, advice, witnesses)


_NEAREST: tuple[tuple[Hold, Callable[[Refusal], bool]], ...] = (
    (Hold.PREEMPTING, lambda refusal: refusal.preempting > 0),
    (Hold.PODS_READY, lambda refusal: refusal.pods_ready),
    (Hold.QUOTA, lambda refusal: bool(refusal.shortages)),
    (Hold.TOPOLOGY, lambda refusal: bool(refusal.places)),
    (Hold.QUOTA_NEVER, lambda refusal: bool(refusal.ceilings)),
    (Hold.FLAVOR, lambda refusal: bool(refusal.misfits)),
)


def _quota(workload: Workload, queues: NamespaceQueues, refusal: Refusal, conditions: tuple[Witness, ...]) -> Reason:
    queue = queues.cluster_queue_of(workload) or workload.queue
    parts: list[str] = []
    witnesses = list(conditions)
    for item in refusal.shortages:
        found = quota(workload, queues, item.flavor, item.resource)
        used = f" ({found.used} of {found.nominal} used{_borrowed(found.borrowed)})" if found else ""
        parts.append(f"{item.more} more {item.resource} of flavor {item.flavor}{used}")
        if found:
            text = f"nominal {found.nominal}, used {found.used}, reserved {found.reserved}, borrowed {found.borrowed}"
            witnesses.append(Witness("ClusterQueue", queue, f"flavor {item.flavor}", item.resource, text))
    held = holders(workload, queues)
    witnesses += [
        Witness("Workload", item.name, "holds quota", f"priority {item.priority}", f"{item.gpus} GPUs") for item in held
    ]
    who = ", ".join(f"{item.owner or item.name} ({item.gpus} GPUs)" for item in held[:_NAMED])
    advice = f"wait for {who} to end" if who else "wait until others give back what they use"
    place, of = position(workload, queues)
    return Reason(
        Hold.QUOTA,
        f"waits for quota in ClusterQueue {queue}: {'; '.join(parts) or 'too little is free'}{_place(place, of)}",
        f"{advice}, raise the run's priority, or ask the owner of {queue} for more",
        tuple(witnesses),
    )


def _borrowed(amount: str) -> str:
    return "" if amount in ("", "0") else f", {amount} of it borrowed"


def _topology(refusal: Refusal, condition: Condition, witnesses: tuple[Witness, ...]) -> Reason:
    details = "; ".join(
        f"topology {item.topology} {item.detail}{' (left out: ' + item.excluded + ')' if item.excluded else ''}"
        for item in refusal.places
    )
    return Reason(
        Hold.TOPOLOGY,
        f"quota is free, but the topology has no room for the pods together: {details or condition.message}",
        "wait for a whole rack or block, or ask for less: `topology.level`, `topology.required`",
        witnesses,
    )


def _never(workload: Workload, queues: NamespaceQueues, refusal: Refusal, witnesses: tuple[Witness, ...]) -> Reason:
    queue = queues.cluster_queue_of(workload) or workload.queue
    why = "; ".join(
        f"{item.resource} of flavor {item.flavor}: {item.requested or 'the request'} is more than {item.capacity}"
        for item in refusal.ceilings
    )
    return Reason(
        Hold.QUOTA_NEVER,
        f"it will never be admitted: it asks for more than ClusterQueue {queue} can ever give ({why or 'see below'})",
        "waiting does not help: ask for fewer pods or another queue, or have the quota or borrowing limit raised",
        witnesses,
    )
