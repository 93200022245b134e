"""How the bench of peers starts each of them, and how it makes their environment: looked at without any of them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import __main__ as campaign
from tests.peers.environment import PACKAGES, Installed, Package, last_line, prepared
from tests.peers.peers import PEERS, RANKS, SCRIPTS, Command, Ground, Peer
from tests.peers.readings import Trial
from tests.peers.trial import Bench
from workflows.programs.coordinator import main
from workflows.programs.launcher import main as launcher_main

GROUND = Ground(Path("/tmp/trial"), Path("/tmp/venv/bin"), (40001, 40002), 5.0)


def of(name: str) -> list[Command]:
    return next(peer for peer in PEERS if peer.name == name).commands(GROUND)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_runs_one_script_on_two_nodes_with_the_same_numbers(peer: Peer) -> None:
    nodes = [command for command in peer.commands(GROUND) if command.address is None]
    assert len(nodes) == RANKS
    for node in nodes:
        assert sum(word.startswith(str(SCRIPTS)) for word in node.argv) == 1
        assert {"--steps=40", "--save-every=5", "--step-seconds=0.1"} <= set(node.argv)
        script = next(Path(word) for word in node.argv if word.startswith(str(SCRIPTS)))
        assert script.exists()
        assert (script.name == "plain_ddp.py") == (not peer.changed), "the table says which script was changed"
    assert peer.needs in {package.name for package in PACKAGES}


def test_who_cannot_notice_a_hang_gets_the_budget_as_the_limit_of_collectives() -> None:
    limited = {peer.name for peer in PEERS for node in peer.commands(GROUND) if "--group-seconds=5" in node.argv}
    assert limited == {"torchrun", "torchrun, no share", "DLRover"}


def test_our_flags_are_ones_that_our_programs_take() -> None:
    coordinator, *nodes = of("primus")
    options = main.parse(coordinator.argv[coordinator.argv.index("coordinate") + 1 :])
    assert (options.pods, options.restarts, options.hang_step_floor_seconds) == (RANKS, 3, 5.0)
    for node in nodes:
        told = launcher_main.parse(node.argv[node.argv.index("launch") + 1 :])
        assert (told.in_place, told.forkable, told.steps) == (True, True, 40)


def test_torchrun_is_tried_with_and_without_the_variable() -> None:
    share = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    assert [share in command.environment for name in ("torchrun", "torchrun, no share") for command in of(name)] == [
        False, False, True, True,
    ]  # fmt: skip


def test_the_script_knows_nothing_of_anybody() -> None:
    tree = ast.parse((SCRIPTS / "plain_ddp.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"torch"}
    assert "PRIMUS" not in (SCRIPTS / "plain_ddp.py").read_text()


def test_peers_are_chosen_by_the_beginnings_of_their_names() -> None:
    assert [peer.name for peer in campaign.chosen("torchr,dlrover")] == ["torchrun", "torchrun, no share", "DLRover"]
    assert campaign.chosen("...") == list(PEERS)
    with pytest.raises(SystemExit):
        campaign.options(["--peers=nobody"])
    with pytest.raises(SystemExit):
        campaign.options(["--faults=kill,flood"])


class Played:
    """A bench whose trials are told."""

    def __init__(self, ends: dict[str, bool]) -> None:
        self._ends = ends

    def trial(self, peer: Peer, fault: str = "", victim: int = 0) -> Trial:
        ends = not fault or self._ends[peer.name]
        return Trial(peer.name, fault, victim, 1.0 if ends else None, 3 if ends else None, 2, "w" if ends else "")


def test_who_never_completes_is_given_up_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    told = campaign.options(["--trials=6", "--faults=kill", "--give-up=2", "--peers=primus,torchrun"])
    ends = {peer.name: peer.name != "torchrun" for peer in PEERS}
    tried = campaign.Campaign(Played(ends), told)  # pyright: ignore[reportArgumentType] - it plays one
    tried.run(told.peers)
    assert {row.peer: (row.completed, row.trials) for row in tried.rows()} == {
        "primus": (6, 6), "primus, started plainly": (6, 6), "torchrun": (0, 2), "torchrun, no share": (6, 6),
    }  # fmt: skip
    assert "torchrun: kill, rank 1: never, not completed" in capsys.readouterr().err


def test_what_cannot_be_installed_is_said_and_keeps_nobody_else_away(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    packages = (Package("there", (), "json"), Package("away", (("nothing",),), "json"), Package("bad", (), "no_such"))
    found = prepared(tmp_path, packages)
    assert sorted(found.missing) == ["away", "bad"]
    assert "No module named" in found.missing["bad"]
    again = prepared(tmp_path, packages[:1])
    assert again.missing == {}
    assert json.loads((tmp_path / "installed.json").read_text())["missing"] == {}


def test_the_last_line_is_one_that_says_something() -> None:
    assert last_line("one\n  two  \n\n") == "two"
    assert last_line("") == ""


TRAINER = """
import json, os, sys, time
for step in range(1, 41):
    began = time.time()
    time.sleep(0.002)
    with open("record.jsonl", "a") as file:
        told = {"pid": os.getpid(), "at": time.time(), "rank": 0, "step": step, "began": began, "world": 1}
        file.write(json.dumps(told) + "\\n")
    if step == 28 and len(sys.argv) == 1:
        time.sleep(60)
with open("record.jsonl", "a") as file:
    file.write(json.dumps({"pid": os.getpid(), "at": time.time(), "rank": 0, "weights": "w"}) + "\\n")
"""
AGAIN = """
import subprocess, sys
first = subprocess.run([sys.executable, "-c", sys.argv[2]])
print("it ended with", first.returncode, flush=True)
if first.returncode == -9 and sys.argv[1] == "restarts":
    subprocess.run([sys.executable, "-c", sys.argv[2], "again"])
"""
"""A supervisor that starts a killed trainer once more, or does not."""


def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, Installed(Path(sys.executable).parent, {}), 5.0, 20.0, 28)


def peer(word: str) -> Peer:
    return Peer("small", "torch", "", lambda _: [Command("node-0", [sys.executable, "-c", AGAIN, word, TRAINER])])


@pytest.mark.story
def test_a_trial_kills_the_rank_and_sees_it_come_back(tmp_path: Path) -> None:
    trial = bench(tmp_path).trial(peer("restarts"), "kill", 0)
    assert trial.completed
    assert trial.resumed_seconds is not None
    assert 0 < trial.resumed_seconds < 20
    assert trial.steps_lost == 28, "it began anew"


@pytest.mark.story
def test_a_trial_that_nobody_saves_tells_the_last_lines(tmp_path: Path) -> None:
    trial = bench(tmp_path).trial(peer("ends"), "kill", 0)
    assert not trial.completed
    assert trial.said == ("node-0 (ended with 0): it ended with -9",)


@pytest.mark.story
def test_a_trial_leaves_no_process_behind(tmp_path: Path) -> None:
    limit = Bench(tmp_path, Installed(Path(sys.executable).parent, {}), 5.0, 0.5, 28)
    trial = limit.trial(peer("restarts"), "hang", 0)
    assert not trial.completed
    assert "not within 0.5 s" in trial.said[0]
    mark = f"PEERS_TRIAL={os.getpid()}-".encode()
    left = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and marked(entry, mark)]
    assert left == []


def marked(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes()
    except OSError:
        return False
