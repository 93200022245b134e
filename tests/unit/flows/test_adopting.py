"""A cluster that is there already: checked, given components, proven; its nodes and hosts are left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flows import bootstrap
from flows.building import adopted, cluster_site, ground, work
from flows.building.rendered import rendered_bootstrap
from flows.building.work import BootstrapOutcome
from flows.decisions.views.approvals import approval_document
from profiles.bootstrap.inventory import ClusterHost
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError, Refused, Unavailable
from profiles.vocabulary import Mode, RunState
from tasks.bootstrap import site
from tasks.bootstrap.components import ComponentsSite
from tasks.bootstrap.site import Tell
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tasks.ssh.looking import ASKED
from tests.support.builders import host_sights
from tests.support.builders.components import chosen_of, cluster_with
from tests.support.builders.why_sights import RUN
from workflows import labels
from workflows.bootstrap.control_sight import ControlSight, PlaneSight
from workflows.model.bootstrap import HostNews
from workflows.model.components import ChosenComponent, InstalledComponent
from workflows.model.host_sight import HostsSight
from workflows.model.nodes import joins
from workflows.model.records import Actor, KnownBy, RunRecord
from workflows.wire import ServingReport

Json = dict[str, Any]
CPU = {"site/kind": "cpu"}


@dataclass
class MadeCluster:
    """Nodes that nobody may touch, components that can be brought, and a run that trains."""

    nodes: list[Json] = field(default_factory=lambda: [node("n1"), node("n2")])
    away: str = ""
    components: dict[str, InstalledComponent] = field(default_factory=dict[str, InstalledComponent])
    trained: list[str] = field(default_factory=list[str])
    sizes: list[int] = field(default_factory=list[int])
    with_data: dict[str, bool] = field(default_factory=dict[str, bool])
    """Components that went, and whether their data did."""
    broken: set[str] = field(default_factory=set[str])
    """Nodes that fail their test."""
    tests: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Nodes that were tested together, and which components were there then."""
    done: list[str] = field(default_factory=list[str])
    """What was brought, tested and trained, in its order."""

    def look(self, profile: ClusterProfile, home: Path) -> ControlSight:
        if self.away:
            return ControlSight({}, {"API": self.away})
        plane = PlaneSight("API", there=True, own="", endpoint="", nodes=tuple(self.nodes), members=())
        return ControlSight({"API": plane})

    def bring(self, site: ComponentsSite, names: Collection[str], tell: Tell) -> dict[str, str]:
        self.sizes.append(site.nodes)
        self.components |= {one.name: installed(one) for one in site.chosen if one.name in names}
        self.done += sorted(names)
        return {}

    def admit(self, profile: ClusterProfile, names: Collection[str] | None, tell: Tell) -> dict[str, str]:
        joining = [one for one in self.nodes if joins(one) and (names is None or one["metadata"]["name"] in names)]
        self.tests.append(tuple(one["metadata"]["name"] for one in joining))
        self.done.append("tests")
        for one in joining:
            if one["metadata"]["name"] not in self.broken:
                one["spec"]["taints"] = []
            else:
                said = {"verdict": "fail", "depth": "smoke", "evidence": "gpu-count: 7 of 8"}
                one["metadata"]["annotations"] = {labels.VERDICT_EVIDENCE: json.dumps(said)}
        return {name: "smoke: fail" for name in self.tests[-1] if name in self.broken}

    def remove(self, site: ComponentsSite, leaving: Sequence[Any], tell: Tell) -> dict[str, str]:
        for one in leaving:
            del self.components[one.component.name]
            self.with_data[one.component.name] = one.data
        return {}

    def train(self, cluster: str, run: str, proof: str, tell: Tell) -> str:
        self.trained.append(run)
        self.done.append("trains")
        return ""

    def proof(self, fingerprint: str) -> RunRecord | None:
        return replace(RUN, state=RunState.SUCCEEDED) if self.trained else None


def node(name: str, ready: str = "True", *, cordoned: bool = False) -> Json:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": {"conditions": conditions}}


def joiner(name: str) -> Json:
    found = node(name)
    taint = {"key": labels.STARTUP_TAINT, "effect": "NoSchedule"}
    return {**found, "metadata": {"name": name, "labels": CPU}, "spec": {"taints": [taint]}}


def installed(one: ChosenComponent) -> InstalledComponent:
    report = ServingReport(one.name, "pass", "it serves", 2000.0, one.wanted)
    return InstalledComponent(one.name, one.profile.version, one.wanted, report)


def adopting(component: str = "metrics-server", **hosts: Json) -> ClusterProfile:
    """A profile of an adopted cluster that gets this component, and whose inventory names these hosts."""
    found = cluster_with([component])
    assert found.bootstrap is not None
    named = {name: ClusterHost.model_validate(host) for name, host in hosts.items()}
    return found.model_copy(update={"bootstrap": found.bootstrap.model_copy(update={"hosts": named})})


def with_pool(profile: ClusterProfile) -> ClusterProfile:
    """The profile with one pool of nodes without GPUs, known by their label."""
    pool = next(pool for pool in profile.pools if pool.hardware == "cpu").model_copy(update={"labels": CPU})
    return profile.model_copy(update={"pools": (pool,)})


def carried(profile: ClusterProfile, **fields: Any) -> BootstrapOutcome:
    return bootstrap.carry_through(profile, BootstrapRequest(cluster=profile.name, **fields), lambda line: None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeCluster:
    cluster = MadeCluster()
    monkeypatch.setattr(adopted, "look_at_cluster", cluster.look)
    monkeypatch.setattr(cluster_site, "bring_components", cluster.bring)
    monkeypatch.setattr(cluster_site, "remove_components", cluster.remove)

    def there(api: object) -> dict[str, InstalledComponent]:
        return dict(cluster.components)

    def nothing(given: object) -> dict[str, str]:
        return {}

    def chosen(profile: ClusterProfile, said: object) -> tuple[ChosenComponent, ...]:
        return chosen_of(profile)

    monkeypatch.setattr(cluster_site, "admit_joining", cluster.admit)
    monkeypatch.setattr(cluster_site, "bring_pipelines", lambda api, profile: None)
    monkeypatch.setattr(cluster_site, "look_components", there)
    monkeypatch.setattr(cluster_site, "train_proof", cluster.train)
    monkeypatch.setattr(cluster_site, "find_proof_run", cluster.proof)
    monkeypatch.setattr(cluster_site, "forget_installer", nothing)
    monkeypatch.setattr(ground, "said_digests", nothing)
    monkeypatch.setattr(ground, "wanted_components", chosen)
    monkeypatch.setattr(work, "pause", nothing)
    return cluster


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[World]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ticks = count(1000.0, 0.01)
    ledger = Ledger(settings.ledger_url, clock=lambda: next(ticks))
    with standing_in(World(settings, ledger, now=lambda: next(ticks))) as world:
        yield world
    ledger.close()


def test_a_cluster_without_hosts_gets_components_and_is_proven(made: MadeCluster) -> None:
    profile = adopting()
    outcome = carried(profile)
    wanted = {one.name for one in chosen_of(profile)}
    assert outcome.word == "done", outcome.why
    assert (set(made.components), made.trained, set(made.sizes)) == (wanted, ["demo"], {2})
    assert outcome.table["cluster"] == {"prechecks": "pass", "admission": "pass", "proof": "pass"}
    assert carried(profile).word == "done"
    assert made.trained == ["demo"]


def test_nodes_that_join_are_tested_between_the_first_components_and_all_others(made: MadeCluster) -> None:
    made.nodes += [joiner("n3"), joiner("n4")]
    outcome = carried(with_pool(adopting()))
    assert outcome.word == "done", outcome.why
    assert made.tests == [("n3", "n4")]
    assert made.done == ["argo-workflows", "jobset", "kueue", "tests", "metrics-server", "trains"]
    assert outcome.table["cluster"]["admission"] == "pass"
    assert carried(with_pool(adopting())).word == "done"
    assert made.tests == [("n3", "n4")], "who is admitted is only looked at"


def test_a_node_that_fails_its_preflight_stops_the_rest_with_its_name_and_reason_and_is_taken_up_again(
    made: MadeCluster,
) -> None:
    made.nodes += [joiner("n3"), joiner("n4")]
    made.broken.add("n4")
    outcome = carried(with_pool(adopting()))
    assert outcome.word == "failed"
    assert outcome.why.startswith(
        "failed: admission/cluster (n4: still tainted, no preflight has passed it (fail: smoke: gpu-count: 7 of 8))"
    )
    assert (made.tests, made.trained) == ([("n3", "n4"), ("n4",)], [])
    assert "metrics-server" not in made.components
    made.broken.clear()
    assert carried(with_pool(adopting())).word == "done"
    assert made.tests[2:] == [("n4",)]
    assert made.done[-2:] == ["metrics-server", "trains"]


def test_a_node_that_nobody_knows_the_hardware_of_is_left_alone_and_told(made: MadeCluster) -> None:
    other = joiner("n9")
    other["metadata"]["labels"] = {}
    made.nodes.append(other)
    outcome = carried(with_pool(adopting()))
    assert (outcome.word, made.tests) == ("done", [])
    assert any("n9: of no pool of the profile" in step.why for step in outcome.steps)


def test_where_no_components_come_nodes_wait_for_a_persons_preflight(made: MadeCluster) -> None:
    made.nodes.append(joiner("n3"))
    profile = adopting()
    assert profile.bootstrap is not None
    bare = profile.bootstrap.model_copy(update={"install_components": False})
    outcome = carried(profile.model_copy(update={"bootstrap": bare}))
    assert (outcome.word, made.tests) == ("done", [])
    assert outcome.notes == (
        "no work comes to n3 until a preflight has passed: primus preflight --cluster kubernetes-example",
    )


def test_nothing_is_brought_by_a_check(made: MadeCluster) -> None:
    outcome = carried(adopting(), verb="check")
    assert (outcome.word, made.components, made.trained) == ("done", {}, [])
    assert "first would come components/" in outcome.why


@pytest.mark.parametrize(
    ("nodes", "away", "word", "why"),
    [
        ([node("n1"), node("n2", "False")], "", "failed", "n2: not Ready; repair or cordon it"),
        ([node("n1"), node("n2", "Unknown")], "", "unknown", "n2: its kubelet tells nothing"),
        ([node("n1", cordoned=True)], "", "failed", "no node takes pods"),
        ([], "connection refused", "unknown", "API: connection refused"),
    ],
)
def test_a_cluster_that_is_not_fit_is_left_alone(
    made: MadeCluster, nodes: list[Json], away: str, word: str, why: str
) -> None:
    made.nodes, made.away = nodes, away
    outcome = carried(adopting())
    assert (outcome.word, made.components) == (word, {})
    assert why in outcome.why


def test_a_cordoned_node_is_somebodys_work_already(made: MadeCluster) -> None:
    made.nodes.append(node("n3", "False", cordoned=True))
    assert carried(adopting()).word == "done"


def test_hosts_that_are_named_are_looked_at_and_their_nodes_must_be_there(
    made: MadeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile, asked = adopting(n9={"address": "192.0.2.9"}), list[tuple[str, ...]]()

    def look(
        profile: ClusterProfile, hosts: Collection[str], *, deep: bool, tell: Callable[[str, str], None]
    ) -> HostsSight:
        asked.append(tuple(hosts))
        for what in (ASKED, "192.0.2.9 does not answer"):
            tell("n9", what)
        return host_sights.sight_of(profile, pairs=False)

    monkeypatch.setattr(adopted, "look_at_hosts", look)
    news: list[HostNews] = []
    request = BootstrapRequest(cluster=profile.name)
    outcome = bootstrap.carry_through(profile, request, lambda line: None, hear=news.append)
    assert (outcome.word, asked, made.components) == ("failed", [("n9",)], {})
    assert [(one.subject, one.stage, one.word) for one in news] == [
        ("n9", "look", "not yet"),
        ("n9", "look", "at work"),
        ("n9", "look", "unknown"),
        ("cluster", "prechecks", "fail"),
        ("n9", "prechecks", "fail"),
    ]
    assert "there is no node n9" in next(step.why for step in outcome.steps if step.id == "prechecks/cluster")
    assert any("n9: node: wanted a node, found missing" in line for line in carried(profile, verb="drift").notes)


def test_drift_tells_of_components_and_not_of_nodes_that_the_inventory_need_not_name(made: MadeCluster) -> None:
    lines = carried(adopting(), verb="drift").notes
    assert any(line.startswith("metrics-server: missing") for line in lines)
    assert not any(line.startswith("n1") for line in lines)
    made.away = "connection refused"
    assert "cluster: nodes: unknown: API: connection refused" in carried(adopting(), verb="drift").notes


def test_components_that_nobody_can_see_are_a_difference(made: MadeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(api: object) -> dict[str, InstalledComponent]:
        raise Unavailable("the API does not answer")

    monkeypatch.setattr(cluster_site, "look_components", silent)
    outcome = carried(adopting(), verb="drift")
    assert "cluster: components: unknown: the API does not answer" in outcome.notes
    assert outcome.word != "done"


class Person:
    """Answers the questions that wait, in place of the pause between two looks."""

    def __init__(self, here: World, *answers: bool | None) -> None:
        self.here, self.answers, self.asked = here, list(answers), list[str]()

    def __call__(self, seconds: float) -> None:
        [line] = self.here.ledger.waiting_approvals()
        document = approval_document(line, self.here.now())
        assert (document["incident"], document["run_state"]) == ("", None)
        self.asked.append(line.approval.id)
        if (said := self.answers.pop(0)) is None:
            self.here.ledger.expire(line.approval.id, line.approval.expires_at)
        else:
            self.here.ledger.answer(line.approval.id, said, Actor("ada", KnownBy.UNVERIFIED), "so", self.here.now())


def test_a_person_is_asked_before_anything_is_brought(
    made: MadeCluster, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(here, False, None, True)
    monkeypatch.setattr(site, "pause", person)
    told = list[str]()
    request = BootstrapRequest(cluster="made", mode=Mode.ASK)
    refused = bootstrap.carry_through(adopting(), request, told.append)
    assert (refused.word, refused.why, made.components) == ("failed", "denied: so", {})
    asked = next(line for line in told if line.startswith("waiting for a person: "))
    assert "components/metrics-server" in asked
    assert f"primus approve {person.asked[0]}" in asked
    late = bootstrap.carry_through(adopting(), request, told.append)
    assert (late.word, made.components) == ("failed", {})
    assert late.why.startswith("expired")
    assert bootstrap.carry_through(adopting(), request, told.append).word == "done"
    assert made.components
    assert len(set(person.asked)) == 3, "a no is of its day: each command asks anew"


def test_a_command_that_was_killed_asks_the_same_question_and_keeps_its_yes(
    made: MadeCluster, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def killed(seconds: float) -> None:
        asked.extend(line.approval.id for line in here.ledger.waiting_approvals())
        raise KeyboardInterrupt

    request = BootstrapRequest(cluster="made", mode=Mode.ASK)
    monkeypatch.setattr(site, "pause", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            bootstrap.carry_through(adopting(), request, lambda line: None)
    assert asked[0] == asked[1]
    here.ledger.answer(asked[0], True, Actor("ada", KnownBy.UNVERIFIED), "go", here.now())
    assert bootstrap.carry_through(adopting(), request, lambda line: None).word == "done"
    made.components.clear()
    monkeypatch.setattr(site, "YES_SECONDS", 0.0)
    monkeypatch.setattr(site, "pause", Person(here, False))
    again = bootstrap.carry_through(adopting(), request, lambda line: None)
    assert (again.why, made.components) == ("denied: so", {}), "a yes of long ago is asked for anew"


def test_components_go_again(made: MadeCluster) -> None:
    assert carried(adopting(), verb="components").word == "done"
    assert made.components
    assert carried(adopting(), verb="uninstall").word == "done"
    assert made.components == {}


@pytest.mark.parametrize("asked", [{}, {"with_data": True, "confirmed": "kubernetes-example"}])
def test_data_goes_only_where_it_is_asked_for(made: MadeCluster, asked: Json) -> None:
    profile = adopting("registry")
    assert carried(profile).word == "done"
    assert carried(profile, verb="uninstall", **asked).word == "done"
    assert made.with_data["registry"] is bool(asked)


@pytest.mark.parametrize(
    "fields",
    [{"verb": "join", "hosts": ("n9",)}, {"verb": "leave", "hosts": ("n9",)}, {"verb": "upgrade", "version": "1.36.4"}],
)
def test_nodes_come_and_go_by_the_clusters_own_means(made: MadeCluster, fields: Json) -> None:
    with pytest.raises(Refused, match=f"{fields['verb']}: engine adopt does nothing to nodes"):
        carried(adopting(n9={"address": "192.0.2.9"}), **fields)


@pytest.mark.parametrize(
    ("changes", "again"),
    [({"run_as_user": 0}, True), ({"description": "Another one."}, False), ({"context": "other"}, False)],
)
@pytest.mark.usefixtures("made")
def test_what_runs_train_by_is_proven_anew(changes: Json, again: bool) -> None:
    first = ground.ground_of(adopting(), BootstrapRequest(cluster="made")).plan[-1]
    other = ground.ground_of(adopting().model_copy(update=changes), BootstrapRequest(cluster="made")).plan[-1]
    assert (first.id, other.id) == ("proof/cluster", "proof/cluster")
    assert (first.wanted != other.wanted) is again


def test_a_run_that_cannot_prove_the_cluster_is_refused_before_anybody_is_asked(made: MadeCluster) -> None:
    found = adopting()
    assert found.bootstrap is not None
    for name, says in (("nobody", "nobody"), ("demo-gpus", "demo-gpus")):
        section = found.bootstrap.model_copy(update={"proof_run": name})
        pools = tuple(pool for pool in found.pools if pool.hardware == "cpu")
        profile = found.model_copy(update={"bootstrap": section, "pools": pools})
        with pytest.raises(ProfileError, match=f"bootstrap.proof_run.*{says}"):
            carried(profile)
    assert (made.components, made.trained) == ({}, [])


def test_its_plan_is_rendered() -> None:
    plan = rendered_bootstrap(adopting())[0]
    names = [step["step"] for step in plan["steps"]]
    assert (plan["engine"], names[0], names[-1]) == ("adopt", "prechecks/cluster", "proof/cluster")
    after = {step["step"]: step["after"] for step in plan["steps"]}
    first = {f"components/{name}" for name in ("argo-workflows", "jobset", "kueue")}
    assert all("prechecks/cluster" in after[name] for name in first)
    assert set(after["admission/cluster"]) == first
    assert after["components/metrics-server"] == ["admission/cluster"]
