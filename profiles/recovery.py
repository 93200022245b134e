"""How a run is brought back: budgets, limits, and what may be done without asking a person."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from profiles.values import Count, ObjectName, PositiveCount, PositiveSeconds, Seconds, Value
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction


class Budget(Value):
    """A token bucket: at most `tokens` restarts within any `window_seconds`; it survives restarts of everything.

    Beside them come as many as chance may bring so many nodes in the part of the window in which they were held (0.999
    quantile of a negative binomial): one on 8 nodes that trained for 6 h, 44 on 12,500.
    """

    tokens: PositiveCount = 6
    """Restarts in one window, beside those that chance may bring a gang of this size."""
    window_seconds: PositiveSeconds = 21600.0
    """Length of the window (6 h: the usual window of managed training services)."""


class HangLimits(Value):
    """Without step progress for longer than this, a phase counts as hung."""

    init_seconds: PositiveSeconds = 1800.0
    """From pod start to the first step."""
    step_floor_seconds: PositiveSeconds = 60.0
    """Never call a step hung earlier than this."""
    step_factor: float = Field(default=5.0, gt=1)
    """Times the longest step seen so far."""
    checkpoint_seconds: PositiveSeconds = 1800.0
    """While a checkpoint is being written."""


class StragglerLimits(Value):
    """A rank is slow when it is this much slower than its peers, this often."""

    ratio: float = Field(default=1.1, gt=1)
    """Times the peers' median of local compute time."""
    robust_z: float = Field(default=3.5, gt=0)
    """Distance in robust standard deviations."""
    windows: PositiveCount = 4
    """Bad windows out of five."""
    leave: bool = True
    """Leave the node of a slow rank for a free one when waiting for it has cost as much as a new attempt does."""


class RecoveryProfile(Value):
    """The rules of recovery of one run."""

    name: ObjectName = "default"
    """Name of the profile."""
    description: str = ""
    """One sentence for people."""
    mode: Mode = Mode.ACT
    """How far automation goes; `--mode` outranks it."""
    restarts: Budget = Budget()
    """Budget for faults that may be the user's; infrastructure faults are free."""
    free_classes: tuple[FaultClass, ...] = (
        FaultClass.NODE_LOST,
        FaultClass.GPU_HARDWARE,
        FaultClass.GPU_DRIVER,
        FaultClass.FABRIC,
        FaultClass.PREEMPTED,
        FaultClass.CONTROL_PLANE,
        FaultClass.THERMAL_POWER,
    )
    """Classes that are nobody's fault: they use no budget, count as no attempt and not against progress."""
    max_attempts: PositiveCount = 100
    """No run has more attempts than this that it answers for: those that ended by a free class are not counted, and as
    many as chance may bring so many nodes in the time of the run come on top."""
    no_progress_attempts: PositiveCount = 3
    """So many attempts in a row without a new highest step, those by a free class not counted: give up; more where
    chance stops so many nodes before that step more often, at most 6 without any step. Whatever ends attempts: give up
    where no durable step was made for 20 times as long as one is expected to take."""
    same_failure_limit: PositiveCount = 2
    """The same fingerprint at the same step so often, and no attempt got past it in between: the code or the data is
    at fault, give up. Once more where chance may have done that to so many nodes (6 times without any step)."""
    retry_user_code: bool = False
    """Start again after an exception in the user's code."""
    in_place_restarts: Count = 3
    """Restarts in place that the coordinator may do without asking, in any `in_place_window_seconds`; 0: none."""
    in_place_window_seconds: PositiveSeconds = 21600.0
    """So long a restart in place counts (6 h: three in 6 h, then a full one, is what managed training services do)."""
    in_place_scope: Literal["gang", "role", "replica"] = "gang"
    """Whose ranks begin again with one that was killed or hangs: those of all roles without which the attempt fails
    (`gang`), those of its role (`role`), or those of its replica group alone (`replica`, where the program trains on
    without a replica)."""
    hang: HangLimits = HangLimits()
    """Limits of silence."""
    straggler: StragglerLimits = StragglerLimits()
    """Limits of slowness."""
    roll_back_checkpoints: PositiveCount = 1
    """After NaN: how many checkpoints before the first NaN to go back at first; one more with each repetition."""
    max_roll_backs: PositiveCount = 2
    """Roll-backs for one cause before giving up."""
    use_spares: bool = True
    """Take spare nodes before other free ones."""
    leave_cordoned_nodes: bool = True
    """Move away from a node that somebody cordoned, once others are free; false: stay until the pods are told to go."""
    ask_before: tuple[Action | NodeAction, ...] = (NodeAction.REPAIR,)
    """In mode ask: actions that wait for a person."""
    approval_timeout_seconds: PositiveSeconds = 86400.0
    """After this an unanswered question gets the safe default: nothing is done, the run stays stopped."""
    gate_timeout_seconds: PositiveSeconds = 120.0
    """Limit of the short gate before an attempt."""
    pending_timeout_seconds: PositiveSeconds = 3600.0
    """A gang that finds no room for so long is an incident (scheduling)."""
    observer_silence_seconds: Seconds = 30.0
    """Coordinator not heard for so long while pods run: the ranks' own logs are asked. It ends nothing by itself."""
