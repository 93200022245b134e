"""What a fault class means: one row a class, from which every set of classes elsewhere is derived.

Nothing else in `flows` lists fault classes by their properties. A new class needs its word (`profiles.vocabulary`), its
row here, the rules that find it, and a line of the README's table. The profile says which classes cost no restart of
the budget (`recovery.free_classes`). The defaults are the recommendations of the fault tolerance notes, section 7;
where the design says otherwise, it wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from profiles.vocabulary import Action, FaultClass, NodeAction

F = FaultClass


class RetryPrior(NamedTuple):
    """What is believed of retries before the ledger knows any."""

    success_share: float
    """Share of retries that succeed, 0 to 1."""
    worth_retries: float
    """How many observed retries that opinion is worth."""


class FailedCheck(NamedTuple):
    """What a class leads to where a test found it on a node without a run."""

    rank: int
    """Position among the classes that checks of nodes have, 1 the worst: the worst failed check decides."""
    action: NodeAction
    certain: bool
    """It was counted or is a state, and does not come and go."""
    why: str
    """Why this and nothing else, with its source."""


@dataclass(frozen=True)
class FaultPolicy:
    """What one fault class means. What a row does not name does not hold for its class."""

    action: Action
    """What is done about the run by default."""
    prior: RetryPrior
    """Of retries after this class. About three in four faults clear with a restart (DLRover); hangs belong to the
    machines in 21 of 26 cases, illegal accesses in 21 of 62 (census of jobs above 2,000 GPUs); a program that is wrong
    stays wrong. The rest are our estimates, soon outweighed by the ledger."""
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
    needs_change: bool = False
    """The same start again, with nothing changed, undone or waited for, meets the same: what we do about it is more
    than that (another checkpoint, a wait, a look), or hardly more."""
    ends_whatever_the_odds: bool = False
    """Where the action is to give up, no chance of success changes that: another attempt would overwrite good steps."""
    saves_before_leaving: bool = False
    """The training was sound: its pods have time to save before they end."""
    interrupts_training: bool = True
    """An incident of this class is a failure, and counts in rates of failures."""

    may_be_hardware: bool = False
    """A look at the node can confirm or change the diagnosis."""
    several_owners: bool = False
    """The symptom is the user's as often as the machine's (census of 778,135 jobs): earlier incidents tell whose."""
    may_be_code: bool = False
    """Of a class with several owners: the same failure at the same step on other nodes is the program's."""
    exception_blames_code: bool = False
    """An exception or an exit code of this class is the doing of the code, or of what it was given."""
    blames_nobody: bool = False
    """No rank and no node is to blame: whoever prints it only met what others had decided."""
    strikes_few_nodes: bool = False
    """The few nodes that say something of their own, while the others only wait, are where it is."""
    lone_rank: Literal["never", "where-others-suffered", "always"] = "never"
    """Whether the one rank that failed, while all others only suffered, is worth naming (its node is not to blame).
    `where-others-suffered`: it may strike every rank alike, so the others must be known to have only suffered."""
    kernel_condemns_node: bool = False
    """A node whose kernel reports it is taken out."""
    trial_condemns_node: bool = False
    """A node that the evidence names fails a trial for it. A lost pod, silence and the user's errors condemn none."""
    failed_check: FailedCheck | None = None
    """What a failed check of this class leads to; None: checks of nodes have no such class."""

    reported_calmly: bool = False
    """Programs report it as information: a loss, a preemption, a restart, an exit code."""
    may_be_optional_part: bool = False
    """A program may say it of a part that it can do without."""
    outlasts_progress: bool = False
    """Later steps do not disprove it: training goes on with it, or another attempt's lines follow."""
    retracted_by: Literal["nothing", "place", "answer", "peers", "end-of-training"] = "nothing"
    """Which later line takes it back. `place`: a pod got its place; `answer`: the control plane answers again; `peers`:
    the ranks met; `end-of-training`: another attempt went on, and the training came to its end."""
    may_be_teardown: bool = False
    """It may be a crash while programs are taken down whose work was done."""
    exception_is_echo: bool = False
    """An exception of this class is what victims print too, so it is hardly counted beside an original."""
    log_odds_after_steps: float = 0.0
    """Added to the natural logarithm of the odds of an exception once steps were made (our estimates): settings and
    resumed checkpoints were good by then, data and disks may go bad any time."""
    follows_broken_gpu: bool = False
    """A broken GPU makes everybody else print it."""


# fmt: off
POLICY: Mapping[FaultClass, FaultPolicy] = {
    F.GPU_HARDWARE: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.90, 4), retry_helps=True, nodes="quarantine", repeats_are_code=False,
        advice="repair or replace the GPU",
        may_be_hardware=True, kernel_condemns_node=True, trial_condemns_node=True,
        failed_check=FailedCheck(
            1, NodeAction.QUARANTINE, True,
            "Xid catalog and AMD's default: drain, reset, verify; a fault that returns: replace"),
        reported_calmly=True, outlasts_progress=True,
    ),
    F.GPU_DRIVER: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.75, 4), retry_helps=True, nodes="quarantine-again", repeats_are_code=True,
        advice="test the node; look at the newest kernels",
        may_be_hardware=True, several_owners=True, may_be_code=True, strikes_few_nodes=True, kernel_condemns_node=True,
        trial_condemns_node=True,
        failed_check=FailedCheck(
            4, NodeAction.DRAIN, True,
            "Xid catalog (119, 120, 143): drain, reset or load the driver anew, verify; the node can be kept"),
        may_be_optional_part=True, follows_broken_gpu=True,
    ),
    F.FABRIC: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.75, 4), retry_helps=True, nodes="quarantine-again", repeats_are_code=False,
        advice="test the links of the named nodes",
        may_be_hardware=True, several_owners=True, strikes_few_nodes=True, kernel_condemns_node=True,
        trial_condemns_node=True,
        failed_check=FailedCheck(
            5, NodeAction.QUARANTINE, False,
            "gpud, NVSentinel: no new gang on a link that is down or flaps; it may come back by itself"),
    ),
    F.COLLECTIVE_TIMEOUT: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.75, 4), retry_helps=True, nodes="none", repeats_are_code=True,
        advice="look for the rank that did not arrive in the collective",
        may_be_hardware=True, several_owners=True, may_be_code=True,
        exception_is_echo=True, follows_broken_gpu=True,
    ),
    F.GPU_OOM: FaultPolicy(
        Action.GIVE_UP, RetryPrior(0.05, 20), retry_helps=False, nodes="none", repeats_are_code=True,
        advice="smaller micro batch, activation checkpointing or more sharding",
        lone_rank="where-others-suffered",
        failed_check=FailedCheck(
            13, NodeAction.REPAIR, False,
            "memory that somebody holds is given back, or the GPU is reset"),
    ),
    F.HOST_OOM: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.40, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="give the pod more memory or use fewer data loader workers", tries=1, needs_change=True,
    ),
    F.STORAGE: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.65, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="look at the storage: space, mounts, servers", tries=4, wait_seconds=5.0,
        may_be_hardware=True, strikes_few_nodes=True, kernel_condemns_node=True,
        failed_check=FailedCheck(
            8, NodeAction.REPAIR, False,
            "room is made or a mount is mended; the node itself is good"),
        may_be_optional_part=True, log_odds_after_steps=0.5,
    ),
    F.CHECKPOINT_CORRUPT: FaultPolicy(
        Action.ROLL_BACK, RetryPrior(0.85, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="name a good checkpoint or start the run anew", needs_change=True,
    ),
    F.CHECKPOINT_MISMATCH: FaultPolicy(
        Action.GIVE_UP, RetryPrior(0.02, 20), retry_helps=False, nodes="none", repeats_are_code=True,
        advice="the model or its layout differs from the one that was saved",
        exception_blames_code=True, blames_nobody=True,
        may_be_optional_part=True, log_odds_after_steps=-1.0,
    ),
    F.USER_CODE: FaultPolicy(
        Action.GIVE_UP, RetryPrior(0.05, 20), retry_helps=False, nodes="none", repeats_are_code=True,
        advice="correct the program, then resume the run",
        exception_blames_code=True, lone_rank="where-others-suffered",
        may_be_optional_part=True, may_be_teardown=True, follows_broken_gpu=True,
    ),
    F.CONFIG: FaultPolicy(
        Action.GIVE_UP, RetryPrior(0.02, 20), retry_helps=False, nodes="none", repeats_are_code=True,
        advice="correct the profile, then resume the run",
        exception_blames_code=True, blames_nobody=True,
        failed_check=FailedCheck(9, NodeAction.REPAIR, True, "a setting is corrected; the node itself is good"),
        may_be_optional_part=True, log_odds_after_steps=-1.5,
    ),
    F.DATA: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.30, 4), retry_helps=True, nodes="none", repeats_are_code=True,
        advice="look at the data that is named", tries=1, needs_change=True,
        exception_blames_code=True, lone_rank="always",
        may_be_optional_part=True, log_odds_after_steps=0.5,
    ),
    F.NUMERIC: FaultPolicy(
        Action.ROLL_BACK, RetryPrior(0.60, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="lower the learning rate, skip the batch, or test for bad chips", needs_change=True,
        several_owners=True, may_be_code=True, lone_rank="where-others-suffered",
        failed_check=FailedCheck(
            3, NodeAction.QUARANTINE, True,
            "wrong values without an error: nothing that ran there can be trusted"),
        reported_calmly=True,
    ),
    F.RENDEZVOUS: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.75, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="look at names, ports and the network between the pods",
        strikes_few_nodes=True,
        failed_check=FailedCheck(
            10, NodeAction.REPAIR, False,
            "names and reachability belong to the cluster's services"),
        retracted_by="peers",
    ),
    F.PREEMPTED: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.97, 8), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="",
        saves_before_leaving=True, blames_nobody=True,
        reported_calmly=True, outlasts_progress=True, retracted_by="end-of-training",
    ),
    F.SCHEDULING: FaultPolicy(
        Action.WAIT, RetryPrior(0.60, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="free nodes, raise the quota, or ask for fewer nodes", needs_change=True,
        interrupts_training=False, blames_nobody=True,
        failed_check=FailedCheck(
            11, NodeAction.REPAIR, False,
            "the device plug-in offers less than there is; it is started anew"),
        reported_calmly=True, retracted_by="place",
    ),
    F.THERMAL_POWER: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.80, 4), retry_helps=True, nodes="quarantine-again", repeats_are_code=False,
        advice="look at cooling and power of the node",
        may_be_hardware=True, several_owners=True, kernel_condemns_node=True, trial_condemns_node=True,
        failed_check=FailedCheck(
            7, NodeAction.REPAIR, False,
            "DCGM's map: heat and power call for no reset; Xid 54: power connector, seating; people look"),
        reported_calmly=True, outlasts_progress=True,
    ),
    F.NODE_LOST: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.97, 8), retry_helps=True, nodes="quarantine", repeats_are_code=False,
        advice="the node needs a look before it comes back",
        kernel_condemns_node=True,
        failed_check=FailedCheck(
            2, NodeAction.QUARANTINE, True,
            "NPD: a deadlock of the kernel is permanent; a reboot is needed before anything runs there"),
        reported_calmly=True, outlasts_progress=True, retracted_by="end-of-training",
    ),
    F.PROCESS_KILLED: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.75, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="find out who killed the process",
        several_owners=True,
        failed_check=FailedCheck(12, NodeAction.REPAIR, False, "somebody else's process is ended by its owner"),
        reported_calmly=True, may_be_teardown=True, follows_broken_gpu=True,
    ),
    F.HANG: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.80, 4), retry_helps=True, nodes="none", repeats_are_code=True,
        advice="look at the stacks of the ranks that lag",
        several_owners=True, may_be_code=True,
        failed_check=FailedCheck(6, NodeAction.DRAIN, True, "a process that cannot be ended goes with a reboot only"),
        reported_calmly=True, outlasts_progress=True, retracted_by="end-of-training",
    ),
    F.STRAGGLER: FaultPolicy(
        Action.NONE, RetryPrior(0.90, 4), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="test the slow node at the next pause",
        saves_before_leaving=True, trial_condemns_node=True,
        failed_check=FailedCheck(
            14, NodeAction.VALIDATE, False,
            "slower than its peers: a deeper test says which part"),
        reported_calmly=True, outlasts_progress=True,
    ),
    F.STARTED_OVER: FaultPolicy(
        Action.GIVE_UP, RetryPrior(0.05, 20), retry_helps=False, nodes="none", repeats_are_code=True,
        advice="make the program load the checkpoint it is given, then resume the run",
        ends_whatever_the_odds=True, blames_nobody=True,
        reported_calmly=True, outlasts_progress=True,
    ),
    F.CONTROL_PLANE: FaultPolicy(
        Action.NONE, RetryPrior(0.95, 8), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="", wait_seconds=30.0,
        interrupts_training=False, blames_nobody=True,
        reported_calmly=True, retracted_by="answer",
    ),
    F.UNKNOWN: FaultPolicy(
        Action.NEW_ATTEMPT, RetryPrior(0.60, 4), retry_helps=True, nodes="none", repeats_are_code=True,
        advice="look at the logs of the first failing rank",
        may_be_hardware=True, several_owners=True, may_be_code=True, lone_rank="always",
        reported_calmly=True, may_be_teardown=True, exception_is_echo=True, follows_broken_gpu=True,
    ),
    F.NONE: FaultPolicy(
        Action.NONE, RetryPrior(0.95, 8), retry_helps=True, nodes="none", repeats_are_code=False,
        advice="", wait_seconds=5.0, needs_change=True,
        interrupts_training=False, blames_nobody=True,
    ),
}
# fmt: on

AMBIGUOUS = replace(
    POLICY[F.GPU_DRIVER],
    needs_change=True,
    advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code",
)
"""Of a memory fault of a GPU two in three are the program's, the third is the machine's: one more try is worth it."""

BY_RULE: Mapping[str, FaultPolicy] = {
    "cuda-illegal-access": AMBIGUOUS,
    "hip-illegal-access": AMBIGUOUS,
    "cuda-kernel-fault": AMBIGUOUS,
    "cuda-launch-failure": AMBIGUOUS,
    "hip-launch-failure": AMBIGUOUS,
    "cuda-execution-failed": AMBIGUOUS,
    "hsa-memory-fault": AMBIGUOUS,
    "xid-application": AMBIGUOUS,
    "xid-application-stopped": AMBIGUOUS,
    "desync-report": replace(POLICY[F.HANG], needs_change=True),
    "desync-never-joined": replace(POLICY[F.HANG], needs_change=True),
    "signal-node-cordoned": replace(POLICY[F.PREEMPTED], optional=True),
    "signal-straggler": replace(POLICY[F.STRAGGLER], action=Action.NEW_ATTEMPT, tries=3, optional=True),
    "launcher-ended-early": replace(POLICY[F.CONFIG], action=Action.NEW_ATTEMPT, retry_helps=True),
    # Whoever begins the next job goes on from its checkpoint: only a limit that lets no step be made ends the run.
    **dict.fromkeys(
        ("slurm-time-limit", "batch-time-limit", "job-deadline", "limit-of-the-job"),
        replace(
            POLICY[F.CONFIG],
            action=Action.NEW_ATTEMPT,
            retry_helps=True,
            outlasts_progress=True,
            reported_calmly=True,
            retracted_by="end-of-training",
        ),
    ),
    # Something was raised: of exceptions in general four in five are the program's.
    "traceback-cut": replace(
        POLICY[F.UNKNOWN],
        needs_change=True,
        advice="the traceback is cut off before its exception: its last line says what failed",
    ),
    # A save that cannot open or fill its file: the disk is full, or the folder is missing or may not be written.
    **dict.fromkeys(("file-write-failed", "file-not-writable"), replace(POLICY[F.STORAGE], needs_change=True)),
    # One container that a node could not start is no lost node: it is when that comes again.
    "container-runtime": replace(POLICY[F.NODE_LOST], nodes="quarantine-again", kernel_condemns_node=False),
    "cuda-driver-version": replace(POLICY[F.GPU_DRIVER], needs_change=True),
    "disk-full": replace(POLICY[F.STORAGE], tries=1, wait_seconds=15.0, needs_change=True),
}
"""Where the strongest rule says more about what to do than its class."""


def policy_of(fault_class: FaultClass, rule: str = "") -> FaultPolicy:
    """The policy for a diagnosis."""
    return BY_RULE.get(rule, POLICY[fault_class])


def classes_where(holds: Callable[[FaultPolicy], bool]) -> frozenset[FaultClass]:
    """The classes whose row has this property."""
    return frozenset(kind for kind, policy in POLICY.items() if holds(policy))
