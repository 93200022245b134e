"""Stories of nodes that are tested before a run takes them: who failed and who is silent is named, others train."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.vocabulary import RunState, VerdictWord
from tasks.nodes.holds import hold_of
from tests.support.fakes.pair_tools import tool as pair_tool
from tests.support.faults.node_faults import quarantined
from tests.support.harness.stages import Stage, stage, succeeded
from tests.support.running.waiting import until
from workflows import labels
from workflows.model.records import RequestRecord

pytestmark = pytest.mark.story
CLUSTER = Path(__file__).parents[3] / "profiles" / "clusters" / "local.yaml"
FAKE = """#!/bin/sh
# Stands for BabelStream: the node's file says how fast it is (MB/s); without one it is silent.
echo "$PRIMUS_NODE" >>"{folder}/asked"
while ! [ -e "{folder}/$PRIMUS_NODE" ]; do sleep 0.05; done
rate=$(cat "{folder}/$PRIMUS_NODE")
cat <<END
BabelStream
Version: 4.0
Implementation: HIP
Running kernels 100 times
Precision: double
Array size: 268.4 MB (=0.3 GB)
Total size: 805.3 MB (=0.8 GB)
Function    MBytes/sec  Min (sec)   Max         Average
Copy        $rate 0.00013     0.00014     0.00013
Mul         $rate 0.00013     0.00014     0.00013
Add         $rate 0.00020     0.00021     0.00020
Triad       $rate 0.00020     0.00021     0.00020
Dot         $rate 0.00013     0.00014     0.00013
END
"""
GOOD, SLOW = "4000000.0", "1900000.0"
NODES = [f"node-{number}" for number in range(6)]


class Grounds:
    """A stage whose cluster wants nodes proven before a run, and what stands for the nodes' memory."""

    def __init__(self, made: Stage) -> None:
        self.stage, self.speeds = made, made.home / "speeds"
        self.speeds.mkdir()
        tool = made.home / "fake-stream"
        tool.write_text(FAKE.format(folder=self.speeds))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        check = {
            "name": "copy",
            "depth": "device",
            "command": [str(tool)],
            "parser": "babelstream",
            "quantity": "hbm_bandwidth",
            "unit": "GB/s",
            "direction": "higher_is_better",
            "limits": {"absolute": [{"at_least": 3000, "source": "the story"}]},
            "deadline_seconds": 2,
            "needs": ["node"],
            "fault_class": "gpu_hardware",
            "what_to_do": "Look at the memory.",
        }
        slow_link = '{"node-3/mlx5_0": 37.5}'
        link = pair_tool(made.home / "tools", "ib_write_bw", "ib-write-bw/6-duration-gbits.txt", slow=slow_link)
        write = [str(link), "-p", "{port}", "-d", "mlx5_0"]
        rail = {
            **check,
            "name": "rail",
            "depth": "fabric",
            "spans": "pair",
            "command": [*write, "{peer}"],
            "peer_command": write,
            "parser": "ib-write-bw",
            "quantity": "rdma_bandwidth",
            "unit": "Gb/s",
            "limits": {"absolute": [{"at_least": 150, "source": "the story"}]},
            "deadline_seconds": 20,
            "needs": [],
            "fault_class": "fabric",
            "what_to_do": "Look at the cable.",
        }
        suite = made.home / "story-suite.yaml"
        suite.write_text(yaml.safe_dump({"name": "story-suite", "checks": [check, rail]}))
        self.suite = str(suite)

    def speed(self, rate: str, *nodes: str) -> None:
        for node in nodes:
            part = self.speeds / f"{node}.part"
            part.write_text(rate)
            part.rename(self.speeds / node)

    def profile(self, **admission: Any) -> str:
        document = yaml.safe_load(CLUSTER.read_text())
        document["admission"] = {"suite": self.suite, "depths": {"before_run": ["device"]}, **admission}
        path = self.stage.home / "wanting.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    @property
    def asked(self) -> list[str]:
        path = self.speeds / "asked"
        return path.read_text().split() if path.exists() else []

    def marks(self, key: str = labels.VERDICT) -> dict[str, str]:
        nodes = self.stage.cluster.list("Node")
        found = {item["metadata"]["name"]: item["metadata"].get("labels", {}).get(key, "") for item in nodes}
        return {node: word for node, word in found.items() if word}

    def held(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.stage.cluster.list("Node") if hold_of(node)[0]]


@pytest.fixture
def grounds(prefect_server: str) -> Iterator[Grounds]:
    with stage(prefect_server) as made:
        yield Grounds(made)


def waits(made: Stage, text: str) -> None:
    made.until(lambda story: text in story.run.why, f"it says {text!r}")


def test_a_run_trains_on_proven_nodes_and_the_others_are_named(grounds: Grounds) -> None:
    grounds.speed(GOOD, "node-1", "node-3", "node-4", "node-5")
    grounds.speed(SLOW, "node-0")
    made = grounds.stage.start(cluster=grounds.profile())
    story = made.end()
    assert succeeded(story), made.tell()
    assert [attempt.nodes for attempt in story.attempts] == [("node-1", "node-3")], "node-0 is slow, node-2 is silent"
    why = story.attempts[0].why
    words = {item.node: (item.depth, item.verdict) for item in made.ledger.verdicts("local") if item.depth != "gate"}
    expected = {"node-0": VerdictWord.FAIL, "node-1": VerdictWord.PASS, "node-2": VerdictWord.UNKNOWN}
    assert words == {node: ("device", word) for node, word in (expected | {"node-3": VerdictWord.PASS}).items()}, why
    assert quarantined(made.cluster) == {"node-0": "gpu_hardware"}
    assert grounds.marks() == {"node-0": "fail", "node-1": "pass", "node-2": "unknown", "node-3": "pass"}
    held = made.ledger.node("local", "node-0")
    assert held is not None
    assert "1900" in held.why
    assert grounds.held() == [], "each was given back after its test"


def test_one_slow_node_one_bad_link_and_one_silent_node_are_named_and_the_run_begins_on_the_others(
    grounds: Grounds,
) -> None:
    grounds.speed(GOOD, *(node for node in NODES if node not in ("node-0", "node-2")))
    grounds.speed(SLOW, "node-0")
    wanting = grounds.profile(depths={"before_run": ["device", "fabric"]})
    made = grounds.stage.start(cluster=wanting, overrides=("roles.trainer.replicas=3",))
    story = made.end()
    assert succeeded(story), made.tell()
    assert [attempt.nodes for attempt in story.attempts] == [("node-1", "node-4", "node-5")]
    told = {(item.node, item.depth): item.verdict for item in made.ledger.verdicts("local") if item.depth != "gate"}
    assert told["node-0", "device"] is VerdictWord.FAIL
    assert told["node-2", "device"] is VerdictWord.UNKNOWN
    assert told["node-3", "fabric"] is VerdictWord.FAIL
    assert told["node-3", "device"] is VerdictWord.PASS
    proven = {node for (node, depth), word in told.items() if depth == "fabric" and word is VerdictWord.PASS}
    assert proven >= {"node-1", "node-4", "node-5"}
    assert grounds.marks() | {"node-2": "unknown"} == {
        **dict.fromkeys(("node-1", "node-4", "node-5"), "pass"),
        **dict.fromkeys(("node-0", "node-3"), "fail"),
        "node-2": "unknown",
    }
    assert quarantined(made.cluster)["node-0"] == "gpu_hardware"


def test_only_what_is_stale_is_tested_before_the_next_run(grounds: Grounds) -> None:
    grounds.speed(GOOD, *NODES)
    cluster = grounds.profile()
    made = grounds.stage.start(cluster=cluster)
    assert succeeded(made.end()), made.tell()
    assert sorted(set(grounds.asked)) == ["node-0", "node-1"]
    before = len(grounds.asked)
    made.forget_thread()
    made.start("again", cluster=cluster, overrides=("roles.trainer.replicas=3",))
    assert succeeded(made.end()), made.tell()
    assert set(grounds.asked[before:]) == {"node-2"}


def test_silent_nodes_are_tested_again_and_the_run_begins_when_they_answer(
    grounds: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.testing.admission.AGAIN_SECONDS", 0.2)
    grounds.speed(GOOD, "node-5")
    made = grounds.stage.start(cluster=grounds.profile())
    waits(made, "waits for proven nodes")
    assert made.story.run.state is RunState.PENDING
    assert "not proven" in made.story.run.why
    assert made.story.attempts == (), "nothing of an attempt exists"
    grounds.speed(GOOD, *NODES)
    story = made.end()
    assert succeeded(story), made.tell()
    assert quarantined(made.cluster) == {}, "silence takes nobody out"


def test_a_node_that_is_named_may_train_though_nothing_is_known_of_it(grounds: Grounds) -> None:
    made = grounds.stage.start(cluster=grounds.profile(unknown_allowed=NODES[:2]))
    assert succeeded(made.end()), made.tell()
    assert [attempt.nodes for attempt in made.story.attempts] == [("node-0", "node-1")]
    assert grounds.asked == []


def test_a_stop_is_heard_while_nodes_are_tested(grounds: Grounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.testing.admission.AGAIN_SECONDS", 3600.0)
    made = grounds.stage.start(cluster=grounds.profile())
    waits(made, "waits for proven nodes")
    made.ledger.request(RequestRecord("stop-1", made.run, "stop", time.time(), "enough for today"))
    story = made.end()
    assert story.run.state is RunState.STOPPED, made.tell()
    assert grounds.held() == []


@pytest.mark.parametrize("moment", ["held", "asked", "told"])
def test_a_driver_that_is_killed_while_it_tests_leaves_no_node_held_and_the_next_goes_on(
    grounds: Grounds, moment: str
) -> None:
    made = grounds.stage.open(cluster=grounds.profile())
    reached: dict[str, Callable[[], object]] = {
        "held": lambda: len(grounds.held()) == 2,
        "asked": lambda: set(grounds.asked) == {"node-0", "node-1"},
        "told": lambda: made.ledger.verdicts("local"),
    }
    driver = made.drive_in_process()
    if moment == "told":
        grounds.speed(GOOD, *NODES)
    until(f"it is {moment}", lambda: bool(reached[moment]()), made.tell)
    os.kill(driver, signal.SIGKILL)
    grounds.speed(GOOD, *NODES)
    made.drive()
    story = made.end()
    assert succeeded(story), made.tell()
    assert len(story.attempts) == 1
    assert grounds.asked.count("node-0") == 1, "what had begun was gone on with"
    assert grounds.held() == []
    if moment != "told":  # what was killed between the ledger and the nodes is written by the monitor
        assert set(grounds.marks().values()) == {"pass"}
