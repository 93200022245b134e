"""The coordinator on nodes of its own: losing them costs the training nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from profiles.loading import load
from tests.support.harness.stages import Stage, outcomes, succeeded
from workflows import labels

pytestmark = pytest.mark.story


@pytest.fixture
def two_pools(tmp_path: Path) -> str:
    """Cluster `local` with a second pool for coordinators."""
    data = load.load_cluster("local").model_dump(mode="json")
    control = {"name": "control", "hardware": "cpu", "nodes": 3, "node_prefix": "control-"}
    data |= {"pools": [*data["pools"], control], "coordinator_pool": "control"}
    path = tmp_path / "two-pools.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


def coordinator(scene: Stage) -> tuple[str, str]:
    """Name and node of the coordinator's pod that runs; "" while there is none."""
    for pod in scene.cluster.list("Pod", {labels.RUN: scene.run, labels.ROLE: labels.COORDINATOR_ROLE}):
        if pod["status"].get("phase") == "Running":
            return pod["metadata"]["name"], pod["spec"]["nodeName"]
    return "", ""


def test_its_node_is_lost_and_training_goes_on(scene: Stage, two_pools: str) -> None:
    with scene.start(cluster=two_pools, overrides=("steps=300",)).held_at(10):
        name, node = coordinator(scene)
        assert node.startswith("control-")
        scene.fault(f"lose-node:{node}")
    deadline = time.monotonic() + scene.ground.deadline_seconds
    while (found := coordinator(scene)) in {("", ""), (name, node)}:
        assert time.monotonic() < deadline, scene.tell()
        time.sleep(0.02)
    assert found[1].startswith("control-")
    assert found[1] != node
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
    assert story.troubles == (), scene.tell()
    (attempt,) = story.attempts
    assert attempt.last_step == 300
    steps = {row.step for row in scene.ledger.steps(scene.run, 1)}
    assert steps == set(range(1, 301)), "what was reported while there was no coordinator came later"
