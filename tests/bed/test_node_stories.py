"""Stories that only real nodes and a real queue can tell: nodes frozen and cut off, a gang that gives way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.why import read_run
from flows.decisions.explain.reasons import Hold
from flows.decisions.explain.why import explain
from profiles.vocabulary import FaultClass
from tasks.runs.faults import step_seen
from tests.bed import faults, samples
from tests.bed.api import Manifest
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.layout import ROOT
from tests.bed.options import REAL_LABEL, Node
from tests.bed.up import Bed
from tests.stories.recovery.test_comes_back import comes_back
from tests.support.harness.stages import Stage, incident, outcomes, stage, succeeded
from workflows import labels

pytestmark = pytest.mark.story
SPACE = "training"
CLUSTERS = ROOT / "profiles" / "clusters"


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
    scene.start(cluster=str(staying(scene)), overrides=("steps=500",)).at_step(17)
    node = second_node(scene, bed)
    faults.freeze(node, bed.processes)
    until(f"{node.name} NotReady", lambda: node.name not in bed.api.ready_nodes(), 60, 0.1)
    step = step_seen(scene.scene())
    scene.at_step(step + 100)
    assert node.name not in bed.api.ready_nodes()
    assert scene.story.troubles == (), "its ranks are heard all the time"
    faults.thaw(node)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.troubles == (), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()


def staying(scene: Stage) -> Path:
    """A profile whose pods Kubernetes leaves on a node that it does not hear, as it does for minutes elsewhere."""
    text = (CLUSTERS / "bed.yaml").read_text(encoding="utf-8")
    taints = [f"{key}=:NoExecute" for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")]
    profile: dict[str, Any] = yaml.safe_load(text)
    profile["pools"][0]["taints"] = taints
    made = scene.home / "staying.yaml"
    made.write_text(yaml.safe_dump(profile), encoding="utf-8")
    return made


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
    return explain(read_run(scene.run, scene.settings, scene.ledger)).reasons[0].hold


def training(scene: Stage) -> list[str]:
    """Pods of its gang that are there."""
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run})
    return [pod["metadata"]["name"] for pod in pods if labels.ROLE in pod["metadata"]["labels"]]
