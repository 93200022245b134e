"""Stories of runs that wait: what `primus why` and `primus queue` say of them, and that the advice helps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deployments.cli.why import queue_document, read_run, show_why, why_document
from deployments.exit_codes import GOOD
from flows.decisions.explain.queue import entries
from flows.decisions.explain.why import explain
from profiles.vocabulary import RunState
from tasks.observe.run import read_queues
from tests.stories.recovery.test_brake import use_up
from tests.support.builders.ledgers import a_person
from tests.support.harness.stages import DEADLINE_SECONDS, Stage, stage, succeeded
from workflows import labels
from workflows.model.records import RequestRecord

pytestmark = pytest.mark.story
GPU = "amd.com/gpu"


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server) as made:
        yield made


def why(scene: Stage) -> dict[str, Any]:
    sight = read_run(scene.run, scene.settings, scene.ledger)
    return json.loads(json.dumps(why_document(sight, explain(sight))))


def until(scene: Stage, reason: str, words: str = "") -> dict[str, Any]:
    """What is said as soon as `reason` stands first, with these words."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (said := why(scene))["reason"] != reason or words not in said["why"]:
        assert time.monotonic() < deadline, f"{said['reasons']}; {scene.tell()}"
        time.sleep(0.05)
    return said


def evidence(said: dict[str, Any], kind: str, place: int = 0) -> list[dict[str, Any]]:
    return [item for item in said["reasons"][place]["evidence"] if item["kind"] == kind]


def stopped(scene: Stage) -> None:
    scene.ledger.request(RequestRecord("enough", scene.run, "stop", time.time(), "the story is told"))
    assert scene.end().run.state is RunState.STOPPED, scene.tell()


def hog(scene: Stage, name: str) -> None:
    """A pod of another run that takes all GPUs of a node."""
    container = {
        "name": "main",
        "image": "example.org/python:3",
        "command": ["python3", "-c", "import time; time.sleep(600)"],
        "resources": {"limits": {GPU: "8"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "labels": {labels.RUN: "other", labels.ROLE: "trainer"}}
    scene.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    placed = scene.cluster.wait("Pod", name, lambda pod: bool(pod and pod["spec"].get("nodeName")), DEADLINE_SECONDS)
    assert placed is not None


def test_a_gang_for_which_there_are_too_few_gpus(scene: Stage) -> None:
    scene.open(profile="demo-gpus", cluster="local-gpus", overrides=("roles.trainer.replicas=4", "steps=100000"))
    hog(scene, "hog-0")
    hog(scene, "hog-1")
    scene.drive()
    # All of the gang wait, its coordinator too; none of it runs.
    said = until(scene, "resources", "no node for 5 pods")
    assert said["state"] == "waiting"
    assert f"lack {GPU}" in said["why"]
    assert f"each asks for 8 {GPU}" in said["why"]
    assert {item["message"] for item in evidence(said, "Node")} == {"used by other"}
    [pod] = evidence(said, "Pod")
    assert (pod["condition"], pod["reason"]) == ("PodScheduled=False", "Unschedulable")
    assert f"Insufficient {GPU}" in pod["message"]
    line = read_queues(scene.cluster, scene.resolved.cluster)
    queue = queue_document("local-gpus", line, entries(line, time.time()), time.time())
    [item] = queue["items"]
    assert (item["run"], item["state"], item["position"], item["gpus"]) == (scene.run, "waiting", 1, 32)
    assert item["reason"] == "resources"
    for name in ("hog-0", "hog-1"):
        scene.cluster.delete("Pod", name, grace_seconds=0)
    said = until(scene, "running", "steps/s")
    assert said["steps_per_second"] > 0, "what was named was what blocked it"
    line = read_queues(scene.cluster, scene.resolved.cluster)
    assert [row.state for row in entries(line, time.time())] == ["running"]
    stopped(scene)


def test_an_image_that_nobody_has(scene: Stage) -> None:
    image = "registry.example.org/nobody/has:this"
    scene.start(overrides=(f"roles.trainer.image={image}",))
    scene.until(lambda story: story.attempt is not None and story.attempt.submitted_at is not None, "submit")
    scene.ledger.pause(scene.run, "a look at it")
    said = until(scene, "paused")
    assert [item["reason"] for item in said["reasons"]] == ["paused", "image"], said["reasons"]
    assert "give-up" in said["why"]
    assert said["advice"] == f"primus unpause {scene.run}"
    assert f"image {image} cannot be pulled" in said["reasons"][1]["sentence"]
    assert {item["reason"] for item in evidence(said, "Pod", 1)} <= {"ErrImagePull", "ImagePullBackOff"}
    scene.ledger.unpause(scene.run, "seen")
    assert scene.end().run.state is RunState.FAILED
    said = why(scene)
    assert (said["state"], said["reason"]) == ("finished", "ended")
    assert any(image in item["message"] for item in evidence(said, "Incident")), said["reasons"]


def test_a_question_to_a_person(scene: Stage) -> None:
    use_up(scene)
    with scene.start().held_at(8):
        scene.fault(f"lose-node:{scene.story.attempts[0].nodes[1]}")
    story = scene.until(lambda story: story.run.state is RunState.WAITING_FOR_APPROVAL, "a question")
    said = why(scene)
    approval = story.approvals[0]
    assert (said["reason"], said["state"]) == ("approval", "waiting")
    assert approval.question in said["why"]
    assert f"primus approve {approval.id} --why" in said["advice"]
    assert "node_lost" in evidence(said, "Incident")[0]["reason"]
    scene.ledger.answer(approval.id, False, a_person(), "not now", time.time())
    scene.end()
    said = why(scene)
    assert (said["reason"], said["run_state"]) == ("ended", "stopped")
    assert "not now" in said["why"]


def test_automation_is_paused(scene: Stage) -> None:
    scene.open()
    scene.ledger.pause(None, "maintenance of the fabric")
    scene.drive()
    said = until(scene, "paused")
    assert said["advice"] == "primus unpause --all"
    assert said["automation"] == "paused"
    assert scene.cluster.list("JobSet") == [], "nothing was submitted"
    scene.ledger.unpause(None, "done")
    scene.at_step(10)
    said = until(scene, "running", "steps/s")
    assert said["step"] >= 1
    assert [item["reason"] for item in said["reasons"]] == ["running"]
    stopped(scene)


def test_nobody_drives_it(scene: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    said = why(scene.open())
    assert (said["reason"], said["state"]) == ("no-driver", "waiting")
    assert said["driver"] == {"host": "", "pid": None, "alive": False}
    assert said["advice"].startswith(f"primus resume {scene.run} ")
    scene.drive_in_process()
    scene.at_step(10).fault("kill-flow")
    said = until(scene, "unwatched")
    assert said["state"] == "running", "training goes on"
    [lease] = evidence(said, "Lease")
    assert lease["reason"] == "gone"
    assert "driver.log" in lease["message"]
    assert show_why(scene.run, as_json=False) == GOOD
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{scene.run}: running: no driver is alive: its pods run, and no driver watches them")
    assert any(line.strip().startswith("do: primus resume") for line in rest)
    assert succeeded(scene.drive().end()), scene.tell()
