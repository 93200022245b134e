"""Nodes are emptied in order: cordoned, left by runs, then drained; the administrator's kubeconfig is kept safely."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable
from profiles.loading.load import load_cluster
from tasks.bootstrap import draining
from tasks.bootstrap.access import keep_kubeconfig, run_on
from tasks.bootstrap.draining import MOVE_SECONDS, empty_nodes, open_nodes
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from workflows import labels
from workflows.bootstrap.kubeadm_documents import server_of

SSH = f"""#!{sys.executable}
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[-1]
with open(folder + "/asked", "a") as log:
    log.write(words + "\\n")
answers = json.load(open(folder + "/answers"))
for part, several in answers.items():
    if part in words:
        code, text = several[0]
        if len(several) > 1:
            answers[part] = several[1:]
            json.dump(answers, open(folder + "/answers", "w"))
        (sys.stdout if code == 0 else sys.stderr).write(text)
        sys.exit(code)
"""


class FakeHost:
    """An SSH client that answers by what the command says, one answer after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o755)
        self.answers({})

    def answers(self, told: dict[str, list[tuple[int, str]]]) -> None:
        (self.folder / "answers").write_text(json.dumps(told))

    @property
    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return FakeHost(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[float]]:
    now = [1000.0]

    def rest(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(draining, "pause", rest)
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    with standing_in(World(settings, Ledger(settings.ledger_url), now=lambda: now[0])):
        yield now


@pytest.fixture(scope="module")
def profile() -> ClusterProfile:
    found = load_cluster("kubernetes-example").model_dump()
    hosts: dict[str, Any] = {"n1": {"address": "192.0.2.1", "role": "both", "pool": "cpu"}}
    pools = [{**found["pools"][2], "nodes": 1}]
    return ClusterProfile.model_validate(found | {"pools": pools, "bootstrap": {"hosts": hosts}})


def pods(*runs: tuple[str, str, str]) -> str:
    made = [
        {"metadata": {"labels": {labels.RUN: run}}, "spec": {"nodeName": node}, "status": {"phase": phase}}
        for run, node, phase in runs
    ]
    return json.dumps({"items": made})


NODES = "node/n1\nnode/w1\n"


def test_runs_leave_before_anything_is_evicted(host: FakeHost, clock: list[float], profile: ClusterProfile) -> None:
    lists = [
        (0, pods(("a", "w1", "Running"), ("b", "w9", "Running"))),
        (0, pods(("a", "w1", "Running"))),
        (0, pods(("a", "w1", "Succeeded"), ("a", "n1", "Running"))),
    ]
    nodes = [(0, NODES), (0, ""), (0, "node/w1\n")]
    host.answers({"get nodes": nodes, "get pods": lists})  # type: ignore[dict-item]
    told: list[str] = []
    empty_nodes(profile, "n1", ["w1", "w2"], told.append)
    verbs = [words.split()[3] for words in host.asked]
    assert verbs == ["get", "get", "patch", "get", "get", "get", "get", "get", "drain"]
    assert "patch nodes w1 --type=merge" in host.asked[2]
    change = json.loads(shlex.split(host.asked[2])[-1])
    assert change == {"metadata": {"labels": {labels.BOOTSTRAP_CORDON: "true"}}, "spec": {"unschedulable": True}}
    assert told == ["w1: cordoned; runs save and move first", "waiting for run a to move"]


def test_a_run_that_does_not_move_keeps_its_node(
    host: FakeHost, clock: list[float], profile: ClusterProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "LOOK_SECONDS", MOVE_SECONDS / 3)  # each look is a process
    closed = [(0, "node/w1\nnode/w2\n")]
    left = [(0, pods(("a", "w1", "Running")))]
    host.answers({"cordon!=true": [(0, "")], "--field-selector": closed, "get nodes": [(0, NODES)], "get pods": left})
    with pytest.raises(Unavailable, match=r"run a \(cordoned besides: w2\); no node was changed"):
        empty_nodes(profile, "n1", ["w1"], lambda _: None)
    assert clock[0] >= 1000.0 + MOVE_SECONDS
    assert not any(" drain " in words for words in host.asked)


@pytest.mark.parametrize(
    ("others", "end"),
    [
        (0, "to move"),
        (2, "to move (cordoned besides: w2, w3)"),
        (4, "to move (cordoned besides: w2, w3, w4, w5)"),
        (6, "to move (cordoned besides: w2, w3, w4, w5 and 2 more)"),
    ],
)
def test_who_waits_for_a_run_is_told_where_it_cannot_go(
    host: FakeHost, clock: list[float], profile: ClusterProfile, others: int, end: str
) -> None:
    closed = "".join(f"node/w{number}\n" for number in range(1, others + 2))
    host.answers(
        {
            "cordon!=true": [(0, "")],
            "--field-selector": [(0, closed)],
            "get nodes": [(0, NODES)],
            "get pods": [(0, pods(("a", "w1", "Running"))), (0, pods())],
        }
    )
    told: list[str] = []
    empty_nodes(profile, "n1", ["w1"], told.append)
    assert told[1:] == [f"waiting for run a {end}"]


def test_who_was_cordoned_by_somebody_else_is_emptied_and_stays_cordoned(
    host: FakeHost, clock: list[float], profile: ClusterProfile
) -> None:
    ours = [(0, "node/n1\n")]
    host.answers(
        {
            "--field-selector": [(0, "node/w1\n")],
            "cordon=true": ours,
            "get nodes": [(0, NODES)],
            "get pods": [(0, pods())],
        }
    )
    empty_nodes(profile, "n1", ["w1"], lambda _: None)
    open_nodes(profile, "n1", ["w1"])
    assert [words.split()[3] for words in host.asked] == ["get", "get", "get", "drain", "get"]
    empty_nodes(profile, "n1", ["n1", "w1"], lambda _: None)
    open_nodes(profile, "n1", ["n1", "w1"])
    closed, opened = [words for words in host.asked if " patch " in words]
    assert "patch nodes n1 --type" in closed
    assert "patch nodes n1 --type" in opened
    assert json.loads(shlex.split(opened)[-1]) == {
        "metadata": {"labels": {labels.BOOTSTRAP_CORDON: None}},
        "spec": {"unschedulable": None},
    }


def test_a_node_that_is_gone_is_empty(host: FakeHost, clock: list[float], profile: ClusterProfile) -> None:
    host.answers({"get nodes": [(0, NODES)]})
    empty_nodes(profile, "n1", ["w7"], lambda _: None)
    assert len(host.asked) == 1
    open_nodes(profile, "n1", [])
    assert len(host.asked) == 1


@pytest.mark.parametrize(("code", "text"), [(1, "The connection was refused"), (0, "no list"), (0, '{"items": 3}')])
def test_what_cannot_be_asked_is_never_empty(
    host: FakeHost, clock: list[float], profile: ClusterProfile, code: int, text: str
) -> None:
    host.answers({"get nodes": [(0, NODES)], "get pods": [(code, text)]})
    with pytest.raises(Unavailable, match="n1"):
        empty_nodes(profile, "n1", ["w1"], lambda _: None)
    assert not any(" drain " in words for words in host.asked)


def test_the_last_words_of_a_command_are_told(host: FakeHost, profile: ClusterProfile) -> None:
    host.answers({"drain": [(1, "error: cannot evict pod\nwould violate the budget")]})
    with pytest.raises(Unavailable, match="n1: kubectl ended with 1: error: cannot evict pod would violate the budget"):
        run_on(profile, "n1", ("kubectl", "drain", "w 1"))
    assert host.asked == ["kubectl drain 'w 1'"]


def test_the_kubeconfig_is_kept_for_its_owner_alone(host: FakeHost, profile: ClusterProfile, tmp_path: Path) -> None:
    file = tmp_path / "clusters" / "made" / "kubeconfig"
    own = profile.model_copy(update={"kubeconfig": str(file)})
    host.answers(
        {"admin.conf": [(0, "clusters: []\n"), (0, "clusters: []\n"), (0, "hello\n"), (0, "a: [\n"), (255, "reset")]}
    )
    assert keep_kubeconfig(own, "n1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not keep_kubeconfig(own, "n1")
    for _ in range(2):
        with pytest.raises(Unavailable, match="is no kubeconfig"):
            keep_kubeconfig(own, "n1")
    assert not keep_kubeconfig(own, "n1")  # it is silent just now
    assert file.read_text() == "clusters: []\n"
    assert not keep_kubeconfig(profile, "n1")  # it names none


@pytest.mark.parametrize("said", ["https://192.0.2.1:6443", "https://127.0.0.1:6443", "https://lb.local:6443"])
def test_a_kept_kubeconfig_finds_the_api_from_here(
    host: FakeHost, profile: ClusterProfile, tmp_path: Path, said: str
) -> None:
    own = profile.model_copy(update={"kubeconfig": str(tmp_path / "kubeconfig")})
    assert own.bootstrap is not None
    text = f"clusters:\n- cluster:\n    server: {said}\n  name: made\n"
    host.answers({"admin.conf": [(0, text)]})
    assert keep_kubeconfig(own, "n1")
    assert (tmp_path / "kubeconfig").read_text() == text.replace(said, f"https://{server_of(own.bootstrap)}")
