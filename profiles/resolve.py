"""From a run profile and a cluster profile to one frozen value: what a run is, whatever happens to the files later."""

from __future__ import annotations

from profiles.cluster import ClusterProfile, Pool
from profiles.hardware import HardwareProfile
from profiles.run import RunProfile
from profiles.values import Value


class Resolved(Value):
    """Everything a run needs to know, stored with the run."""

    run: RunProfile
    """The run profile with the overlay of its hardware already applied (`by_hardware` is empty here)."""
    cluster: ClusterProfile
    """The cluster."""
    pool: Pool
    """The pool whose nodes are used."""
    hardware: HardwareProfile
    """The pool's hardware."""

    @property
    def gpus_per_pod(self) -> int:
        """GPUs one pod of the deciding role takes; 0 on CPU nodes."""
        asked = self.run.deciding_role.resources.gpus
        return self.hardware.gpus_per_node if asked is None else asked

    @property
    def gpus(self) -> int:
        """GPUs the whole gang holds; on CPU nodes each rank of the deciding role counts as one."""
        role = self.run.deciding_role
        return role.replicas * (self.gpus_per_pod or role.processes_per_node)

    @property
    def world_size(self) -> int:
        """Ranks of the deciding role."""
        role = self.run.deciding_role
        return role.replicas * role.processes_per_node

    @property
    def storage_path(self) -> str:
        """Where pods see the shared storage that holds the runs' folders."""
        return self.cluster.storage[0].mount_path
