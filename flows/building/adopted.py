"""The site of the engine `adopt`: a cluster that is there already; nothing is done to its nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from flows.building.cluster_site import ClusterSite
from flows.decisions.bootstrap.adopted import ready_nodes
from tasks.bootstrap.adopted import look_at_cluster
from tasks.bootstrap.look import look_at_hosts
from tasks.bootstrap.site import Tell
from tasks.context import world
from workflows.bootstrap.building import BuildingSight
from workflows.model.bootstrap import Stage, Step


@dataclass
class AdoptedCluster(ClusterSite):
    """A cluster that somebody else makes and keeps."""

    def look(self, hosts: Collection[str], *, deep: bool) -> BuildingSight:
        """The cluster through its API; by SSH only hosts that the inventory names."""
        profile, here = self.wanted.cluster, world()
        seen = look_at_hosts(profile, hosts, deep=deep, tell=self.looks)
        return self.keep(seen, look_at_cluster(profile, here.settings.home))

    @property
    def nodes(self) -> int:
        """How many nodes are Ready and take pods."""
        there = self.last.cluster.nodes if self.last is not None else None
        return max(1, len(ready_nodes(there or {})))

    def change(self, stage: Stage, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """No step changes a host here: whoever asks is told so."""
        del tell
        return {step.id: f"engine adopt carries out no step of the stage {stage}" for step in steps}
