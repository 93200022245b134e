"""What one attempt of a run is: the value every builder of this folder starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.cluster import Pool
from profiles.resolve import Resolved
from profiles.run import Role
from workflows import labels


@dataclass(frozen=True)
class AttemptPlan:
    """One attempt, decided: nothing in it depends on the clock, the cluster's state or the environment.

    Two equal plans give equal manifests, so a plan kept in the ledger is as good as the manifests themselves.
    """

    resolved: Resolved
    """Profile, cluster, pool and hardware, as stored with the run."""
    run: str
    """Name of the run, at most 30 characters."""
    attempt: int
    """Number of the attempt, from 1."""
    nodes: tuple[str, ...] = ()
    """Node names, one for each pod of the deciding role; empty: the scheduler chooses in the pool, and there is no
    gate beforehand, since nobody knows which nodes to test."""
    avoid_nodes: tuple[str, ...] = ()
    """Suspects: no pod of the attempt runs there."""
    max_resume_step: int | None = None
    """After a roll-back: resume from no checkpoint newer than this step. None: no limit."""
    excluded_checkpoints: tuple[str, ...] = ()
    """Paths of checkpoints that must not be taken, as pods see them."""
    fencing: int = 0
    """Fencing number of the driver that builds this attempt."""
    ledger: str = ""
    """Identity of the ledger that the run stands in: its objects and its folder are kept from other ledgers by it.
    Empty: nobody's, as printed manifests are."""
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of people's own on the workflow, the JobSet and their pods."""
    returns: bool = False
    """It answers a failure: in the queue it keeps the run's place, where the cluster has a priority for that."""
    lasts_seconds: int = 0
    """The cluster ends it after so long by itself, and forgets it soon; 0: it lasts until it is done."""
    restarts_in_place: int = 0
    """Times that its ranks may be started again inside their pods without asking; 0: none."""
    mttf_seconds: float = 0.0
    """Mean time to failure of the whole gang, for advice about saving; 0: not known."""
    interval_steps: int | None = None
    """Steps between saves that the program is told; None: those of the profile."""
    deep_verify: bool = False
    """Read every byte of the checkpoint again instead of trusting its proof."""

    @property
    def name(self) -> str:
        """Name of the attempt's Workflow and JobSet, e.g. `demo-1-a2`."""
        return labels.attempt_name(self.run, self.attempt)

    @property
    def coordinator_pool(self) -> Pool:
        """Whose nodes carry the coordinator."""
        wished, own = self.resolved.cluster.coordinator_pool, self.resolved.pool
        others = (pool for pool in self.resolved.cluster.pools if pool.name == wished != own.name)
        return next(others, own)

    @property
    def role(self) -> Role:
        """The deciding role."""
        return self.resolved.run.deciding_role

    @property
    def namespace(self) -> str:
        """Namespace of everything the attempt creates."""
        return self.resolved.cluster.namespace

    def gpus(self, role: Role) -> int:
        """GPUs one pod of `role` requests: all of a node for the deciding role unless it says otherwise."""
        if role.name == self.role.name:
            return self.resolved.gpus_per_pod
        return role.resources.gpus or 0
