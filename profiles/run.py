"""One training run as it is wanted: roles, resources, placement, progress, checkpoints, and the trial of it on nodes.

The checkpoint policy says where checkpoints are, how a resume is passed to the program and how a save is asked for. The
trial policy says how many steps a trial takes and how fast they must be.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from profiles.recovery import RecoveryProfile
from profiles.values import (
    Count,
    EnvironmentName,
    ObjectName,
    PositiveCount,
    PositiveSeconds,
    Quantity,
    RoleName,
    Seconds,
    Text,
    Value,
    wrong,
)

CheckpointFormat = Literal[
    "auto",
    "primus",
    "dcp",
    "megatron",
    "huggingface",
    "accelerate",
    "deepspeed",
    "orbax",
    "tensorflow",
    "folder",
    "pattern",
    "none",
]
Framework = Literal[
    "primus-demo", "megatron", "primus", "torchtitan", "nemo", "huggingface", "lightning", "regex", "file", "none"
]


def check_pattern(field: str, pattern: str, needs_group: str = "") -> None:
    """Nothing, or the error of a validator where `pattern` is no regular expression or lacks a group."""
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise wrong(field, f"is no regular expression: {error}") from error
    if pattern and needs_group and needs_group not in groups:
        raise wrong(field, f"must have a group called {needs_group}, e.g. (?P<{needs_group}>\\d+)")


class Resources(Value):
    """What one pod of a role requests."""

    cpu: Quantity | None = None
    """CPUs; None: no request."""
    memory: Quantity | None = None
    """Memory; None: no request."""
    gpus: Count | None = None
    """GPUs; None: all of a node for the deciding role, none for others."""
    nics: Count | None = None
    """Fabric NICs; None: all of a node where the hardware names a NIC resource."""
    shared_memory: Quantity = "1Gi"
    """Size of /dev/shm, which is part of the pod's memory. Not given: 1Gi, or all of the pod's memory where that is
    less."""


TORCHRUN_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
)
"""What each rank is told as torchrun would tell it, whatever its pod's environment says."""
SET_FOR_RANKS = ("ROLE_NAME",)
"""What each rank is told in any case, beside `PRIMUS_…`."""


class SecretVariable(Value):
    """An environment variable whose value is read from a Secret when the pod starts."""

    name: EnvironmentName
    """Name of the variable."""
    secret: ObjectName
    """Name of the Secret in the cluster's namespace."""
    key: Text
    """Key inside the Secret."""


class Role(Value):
    """One kind of pod of the gang."""

    name: RoleName
    """Name of the role, e.g. `trainer`."""
    replicas: PositiveCount = 1
    """Pods of this role: one a node."""
    processes_per_node: PositiveCount = 1
    """Ranks in one pod."""
    image: Text
    """Container image."""
    command: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments, without a shell. Placeholders: `{run}`, `{attempt}`, `{run_dir}`,
    `{checkpoint_dir}`, `{data}`, `{steps}`, `{seed}`, `{interval_steps}`; of this start `{resume_step}`, `{steps_left}`
    (`{remaining_steps}` is the same), and `{attempt_checkpoint_dir}`, a folder below that of the checkpoints which no
    other start writes into. Numbers may be calculated with: `{steps-1}`, `{resume_step+1}`, `{steps/10}`."""
    environment: dict[EnvironmentName, str] = {}
    """Environment variables. No secrets here: they would stand in the manifest. What is set for each rank (torchrun's
    variables, `PRIMUS_…`) is refused."""
    torchrun_variables: bool = True
    """Ranks get torchrun's variables (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, …). False for one process that would take
    itself for one of many because `RANK` is set; `environment` may set them then."""
    secret_environment: tuple[SecretVariable, ...] = ()
    """Environment variables read from Secrets. What ranks print of their values is hidden in logs."""
    working_directory: str = ""
    """Folder the command starts in, the same in every attempt; empty: `{run_dir}/work`."""
    resources: Resources = Resources()
    """What one pod requests."""
    decides: bool = False
    """The role whose success is the run's success. Exactly one, unless there is only one role."""
    on_failure: Literal["fail_attempt", "restart", "ignore"] = "fail_attempt"
    """What the end of a pod of this role with an error means."""
    forkable: bool = True
    """A Python program whose imports may be done once and forked."""
    preload: tuple[str, ...] = ()
    """Modules a warm process imports beforehand, e.g. `numpy`."""
    replica_groups: PositiveCount = 1
    """Equal parts of the pods, in order, each of which meets and counts its ranks by itself (`REPLICA_GROUP_ID`,
    `NUM_REPLICA_GROUPS`), as fault-tolerant programs such as torchft do. Needs `recovery.in_place_scope: replica`."""


class DataPolicy(Value):
    """Where the training data is."""

    path: str = ""
    """Folder or file as pods see it; `{data}` in commands. Empty: the program knows."""


class ProgressSource(Value):
    """How steps are seen."""

    framework: Framework = "none"
    """Known output format, or `regex`, `file`, `none`."""
    pattern: str = ""
    """For `regex`: named groups `step`, optionally `loss`, `tokens_per_second`, `seconds`, `total`, and `epoch` where
    `step` begins anew in each: what came before is added, `total` is the epoch's length then."""
    file: str = ""
    """For `file`: path whose growing size is progress."""
    first_counter: Count = 1
    """Number the program gives its first step."""
    every_steps: PositiveCount = 1
    """Steps from one reported step to the next; 10 where the program prints every tenth. The first step seen after a
    resume may then be that many steps late."""

    @model_validator(mode="after")
    def _source_is_there(self) -> ProgressSource:
        if (self.framework == "regex") != bool(self.pattern):
            raise wrong("pattern", "must be given exactly where framework is `regex`")
        if (self.framework == "file") != bool(self.file):
            raise wrong("file", "must be given exactly where framework is `file`")
        check_pattern("pattern", self.pattern, needs_group="step")
        return self


class Placement(Value):
    """How close the nodes should be."""

    level: Literal["none", "rack", "block"] = "none"
    """Keep the gang within one such domain."""
    required: bool = False
    """Refuse other placements instead of preferring this one."""


class CheckpointPolicy(Value):
    """Where checkpoints are and how a resume is passed to the program."""

    directory: str = "{run_dir}/checkpoints"
    """Folder as pods see it, on shared storage. Placeholders: `{run_dir}`, `{run}`."""
    format: CheckpointFormat = "auto"
    """What writes them; `auto` recognises by content and name (`folder`: a folder of any files whose name tells a
    step); `none`: the program keeps no checkpoints."""
    pattern: str = ""
    """For `pattern`: regular expression on the file name with a group `step` (steps that it holds) or `index` (its last
    step, counted from 0); without either, one file that is overwritten in place (its step is then the last one reported
    before it was written)."""
    interval_steps: Count = 0
    """Steps between checkpoints as the program is told; 0: not known. `{interval_steps}` in commands."""
    follow_advice: bool = False
    """Tell a further attempt the interval at which least is lost, by the measured stall of a save and the believed time
    between failures, within a quarter and four times of `interval_steps`. Needs `{interval_steps}` in a command."""
    keep: PositiveCount = 3
    """Usable checkpoints to keep at least; the newest two are never deleted. When older ones go, `remove_surplus`
    says."""
    keep_every_steps: Count = 0
    """Of each so many steps the oldest whole checkpoint stays for good, beside the newest `keep`; 0: no such rule."""
    remove_surplus: Literal["by_hand", "at_end", "while_running"] = "by_hand"
    """When we delete the program's checkpoints that `keep` and `keep_every_steps` leave out: only at `primus gc`; by
    the monitor once the run has ended; or as soon as newer ones are proven while it trains. Where not by hand,
    `directory` must lie in the run's folder."""
    resume_argument: tuple[str, ...] = ()
    """Added to the command when there is something to resume, e.g. `("--resume", "{resume_from}")`.
    Placeholders: those of `command`, `{resume_from}`, and `{resume_dir}`, the folder in which it lies (the checkpoint
    itself where it is a folder)."""
    first_step_after_resume: Literal["next", "same", "any"] = "next"
    """First step seen after a resume: checkpoint step + 1, + 0, or not to be judged."""
    counter_restarts: bool = False
    """The program's step counter starts from its beginning again after a resume; then first step = offset + counter."""
    keep_overwritten: bool = True
    """Keep a copy of a proven checkpoint that the program overwrites in place, and put it back before ranks start where
    the program's own is cut off or may not be resumed."""
    bit_equal: bool = False
    """A resumed run ends with exactly the weights of an unfailed one."""
    save_signal: Literal["TERM", "USR1", "USR2", "HUP", "INT"] = "TERM"
    """Asks the program to save before it must go. After TERM it ends by itself; after any other it may go on, and gets
    TERM once the save was seen complete, or when the notice is nearly over."""
    save_file: str = ""
    """File as pods see it that is made to ask for a save, and removed when it was seen and before ranks start; with it
    TERM only ends. Placeholders: `{run_dir}`, `{run}`. Empty: none."""

    @model_validator(mode="after")
    def _pattern_is_there(self) -> CheckpointPolicy:
        if (self.format == "pattern") != bool(self.pattern):
            raise wrong("pattern", "must be given exactly where format is `pattern`")
        check_pattern("pattern", self.pattern)
        if self.follow_advice and not self.interval_steps:
            raise wrong("follow_advice", "needs interval_steps, the interval to begin with")
        if self.keep_every_steps and self.keep_every_steps <= self.interval_steps:
            told = f"must be more than interval_steps ({self.interval_steps}), or all stay for good"
            raise wrong("keep_every_steps", f"{told}; got {self.keep_every_steps}")
        if self.remove_surplus != "by_hand":
            self._check_removal()
        if self.save_file and not self.save_file.startswith(("/", "{run_dir}/")):
            raise wrong("save_file", "must be an absolute path or start with {run_dir}/")
        if self.save_file.endswith("/"):
            raise wrong("save_file", "must be the path of a file, not of a folder")
        return self

    def _check_removal(self) -> None:
        inside = self.directory.startswith("{run_dir}/") and ".." not in self.directory.split("/")
        if not inside:
            told = f"can only be `by_hand` where directory is outside of {{run_dir}}/ ({self.directory})"
            raise wrong("remove_surplus", f"{told}: others may need what lies there")
        if self.format == "none":
            raise wrong("remove_surplus", "can only be `by_hand` where format is `none`: there are no checkpoints")


class TrialPolicy(Value):
    """What `primus preflight --trial` looks at: the run's own program for a few steps, with checkpoints of its own."""

    steps: int = Field(default=20, ge=2)
    """Steps that must be seen; more where the program tells only every so many of them."""
    skip_steps: Count = 5
    """First steps that do not count for the rate: compilers, caches and clocks warm up in them."""
    deadline_seconds: float = Field(default=1200.0, gt=0, le=4 * 3600)
    """From its beginning to the last of these steps, with images, imports and loading of data."""
    at_least_steps_per_second: float | None = Field(default=None, gt=0)
    """A slower gang does not pass; none: only other gangs and the nodes' own past say what is slow."""

    @model_validator(mode="after")
    def _some_steps_are_measured(self) -> TrialPolicy:
        if self.skip_steps > self.steps - 1:
            raise wrong("skip_steps", f"must be less than steps ({self.steps}), got {self.skip_steps}")
        return self


class RunBudget(Value):
    """Limits of the whole run; 0: no limit."""

    gpu_hours: float = Field(default=0.0, ge=0)
    """GPU-hours over all attempts."""
    wall_seconds: Seconds = 0.0
    """Wall time from submission."""


class Overlay(Value):
    """What is different on one hardware."""

    image: str | None = None
    """Image of the deciding role."""
    environment: dict[EnvironmentName, str] = {}
    """Added to the environment of every role."""
    resources: Resources | None = None
    """Resources of the deciding role."""
    processes_per_node: PositiveCount | None = None
    """Ranks per pod of the deciding role."""
    queue: str | None = None
    """Kueue LocalQueue."""
    queue_flavor: str | None = None
    """Kueue ResourceFlavor, as node selector hint."""
    command: tuple[str, ...] | None = None
    """Command of the deciding role."""
    verified: bool | None = None
    """Whether this overlay was run for real."""


class RunProfile(Value):
    """One training run."""

    name: ObjectName
    """Name of the profile; the run's default name starts with it."""
    description: str = ""
    """One sentence for people."""
    roles: tuple[Role, ...] = Field(min_length=1)
    """The gang."""
    hardware: tuple[str, ...] = Field(default=("cpu",), min_length=1)
    """Hardware it may run on, best first; the cluster's first matching pool is taken, never a mixture."""
    pool: str = ""
    """Name of the pool to use; empty: the first whose hardware matches."""
    steps: Count = 0
    """Planned steps; the run is done when the last one was seen. 0: not known, exit 0 is success."""
    seed: int = 0
    """`{seed}` in commands."""
    data: DataPolicy = DataPolicy()
    """Training data."""
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    """Checkpoints."""
    progress: ProgressSource = ProgressSource()
    """How steps are seen."""
    recovery: RecoveryProfile = RecoveryProfile()
    """How it is brought back: an inline value, or in files the name of a recovery profile."""
    priority: str = ""
    """Priority class by name."""
    queue: str = ""
    """Kueue LocalQueue; empty: the cluster's."""
    topology: Placement = Placement()
    """How close the nodes should be."""
    budget: RunBudget = RunBudget()
    """Limits of the whole run."""
    trial: TrialPolicy = TrialPolicy()
    """A short trial before it, where one is asked for."""
    save_grace_seconds: PositiveSeconds = 30.0
    """Time between the request to save (SIGTERM, unless `checkpoint` says another way) and SIGKILL."""
    by_hardware: dict[str, Overlay] = {}
    """What is different on which hardware."""
    verified: bool = False
    """True where this profile was run for real; `profiles show` says "unverified" otherwise."""

    @model_validator(mode="after")
    def _one_role_decides(self) -> RunProfile:
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise wrong("roles", f"must have different names, got {', '.join(names)}")
        if "coordinator" in names:
            raise wrong(f"roles[{names.index('coordinator')}].name", "must not be `coordinator`: that role is ours")
        deciding = [role.name for role in self.roles if role.decides]
        if len(deciding) > 1 or (not deciding and len(self.roles) > 1):
            raise wrong("roles", f"must hold exactly one with `decides: true`, got {', '.join(deciding) or 'none'}")
        return self

    @model_validator(mode="after")
    def _groups_are_equal(self) -> RunProfile:
        deciding, scope = self.deciding_role, self.recovery.in_place_scope
        for index, role in enumerate(self.roles):
            field = f"roles[{index}].replica_groups"
            if role.replica_groups > 1 and role is not deciding:
                raise wrong(field, "must be 1: only the role that decides has replica groups")
            if role.replicas % role.replica_groups:
                raise wrong(field, f"must divide {role.replicas} replicas into equal parts, got {role.replica_groups}")
        if (deciding.replica_groups > 1) != (scope == "replica"):
            field = f"roles[{self.roles.index(deciding)}].replica_groups"
            raise wrong(field, "must be more than 1 exactly where recovery.in_place_scope is `replica`, "
                        f"got {deciding.replica_groups} with `{scope}`")  # fmt: skip
        return self

    @model_validator(mode="after")
    def _advice_is_heard(self) -> RunProfile:
        overlays = [overlay.command or () for overlay in self.by_hardware.values()]
        words_of_commands = [word for words in (*(role.command for role in self.roles), *overlays) for word in words]
        if self.checkpoint.follow_advice and not any("{interval_steps}" in word for word in words_of_commands):
            raise wrong("checkpoint.follow_advice", "needs {interval_steps} in a command: nothing would change")
        return self

    @property
    def deciding_role(self) -> Role:
        """The role whose success is the run's success."""
        return next((role for role in self.roles if role.decides), self.roles[0])
