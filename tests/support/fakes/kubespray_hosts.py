"""Hosts of a stand-in for Kubespray: what its playbooks wrote of each is all that a look at them, or their API, shows.

Playbooks, Ansible and ansible-runner are real; SSH is not: whoever asks a host asks a file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.building import kubespray as site
from flows.decisions.bootstrap.proofs import STATIC_PODS
from flows.decisions.bootstrap.services import tried_services
from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable
from tasks.bootstrap import access, draining, planes
from tests.support.builders import host_sights
from tests.support.builders.kubeadm_cluster import kubeadm_cluster
from workflows import labels
from workflows.bootstrap import kubeadm_documents
from workflows.model.host_sight import HostsSight

Json = dict[str, Any]
SECRET = "geheimes-wort"
HOSTS: Json = {
    "n0": {"address": "192.0.2.11", "role": "both"},
    "n1": {"address": "192.0.2.12", "role": "both"},
    "n2": {"address": "192.0.2.13", "role": "both"},
    "n3": {"address": "192.0.2.14"},
}
VERBS = ("installed", "joined", "upgraded")


def stand_in_profile(folder: Path, source: Json, *, version: str = "1.36.3", kubeconfig: str = "", **said: Any) -> Any:
    """A cluster of the stand-in's hosts, whose copy is `source`; `said`: variables over ours."""
    variables = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "standin_folder": str(folder),
        "registry_password": SECRET,
        **said,
    }
    engine = {"kind": "kubespray", "source": source, "environment": sys.prefix, "version": version}
    found = kubeadm_cluster(
        hosts=HOSTS,
        engine={**engine, "variables": variables},
        mirror={"files_url": "http://mirror.example.org/files"},
        install_components=False,
        join_seconds=5.0,
        batch_share=0.5,
    )
    return found.model_copy(update={"kubeconfig": kubeconfig})


class FileHosts:
    """Hosts in a folder, and what was asked of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.looks: list[tuple[str, ...]] = []
        self.deep: list[bool] = []
        """Of each look, whether it measured."""
        self.acts: list[str] = []
        """What was done through the API, in its order."""
        self.cordoned: set[str] = set()
        self.dead: set[str] = set()
        """Hosts that answer nothing any more; the API still knows their nodes."""

    def put_in(self, patch: Callable[[object, str, object], None]) -> FileHosts:
        """Let all that would go over SSH come here."""
        patch(site, "look_at_hosts", self.look)
        for module in (access, draining, planes):
            patch(module, "run_on", self.run_on)
        return self

    def on(self, host: str) -> list[str]:
        """What was done to a host."""
        path = self.folder / host
        return path.read_text().splitlines() if path.exists() else []

    def version_of(self, host: str) -> str:
        """Of Kubernetes on a node; "": it is none."""
        last = next((line for line in reversed(self.on(host)) if line.split()[0] in (*VERBS, "left")), "left")
        return "" if last.startswith("left") else last.split()[1]

    def look(self, profile: ClusterProfile, hosts: Collection[str], *, deep: bool, **_: object) -> HostsSight:
        """Sound hosts."""
        self.looks.append(tuple(hosts))
        self.deep.append(deep)
        found = host_sights.sight_of(profile)
        facts = {name: replace(one.facts, gpus=(), nics=()) for name, one in found.hosts.items()}
        for name in hosts:
            silent = "" if self.version_of(name) else "the host is no node yet"
            facts[name] = replace(facts[name], services=dict.fromkeys(tried_services(profile), silent))
        return replace(found, hosts={name: replace(found.hosts[name], facts=facts[name]) for name in hosts})

    def run_on(self, profile: ClusterProfile, host: str, words: Sequence[str], seconds: float = 0.0) -> str:
        """What a command prints on a host."""
        del seconds
        if host in self.dead:
            raise Unavailable(f"{host}: no answer")
        match list(words):
            case [_, "-I", "-c", _, "look", *_]:
                return json.dumps(self._plane(profile, host))
            case [_, "-I", "-c", _, "snapshot", _]:
                self.acts.append(f"snapshot on {host}")
                return "{}"
            case ["cat", _] if self.version_of(host):
                return "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n"
            case ["journalctl", *_]:
                return "E0102 kubelet: dial tcp: lookup api.example.org: no such host\n"
            case ["kubectl", _, _, *asked]:
                return self._kubectl(profile, asked)
            case _:
                raise Unavailable(f"{host}: {words[0]} is not known here")

    def _kubectl(self, profile: ClusterProfile, asked: list[str]) -> str:
        nodes = [name for name in _names(profile) if self.version_of(name)]
        match asked:
            case ["get", "nodes", "-l", selector, *rest] if "--field-selector" not in rest:
                return "\n".join(f"node/{name}" for name in nodes if "!=" not in selector and name in self.cordoned)
            case ["get", "nodes", "-l", *_]:
                return ""
            case ["get", "nodes", *_]:
                return "\n".join(f"node/{name}" for name in nodes)
            case ["get", "pods", *_]:
                return '{"items": []}'
            case ["patch", "nodes", *rest]:
                names = [word for word in rest if word in nodes]
                closed = json.loads(rest[-1])["spec"]["unschedulable"]
                self.cordoned = self.cordoned | set(names) if closed else self.cordoned - set(names)
                self.acts.append(f"{'cordon' if closed else 'open'} {' '.join(names)}")
                return ""
            case ["drain", *rest]:
                self.acts.append(f"drain {' '.join(word for word in rest if word in nodes)}")
                return ""
            case _:
                raise Unavailable(f"kubectl {' '.join(asked)} is not known here")

    def _plane(self, profile: ClusterProfile, host: str) -> Json:
        if not self.version_of(host):
            return {"there": False}
        nodes = [name for name in _names(profile) if self.version_of(name)]
        carrying = [name for name in nodes if name in _planes(profile)]
        return {
            "there": True,
            "own": "",
            "endpoint": "",
            "version": f"v{self.version_of(host)}",
            "nodes": [self._node(profile, name) for name in nodes],
            "pods": [self._pod(program, name) for name in carrying for program in STATIC_PODS],
            "members": [
                {"name": name, "learner": False, "why": "no answer" * (name in self.dead)} for name in carrying
            ],
            "dns": [labels.STARTUP_TAINT],
        }

    def _node(self, profile: ClusterProfile, name: str) -> Json:
        marks = kubeadm_documents.node_labels(profile, name)
        marks |= {labels.BOOTSTRAP_CORDON: "true"} if name in self.cordoned else {}
        return {
            "metadata": {"name": name, "labels": marks},
            "spec": {"taints": [], "unschedulable": name in self.cordoned},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": f"v{self.version_of(name)}"},
            },
        }

    def _pod(self, program: str, host: str) -> Json:
        image = f"mirror/{program}:v{self.version_of(host)}"
        ready = [{"type": "Ready", "status": "True"}]
        containers = [{"name": program, "image": image}]
        return {
            "metadata": {"name": f"{program}-{host}"},
            "spec": {"containers": containers},
            "status": {"conditions": ready},
        }


def _names(profile: ClusterProfile) -> tuple[str, ...]:
    return tuple(profile.bootstrap.hosts) if profile.bootstrap else ()


def _planes(profile: ClusterProfile) -> tuple[str, ...]:
    return profile.bootstrap.control_planes if profile.bootstrap else ()
