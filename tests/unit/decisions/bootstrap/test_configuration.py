"""Settings of a cluster that stands: whatever differs is found by its name, on its host, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from flows.bootstrap import refuse_other_cluster
from flows.decisions.bootstrap.configuration import (
    cluster_configuration_proof,
    cluster_fingerprint,
    host_configuration_proof,
    host_fingerprint,
    host_parts,
    settings_of,
    unchangeable,
)
from flows.decisions.bootstrap.plan import steps_of
from profiles.bootstrap.arguments import KUBEADM_OWN, ControlProgram
from profiles.errors import ProfileError, Refused
from profiles.vocabulary import VerdictWord
from tests.support.builders.kubeadm_cluster import (
    HOSTS,
    command_line,
    facts_of,
    kept_settings,
    kubeadm_cluster,
    program_configuration,
    release,
    sight_of,
)
from workflows.bootstrap import component_configuration as components
from workflows.bootstrap import fallback
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.host_facts import HostFacts, ProgramConfiguration, Unread

CLUSTER, RELEASE = kubeadm_cluster(), release()
SIGHT = sight_of(CLUSTER, RELEASE)
Document = dict[str, Any]


def with_engine(**engine: Any) -> Any:
    return kubeadm_cluster(engine={"kind": "kubeadm", **engine})


def with_settings(name: str, change: Callable[[Document], object]) -> ControlSight:
    """The sight, in which the cluster keeps other settings of one name."""
    kept = kept_settings(CLUSTER)
    change(kept[name])
    return ControlSight({plane: replace(seen, settings=kept) for plane, seen in SIGHT.planes.items()})


def parts(facts: HostFacts, name: str = "c1", cluster: Any = CLUSTER, sight: ControlSight = SIGHT) -> dict[str, str]:
    unread: list[str] = []
    return {part: why[0].text for part, why in host_parts(settings_of(cluster), name, facts, sight, unread).items()}


CHANGES = {
    "a field of kubelet": ({"kubelet": {"maxPods": 200}}, "kubelet maxPods: wanted 200, found none"),
    "a field inside a field": (
        {"kubelet": {"evictionHard": {"memory.available": "5%"}}},
        "kubelet evictionHard: wanted",
    ),
    "a field of kube-proxy": (
        {"kube_proxy": {"nftables": {"syncPeriod": "45s"}}},
        "kube-proxy nftables: wanted",
    ),
    "an argument": (
        {"arguments": {"kube-apiserver": {"profiling": "false"}}},
        "cluster apiServer.extraArgs: wanted",
    ),
    "an argument over ours": (
        {"arguments": {"etcd": {"quota-backend-bytes": "1"}}},
        "cluster etcd.local.extraArgs.quota-backend-bytes: wanted 1, found 8589934592",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_other_settings_are_another_step_and_the_cluster_is_told_to_keep_them(case: str) -> None:
    engine, why = CHANGES[case]
    cluster = with_engine(**engine)
    old, new = ({step.id: step.wanted for step in steps_of(made, RELEASE)} for made in (CLUSTER, cluster))
    changed = {name for name in old if old[name] != new[name]}
    assert "configuration/cluster" in changed
    assert {name.partition("/")[0] for name in changed} == {"configuration"}, "nothing else is another step"
    proof = cluster_configuration_proof(settings_of(cluster), SIGHT)
    assert (proof.word, proof.why.startswith(why)) == (VerdictWord.FAIL, True), proof.why
    assert cluster_configuration_proof(settings_of(cluster), sight_of(cluster, RELEASE)).word is VerdictWord.PASS
    assert cluster_configuration_proof(settings_of(CLUSTER), sight_of(cluster, RELEASE)).word is VerdictWord.FAIL, (
        "and back again"
    )


def test_what_only_works_has_no_settings_of_a_control_plane() -> None:
    cluster = with_engine(arguments={"kube-scheduler": {"v": "2"}})
    old, new = settings_of(CLUSTER), settings_of(cluster)
    assert host_fingerprint(new, controls=False) == host_fingerprint(old, controls=False)
    assert host_fingerprint(new, controls=True) != host_fingerprint(old, controls=True)
    assert cluster_fingerprint(new) != cluster_fingerprint(old)


KEPT: dict[str, tuple[str, Callable[[Document], object], str]] = {
    "a field that Go writes": ("kubelet", lambda kept: kept.update(volumeStatsAggPeriod="0s", memorySwap={}), ""),
    "a field by hand": ("kubelet", lambda kept: kept.update(maxPods=7), "kubelet maxPods: wanted none, found 7"),
    "a field taken away": (
        "kubelet",
        lambda kept: kept.pop("clusterDomain"),
        "kubelet clusterDomain: wanted cluster.local, found none",
    ),
    "a version": ("cluster", lambda kept: kept.update(kubernetesVersion="v1.36.9"), ""),
    "names of a certificate": (
        "cluster",
        lambda kept: kept["apiServer"].update(certSANs=["c1"]),
        'cluster apiServer.certSANs: wanted ["192.0.2.10"',
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_the_cluster_keeps_otherwise_is_named(case: str) -> None:
    name, change, why = KEPT[case]
    proof = cluster_configuration_proof(settings_of(CLUSTER), with_settings(name, change))
    assert (proof.word, why in proof.why) == (VerdictWord.FAIL if why else VerdictWord.PASS, True), proof.why


def test_settings_that_nobody_sees_are_unknown_and_those_that_are_gone_fail() -> None:
    assert cluster_configuration_proof(settings_of(CLUSTER), ControlSight({})).word is VerdictWord.UNKNOWN
    blind = {name: replace(plane, settings=None) for name, plane in SIGHT.planes.items()}
    assert cluster_configuration_proof(settings_of(CLUSTER), ControlSight(blind)).word is VerdictWord.UNKNOWN
    for gone, found in (({}, "none"), ({"kubelet": Unread("it is no YAML")}, "it is no YAML")):
        kept = {key: value for key, value in kept_settings(CLUSTER).items() if key != "kubelet"} | gone
        other = {name: replace(plane, settings=kept) for name, plane in SIGHT.planes.items()}
        proof = cluster_configuration_proof(settings_of(CLUSTER), ControlSight(other))
        assert (proof.word, proof.why) == (VerdictWord.FAIL, f"settings of kubelet: wanted a document, found {found}")


@pytest.mark.parametrize(("network", "word"), [("none", VerdictWord.PASS), ("routed-bridge", VerdictWord.FAIL)])
def test_a_network_of_the_site_may_have_taken_kube_proxy_away(network: str, word: VerdictWord) -> None:
    cluster = with_engine(network=network)
    kept = {key: value for key, value in kept_settings(CLUSTER).items() if key != "kube-proxy"}
    sight = ControlSight({name: replace(plane, settings=kept) for name, plane in SIGHT.planes.items()})
    assert cluster_configuration_proof(settings_of(cluster), sight).word is word
    gone = program_configuration({}, process_age=None)
    facts = facts_of(CLUSTER, RELEASE, "w1")
    without = replace(facts, configurations={**facts.configurations, "kube-proxy": gone})
    assert ("kube-proxy" in parts(without, "w1", cluster, sight)) is (word is VerdictWord.FAIL)


def with_file(program: str, file: ProgramConfiguration) -> HostFacts:
    facts = facts_of(CLUSTER, RELEASE, "c1")
    return replace(facts, configurations={**facts.configurations, program: file})


def with_configuration(program: str, document: Document, **ages: Any) -> HostFacts:
    return with_file(program, program_configuration(document, **ages))


def with_begun() -> HostFacts:
    facts = facts_of(CLUSTER, RELEASE, "c1")
    return replace(facts, files={**facts.files, fallback.BEGUN: "f" * 64})


def with_arguments(program: ControlProgram, *processes: tuple[str, ...]) -> HostFacts:
    facts = facts_of(CLUSTER, RELEASE, "c1")
    return replace(facts, processes={**facts.processes, program: processes})


def with_variables(told: Mapping[str, str] | Unread) -> HostFacts:
    facts = facts_of(CLUSTER, RELEASE, "c1")
    return replace(facts, variables={**facts.variables, "kube-apiserver": told})


KUBELET, PROXY = components.wanted_kubelet_on_host(CLUSTER), components.wanted_kube_proxy(CLUSTER)
API = command_line(CLUSTER, "kube-apiserver")
OTHER = ("--authorization-mode=AlwaysAllow", "--v=9")
HOST_CASES: dict[str, tuple[HostFacts, dict[str, str]]] = {
    "all as wanted": (facts_of(CLUSTER, RELEASE, "c1"), {}),
    "a resolver of its own": (with_configuration("kubelet", {**KUBELET, "resolvConf": components.RESOLVED}), {}),
    "a resolver by hand": (
        with_configuration("kubelet", {**KUBELET, "resolvConf": "/tmp/resolv"}),
        {"kubelet-config": "kubelet resolvConf: wanted none, found /tmp/resolv"},
    ),
    "a field by hand": (
        with_configuration("kubelet", {**KUBELET, "maxPods": 9}),
        {"kubelet-config": "kubelet maxPods: wanted none, found 9"},
    ),
    "a field set to nothing, taken away": (
        with_configuration("kubelet", {key: KUBELET[key] for key in KUBELET if key != "serializeImagePulls"}),
        {"kubelet-config": "kubelet serializeImagePulls: wanted false, found none"},
    ),
    "no file": (
        with_file("kubelet", ProgramConfiguration((), 0.0, 400.0)),
        {
            "kubelet-config": "settings of kubelet: wanted a document, found there is no such file",
            "kubelet": "begin of kubelet: wanted after",
        },
    ),
    "written after kubelet began": (
        with_configuration("kubelet", KUBELET, file_age=10.0, process_age=200.0),
        {"kubelet": "begin of kubelet: wanted after its settings were written, found before it"},
    ),
    "kubelet is down": (
        with_configuration("kubelet", KUBELET, process_age=None),
        {"kubelet": "kubelet: wanted a process, found none"},
    ),
    "kube-proxy with other settings": (
        with_configuration("kube-proxy", {**PROXY, "mode": "iptables"}),
        {"kube-proxy": "kube-proxy mode: wanted nftables, found iptables"},
    ),
    "kube-proxy is down": (
        with_configuration("kube-proxy", {}, process_age=None),
        {"kube-proxy": "kube-proxy: wanted a process, found none"},
    ),
    "another argument": (
        with_arguments("kube-apiserver", (*API, *OTHER[1:])),
        {"kube-apiserver": "kube-apiserver --v: wanted none, found 9"},
    ),
    "another value of kubeadm's own": (
        with_arguments("kube-apiserver", (*API, *OTHER[:1])),
        {"kube-apiserver": "kube-apiserver --authorization-mode: wanted Node,RBAC, found AlwaysAllow"},
    ),
    "an argument is lacking": (
        with_arguments("kube-controller-manager", ("--kubeconfig=own",)),
        {"kube-controller-manager": "kube-controller-manager --node-cidr-mask-size: wanted 24, found none"},
    ),
    "no scheduler": (
        with_arguments("kube-scheduler"),
        {"kube-scheduler": "kube-scheduler: wanted a process, found none"},
    ),
    "a change that was killed": (
        with_begun(),
        {"unfinished": "an earlier change of settings: wanted proven, found begun"},
    ),
    "a variable is lacking": (
        with_variables({"HTTP2_PING_TIMEOUT_SECONDS": "5"}),
        {"kube-apiserver": "kube-apiserver variable HTTP2_READ_IDLE_TIMEOUT_SECONDS: wanted 5, found none"},
    ),
    "variables that nobody could read": (with_variables(Unread("no such process")), {}),
    "amid a restart": (with_arguments("etcd", API, API), {}),
}


@pytest.mark.parametrize("case", HOST_CASES)
def test_what_differs_on_a_host_is_what_is_changed_there(case: str) -> None:
    facts, expected = HOST_CASES[case]
    told = parts(facts)
    assert set(told) == set(expected)
    assert all(told[part].startswith(why) for part, why in expected.items()), told
    proof = host_configuration_proof(settings_of(CLUSTER), "c1", facts, SIGHT)
    words = {"all as wanted": VerdictWord.PASS, "a resolver of its own": VerdictWord.PASS}
    words |= dict.fromkeys(("amid a restart", "variables that nobody could read"), VerdictWord.UNKNOWN)
    assert proof.word is words.get(case, VerdictWord.FAIL), proof.why


@pytest.mark.parametrize("program", ["kube-proxy", "etcd"])
def test_what_a_young_kubelet_has_not_begun_yet_is_unknown(program: Any) -> None:
    facts = with_configuration("kubelet", KUBELET, process_age=5.0)
    gone: Any = {
        "configurations": {**facts.configurations, "kube-proxy": program_configuration({}, process_age=None)},
        "processes": {**facts.processes, "etcd": ()},
    }
    field = "configurations" if program == "kube-proxy" else "processes"
    proof = host_configuration_proof(settings_of(CLUSTER), "c1", replace(facts, **{field: gone[field]}), SIGHT)
    assert (proof.word, proof.why) == (VerdictWord.UNKNOWN, f"{program} does not run yet")


def test_a_host_that_tells_nothing_is_unknown() -> None:
    assert host_configuration_proof(settings_of(CLUSTER), "w1", Unread("no route"), SIGHT).word is VerdictWord.UNKNOWN
    assert host_configuration_proof(settings_of(CLUSTER), "w1", HostFacts(), SIGHT).word is VerdictWord.UNKNOWN
    blind = host_configuration_proof(settings_of(CLUSTER), "w1", facts_of(CLUSTER, RELEASE, "w1"), ControlSight({}))
    assert (blind.word, "the cluster keeps" in blind.why) == (VerdictWord.UNKNOWN, True)


def test_a_host_is_held_against_the_cluster_only_where_that_keeps_what_is_wanted() -> None:
    sight = with_settings("kubelet", lambda kept: kept.update(maxPods=7))
    assert parts(facts_of(CLUSTER, RELEASE, "w1"), "w1", sight=sight) == {}


def test_a_certificate_must_carry_every_name_and_may_carry_more() -> None:
    facts = facts_of(CLUSTER, RELEASE, "c1")
    names = SIGHT.planes["c1"].names or ()
    for shown, found in ((("c1",), True), ((*names, "old.example.org"), False)):
        sight = ControlSight({**SIGHT.planes, "c1": replace(SIGHT.planes["c1"], names=shown)})
        assert ("certificate" in parts(facts, sight=sight)) is found
    unseen = ControlSight({**SIGHT.planes, "c1": replace(SIGHT.planes["c1"], names=None)})
    assert host_configuration_proof(settings_of(CLUSTER), "c1", facts, unseen).word is VerdictWord.UNKNOWN
    assert "certificate" not in parts(facts_of(CLUSTER, RELEASE, "w1"), "w1", sight=unseen)


UNCHANGEABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "pods": (
        {"networks": {"pods": "10.99.0.0/16"}},
        "bootstrap.networks.pods",
        "found 10.244.0.0/16, wanted 10.99.0.0/16",
    ),
    "services": (
        {"networks": {"services": "10.98.0.0/16"}},
        "bootstrap.networks.services",
        "found 10.96.0.0/16, wanted 10.98.0.0/16",
    ),
    "domain": ({"networks": {"domain": "a.b"}}, "bootstrap.networks.domain", "found cluster.local, wanted a.b"),
    "a node's part": ({"networks": {"pods_of_node": 25}}, "bootstrap.networks.pods_of_node", "found 24, wanted 25"),
    "endpoint": (
        {"endpoint": {"address": "192.0.2.9"}},
        "bootstrap.endpoint",
        "found 192.0.2.10:6443, wanted 192.0.2.9:6443",
    ),
    "address": (
        {"hosts": {**HOSTS, "w1": {**HOSTS["w1"], "node_ip": "192.0.2.77"}}},
        "bootstrap.hosts.w1.node_ip",
        "found 192.0.2.21, wanted 192.0.2.77",
    ),
}


@pytest.mark.parametrize("case", UNCHANGEABLE)
def test_what_can_never_be_changed_is_refused_by_its_field(case: str) -> None:
    section, field, why = UNCHANGEABLE[case]
    cluster = kubeadm_cluster(**section)
    found = unchangeable(cluster, SIGHT)
    assert [one.what for one in found] == [field]
    with pytest.raises(Refused, match=why) as caught:
        refuse_other_cluster(cluster, SIGHT)
    assert field in str(caught.value)
    assert "for ever" in str(caught.value)


def test_another_name_is_another_cluster_and_nobody_is_refused_unseen() -> None:
    other = CLUSTER.model_copy(update={"name": "other"})
    assert [one.text for one in unchangeable(other, SIGHT)] == ["name: wanted other, found made"]
    refuse_other_cluster(CLUSTER, SIGHT)
    refuse_other_cluster(other, ControlSight({}))
    grown = kubeadm_cluster(hosts={**HOSTS, "w3": {"address": "192.0.2.23"}})
    assert unchangeable(grown, SIGHT) == [], "one host more is no other cluster"


@pytest.mark.parametrize("program", KUBEADM_OWN)
def test_what_holds_a_cluster_together_is_not_said_by_a_profile(program: ControlProgram) -> None:
    for name in KUBEADM_OWN[program]:
        with pytest.raises((ProfileError, ValueError), match="kubeadm's own"):
            with_engine(arguments={program: {name: "x"}})


def test_what_kubeadm_sets_whatever_is_said_is_not_said_otherwise() -> None:
    with pytest.raises(ValueError, match="is true whatever is said"):
        with_engine(kubelet={"rotateCertificates": False})
