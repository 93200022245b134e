"""The site of kubeadm: who is emptied before an upgrade, and what is changed on which node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.building import site as sites
from flows.building.site import KubeadmHosts
from flows.decisions.bootstrap.judge import Wanted
from profiles.loading.load import load_hardware
from profiles.vocabulary import VerdictWord
from tasks.ssh.plays import HostEnd
from tests.support.builders import host_sights
from tests.support.builders.kubeadm_cluster import (
    RUNNING,
    facts_of,
    kubeadm_cluster,
    program_configuration,
    release,
    sight_of,
)
from workflows.bootstrap import component_configuration as components
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import CLUSTER, Stage, Step
from workflows.model.host_sight import LookFailure

PROFILE = kubeadm_cluster()
Parts = Mapping[str, Collection[str]]


class Made:
    """Stands in for plays and nodes: what was asked of them, in order; hosts in `broken` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *broken: str) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.broken = broken
        self.sight = BuildingSight(1.0, host_sights.sight_of(PROFILE, pairs=False), sight_of(PROFILE, release()))
        for name in PROFILE.bootstrap.hosts if PROFILE.bootstrap else ():
            own = facts_of(PROFILE, release(), name)
            self.change(name, **{part: getattr(own, part) for part in RUNNING})
        monkeypatch.setattr(sites, "empty_nodes", lambda _, __, names, ___: self.asked.append(("empty", list(names))))
        monkeypatch.setattr(sites, "open_nodes", lambda _, __, names: self.asked.append(("open", list(names))))
        monkeypatch.setattr(sites.kubeadm, "upgrade", lambda _, names, __: self.ended("upgrade", names))
        monkeypatch.setattr(sites.kubeadm, "configure", lambda _, parts, __: self.ended("configure", parts))
        monkeypatch.setattr(sites.kubeadm, "settle_cluster", self.settle)
        monkeypatch.setattr(KubeadmHosts, "look", self.look)

    def look(self, hosts: Collection[str], *, deep: bool) -> BuildingSight:
        assert not deep
        kept = {name: seen for name, seen in self.sight.hosts.hosts.items() if name in hosts}
        return replace(self.sight, hosts=replace(self.sight.hosts, hosts=kept))

    def ended(self, what: str, names: Sequence[str] | Parts) -> dict[str, HostEnd]:
        self.asked.append((what, dict(names) if isinstance(names, Mapping) else list(names)))
        words = {name: VerdictWord.FAIL if name in self.broken else VerdictWord.PASS for name in names}
        return {name: HostEnd(name, word, "broken" * (name in self.broken)) for name, word in words.items()}

    def settle(self, _: object, __: ControlSight, *, proxies: bool) -> HostEnd:
        self.asked.append(("settle", proxies))
        return self.ended("anchor", ["c1"])["c1"]

    def change(self, name: str, **facts: Any) -> None:
        """What a host tells from now on."""
        seen = self.sight.hosts.hosts[name]
        hosts = {**self.sight.hosts.hosts, name: replace(seen, facts=replace(seen.facts, **facts))}
        self.sight = replace(self.sight, hosts=replace(self.sight.hosts, hosts=hosts))

    def carried(self, stage: Stage, *names: str) -> Mapping[str, str]:
        wanted = Wanted(PROFILE, release(), {"cpu": load_hardware("cpu")}, version="1.36.3")
        site: Any = KubeadmHosts(wanted, Path("logs"))
        site.last = self.sight
        tell: Callable[[str], None] = lambda _: None  # noqa: E731 - nobody listens
        return site.change(stage, [Step(stage, name, "", "") for name in names], tell)


def test_whoever_carries_work_is_emptied_before_an_upgrade_also_a_control_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made(monkeypatch)
    assert made.carried(Stage.UPGRADE, "c2") == {}
    assert made.asked == [("empty", ["c2"]), ("upgrade", ["c2"]), ("open", ["c2"])]
    made.asked.clear()
    made.carried(Stage.UPGRADE, "c1")
    assert made.asked == [("empty", []), ("upgrade", ["c1"]), ("open", [])], "no work comes to it"


def test_a_node_whose_upgrade_failed_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch, "w2")
    assert made.carried(Stage.UPGRADE, "w1", "w2") == {"upgrade/w2": "broken"}
    assert made.asked[-1] == ("open", ["w1"])


def test_only_what_differs_is_changed_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    other = program_configuration({**components.wanted_kubelet_on_host(PROFILE), "maxPods": 7})
    own = made.sight.hosts.hosts["w1"].facts
    made.change("w1", configurations={**own.configurations, "kubelet": other})
    own = made.sight.hosts.hosts["c1"].facts
    made.change("c1", processes={**own.processes, "kube-scheduler": (("--v=7",),)})
    assert made.carried(Stage.CONFIGURATION, "w1", "c1") == {}
    assert made.asked == [("configure", {"c1": ("kube-scheduler",), "w1": ("kubelet-config",)})]


def test_a_host_that_does_not_answer_gets_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    silent = replace(made.sight.hosts.hosts["w1"], failure=LookFailure.UNREACHABLE, why="no route")
    hosts = replace(made.sight.hosts, hosts={"w1": silent})
    made.sight = replace(made.sight, hosts=hosts)
    assert made.carried(Stage.CONFIGURATION, "w1") == {"configuration/w1": "it does not answer"}
    assert made.asked == []


def test_what_the_cluster_keeps_is_changed_once_and_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    assert made.carried(Stage.CONFIGURATION, CLUSTER) == {}
    assert made.asked[0] == ("settle", True)
    broken = Made(monkeypatch, "c1")
    assert broken.carried(Stage.CONFIGURATION, CLUSTER) == {"configuration/cluster": "broken"}
