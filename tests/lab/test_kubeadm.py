"""Three control planes on real hosts: proven from nothing, checked without a write, back after a power cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from flows.decisions.bootstrap.plan import steps_of
from flows.decisions.bootstrap.proofs import kubeadm_proofs, questions
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_release
from profiles.vocabulary import VerdictWord
from tasks.bootstrap import kubeadm
from tasks.bootstrap.kubeadm import KubeadmSite
from tasks.ssh.connections import target
from tasks.ssh.looking import Question, look_at
from tasks.ssh.plays import HostEnd, PlayEvent
from tests.bed.commands import succeeds, until
from tests.lab import releases
from tests.lab.lab import Lab
from tests.support.running.waiting import patience
from workflows.bootstrap import kubeadm_documents
from workflows.bootstrap.host_state import sections
from workflows.model.bootstrap import Stage, Step, StepProofs
from workflows.model.host_facts import HostFacts, Unread

HOLDS_S = patience(120.0)
"""For a step to hold after its play: nodes become ready, members of etcd are promoted."""
API_AWAY_S = 10.0
STAGES = (Stage.HOSTS, Stage.CONTROL_PLANE, Stage.WORKERS, Stage.NETWORK)
ITS_OWN = "net.bridge.bridge-nf-call-iptables"
"""A kernel parameter that each host of the lab has for itself; those of `vm` are the machine's."""
WATCHED = ("/etc", "/usr/local", "/opt", "/var/lib/primus-flows", "/root")


@dataclass
class Made:
    """The cluster that stands on the lab, and what was done to it."""

    lab: Lab
    cluster: ClusterProfile
    site: KubeadmSite
    events: list[PlayEvent] = field(default_factory=list[PlayEvent])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def plan(self) -> tuple[Step, ...]:
        return steps_of(self.cluster, self.site.release)

    def facts(self) -> dict[str, HostFacts | Unread]:
        bootstrap, _ = sections(self.cluster)
        asked = [
            Question(
                target(name, host, bootstrap.ssh),
                questions(self.cluster, self.site.release, [name]),
                host.ip,
                (),
            )
            for name, host in bootstrap.hosts.items()
        ]
        sights = asyncio.run(look_at(asked, 8, None))
        return {name: one.facts if one.failure is None else Unread(one.why) for name, one in sights.items()}

    def proofs(self) -> StepProofs:
        return kubeadm_proofs(self.plan(), self.cluster, self.site.release, self.facts(), kubeadm.look(self.site))

    def missing(self) -> dict[str, str]:
        return {name: proof.why for name, proof in self.proofs().items() if proof.word is not VerdictWord.PASS}

    def carry(self, stages: Sequence[Stage] = STAGES) -> None:
        """Carry out each stage whose proofs do not hold, and wait until they do."""
        for stage in stages:
            begun = time.monotonic()
            missing = self.missing()
            steps = [step for step in self.plan() if step.stage is stage and step.id in missing]
            if steps:
                ends = kubeadm.apply(self.site, steps)
                assert {name: end.why for name, end in ends.items() if end.word is not VerdictWord.PASS} == {}
            if stage is Stage.NETWORK:
                until("every step holds", lambda: not self.missing(), HOLDS_S, every_s=1.0)
            self.seconds[stage] = round(time.monotonic() - begun, 1)

    def serves(self) -> bool:
        """Whether the API answers at its address, asked from this machine."""
        server = f"https://{kubeadm_documents.server_of(sections(self.cluster)[0])}/readyz"
        return succeeds("curl", "--silent", "--insecure", "--fail", "--max-time", "1", "--output", "/dev/null", server)


@pytest.fixture(scope="module")
def made(standing: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    for host in standing.hosts:
        standing.renew(host)
    cluster = load_cluster(str(standing.profile))
    release = load_release(str(releases.release_path(standing.folder)))
    made = Made(standing, cluster, KubeadmSite(cluster, release, tmp_path_factory.mktemp("logs")))
    made.site = replace(made.site, tell=made.events.append)
    begun = time.monotonic()
    made.carry()
    made.seconds["all"] = round(time.monotonic() - begun, 1)
    print("seconds by stage:", made.seconds)
    yield made
    for host in standing.hosts:
        standing.renew(host)


def digests(made: Made) -> dict[str, dict[str, str]]:
    return {host.name: host.files_digest(WATCHED) for host in made.lab.hosts}


def test_three_control_planes_are_up_and_proven_from_nothing(made: Made) -> None:
    assert made.missing() == {}
    assert made.seconds["all"] < patience(360.0)
    sight = kubeadm.look(made.site)
    assert len(sight.serving) == 3
    assert sight.best is not None
    assert len(sight.best.members or ()) == 3
    assert any(plane.snapshots for plane in sight.planes.values()), "etcd was kept before it grew"


def test_no_secret_is_left_on_a_host_or_told(made: Made) -> None:
    kubectl = "kubectl --kubeconfig=/etc/kubernetes/admin.conf --namespace=kube-system get secrets --output=name"
    told = made.lab.host("n1").run(kubectl)
    assert "bootstrap-token" not in told
    assert "kubeadm-certs" not in told
    for host in made.lab.hosts:
        assert host.run("ls /run/primus-flows-kubeadm.yaml 2>&1 | grep -c 'No such'").strip() == "1"
    logs = "".join(path.read_text() for path in Path(str(made.site.logs)).iterdir())
    assert "kubeadm join" in logs
    assert "certificateKey" not in logs + repr(made.events)


def test_what_is_done_is_not_done_again_and_check_mode_writes_nothing(made: Made) -> None:
    host = made.lab.hosts[2]
    host.run(f"sysctl -qw {ITS_OWN}=0; echo '# mine' >>/etc/sysctl.d/99-primus-flows.conf")
    assert list(made.missing()) == [f"hosts/{host.name}"]
    before = digests(made)
    site = replace(made.site, check=True)
    told: dict[Stage, dict[str, HostEnd]] = {}
    for stage in STAGES:
        steps = [step for step in made.plan() if step.stage is stage]
        if steps:
            told[stage] = kubeadm.apply(site, steps)
    assert digests(made) == before, "check mode wrote"
    assert {name for name, end in told[Stage.HOSTS].items() if end.changed} == {host.name}
    assert host.run(f"sysctl -n {ITS_OWN}").strip() == "0"
    made.carry((Stage.HOSTS,))
    assert made.missing() == {}
    again = kubeadm.apply(made.site, [step for step in made.plan() if step.stage is Stage.HOSTS])
    assert {end.changed for end in again.values()} == {()}


def test_the_leader_s_power_is_cut_and_the_api_is_back_in_time(made: Made) -> None:
    leader = made.lab.leader()
    assert leader is not None
    begun = time.monotonic()
    leader.power_cut()
    assert not leader.is_on()
    until("the API answers again", made.serves, API_AWAY_S, every_s=0.1)
    assert time.monotonic() - begun < API_AWAY_S
    leader.power_on()
    until("every step holds", lambda: not made.missing(), patience(240.0), every_s=2.0)
