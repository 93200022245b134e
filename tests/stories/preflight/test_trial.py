"""Stories of trials of a run on the embedded cluster: real gangs, held nodes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.preflight import pools_of
from flows.testing.prove import Manner, prove
from flows.testing.trials import try_run
from profiles.loading.load import load_run, load_suite, resolve
from profiles.vocabulary import VerdictWord
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand, standing_in
from tasks.lease import driving
from tasks.ledger.ledger import Ledger
from tasks.nodes.holds import hold_of
from tasks.runs.trial import clear_others, make_trial, open_trial
from tasks.settings import Settings, localised
from tests.support.faults.node_faults import local, quarantined
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import patience, until
from workflows import labels
from workflows.attempt.trial import tried

pytestmark = pytest.mark.story
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
END_SECONDS = patience(180.0)
PRINTS = """
import os, sys, time
rank, node, shared = int(os.environ["RANK"]), os.environ["PRIMUS_NODE"], os.environ["PRIMUS_RUN_DIR"] + "/slow"
print("rank", rank, "begins", flush=True)
for step in range(1, 1000):
    time.sleep({pause})
    {each}
    if rank == 0:
        print(f"step {{step}}/1000 | loss {{{loss}:.4f}} | tokens/s 10 | step time {pause} s", flush=True)
"""


def program(each: str = "pass", *, pause: float = 0.02, loss: str = "2.0") -> str:
    """A trainer that takes `pause` a step and does `each` in every one; only rank 0 tells steps."""
    return PRINTS.format(each=each, pause=pause, loss=loss)


class Scene:
    """A home with its embedded cluster and ledger."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = localised(local(), home)
        self.cluster: Any = embedded_cluster(self.profile, home)
        self.ledger = Ledger(self.settings.ledger_url)
        self.told: list[str] = []

    def run(self, text: str = "", **changes: Any) -> str:
        """A run profile in a file: the story's, or one that starts a program of its own."""
        content: dict[str, Any] = {"extends": str(PROFILE), "name": "tried"}
        if text:
            content["roles"] = [{"name": "trainer", "command": [sys.executable, "-u", "-c", text], "forkable": False}]
        content["trial"] = {"steps": 8, "skip_steps": 2, "deadline_seconds": 120, **changes.pop("trial", {})}
        file = self.home / "run.yaml"
        file.write_text(yaml.safe_dump({**content, **changes}))
        return str(file)

    def prove(self, run: str, *nodes: str) -> dict[str, VerdictWord]:
        """Try the run on nodes as the command does it."""
        with at_hand(self.settings), using(self.cluster):
            pools = pools_of(self.profile, nodes)
            [tested] = prove(
                self.profile, load_suite("any-machine"), (), pools, self.told.append, Manner(trial=load_run(run))
            )
        return tested.words

    def command(self, *words: str, **popen: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PRIMUS_HOME": str(self.home)}
        call = [str(Path(sys.executable).parent / "primus"), "preflight", *words]
        return subprocess.Popen(
            call, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen
        )

    def evidence(self, node: str) -> str:
        """What the newest verdict of depth training says."""
        [newest, *_] = sorted(self.ledger.verdicts("local", node), key=lambda item: -item.at)
        assert newest.depth == "training"
        return " ".join(str(reason["evidence"]) for reason in newest.reasons)

    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.home / "shared" / "runs").glob("*"))

    def running(self) -> list[str]:
        """Pods that run."""
        pods = self.cluster.list("Pod")
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]

    def left(self) -> list[str]:
        """Objects of trials, and nodes that are held; what is being deleted is waited for."""
        deadline, found = time.monotonic() + END_SECONDS, list[Any]()
        while time.monotonic() < deadline:
            found = [item for kind in ("JobSet", "Workflow", "Secret", "Pod") for item in self.cluster.list(kind)]
            if not any("deletionTimestamp" in item["metadata"] for item in found):
                break
            time.sleep(0.02)
        held = [node for node in self.cluster.list("Node") if hold_of(node)[0]]
        return [f"{item.get('kind')}/{item['metadata']['name']}" for item in [*found, *held]]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()


def test_a_trial_passes_and_the_command_tells_it(scene: Scene) -> None:
    run = scene.run()
    real = scene.home / "shared" / "runs" / "story" / "checkpoints" / "step-5"
    real.mkdir(parents=True)
    (real / "manifest.json").write_text("the real run's")
    asked = scene.command("--trial", run, "--nodes", "node-0,node-1,node-2", "--json")
    output, errors = asked.communicate(timeout=END_SECONDS)
    assert asked.returncode == 0, (output, errors)
    [test] = json.loads(output)
    assert (test["suite"], test["depth"]) == ("trial of tried", "training")
    assert [(node["node"], node["verdict"]) for node in test["nodes"]] == [
        (name, "pass") for name in ("node-0", "node-1", "node-2")
    ]
    checks = [reason["check"] for reason in test["nodes"][0]["reasons"]]
    assert checks == ["trial-steps", "trial-loss", "trial-rate-tried"]
    assert test["nodes"][0]["reasons"][2]["measured"] > 1.0
    assert scene.left() == []
    assert (real / "manifest.json").read_text() == "the real run's"
    assert [name for name in scene.runs() if not labels.is_trial(name)] == ["story"]
    trials = [name for name in scene.runs() if labels.is_trial(name)]
    assert len(trials) == 2, "two gangs: the second filled up with a node that had passed"
    saved = {path.parent.parent.name for path in (scene.home / "shared" / "runs").glob("trial-*/checkpoints/step-*")}
    assert saved <= set(trials)
    marks = {node["metadata"]["name"]: node["metadata"]["labels"].get(labels.VERDICT) for node in _nodes(scene)}
    assert {marks[name] for name in ("node-0", "node-1", "node-2")} == {"pass"}
    assert scene.ledger.run_names() == [], "no run was opened for it"


def _nodes(scene: Scene) -> list[Any]:
    return list(scene.cluster.list("Node"))


def test_a_floor_that_nobody_reaches_blames_nobody(scene: Scene) -> None:
    run = scene.run(trial={"at_least_steps_per_second": 100000})
    assert scene.prove(run, "node-0", "node-1") == {"node-0": UNKNOWN, "node-1": UNKNOWN}
    assert "at least 100000 1/s" in scene.evidence("node-0")
    assert "nothing shows which node is slow" in scene.evidence("node-1")
    assert scene.left() == []


def test_the_node_that_the_ranks_name_as_slow_fails_and_its_neighbour_is_tried_again(scene: Scene) -> None:
    each = """if node == "node-1": open(shared, "w").close()
    if node == "node-1" and step == 5: print("Detected " + f"straggler: rank {rank}", flush=True)
    if os.path.exists(shared): time.sleep(0.2)"""
    run = scene.run(program(each), trial={"at_least_steps_per_second": 10, "skip_steps": 4, "steps": 12})
    words = scene.prove(run, "node-0", "node-1", "node-2", "node-3")
    assert words == {"node-0": PASS, "node-1": FAIL, "node-2": PASS, "node-3": PASS}, scene.evidence("node-1")
    assert "Detected straggler: rank" in scene.evidence("node-1")
    beside = [item for item in scene.ledger.verdicts("local", "node-0") if item.verdict is VerdictWord.UNKNOWN]
    assert any("the evidence names node-1" in str(one["evidence"]) for item in beside for one in item.reasons)
    assert scene.left() == []


def test_a_loss_that_is_no_number_is_nobodys_fault(scene: Scene) -> None:
    text = program(loss="float('nan') if step >= 4 else 2.0")
    assert scene.prove(scene.run(text), "node-0", "node-1") == {"node-0": UNKNOWN, "node-1": UNKNOWN}
    assert "loss not finite at step 4" in scene.evidence("node-0")
    assert scene.left() == []
    assert quarantined(scene.cluster) == {}


def test_a_loss_of_nothing_beside_a_norm_that_is_no_number_is_no_pass(scene: Scene) -> None:
    text = program(loss="0.0 if step >= 4 else 2.0")
    printed = "{'grad norm: nan' if step >= 4 else 'grad norm: 1.5'} | tokens/s"
    run = scene.run(text.replace("tokens/s", printed), trial={"steps": 12})
    assert scene.prove(run, "node-0", "node-1") == {"node-0": UNKNOWN, "node-1": UNKNOWN}
    assert "numeric" in scene.evidence("node-0")
    assert scene.left() == []


def test_the_users_own_error_is_told_in_one_line(scene: Scene) -> None:
    # Rank 0 waits for nobody: slow enough not to be done before rank 1 has come to its step.
    text = program("if step == 3 and rank == 1: raise ValueError('no such ' + 'layer: 17')", pause=0.5)
    assert scene.prove(scene.run(text), "node-0", "node-1") == {"node-0": UNKNOWN, "node-1": UNKNOWN}
    assert "user_code" in scene.evidence("node-0")
    assert "no such layer: 17" in scene.evidence("node-0")
    assert scene.left() == []


def test_a_node_whose_gpu_says_so_fails(scene: Scene) -> None:
    # In two parts: the launcher tells the command, and with it the whole program.
    lost = "'RuntimeError: CUDA error: uncorrect' + 'able ECC error encountered'"
    text = program(f"if step == 3 and node == 'node-1': sys.exit({lost})")
    words = scene.prove(scene.run(text), "node-0", "node-1")
    assert words == {"node-0": UNKNOWN, "node-1": FAIL}, scene.evidence("node-1")
    assert "ECC" in scene.evidence("node-1")
    assert quarantined(scene.cluster) == {"node-1": "gpu_hardware"}
    assert scene.left() == []


def test_silence_is_unknown_and_ends(scene: Scene) -> None:
    run = scene.run("import time; print('nothing happens', flush=True); time.sleep(600)", trial={"deadline_seconds": 4})
    assert scene.prove(run, "node-0", "node-1") == {"node-0": UNKNOWN, "node-1": UNKNOWN}
    assert "not enough steps within 4 s" in scene.evidence("node-0")
    assert scene.left() == []


def test_whoever_is_killed_in_the_middle_is_followed_by_one_who_takes_the_trial_up(scene: Scene) -> None:
    run = scene.run(program(pause=0.2), trial={"steps": 20})
    words = ("--trial", run, "--nodes", "node-0,node-1", "--json")
    first = scene.command(*words, start_new_session=True)
    assert first.stderr is not None
    seen = next(line for line in first.stderr if "steps seen" in line)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=END_SECONDS)
    assert first.returncode == -signal.SIGKILL, seen
    [jobset] = scene.cluster.list("JobSet")
    assert {"Node/node-0", "Node/node-1"} <= set(scene.left()), "held until somebody comes back"
    second = scene.command(*words)
    output, errors = second.communicate(timeout=END_SECONDS)
    assert second.returncode == 0, (output, errors)
    assert {node["verdict"] for node in json.loads(output)[0]["nodes"]} == {"pass"}
    assert scene.runs() == [jobset["metadata"]["labels"][labels.RUN]], "the same trial, not another one"
    begun = list((scene.home / "shared" / "runs").glob("trial-*/a1/*/rank-*.log"))
    assert [path.read_text(errors="replace").count("begins") for path in begun] == [1, 1], "no rank was started twice"
    assert scene.left() == []


def test_the_cluster_itself_ends_what_nobody_comes_back_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.attempt.trial.MARGIN_SECONDS", 0)
    run = load_run(scene.run(program(pause=0.05), trial={"deadline_seconds": 5}))
    resolved = tried(resolve(run, scene.profile), "me")
    with at_hand(scene.settings), using(scene.cluster), driving("preflight/story"):
        make_trial(open_trial(resolved, "0123abcd", ("node-0", "node-1")))
    until("it runs", scene.running)
    # The object goes when its time to live is over and the keeper is awake, which nobody keeps awake for that alone.
    until("its gang has ended", lambda: not scene.running())
    assert {"Workflow", "Secret"} <= {item.partition("/")[0] for item in scene.left()}
    with at_hand(scene.settings) as here, using(scene.cluster):
        later = replace(here, now=lambda: time.time() + 7 * 3600.0)
        with standing_in(later), driving("preflight/story"):
            clear_others(resolved, "another0", ())
    assert scene.left() == [], "the next trial takes away the rest"


def test_whoever_ends_it_leaves_nothing(scene: Scene) -> None:
    run = scene.run(program(pause=0.05), trial={"steps": 900})

    def tell(said: str) -> None:
        if "steps seen" in said:
            raise KeyboardInterrupt(said)

    with at_hand(scene.settings), using(scene.cluster), pytest.raises(KeyboardInterrupt, match="steps seen"):
        try_run(scene.profile, load_run(run), {"node-0": "cpu", "node-1": "cpu"}, tell)
    assert scene.left() == []


def test_a_node_that_is_not_ready_is_left_out_and_the_others_are_tried(scene: Scene) -> None:
    scene.cluster.patch("Node", "node-1", {"spec": {"unschedulable": True}})
    run = load_run(scene.run())
    with at_hand(scene.settings), using(scene.cluster):
        pools = pools_of(scene.profile, ("node-0", "node-1", "node-2"))
        tested = try_run(scene.profile, run, pools, scene.told.append)
    assert tested.words == {"node-0": PASS, "node-2": PASS}
    assert tested.busy == {"node-1": "cordoned"}
    assert scene.left() == []
