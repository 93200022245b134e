"""Stories of a preflight on the embedded cluster: real measurements, and what does not answer is not healthy."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.preflight import preflight
from tasks.clusters import embedded_cluster
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings, localised
from tests.support.faults.node_faults import local
from tests.support.harness.commands import primus_here
from workflows.node_tests.preflight import PREFLIGHT

pytestmark = pytest.mark.story


def check(name: str, least: float, **call: Any) -> dict[str, Any]:
    """A check of a copy in memory, or of whatever `call` says."""
    return {
        "name": name,
        "depth": "device",
        "quantity": "memory_bandwidth",
        "unit": "GB/s",
        "direction": "higher_is_better",
        "limits": {"absolute": [{"at_least": least, "source": "the story"}]},
        "deadline_seconds": 20,
        "fault_class": "straggler",
        "what_to_do": "Look at it.",
        **(call or {"probe": {"name": "memory-bandwidth", "arguments": {"bytes": "4194304"}}}),
    }


class Scene:
    """A home with its embedded cluster and ledger."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.cluster: Any = embedded_cluster(localised(local(), home), home)
        self.ledger = Ledger(self.settings.ledger_url)

    def suite(self, *checks: dict[str, Any]) -> str:
        path = self.home / "story-suite.yaml"
        path.write_text(yaml.safe_dump({"name": "story-suite", "checks": list(checks)}))
        return str(path)

    def primus(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PRIMUS_HOME": str(self.home)}
        command = [sys.executable, "-c", "from deployments.cli.main import main; main()", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def tested(self, suite: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
        done = self.primus("preflight", "--suite", suite, "--json", *words)
        assert done.stdout, done.stderr
        return done.returncode, [node for test in json.loads(done.stdout) for node in test["nodes"]]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()
    made.ledger.close()


def test_good_nodes_pass_and_the_ledger_knows(scene: Scene) -> None:
    code, nodes = scene.tested(scene.suite(check("copy", 0.01)))
    assert (code, [node["node"] for node in nodes]) == (0, [f"node-{number}" for number in range(6)])
    assert {node["verdict"] for node in nodes} == {"pass"}
    figures = [node["reasons"][0]["measured"] for node in nodes]
    assert len(set(figures)) > 1, "each was measured by itself"
    kept = scene.ledger.verdicts("local")
    assert {(item.node, item.depth, str(item.verdict)) for item in kept} == {
        (f"node-{number}", "device", "pass") for number in range(6)
    }
    assert scene.cluster.list("Workflow") == [], "what was read is deleted"
    assert scene.primus("verdict", "node-3").returncode == 0


def test_a_figure_that_is_bad_twice_blames_the_node(scene: Scene) -> None:
    code, nodes = scene.tested(scene.suite(check("copy", 1e6)), "--nodes", "node-1,node-0")
    assert (code, [(node["node"], node["verdict"]) for node in nodes]) == (1, [("node-1", "fail"), ("node-0", "fail")])
    words = [(item.node, str(item.verdict)) for item in scene.ledger.verdicts("local")]
    assert sorted(words) == sorted(
        [*[(f"node-{n}", "unknown") for n in (0, 1)], *[(f"node-{n}", "fail") for n in (0, 1)]]
    )
    cursor = scene.ledger.cursor(f"{PREFLIGHT}/local")
    assert cursor is not None
    assert cursor.position == 2, "it was measured again before it was blamed"


def test_what_does_not_answer_is_unknown(scene: Scene) -> None:
    hangs = check("hangs", 0.01, command=["sleep", "600"], parser="babelstream", deadline_seconds=1)
    missing = check("missing", 0.01, command=["no-such-tool"], parser="babelstream")
    garbage = check("garbage", 0.01, command=["echo", "hello"], parser="babelstream")
    code, [node] = scene.tested(scene.suite(check("copy", 0.01), hangs, missing, garbage), "--nodes", "node-2")
    assert (code, node["verdict"]) == (3, "unknown")
    said = {reason["check"]: (reason["verdict"], reason["evidence"]) for reason in node["reasons"]}
    assert [word for word, _ in said.values()] == ["pass", "unknown", "unknown", "unknown"]
    assert "did not end within" in said["hangs"][1]
    assert "cannot be started" in said["missing"][1]


def test_a_pod_that_is_killed_leaves_its_node_unknown(scene: Scene) -> None:
    kills = check("kills", 0.01, command=["sh", "-c", "kill -9 $PPID"], parser="babelstream")
    code, [node] = scene.tested(scene.suite(kills), "--nodes", "node-4")
    assert (code, node["verdict"]) == (3, "unknown")
    assert node["reasons"][0]["evidence"]


def test_a_node_without_power_is_unknown_at_once_and_the_others_are_tested(scene: Scene) -> None:
    scene.cluster.lose_node("node-1")
    done = scene.primus("preflight", "--suite", scene.suite(check("copy", 0.01)), "--json", "--nodes", "node-1,node-2")
    [test] = json.loads(done.stdout)
    assert done.returncode == 3
    assert [(node["node"], node["verdict"]) for node in test["nodes"]] == [("node-1", "unknown"), ("node-2", "pass")]
    assert "1 of 2 nodes cannot be tested: node-1: it is not ready (PowerLost)" in done.stderr, "said before the wait"
    assert test["seconds"] < 60, "no pod of it is waited for"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "node-99"), "node-99: no such node"),
        (("--suite", "nosuch"), "nosuch"),
        (("--depth", "deep"), "depth: must be one of"),
        (("--depth", "training"), "no check of depth training"),
    ],
)
def test_what_cannot_be_tested_is_named_and_nothing_starts(scene: Scene, words: tuple[str, ...], said: str) -> None:
    done = primus_here("preflight", *words, environment={"PRIMUS_HOME": str(scene.home)})
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert scene.ledger.verdicts("local") == []


def test_the_flow_tests_idle_nodes_and_says_what_it_found(
    scene: Scene, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prefect_server
    monkeypatch.setenv("PRIMUS_HOME", str(scene.home))
    monkeypatch.setattr("flows.preflight.users", lambda *_: dict.fromkeys(("node-1", "node-4"), "demo"))
    asked = {"suite": scene.suite(check("copy", 0.01)), "idle_only": True}
    assert asyncio.run(preflight(**asked)) == "device: 4 of 4 pass"
    assert {item.node for item in scene.ledger.verdicts("local")} == {"node-0", "node-2", "node-3", "node-5"}
    assert asyncio.run(preflight(**asked, nodes=["node-1"])) == "no node was to be tested"
