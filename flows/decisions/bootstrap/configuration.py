"""Whether what stands runs with the settings that are wanted: the cluster's own, and those of each host. Pure.

Settings of kubelet and kube-proxy are held against the file as the program reads it and against the program's age, the
control plane's against its command lines and variables, certificates against what an API server shows. What the cluster
can never change is told by its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from profiles.bootstrap.arguments import ControlProgram
from profiles.cluster import ClusterProfile
from profiles.vocabulary import VerdictWord
from workflows.bootstrap import component_configuration as components
from workflows.bootstrap import fallback, kubeadm_documents, pod_network
from workflows.bootstrap.component_configuration import FieldDifference, differences, document_of
from workflows.bootstrap.control_arguments import argument_differences
from workflows.bootstrap.control_sight import ControlSight, PlaneSight
from workflows.bootstrap.host_state import fingerprint, sections
from workflows.model.bootstrap import StepProof
from workflows.model.host_facts import HostFacts, ProgramConfiguration, Unread
from workflows.model.manifest import Json, items, part

CONTROL_PROGRAMS: tuple[ControlProgram, ...] = get_args(ControlProgram)
YOUNG_SECONDS = 90.0
"""So long after a kubelet began its pods may still be on their way."""
SHOWN = 4


@dataclass(frozen=True)
class Settings:
    """What a cluster and its nodes are to run with, made once for all of them and for one sight."""

    cluster: ClusterProfile
    kept: Mapping[str, Json]
    """`cluster`, `kubelet` and `kube-proxy` -> what the cluster is to keep."""
    kubelet: Json
    """As it lies on a host."""
    arguments: Mapping[ControlProgram, Mapping[str, str]]
    """Of the control plane's programs, over kubeadm's own."""
    variables: Mapping[ControlProgram, Mapping[str, str]]
    """Of their environments."""
    certified: frozenset[str]
    """Names and addresses that the certificate of an API server must carry."""
    known: dict[tuple[str, ...], tuple[FieldDifference, ...]] = field(
        default_factory=dict[tuple[str, ...], "tuple[FieldDifference, ...]"], compare=False
    )
    """In what a file differs, by program and text: of thousands of hosts most have the same one."""


def settings_of(cluster: ClusterProfile) -> Settings:
    """The settings of a cluster whose engine is kubeadm.

    Raises:
        ProfileError: it is another one.
    """
    document = kubeadm_documents.cluster_configuration(cluster, "")
    kept = {
        "cluster": components.wanted_cluster(cluster),
        "kubelet": components.wanted_kubelet(cluster),
        "kube-proxy": components.wanted_kube_proxy(cluster),
    }
    certified = {*document["apiServer"]["certSANs"], document["controlPlaneEndpoint"].rpartition(":")[0]}
    arguments = kubeadm_documents.control_arguments(cluster)
    kubelet = components.wanted_kubelet_on_host(cluster)
    return Settings(cluster, kept, kubelet, arguments, kubeadm_documents.CONTROL_VARIABLES, frozenset(certified))


def cluster_fingerprint(settings: Settings) -> str:
    """Of what the cluster keeps."""
    return fingerprint(list(settings.kept.values()))


def host_fingerprint(settings: Settings, *, controls: bool) -> str:
    """Of what a host runs with: one for all that only work, one for all that carry a control plane."""
    own = [settings.kubelet, settings.kept["kube-proxy"]]
    plane = [settings.arguments, settings.variables, sorted(settings.certified)]
    return fingerprint([*own, *(plane if controls else [])])


def cluster_configuration_proof(settings: Settings, sight: ControlSight) -> StepProof:
    """Whether the cluster keeps the settings from which kubeadm makes its nodes."""
    best = sight.best
    if best is None:
        return StepProof(VerdictWord.UNKNOWN, "no control plane can be asked")
    unread: list[str] = []
    wrong = cluster_differences(settings, best, unread)
    return _judged(wrong, unread, "the cluster keeps the settings that are wanted")


def host_configuration_proof(
    settings: Settings, name: str, facts: HostFacts | Unread, sight: ControlSight
) -> StepProof:
    """Whether the programs of a node run with the settings that are wanted."""
    if isinstance(facts, Unread):
        return StepProof(VerdictWord.UNKNOWN, facts.why)
    unread: list[str] = []
    parts = host_parts(settings, name, facts, sight, unread)
    wrong = [one for found in parts.values() for one in found]
    return _judged(wrong, unread, "it runs with the settings that are wanted")


def cluster_differences(settings: Settings, plane: PlaneSight, unread: list[str]) -> list[FieldDifference]:
    """Settings that the cluster keeps otherwise; what could not be seen is added to `unread`."""
    if plane.settings is None:
        unread.append("its API server does not say which settings the cluster keeps")
        return []
    found: list[FieldDifference] = []
    for name, wanted in settings.kept.items():
        kept = plane.settings.get(name)
        if isinstance(kept, Unread):
            found.append(FieldDifference(f"settings of {name}", "a document", kept.why))
        elif kept is not None:
            found += differences(name, wanted, components.without_version(kept))
        elif name != "kube-proxy" or proxies(settings.cluster, plane):
            found.append(FieldDifference(f"settings of {name}", "a document", "none"))
    return found


def proxies(cluster: ClusterProfile, plane: PlaneSight | None) -> bool:
    """Whether nodes run kube-proxy: a network of the site's own may have taken it away."""
    if sections(cluster)[1].network != "none" or plane is None or plane.settings is None:
        return True
    return "kube-proxy" in plane.settings


def host_parts(
    settings: Settings, name: str, facts: HostFacts, sight: ControlSight, unread: list[str]
) -> dict[str, tuple[FieldDifference, ...]]:
    """What is to be changed on a host, and why; what could not be seen is added to `unread`.

    `kubelet-config` (its file), `kubelet` (only begun anew), `kube-proxy`, control-plane programs, `certificate`, and
    `unfinished`: what was kept before an earlier change is still there.
    """
    best = sight.best
    kubelet = _told(facts.configurations.get("kubelet", Unread()), "kubelet", unread)
    settled = kubelet is not None and (kubelet.process_age_seconds or 0.0) >= YOUNG_SECONDS
    found: dict[str, tuple[FieldDifference, ...]] = {}
    if kubelet is not None:
        found["kubelet-config"] = _kubelet_differences(settings, kubelet, best, unread)
        found["kubelet"] = _not_in_force("kubelet", kubelet)
    if proxies(settings.cluster, best):
        found["kube-proxy"] = _proxy_differences(settings, facts, settled, unread)
    if sections(settings.cluster)[0].hosts[name].controls:
        for program in CONTROL_PROGRAMS:
            found[program] = _program_differences(settings, program, facts, settled, unread)
        found["certificate"] = _certificate_differences(settings, sight.planes.get(name), unread)
    found["unfinished"] = _unfinished(facts, unread)
    return {part: why for part, why in found.items() if why}


def unchangeable(cluster: ClusterProfile, sight: ControlSight) -> list[FieldDifference]:
    """Fields of the profile that differ from a cluster that stands, and that it can never change."""
    best = sight.best
    kept = (best.settings or {}).get("cluster") if best is not None else None
    if best is None or kept is None or isinstance(kept, Unread):
        return []
    bootstrap, _ = sections(cluster)
    wanted = components.wanted_cluster(cluster)
    arguments = {one.get("name"): one.get("value") for one in items(kept, "controllerManager", "extraArgs")}
    networks, own = part(kept, "networking"), part(wanted, "networking")
    pairs = {
        "name": (wanted["clusterName"], kept.get("clusterName")),
        "bootstrap.endpoint": (wanted["controlPlaneEndpoint"], kept.get("controlPlaneEndpoint")),
        "bootstrap.networks.pods": (own["podSubnet"], networks.get("podSubnet")),
        "bootstrap.networks.services": (own["serviceSubnet"], networks.get("serviceSubnet")),
        "bootstrap.networks.domain": (own["dnsDomain"], networks.get("dnsDomain")),
        "bootstrap.networks.pods_of_node": (
            str(bootstrap.networks.pods_of_node),
            arguments.get("node-cidr-mask-size"),
        ),
    }
    addresses = {one.node: one.address for one in pod_network.node_ranges(best.nodes or ())}
    pairs |= {
        f"bootstrap.hosts.{name}.{'node_ip' if host.node_ip else 'address'}": (host.ip, addresses[name])
        for name, host in bootstrap.hosts.items()
        if addresses.get(name)
    }
    return [FieldDifference(field, str(one), str(other)) for field, (one, other) in pairs.items() if one != other]


def _told(configuration: ProgramConfiguration | Unread, program: str, unread: list[str]) -> ProgramConfiguration | None:
    if isinstance(configuration, Unread):
        unread.append(f"settings of {program}: {configuration.why}")
        return None
    return configuration


def _document(configuration: ProgramConfiguration) -> Json | Unread:
    try:
        content = configuration.content
    except ValueError as error:
        return Unread(f"what it told is no file: {error}")
    return document_of(content) if content else Unread("there is no such file")


def _kubelet_differences(
    settings: Settings, configuration: ProgramConfiguration, best: PlaneSight | None, unread: list[str]
) -> tuple[FieldDifference, ...]:
    """Its file against what is wanted, and where the cluster keeps that, field by field against the cluster's."""
    kept = (best.settings or {}).get("kubelet") if best is not None else None
    if not isinstance(kept, Mapping):
        unread.append("no control plane says which settings of kubelet the cluster keeps")
    key = ("kubelet", *configuration.text)
    if key not in settings.known:
        settings.known[key] = tuple(_unlike_kubelet(settings, configuration, kept))
    return settings.known[key]


def _unlike_kubelet(
    settings: Settings, configuration: ProgramConfiguration, kept: Json | Unread | None
) -> list[FieldDifference]:
    found = _document(configuration)
    if isinstance(found, Unread):
        return [FieldDifference("settings of kubelet", "a document", found.why)]
    own = components.on_host(found, settings.kubelet)
    if unlike := differences("kubelet", settings.kubelet, own):
        return unlike
    if not isinstance(kept, Mapping) or differences("kubelet", settings.kept["kubelet"], kept):
        return []  # the cluster's are to be changed first
    told = {**kept, "containerRuntimeEndpoint": settings.kubelet["containerRuntimeEndpoint"]}
    return differences("kubelet", told, own, exact=True)


def _not_in_force(program: str, configuration: ProgramConfiguration) -> tuple[FieldDifference, ...]:
    age = configuration.process_age_seconds
    if age is None:
        return (FieldDifference(program, "a process", "none"),)
    if age > configuration.file_age_seconds:
        return (FieldDifference(f"begin of {program}", "after its settings were written", "before it"),)
    return ()


def _proxy_differences(
    settings: Settings, facts: HostFacts, settled: bool, unread: list[str]
) -> tuple[FieldDifference, ...]:
    configuration = _told(facts.configurations.get("kube-proxy", Unread()), "kube-proxy", unread)
    if configuration is None:
        return ()
    if configuration.process_age_seconds is None and not settled:
        unread.append("kube-proxy does not run yet")
        return ()
    if configuration.process_age_seconds is None:
        return _not_in_force("kube-proxy", configuration)
    key = ("kube-proxy", *configuration.text)
    if key not in settings.known:
        found, wanted = _document(configuration), settings.kept["kube-proxy"]
        nothing = [FieldDifference("settings of kube-proxy", "a document", "none")]
        settings.known[key] = tuple(nothing if isinstance(found, Unread) else differences("kube-proxy", wanted, found))
    return settings.known[key] or _not_in_force("kube-proxy", configuration)


def _program_differences(
    settings: Settings, program: ControlProgram, facts: HostFacts, settled: bool, unread: list[str]
) -> tuple[FieldDifference, ...]:
    processes = facts.processes.get(program, Unread())
    if isinstance(processes, Unread):
        unread.append(f"{program}: {processes.why}")
        return ()
    if len(processes) == 1:
        found = argument_differences(program, settings.arguments[program], processes[0])
        return (*found, *_variable_differences(settings, program, facts, unread))
    if not processes and settled:
        return (FieldDifference(program, "a process", "none"),)
    unread.append(f"{program} does not run yet" if not processes else f"{program} runs {len(processes)} times")
    return ()


def _variable_differences(
    settings: Settings, program: ControlProgram, facts: HostFacts, unread: list[str]
) -> list[FieldDifference]:
    """Variables of its environment; what it has besides is not asked for."""
    wanted = settings.variables.get(program)
    if not wanted:
        return []
    found = facts.variables.get(program, Unread())
    if isinstance(found, Unread):
        unread.append(f"variables of {program}: {found.why}")
        return []
    return [
        FieldDifference(f"{program} variable {name}", value, found.get(name, "none"))
        for name, value in wanted.items()
        if found.get(name) != value
    ]


def _certificate_differences(
    settings: Settings, plane: PlaneSight | None, unread: list[str]
) -> tuple[FieldDifference, ...]:
    if plane is None or plane.names is None:
        unread.append("nobody saw the certificate of its API server")
        return ()
    lacking = sorted(settings.certified - set(plane.names))
    return tuple(FieldDifference("certificate of the API server", one, "not in it") for one in lacking)


def _unfinished(facts: HostFacts, unread: list[str]) -> tuple[FieldDifference, ...]:
    begun = facts.files.get(fallback.BEGUN, Unread())
    if isinstance(begun, Unread):
        unread.append(f"{fallback.BEGUN}: {begun.why}")
        return ()
    return (FieldDifference("an earlier change of settings", "proven", "begun"),) if begun else ()


def _judged(wrong: list[FieldDifference], unread: list[str], well: str) -> StepProof:
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        return StepProof(VerdictWord.FAIL, "; ".join(one.text for one in wrong[:SHOWN]) + more)
    if unread:
        return StepProof(VerdictWord.UNKNOWN, "; ".join(unread[:SHOWN]))
    return StepProof(VerdictWord.PASS, well)
