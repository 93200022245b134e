"""The engine kubespray: its plan, whether steps hold, which playbooks come next, and what is told of what it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.changes import why_not_leave
from flows.decisions.bootstrap.drift import drift_of
from flows.decisions.bootstrap.judge import Wanted, checks_of, judged
from flows.decisions.bootstrap.kubespray import ACCEPTED, kubespray_notes, making, running_versions, scope_of
from flows.decisions.bootstrap.next_move import CarryOutSteps, next_steps
from flows.decisions.bootstrap.plans import plan_of
from profiles.bootstrap.request import BootstrapRequest
from profiles.errors import Refused
from profiles.loading.load import load_hardware, load_run
from profiles.vocabulary import VerdictWord
from tests.support.builders import host_sights
from tests.support.builders.components import chosen_of, cluster_with
from tests.support.builders.kubeadm_cluster import HOSTS, kubeadm_cluster, release, sight_of
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight, Member, PlaneSight
from workflows.bootstrap.kubespray import KubesprayPlaybook, KubesprayScope
from workflows.model.bootstrap import Stage, StepProof
from workflows.model.host_facts import TuningFacts, UnitState, Unread

Json = dict[str, Any]
SOURCE = {"archive": "/k.tar", "sha256": "a" * 64}


def engine(version: str = "1.36.3") -> Json:
    return {"kind": "kubespray", "version": version, "environment": "/opt/k", "source": SOURCE}


TUNING = {"transparent_hugepages": "madvise"}
CLUSTER = kubeadm_cluster(engine=engine(), tuning=TUNING)
BOOTSTRAP = CLUSTER.bootstrap
assert BOOTSTRAP is not None
NAMES, PLANES = tuple(HOSTS), ("c1", "c2", "c3")
WHOLE = sight_of(CLUSTER, release())
BARE = ControlSight({name: PlaneSight(name) for name in PLANES})
TAKEN = StepProof(VerdictWord.PASS, "taken")
FACTS = KubesprayPlaybook("playbooks/facts.yml")


def wanted(verb: Any = "build", **more: Any) -> Wanted:
    return Wanted(CLUSTER, None, {"cpu": load_hardware("cpu")}, verb=verb, **more)


def request(verb: str = "build", **more: Any) -> BootstrapRequest:
    return BootstrapRequest(cluster="made", verb=verb, **more)  # pyright: ignore[reportArgumentType]


def seen(cluster: ControlSight = WHOLE, inventory: StepProof | None = TAKEN) -> BuildingSight:
    looked = host_sights.sight_of(CLUSTER)
    sysctls = dict(BOOTSTRAP.tuning.sysctls) if BOOTSTRAP else {}
    more: Json = {"gpus": (), "nics": (), "sysctls": sysctls}
    more |= {"units": {"kubelet.service": UnitState("loaded", "active", "running", "enabled")}}
    hosts = {name: replace(one, facts=replace(one.facts, **more)) for name, one in looked.hosts.items()}
    return BuildingSight(1000.0, replace(looked, hosts=hosts), cluster, inventory=inventory)


def with_planes(change: Callable[[PlaneSight], PlaneSight]) -> ControlSight:
    return ControlSight({name: change(plane) for name, plane in WHOLE.planes.items()})


def with_node(name: str, change: Callable[[Json], object]) -> ControlSight:
    fresh = sight_of(CLUSTER, release())
    node: Any = next(one for one in fresh.planes["c1"].nodes or () if one["metadata"]["name"] == name)
    change(node)
    return fresh


# The plan.


def test_all_nodes_are_one_group_behind_their_own_checks_and_kubesprays() -> None:
    plan = plan_of(wanted(), request(), {})
    assert [step.id for step in plan][:6] == ["prechecks/cluster", *(f"prechecks/{name}" for name in NAMES)]
    nodes = [step for step in plan if step.stage is not Stage.PRECHECKS]
    assert [step.id for step in nodes] == [
        *(f"control-plane/{name}" for name in PLANES),
        *(f"workers/{name}" for name in ("w1", "w2")),
    ]
    assert all(step.after == ("prechecks/cluster", f"prechecks/{step.subject}") for step in nodes)
    move = next_steps(plan, judged(wanted(), plan, seen(BARE)), {}, 0.0, at_once=2)
    assert isinstance(move, CarryOutSteps)
    assert list(move.steps) == nodes, "one playbook makes all of them, however many there are"


def test_it_ends_in_the_same_proof_as_every_engine() -> None:
    found = cluster_with(["metrics-server"])
    assert found.bootstrap is not None
    section = found.bootstrap.model_copy(update={"engine": BOOTSTRAP.engine, "hosts": BOOTSTRAP.hosts})  # pyright: ignore[reportOptionalMemberAccess]
    cluster = found.model_copy(update={"bootstrap": section})
    plan = plan_of(Wanted(cluster, None, {}, chosen_of(found), run=load_run("demo")), request(), {})
    assert plan[-1].id == "proof/cluster"
    assert {"components/metrics-server", "control-plane/c1", "workers/w1"} <= set(plan[-1].after)


def test_another_version_label_or_taint_is_another_step() -> None:
    hosts = {**HOSTS, "w1": {**HOSTS["w1"], "rack": "r9"}}
    other = kubeadm_cluster(engine=engine("1.36.4"), hosts=hosts)
    old = {step.id: step.wanted for step in plan_of(wanted(), request(), {})}
    new = {step.id: step.wanted for step in plan_of(replace(wanted(), cluster=other), request(), {})}
    assert all(old[name] != new[name] for name in old if not name.startswith("prechecks/"))


def test_changes_wait_for_kubesprays_word_and_control_planes_are_one_act() -> None:
    plan = plan_of(wanted("upgrade", version="1.36.3"), request("upgrade", version="1.36.3"), {})
    assert plan[0] == ACCEPTED
    after = {step.id: step.after for step in plan}
    assert {after[f"upgrade/{name}"] for name in NAMES} == {(ACCEPTED.id,)}
    turns = {step.subject: step.turn for step in plan[1:]}
    assert [turns[name] for name in PLANES] == [1] * 3
    assert (turns["w1"], turns["w2"]) == (2, 3), "workers go rack by rack"
    leave = plan_of(wanted("leave"), request("leave", hosts=("w1",)), {})
    assert [step.id for step in leave] == ["prechecks/cluster", "leave/w1"]


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_no_playbook_knows_a_host_that_is_no_node_and_nobody_asks_for(
    concerned: set[str], left_out: set[str], nodes: set[str]
) -> None:
    assert BOOTSTRAP is not None
    scope = scope_of(BOOTSTRAP, concerned, left_out, {name: {"metadata": {"name": name}} for name in nodes})
    assert scope.hosts == tuple(name for name in NAMES if name in (concerned | nodes) - left_out)
    assert set(scope.nodes) == nodes - left_out


# Whether steps hold.


def test_every_step_of_a_sound_cluster_holds() -> None:
    plan = plan_of(wanted(), request(), {})
    assert {name: one.why for name, one in judged(wanted(), plan, seen()).items() if one.word != "pass"} == {}


@pytest.mark.parametrize(("told", "word"), [("timed out", "fail"), (Unread("no answer"), "unknown")])
def test_a_node_that_does_not_reach_services_does_not_hold(told: str | Unread, word: str) -> None:
    sight = seen()
    host = sight.hosts.hosts["w1"]
    silent = replace(host, facts=replace(host.facts, services={"10.96.0.1:443": told}))
    sight = replace(sight, hosts=replace(sight.hosts, hosts={**sight.hosts.hosts, "w1": silent}))
    proofs = judged(wanted(), plan_of(wanted(), request(), {}), sight)
    assert {name: one.word for name, one in proofs.items() if one.word != "pass"} == {"workers/w1": word}
    assert differences(sight) == {("w1", "service 10.96.0.1:443" if word == "fail" else "services")}
    upgrade = request("upgrade", version="1.36.3")
    plan = plan_of(wanted("upgrade", version="1.36.3"), upgrade, {})
    proofs = judged(wanted("upgrade", version="1.36.3"), plan, sight)
    assert {name: one.word for name, one in proofs.items() if one.word != "pass"} == {"upgrade/w1": word}


NO_CLUSTER = "there is no cluster yet"


@pytest.mark.parametrize(
    ("sight", "step", "word", "said"),
    [
        (BARE, "workers/w1", "fail", NO_CLUSTER),
        (BARE, "control-plane/c1", "fail", "there is no control plane on it"),
        (ControlSight({"c1": PlaneSight("c1")}, {"c2": "no route"}), "workers/w1", "unknown", "c2: no route"),
        (ControlSight({}, {"c1": "no route"}), "control-plane/c1", "unknown", "no route"),
        (
            with_planes(lambda one: replace(one, endpoint="refused")),
            "control-plane/c1",
            "fail",
            "the API through 192.0.2.10:6443: refused",
        ),
        (
            with_planes(lambda one: replace(one, members=(*(one.members or ()), Member("x9")))),
            "control-plane/c2",
            "fail",
            "etcd has members that the inventory does not name: x9",
        ),
        (
            with_planes(lambda one: replace(one, members=(Member("c1"), Member("c3")))),
            "control-plane/c2",
            "fail",
            "it is no member of etcd",
        ),
        (with_planes(lambda one: replace(one, dns=())), "control-plane/c2", "fail", "DNS does not tolerate"),
        (
            with_node("c2", lambda node: node["status"]["conditions"][0].update(status="False", message="no network")),
            "control-plane/c2",
            "fail",
            "it is not ready: no network",
        ),
        (
            with_node("w1", lambda node: node["status"]["nodeInfo"].update(kubeletVersion="v1.35.4")),
            "workers/w1",
            "fail",
            "its kubelet is v1.35.4, wanted is v1.36.3",
        ),
        (with_node("w2", lambda node: node["spec"].update(taints=[])), "workers/w2", "fail", "lacks the taint team=a"),
        (with_node("w1", lambda node: node["metadata"].update(name="x9")), "workers/w1", "fail", "it has not joined"),
    ],
)
def test_a_node_holds_where_the_cluster_shows_it_so(sight: ControlSight, step: str, word: str, said: str) -> None:
    proof = judged(wanted(), plan_of(wanted(), request(), {}), seen(sight))[step]
    assert proof.word == word
    assert said in proof.why


def test_images_of_control_planes_may_come_from_anywhere_but_are_of_the_version() -> None:
    def other(plane: PlaneSight) -> PlaneSight:
        pods: Any = [{**pod} for pod in plane.pods or ()]
        for pod in pods:
            program = pod["metadata"]["name"].rpartition("-")[0]
            pod["spec"] = {
                "containers": [{"image": f"mirror:5000/{program}:v1.36.{4 if 'scheduler' in program else 3}"}]
            }
        return replace(plane, pods=tuple(pods))

    proof = judged(wanted(), plan_of(wanted(), request(), {}), seen(with_planes(other)))["control-plane/c1"]
    assert proof.why == "kube-scheduler runs mirror:5000/kube-scheduler:v1.36.4, wanted is v1.36.3: upgrade it"


REFUSED = StepProof(VerdictWord.FAIL, "etcd must have an odd number of members")
OLD_NODE = with_node("w1", lambda node: node["status"]["nodeInfo"].update(kubeletVersion="v1.35.4"))


@pytest.mark.parametrize(
    ("verb", "sight", "said", "word", "why"),
    [
        ("build", BARE, TAKEN, "pass", "taken"),
        ("build", BARE, REFUSED, "fail", "odd number"),
        ("build", BARE, None, "unknown", "was not asked"),
        ("build", OLD_NODE, TAKEN, "fail", "the cluster runs 1.35.4"),
        ("check", OLD_NODE, TAKEN, "fail", "--upgrade 1.36.3"),
        ("join", OLD_NODE, TAKEN, "fail", "or name the version that runs"),
        ("leave", OLD_NODE, TAKEN, "pass", "taken"),
        ("upgrade", OLD_NODE, TAKEN, "pass", "taken"),
        ("upgrade", OLD_NODE, REFUSED, "fail", "odd number"),
    ],
)
def test_nothing_is_begun_before_kubespray_takes_the_inventory_and_versions_agree(
    verb: str, sight: ControlSight, said: StepProof | None, word: str, why: str
) -> None:
    proof = judged(wanted(verb), [ACCEPTED], seen(sight, said))[ACCEPTED.id]
    assert proof.word == word
    assert why in proof.why


def test_a_control_plane_whose_api_does_not_serve_tells_its_version_by_its_kubelet() -> None:
    half = ControlSight({**BARE.planes, "c1": PlaneSight("c1", there=True, own="refused")})
    told = seen(half)
    host = told.hosts.hosts["c1"]
    facts = replace(host.facts, versions={"kubelet": "1.35.4"})
    hosts = replace(told.hosts, hosts={**told.hosts.hosts, "c1": replace(host, facts=facts)})
    assert running_versions(replace(told, hosts=hosts)) == {"1.35.4"}
    assert running_versions(seen(BARE)) == frozenset()


def node(server: str, *, plane: bool) -> host_sights.Defect:
    return host_sights.Defect(items=host_sights.node_of(server, plane=plane))


@pytest.mark.parametrize(
    ("server", "fit"),
    [
        ("https://lb-apiserver.kubernetes.local:6443", True),
        ("https://localhost:6443", True),
        ("https://192.0.2.10:6443", True),
        ("https://api.elsewhere.example.org:6443", False),
    ],
)
def test_nodes_that_kubespray_made_are_this_clusters(server: str, fit: bool) -> None:
    defects = {name: node(server, plane=name in PLANES) for name in NAMES}
    hosts = host_sights.sight_of(CLUSTER, defects)
    findings = [one for one in checks_of(wanted(), replace(seen(), hosts=hosts)).stopped if "cluster" in one.check]
    assert [one.check for one in findings] == ([] if fit else ["foreign-cluster"])


# Which playbooks.

SCOPE = KubesprayScope(NAMES)
HALF = ControlSight({**BARE.planes, "c1": PlaneSight("c1", there=True, own="refused")})


@pytest.mark.parametrize(
    ("sight", "scope", "names", "playbooks"),
    [
        (BARE, SCOPE, NAMES, (KubesprayPlaybook("cluster.yml"),)),
        (BARE, KubesprayScope(("c1", "w1")), ("c1", "w1"), (KubesprayPlaybook("cluster.yml"),)),
        (BARE, SCOPE, PLANES, (FACTS, KubesprayPlaybook("cluster.yml", PLANES))),
        (HALF, SCOPE, ("c1",), (FACTS, KubesprayPlaybook("cluster.yml", PLANES))),
        (HALF, SCOPE, NAMES, (KubesprayPlaybook("cluster.yml"),)),
        (WHOLE, SCOPE, ("w1",), (FACTS, KubesprayPlaybook("scale.yml", ("w1",)))),
        (WHOLE, SCOPE, ("c3", "w1"), (FACTS, KubesprayPlaybook("cluster.yml", (*PLANES, "w1")))),
    ],
)
def test_a_cluster_comes_up_whole_and_later_hosts_by_themselves(
    sight: ControlSight, scope: KubesprayScope, names: tuple[str, ...], playbooks: tuple[KubesprayPlaybook, ...]
) -> None:
    assert BOOTSTRAP is not None
    assert making(scope, BOOTSTRAP, sight, names) == playbooks


@pytest.mark.parametrize(
    ("sight", "scope", "said"),
    [
        (ControlSight({**WHOLE.planes, "c1": PlaneSight("c1")}), SCOPE, "c1 stands first and holds no cluster"),
        (ControlSight({**BARE.planes, "c2": PlaneSight("c2", there=True)}), SCOPE, "and c2 does"),
        (ControlSight({"c1": PlaneSight("c1")}, {"c2": "no route"}), SCOPE, r"not reached were c2 \(no route\)"),
        (BARE, KubesprayScope(("w1",)), "no control plane is asked for"),
    ],
)
def test_a_second_cluster_is_never_begun(sight: ControlSight, scope: KubesprayScope, said: str) -> None:
    assert BOOTSTRAP is not None
    with pytest.raises(Refused, match=said):
        making(scope, BOOTSTRAP, sight, ["w1"])


def test_the_first_control_plane_stays() -> None:
    assert BOOTSTRAP is not None
    members = dict.fromkeys(PLANES, True)
    assert "c1 is the first control plane" in why_not_leave(BOOTSTRAP, ["c1"], members, dead=False)
    assert why_not_leave(BOOTSTRAP, ["c2"], members, dead=False) == ""


# What is told.


def differences(sight: BuildingSight) -> set[tuple[str, str]]:
    return {(one.subject, one.what) for one in drift_of(wanted("drift"), sight, NAMES)}


def test_drift_compares_what_it_can_and_says_what_it_cannot() -> None:
    assert differences(seen()) == set()
    assert differences(seen(OLD_NODE)) == {("w1", "Kubernetes")}
    sight = seen()
    host = sight.hosts.hosts["w1"]
    facts = replace(host.facts, tuning=TuningFacts("always", "off", "performance"), sysctls={"vm.max_map_count": "1"})
    facts = replace(facts, units={"kubelet.service": UnitState("loaded", "active", "running", "disabled")})
    hosts = replace(sight.hosts, hosts={**sight.hosts.hosts, "w1": replace(host, facts=facts)})
    assert differences(replace(sight, hosts=hosts)) == {
        ("w1", "sysctl fs.inotify.max_user_instances"),
        ("w1", "sysctl fs.inotify.max_user_watches"),
        ("w1", "sysctl vm.max_map_count"),
        ("w1", "tuning transparent_hugepages"),
        ("w1", "unit kubelet.service"),
    }
    assert BOOTSTRAP is not None
    [line] = kubespray_notes(BOOTSTRAP, "drift", "")
    assert "are not compared" in line


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("build", "tuning.transparent_hugepages: not set by Kubespray"),
        ("upgrade", "Kubernetes does not go back from 1.36.4: the way back is a snapshot of etcd, restored by hand"),
        ("upgrade", "Kubespray takes none of etcd that kubeadm keeps, so one is taken first"),
        ("leave", ""),
    ],
)
def test_what_the_engine_cannot_is_said_before_it_begins(verb: str, said: str) -> None:
    assert BOOTSTRAP is not None
    lines = kubespray_notes(BOOTSTRAP, verb, "1.36.4")
    assert any(said in line for line in lines) if said else lines == ()
