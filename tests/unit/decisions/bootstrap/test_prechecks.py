"""No broken host reaches the first change: each defect is found by its check, and nothing else is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.prechecks.judge import Prechecks, prechecks
from flows.decisions.bootstrap.prechecks.pairs import blame
from flows.decisions.bootstrap.prechecks.table import PRECHECKS
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.vocabulary import VerdictWord
from tests.support.builders.host_sights import (
    API_SERVICE,
    CA,
    GPU_NODE,
    NAMES,
    PLANES,
    WORKERS,
    Defect,
    items,
    merged,
    node_of,
    profile,
    sight_of,
)
from tests.support.cases.rows import rows
from workflows.model.host_facts import Resolver, Unread
from workflows.model.host_sight import HostsSight, LookFailure

HARDWARE = {"gpu-node": GPU_NODE}
PROFILE = profile()
OURS = "https://10.0.0.100:6443"


def judged(sight: HostsSight, told: ClusterProfile = PROFILE, **more: Any) -> Prechecks:
    return prechecks(told, HARDWARE, sight, **more)


def outline(found: Prechecks) -> list[tuple[str, tuple[str, ...], str]]:
    return [(one.check, one.hosts, str(one.word)) for one in found.stopped]


def test_sound_hosts_pass_everything() -> None:
    found = judged(sight_of(PROFILE))
    assert (found.stopped, found.fit, found.why) == ((), NAMES, "")
    # A host that has no certificate of a cluster has none that could end.
    assert {one.check for one in found.findings} == PRECHECKS.keys() - {"certificates"}


@rows("bootstrap/prechecks")
def test_every_defect_is_found_and_nothing_else(
    host: str, defect: Defect, check: str, also: tuple[str, ...] = (), word: str = "fail", found: str = ""
) -> None:
    told = judged(sight_of(PROFILE, {host: defect}))
    hosts = tuple(name for name in NAMES if name in {host, *also})
    assert outline(told) == [(check, hosts, word)], told.why
    [finding] = told.stopped
    assert found in finding.found
    assert finding.advice
    assert told.fit == tuple(name for name in NAMES if name not in hosts), "the others are fit all the same"
    assert [one.check for one in told.of(host)] == [check]


def test_what_is_alike_is_said_once_for_350_hosts() -> None:
    names = {f"w{number}": {"address": f"10.1.{number // 250}.{number % 250 + 1}"} for number in range(347)}
    planes = {name: {"address": f"10.0.0.{place + 11}", "role": "control-plane"} for place, name in enumerate(PLANES)}
    told = profile(hosts={**planes, **names}, networks={"mtu": 9000, "pods": "10.128.0.0/14"})
    found = judged(sight_of(told, {"w7": Defect(items={"kernel": {"is": "6.5.0"}})}, pairs=False), told)
    assert len(found.findings) <= len(PRECHECKS) + 8
    [finding] = found.stopped
    assert (finding.hosts, finding.found) == (("w7",), "6.5.0, where 346 have 6.1.0-30")
    assert len(found.fit) == 349
    many = {f"w{number}": Defect(items={"entropy": {"is": number}}) for number in range(9)}
    [finding] = judged(sight_of(told, many, pairs=False), told).stopped
    assert finding.found == "0 bits on w0; 1 bits on w1; 2 bits on w2; 3 bits on w3; 5 more"


def test_half_and_half_has_no_right_kernel() -> None:
    other = Defect(items={"kernel": {"is": "6.5.0"}})
    [finding] = judged(sight_of(PROFILE, {"w1": other, "w2": other})).stopped
    assert (finding.hosts, finding.found) == (WORKERS, "6.5.0 on w1, w2; 6.1.0-30 on w3, w4")
    limits = {"limits": {"kernels_may_differ": True}}
    assert judged(sight_of(profile(**limits), {"w1": other}), profile(**limits)).stopped == ()


def test_a_cluster_that_stands_passes_everything() -> None:
    nodes = {name: Defect(items=node_of(OURS, plane=name in PLANES)) for name in NAMES}
    sight = sight_of(PROFILE, nodes)
    assert judged(sight).stopped == ()
    assert judged(sight, authority_sha256=CA).stopped == ()
    assert "certificates" in {one.check for one in judged(sight).findings}
    foreign = judged(sight, authority_sha256="f" * 64)
    assert outline(foreign) == [("foreign-cluster", NAMES, "fail")]


def test_whose_node_a_host_is_goes_by_authority_and_address() -> None:
    planes = {name: Defect(items=node_of(OURS, plane=True)) for name in PLANES}
    stale = judged(sight_of(PROFILE, {**planes, "w1": Defect(items=node_of(OURS, "b" * 64))}))
    assert outline(stale) == [("foreign-cluster", ("w1",), "fail")], "an older cluster had the same address"
    elsewhere = {name: Defect(items=node_of("https://192.0.2.1:6443", plane=name in PLANES)) for name in NAMES}
    assert outline(judged(sight_of(PROFILE, elsewhere))) == [("foreign-cluster", NAMES, "fail")]
    alone = judged(
        sight_of(PROFILE, {"w1": Defect(items=node_of(OURS)), "c1": Defect(items={"authority": {"why": "no"}})})
    )
    assert outline(alone) == [("foreign-cluster", ("w1",), "unknown"), ("leftovers", ("w1",), "fail")][::-1]
    nameless = judged(sight_of(PROFILE, {**planes, "w1": Defect(items=node_of(OURS, ""))}))
    assert ("foreign-cluster", ("w1",), "unknown") in outline(nameless)
    stranger = judged(sight_of(PROFILE, {"w1": Defect(items=node_of("https://192.0.2.9:6443", ""))}))
    assert outline(stranger) == [("foreign-cluster", ("w1",), "fail")]


def test_an_adopted_cluster_is_known_by_what_most_of_its_nodes_know() -> None:
    told = profile(engine={"kind": "adopt"})
    nodes = {name: Defect(items=node_of("https://lb.site")) for name in NAMES}
    assert judged(sight_of(told, nodes), told).stopped == ()
    rancher = Defect(items={"leftovers": {"is": {"files": ["/var/lib/rancher/k3s"]}}})
    assert judged(sight_of(told, {"w1": rancher}), told).stopped == ()
    mixed = {**nodes, "w4": Defect(items=node_of("https://lb.site", "b" * 64))}
    assert outline(judged(sight_of(told, mixed), told)) == [("foreign-cluster", ("w4",), "fail")]


def test_what_a_bootstrap_left_half_made_is_its_own() -> None:
    half = {"w1": Defect(items={"leftovers": {"is": {"files": ["/etc/kubernetes/pki/ca.crt"]}}})}
    assert outline(judged(sight_of(PROFILE, half))) == [("leftovers", ("w1",), "fail")]
    assert judged(sight_of(PROFILE, half), begun=frozenset({"w1"})).stopped == ()


def test_settings_of_the_kubelet_allow_old_groups_and_swap() -> None:
    told = profile(engine={"kind": "kubeadm", "kubelet": {"failCgroupV1": False, "failSwapOn": False}})
    old = Defect(items={"cgroup": {"is": 1}, "memory": {"is": {"swap_bytes": 1 << 30}}})
    assert judged(sight_of(told, {"w1": old}), told).stopped == ()
    assert outline(judged(sight_of(PROFILE, {"w1": old}))) == [("cgroup", ("w1",), "fail"), ("swap", ("w1",), "fail")]


def test_what_is_forced_is_kept_and_stops_nobody() -> None:
    sight = sight_of(PROFILE, {"w1": Defect(items={"entropy": {"is": 1}, "cgroup": {"is": 1}})})
    found = judged(sight, forced={"entropy": "a virtual machine"})
    assert outline(found) == [("cgroup", ("w1",), "fail")]
    assert [(one.check, one.forced) for one in found.forced] == [("entropy", "a virtual machine")]
    assert judged(sight, forced={"entropy": "a", "cgroup": "b"}).fit == NAMES
    for name, said in (
        ("foreign-cluster", "foreign-cluster is never forced"),
        ("host-key", "never forced"),
        ("entropi", 'did you mean "entropy"'),
    ):
        with pytest.raises(ProfileError, match=said):
            judged(sight, forced={name: "I say so"})
    with pytest.raises(ProfileError, match="needs a reason"):
        judged(sight, forced={"entropy": " "})


def test_ways_that_nobody_tried_are_unknown_where_they_should_have_been() -> None:
    assert judged(sight_of(PROFILE, pairs=False)).stopped == (), "nobody asked for them"
    many = replace(sight_of(PROFILE, pairs=False), pairs=Unread("nobody tried: too many"))
    found = judged(many)
    assert outline(found) == [("ports", NAMES, "unknown"), ("mtu", NAMES, "unknown")]
    assert [one.found for one in found.stopped] == ["nobody tried: too many"] * 2
    assert judged(many, forced={"ports": "a", "mtu": "b"}).fit == NAMES
    gone = dict.fromkeys([name for name in NAMES if name != "w1"], Defect(failure=LookFailure.UNREACHABLE))
    alone = judged(sight_of(PROFILE, gone))
    assert [one.check for one in alone.of("w1")] == ["ports", "mtu"]
    assert alone.fit == ()


def test_a_wrong_address_that_is_forced_hides_no_closed_way() -> None:
    other = {"addresses": {"is": [{"interface": "eth0", "address": "10.0.0.99", "prefix": 24}]}}
    sight = sight_of(PROFILE, {"w2": Defect(items=other, ports_to={10250: "timed out"}, mtu={"*": 1500})})
    assert outline(judged(sight)) == [("address", ("w2",), "fail")]
    forced = judged(sight, forced={"address": "it is translated"})
    assert outline(forced) == [("ports", ("w2",), "fail"), ("mtu", ("w2",), "fail")]


def test_control_planes_of_different_authorities_make_no_host_ours() -> None:
    nodes = {name: Defect(items=node_of(OURS, plane=name in PLANES)) for name in NAMES}
    nodes["c3"] = Defect(items=node_of(OURS, "b" * 64, plane=True))
    found = judged(sight_of(PROFILE, nodes))
    assert ("foreign-cluster", NAMES, "unknown") in outline(found)
    assert "control planes tell different authorities" in found.why
    nodes["w1"] = Defect(items=node_of(OURS, "c" * 64))
    assert ("foreign-cluster", ("w1",), "fail") in outline(judged(sight_of(PROFILE, nodes)))
    assert outline(judged(sight_of(PROFILE, {**nodes, "w1": nodes["w2"]}), authority_sha256=CA)) == [
        ("foreign-cluster", ("c3",), "fail")
    ]


@pytest.mark.parametrize(
    ("resolver", "word", "said"),
    [
        (Unread("no such file"), "unknown", "name servers: no such file"),
        (Resolver(("10.0.0.2", "fd00::2"), (), ()), "pass", "10.0.0.2 answer"),
        (Resolver(("127.0.0.53",), ("10.0.0.3",), ()), "pass", "10.0.0.3 answer"),
        (Resolver(("fd00::2",), (), ()), "pass", "no name has to resolve"),
    ],
)
def test_of_names_only_what_was_asked_is_told(resolver: Resolver | Unread, word: str, said: str) -> None:
    sight = sight_of(PROFILE)
    bare = {
        name: replace(one, facts=replace(one.facts, names={}, resolver=resolver)) for name, one in sight.hosts.items()
    }
    found = [one for one in judged(replace(sight, hosts=bare)).findings if one.check == "names"]
    assert [(str(one.word), one.found) for one in found] == [(word, said)]


def test_what_follows_from_a_cause_is_said_where_the_cause_is_forced() -> None:
    no_root = Defect(items={"privilege": {"is": "there is no sudo on it"}, "fsync": {"why": "Permission denied"}})
    sight = sight_of(PROFILE, {"c1": no_root})
    assert outline(judged(sight)) == [("sudo", ("c1",), "fail")]
    assert outline(judged(sight, forced={"sudo": "an agent does it"})) == [("fsync", ("c1",), "unknown")]
    ends = {"file": "/etc/kubernetes/pki/ca.crt", "expires_at": 1.0, "days_left": 1.0}
    left = {"leftovers": {"is": {"files": [ends["file"]]}}, "certificates": {"is": [ends]}}
    sight = sight_of(PROFILE, {"w1": Defect(items=left)})
    assert outline(judged(sight)) == [("leftovers", ("w1",), "fail")]
    assert outline(judged(sight, forced={"leftovers": "its own"})) == [("certificates", ("w1",), "fail")]


def test_hosts_that_were_not_looked_at_are_not_fit() -> None:
    sight = sight_of(PROFILE)
    found = judged(replace(sight, hosts={name: one for name, one in sight.hosts.items() if name != "w2"}))
    assert ("reachable", ("w2",), "unknown") in outline(found)
    assert "w2" not in found.fit


@given(st.data())
def test_what_nobody_knows_never_passes(data: st.DataObject) -> None:
    host = data.draw(st.sampled_from(NAMES))
    own = items(host, controls=host in PLANES, works=host in WORKERS)
    lost = data.draw(st.sets(st.sampled_from(sorted(own)), min_size=1))
    unread = {key: {"why": "nobody knows"} for key in lost}
    found = judged(sight_of(PROFILE, {host: Defect(items=unread)}))
    silent = {"time_synchronised", "tuning", "authority", f"service:{API_SERVICE}"}
    assert (host in found.fit) == (lost <= silent)
    before = {one.check for one in judged(sight_of(PROFILE)).findings if host in one.hosts}
    word = {one.check: one.word for one in found.findings if host in one.hosts}
    assert word.keys() >= before - {"certificates", "containerd-disk"}
    assert set(word.values()) <= {VerdictWord.PASS, VerdictWord.UNKNOWN}


@given(st.randoms(use_true_random=False), st.sets(st.sampled_from(NAMES)))
def test_the_order_of_hosts_does_not_matter(order: random.Random, swapped: set[str]) -> None:
    defect = Defect(items={"memory": {"is": {"swap_bytes": 1 << 30}}}, mtu={"*": 1500})
    sight = sight_of(PROFILE, dict.fromkeys(swapped, defect))
    hosts = list(sight.hosts.items())
    order.shuffle(hosts)
    assert judged(replace(sight, hosts=dict(hosts))) == judged(sight)


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda way: way[0] != way[1])))
def test_every_failing_way_is_blamed_on_somebody(ways: set[tuple[int, int]]) -> None:
    named = {(f"n{one}", f"n{other}") for one, other in ways}
    found = blame(named)
    assert all(set(way) & found.keys() for way in named)
    assert {way for many in found.values() for way in many} == named


def test_a_host_before_which_a_firewall_stands_is_blamed_alone() -> None:
    ways = {(f"n{source}", "n7") for source in range(7)} | {("n7", f"n{target}") for target in range(7)}
    assert blame(ways).keys() == {"n7"}
    assert merged([1, 2], {1: 5}) == [1, 5]
