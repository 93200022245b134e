"""The site of the engine `kubespray`: hosts by SSH, nodes by the API, changes by the site's own copy of Kubespray.

Whoever comes after a kill first follows to its end what still runs of the dead one's playbooks, and then looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from flows.building.cluster_site import ClusterSite
from flows.building.site import news_of
from flows.decisions.bootstrap.join_reasons import why_not_joined
from flows.decisions.bootstrap.judge import version_proof
from flows.decisions.bootstrap.kubespray import making, scope_of
from flows.decisions.bootstrap.services import tried_services
from flows.decisions.text import first_names
from profiles.bootstrap.engines import Kubespray
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.access import keep_kubeconfig
from tasks.bootstrap.draining import empty_nodes, open_nodes
from tasks.bootstrap.kubespray import KubesprayOutcome, KubespraySite
from tasks.bootstrap.kubespray_events import secrets_in
from tasks.bootstrap.kubespray_operations import Listeners, has_passed, operate, still_runs, take_up, unfinished
from tasks.bootstrap.kubespray_source import KubesprayCopy, take_copy
from tasks.bootstrap.look import look_at_hosts
from tasks.bootstrap.planes import anchor_of, journals, keep_snapshot, look_at_planes
from tasks.bootstrap.site import Tell
from tasks.context import world
from tasks.ssh.plays import PlayEvent
from workflows.bootstrap import kubespray
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.kubespray import KubesprayPlaybook, KubesprayScope, section_of
from workflows.model.bootstrap import Stage, Step, StepProof
from workflows.model.host_facts import Unread
from workflows.programs.hosts.options import Options

VALIDATION = "validation"
KUBELET = "kubelet.service"
SHOWN = 3


@dataclass
class KubesprayHosts(ClusterSite):
    """Hosts whose cluster is made by Kubespray."""

    concerned: tuple[str, ...] = ()
    """Hosts that the request is about."""
    left_out: tuple[str, ...] = ()
    """Hosts that no playbook may reach."""
    validates: bool = False
    """Whether Kubespray is asked what it says of inventory and variables."""

    def look(self, hosts: Collection[str], *, deep: bool) -> BuildingSight:
        """Hosts and control planes side by side, in the first look Kubespray's own validation, then what the API tells.

        Raises:
            Refused: the copy is not what the profile says, or does not fit its Ansible; no host was asked.
        """
        validates = self.validates and self.last is None
        if validates:
            _ = self.copy
        more = Options(units=(KUBELET,), services=tried_services(self.wanted.cluster))
        looking = partial(look_at_hosts, self.wanted.cluster, hosts, deep=deep, more=more, tell=self.looks)
        with ThreadPoolExecutor(1) as pool:
            seeing = pool.submit(copy_context().run, looking)
            planes = look_at_planes(self.wanted.cluster)
            said = self._validation(planes) if validates else None
            seen = seeing.result()
        if planes.best is not None:
            keep_kubeconfig(self.wanted.cluster, planes.best.host)
        return self.keep(seen, planes, said)

    def change(self, stage: Stage, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """Carry out steps by playbooks: nodes come as one group, of whatever stages."""
        names = [step.subject for step in steps]
        planes = look_at_planes(self.wanted.cluster)
        match stage:
            case Stage.UPGRADE:
                return self._upgrade(steps, names, planes, tell)
            case Stage.LEAVE:
                return self._leave(steps, names, planes, tell)
            case _:
                playbooks = making(self._scope(planes), self.section, planes, names)
                self._keep_etcd(names, planes, tell)
                return failed(steps, self._operate(f"{stage}-{first_names(names, SHOWN)}", playbooks, planes, tell))

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        """Why hosts did not become nodes in time: one of the known reasons, from their facts and journals."""
        nodes = [step for step in steps if step.stage in (Stage.CONTROL_PLANE, Stage.WORKERS)]
        told = journals(self.wanted.cluster, [step.subject for step in nodes])
        facts = self.last.facts if self.last is not None else {}
        return {
            step.id: why_not_joined(facts.get(step.subject, Unread()), told.get(step.subject, ())) for step in nodes
        }

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Operations of a command that died, of which nobody has heard the end."""
        return unfinished(self._operations)

    def take_up(self, tell: Tell, *, acts: bool) -> None:
        """Follow them to their end; where nothing is to be changed now, only say that one still runs."""
        for name in self.unfinished:
            if acts:
                tell(f"{name} was begun by a command that died: following it")
                outcome = take_up(self._operations, name, secrets_in(self._engine.variables), self._listeners(tell))
                tell(f"{name} ended: {outcome.word}" + (f": {outcome.why}" if outcome.why else ""))
            elif still_runs(self._operations, name):
                tell(f"{name} of a command that died still runs: what is seen now is not its end")

    @cached_property
    def copy(self) -> KubesprayCopy:
        """The pinned copy, whose Ansible is one that it accepts.

        Raises:
            Refused, Unavailable: see `take_copy`.
        """
        return take_copy(self._engine, _home() / "copies")

    @property
    def _engine(self) -> Kubespray:
        return section_of(self.wanted.cluster)[1]

    @property
    def _operations(self) -> Path:
        return _home() / "operations" / self.wanted.cluster.name

    def _scope(self, planes: ControlSight) -> KubesprayScope:
        return scope_of(self.section, self.concerned, self.left_out, planes.nodes)

    def _site(self, scope: KubesprayScope) -> KubespraySite:
        return KubespraySite(self.wanted.cluster, self.copy, self._operations, scope)

    def _validation(self, planes: ControlSight) -> StepProof:
        """What Kubespray says of inventory and variables: the same ones it takes again, whatever nodes are like now."""
        site, asked = self._site(KubesprayScope(self._scope(planes).hosts)), kubespray.validation()
        if has_passed(site, VALIDATION, asked):
            return StepProof(VerdictWord.PASS, "taken before, and nothing has changed since")
        outcome = operate(site, VALIDATION, asked, Listeners(lambda _: None, lambda _: None))
        return StepProof(outcome.word, outcome.why or "Kubespray takes inventory and variables")

    def _operate(
        self, what: str, playbooks: Sequence[KubesprayPlaybook], planes: ControlSight, tell: Tell
    ) -> KubesprayOutcome:
        return operate(self._site(self._scope(planes)), what, playbooks, self._listeners(tell))

    def _listeners(self, tell: Tell) -> Listeners:
        def heard(event: PlayEvent) -> None:
            self.hear(news_of(event))

        return Listeners(tell, heard, self.logs, self.section.hosts)

    def _keep_etcd(self, names: Sequence[str], planes: ControlSight, tell: Tell) -> None:
        """A snapshot of etcd before its members change; Kubespray takes none where kubeadm keeps it."""
        if planes.serving and any(self.section.hosts[name].controls for name in names):
            anchor = anchor_of(planes, ())
            keep_snapshot(self.wanted.cluster, anchor)
            tell(f"{anchor}: a snapshot of etcd is kept")

    def _upgrade(self, steps: Sequence[Step], names: Sequence[str], planes: ControlSight, tell: Tell) -> dict[str, str]:
        """Empty workers first, so that runs move with their newest save; open them again once they are upgraded."""
        cluster, version = self.wanted.cluster, self.wanted.version
        anchor = anchor_of(planes, ())
        workers = [name for name in names if not self.section.hosts[name].controls]
        behind = [name for name in names if version_proof(name, version, planes).word is not VerdictWord.PASS]
        outcome = KubesprayOutcome(VerdictWord.PASS, "")
        if behind:
            self._keep_etcd(behind, planes, tell)
            empty_nodes(cluster, anchor, [name for name in workers if name in behind], tell)
            what = f"upgrade-{version}-{first_names(behind, SHOWN)}"
            # The steps are one batch already, within the brake; of control planes never two are away.
            playbooks = kubespray.upgrade(version, behind, at_once=max(1, len(workers)))
            outcome = self._operate(what, playbooks, planes, tell)
        if outcome.word is VerdictWord.PASS:
            open_nodes(cluster, anchor, workers)
        return failed(steps, outcome)

    def _leave(self, steps: Sequence[Step], names: Sequence[str], planes: ControlSight, tell: Tell) -> dict[str, str]:
        """Empty nodes that answer, so that runs move with their newest save, and take them out."""
        self._keep_etcd(names, planes, tell)
        if not self.wanted.dead:
            empty_nodes(self.wanted.cluster, anchor_of(planes, names), names, tell)
        playbooks = kubespray.node_out(names, dead=self.wanted.dead)
        return failed(steps, self._operate(f"leave-{first_names(names, SHOWN)}", playbooks, planes, tell))


def _home() -> Path:
    return world().settings.home / "kubespray"


def failed(steps: Sequence[Step], outcome: KubesprayOutcome) -> dict[str, str]:
    """Ids of all steps of an operation that did not come through: one host that fails stops the others."""
    if outcome.word is VerdictWord.PASS:
        return {}
    return {step.id: outcome.why_of(step.subject) for step in steps}
