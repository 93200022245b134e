"""What is wanted: one training run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from profiles.checkpoint import CheckpointPolicy, check_pattern
from profiles.recovery import RecoveryProfile
from profiles.trial import TrialPolicy
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

Framework = Literal[
    "primus-demo", "megatron", "primus", "torchtitan", "nemo", "huggingface", "lightning", "regex", "file", "none"
]


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
    """Size of /dev/shm."""


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
    `{checkpoint_dir}`, `{data}`, `{steps}`, `{remaining_steps}`, `{seed}`, `{interval_steps}`."""
    environment: dict[EnvironmentName, str] = {}
    """Environment variables. No secrets here: they would stand in the manifest."""
    secret_environment: tuple[SecretVariable, ...] = ()
    """Environment variables read from Secrets."""
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
    """For `regex`: named groups `step`, optionally `loss`, `tokens_per_second`, `seconds`, `total`."""
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


class Topology(Value):
    """How close the nodes should be."""

    level: Literal["none", "rack", "block"] = "none"
    """Keep the gang within one such domain."""
    required: bool = False
    """Refuse other placements instead of preferring this one."""


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
    topology: Topology = Topology()
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
        told = [word for words in (*(role.command for role in self.roles), *overlays) for word in words]
        if self.checkpoint.follow_advice and not any("{interval_steps}" in word for word in told):
            raise wrong("checkpoint.follow_advice", "needs {interval_steps} in a command: nothing would change")
        return self

    @property
    def deciding_role(self) -> Role:
        """The role whose success is the run's success."""
        return next((role for role in self.roles if role.decides), self.roles[0])
