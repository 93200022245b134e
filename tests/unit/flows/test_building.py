"""The loop of a bootstrap on a made site: killed at any line it goes on, does nothing twice, and ends the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flows.building import work
from flows.building.work import BootstrapOutcome, Builder
from flows.decisions.bootstrap.progress import progress_after
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.host_logs import kept_logs, log_folder
from tasks.bootstrap.site import Hear, Tell
from tasks.context import World, standing_in
from tasks.lease import driving
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from workflows.model.bootstrap import HostNews, Stage, Step, StepProof, StepProofs, builder_of

PLANES, WORKERS = ("n1", "n2", "n3"), ("w1", "w2")
Json = dict[str, Any]


class KilledError(Exception):
    """In place of SIGKILL."""


@dataclass
class MadeSite:
    """Hosts that remember what was done to them, whoever did it."""

    clock: list[float]
    holding: set[str] = field(default_factory=set[str])
    silent: set[str] = field(default_factory=set[str])
    done: list[str] = field(default_factory=list[str])
    refused: dict[str, int] = field(default_factory=dict[str, int])
    """Id -> how often carrying it out fails."""
    slow: dict[str, int] = field(default_factory=dict[str, int])
    """Id -> after how many looks it holds."""
    vain: set[str] = field(default_factory=set[str])
    """Ids of steps that come to nothing."""
    cut_at: str = ""
    """Id of the step amid which its host's power is cut."""
    words: str = "kubeadm: connection refused"
    """Of what fails."""
    kill_after: int | None = None
    """So many acts of ours, then the process dies."""
    awake_at: float = math.inf
    """From then on who was silent answers."""
    looks: int = 0

    def look(self, hosts: Collection[str], *, deep: bool) -> Mapping[str, frozenset[str] | None]:
        self._act()
        self.looks += 1
        if self.clock[0] >= self.awake_at:
            self.silent.clear()
        self.slow = {name: left - 1 for name, left in self.slow.items()}
        held = frozenset(name for name in self.holding if self.slow.get(name, 0) <= 0)
        return {host: None if host in self.silent else held for host in hosts}

    def carry_out(self, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        failed: dict[str, str] = {}
        for step in steps:
            self._act()
            assert step.id not in self.holding, f"{step.id} held already"
            if step.id == self.cut_at:
                self.silent.add(step.subject)
            if step.subject in self.silent or step.id in self.vain:
                continue
            self.done.append(step.id)
            if self.refused.get(step.id, 0):
                self.refused[step.id] -= 1
                failed[step.id] = self.words
            else:
                self.holding.add(step.id)
        self._act()
        return failed

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        return {step.id: "its clock is not the cluster's" for step in steps}

    def _act(self) -> None:
        self.clock[0] += 1.0
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                raise KilledError


Seen = Mapping[str, frozenset[str] | None]


def judged(plan: Sequence[Step], seen: Seen) -> StepProofs:
    found: dict[str, StepProof] = {}
    for step in plan:
        held = seen.get(step.subject)
        if held is None:
            found[step.id] = StepProof(VerdictWord.UNKNOWN, "it does not answer")
        elif step.stage is Stage.PRECHECKS or step.id in held:
            found[step.id] = StepProof(VerdictWord.PASS, "it holds")
        else:
            found[step.id] = StepProof(VerdictWord.FAIL, "it is not there")
    return found


def plan() -> tuple[Step, ...]:
    names = (*PLANES, *WORKERS)
    checks = [Step(Stage.PRECHECKS, name, "w", f"checks {name}") for name in names]
    ids = tuple(step.id for step in checks)
    hosts = [Step(Stage.HOSTS, name, "w", f"programs on {name}", ids) for name in names]
    planes = [
        Step(Stage.CONTROL_PLANE, name, "w", f"control plane on {name}", tuple(f"hosts/{one}" for one in PLANES), True)
        for name in PLANES
    ]
    workers = [
        Step(Stage.WORKERS, name, "w", f"{name} joins", (f"hosts/{name}", *(step.id for step in planes)))
        for name in WORKERS
    ]
    return (*checks, *hosts, *planes, *workers)


WANTED = {step.id for step in plan() if step.stage is not Stage.PRECHECKS}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]

    def rest(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(work, "pause", rest)
    return now


@pytest.fixture
def here(tmp_path: Path, clock: list[float]) -> Iterator[World]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ledger = Ledger(settings.ledger_url, clock=lambda: clock[0])
    with standing_in(World(settings, ledger, now=lambda: clock[0])) as world:
        yield world
    ledger.close()


@pytest.fixture(scope="module")
def profile() -> ClusterProfile:
    found = load_cluster("kubernetes-example").model_dump()
    hosts = {name: {"address": f"192.0.2.{index}", "role": "control-plane"} for index, name in enumerate(PLANES, 1)}
    hosts |= {name: {"address": f"192.0.2.{index}"} for index, name in enumerate(WORKERS, 11)}
    pools = [{**found["pools"][2], "nodes": len(WORKERS)}]
    section = {"hosts": hosts, "endpoint": {"address": "192.0.2.100"}}
    return ClusterProfile.model_validate(found | {"pools": pools, "bootstrap": section})


def carried(
    profile: ClusterProfile, site: MadeSite, told: list[str] | None = None, hear: Hear | None = None
) -> BootstrapOutcome:
    says = (told if told is not None else []).append
    with driving(builder_of(profile.name)):
        request = BootstrapRequest(cluster=profile.name)
        one: Builder[Seen] = Builder(
            profile, request, site, judged, says, joined=lambda before, fresh: {**before, **fresh}, hear=hear
        )
        return one.carry_through(plan(), one.begin((*PLANES, *WORKERS)))


def test_from_nothing_to_proven_in_order(here: World, clock: list[float], profile: ClusterProfile) -> None:
    site = MadeSite(clock)
    outcome = carried(profile, site)
    assert (outcome.word, outcome.why) == ("done", "all 15 steps hold")
    assert site.done[5:8] == ["control-plane/n1", "control-plane/n2", "control-plane/n3"]
    assert sorted(site.done[:5]) == sorted(f"hosts/{name}" for name in (*PLANES, *WORKERS))
    assert outcome.table["w1"] == {"prechecks": "pass", "hosts": "pass", "workers": "pass"}
    assert {item.id for item in outcome.steps if item.seconds is not None} == WANTED
    states = {name: item.state for name, item in here.ledger.bootstrap_steps(profile.name).items()}
    assert {name for name, state in states.items() if state == "proven"} >= WANTED


def test_killed_at_any_act_the_same_command_goes_on_and_nothing_is_done_twice(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    acts = 0
    while True:
        name = profile.model_copy(update={"name": f"made-{acts}"})
        site = MadeSite(clock, kill_after=acts)
        try:
            carried(name, site)
        except KilledError:
            site.kill_after = None
            outcome = carried(name, site)
            assert outcome.word == "done"
            assert site.holding == WANTED
            assert len(site.done) == len(WANTED)
            acts += 1
        else:
            break
    assert acts > 20


def test_a_proven_cluster_is_only_looked_at(here: World, clock: list[float], profile: ClusterProfile) -> None:
    site = MadeSite(clock, holding=set(WANTED))
    assert carried(profile, site).word == "done"
    assert site.done == []


def test_a_broken_host_is_found_before_the_first_change(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    site = MadeSite(clock, silent={"w2"})
    outcome = carried(profile, site)
    assert (outcome.word, site.done) == ("unknown", [])
    assert outcome.why.startswith("unknown: prechecks/w2 (it does not answer)")
    assert outcome.table["w2"] == {"prechecks": "unknown", "hosts": "unknown", "workers": "unknown"}


@pytest.mark.parametrize(
    ("silent", "awake_at", "word", "after"),
    [
        (set(), 0.0, VerdictWord.PASS, (1, 1001.0)),
        ({"w1"}, 1010.0, VerdictWord.PASS, (4, 1010.0)),
        ({"w1"}, math.inf, VerdictWord.UNKNOWN, (21, 1061.0)),
    ],
)
def test_of_whom_nobody_can_tell_yet_whether_it_is_fit_is_looked_at_again_for_a_while(
    here: World,
    clock: list[float],
    profile: ClusterProfile,
    silent: set[str],
    awake_at: float,
    word: VerdictWord,
    after: tuple[int, float],
) -> None:
    """`after`: so many looks, and the time then."""
    site, told, hosts = MadeSite(clock, silent=set(silent), awake_at=awake_at), list[str](), (*PLANES, *WORKERS)
    with driving(builder_of(profile.name)):
        request = BootstrapRequest(cluster=profile.name)
        one: Builder[Seen] = Builder(profile, request, site, judged, told.append)
        seen = one.sure(plan(), one.begin(hosts), hosts, deep=True)
    assert judged(plan(), seen)["prechecks/w1"].word is word
    assert (site.looks, clock[0]) == after
    said = [line for line in told if line.startswith("waiting")]
    assert said == (["waiting, at most 60 s: w1: it does not answer"] if silent else [])


def test_a_host_that_is_not_fit_is_told_at_once_though_of_another_one_nobody_can_tell(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    site, hosts = MadeSite(clock), (*PLANES, *WORKERS)
    site.silent.add("w1")

    def judges(steps: Sequence[Step], seen: Seen) -> StepProofs:
        return {**judged(steps, seen), "prechecks/n1": StepProof(VerdictWord.FAIL, "swap is on")}

    with driving(builder_of(profile.name)):
        one: Builder[Seen] = Builder(profile, BootstrapRequest(cluster=profile.name), site, judges, lambda line: None)
        one.sure(plan(), one.begin(hosts), hosts, deep=True)
    assert (site.looks, clock[0]) == (1, 1001.0)


def test_a_host_that_falls_silent_amid_its_stage_is_told_and_taken_up_when_it_is_back(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    site, told = MadeSite(clock), list[str]()
    site.cut_at = "workers/w2"
    outcome = carried(profile, site, told)
    assert outcome.word == "unknown"
    assert "w2 (it does not answer)" in outcome.why
    assert any("waiting, at most 60 s" in line for line in told)
    assert site.done.count("workers/w2") == 0
    site.silent.clear()
    site.cut_at = ""
    assert carried(profile, site).word == "done"
    assert site.done.count("workers/w1") == site.done.count("workers/w2") == 1


def test_a_step_that_needs_time_to_hold_is_waited_for_and_not_done_again(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    site = MadeSite(clock, slow={"control-plane/n1": 20})
    assert carried(profile, site).word == "done"
    assert site.done.count("control-plane/n1") == 1


def test_what_does_not_hold_in_time_gets_its_reason(here: World, clock: list[float], profile: ClusterProfile) -> None:
    site, told = MadeSite(clock, vain={"workers/w1"}), list[str]()
    assert carried(profile, site, told).word == "failed"
    assert "workers/w1: fail: it is not there (its clock is not the cluster's)" in told
    assert site.done.count("workers/w2") == 1


@pytest.mark.parametrize(("failures", "word", "tries"), [(1, "done", 2), (2, "failed", 2)])
def test_what_fails_once_is_tried_again_and_what_fails_twice_wants_a_person(
    here: World, clock: list[float], profile: ClusterProfile, failures: int, word: str, tries: int
) -> None:
    site = MadeSite(clock, refused={"control-plane/n2": failures})
    told: list[str] = []
    outcome = carried(profile, site, told)
    assert (outcome.word, site.done.count("control-plane/n2")) == (word, tries)
    assert any("connection refused" in line for line in told)
    if word == "failed":
        assert "workers/w1" not in site.done
        assert here.ledger.bootstrap_steps(profile.name)["control-plane/n2"].state == "failed"
        assert carried(profile, site).word == "done"


def test_whoever_watches_sees_each_host_and_reads_no_lines_of_them(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    site, told, news = MadeSite(clock, vain={"workers/w1"}), list[str](), list[tuple[float, HostNews]]()
    carried(profile, site, told, lambda one: news.append((clock[0], one)))
    assert told == ["looking at 5 hosts"]
    words = [(one.stage, one.word) for _, one in news if one.subject == "n2"]
    assert list(dict.fromkeys(words)) == [
        ("look", "not yet"),
        ("hosts", "at work"),
        ("hosts", "pass"),
        ("control-plane", "not yet"),
        ("control-plane", "at work"),
        ("control-plane", "pass"),
    ]
    end = progress_after({}, news)
    assert {name: row.word for name, row in end.items()} == dict.fromkeys(("n1", "n2", "n3", "w2"), "pass") | {
        "w1": "fail"
    }
    assert end["w1"].said == "it is not there (its clock is not the cluster's)"
    waits = [one.said for _, one in news if one.subject == "w1" and one.said.startswith("waits until")]
    assert waits[0] == "waits until it holds: it is not there"


def test_each_host_has_a_log_with_what_was_begun_and_what_came_of_it(
    here: World, clock: list[float], profile: ClusterProfile
) -> None:
    why = "kubeadm: " + "x" * 900 + " token abcdef.0123456789abcdef"
    site = MadeSite(clock, refused={"workers/w1": 2}, words=why)
    assert carried(profile, site).word == "failed"
    [path] = kept_logs(profile.name, ["w1", "nobody"])
    assert path == log_folder(here.settings, profile.name) / "w1.log"
    lines = path.read_text().splitlines()
    assert [line.split(None, 1)[1][:28].rstrip() for line in lines[:2]] == [
        "began       hosts: programs",
        "pass        hosts: it holds",
    ]
    assert lines[-1].endswith("x token ***"), "the whole of it, and no secret"
    assert lines[-1].count("x") == 900
