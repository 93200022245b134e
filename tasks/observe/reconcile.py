"""Looking at what the cluster has of our runs, beside the ledger: bounded, in pages, and concluding nothing.

A part that does not answer is left out and named. Lists are read whole or count as not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError
from tasks.cluster import Cluster, Kind, Manifest, cluster_answers, current, each
from tasks.context import world
from tasks.lease import is_alive, our_ledger
from tasks.ledger.nodes import OUT
from workflows import labels
from workflows.attempt.gang_pods import PIPELINE
from workflows.model.cluster import LIVE, jobset_state, pod_of, running_coordinator
from workflows.model.manifest import items, part, seconds
from workflows.model.nodes import Node, watcher_of
from workflows.model.ownership import owner_of
from workflows.model.runs import GangSeen, NodesSeen, ObjectKind, ObjectSeen, PodsSeen, Sight

SUSPECTS = 16
"""Runs whose pods are listed in one pass; the others have their turn in the next ones."""
UNFINISHED = {"workflows.argoproj.io/completed": "false"}
"""Label that Argo's controller keeps on workflows: ended ones are large and stay for a day."""
WORKFLOW_ENDS = {"Succeeded": "Completed", "Failed": "Failed", "Error": "Failed"}
Ask = Callable[[GangSeen, Sight], bool]


@dataclass(frozen=True)
class Scope:
    """Which parts are looked at beside runs and JobSets."""

    workflows: bool = True
    pods: bool = True
    jobsets: Callable[[], list[ObjectSeen] | str] | None = None
    """Gives all JobSets, or why they are not known; None: they are listed."""
    nodes: Callable[[], Iterable[Node]] | None = None
    """Gives all nodes; None: they are not looked at."""


@dataclass
class Looker:
    """Looks again and again; remembers only whose pods were listed when."""

    profile: ClusterProfile
    suspicious: Ask
    """Whose pods are worth a list."""
    away: list[str] = field(default_factory=list[str])
    """What did not answer in the last look."""
    _asked: dict[str, float] = field(default_factory=dict[str, float])

    def look(self, scope: Scope) -> Sight:
        """One look.

        Raises:
            Unavailable: the ledger does not answer; then nothing can be said at all.
        """
        self.away = []
        jobsets = self._jobsets(scope)
        others = self._objects("Workflow", self._unfinished(), _workflow) if scope.workflows else None
        pods = self._objects("Pod", {labels.PIPELINE: PIPELINE}, _pod) if scope.pods else None
        nodes = self._nodes(scope)
        # The ledger is read last: what was written while the cluster was read is known then.
        sight = self._beside_the_ledger(jobsets, others, pods, nodes)
        gangs = [gang for gang in sight.gangs if self.suspicious(gang, sight)]
        return replace(sight, suspects=self._suspects(gangs))

    def _beside_the_ledger(
        self,
        jobsets: list[ObjectSeen] | None,
        others: list[ObjectSeen] | None,
        pods: list[ObjectSeen] | None,
        nodes: NodesSeen | None,
    ) -> Sight:
        here, name = world(), self.profile.name
        lease = here.ledger.lease(watcher_of(name))
        gangs = here.ledger.gangs(name, is_alive)
        named = {item.run for item in (*(jobsets or ()), *(others or ()), *(pods or ()))}
        runs, now = {gang.run.name for gang in gangs} | {watcher_of(name)}, here.now()
        return Sight(
            now=now,
            cluster=name,
            ledger=our_ledger(),
            gangs=tuple(gangs),
            jobsets=None if jobsets is None else {item.name: item for item in jobsets},
            others=None if others is None else tuple(others),
            pods=None if pods is None else tuple(pods),
            fates=here.ledger.fates(named),
            approvals=tuple(item for item in here.ledger.lapsing(now) if item.run in runs),
            watcher=lease,
            watcher_alive=None if lease is None else is_alive(lease.driver),
            nodes=nodes,
        )

    def _jobsets(self, scope: Scope) -> list[ObjectSeen] | None:
        if scope.jobsets is None:
            return self._objects("JobSet", {labels.PIPELINE: PIPELINE}, jobset_seen)
        known = scope.jobsets()
        if isinstance(known, str):
            self.away.append(f"JobSet: {known}")
            return None
        return known

    def _objects(
        self, kind: Kind, selector: dict[str, str], read: Callable[[Manifest], ObjectSeen | None]
    ) -> list[ObjectSeen] | None:
        """All of a kind that carry our label of a run; None where they could not be read to the end."""
        found: dict[str, ObjectSeen] = {}
        try:
            for manifest in each(current(), kind, selector):
                if (seen := read(manifest)) is not None:
                    found[seen.name] = seen
        except PrimusError as error:
            self.away.append(f"{kind}: {error}")
            return None
        return list(found.values())

    def _unfinished(self) -> dict[str, str]:
        return UNFINISHED if self.profile.engine == "kubernetes" else {}

    def _nodes(self, scope: Scope) -> NodesSeen | None:
        if scope.nodes is None:
            return None
        try:
            present, marked = _marked(scope.nodes())
        except PrimusError as error:
            self.away.append(f"Node: {error}")
            return None
        held = world().ledger.nodes(self.profile.name)
        return NodesSeen(present, marked, {item.node: item.why for item in held if item.state in OUT})

    def _suspects(self, gangs: list[GangSeen]) -> dict[str, PodsSeen]:
        """The pods of those that were not asked about for the longest time."""
        now, names = world().now(), {gang.run.name for gang in gangs}
        self._asked = {run: at for run, at in self._asked.items() if run in names}
        turn = sorted(gangs, key=lambda gang: (self._asked.get(gang.run.name, 0.0), gang.heard_at or 0.0))[:SUSPECTS]
        self._asked |= {gang.run.name: now for gang in turn}
        cluster, limit = current(), self.profile.proxy_seconds

        def ask(gang: GangSeen) -> PodsSeen | None:
            try:
                return pods_seen(cluster, gang.run.name, gang.attempt, limit)
            except PrimusError as error:
                self.away.append(f"pods of {gang.run.name}: {error}")
            return None

        if not turn:
            return {}
        with ThreadPoolExecutor(max_workers=len(turn), thread_name_prefix="suspects") as threads:
            told = list(threads.map(ask, turn))
        return {gang.run.name: pods for gang, pods in zip(turn, told, strict=True) if pods is not None}


def pods_seen(cluster: Cluster, run: str, attempt: int, limit_seconds: float) -> PodsSeen:
    """The pods of one attempt, and whether its coordinator answers (`/healthz` needs no token).

    Raises:
        PrimusError: they could not be listed.
    """
    ours = {labels.RUN: run, labels.ATTEMPT: str(attempt), labels.PIPELINE: PIPELINE}
    pods = [pod_of(pod) for pod in cluster.list("Pod", ours)]
    ranks = [pod for pod in pods if pod.trains]
    living = sum(pod.lives for pod in ranks)
    coordinator = running_coordinator(pods)
    return PodsSeen(
        living=living,
        ended=len(ranks) - living,
        failed=sum(pod.phase == "Failed" for pod in ranks),
        coordinator=coordinator.name if coordinator else "",
        answers=_answers(cluster, coordinator.name, limit_seconds) if living and coordinator else None,
    )


def _answers(cluster: Cluster, pod: str, limit_seconds: float) -> bool | None:
    try:
        cluster.call(pod, labels.COORDINATOR_PORT, "GET", "/healthz", timeout_seconds=limit_seconds)
    except PrimusError:
        return False if cluster_answers(cluster, pod) else None
    return True


def _marked(nodes: Iterable[Node]) -> tuple[frozenset[str], frozenset[str]]:
    present = {node.name: node.quarantined for node in nodes}
    return frozenset(present), frozenset(name for name, quarantined in present.items() if quarantined)


def _seen(kind: ObjectKind, manifest: Manifest, state: str, *, idle: bool = False) -> ObjectSeen | None:
    metadata = part(manifest, "metadata")
    marks: Any = metadata.get("labels") or {}
    run, attempt = str(marks.get(labels.RUN, "")), str(marks.get(labels.ATTEMPT, ""))
    if not run:
        return None
    return ObjectSeen(
        kind=kind,
        name=str(metadata.get("name", "")),
        run=run,
        attempt=int(attempt) if attempt.isdigit() else 0,
        pipeline=str(marks.get(labels.PIPELINE, "")),
        state=state,
        created_at=seconds(metadata.get("creationTimestamp")),
        leaving="deletionTimestamp" in metadata,
        idle=idle,
        ledger=owner_of(manifest),
    )


def jobset_seen(manifest: Manifest) -> ObjectSeen | None:
    """A JobSet of ours; None where it carries no run's label."""
    roles = [
        item
        for item in items(manifest, "status", "replicatedJobsStatus")
        if item.get("name") != labels.COORDINATOR_ROLE
    ]
    living = sum(_count(roles, key) for key in ("ready", "active", "suspended"))
    ended = sum(_count(roles, key) for key in ("succeeded", "failed"))
    return _seen("JobSet", manifest, jobset_state(manifest), idle=ended > 0 and not living)


def _count(roles: Iterable[Any], key: str) -> int:
    return sum(int(role.get(key) or 0) for role in roles)


def _workflow(manifest: Manifest) -> ObjectSeen | None:
    phase = str(part(manifest, "status").get("phase", ""))
    return None if phase in WORKFLOW_ENDS else _seen("Workflow", manifest, "Running")


def _pod(manifest: Manifest) -> ObjectSeen | None:
    phase = str(part(manifest, "status").get("phase", "Pending"))
    role = part(manifest, "metadata", "labels").get(labels.ROLE)
    return _seen("Pod", manifest, "Running") if role and phase in LIVE else None
