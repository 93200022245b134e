"""`primus bootstrap --upgrade` on real hosts: killed amid a control plane, stopped by a kubelet that cannot start.

One long test: no cluster goes back to where it was before, so each part begins where the one before it ended.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bed.commands import until
from tests.lab import programs
from tests.lab.asking import asking, load, services
from tests.lab.commands import Commands
from tests.lab.hosts import Host
from tests.lab.images import BUSYBOX
from tests.lab.lab import Lab
from tests.support.running.waiting import patience
from workflows.labels import STARTUP_TAINT
from workflows.model.bootstrap import Stage

API_AWAY_S = patience(10.0)
LOOK_S = 0.3
OLD, NEW = programs.VERSION, programs.NEXT
pytestmark = pytest.mark.timeout(patience(2400.0))
BROKEN = "/etc/systemd/system/kubelet.service.d/90-broken.conf"
SNAPSHOTS = "/var/lib/primus-flows/etcd-snapshots"


@dataclass(frozen=True)
class Look:
    """The cluster at one moment, through the kubeconfig that the command keeps."""

    versions: dict[str, str]
    """Of each node's kubelet."""
    closed: frozenset[str]
    """Nodes that take no pods."""
    work: dict[str, int]
    """Node -> pods of the work that are not on their way out."""


@dataclass
class Watched:
    """What was seen all the while."""

    looks: list[Look] = field(default_factory=list[Look])


class Cluster:
    """The cluster as its administrator sees it from this machine."""

    def __init__(self, kubeconfig: Path) -> None:
        self.command = [
            str(programs.place().binaries / programs.KUBERNETES),
            "kubectl",
            "--kubeconfig",
            str(kubeconfig),
        ]

    def ask(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl prints."""
        done = subprocess.run(
            [*self.command, *words], input=stdin, capture_output=True, text=True, timeout=60.0, check=True
        )
        return done.stdout

    def look(self) -> Look:
        """Now."""
        nodes: list[Any] = json.loads(self.ask("get", "nodes", "-o", "json"))["items"]
        pods: list[Any] = json.loads(self.ask("get", "pods", "-l", "app=work", "-o", "json"))["items"]
        there = [pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return Look(
            {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes},
            frozenset(node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")),
            {name: there.count(name) for name in there},
        )

    @contextmanager
    def watched(self) -> Generator[Watched]:
        """Look again and again for as long as this lasts; a moment without the API is no look."""
        found, over = Watched(), threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_S):
                try:
                    found.looks.append(self.look())
                except (subprocess.SubprocessError, ValueError):
                    continue

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()

    def begin_work(self, nodes: int) -> None:
        """A pod on every node, which any node may take."""
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        pod = {
            "containers": [
                {"name": "work", "image": BUSYBOX, "command": ["sleep", "36000"], "imagePullPolicy": "Never"}
            ],
            "tolerations": [{"key": STARTUP_TAINT, "operator": "Exists"}],
            "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": "work"}}}],
            "terminationGracePeriodSeconds": 1,
        }
        made = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "work", "namespace": "default"},
            "spec": {
                "replicas": nodes,
                "selector": {"matchLabels": {"app": "work"}},
                "template": {"metadata": {"labels": {"app": "work"}}, "spec": pod},
            },
        }
        self.ask("apply", "-f", "-", stdin=json.dumps(made))
        until("work on every node", lambda: len(self.look().work) == nodes, patience(120.0), every_s=1.0)


def runs_kubeadm(host: Host) -> bool:
    return host.run("pgrep -x kubeadm || true").strip() != ""


def upgrades(commands: Commands, host: Host) -> int:
    """How often kubeadm came to the end of an upgrade there before whoever began it was dead."""
    log = commands.home / "logs" / "bootstrap" / "made" / f"{host.name}.log"
    return sum(" changed     kubeadm upgrade" in line for line in log.read_text().splitlines())


def assert_emptied_first(looks: Sequence[Look], name: str) -> None:
    """Before a node had the new version, it was closed and no work was on it; and it is open again."""
    changed = next(place for place, look in enumerate(looks) if look.versions.get(name) == NEW)
    before = looks[changed - 1]
    assert name in before.closed, f"{name} was open when its kubelet changed"
    assert not before.work.get(name), f"work was on {name} when its kubelet changed: {before.work}"
    assert name not in looks[-1].closed


def test_a_cluster_is_upgraded_node_by_node_though_it_is_killed_and_a_kubelet_cannot_start(
    standing: Lab, commands: Commands, tmp_path: Path
) -> None:
    version, names = NEW.removeprefix("v"), [host.name for host in standing.hosts]
    first, second, *others = standing.hosts
    commands.profile = commands.other_profile(tmp_path / "made.yaml", release=str(standing.stock_next()))
    cluster = Cluster(commands.kubeconfig)
    cluster.begin_work(len(names))
    since, began = time.time(), time.monotonic()
    with asking() as asked, cluster.watched() as watched:
        # Killed while kubeadm is at work on the second control plane.
        seconds = commands.killed_once(
            Stage.UPGRADE, second.name, "--upgrade", version, reached=lambda: runs_kubeadm(second)
        )
        print(f"killed amid kubeadm on {second.name} after {seconds:.0f} s ({load()})")
        look = cluster.look()
        assert (look.versions[first.name], look.versions[others[0].name]) == (NEW, OLD)
        assert "ok" in first.run(f"cd {SNAPSHOTS} && sha256sum --check --quiet *.sha256 && echo ok")
        kept = [float(word) for word in first.run(f"stat -c %Y {SNAPSHOTS}/*.db").split()]
        changed = float(first.run("stat -c %Y /etc/kubernetes/manifests/kube-apiserver.yaml"))
        assert any(since - 1.0 <= at <= changed for at in kept), "etcd was kept before anything changed"
        # It goes on there, and stops where a kubelet cannot start: nobody behind it is touched.
        second.write(BROKEN, "[Service]\nExecStartPre=/bin/false\n")
        second.run("systemctl daemon-reload")
        told = commands.run("--upgrade", version, code=1)
        assert told["why"].startswith(f"failed: upgrade/{second.name}"), told["why"]
        assert any("there is no way back" in note for note in told["notes"]), "said before it began"
        look = cluster.look()
        assert {look.versions[host.name] for host in others} == {OLD}
        assert look.closed == {second.name}
        second.run(f"rm {BROKEN}; systemctl daemon-reload")
        assert commands.run("--upgrade", version)["word"] == "done"
    print(f"{len(names)} nodes upgraded after {time.monotonic() - began:.0f} s ({load()})")
    assert asked.longest_s < API_AWAY_S
    looks = watched.looks
    assert set(looks[-1].versions.values()) == {NEW}
    assert set(services(standing.hosts).values()) == {"200"}
    assert all(len(look.closed) <= 1 for look in looks), "one node at a time"
    for name in names:
        assert_emptied_first(looks, name)
    order = [next(place for place, look in enumerate(looks) if look.versions.get(name) == NEW) for name in names]
    assert order == sorted(order), "control planes first, in the inventory's order"
    begun = commands.begun()
    assert [begun[f"upgrade/{host.name}"] for host in (first, *others)] == [1] * (1 + len(others))
    assert [upgrades(commands, host) for host in (first, second, *others)] == [1, 0, *([1] * len(others))]
    assert cluster.look().closed == frozenset()


def test_an_upgraded_cluster_has_nothing_to_do(standing: Lab, commands: Commands) -> None:
    assert yaml.safe_load(commands.profile.read_text())["bootstrap"]["engine"]["release"].endswith(f"{NEW[1:]}.yaml")
    begun = commands.begun()
    assert commands.run()["word"] == "done"
    assert commands.begun() == begun
    assert commands.run("--drift")["notes"] == []
    assert commands.run("--upgrade", NEW.removeprefix("v"))["word"] == "done"
    assert commands.begun() == begun
    out, said = commands.ended("--upgrade", OLD.removeprefix("v"), code=2)
    assert "bootstrap.engine.release" in out + said
    version = json.loads(Cluster(commands.kubeconfig).ask("version", "-o", "json"))
    assert version["serverVersion"]["gitVersion"] == NEW
