"""Time to proven, stage by stage, beside the same commands by hand: three bare hosts of the lab become a cluster.

By hand is what somebody types at best who knows every file and every command beforehand: all hosts side by side, no
question whether they are fit, no proof of anything, nothing that a second try could go on from. It needs root and a lab
(docs/lab.md), which it starts where none is up, so it is no part of `make bench`: name it
(`python -m tests.benchmarks.bootstrap_hosts`).
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_release
from tests.lab import lab as labs
from tests.lab.asking import load
from tests.lab.commands import Commands
from tests.lab.hosts import Host
from tests.lab.lab import Lab
from tests.lab.layout import Options
from workflows.bootstrap import kubeadm_documents, pod_network
from workflows.bootstrap.container_runtime import PLUGINS
from workflows.bootstrap.host_state import HostState, host_state, sections

RATIO_GOAL = 2.0
TOKEN, KEY = "abcdef.0123456789abcdef", "0f" * 32
KUBECTL = "kubectl --kubeconfig=/etc/kubernetes/admin.conf"
BY_HAND = {"hosts": "hosts", "control-plane": "control planes", "network": "network"}
"""Stages that both have: their name here."""
LIMIT_S = 300.0


class Site:
    """Three hosts, and everything that somebody knows of them who does it by hand."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.hosts = lab, lab.hosts
        self.cluster: ClusterProfile = load_cluster(str(lab.profile))
        self.bootstrap, engine = sections(self.cluster)
        self.release: ReleaseProfile = load_release(engine.release)

    def state(self, host: Host) -> HostState:
        """What the host must be."""
        return host_state(self.cluster, self.release, host.name)

    def prepare(self, host: Host) -> None:
        """Files, programs, units and images."""
        state, mirror = self.state(host), self.bootstrap.mirror.files_url
        lines = ["set -e"]
        for file in state.files:
            text = base64.b64encode(file.content.encode()).decode()
            place = shlex.quote(file.path)
            lines.append(f"mkdir -p $(dirname {place}); echo {text} | base64 -d >{place}; chmod {file.mode:o} {place}")
        for one in state.downloads:
            lines.append(f"curl -sf -o {one.target} {mirror}/{one.path}; chmod 755 {one.target}")
        lines += [f"sysctl -qw {name}={value}" for name, value in state.sysctls.items()]
        lines.append(f"mkdir -p {PLUGINS}; ln -sf /usr/lib/cni/* {PLUGINS}/")
        lines.append("systemctl daemon-reload; systemctl restart containerd; systemctl enable -q kubelet containerd")
        lines += [f"systemctl enable -q --now {unit}" for unit in state.units]
        lines += [f"curl -sf {mirror}/{one.path} | ctr -n k8s.io images import - >/dev/null" for one in state.archives]
        host.run("sh -s", stdin="\n".join(lines), limit_s=LIMIT_S)

    def init(self) -> None:
        """The first control plane, and its certificates for the others."""
        first = self.hosts[0]
        text = kubeadm_documents.init_documents(self.cluster, self.release.version, first.name)
        first.write("/run/init.yaml", text.replace("@TOKEN@", TOKEN))
        first.run("kubeadm init --config=/run/init.yaml --skip-token-print", limit_s=LIMIT_S)
        text = kubeadm_documents.certificates_documents(self.cluster, self.release.version, first.name)
        first.write("/run/certificates.yaml", text.replace("@KEY@", KEY))
        first.run("kubeadm init phase upload-certs --upload-certs --config=/run/certificates.yaml", limit_s=LIMIT_S)

    def join(self, host: Host) -> None:
        """Another control plane."""
        said = self.hosts[0].run("kubeadm token create --print-join-command", limit_s=LIMIT_S)
        found = re.search(r"--token (\S+) .*(sha256:[0-9a-f]+)", said)
        assert found is not None
        words = {"TOKEN": found[1], "PIN": found[2], "KEY": KEY}
        words["SERVER"] = kubeadm_documents.server_of(self.bootstrap)
        text = kubeadm_documents.join_document(self.cluster, host.name)
        for name, value in words.items():
            text = text.replace(f"@{name}@", value)
        host.write("/run/join.yaml", text)
        host.run("kubeadm join --config=/run/join.yaml", limit_s=LIMIT_S)

    def route(self) -> None:
        """Ranges of pods and the routes to them; then all nodes are Ready."""
        nodes = json.loads(self.hosts[0].run(f"{KUBECTL} get nodes -o json"))["items"]
        ranges = pod_network.node_ranges(nodes)
        for host in self.hosts:
            for file in pod_network.node_files(self.bootstrap.networks, ranges, host.name):
                host.write(file.path, file.content)
            host.run(f"systemctl restart {pod_network.SERVICE}; systemctl enable -q --now {pod_network.TIMER}")
        self.hosts[0].run(f"{KUBECTL} wait --for=condition=Ready nodes --all --timeout=120s", limit_s=LIMIT_S)


def by_hand(site: Site) -> dict[str, float]:
    """Seconds of each stage."""
    with ThreadPoolExecutor() as pool:
        hosts = timed(lambda: list(pool.map(site.prepare, site.hosts)))
    planes = timed(lambda: (site.init(), *(site.join(host) for host in site.hosts[1:])))
    return {"hosts": hosts, "control planes": planes, "network": timed(site.route)}


def by_command(lab: Lab, home: Path) -> tuple[dict[str, float], float]:
    """Seconds of each stage, from the first of its steps that began to the last that was proven; and of all."""
    commands = Commands(home, lab.profile)
    total = timed(commands.run)
    records = commands.ledger.bootstrap_steps("made")
    commands.ledger.close()
    stages: dict[str, tuple[float, float]] = {}
    for record in records.values():
        if not record.tries or record.ended_at is None:
            continue
        name = BY_HAND.get(record.stage, record.stage)
        first, last = stages.get(name, (record.began_at, record.ended_at))
        stages[name] = min(first, record.began_at), max(last, record.ended_at)
    return {name: last - first for name, (first, last) in stages.items()}, total


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


@contextmanager
def a_lab() -> Generator[Lab]:
    """The one that is up, else one of its own."""
    found = labs.find()
    made = found or labs.up(Options())
    try:
        yield made
    finally:
        made.renew(*made.hosts)
        if found is None:
            labs.down(made.folder)


def main() -> int:
    """Print each stage of both; 1 where the whole takes more than its goal."""
    with a_lab() as lab, tempfile.TemporaryDirectory() as home:
        lab.renew(*lab.hosts)
        hand = by_hand(Site(lab))
        print(f"by hand: {sum(hand.values()):.0f} s ({load()})", flush=True)
        lab.renew(*lab.hosts)
        own, total = by_command(lab, Path(home))
        print(f"primus bootstrap: {total:.0f} s ({load()})")
    for name in dict.fromkeys((*own, *hand)):
        print(f"  {name:16} {own.get(name, 0.0):6.1f} s, by hand {hand.get(name, 0.0):6.1f} s")
    rest = total - sum(own.values())
    ratio = total / sum(hand.values())
    print(f"  looks, checks and proofs between {rest:.1f} s")
    print(f"{len(own)} stages proven in {total:.0f} s, {ratio:.2f} of the same by hand (goal <= {RATIO_GOAL})")
    return 0 if ratio <= RATIO_GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
