"""The steps of the engine `kubeadm`, from inventory and release alone."""

from __future__ import annotations

from collections.abc import Mapping

from flows.decisions.bootstrap.configuration import Settings, cluster_fingerprint, host_fingerprint, settings_of
from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from workflows.bootstrap import kubeadm_documents
from workflows.bootstrap.host_state import HostState, fingerprint, host_state, sections
from workflows.model.bootstrap import CLUSTER, Stage, Step


def steps_of(cluster: ClusterProfile, release: ReleaseProfile, authority: str = "") -> tuple[Step, ...]:
    """Every step, each behind those that it comes after.

    A host is checked before anything is done to it. Control planes come one after the other, since each joins those
    that are there; workers join once the first control plane serves.

    Args:
        cluster: with its section `bootstrap`, whose engine is kubeadm.
        release: which files and images.
        authority: content of the mirror's `ca_file`, PEM; "": none.

    Raises:
        ProfileError: the release does not say a file's digest.
    """
    bootstrap, _ = sections(cluster)
    planes, workers = bootstrap.control_planes, bootstrap.workers
    steps = [_check(name) for name in bootstrap.hosts]
    # What lies on a host that only works is the same everywhere: of ten thousand it is made once.
    states = {name: host_state(cluster, release, name, authority) for name in (*planes, *workers[:1])}
    prints = {name: state.fingerprint for name, state in states.items()}
    for name in bootstrap.hosts:
        like = name if name in states else workers[0]
        steps.append(_host(name, states[like], prints[like]))
    for before, name in zip(("", *planes), planes, strict=False):
        after = (f"{Stage.HOSTS}/{name}", *([f"{Stage.CONTROL_PLANE}/{before}"] if before else []))
        first = "begins the cluster" if not before else "joins the control plane"
        wanted = fingerprint(_node(cluster, release, name))
        steps.append(Step(Stage.CONTROL_PLANE, name, wanted, f"{first} with {_version(release)}", after, alone=True))
    settings = settings_of(cluster)
    steps.append(_settings(settings, planes[0]))
    for name in workers:
        after = (f"{Stage.HOSTS}/{name}", f"{Stage.CONTROL_PLANE}/{planes[0]}")
        wanted = fingerprint(_node(cluster, release, name))
        steps.append(Step(Stage.WORKERS, name, wanted, f"joins as a worker with {_version(release)}", after))
    steps += [*_running(settings), *network_steps(cluster)]
    return tuple(steps)


def _check(name: str) -> Step:
    return Step(Stage.PRECHECKS, name, "", "is fit to become a node")


def _host(name: str, state: HostState, wanted: str) -> Step:
    what = f"gets {len(state.files)} files, {len(state.downloads)} programs and {len(state.images)} images"
    return Step(Stage.HOSTS, name, wanted, what, (f"{Stage.PRECHECKS}/{name}",))


def _settings(settings: Settings, first: str) -> Step:
    after = (f"{Stage.CONTROL_PLANE}/{first}",)
    what = "keeps the settings of kubelet, kube-proxy and control plane"
    return Step(Stage.CONFIGURATION, CLUSTER, cluster_fingerprint(settings), what, after)


def _running(settings: Settings) -> list[Step]:
    """Each node runs with the settings that the cluster keeps."""
    bootstrap, _ = sections(settings.cluster)
    wanted = {controls: host_fingerprint(settings, controls=controls) for controls in (True, False)}
    what, steps = "runs with the settings that the cluster keeps", list[Step]()
    for name, host in bootstrap.hosts.items():
        node = Stage.CONTROL_PLANE if host.controls else Stage.WORKERS
        after = (f"{Stage.CONFIGURATION}/{CLUSTER}", f"{node}/{name}")
        steps.append(Step(Stage.CONFIGURATION, name, wanted[host.controls], what, after))
    return steps


def network_steps(cluster: ClusterProfile) -> list[Step]:
    """All hosts know all others: one more host, or one less, is another step for each."""
    bootstrap, engine = sections(cluster)
    if engine.network == "none":
        return []
    made = {name: Stage.CONTROL_PLANE if host.controls else Stage.WORKERS for name, host in bootstrap.hosts.items()}
    whole = {name: host.ip for name, host in bootstrap.hosts.items()}
    wanted = fingerprint([bootstrap.networks.model_dump(), whole])
    summary = "reaches the pods of all other nodes"
    return [Step(Stage.NETWORK, name, wanted, summary, (f"{stage}/{name}",)) for name, stage in made.items()]


def _node(cluster: ClusterProfile, release: ReleaseProfile, name: str) -> Mapping[str, object]:
    return {
        "version": release.version,
        "registration": kubeadm_documents.registration(cluster, name),
        "labels": kubeadm_documents.node_labels(cluster, name),
        "taints": kubeadm_documents.taints(cluster, name),
    }


def _version(release: ReleaseProfile) -> str:
    return f"Kubernetes {release.version}"
