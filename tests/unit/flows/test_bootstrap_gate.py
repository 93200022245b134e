"""Hosts that became nodes by kubeadm are admitted: who fails stops the rest, and the same command goes on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flows import bootstrap
from flows.building import cluster_site, ground, site, work
from flows.building.work import BootstrapOutcome
from flows.decisions.bootstrap.admission import refuse_untellable
from flows.decisions.bootstrap.plans import plan_of
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_hardware, load_suite
from profiles.vocabulary import RunState
from tasks.bootstrap.components import ComponentsSite
from tasks.bootstrap.site import Tell
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.builders import host_sights
from tests.support.builders.components import chosen_of
from tests.support.builders.kubeadm_cluster import HOSTS, RUNNING, facts_of, kubeadm_cluster, release, sight_of
from tests.support.builders.why_sights import RUN
from workflows import labels
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import Stage
from workflows.model.components import ChosenComponent, InstalledComponent
from workflows.model.host_sight import HostsSight
from workflows.model.nodes import joins, without_startup_taint
from workflows.model.records import RunRecord
from workflows.wire import ServingReport

Json = dict[str, Any]
WORKING = ("c2", "w1", "w2")


class KilledError(BaseException):
    """The process is gone."""


@dataclass
class MadeHosts:
    """Five hosts that are nodes already, as whoever looks sees them, and what is done on their cluster."""

    profile: ClusterProfile
    planes: ControlSight = field(init=False)
    broken: set[str] = field(default_factory=set[str])
    killed: bool = False
    """The command dies amid the next test, after nodes passed."""
    components: dict[str, InstalledComponent] = field(default_factory=dict[str, InstalledComponent])
    done: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.planes = sight_of(self.profile, release())

    def look_at_hosts(
        self, profile: ClusterProfile, hosts: Collection[str], *, deep: bool, more: object, tell: object
    ) -> HostsSight:
        seen, found = host_sights.sight_of(self.profile, pairs=deep), dict[str, Any]()
        for name in hosts:
            own, sound = facts_of(self.profile, release(), name), seen.hosts[name].facts
            told = ("files", "sysctls", "units", "versions", "images", "routes", *RUNNING)
            parts = {part: getattr(own, part) for part in told}
            found[name] = replace(seen.hosts[name], facts=replace(sound, **parts))
        return replace(seen, hosts=found)

    def look(self, made: object) -> ControlSight:
        return self.planes

    def bring(self, made: ComponentsSite, names: Collection[str], tell: Tell) -> dict[str, str]:
        for one in (one for one in made.chosen if one.name in names):
            report = ServingReport(one.name, "pass", "it serves", 2000.0, one.wanted)
            self.components[one.name] = InstalledComponent(one.name, one.profile.version, one.wanted, report)
        self.done += sorted(names)
        return {}

    def admit(self, profile: ClusterProfile, names: Collection[str] | None, tell: Tell) -> dict[str, str]:
        assert names is not None
        self.done += [f"tests {name}" for name in names]
        self._write({name: name in self.broken for name in names})
        if self.killed:
            self.killed = False
            raise KilledError
        return {name: "smoke: fail" for name in names if name in self.broken}

    def _write(self, failed: dict[str, bool]) -> None:
        def change(found: Json) -> Json:
            name = found["metadata"]["name"]
            if name not in failed:
                return found
            if not failed[name]:
                return {**found, "spec": {**found["spec"], "taints": without_startup_taint(found["spec"]["taints"])}}
            said = json.dumps({"verdict": "fail", "depth": "smoke", "evidence": "gpu-count: 7 of 8"})
            return {**found, "metadata": {**found["metadata"], "annotations": {labels.VERDICT_EVIDENCE: said}}}

        self.planes = replace(
            self.planes,
            planes={
                name: replace(plane, nodes=tuple(change(dict(one)) for one in plane.nodes or ()))
                for name, plane in self.planes.planes.items()
            },
        )

    def train(self, cluster: str, run: str, proof: str, tell: Tell) -> str:
        self.done.append("trains")
        return ""

    def proof(self, fingerprint: str) -> RunRecord | None:
        return replace(RUN, state=RunState.SUCCEEDED) if "trains" in self.done else None

    @property
    def joining(self) -> list[str]:
        """Hosts whose nodes carry the taint."""
        return [name for name, node in (self.planes.nodes or {}).items() if joins(node)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeHosts:
    hosts = MadeHosts(kubeadm_cluster(components=[{"name": "metrics-server"}]))

    def chosen(profile: ClusterProfile, said: object) -> tuple[ChosenComponent, ...]:
        return chosen_of(profile)

    monkeypatch.setattr(site, "look_at_hosts", hosts.look_at_hosts)
    monkeypatch.setattr(site.kubeadm, "look", hosts.look)
    monkeypatch.setattr(site, "keep_kubeconfig", lambda profile, host: None)
    monkeypatch.setattr(ground, "load_release", lambda name: release())
    monkeypatch.setattr(ground, "said_digests", lambda mirror: {})
    monkeypatch.setattr(ground, "wanted_components", chosen)
    monkeypatch.setattr(cluster_site, "bring_components", hosts.bring)
    monkeypatch.setattr(cluster_site, "look_components", lambda api: dict(hosts.components))
    monkeypatch.setattr(cluster_site, "bring_pipelines", lambda api, profile: None)
    monkeypatch.setattr(cluster_site, "admit_joining", hosts.admit)
    monkeypatch.setattr(cluster_site, "train_proof", hosts.train)
    monkeypatch.setattr(cluster_site, "find_proof_run", hosts.proof)
    monkeypatch.setattr(work, "pause", lambda seconds: None)
    return hosts


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[World]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ticks = count(1000.0, 0.01)
    ledger = Ledger(settings.ledger_url, clock=lambda: next(ticks))
    with standing_in(World(settings, ledger, now=lambda: next(ticks))) as world:
        yield world
    ledger.close()


def carried(made: MadeHosts, verb: str = "build", hosts: Sequence[str] = (), **fields: Any) -> BootstrapOutcome:
    passed = dict.fromkeys(("networks", "gpus", "ports", "mtu"), "these hosts are made up")
    request = BootstrapRequest(cluster="made", verb=verb, hosts=tuple(hosts), forced=passed, **fields)  # type: ignore[arg-type]
    return bootstrap.carry_through(made.profile, request, lambda line: None)


TESTS = [f"tests {name}" for name in WORKING]


def test_from_ready_to_admitted_to_proven(made: MadeHosts) -> None:
    assert made.joining == list(WORKING)
    outcome = carried(made)
    assert outcome.word == "done", (outcome.why, outcome.notes)
    assert made.done == ["argo-workflows", "jobset", "kueue", *TESTS, "metrics-server", "trains"]
    assert made.joining == []
    assert {name: row.get("admission") for name, row in outcome.table.items() if name in HOSTS} == {
        name: "pass" if name in WORKING else None for name in HOSTS
    }
    assert carried(made).word == "done"
    assert made.done.count("tests w1") == 1, "who is admitted is only looked at"


def test_who_fails_is_named_with_its_reason_and_the_same_command_takes_it_up_again(made: MadeHosts) -> None:
    made.broken.add("w1")
    outcome = carried(made)
    assert outcome.word == "failed"
    assert "failed: admission/w1 (still tainted, no preflight has passed it (fail: smoke: gpu-count: 7 of 8))" in (
        outcome.why
    )
    assert outcome.table["w1"]["admission"] == "fail"
    assert outcome.table["w2"]["admission"] == "pass"
    assert (made.joining, made.done[-1]) == (["w1"], "tests w1"), "no other component came, and nothing trained"
    assert made.done.count("tests w1") == 2, "what fails twice wants a person"
    made.broken.clear()
    assert carried(made).word == "done"
    assert made.done.count("tests w2") == 1
    assert made.done[-2:] == ["metrics-server", "trains"]


def test_a_host_that_is_left_out_keeps_its_taint_and_holds_nobody_up(made: MadeHosts) -> None:
    made.broken.add("w1")
    assert carried(made, without=("w1",)).word == "done"
    assert made.joining == ["w1"]


def test_killed_amid_the_tests_the_same_command_goes_on_with_those_that_are_left(made: MadeHosts) -> None:
    made.killed, made.broken = True, {"w2"}
    with pytest.raises(KilledError):
        carried(made)
    made.broken.clear()
    assert carried(made).word == "done"
    assert [made.done.count(test) for test in TESTS] == [1, 1, 2]


def test_a_host_that_joins_is_admitted_where_argo_serves_and_else_it_is_told(made: MadeHosts) -> None:
    outcome = carried(made, "join", ("w2",))
    assert outcome.word == "done", outcome.why
    assert made.done == []
    assert outcome.notes[-1:] == (
        "no work comes to c2, w1, w2 until a preflight has passed: primus preflight --cluster made",
    )
    assert carried(made).word == "done"
    made.planes = sight_of(made.profile, release())
    outcome = carried(made, "join", ("w2",))
    assert (outcome.word, made.done[-1]) == ("done", "tests w2")
    assert made.joining == ["c2", "w1"], "others are not asked for"


def test_the_gate_is_a_part_of_what_is_proven(made: MadeHosts, here: World) -> None:
    request = BootstrapRequest(cluster="made")
    plan = ground.ground_of(made.profile, request).plan
    assert plan == plan_of(ground.ground_of(made.profile, request).wanted, request, {})
    last = next(step for step in plan if step.stage is Stage.PROOF)
    assert {f"admission/{name}" for name in WORKING} <= set(last.after)


def test_nodes_whose_tests_could_tell_nothing_are_told_before_a_host_is_asked() -> None:
    profile = kubeadm_cluster(components=[{"name": "metrics-server"}]).model_copy(update={"read_kernel_log": False})
    kinds = [load_hardware(pool.hardware) for pool in profile.pools]
    with pytest.raises(
        ProfileError, match=r"read_kernel_log: must be true .* kernel-log, kernel-lockups of suite smoke"
    ):
        refuse_untellable(profile, load_suite("smoke"), kinds)
    refuse_untellable(profile, load_suite("any-machine"), kinds)
    refuse_untellable(profile.model_copy(update={"read_kernel_log": True}), load_suite("smoke"), kinds)
