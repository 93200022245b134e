"""A cluster that is there already: checked, given components, proven; its nodes and hosts are left alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
from profiles.errors import Refused, Unavailable
from profiles.vocabulary import Mode, RunState
from tasks.bootstrap import site
from tasks.bootstrap.components import ComponentsSite
from tasks.bootstrap.site import Tell
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.builders import host_sights
from tests.support.builders.components import chosen_of, cluster_with
from tests.support.builders.why_sights import RUN
from workflows.bootstrap.control_sight import ControlSight, PlaneSight
from workflows.model.components import ChosenComponent, InstalledComponent
from workflows.model.host_sight import HostsSight
from workflows.model.records import Actor, KnownBy, RunRecord
from workflows.wire import ServingReport

Json = dict[str, Any]


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

    def look(self, profile: ClusterProfile, home: Path) -> ControlSight:
        if self.away:
            return ControlSight({}, {"API": self.away})
        plane = PlaneSight("API", there=True, own="", endpoint="", nodes=tuple(self.nodes), members=())
        return ControlSight({"API": plane})

    def bring(self, site: ComponentsSite, names: Collection[str], tell: Tell) -> dict[str, str]:
        self.sizes.append(site.nodes)
        self.components |= {one.name: installed(one) for one in site.chosen if one.name in names}
        return {}

    def remove(self, site: ComponentsSite, leaving: Sequence[Any], tell: Tell) -> dict[str, str]:
        for one in leaving:
            del self.components[one.component.name]
            self.with_data[one.component.name] = one.data
        return {}

    def train(self, cluster: str, run: str, proof: str, tell: Tell) -> str:
        self.trained.append(run)
        return ""

    def proof(self, fingerprint: str) -> RunRecord | None:
        return replace(RUN, state=RunState.SUCCEEDED) if self.trained else None


def node(name: str, ready: str = "True", *, cordoned: bool = False) -> Json:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": {"conditions": conditions}}


def installed(one: ChosenComponent) -> InstalledComponent:
    report = ServingReport(one.name, "pass", "it serves", 2000.0, one.wanted)
    return InstalledComponent(one.name, one.profile.version, one.wanted, report)


def adopting(component: str = "metrics-server", **hosts: Json) -> ClusterProfile:
    """A profile of an adopted cluster that gets this component, and whose inventory names these hosts."""
    found = cluster_with([component])
    assert found.bootstrap is not None
    named = {name: ClusterHost.model_validate(host) for name, host in hosts.items()}
    return found.model_copy(update={"bootstrap": found.bootstrap.model_copy(update={"hosts": named})})


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
    assert outcome.table["cluster"] == {"prechecks": "pass", "proof": "pass"}
    assert carried(profile).word == "done"
    assert made.trained == ["demo"]


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

    def look(profile: ClusterProfile, hosts: Collection[str], *, deep: bool) -> HostsSight:
        asked.append(tuple(hosts))
        return host_sights.sight_of(profile, pairs=False)

    monkeypatch.setattr(adopted, "look_at_hosts", look)
    outcome = carried(profile)
    assert (outcome.word, asked, made.components) == ("failed", [("n9",)], {})
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


def test_its_plan_is_rendered() -> None:
    plan = rendered_bootstrap(adopting())[0]
    names = [step["step"] for step in plan["steps"]]
    assert (plan["engine"], names[0], names[-1]) == ("adopt", "prechecks/cluster", "proof/cluster")
    assert all("prechecks/cluster" in step["after"] for step in plan["steps"][1:])
