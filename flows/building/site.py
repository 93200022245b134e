"""The site of a real bootstrap: hosts by SSH, control planes, components through the API, and the run that proves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from flows.decisions.bootstrap.components import removal_order
from flows.decisions.bootstrap.join_reasons import why_not_joined
from flows.decisions.bootstrap.judge import Wanted
from flows.decisions.bootstrap.plans import section
from flows.decisions.bootstrap.proofs import questions
from profiles.bootstrap.components import ComponentProfile
from profiles.bootstrap.inventory import Bootstrap
from profiles.errors import PrimusError
from profiles.vocabulary import VerdictWord
from tasks.bootstrap import kubeadm
from tasks.bootstrap.access import keep_kubeconfig
from tasks.bootstrap.components import (
    ComponentsSite,
    bring_components,
    forget_installer,
    look_components,
    open_components,
    remove_components,
)
from tasks.bootstrap.draining import empty_nodes, open_nodes
from tasks.bootstrap.kubeadm import KubeadmSite
from tasks.bootstrap.look import look_at_hosts
from tasks.bootstrap.proof_run import find_proof_run, train_proof
from tasks.bootstrap.site import Tell
from tasks.context import world
from tasks.lease import our_ledger
from tasks.ssh.plays import HostEnd, PlayEvent
from workflows.bootstrap.building import NOT_ASKED, BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.removal import Leaving
from workflows.model.bootstrap import Stage, Step
from workflows.model.components import ChosenComponent, InstalledComponent
from workflows.model.host_facts import Unread
from workflows.programs.hosts.options import Options

QUESTIONS = ("files", "sysctls", "units")
QUIET = ("ok",)
"""Ends of single tasks that are not told: the log of the host has them."""


@dataclass
class KubeadmHosts:
    """Hosts whose cluster is made by kubeadm."""

    wanted: Wanted
    logs: Path
    """Folder with a log for each host."""
    proof: str = ""
    """Fingerprint of what the training run proves; "": none is asked for."""
    request_cluster: str = ""
    """The cluster as the person named it: what `primus train` is told."""
    shelf: Mapping[str, ComponentProfile] = field(default_factory=dict[str, ComponentProfile])
    """Components that there are, by name."""
    last: BuildingSight | None = field(default=None, init=False)

    def look(self, hosts: Collection[str], *, deep: bool) -> BuildingSight:
        """Hosts and control planes side by side, then what only the API can tell."""
        wanted = self.wanted
        looking = partial(look_at_hosts, wanted.cluster, hosts, deep=deep, more=self._more(hosts))
        with ThreadPoolExecutor(1) as pool:
            seeing = pool.submit(copy_context().run, looking)
            planes = kubeadm.look(self._site())
            seen = seeing.result()
        if planes.best is not None:
            keep_kubeconfig(wanted.cluster, planes.best.host)
        installed = self._installed() if planes.best is not None and wanted.chosen else NOT_ASKED
        run = find_proof_run(self.proof) if self.proof else None
        self.last = BuildingSight(world().now(), seen, planes, installed, run)
        return self.last

    def _more(self, hosts: Collection[str]) -> Options:
        """What every host is asked beside, for the proofs of any of them."""
        asked = [questions(self.wanted.cluster, self.wanted.release, name) for name in hosts]
        files, sysctls, units = (
            tuple(dict.fromkeys(word for one in asked for word in one[kind])) for kind in QUESTIONS
        )
        return Options(files=files, sysctls=sysctls, units=units, images=True)

    def carry_out(self, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """Carry out steps of one stage; the ids of those that failed, with the innermost tool's own words."""
        stage, names = steps[0].stage, [step.subject for step in steps]
        try:
            match stage:
                case Stage.PROOF:
                    run, cluster = self._section.proof_run, self.request_cluster
                    why = train_proof(cluster, run, self.proof, tell)
                    return {steps[0].id: why} if why else {}
                case Stage.COMPONENTS:
                    return bring_components(self._components(), names, tell)
                case Stage.REMOVAL:
                    return self._remove(names, tell)
                case Stage.UPGRADE:
                    return self._upgrade(names, steps, tell)
                case Stage.LEAVE:
                    return self._leave(names, steps, tell)
                case _:
                    return failed(steps, kubeadm.apply(self._site(tell), steps, self._planes()))
        except (PrimusError, OSError) as error:
            return {step.id: str(error) for step in steps}

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        """Why hosts did not become nodes in time: one of the known reasons, from their facts and journals."""
        nodes = [step for step in steps if step.stage in (Stage.CONTROL_PLANE, Stage.WORKERS)]
        if not nodes:
            return {}
        told = kubeadm.journals(self._site(), [step.subject for step in nodes])
        facts = self.last.facts if self.last is not None else {}
        return {
            step.id: why_not_joined(facts.get(step.subject, Unread()), told.get(step.subject, ())) for step in nodes
        }

    @property
    def _section(self) -> Bootstrap:
        return section(self.wanted)

    def _components(self) -> ComponentsSite:
        return open_components(self.wanted.cluster, self.wanted.chosen, len(self._section.hosts), our_ledger())

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
            Leaving(chosen.get(goes.profile.name) or ChosenComponent(goes.profile, {}), goes.namespace)
            for goes in order
            if goes.profile.name in names
        ]
        stays = remove_components(site, leaving, tell)
        if not stays and len(leaving) == len(installed):
            forget_installer(site.api)
        return {f"{Stage.REMOVAL}/{name}": why for name, why in stays.items()}

    def _planes(self) -> ControlSight | None:
        return self.last.cluster if self.last is not None else None

    def _site(self, tell: Tell | None = None) -> KubeadmSite:
        def told(event: PlayEvent) -> None:
            if tell is not None and event.ending not in QUIET:
                tell(f"{event.host}: {event.task}: {event.ending}" + (f": {event.said}" if event.said else ""))

        return KubeadmSite(self.wanted.cluster, self.wanted.release, self.logs, told)

    def _upgrade(self, names: Sequence[str], steps: Sequence[Step], tell: Tell) -> dict[str, str]:
        """Empty workers first, so that runs move with their newest save; open them again once they are upgraded."""
        workers = [name for name in names if not self._section.hosts[name].controls]
        planes = self._planes() or kubeadm.look(self._site())
        anchor = kubeadm.anchor_of(planes, ())
        empty_nodes(self.wanted.cluster, anchor, workers, tell)
        ends = kubeadm.upgrade(self._site(tell), names, planes)
        good = [name for name in workers if ends[name].word is VerdictWord.PASS]
        open_nodes(self.wanted.cluster, anchor, good)
        return failed(steps, ends)

    def _leave(self, names: Sequence[str], steps: Sequence[Step], tell: Tell) -> dict[str, str]:
        """Empty nodes that answer, so that runs move with their newest save, and take them out."""
        dead = names if self.wanted.dead else ()
        planes = kubeadm.look(self._site(), [name for name in self._section.control_planes if name not in names])
        if not dead:
            empty_nodes(self.wanted.cluster, kubeadm.anchor_of(planes, names), names, tell)
        return failed(steps, kubeadm.node_out(self._site(tell), names, dead, planes))


def failed(steps: Sequence[Step], ends: Mapping[str, HostEnd]) -> dict[str, str]:
    """Ids of steps whose play did not come through, with why."""
    return {
        step.id: ends[step.subject].why
        for step in steps
        if step.subject in ends and ends[step.subject].word is not VerdictWord.PASS
    }
