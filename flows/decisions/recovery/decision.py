"""The values of a decision: what it depends on, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flows.decisions.recovery.chance import Chance, Pace
from flows.decisions.recovery.odds import Tally
from flows.decisions.recovery.resume_rule import CheckpointRule
from profiles.recovery import RecoveryProfile
from profiles.run import RunBudget
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction
from workflows.model.attempt import PastIncident
from workflows.model.fleet import BrakeState
from workflows.wire import ResumeChoice

STARTS = frozenset({Action.NEW_ATTEMPT, Action.ROLL_BACK, Action.RESTART_IN_PLACE})
"""Actions after which the run trains again."""


class NodeStep(NamedTuple):
    """One thing to do about a node."""

    action: NodeAction
    node: str
    why: str


@dataclass(frozen=True)
class Situation:
    """Everything a decision depends on beside the diagnosis."""

    now: float
    recovery: RecoveryProfile = field(default_factory=RecoveryProfile)
    mode: Mode = Mode.ACT
    paused: bool = False
    past: tuple[PastIncident, ...] = ()
    """Decided incidents of the run, oldest first."""
    resumed_at: float | None = None
    """When a person last continued the run: budgets count from there."""
    attempts: int = 1
    """Attempts so far that count, the present one included: those that the infrastructure ended do not."""
    highest_steps: tuple[int | None, ...] = ()
    """Last step of each attempt since the run began or was resumed by a person, oldest first, the present one last."""
    free_attempts: frozenset[int] = frozenset()
    """Those of them, by their places, that the infrastructure ended."""
    chance: Chance = field(default_factory=Chance)
    """How often a gang of this size stops without anybody's fault."""
    pace: Pace = field(default_factory=Pace)
    """How fast the run saves, and since when it has not."""
    brake: BrakeState = field(default_factory=lambda: BrakeState(pool_size=1_000_000))
    budget: RunBudget = field(default_factory=RunBudget)
    gpu_hours: float = 0.0
    """Spent over all attempts."""
    wall_seconds: float = 0.0
    """Since the run was submitted."""
    choice: ResumeChoice | None = None
    """What the present attempt was given to resume from, with everything that was looked at."""
    checkpoints: tuple[tuple[int, str], ...] = ()
    """(step, path) of checkpoints that count as usable now, those of a thrown-away lineage left out."""
    lineage: CheckpointRule = field(default_factory=CheckpointRule)
    """What earlier roll-backs still forbid."""
    roll_back_limits: tuple[tuple[int, int], ...] = ()
    """(first NaN step, limit) of earlier roll-backs after NaN."""
    first_nan_step: int | None = None
    pending_seconds: float | None = None
    """How long the gang has found no room; None: the limit was reached."""
    spare_nodes: int | None = None
    """Usable nodes beside those of the gang; None: not known."""
    tallies: Mapping[FaultClass, Tally] = field(default_factory=dict[FaultClass, Tally])
    """What became of the retries that the ledger knows, over all runs."""
    gpus: int = 1
    """Of the whole gang."""
    restart_seconds: float | None = None
    """Median of the ledger from detection to the next first step; None: not measured yet."""
    redo_seconds: float = 0.0
    """Training time between the newest usable checkpoint and the failure."""
    ended: bool = True
    """False while the attempt still trains: then doing nothing is possible."""


@dataclass(frozen=True)
class Decision:
    """What is done, and why."""

    action: Action
    why: str
    would_change: str
    """What would have changed the decision."""
    charged: bool = False
    budget_left: int = 0
    """Restarts left in the window after this one."""
    node_actions: tuple[NodeStep, ...] = ()
    avoid_nodes: tuple[str, ...] = ()
    max_resume_step: int | None = None
    exclude_checkpoints: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    """Before the next attempt, or before looking again."""
    approval: str | None = None
    """Question to a person; only with action `ask`."""
    if_approved: Action | None = None
    """With action `ask`: what is done when the person says yes; no or no answer: the run stays stopped."""
    act: bool = True
    """False in mode observe or when paused: record it, touch nothing."""
    advice: str = ""


def since_resume(situation: Situation) -> tuple[PastIncident, ...]:
    """Incidents since a person last continued the run; all where nobody did."""
    begin = situation.resumed_at
    return tuple(item for item in situation.past if begin is None or item.at > begin)


def recent(situation: Situation, fault_class: str) -> int:
    """How often this class was met within the window of the restart budget."""
    begin = situation.now - situation.recovery.restarts.window_seconds
    return sum(item.fault_class == fault_class and item.at > begin for item in since_resume(situation))


def restarts_left(situation: Situation) -> int:
    """Charged restarts that the window still allows, never below 0; read from the history: it survives everything."""
    begin = situation.now - situation.recovery.restarts.window_seconds
    used = sum(item.charged and item.at > begin for item in since_resume(situation))
    return max(0, restarts_allowed(situation) - used)


def restarts_allowed(situation: Situation) -> int:
    """Charged restarts in one window: the profile's, and as many as chance may bring a gang of this size meanwhile."""
    return situation.recovery.restarts.tokens + situation.chance.allows(situation.chance.window_node_days)


def give_up(why: str, would_change: str) -> Decision:
    """End the run as failed; a person may resume it."""
    return Decision(Action.GIVE_UP, why, would_change)
