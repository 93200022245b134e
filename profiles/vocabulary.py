"""The closed vocabularies: code, JSON, ledger and documents use these words and no others.

Each word stands here once. The README's tables are tested against these enumerations.
"""

from __future__ import annotations

from enum import StrEnum

OUTCOME_SUCCEEDED = "succeeded"
OUTCOME_STOPPED = "stopped"
"""Outcomes of an attempt beside the fault classes."""


class FaultClass(StrEnum):
    """What a fault is. Also the outcome of an attempt that did not succeed and was not stopped."""

    GPU_HARDWARE = "gpu_hardware"
    GPU_DRIVER = "gpu_driver"
    FABRIC = "fabric"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    STORAGE = "storage"
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    CHECKPOINT_MISMATCH = "checkpoint_mismatch"
    USER_CODE = "user_code"
    CONFIG = "config"
    DATA = "data"
    NUMERIC = "numeric"
    RENDEZVOUS = "rendezvous"
    PREEMPTED = "preempted"
    SCHEDULING = "scheduling"
    THERMAL_POWER = "thermal_power"
    NODE_LOST = "node_lost"
    PROCESS_KILLED = "process_killed"
    HANG = "hang"
    STRAGGLER = "straggler"
    STARTED_OVER = "started_over"
    CONTROL_PLANE = "control_plane"
    UNKNOWN = "unknown"
    NONE = "none"


class Action(StrEnum):
    """What we do about a run."""

    RESTART_IN_PLACE = "restart-in-place"
    NEW_ATTEMPT = "new-attempt"
    ROLL_BACK = "roll-back"
    WAIT = "wait"
    ASK = "ask"
    GIVE_UP = "give-up"
    NONE = "none"


class NodeAction(StrEnum):
    """What we do about a node."""

    QUARANTINE = "quarantine"
    DRAIN = "drain"
    REPAIR = "repair"
    VALIDATE = "validate"
    RELEASE = "release"


class VerdictWord(StrEnum):
    """About a node, a checkpoint or a check. A crash, a time-out, silence or nonsense is unknown, never pass."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    UNKNOWN = "unknown"


class RunState(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    RECOVERING = "recovering"
    WAITING_FOR_APPROVAL = "waiting-for-approval"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


FINISHED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED})
"""States in which no driver is needed."""


class Mode(StrEnum):
    """How far automation may go: record only, ask for what the profile names, act. What people ask for is done."""

    OBSERVE = "observe"
    ASK = "ask"
    ACT = "act"


class Tile(StrEnum):
    """Exactly one of these holds for every GPU-second of a run's wall time."""

    QUEUE = "queue"
    PREFLIGHT = "preflight"
    INIT = "init"
    PRODUCTIVE = "productive"
    CHECKPOINT_STALL = "checkpoint_stall"
    DATA_STALL = "data_stall"
    EVAL = "eval"
    STRAGGLER_LOSS = "straggler_loss"
    DETECT = "detect"
    DIAGNOSE = "diagnose"
    RESTART = "restart"
    RESTORE = "restore"
    ROLLBACK = "rollback"
    STANDBY = "standby"
    PAUSED = "paused"
    OTHER = "other"


class KnownBy(StrEnum):
    """How it is known who did something."""

    OS_USER = "os-user"
    """By the real user id of the process on its machine, which nobody chooses for himself."""
    SERVER_PASSWORD = "server-password"  # noqa: S105 - a word
    """Only so far: he holds the Prefect server's one password, as others do."""
    UNVERIFIED = "unverified"
    """Nobody checked: the server asks for no password, the process runs where its caller chooses user ids, or an older
    version wrote it."""
