"""What we do about each class by default: one table.

Source: recommended defaults of the fault tolerance notes, section 7; where the design says otherwise, it wins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from profiles.vocabulary import Action, FaultClass

F = FaultClass


@dataclass(frozen=True)
class Treatment:
    """The default for one class."""

    action: Action
    retry_helps: bool
    """Starting again as it is has a fair chance."""
    nodes: Literal["none", "quarantine-again", "quarantine"]
    """What happens to nodes that are to blame. `quarantine-again`: avoided where others are free, since the symptom has
    several owners; quarantined when it happens there a second time. `quarantine`: at once."""
    repeats_are_code: bool
    """The same fingerprint at the same step again means that the code or the data is at fault."""
    advice: str
    """What a person can do."""
    tries: int | None = None
    """New attempts for this class within one window before giving up; None: only the budgets count."""
    wait_seconds: float = 0.0
    """First wait before the next attempt; doubled with every repetition within the window."""
    optional: bool = False
    """The training goes on by itself: where a limit or a question forbids the move it is left alone, never ended. A
    move of this kind uses no budget."""


TREATMENTS: dict[FaultClass, Treatment] = {
    F.GPU_HARDWARE: Treatment(Action.NEW_ATTEMPT, True, "quarantine", False, "repair or replace the GPU"),
    F.GPU_DRIVER: Treatment(
        Action.NEW_ATTEMPT, True, "quarantine-again", True, "test the node; look at the newest kernels"
    ),
    F.FABRIC: Treatment(Action.NEW_ATTEMPT, True, "quarantine-again", False, "test the links of the named nodes"),
    F.COLLECTIVE_TIMEOUT: Treatment(
        Action.NEW_ATTEMPT, True, "none", True, "look for the rank that did not arrive in the collective"
    ),
    F.GPU_OOM: Treatment(
        Action.GIVE_UP, False, "none", True, "smaller micro batch, activation checkpointing or more sharding"
    ),
    F.HOST_OOM: Treatment(
        Action.NEW_ATTEMPT, True, "none", False, "give the pod more memory or use fewer data loader workers", tries=1
    ),
    F.STORAGE: Treatment(
        Action.NEW_ATTEMPT,
        True,
        "none",
        False,
        "look at the storage: space, mounts, servers",
        tries=4,
        wait_seconds=5.0,
    ),
    F.CHECKPOINT_CORRUPT: Treatment(
        Action.ROLL_BACK, True, "none", False, "name a good checkpoint or start the run anew"
    ),
    F.CHECKPOINT_MISMATCH: Treatment(
        Action.GIVE_UP, False, "none", True, "the model or its layout differs from the one that was saved"
    ),
    F.USER_CODE: Treatment(Action.GIVE_UP, False, "none", True, "correct the program, then resume the run"),
    F.CONFIG: Treatment(Action.GIVE_UP, False, "none", True, "correct the profile, then resume the run"),
    F.DATA: Treatment(Action.NEW_ATTEMPT, True, "none", True, "look at the data that is named", tries=1),
    F.NUMERIC: Treatment(
        Action.ROLL_BACK, True, "none", False, "lower the learning rate, skip the batch, or test for bad chips"
    ),
    F.RENDEZVOUS: Treatment(
        Action.NEW_ATTEMPT, True, "none", False, "look at names, ports and the network between the pods"
    ),
    F.PREEMPTED: Treatment(Action.NEW_ATTEMPT, True, "none", False, ""),
    F.SCHEDULING: Treatment(Action.WAIT, True, "none", False, "free nodes, raise the quota, or ask for fewer nodes"),
    F.THERMAL_POWER: Treatment(
        Action.NEW_ATTEMPT, True, "quarantine-again", False, "look at cooling and power of the node"
    ),
    F.NODE_LOST: Treatment(Action.NEW_ATTEMPT, True, "quarantine", False, "the node needs a look before it comes back"),
    F.PROCESS_KILLED: Treatment(Action.NEW_ATTEMPT, True, "none", False, "find out who killed the process"),
    F.HANG: Treatment(Action.NEW_ATTEMPT, True, "none", True, "look at the stacks of the ranks that lag"),
    F.STRAGGLER: Treatment(Action.NONE, True, "none", False, "test the slow node at the next pause"),
    F.STARTED_OVER: Treatment(
        Action.GIVE_UP, False, "none", True, "make the program load the checkpoint it is given, then resume the run"
    ),
    F.CONTROL_PLANE: Treatment(Action.NONE, True, "none", False, "", wait_seconds=30.0),
    F.UNKNOWN: Treatment(Action.NEW_ATTEMPT, True, "none", True, "look at the logs of the first failing rank"),
    F.NONE: Treatment(Action.NONE, True, "none", False, "", wait_seconds=5.0),
}

AMBIGUOUS = replace(
    TREATMENTS[F.GPU_DRIVER],
    advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code",
)
"""Of a memory fault of a GPU two in three are the program's, the third is the machine's: one more try is worth it."""

BY_RULE: dict[str, Treatment] = {
    "cuda-illegal-access": AMBIGUOUS,
    "hip-illegal-access": AMBIGUOUS,
    "cuda-kernel-fault": AMBIGUOUS,
    "xid-application": AMBIGUOUS,
    "xid-application-stopped": AMBIGUOUS,
    "signal-node-cordoned": replace(TREATMENTS[F.PREEMPTED], optional=True),
    "signal-straggler": replace(TREATMENTS[F.STRAGGLER], action=Action.NEW_ATTEMPT, tries=3, optional=True),
    "disk-full": replace(TREATMENTS[F.STORAGE], tries=1, wait_seconds=15.0),
}
"""Where the strongest rule says more than its class."""


def treatment_of(fault_class: FaultClass, rule: str = "") -> Treatment:
    """The default for a diagnosis.

    Args:
        fault_class: its class.
        rule: name of its strongest rule.
    """
    return BY_RULE.get(rule, TREATMENTS[fault_class])
