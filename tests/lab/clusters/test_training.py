"""A cluster that has proven that it trains, on real hosts: components, admission, a training run, and what it bears.

Its tests stand in the order in which one follows from the other; each may be run alone, and makes what it needs first.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profiles.vocabulary import FaultClass, RunState
from tests.bed.commands import until
from tests.lab import programs
from tests.lab.asking import asking, load, services
from tests.lab.commands import Commands
from tests.lab.hosts import Host
from tests.lab.lab import Lab
from tests.support.running.waiting import patience
from workflows.model.records import AttemptRecord

COMPONENTS = {"argo-workflows", "jobset", "kueue", "primus-workspace"}
TRAINS_S = patience(300.0)
API_AWAY_S = patience(10.0)
LOSES, MOVES = "loses-a-host", "is-moved"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
PASSING = "pods|events|leases|endpoints|endpointslices|componentstatuses|nodes|controllerrevisions|ipaddresses"
"""Kinds of which single objects come and go by themselves."""
pytestmark = pytest.mark.timeout(patience(1500.0))


@dataclass
class Trained:
    """Commands on a cluster that has trained."""

    commands: Commands
    before: set[str]
    """Objects that were there before components came."""
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the command said that brought them."""

    def train(self, lab: Lab, name: str, steps: int, *more: str) -> None:
        """`primus train` of the run that proved the cluster, longer."""
        run, cluster = str(lab.folder.root / "proof.yaml"), str(self.commands.profile)
        words = ("train", run, "--name", name, "--cluster", cluster, "--set", f"steps={steps}", *more)
        self.commands.primus(*words)

    def status(self, name: str) -> dict[str, Any]:
        """Of a run."""
        found: dict[str, Any] = json.loads(self.commands.primus("status", name, "--json"))
        return found

    def attempts(self, name: str) -> list[AttemptRecord]:
        """Of a run."""
        return list(self.commands.ledger.attempts(name))


@pytest.fixture(scope="module")
def trained(standing: Lab, commands: Commands) -> Iterator[Trained]:
    """A bare cluster gets components, admits its nodes and trains."""
    made = Trained(commands, objects(standing.hosts[0]))
    commands.profile = standing.stock_components()
    began = time.monotonic()
    made.told = commands.run()
    print(f"components, admission and the training run: {time.monotonic() - began:.0f} s ({load()})")
    for step in made.told["steps"]:
        print(f"{step['id']:34} {step['seconds']} s: {step['why'][:90]}")
    yield made
    commands.primus("down")


@pytest.fixture
def whole(standing: Lab, trained: Trained) -> Trained:
    """The same, with every host on, taken up again and released; what holds is only looked at."""
    back = [host for host in standing.hosts if not host.is_on()]
    for host in back:
        host.power_on()
    commands = trained.commands
    assert commands.run()["word"] == "done"
    for host in back:  # a node that was lost is in quarantine until somebody, or the monitor, has seen it well again
        commands.primus(
            "nodes", "release", host.name, "--cluster", str(commands.profile), "--why", "it has power again"
        )
    return trained


def objects(host: Host) -> set[str]:
    """Everything that is in the cluster, but for what comes and goes by itself."""
    kinds = f"{KUBECTL} api-resources --verbs=list -o name | grep -vE '^({PASSING})(\\.|$)' | paste -sd,"
    listed = host.run(f"{KUBECTL} get $({kinds}) -A -o json --ignore-not-found")
    found = ((one["kind"], one["metadata"]) for one in json.loads(listed)["items"])
    return {f"{kind} {about.get('namespace', '')}/{about['name']}" for kind, about in found}


def steps_of(lab: Lab, run: str, attempt: int) -> list[str]:
    """What all pods of an attempt wrote down of their steps."""
    files = (lab.folder.root / "shared" / "runs" / run / f"a{attempt}").glob("*/steps.jsonl")
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_cluster_gets_components_admits_its_nodes_and_trains(standing: Lab, trained: Trained) -> None:
    told = trained.told
    assert told["word"] == "done"
    assert {word for row in told["table"].values() for word in row.values()} == {"pass"}
    assert set(told["table"]) >= COMPONENTS
    assert {told["table"][host.name]["admission"] for host in standing.hosts} == {"pass"}
    nodes = json.loads(standing.hosts[0].run(f"{KUBECTL} get nodes -o json"))["items"]
    assert [taint for node in nodes for taint in node["spec"].get("taints", ())] == []
    [proof] = [run for run in trained.commands.ledger.runs() if run.name.startswith("proof-")]
    assert proof.state == RunState.SUCCEEDED


def test_what_holds_is_asked_again_and_not_done_again(whole: Trained) -> None:
    commands = whole.commands
    begun: Counter[str] = commands.begun()
    assert commands.run()["word"] == "done"
    again = {step for step, count in commands.begun().items() if count > begun[step]}
    assert again <= {f"components/{name}" for name in COMPONENTS}
    assert len([run for run in commands.ledger.runs() if run.name.startswith("proof-")]) == 1


def test_a_run_goes_on_without_a_host_that_lost_its_power(standing: Lab, whole: Trained) -> None:
    whole.train(standing, LOSES, 1200, "--detach")
    until("a checkpoint", lambda: (whole.status(LOSES)["last_durable_step"] or 0) > 0, TRAINS_S, every_s=0.5)
    [first] = whole.attempts(LOSES)
    lost = standing.host(max(first.nodes))
    lost.power_cut()
    assert not lost.is_on()
    cut, saved = time.time(), whole.status(LOSES)["last_durable_step"]
    whole.train(standing, LOSES, 1200)
    attempts = whole.attempts(LOSES)
    for one in attempts:
        print(f"attempt {one.number} on {one.where}: from {one.resumed_from_step} to {one.last_step}, {one.outcome}")
    _, last = attempts
    assert last.resumed_from_step is not None
    assert last.resumed_from_step >= (saved or 0)
    assert lost.name not in last.nodes
    assert last.first_step_at is not None
    away = last.first_step_at - cut
    print(f"its power was cut at {saved}; {away:.0f} s later it trains again from {last.resumed_from_step} ({load()})")


def test_a_run_is_moved_by_an_upgrade_and_loses_no_step_beyond_its_save(
    standing: Lab, whole: Trained, tmp_path: Path
) -> None:
    commands, version = whole.commands, programs.NEXT.removeprefix("v")
    whole.train(standing, MOVES, 100_000, "--detach")
    until("a checkpoint", lambda: (whole.status(MOVES)["last_durable_step"] or 0) > 0, TRAINS_S, every_s=0.5)
    commands.profile = commands.other_profile(tmp_path / "made.yaml", release=str(standing.stock_next()))
    began = time.monotonic()
    with asking() as asked:
        told = commands.run("--upgrade", version)
    print(f"{len(standing.hosts)} nodes upgraded with a run alive: {time.monotonic() - began:.0f} s ({load()})")
    assert told["word"] == "done"
    assert asked.longest_s < API_AWAY_S
    nodes = json.loads(standing.hosts[0].run(f"{KUBECTL} get nodes -o json"))["items"]
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {programs.NEXT}
    assert set(services(standing.hosts).values()) == {"200"}
    gone = [one for one in whole.attempts(MOVES) if one.ended_at is not None]
    until("it trains on", lambda: whole.attempts(MOVES)[-1].first_step is not None, TRAINS_S, every_s=1.0)
    attempts = whole.attempts(MOVES)
    for one in attempts:
        print(f"attempt {one.number} on {one.where}: from {one.resumed_from_step} to {one.last_step}, {one.outcome}")
    assert gone, "it had to move"
    for one, following in pairwise(attempts):
        assert one.outcome == FaultClass.PREEMPTED
        told = [json.loads(line)["step"] for line in steps_of(standing, MOVES, one.number)]
        assert following.resumed_from_step == max(told), "nothing it had trained was lost"
    commands.primus("stop", MOVES, "--why", "it has been moved enough")


def test_uninstall_leaves_what_was_there_before(standing: Lab, whole: Trained) -> None:
    told = whole.commands.run("--uninstall", "--with-data", "--confirmed", "made")
    assert told["word"] == "done"
    # An upgrade leaves DNS another generation of itself; it is none of what was uninstalled.
    changed = objects(standing.hosts[0]) ^ whole.before
    assert {one for one in changed if not one.startswith("ReplicaSet kube-system/coredns-")} == set()
