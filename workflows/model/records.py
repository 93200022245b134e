"""The records of the ledger, shared by tasks (which store them) and flows (which decide on them).

Times are Unix seconds (float, UTC). Ids are deterministic, so that writing a record twice is harmless. `Told` names the
signals of incidents that ask for no action: training goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from profiles.vocabulary import Action, FaultClass, KnownBy, Mode, NodeAction, RunState, VerdictWord

Json = dict[str, Any]

WAITS = " [waits, training is left alone: "
UNHEARD = " [by the second path: "
"""How the `why` of a run tells people what it waits for, behind why it is in its state: nothing is known of its
training, or its ranks' own logs say that it goes on."""


class Told(StrEnum):
    """What is found beside hangs and losses that are no numbers."""

    LOSS_JUMP = "loss-jump"
    """Five times its recent median."""
    GRADIENT_NORM_JUMP = "gradient-norm-jump"
    GRADIENT_NORM_NOT_FINITE = "gradient-norm-not-finite"
    """Loss scalers of mixed precision skip such a step now and then: one alone is no harm."""
    SLOW_RANK = "slow-rank"
    """A rank lags. When waiting for its node has cost as much as leaving it, `Signal.STRAGGLER` comes as well."""
    SLOW_GANG = "slow-gang"
    """All ranks became slower together."""
    NO_CHECKPOINT = "no-checkpoint"
    """Something was saved, and nothing of it can be resumed from: a fault now would lose everything."""
    PUT_ASIDE = "put-aside"
    """Before ranks started, checkpoints that the program would have opened by itself, and must not, were put aside."""


TOLD: frozenset[str] = frozenset(Told)
LASTING: frozenset[str] = frozenset({Told.SLOW_RANK, Told.SLOW_GANG, Told.NO_CHECKPOINT})
"""Those that are over at some time; the others are moments."""


ACTOR_CHARACTERS = 120
_SPACES = re.compile(r"[\s()\"']")
_UNQUOTED = str.maketrans({'"': "'", "(": "[", ")": "]"})


def one_line(text: str) -> str:
    """The text in one line, without what a terminal would obey or not show."""
    return "".join(mark if mark.isprintable() else "?" for mark in " ".join(text.split()))


@dataclass(frozen=True)
class Actor:
    """A person who did something, and how that is known: `ada@login-1 (os-user)`.

    Texts come from outside: names of a directory service, headers of a request. So they are made printable here, and
    what somebody says of himself stands in quotes.
    """

    name: str
    """Never what somebody says of himself; "" where nobody is known."""
    known_by: KnownBy
    claim: str = ""
    """What the caller calls himself. Anybody may say anything; it stands for nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _SPACES.sub("_", one_line(self.name))[:ACTOR_CHARACTERS])
        object.__setattr__(self, "claim", one_line(self.claim)[:ACTOR_CHARACTERS])

    def __str__(self) -> str:
        said = f', says: "{self.claim.translate(_UNQUOTED)}"' if self.claim else ""
        return f"{self.name or 'somebody'} ({self.known_by}{said})"


UNVERIFIED = Actor("", KnownBy.UNVERIFIED)
"""Somebody, of whom nothing is known."""


def told(why: str, by: Actor | None) -> str:
    """Who, then why: what he typed cannot stand before his name. Without a name the words alone."""
    return why if by is None or by == UNVERIFIED else f"{by}: {why}"


@dataclass(frozen=True)
class Driver:
    """The process that drives a run, and proof that it is that process."""

    host: str
    pid: int
    started_at: float
    """Start time of the process in clock ticks since boot: guards against re-used pids."""


@dataclass(frozen=True)
class RunRecord:
    """One training run."""

    name: str
    state: RunState
    why: str
    """One sentence: why it is in this state."""
    profile: str
    """Name of the run profile."""
    resolved: Json
    """The resolved profile as it was at submission (`profiles.resolve.Resolved`)."""
    digest: str
    """Digest of `resolved`: the same name with another digest is another run."""
    cluster: str
    mode: Mode
    created_at: float
    ended_at: float | None = None
    paused: bool = False
    """True: no automatic action is taken; training itself goes on."""
    resumes: int = 0
    resumed_at: float | None = None
    """How often a person continued it after its end, and when last: the budget starts anew, the history stays."""
    waits_for: str = ""
    """What its driver waits for, while training is left alone: a neighbour or the coordinator does not answer."""
    goes_on: bool = False
    """The ranks' own logs say meanwhile that training goes on."""
    owner: str = ""
    """Whose it is: who asked for it, unless he named somebody else. A word to find it by, no proof; "": not known."""
    tags: Json = field(default_factory=lambda: {})
    """People's own words to find it by, text by text."""

    @property
    def reason(self) -> str:
        """Why it is in this state, without what it waits for."""
        return self.why.removesuffix(waiting_words(self.waits_for, goes_on=self.goes_on))


def waiting_words(waits_for: str, *, goes_on: bool) -> str:
    """What a run waits for, as its `why` ends; "" where it waits for nothing."""
    return f"{UNHEARD if goes_on else WAITS}{waits_for}]" if waits_for else ""


@dataclass(frozen=True)
class Lease:
    """The right to drive a run until `expires_at`."""

    run: str
    fencing: int
    """Grows with every new holder; a smaller number may not touch anything any more."""
    driver: Driver
    expires_at: float


@dataclass(frozen=True)
class AttemptRecord:
    """One gang of pods. Written before it is submitted."""

    run: str
    number: int
    planned_at: float
    why: str
    """Why this attempt exists: `first`, or the decision that asked for it."""
    nodes: tuple[str, ...] = ()
    """Nodes chosen for the deciding role; empty: the scheduler chose."""
    avoid_nodes: tuple[str, ...] = ()
    max_resume_step: int | None = None
    """Roll-back: no checkpoint newer than this."""
    excluded_checkpoints: tuple[str, ...] = ()
    submitted_at: float | None = None
    """The workflow was created or adopted."""
    applied_at: float | None = None
    """The JobSet was seen."""
    running_at: float | None = None
    """All pods were running."""
    ended_at: float | None = None
    outcome: str | None = None
    """`succeeded`, `stopped` or a fault class; None while it lives."""
    resumed_from_step: int | None = None
    resume_path: str = ""
    resume_proof: VerdictWord | None = None
    """Did the first step follow the checkpoint? None: nothing to prove (yet)."""
    first_step: int | None = None
    first_step_at: float | None = None
    last_step: int | None = None
    last_step_at: float | None = None
    restarts_in_place: int = 0
    restarts_lent: int = 0
    """The right that the flow lends: so many restarts in place without asking."""
    mttf_seconds: float | None = None
    """Mean time to failure of the whole gang as it was believed when the attempt was planned."""
    interval_steps: int | None = None
    """Steps between saves that the program is told; None: those of the profile."""
    advised_steps: int | None = None
    """Steps between saves at which least is lost, by what the attempt measured; None: not enough was seen."""
    loss: float | None = None
    incident: str = ""
    """The incident that it answers; "": a person asked for it."""

    @property
    def where(self) -> str:
        """Its nodes, for people."""
        return ", ".join(self.nodes[:8]) + ", ..." * (len(self.nodes) > 8) or "nodes that the scheduler chooses"


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint that was looked at."""

    run: str
    step: int
    path: str
    attempt: int
    at: float
    verdict: VerdictWord
    why: str = ""
    bytes: int = 0
    format: str = ""
    tier: str = "durable"


@dataclass(frozen=True)
class IncidentRecord:
    """What was seen, what it is, and the culprit."""

    id: str
    """`<run>-a<attempt>-i<number>`; `-r<number>`: a restart in place; `-n<number>`: only told."""
    run: str
    attempt: int
    at: float
    """When it happened (when we caused it or as the evidence says), else when it was detected."""
    detected_at: float
    signal: str
    """What was seen first, e.g. `pod-failed`, `node-not-ready`, `gate-failed`."""
    fault_class: FaultClass | None = None
    """None until diagnosed."""
    confidence: float = 0.0
    culprits: tuple[tuple[str, int | None], ...] = ()
    """(node, rank) of those to blame; empty: nobody, or the code."""
    fingerprint: str = ""
    step: int | None = None
    evidence: tuple[str, ...] = ()
    """Lines and facts that speak for the class."""
    alternatives: tuple[tuple[FaultClass, float], ...] = ()
    action: Action | None = None
    """None until decided."""
    why: str = ""
    """Why this action, in words."""
    would_change: str = ""
    """What would have changed the decision."""
    charged: bool = False
    """True: it used the restart budget."""
    resumed_at: float | None = None
    """Completion of the first step after the checkpoint's step, in the next incarnation."""
    lost_nodes: tuple[str, ...] = ()
    """Nodes that the cluster's own facts prove lost, not a text that says so: their pods need not be waited for."""
    fact: str | None = None
    """Of which fact it tells (`workflows.model.incidents`), one incident each; None: it was written before facts had
    names.
    """
    over_at: float | None = None
    """When what is only told, and lasts, was over: the rank is well again, or its attempt has ended. Of an incident
    about which a person was asked: when there was nothing left to ask."""

    @property
    def went_on(self) -> bool:
        """Whether its attempt lived on: untouched, well again before anybody answered, or with ranks begun again."""
        return self.signal in TOLD or self.action is Action.RESTART_IN_PLACE or self.settled_itself

    @property
    def settled_itself(self) -> bool:
        """Whether a person was asked about it, and it was over before the answer came."""
        return self.action is Action.NONE and self.over_at is not None and self.signal not in TOLD

    @property
    def seen(self) -> str:
        """What made us look, in words: the first line of the evidence, before the diagnosis and after it."""
        return self.evidence[0] if self.evidence else ""


@dataclass(frozen=True)
class Constraints:
    """What the next attempt must heed: the detail of an action on a run."""

    max_resume_step: int | None = None
    excluded_checkpoints: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()
    wait_until: float = 0.0
    """Not before."""


@dataclass(frozen=True)
class NodeFault:
    """What the monitor found on a node: the detail of its action on it."""

    pool: str = ""
    fault_class: FaultClass = field(default=FaultClass.UNKNOWN, metadata={"key": "class"})
    condition: str = ""


@dataclass(frozen=True)
class ActionRecord:
    """One thing we do. Written before it is carried out."""

    id: str
    """`<incident>-<action>[-<target>]`."""
    run: str
    incident: str
    kind: Action | NodeAction
    target: str
    """Node name, or "" for the run."""
    state: Literal["planned", "waiting", "done", "refused", "recorded"]
    """`waiting`: for a person. `refused`: by a person or the brake. `recorded`: mode observe, nothing was touched."""
    why: str
    planned_at: float
    done_at: float | None = None
    detail: Constraints | NodeFault | None = None

    @property
    def constraints(self) -> Constraints:
        """What the next attempt must heed, by an action on the run."""
        return self.detail if isinstance(self.detail, Constraints) else Constraints()

    @property
    def node_fault(self) -> NodeFault:
        """What the monitor found on the node, by its action on it."""
        return self.detail if isinstance(self.detail, NodeFault) else NodeFault()


TAKEN_BACK = "taken back: "
"""How the reason of a question begins that was taken back."""


@dataclass(frozen=True)
class ApprovalRecord:
    """A question to a person."""

    id: str
    """`<incident>-approval`."""
    run: str
    incident: str
    question: str
    state: Literal["waiting", "approved", "denied", "expired"]
    asked_at: float
    expires_at: float
    answered_at: float | None = None
    answered_by: str = ""
    why: str = ""
    by: Actor | None = None
    """Who answered; None: nobody did, or a version that only knew `answered_by`, which anybody could set."""

    @property
    def taken_back(self) -> bool:
        """Whether nobody has to answer any more, since what was asked about is over."""
        return self.state == "expired" and self.why.startswith(TAKEN_BACK)

    @property
    def answerer(self) -> Actor | None:
        """Who answered, as far as it is known; None: nobody."""
        return self.by or (Actor(self.answered_by, KnownBy.UNVERIFIED) if self.answered_by else None)


@dataclass(frozen=True)
class VerdictRecord:
    """What a test said about a node."""

    cluster: str
    node: str
    verdict: VerdictWord
    depth: str
    """`gate`, `smoke`, `device`, `fabric`, `storage`, `training`."""
    at: float
    reasons: tuple[Json, ...] = ()
    """`{"check", "verdict", "measured", "limit", "unit", "evidence"}` each."""
    source: str = ""
    """Attempt or test that produced it."""


@dataclass(frozen=True)
class NodeRecord:
    """What we did to a node (never what somebody else did)."""

    cluster: str
    node: str
    state: Literal["schedulable", "quarantined", "testing", "unknown"]
    why: str
    since: float
    incident: str = ""
    pool: str = ""
    by: Actor | None = None
    """Who did it by hand, or said that we may; None: we did."""

    @property
    def told(self) -> str:
        """Who, if anybody, and why."""
        return told(self.why, self.by)


@dataclass(frozen=True)
class StepRow:
    """One completed step."""

    step: int
    at: float
    seconds: float | None = None
    """Step time as the program reported it; None: the gap to the step before counts."""
    loss: float | None = None


@dataclass(frozen=True)
class MarkRecord:
    """A moment in the life of an attempt, for the accounting of wall time."""

    run: str
    attempt: int
    kind: str
    """`submitted`, `drill`, `fault`, `detected`, `diagnosed`, `decided`, `ended`, `waiting-begin`, `-end`, `paused`,
    `unpaused`, those of `workflows.model.gang_status`; `data-` and `standby-begin`, `-end`, which nobody writes yet."""
    at: float
    detail: str = ""


@dataclass(frozen=True)
class RequestRecord:
    """Something a person asked of a run; the driver carries it out."""

    id: str
    run: str
    kind: Literal["stop", "wake"]
    at: float
    why: str = ""
    done_at: float | None = None


@dataclass(frozen=True)
class Act:
    """Something that a person did, whatever came of it."""

    at: float
    what: str
    """The command's word: `approve`, `stop`, `pause`; `drill kill-rank:1`."""
    subject: str
    """Id of what it concerns."""
    why: str
    by: Actor


@dataclass(frozen=True)
class Story:
    """Everything the ledger knows about one run, read in one transaction."""

    run: RunRecord
    attempts: tuple[AttemptRecord, ...] = ()
    incidents: tuple[IncidentRecord, ...] = ()
    actions: tuple[ActionRecord, ...] = ()
    approvals: tuple[ApprovalRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    marks: tuple[MarkRecord, ...] = ()
    acts: tuple[Act, ...] = ()
    """What people did about it, the newest `ACTS`, oldest first."""
    lease: Lease | None = None
    paused: bool = False
    """True where the run or everything is paused."""
    extra: Json = field(default_factory=lambda: {})

    @property
    def attempt(self) -> AttemptRecord | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def troubles(self) -> tuple[IncidentRecord, ...]:
        """Incidents without those that ask for no action."""
        return tuple(item for item in self.incidents if item.signal not in TOLD)

    @property
    def open_incident(self) -> IncidentRecord | None:
        """The newest incident without a decision, if any."""
        ended = [item for item in self.incidents if not item.went_on]
        return ended[-1] if ended and ended[-1].action is None else None
