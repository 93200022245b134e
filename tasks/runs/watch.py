"""Watching one attempt: the cluster's objects, the coordinator and people's requests become one view.

Readers run in threads of their own and only fill a table (`Known`); a caller gets a view of what is known at that
moment. A reader that gets no answer waits and asks again: nothing is concluded from silence here, and a coordinator is
silent only while the cluster itself answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from profiles.errors import Permanent, PrimusError, Transient
from profiles.resolve import Resolved
from profiles.run import Role
from tasks.cluster import Cluster, Kind, Manifest, cluster_answers
from tasks.observe.objects import coordinator_facts, moments
from tasks.observe.reflector import Reflector, words_of
from tasks.runs.liveness import MOST, out_of_reach, unready
from workflows import labels
from workflows.model.attempt import AttemptView, CoordinatorFacts
from workflows.model.cluster import JobSet, Pod, jobset_of, pod_of, running_coordinator
from workflows.model.manifest import Json, part
from workflows.model.nodes import Node, node_of
from workflows.model.records import AttemptRecord, MarkRecord, StepRow
from workflows.model.workflow import Workflow, workflow_of
from workflows.programs.coordinator.service import LENT
from workflows.status import read_status
from workflows.wire import CheckpointSeen, Termination

View = Pod | JobSet | Workflow
READ: Mapping[Kind, Callable[[Manifest], View]] = {"Pod": pod_of, "JobSet": jobset_of, "Workflow": workflow_of}
OURS: tuple[Kind, ...] = tuple(READ)
"""Kinds of objects of an attempt that are watched."""
KINDS: tuple[Kind, ...] = (*OURS, "Node")

WATCH_SECONDS = 2.0
"""One watch lasts at most so long, so that a reader notices within this time that nobody listens any more."""
COORDINATOR_SECONDS = 0.2
"""Between two questions to the coordinator: about the time a person notices."""


@dataclass
class Known:
    """What the readers have seen so far. Guarded by `lock`."""

    role: Role | None = None
    """Whose pods have ranks."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Event = field(default_factory=threading.Event)
    objects: dict[Kind, dict[str, View]] = field(default_factory=lambda: {})
    """Of the attempt, by kind and name."""
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    """All of the cluster: of many thousand no more is kept than is asked for."""
    gone: dict[str, Pod] = field(default_factory=dict[str, Pod])
    """Pods that were deleted while we watched."""
    coordinator: CoordinatorFacts | None = None
    unheard_since: float | None = None
    """Since when the coordinator has not answered although the cluster did."""
    checkpoints: tuple[CheckpointSeen, ...] = ()
    steps: list[StepRow] = field(default_factory=lambda: [])
    moments: list[MarkRecord] = field(default_factory=lambda: [])
    pending_since: float | None = None
    away: dict[str, tuple[float, str]] = field(default_factory=lambda: {})
    """Since when a reader has got no answer, and why, by kind."""
    why_gone: str = "deleted by somebody"
    """What became of the attempt's own objects, where they are gone."""
    listed: set[str] = field(default_factory=set[str])
    """Kinds of which everything that exists was told."""
    end_untold: bool = False
    """The JobSet has ended, and its pods, which tell how, were not listed since."""
    unreached: tuple[str, ...] = ()
    """Nodes that are not ready and whose kubelets the cluster does not reach."""

    def nodes_of(self, names: Iterable[str]) -> tuple[Node, ...]:
        """Those of them that are known, by name; the caller holds the lock."""
        return tuple(self.nodes[name] for name in sorted(names) if name in self.nodes)

    def note_node(self, change: str, manifest: Manifest) -> None:
        """Take one line of a watch of nodes in.

        A node tells every few minutes that it lives, and there are thousands: only what is news wakes anybody.
        """
        with self.lock:
            if change == "SYNC":
                self.nodes.clear()
                self.listed.discard("Node")
            elif change == "DELETED":
                self.nodes.pop(manifest["metadata"]["name"], None)
            else:
                facts = node_of(manifest)
                if self.nodes.get(facts.name) == facts:
                    return
                self.nodes[facts.name] = facts
        self.changed.set()

    def note(self, kind: Kind, change: str, manifest: Manifest, run: str) -> bool:
        """Take one line of a watch of the run's objects in; whether the pods must be listed, since the JobSet ended."""
        ends = False
        with self.lock:
            table = self.objects.setdefault(kind, {})
            if change == "SYNC":
                table.clear()
                self.listed.discard(kind)
            elif change == "DELETED":
                self._note_end(table, self._read(kind, manifest), part(manifest, "status"), run)
            elif (seen := self._read(kind, manifest)).run == run:
                ends = _has_ended(seen) and not _has_ended(table.get(seen.name))
                self.end_untold = self.end_untold or ends
                table[seen.name] = seen
        self.changed.set()
        return ends

    def told_the_end(self) -> None:
        """All pods were noted as they were after the JobSet had ended."""
        with self.lock:
            self.end_untold = False
        self.changed.set()

    @property
    def is_partial(self) -> bool:
        """Whether something may exist that no reader has seen. The caller holds the lock."""
        return self.end_untold or not self.listed.issuperset(OURS)

    def _read(self, kind: Kind, manifest: Manifest) -> View:
        seen = READ[kind](manifest)
        return seen.ranked(self.role) if isinstance(seen, Pod) and self.role else seen

    def _note_end(self, table: dict[str, View], seen: View, status: Json, run: str) -> None:
        last = table.pop(seen.name, None)
        if last is None and seen.run != run:
            return
        if isinstance(seen, Pod):
            if isinstance(last, Pod) and seen.run != run:  # its file was broken: its name is left, and how it ended
                seen = replace(seen, role=last.role, index=last.index, node=last.node, ranks=last.ranks)
            self.gone[seen.name] = seen
        elif status.get("reason") == "BrokenObject":
            self.why_gone = str(status.get("message", ""))

    @property
    def pods(self) -> dict[str, Pod]:
        """Those that exist. The caller holds the lock."""
        return {name: pod for name, pod in self.objects.get("Pod", {}).items() if isinstance(pod, Pod)}

    def vanished(self) -> str:
        """Why nothing of the attempt exists; "" where something does, or may. The caller holds the lock."""
        gone = not self.is_partial and not any(self.objects.get(kind) for kind in OURS)
        return self.why_gone if gone else ""


def _has_ended(seen: View | None) -> bool:
    return isinstance(seen, JobSet) and seen.state != "Running"


@dataclass(frozen=True)
class GangUpdate:
    """What is new since the last question."""

    steps: list[StepRow]
    next_step: int
    next_moment: int
    moments: object
    """As programs tell them; see `tasks.observe.objects.moments`."""


def news_of(steps: bytes) -> GangUpdate | None:
    """A coordinator's answer about new steps; None where it is unreadable."""
    try:
        news: dict[str, Any] = json.loads(steps)
        rows = [StepRow(int(row[0]), float(row[1]), _float(row[2]), _float(row[3])) for row in news["steps"]]
        return GangUpdate(rows, int(news["next"]), int(news.get("next_moment", 0)), news.get("moments"))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def failed_since(said: CoordinatorFacts, before: CoordinatorFacts | None) -> float | None:
    """Since when a rank has failed, or restarted ranks are not all up; by our clock."""
    restarting = bool(said.news.restarts) and said.launched_at is None
    if not (said.failed_ranks or restarting):
        return None
    known = before is not None and before.incarnation == said.incarnation
    return (before.failed_since if before is not None and known else None) or said.at


class AttemptWatch:
    """Readers over one attempt. Use as a context manager.

    Args:
        cluster: where it runs.
        resolved: the run's resolved profile.
        attempt: its record.
        now: the clock, Unix seconds.
        token: gives the attempt's coordinator token ("" while it is unknown).
        withheld: why the right to restart in place that was lent may not be used now ("": it may); told to the
            coordinator with every look. None: it is not known, and nothing is said about it.
        release: the identity of the ledger, while checkpoints that nobody needs may go; "": none may.
    """

    def __init__(
        self,
        cluster: Cluster,
        resolved: Resolved,
        attempt: AttemptRecord,
        now: Callable[[], float],
        token: Callable[[], str],
        withheld: Callable[[], str | None] = lambda: None,
        release: Callable[[], str] = lambda: "",
    ) -> None:
        self._cluster, self._resolved, self._attempt, self._now, self._token = cluster, resolved, attempt, now, token
        self._withheld, self._release = withheld, release
        self._known = Known(resolved.run.deciding_role)
        self._ended = threading.Event()
        self._next_step = 0
        self._next_moment = 0
        self._ours = {labels.RUN: attempt.run, labels.ATTEMPT: str(attempt.number)}

    def __enter__(self) -> AttemptWatch:
        for kind in KINDS:
            self._reader(kind).start()
        for ask in (self._ask_coordinator, self._ask_kubelets):
            threading.Thread(target=ask, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def wait(self, timeout_seconds: float) -> AttemptView:
        """The view after the next change, or after `timeout_seconds`."""
        self._known.changed.wait(timeout_seconds)
        self._known.changed.clear()
        return self.view()

    def view(self) -> AttemptView:
        """What is known now."""
        with self._known.lock:
            every = self._every_pod()
            pods = tuple(pod for pod in every if pod.role)
            # The gate's pods count as well: where nobody takes them the gang is never made. While nobody answers nobody
            # places pods either: that time says nothing about room.
            unplaced = [pod for pod in every if pod.phase == "Pending" and not pod.node]
            since = (self._known.pending_since or self._now()) if unplaced and not self._known.away else None
            self._known.pending_since = since
            return AttemptView(
                run=self._attempt.run,
                attempt=self._attempt.number,
                now=self._now(),
                workflow=self._workflow(),
                jobset=self._jobset(),
                pods=pods,
                nodes=self._known.nodes_of({pod.node for pod in pods}),
                coordinator=self._known.coordinator,
                unheard_since=self._known.unheard_since,
                submitted_at=self._attempt.submitted_at,
                pending_since=since,
                unplaced=next((pod.unschedulable for pod in unplaced if pod.unschedulable), ""),
                away=next((why for _, why in self._known.away.values()), ""),
                away_since=min((since for since, _ in self._known.away.values()), default=None),
                vanished=self._known.vanished(),
                partial=self._known.is_partial,
                unreached=self._known.unreached,
            )

    def take_steps(self) -> list[StepRow]:
        """Steps seen since the last call."""
        with self._known.lock:
            steps, self._known.steps = self._known.steps, []
        return steps

    def take_moments(self) -> list[MarkRecord]:
        """Begins and ends of loading and saving checkpoints, seen since the last call."""
        with self._known.lock:
            found, self._known.moments = self._known.moments, []
        return found

    def checkpoints(self) -> tuple[CheckpointSeen, ...]:
        """What the coordinator last said about proven checkpoints, and about those that are gone."""
        return self._known.checkpoints

    def terminations(self) -> tuple[Termination, ...]:
        """Summaries that the attempt's launchers left, by pod name; deleted pods included."""
        with self._known.lock:
            pods = {**self._known.gone, **self._known.pods}
        return tuple(told for _, pod in sorted(pods.items()) if (told := pod.termination) is not None)

    def all_nodes(self) -> tuple[Node, ...]:
        """Every node of the cluster."""
        with self._known.lock:
            return self._known.nodes_of(self._known.nodes)

    def _every_pod(self) -> tuple[Pod, ...]:
        present, ended = self._known.pods, ("Succeeded", "Failed")
        gone = [pod for name, pod in sorted(self._known.gone.items()) if name not in present]
        lost = (pod if pod.phase in ended else replace(pod, phase="Gone") for pod in gone)
        return (*(pod for _, pod in sorted(present.items())), *lost)

    def _workflow(self) -> Workflow:
        name = labels.attempt_name(self._attempt.run, self._attempt.number)
        workflow = self._known.objects.get("Workflow", {}).get(name)
        return workflow if isinstance(workflow, Workflow) else Workflow()

    def _jobset(self) -> str | None:
        name = labels.attempt_name(self._attempt.run, self._attempt.number)
        jobset = self._known.objects.get("JobSet", {}).get(name)
        return jobset.state if isinstance(jobset, JobSet) else None

    def _list_pods(self) -> None:
        while not self._ended.is_set():
            try:
                for manifest in self._cluster.list("Pod", self._ours):
                    self._known.note("Pod", "ADDED", manifest, self._attempt.run)
                return self._known.told_the_end()
            except Transient as error:
                self._silent("Pod", str(error))
                self._ended.wait(error.retry_after_seconds)
            except PrimusError:
                self._ended.wait(1.0)

    def _reader(self, kind: Kind) -> Reflector:
        return Reflector(
            self._cluster,
            kind,
            None if kind == "Node" else self._ours,
            pace=lambda: self._pace(kind),
            note=lambda change, manifest: self._note(kind, change, manifest),
            heard=lambda: self._answered(kind),
            failed=lambda error: self._failed(kind, error),
            ended=self._ended,
        )

    def _pace(self, kind: Kind) -> float:
        # At first only what exists: a watch does not say when it has told it all.
        with self._known.lock:
            return WATCH_SECONDS if kind in self._known.listed else 0.0

    def _answered(self, kind: Kind) -> None:
        with self._known.lock:
            self._known.away.pop(kind, None)
            if kind in self._known.listed:
                return
            self._known.listed.add(kind)
        self._known.changed.set()

    def _failed(self, kind: Kind, error: Exception) -> None:
        """Note a reader's failure: a refusal leaves the table as it was, a mistake of ours makes it count no more."""
        if not isinstance(error, PrimusError):
            self._note(kind, "SYNC", {})
        if not isinstance(error, Permanent):
            self._silent(kind, words_of(error))

    def _silent(self, kind: Kind, why: str) -> None:
        with self._known.lock:
            since, _ = self._known.away.get(kind, (self._now(), ""))
            self._known.away[kind] = since, why

    def _note(self, kind: Kind, change: str, manifest: Manifest) -> None:
        if kind == "Node":
            self._known.note_node(change, manifest)
            return
        if self._known.note(kind, change, manifest, self._attempt.run):
            self._list_pods()

    def _ask_coordinator(self) -> None:
        while not self._ended.wait(COORDINATOR_SECONDS):
            self.ask_once()

    def _ask_kubelets(self) -> None:
        while not self._ended.wait(COORDINATOR_SECONDS):
            self.ask_kubelets_once()

    def ask_kubelets_once(self) -> None:
        """Find out which nodes that are not ready do not answer either."""
        with self._known.lock:
            doubted = unready(self._known.nodes.values())
            pods = tuple(pod for pod in self._every_pod() if pod.role) if doubted else ()
        away = out_of_reach(self._cluster, pods, doubted, MOST)
        if away != self._known.unreached:
            self._known.unreached = away
            self._known.changed.set()

    def ask_once(self) -> None:
        """Ask the coordinator for its status and new steps; silence changes nothing."""
        pod = self._coordinator_pod()
        token = self._token() if pod else ""
        if not pod or not token:
            return
        try:
            limit = self._resolved.cluster.proxy_seconds
            status = self._cluster.call(
                pod, labels.COORDINATOR_PORT, "GET", self._status_path(), token=token, timeout_seconds=limit
            )
            steps = self._cluster.call(
                pod,
                labels.COORDINATOR_PORT,
                "GET",
                f"/v1/steps?since={self._next_step}&moments_since={self._next_moment}",
                token=token,
                timeout_seconds=limit,
            )
        except PrimusError:
            self._unheard(pod)
            return
        if status.status == 200 and steps.status == 200:
            self._learn(status.body, steps.body)

    def _status_path(self) -> str:
        """The question to the coordinator. It carries our word on the right: RBAC lets us read only by the proxy."""
        why_not, ledger = self._withheld(), self._release()
        said = ({} if why_not is None else {"right": why_not or LENT}) | ({"surplus": ledger} if ledger else {})
        return f"/status?{urlencode(said)}" if said else "/status"

    def _learn(self, status: bytes, steps: bytes) -> None:
        told, news = read_status(status), news_of(steps)
        if told is None or news is None:
            return
        with self._known.lock:
            before = self._known.coordinator
            said = coordinator_facts(told, self._now())
            self._known.coordinator = replace(said, failed_since=failed_since(said, before))
            self._known.unheard_since = None
            self._known.checkpoints = (*told.checkpoints, *told.removed)
            self._known.steps.extend(news.steps)
            self._known.moments += moments(self._attempt.run, self._attempt.number, news.moments)
            self._next_step, self._next_moment = news.next_step, news.next_moment
        if news.steps or before is None or said.news != before.news:
            self._known.changed.set()

    def _unheard(self, pod: str) -> None:
        """The coordinator did not answer. That is its own silence only where the cluster answers."""
        answers = cluster_answers(self._cluster, pod)
        with self._known.lock:
            self._known.unheard_since = (self._known.unheard_since or self._now()) if answers else None

    def _coordinator_pod(self) -> str:
        with self._known.lock:
            found = running_coordinator(self._known.pods.values())
        return found.name if found else ""
