"""Any of fourteen drifts, in any company, is found as what it is, and nothing is invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.bootstrap.drift import Difference, drift_of
from flows.decisions.bootstrap.judge import Wanted
from profiles.loading.load import load_hardware
from profiles.vocabulary import VerdictWord
from tests.support.builders import host_sights
from tests.support.builders.kubeadm_cluster import RUNNING, facts_of, kubeadm_cluster, release, sight_of
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.host_facts import HostFacts, Memory, TuningFacts, Unread

CLUSTER = kubeadm_cluster(tuning={"transparent_hugepages": "madvise", "numa_balancing": "off"})
RELEASE = release()
WANTED = Wanted(CLUSTER, RELEASE, {"cpu": load_hardware("cpu")})
NAMES = tuple(CLUSTER.bootstrap.hosts) if CLUSTER.bootstrap else ()
KUBELET = "/etc/systemd/system/kubelet.service"


def sound() -> BuildingSight:
    """All hosts and nodes as wanted."""
    looked = host_sights.sight_of(CLUSTER, pairs=False)
    hosts = {}
    for name, seen in looked.hosts.items():
        own = facts_of(CLUSTER, RELEASE, name)
        read = ("files", "sysctls", "units", "versions", "images", *RUNNING)
        more = {key: getattr(own, key) for key in read}
        hosts[name] = replace(seen, facts=replace(seen.facts, gpus=(), nics=(), **more))
    return BuildingSight(1000.0, replace(looked, hosts=hosts), sight_of(CLUSTER, RELEASE))


def with_facts(seen: BuildingSight, name: str, **changes: Any) -> BuildingSight:
    host = seen.hosts.hosts[name]
    hosts = {**seen.hosts.hosts, name: replace(host, facts=replace(host.facts, **changes))}
    return replace(seen, hosts=replace(seen.hosts, hosts=hosts))


def of_host(name: str, field: str, key: str, value: object) -> Callable[[BuildingSight], BuildingSight]:
    """One entry of a mapping of facts is another one."""

    def change(seen: BuildingSight) -> BuildingSight:
        return with_facts(seen, name, **{field: {**getattr(seen.hosts.hosts[name].facts, field), key: value}})

    return change


def of_facts(name: str, field: str, make: Callable[[HostFacts], object]) -> Callable[[BuildingSight], BuildingSight]:
    return lambda seen: with_facts(seen, name, **{field: make(seen.hosts.hosts[name].facts)})


def of_nodes(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[BuildingSight], BuildingSight]:
    """The objects of nodes are others, as every control plane sees them."""

    def changed(seen: BuildingSight) -> BuildingSight:
        best = seen.cluster.best
        assert best is not None
        nodes = [{**node, "metadata": {**node["metadata"]}, "spec": {**node["spec"]}} for node in best.nodes or ()]
        change(nodes)
        planes = {name: replace(plane, nodes=tuple(nodes)) for name, plane in seen.cluster.planes.items()}
        return replace(seen, cluster=ControlSight(planes))

    return changed


def relabel(nodes: list[dict[str, Any]]) -> None:
    node = next(node for node in nodes if node["metadata"]["name"] == "w1")
    node["metadata"]["labels"] = {**node["metadata"]["labels"], "site/row": "8"}


def untaint(nodes: list[dict[str, Any]]) -> None:
    next(node for node in nodes if node["metadata"]["name"] == "w2")["spec"]["taints"] = []


def stranger(nodes: list[dict[str, Any]]) -> None:
    nodes.append({"metadata": {"name": "x9", "labels": {}}, "spec": {}, "status": {}})


def first_image(facts: HostFacts) -> object:
    assert not isinstance(facts.images, Unread)
    return facts.images[1:]


Drift = tuple[Callable[[BuildingSight], BuildingSight], tuple[str, str]]
DRIFTS: Mapping[str, Drift] = {
    "a unit's file": (of_host("w1", "files", KUBELET, "0" * 64), ("w1", f"file {KUBELET}")),
    "a file is gone": (of_host("c1", "files", KUBELET, ""), ("c1", f"file {KUBELET}")),
    "containerd's configuration": (
        of_host("w2", "files", "/etc/containerd/config.toml", "1" * 64),
        ("w2", "file /etc/containerd/config.toml"),
    ),
    "a kernel parameter": (of_host("w1", "sysctls", "vm.max_map_count", "65530"), ("w1", "sysctl vm.max_map_count")),
    "another kernel parameter": (
        of_host("c2", "sysctls", "fs.inotify.max_user_instances", "128"),
        ("c2", "sysctl fs.inotify.max_user_instances"),
    ),
    "an image": (of_facts("w1", "images", first_image), ("w1", "image registry.k8s.io/kube-apiserver:v1.36.3")),
    "huge pages": (
        of_facts("w1", "tuning", lambda _: TuningFacts("always", "off", "performance")),
        ("w1", "tuning transparent_hugepages"),
    ),
    "swap": (of_facts("w2", "memory", lambda _: Memory(2015 << 30, 2000 << 30, 1 << 30)), ("w2", "swap")),
    "a kernel": (of_facts("w2", "kernel", lambda _: "6.5.0-1"), ("w2", "kernel")),
    "firmware": (of_facts("w2", "firmware", lambda _: {"bios": "1.0"}), ("w2", "firmware")),
    "a label": (of_nodes(relabel), ("w1", "label site/row")),
    "a taint": (of_nodes(untaint), ("w2", "taint team=a:NoSchedule")),
    "a service": (
        of_host("w2", "services", "10.96.0.1:443", "timed out"),
        ("w2", "service 10.96.0.1:443"),
    ),
    "a stranger": (of_nodes(stranger), ("x9", "node")),
}


def found(seen: BuildingSight) -> tuple[Difference, ...]:
    return drift_of(WANTED, seen, NAMES)


def test_a_cluster_as_wanted_has_no_drift() -> None:
    assert [one.text for one in found(sound())] == []


@pytest.mark.parametrize("name", DRIFTS)
def test_each_drift_is_found_alone(name: str) -> None:
    change, expected = DRIFTS[name]
    seen = {(one.subject, one.what) for one in found(change(sound()))}
    assert expected in seen
    # Of two pools' hosts that differ nobody can say which one is right: both may be named.
    assert {what for _, what in seen} == {expected[1]}


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(sorted(DRIFTS)), min_size=2))
def test_in_any_company_all_are_found_and_none_is_invented(names: set[str]) -> None:
    seen, wanted = sound(), set[tuple[str, str]]()
    for name in sorted(names):
        change, expected = DRIFTS[name]
        seen = change(seen)
        wanted.add(expected)
    told = {(one.subject, one.what) for one in found(seen)}
    assert wanted <= told
    assert {what for _, what in told} == {what for _, what in wanted}


def test_what_could_not_be_seen_is_unknown_and_never_the_same() -> None:
    seen = sound()
    silent = replace(seen.hosts.hosts["w1"], failure=host_sights.LookFailure.UNREACHABLE, why="no answer")
    hosts = replace(seen.hosts, hosts={**seen.hosts.hosts, "w1": silent})
    told = found(replace(seen, hosts=hosts, cluster=ControlSight({})))
    assert {(one.subject, one.what, one.word) for one in told} == {
        ("w1", "the host", VerdictWord.UNKNOWN),
        ("cluster", "nodes", VerdictWord.UNKNOWN),
    }
    unread = with_facts(sound(), "c1", files={}, images=Unread("no containerd"))
    words = {one.word for one in found(unread)}
    assert words == {VerdictWord.UNKNOWN}
    assert all("unknown" in one.text for one in found(unread))
