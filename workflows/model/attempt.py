"""Facts about an attempt and its incidents: gathered by tasks, judged by `flows.decisions`.

`LogSign` and `SecondSight` hold what launchers' own logs show of a gang whose coordinator does not answer (the second
path, see `workflows.model.liveness`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from workflows.model.cluster import Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import GangNews
from workflows.model.nodes import Node
from workflows.model.workflow import Workflow
from workflows.wire import GateReport, ResumeChoice, Termination


class Signal(StrEnum):
    """What made us look."""

    POD_FAILED = "pod-failed"
    RANK_FAILED = "rank-failed"
    """A rank ended and the gang was restarted in place: the attempt goes on."""
    ATTEMPT_FAILED = "attempt-failed"
    NODE_NOT_READY = "node-not-ready"
    PODS_GONE = "pods-gone"
    PREEMPTION_NOTICE = "preemption-notice"
    NODE_CORDONED = "node-cordoned"
    GATE_FAILED = "gate-failed"
    CHECKPOINT_UNUSABLE = "checkpoint-unusable"
    SUBMIT_REFUSED = "submit-refused"
    UNSCHEDULABLE = "unschedulable"
    IMAGE = "image"
    STARTED_OVER = "started-over"
    NUMERIC = "numeric"
    ENDED_EARLY = "ended-early"
    HANG = "hang"
    STRAGGLER = "straggler"
    """A rank is slower than its peers, and waiting for it has cost as much as leaving its node does."""
    OBSERVER_AWAY = "observer-away"
    LOGS = "logs"
    """Nothing but log files is known, and nobody says that something failed."""


@dataclass(frozen=True)
class LogLine:
    """One line with where it came from."""

    text: str
    source: str
    """`rank`, `launcher`, `kernel`, `event`, `coordinator`, or a file's name."""
    rank: int | None = None
    node: str = ""
    at: float | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class PastIncident:
    """What an earlier incident of the same run came to."""

    fault_class: str
    fingerprint: str
    step: int | None
    nodes: tuple[str, ...]
    at: float
    action: str
    charged: bool
    last_step: int | None
    """Last step of the attempt it ended."""

    def failed_at(self, step: int | None) -> bool:
        """Whether it failed at that step. The incident's own step may be older than the last one of its attempt."""
        return step in (self.step, self.last_step) if step is not None else self.step is None


@dataclass(frozen=True)
class Evidence:
    """Everything known about one incident. Absent means unknown, never healthy."""

    signal: Signal
    run: str
    attempt: int
    detected_at: float
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    terminations: tuple[Termination, ...] = ()
    """Records of launchers that could leave one (a lost node leaves none)."""
    gate: tuple[GateReport, ...] = ()
    examined: tuple[GateReport, ...] = ()
    """Suspects that were looked at after the failure; apart from the gate, which was asked about every node."""
    choice: ResumeChoice | None = None
    lines: tuple[LogLine, ...] = ()
    suspended: str = ""
    """That somebody, mostly its queue, suspended the gang after it had run; "": nobody did."""
    workflow_message: str = ""
    """Why the attempt's workflow failed, in Argo's words."""
    silent_nodes: tuple[str, ...] = ()
    """Nodes whose launchers stopped talking to the coordinator."""
    unreached_nodes: tuple[str, ...] = ()
    """Nodes whose kubelet the cluster did not reach, while it reached others."""
    answering_nodes: tuple[str, ...] = ()
    """Nodes whose kubelet was asked and answered."""
    first_step: int | None = None
    resume_step: int | None = None
    last_step: int | None = None
    steps: int = 0
    """Planned last step, 0: not known."""
    first_nan_step: int | None = None
    stop_requested: bool = False
    past: tuple[PastIncident, ...] = ()
    """Earlier incidents of the run, oldest first."""
    detail: str = ""


@dataclass(frozen=True)
class AttemptView:
    """Everything seen of one attempt at one moment; what is not known is None or empty."""

    run: str
    attempt: int
    now: float
    workflow: Workflow = field(default_factory=Workflow)
    jobset: str | None = None
    """`Running`, `Completed`, `Failed`, or None where it does not exist."""
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    coordinator: CoordinatorFacts | None = None
    """None: never answered yet."""
    unheard_since: float | None = None
    """Since when the coordinator has not answered although the cluster did; None: it answers, or nobody could ask."""
    submitted_at: float | None = None
    pending_since: float | None = None
    """When pods were first seen unplaced, the gate's too; None: all placed."""
    unplaced: str = ""
    """What the scheduler says of one of them; "" while it says nothing."""
    stop_requested: str = ""
    """Why a person asked for the end; "" when nobody did."""
    woken: str = ""
    """Why somebody else wants the driver to look at everything anew; "" when nobody does."""
    away: str = ""
    """Why the cluster does not answer; "" while it does. What is known is then old, and no time limit runs."""
    away_since: float | None = None
    pool: tuple[NodeCandidate, ...] | None = None
    """The pool's nodes, asked about only while a node of the gang is cordoned or slow; None: nothing was told."""
    unreached: tuple[str, ...] = ()
    """Nodes that are not ready and whose kubelets the cluster does not reach; asked only about nodes of the gang."""
    vanished: str = ""
    """Its workflow, its JobSet and its pods were looked for, and none of them exists: why; "" where one does."""
    second: SecondSight | None = None
    """What its launchers' own logs say; asked only while all its pods run and the coordinator is not heard."""
    partial: bool = False
    """Not all of its objects were told yet, or not since its JobSet ended: what is missing here may well exist."""

    @property
    def waits_for(self) -> str:
        """Why the cluster does not answer, where that lasts long enough to report."""
        lasts = self.away_since is not None and self.now - self.away_since >= AWAY_SECONDS
        return self.away if lasts else ""


@dataclass(frozen=True)
class CoordinatorFacts:
    """What the coordinator says of the gang (its `/status`)."""

    at: float
    """When it said so."""
    told_at: float | None = None
    """The same by its own clock, to which `heard` belongs."""
    incarnation: int = 0
    step: int | None = None
    loss: float | None = None
    first_step: int | None = None
    first_step_at: float | None = None
    first_nan_step: int | None = None
    last_checkpoint_step: int | None = None
    steps_per_second: float | None = None
    phase: str = ""
    heard: tuple[tuple[str, str, float], ...] = ()
    """(pod, node, when it was last heard) of each member."""
    ranks: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(pod, its ranks)."""
    launched_at: float | None = None
    """When the ranks of the present incarnation were started."""
    failed_ranks: tuple[int, ...] = ()
    """Ranks that ended badly, as their launchers told it."""
    failed_since: float | None = None
    """When we first heard that, or of the restart in place which has not brought every rank up again; None: all run."""
    news: GangNews = field(default_factory=GangNews)


@dataclass(frozen=True)
class LogSign:
    """The newest sign of progress in a launcher's own log."""

    rank: int
    step: int | None
    """Highest that its newest lines tell of the present incarnation; None: none."""
    at: float
    """Of the newest line, by the launcher's clock, Unix seconds: only compared with its own."""
    incarnation: int = 1
    phase: str = "step"
    """That the newest line tells of."""

    def newer_than(self, before: LogSign) -> bool:
        """Whether something was done between the two."""
        if self.incarnation != before.incarnation:
            return self.incarnation > before.incarnation
        return self.at > before.at or (self.step or 0) > (before.step or 0)

    def joined(self, before: LogSign) -> LogSign:
        """With what only earlier lines showed: a step that was pushed out of the newest ones stays known."""
        if self.incarnation != before.incarnation:
            return max(self, before, key=lambda sign: sign.incarnation)
        at = max(self.at, before.at)
        if before.step is None or (self.step or 0) >= before.step:
            return replace(self, at=at)
        return replace(self, at=at, rank=before.rank, step=before.step)

    @property
    def words(self) -> str:
        """For people."""
        place = "has made no step" if self.step is None else f"is at step {self.step}"
        return f"rank {self.rank} {place} by its own log"


@dataclass(frozen=True)
class SecondSight:
    """What the second path shows while the coordinator does not answer; times by our clock, Unix seconds."""

    unheard_since: float
    deaf: bool = False
    """It answers us, but does not hear its launchers."""
    looks: int = 0
    """That were answered."""
    signs: tuple[tuple[str, LogSign], ...] = ()
    """The newest of each pod that told something."""
    still_since: float | None = None
    """The look that first showed what is still the newest; None: no look has shown anything."""
    moved: bool = False
    """The newest look showed something that the look before had not."""
    ever_moved: bool = False
    longest_seconds: float = 0.0
    """The longest time for which nothing was seen to be done, and then something was."""
    unread: tuple[tuple[str, str], ...] = ()
    """Pods whose logs said nothing in the newest look, and why."""
    unreached: tuple[str, ...] = ()
    """Nodes whose kubelets the cluster does not reach."""

    @property
    def furthest(self) -> LogSign | None:
        """The sign that has come furthest; None: no log has shown any."""
        found = (sign for _, sign in self.signs)
        return max(found, key=lambda sign: (sign.incarnation, sign.step or 0, -sign.rank), default=None)

    @property
    def step(self) -> int | None:
        """The highest step that is known."""
        return None if self.furthest is None else self.furthest.step


AWAY_SECONDS = 2.0
"""A cluster that does not answer for a shorter time is nobody's business."""


LIVING = frozenset(
    {
        Signal.OBSERVER_AWAY,
        Signal.HANG,
        Signal.NUMERIC,
        Signal.STARTED_OVER,
        Signal.PREEMPTION_NOTICE,
        Signal.NODE_CORDONED,
        Signal.STRAGGLER,
        Signal.UNSCHEDULABLE,
    }
)
"""Signals of attempts that have not ended."""
