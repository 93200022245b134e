"""A cluster of five hosts that the engine kubeadm makes: profile, release, facts and sight once all of it holds."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import yaml

from flows.decisions.bootstrap.configuration import CONTROL_PROGRAMS
from flows.decisions.bootstrap.proofs import STATIC_PODS, questions
from flows.decisions.bootstrap.services import tried_services
from profiles.bootstrap.arguments import KUBEADM_DEFAULTS, KUBEADM_OWN, ControlProgram
from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from workflows.bootstrap import component_configuration as components
from workflows.bootstrap import fallback, kubeadm_documents, leaving, pod_network
from workflows.bootstrap.control_sight import ControlSight, Member, PlaneSight
from workflows.bootstrap.host_file import PENDING
from workflows.bootstrap.host_state import host_state, inventory_of, sections
from workflows.bootstrap.pod_network import NodeRange
from workflows.labels import STARTUP_TAINT
from workflows.model.host_facts import HostFacts, HostImage, HostRoute, ProgramConfiguration, UnitState

HOSTS: Mapping[str, Mapping[str, Any]] = {
    "c1": {"address": "192.0.2.11", "role": "control-plane", "rack": "r1"},
    "c2": {"address": "192.0.2.12", "role": "both", "rack": "r2"},
    "c3": {"address": "192.0.2.13", "role": "control-plane", "rack": "r3"},
    "w1": {"address": "192.0.2.21", "rack": "r4", "block": "b1", "labels": {"site/row": "7"}},
    "w2": {"address": "192.0.2.22", "rack": "r2", "taints": ["team=a:NoSchedule"]},
}


RUNNING = ("configurations", "processes", "variables", "container_runtime", "services")
"""Facts of what programs of Kubernetes run with, and of what they make."""


def kubeadm_cluster(**bootstrap: object) -> ClusterProfile:
    """The profile; `bootstrap`: fields of the section over ours."""
    section = {
        "hosts": dict(HOSTS),
        "engine": {"kind": "kubeadm"},
        "endpoint": {"address": "192.0.2.10"},
        "mirror": {"files_url": "http://192.0.2.5:8080"},
        **bootstrap,
    }
    hosts: Any = section["hosts"]
    return ClusterProfile.model_validate(
        {
            "read_kernel_log": True,
            "name": "made",
            "engine": "kubernetes",
            "pools": [
                {
                    "name": "cpu",
                    "hardware": "cpu",
                    "nodes": sum(host.get("role", "worker") != "control-plane" for host in hosts.values()),
                    "spares": 1,
                    "labels": {"site/pool": "cpu"},
                }
            ],
            "storage": [{"kind": "host_path", "source": "/srv", "mount_path": "/srv"}],
            "bootstrap": section,
        }
    )


def release(version: str = "1.36.3", **more: object) -> ReleaseProfile:
    """A release of this version."""
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    images = [{"name": f"registry.k8s.io/{name}:v{version}"} for name in names]
    return ReleaseProfile.model_validate(
        {
            "name": "test",
            "version": version,
            "files": {name: _file(version, name) for name in ("kubeadm", "kubelet", "kubectl")},
            "images": [*images, {"name": "registry.k8s.io/pause:3.10.2"}, {"name": "registry.k8s.io/etcd:3.6.8-0"}],
            **more,
        }
    )


def _file(version: str, name: str) -> dict[str, str]:
    return {"path": f"v{version}/{name}", "sha256": hashlib.sha256(f"{name} {version}".encode()).hexdigest()}


def ranges(cluster: ClusterProfile) -> list[NodeRange]:
    """A range for each host."""
    bootstrap = inventory_of(cluster)
    return [
        NodeRange(name, host.ip, f"10.244.{index}.0/24") for index, (name, host) in enumerate(bootstrap.hosts.items())
    ]


def facts_of(cluster: ClusterProfile, made: ReleaseProfile, name: str) -> HostFacts:
    """What a host tells on which everything is as wanted."""
    bootstrap, _ = sections(cluster)
    state, known = host_state(cluster, made, name), ranges(cluster)
    files = {
        **state.digests,
        PENDING: "",
        **{file.path: file.sha256 for file in pod_network.node_files(bootstrap.networks, known, name)},
    }
    return HostFacts(
        files={**files, leaving.MARK: "f" * 64, fallback.BEGUN: ""},
        container_runtime="ok",
        configurations={
            "kubelet": program_configuration(components.wanted_kubelet_on_host(cluster)),
            "kube-proxy": program_configuration(components.wanted_kube_proxy(cluster)),
        },
        processes={program: (command_line(cluster, program),) for program in CONTROL_PROGRAMS},
        variables={program: dict(kubeadm_documents.CONTROL_VARIABLES.get(program, {})) for program in CONTROL_PROGRAMS},
        sysctls={key.lstrip("-"): value for key, value in state.sysctls.items()},
        units={
            unit: UnitState("loaded", "active", "running", "enabled") for unit in questions(cluster, made, [name]).units
        },
        services=dict.fromkeys(tried_services(cluster), ""),
        versions={"kubelet": made.version},
        images=tuple(HostImage(image, "sha256:1") for image in state.images),
        routes=tuple(HostRoute(one.range, "eth0", one.address) for one in known if one.node != name),
    )


def program_configuration(
    document: Mapping[str, Any], file_age: float = 500.0, process_age: float | None = 400.0
) -> ProgramConfiguration:
    """As a host tells it, with what Go writes beside."""
    text = yaml.safe_dump({**document, "syncFrequency": "0s", "logging": {"verbosity": 0}})
    return ProgramConfiguration((base64.b64encode(text.encode()).decode(),), file_age, process_age)


def command_line(cluster: ClusterProfile, program: ControlProgram) -> tuple[str, ...]:
    """Arguments with which kubeadm runs a program of the control plane."""
    given = {
        **dict.fromkeys(sorted(KUBEADM_OWN[program]), "own"),
        **KUBEADM_DEFAULTS[program],
        **kubeadm_documents.control_arguments(cluster)[program],
    }
    return tuple(f"--{name}={value}" for name, value in given.items())


def kept_settings(cluster: ClusterProfile, version: str = "1.36.3") -> dict[str, Any]:
    """What the cluster keeps, as kubeadm writes it."""
    zeros = {"syncFrequency": "0s", "logging": {"verbosity": 0}}
    return {
        "cluster": {**components.wanted_cluster(cluster), "kubernetesVersion": f"v{version}", "proxy": {}},
        "kubelet": {**components.wanted_kubelet(cluster), "containerRuntimeEndpoint": "", **zeros},
        "kube-proxy": {**components.wanted_kube_proxy(cluster), **zeros},
    }


def node_object(cluster: ClusterProfile, made: ReleaseProfile, own: NodeRange) -> dict[str, Any]:
    """A node as the API tells it."""
    taints = [kubeadm_documents.taint_entry(text) for text in kubeadm_documents.register_taints(cluster, own.node)]
    return {
        "metadata": {"name": own.node, "labels": kubeadm_documents.node_labels(cluster, own.node)},
        "spec": {"podCIDR": own.range, "taints": taints},
        "status": {
            "addresses": [{"type": "InternalIP", "address": own.address}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": f"v{made.version}"},
        },
    }


def sight_of(cluster: ClusterProfile, made: ReleaseProfile) -> ControlSight:
    """What control planes see of which everything is as wanted."""
    planes = inventory_of(cluster).control_planes
    images = {image.name.rpartition("/")[2].partition(":")[0]: image.name for image in made.images}
    pods = tuple(
        {
            "metadata": {"name": f"{program}-{plane}"},
            "spec": {"containers": [{"image": images[program]}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for plane in planes
        for program in STATIC_PODS
    )
    nodes = tuple(node_object(cluster, made, one) for one in ranges(cluster))
    members = tuple(Member(plane) for plane in planes)
    told: dict[str, Any] = {
        "nodes": nodes,
        "pods": pods,
        "members": members,
        "dns": ("CriticalAddonsOnly", STARTUP_TAINT),
    }
    if isinstance(inventory_of(cluster).engine, Kubeadm):
        names = kubeadm_documents.cluster_configuration(cluster, "")["apiServer"]["certSANs"]
        told |= {"settings": kept_settings(cluster, made.version), "names": tuple(names)}
    return ControlSight({plane: PlaneSight(plane, True, "", "", f"v{made.version}", **told) for plane in planes})
