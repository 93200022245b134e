"""`primus bootstrap` on real hosts: from nothing to proven though it is killed amid stages, and what comes after."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.commands import until
from tests.lab.asking import load
from tests.lab.commands import Commands
from tests.lab.hosts import Host
from tests.lab.lab import Lab
from tests.lab.layout import VIRTUAL
from tests.support.running.waiting import patience
from workflows.model.bootstrap import Stage

API_AWAY_S = patience(10.0)
WRITTEN = "/etc /usr/local /opt /var/lib/kubelet/config.yaml /var/lib/etcd/member/wal"
"""What a bootstrap writes on a host."""


@pytest.fixture(scope="module")
def commands(standing: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """With a home of its own; afterwards nothing was done to hosts."""
    standing.renew(*standing.hosts)
    made = Commands(tmp_path_factory.mktemp("home"), standing.profile)
    yield made
    made.ledger.close()
    standing.renew(*standing.hosts)


@pytest.fixture
def bare(lab: Lab, commands: Commands, tmp_path: Path) -> Commands:
    """Hosts to which nothing was done, and a ledger that knows nothing."""
    lab.renew(*lab.hosts)
    commands.ledger.close()
    commands.begin_anew(tmp_path / "home")
    return commands


@pytest.fixture
def proven(lab: Lab, commands: Commands) -> Commands:
    """Hosts that are a proven cluster; what holds already is only looked at."""
    assert commands.run()["word"] == "done"
    return commands


def digests(lab: Lab) -> dict[str, str]:
    """One digest a host of everything that a bootstrap writes."""
    find = f"find {WRITTEN} -type f ! -name '*.wal' -exec sha256sum {{}} + 2>/dev/null | sort | sha256sum"
    return {host.name: host.run(find).split()[0] for host in lab.hosts}


def routes(host: Host) -> str:
    """What a host's kernel and our file on it know of ways to pods."""
    return host.run("ip route; sed 's/ / via /; s/$/ /' /etc/primus-flows/pod-routes")


def test_a_check_says_what_would_be_done_and_writes_nothing(lab: Lab, bare: Commands) -> None:
    commands = bare
    before = digests(lab)
    told = commands.run("--check")
    assert told["word"] == "done", told
    assert {told["table"][host.name]["prechecks"] for host in lab.hosts} == {"pass"}, told["notes"]
    assert told["table"]["n1"]["control-plane"] == "not yet"
    assert digests(lab) == before
    assert commands.begun() == Counter()


def test_three_hosts_become_a_cluster_though_the_command_is_killed_amid_every_stage(lab: Lab, bare: Commands) -> None:
    commands = bare
    first, *others = [host.name for host in lab.hosts]
    for stage, subject in ((Stage.HOSTS, first), (Stage.CONTROL_PLANE, first), (Stage.CONTROL_PLANE, others[0])):
        seconds = commands.killed_once(stage, subject)
        print(f"killed amid {stage}/{subject}, {seconds:.1f} s after it was started ({load()})")
        print(f"its first step was begun after {commands.went_on_s:.1f} s")
    began = time.monotonic()
    told = commands.run()
    print(f"proven {time.monotonic() - began:.1f} s later")
    for step in told["steps"]:
        print(f"{step['id']:28} {step['seconds']} s: {step['why'][:80]}")
    assert told["word"] == "done"
    assert {word for row in told["table"].values() for word in row.values()} == {"pass"}
    begun = commands.begun()
    assert begun[f"control-plane/{first}"] <= 2
    assert all(count == 1 for step, count in begun.items() if step.startswith("network/"))
    assert commands.kubeconfig.stat().st_mode & 0o777 == 0o600
    nodes = json.loads(lab.host(first).run("kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o json"))
    assert len(nodes["items"]) == len(lab.hosts)


def test_a_proven_cluster_is_only_looked_at(lab: Lab, proven: Commands) -> None:
    commands = proven
    begun, before = commands.begun(), digests(lab)
    began = time.monotonic()
    told = commands.run()
    print(f"a look at a proven cluster: {time.monotonic() - began:.1f} s")
    assert (told["word"], commands.begun()) == ("done", begun)
    assert digests(lab) == before
    assert commands.run("--drift")["notes"] == []


def test_twelve_drifts_that_were_put_in_are_found_and_no_other(lab: Lab, proven: Commands) -> None:
    commands = proven
    one, two, three = lab.hosts[:3]
    edited = {
        one: (
            "/etc/containerd/config.toml",
            "/etc/systemd/system/kubelet.service",
            "/etc/modules-load.d/primus-flows.conf",
        ),
        two: ("/usr/local/libexec/primus-flows/pod-routes",),
        three: ("/etc/sysctl.d/99-primus-flows.conf",),
    }
    images = ("registry.k8s.io/kube-scheduler:v1.36.3", "registry.k8s.io/coredns/coredns:v1.14.2")
    put_in = {(host.name, f"file {path}") for host, paths in edited.items() for path in paths}
    for host, paths in edited.items():
        host.run("; ".join(f"echo '# by hand' >>{path}" for path in paths))
    two.run("sysctl -qw net.bridge.bridge-nf-call-ip6tables=0; systemctl disable -q kubelet")
    put_in |= {(two.name, "sysctl net.bridge.bridge-nf-call-ip6tables"), (two.name, "unit kubelet.service")}
    three.run("systemctl disable -q containerd; ctr -n k8s.io images rm " + " ".join(images))
    put_in |= {(three.name, "unit containerd.service"), *((three.name, f"image {image}") for image in images)}
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
    one.run(f"{kubectl} label node {two.name} primus-flows.io/rack=elsewhere --overwrite")
    stranger = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}}
    one.run(f"echo '{json.dumps(stranger)}' | {kubectl} create -f -")
    put_in |= {(two.name, "label primus-flows.io/rack"), ("stranger", "node")}
    assert len(put_in) == 12
    told = commands.run("--drift", code=1)
    assert {(line.split(": ")[0], line.split(": ")[1]) for line in told["notes"]} == put_in
    one.run(f"{kubectl} delete node stranger")
    commands.run()  # what hosts are is put back
    one.run(f"{kubectl} label node {two.name} primus-flows.io/rack=rack-2 --overwrite")
    assert commands.run("--drift")["notes"] == []


def test_a_host_leaves_and_joins_again(lab: Lab, proven: Commands) -> None:
    commands = proven
    leaving = lab.hosts[-1].name
    own = f"via {lab.hosts[-1].address} "
    assert all(own in routes(host) for host in lab.hosts[:-1])
    told = commands.run("--leave", leaving)
    assert told["word"] == "done"
    assert not any(own in routes(host) for host in lab.hosts[:-1]), "who stays has forgotten the way to who left"
    left = "find /etc/kubernetes /var/lib/etcd /var/lib/primus-flows/etcd-snapshots -mindepth 1 2>/dev/null | wc -l"
    assert lab.host(leaving).run(left).strip() == "0"
    assert leaving not in commands.run("--check")["table"]
    told = commands.run("--join", leaving)
    assert told["word"] == "done"
    assert commands.run("--check")["table"][leaving]["network"] == "pass"


def test_a_host_that_lost_its_power_is_told_and_taken_up_again(lab: Lab, proven: Commands) -> None:
    commands = proven
    host = lab.hosts[1]
    host.power_cut()
    told = commands.run("--check", code=1)
    assert told["table"][host.name]["prechecks"] in ("fail", "unknown")
    assert any(host.name in line for line in told["notes"])
    host.power_on()
    assert commands.run()["word"] == "done"


def test_the_leader_s_power_is_cut_and_the_api_is_back_in_time(lab: Lab, proven: Commands) -> None:
    leader = lab.leader()
    assert leader is not None
    ask = f"curl -sk --max-time 1 -o /dev/null -w '%{{http_code}}' https://{VIRTUAL}:6443/readyz"
    peer = next(host for host in lab.hosts if host.name != leader.name)
    assert peer.run(ask).strip() == "200"
    began = time.monotonic()
    leader.power_cut()
    assert not leader.is_on()
    until("the API answers again", lambda: peer.run(ask, check=False).strip() == "200", API_AWAY_S, every_s=0.1)
    print(f"the API is back {time.monotonic() - began:.1f} s after the leader's power was cut")
    leader.power_on()
    assert proven.run()["word"] == "done"
