"""What every engine's site does alike: components through the API of a cluster, and the run that proves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.building.admission import admit_joining
from flows.decisions.bootstrap.components import removal_order
from flows.decisions.bootstrap.judge import Wanted
from flows.decisions.bootstrap.plans import section
from profiles.bootstrap.components import ComponentProfile
from profiles.bootstrap.inventory import Bootstrap
from profiles.errors import PrimusError
from tasks.bootstrap.components import (
    ComponentsSite,
    bring_components,
    look_components,
    open_components,
    remove_components,
)
from tasks.bootstrap.installer import forget_installer
from tasks.bootstrap.pipelines import bring_pipelines
from tasks.bootstrap.proof_run import find_proof_run, train_proof
from tasks.bootstrap.site import Hear, Tell, unheard
from tasks.context import world
from tasks.lease import our_ledger
from tasks.ssh.looking import GOES_WELL
from workflows.bootstrap.building import NOT_ASKED, BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.removal import Leaving
from workflows.model.bootstrap import CLUSTER, LOOK, HostNews, Stage, Step, StepProof
from workflows.model.components import ChosenComponent, InstalledComponent
from workflows.model.host_facts import Unread
from workflows.model.host_sight import HostsSight

SHOWN = 4
"""Nodes that one reason names."""


@dataclass
class ClusterSite(ABC):
    """A cluster, whoever made it."""

    wanted: Wanted
    logs: Path
    """Folder with a log for each host."""
    proof: str = ""
    """Fingerprint of what the training run proves; "": none is asked for."""
    request_cluster: str = ""
    """The cluster as the person named it: what `primus train` is told."""
    shelf: Mapping[str, ComponentProfile] = field(default_factory=dict[str, ComponentProfile])
    """Components that there are, by name."""
    hear: Hear = unheard
    """Shows what hosts do."""
    last: BuildingSight | None = field(default=None, init=False)

    def carry_out(self, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """Carry out steps of one stage; the ids of those that failed, with the innermost tool's own words."""
        stage, names = steps[0].stage, [step.subject for step in steps]
        try:
            match stage:
                case Stage.PROOF:
                    run, cluster = self.wanted.cluster.proof_run, self.request_cluster
                    why = train_proof(cluster, run, self.proof, tell)
                    return {steps[0].id: why} if why else {}
                case Stage.ADMISSION:
                    return self._admit(names, tell)
                case Stage.COMPONENTS:
                    return bring_components(self._components(), names, tell)
                case Stage.REMOVAL:
                    return self._remove(names, tell)
                case _:
                    return self.change(stage, steps, tell)
        except (PrimusError, OSError) as error:
            return {step.id: str(error) for step in steps}

    @abstractmethod
    def change(self, stage: Stage, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """Carry out steps that change hosts, as the engine does; see `carry_out`."""

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        """Why steps did not hold in time, beyond what their proofs say; nothing where the engine knows no more."""
        del steps
        return {}

    def looks(self, host: str, what: str) -> None:
        """A host is looked at, or cannot be."""
        self.hear(HostNews(host, LOOK, "at work" if what in GOES_WELL else "unknown", what))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What a command that died left running, by name; most engines end with whoever runs them."""
        return ()

    def take_up(self, tell: Tell, *, acts: bool) -> None:
        """Follow to its end what a command that died left running; `acts`: something is to be changed now."""
        del tell, acts

    @property
    def section(self) -> Bootstrap:
        """Section `bootstrap` of the profile."""
        return section(self.wanted)

    @property
    def nodes(self) -> int:
        """How many nodes components must serve on."""
        return len(self.section.hosts)

    def keep(self, hosts: HostsSight, cluster: ControlSight, inventory: StepProof | None = None) -> BuildingSight:
        """What was seen of hosts and cluster, with what only the API and the ledger can tell."""
        asks = cluster.best is not None and self.wanted.chosen
        installed = self._installed() if asks else NOT_ASKED
        run = find_proof_run(self.proof) if self.proof else None
        self.last = BuildingSight(world().now(), hosts, cluster, installed, run, inventory)
        return self.last

    def _admit(self, names: Sequence[str], tell: Tell) -> dict[str, str]:
        """Have nodes tested that join; steps whose nodes were tested and keep the taint."""
        bring_pipelines(self._components().api, self.wanted.cluster)
        whole = CLUSTER in names
        kept = admit_joining(self.wanted.cluster, None if whole else names, tell)
        if whole:
            why = "; ".join(f"{name}: {why}" for name, why in list(kept.items())[:SHOWN])
            return {f"{Stage.ADMISSION}/{CLUSTER}": why} if kept else {}
        return {f"{Stage.ADMISSION}/{name}": why for name, why in kept.items()}

    def _components(self) -> ComponentsSite:
        return open_components(self.wanted.cluster, self.wanted.chosen, self.nodes, our_ledger())

    def _installed(self) -> Mapping[str, InstalledComponent] | Unread:
        try:
            return look_components(self._components().api)
        except PrimusError as error:
            return Unread(str(error))

    def _remove(self, names: Sequence[str], tell: Tell) -> dict[str, str]:
        """Take components away, each before all that it needs; at the end the right to install goes too."""
        site = self._components()
        installed = look_components(site.api)
        order = removal_order(installed, self.shelf, with_data=self.wanted.with_data)
        chosen = {one.name: one for one in self.wanted.chosen}
        leaving = [
            Leaving(
                chosen.get(goes.profile.name) or ChosenComponent(goes.profile, {}), goes.namespace, data=not goes.keeps
            )
            for goes in order
            if goes.profile.name in names
        ]
        stays = remove_components(site, leaving, tell)
        if not stays and len(leaving) == len(installed):
            forget_installer(site.api)
        return {f"{Stage.REMOVAL}/{name}": why for name, why in stays.items()}
