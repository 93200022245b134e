"""All that a bootstrap sees in one look: hosts, what control planes know, components, and the run that proves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import StepProof
from workflows.model.components import InstalledComponent
from workflows.model.host_facts import HostFacts, Unread
from workflows.model.host_sight import HostsSight
from workflows.model.records import RunRecord

NOT_ASKED = Unread("the cluster was not asked")


@dataclass(frozen=True)
class BuildingSight:
    """One look."""

    at: float
    """Unix seconds."""
    hosts: HostsSight
    cluster: ControlSight
    """What control planes see."""
    components: Mapping[str, InstalledComponent] | Unread = NOT_ASKED
    """By name."""
    proof: RunRecord | None = None
    """The run that proves the cluster as it is wanted; None: it was never begun."""
    inventory: StepProof | None = None
    """What the engine's own validation says of inventory and variables; None: it has none, or was not asked."""

    @property
    def facts(self) -> dict[str, HostFacts | Unread]:
        """Of each host that was looked at."""
        return {
            name: Unread(seen.why) if seen.failure is not None else seen.facts
            for name, seen in self.hosts.hosts.items()
        }

    def joined(self, fresh: BuildingSight) -> BuildingSight:
        """What is known after a later look, perhaps at some hosts only."""
        hosts = replace(fresh.hosts, hosts={**self.hosts.hosts, **fresh.hosts.hosts}, pairs=self.hosts.pairs)
        return replace(fresh, hosts=hosts, inventory=fresh.inventory or self.inventory)
