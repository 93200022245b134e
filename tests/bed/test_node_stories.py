"""Stories that only real nodes and a real queue can tell: nodes frozen and cut off, a gang that gives way."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from deployments.why import see
from flows.decisions.hold import Hold
from flows.decisions.waiting import explain
from profiles.vocabulary import FaultClass
from tests.bed import faults, samples
from tests.bed.api import Manifest
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.options import REAL_LABEL, Node
from tests.bed.up import Bed
from tests.stages import Stage, incident, outcomes, stage, succeeded
from tests.test_story_comes_back import comes_back
from workflows import labels

pytestmark = pytest.mark.story
SPACE = "training"
SHORT_S = 1.0
"""A node that is NotReady for less than the bed's 5 s of tolerance keeps its pods."""


@pytest.fixture
def scene(prefect_server: str, bed: Bed) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made
    bed.settle()


def second_node(scene: Stage, bed: Bed) -> Node:
    """Where the first attempt's rank 1 trains."""
    return bed.options.real_node(scene.story.attempts[0].nodes[1])


def trains_again(scene: Stage) -> None:
    """Wait for the first step of the second attempt."""
    scene.until(lambda story: len(story.attempts) > 1 and story.attempts[1].first_step is not None, "a second attempt")


def came_back_without(scene: Stage, unfailed: str, node: Node) -> None:
    """The node was found lost; nothing of the first attempt lives on, and it changed nothing after its end."""
    comes_back(scene, unfailed, FaultClass.NODE_LOST)
    assert node.name not in scene.story.attempts[1].nodes


def test_a_frozen_node(scene: Stage, bed: Bed, unfailed: str) -> None:
    scene.start().at_step(17)
    node = second_node(scene, bed)
    faults.freeze(node, bed.processes, pods=True)
    trains_again(scene)
    faults.thaw(node)  # its ranks wake up beside those that took their place
    came_back_without(scene, unfailed, node)


def test_a_node_that_is_cut_off(scene: Stage, bed: Bed, unfailed: str) -> None:
    scene.start().at_step(17)
    node = second_node(scene, bed)
    faults.cut(node)
    trains_again(scene)
    faults.mend(node)
    came_back_without(scene, unfailed, node)


def test_a_node_agent_that_stands_still_for_a_while(scene: Stage, bed: Bed) -> None:
    scene.start(overrides=("steps=400",)).at_step(17)
    node = second_node(scene, bed)
    faults.freeze(node, bed.processes)
    until(f"{node.name} NotReady", lambda: node.name not in bed.api.ready_nodes(), 60, 0.1)
    time.sleep(SHORT_S)
    faults.thaw(node)
    until(f"{node.name} Ready", lambda: node.name in bed.api.ready_nodes(), 60, 0.1)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.incidents == (), "its ranks were heard all the time"
    assert outcomes(story) == ["succeeded"], scene.tell()


def better_one(bed: Bed) -> Manifest:
    """A gang of a higher priority that asks for all CPUs of the real nodes."""
    cpus = sum(
        int(node["status"]["allocatable"]["cpu"])
        for node in bed.api.nodes()
        if node["metadata"]["labels"].get(REAL_LABEL) == "real"
    )
    spec = samples.pod_spec(samples.BUSYBOX, ["sleep", "600"], cpu=str(cpus), memory="1Gi")
    made = samples.jobset("better", SPACE, 1, {**spec, "nodeSelector": {REAL_LABEL: "real"}}, queued="high")
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = SPACE
    return made


def test_a_gang_of_higher_priority_takes_its_place_and_gives_it_back(scene: Stage, bed: Bed, unfailed: str) -> None:
    scene.start(overrides=("priority=low",)).at_step(17)
    better = better_one(bed)
    try:
        bed.api.ensure(better)
        scene.until(lambda story: len(story.attempts) > 1 and story.attempts[1].applied_at is not None, "in line again")
        until("the reason", lambda: held(scene) in (Hold.QUOTA, Hold.QUEUED), 60, 0.5)
        assert "Admitted" in samples.conditions(samples.workloads(bed, SPACE)["better"])
        assert not training(scene), "nothing of it runs while it waits"
    finally:
        bed.api.delete(better)
    comes_back(scene, unfailed, FaultClass.PREEMPTED)
    first, second = scene.story.attempts
    assert second.resumed_from_step == first.last_step, "it was saved within the notice"
    assert not incident(scene.story).charged


def held(scene: Stage) -> Hold:
    """What `primus why` says holds the run."""
    return explain(see(scene.run, scene.settings, scene.ledger)).reasons[0].hold


def training(scene: Stage) -> list[str]:
    """Pods of its gang that are there."""
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run})
    return [pod["metadata"]["name"] for pod in pods if labels.ROLE in pod["metadata"]["labels"]]
