"""The site of the engine `kubeadm`: hosts by SSH, and control planes; components and proof as on every site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from flows.building.cluster_site import ClusterSite
from flows.decisions.bootstrap.configuration import host_parts, proxies, settings_of
from flows.decisions.bootstrap.join_reasons import why_not_joined
from flows.decisions.bootstrap.plans import release_of
from flows.decisions.bootstrap.proofs import questions
from profiles.vocabulary import VerdictWord
from tasks.bootstrap import kubeadm
from tasks.bootstrap.access import keep_kubeconfig
from tasks.bootstrap.draining import empty_nodes, open_nodes
from tasks.bootstrap.kubeadm import KubeadmSite
from tasks.bootstrap.look import look_at_hosts
from tasks.bootstrap.planes import journals
from tasks.bootstrap.site import Tell
from tasks.ssh.plays import HostEnd, PlayEvent
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import CLUSTER, HostNews, Stage, Step
from workflows.model.host_facts import HostFacts, Unread

QUIET = ("began", "ok")
"""What is told of single tasks to those alone who watch: the log of the host has them."""


@dataclass
class KubeadmHosts(ClusterSite):
    """Hosts whose cluster is made by kubeadm."""

    def look(self, hosts: Collection[str], *, deep: bool) -> BuildingSight:
        """Hosts and control planes side by side, then what only the API can tell."""
        wanted = self.wanted
        more = questions(wanted.cluster, release_of(wanted), hosts)
        looking = partial(look_at_hosts, wanted.cluster, hosts, deep=deep, more=more, tell=self.looks)
        with ThreadPoolExecutor(1) as pool:
            seeing = pool.submit(copy_context().run, looking)
            planes = kubeadm.look(self._site())
            seen = seeing.result()
        if planes.best is not None:
            keep_kubeconfig(wanted.cluster, planes.best.host)
        return self.keep(seen, planes)

    def change(self, stage: Stage, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """Carry out steps of one stage by our plays."""
        names = [step.subject for step in steps]
        match stage:
            case Stage.UPGRADE:
                return self._upgrade(names, steps, tell)
            case Stage.LEAVE:
                return self._leave(names, steps, tell)
            case Stage.CONFIGURATION:
                return self._configure(names, steps, tell)
            case _:
                return failed(steps, kubeadm.apply(self._site(tell), steps, self._planes()))

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        """Why hosts did not become nodes in time: one of the known reasons, from their facts and journals."""
        nodes = [step for step in steps if step.stage in (Stage.CONTROL_PLANE, Stage.WORKERS)]
        if not nodes:
            return {}
        told = journals(self.wanted.cluster, [step.subject for step in nodes])
        facts = self.last.facts if self.last is not None else {}
        return {
            step.id: why_not_joined(facts.get(step.subject, Unread()), told.get(step.subject, ())) for step in nodes
        }

    def _planes(self) -> ControlSight | None:
        return self.last.cluster if self.last is not None else None

    def _site(self, tell: Tell | None = None) -> KubeadmSite:
        def told(event: PlayEvent) -> None:
            if tell is not None:
                self.hear(news_of(event))

        return KubeadmSite(self.wanted.cluster, release_of(self.wanted), self.logs, told)

    def _configure(self, names: Sequence[str], steps: Sequence[Step], tell: Tell) -> dict[str, str]:
        """Let the cluster keep other settings, or give nodes what they lack of them."""
        cluster = self.wanted.cluster
        if CLUSTER in names:
            planes = self._planes() or kubeadm.look(self._site())
            end = kubeadm.settle_cluster(self._site(tell), planes, proxies=proxies(cluster, planes.best))
            return {} if end.word is VerdictWord.PASS else {steps[0].id: end.why}
        seen = self.look(names, deep=False)
        facts = {name: told for name, told in seen.facts.items() if isinstance(told, HostFacts)}
        settings = settings_of(cluster)
        parts = {name: tuple(host_parts(settings, name, told, seen.cluster, [])) for name, told in facts.items()}
        ends = kubeadm.configure(self._site(tell), parts, seen.cluster) if parts else {}
        silent = {step.id: "it does not answer" for step in steps if step.subject not in parts}
        return {**silent, **failed(steps, ends)}

    def _upgrade(self, names: Sequence[str], steps: Sequence[Step], tell: Tell) -> dict[str, str]:
        """Empty nodes that carry work first, so that runs move with their newest save; open them again afterwards."""
        working = [name for name in names if self.section.hosts[name].works]
        planes = self._planes() or kubeadm.look(self._site())
        anchor = kubeadm.anchor_of(planes, ())
        empty_nodes(self.wanted.cluster, anchor, working, tell)
        ends = kubeadm.upgrade(self._site(tell), names, planes)
        good = [name for name in working if name in ends and ends[name].word is VerdictWord.PASS]
        open_nodes(self.wanted.cluster, anchor, good)
        return failed(steps, ends)

    def _leave(self, names: Sequence[str], steps: Sequence[Step], tell: Tell) -> dict[str, str]:
        """Empty nodes that answer, so that runs move with their newest save, and take them out."""
        dead = names if self.wanted.dead else ()
        planes = kubeadm.look(self._site(), [name for name in self.section.control_planes if name not in names])
        if not dead:
            empty_nodes(self.wanted.cluster, kubeadm.anchor_of(planes, names), names, tell)
        return failed(steps, kubeadm.node_out(self._site(tell), names, dead, planes))


def news_of(event: PlayEvent) -> HostNews:
    """What a play does on a host; only what it changed, or failed at, is worth a line."""
    ended = f"{event.task}: {event.ending}" + (f": {event.said}" if event.said else "")
    said = event.task if event.ending in QUIET else ended
    return HostNews(event.host, "", "at work", said, "" if event.ending in QUIET else f"{event.host}: {ended}")


def failed(steps: Sequence[Step], ends: Mapping[str, HostEnd]) -> dict[str, str]:
    """Ids of steps whose play did not come through, with why."""
    return {
        step.id: ends[step.subject].why
        for step in steps
        if step.subject in ends and ends[step.subject].word is not VerdictWord.PASS
    }
