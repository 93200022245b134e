"""Runs on a simulated cluster: the real flow, decisions and ledger, told in a fraction of a second.

What real processes do is told by the stories of the same names (`tests/stories/recovery/test_comes_back.py`,
`tests/stories/recovery/test_gives_up.py`).
"""

from __future__ import annotations

from pathlib import Path

from profiles.vocabulary import Action, FaultClass, NodeAction, RunState
from tests.support.harness.stages import incident, numbers_are_unique, outcomes, succeeded
from tests.support.simulated.gang import Fate
from tests.support.simulated.stage import SimulatedStage, simulation
from workflows import labels

STEPS = 60


def living(scene: SimulatedStage) -> list[str]:
    """Pods that have not ended."""
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run})
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def test_a_clean_run(tmp_path: Path) -> None:
    with simulation(tmp_path) as scene:
        story = scene.drive()
        assert succeeded(story), story.run.why
        assert outcomes(story) == ["succeeded"]
        assert story.incidents == ()
        [attempt] = story.attempts
        assert (attempt.first_step, attempt.last_step, attempt.resumed_from_step) == (1, STEPS, None)
        assert [row.step for row in scene.ledger.steps(scene.run, 1)] == list(range(1, STEPS + 1))
        assert [item.step for item in story.checkpoints] == list(range(5, STEPS + 1, 5))
        assert living(scene) == []
        assert scene.cluster.list("Secret", {labels.RUN: scene.run}) == []


def test_a_lost_node(tmp_path: Path) -> None:
    with simulation(tmp_path, {1: Fate(12, pod=1, kind="power")}) as scene:
        story = scene.drive()
        assert succeeded(story), story.run.why
        assert outcomes(story) == ["node_lost", "succeeded"]
        assert numbers_are_unique(story.attempts)
        first, second = story.attempts
        [lost] = [node for node in first.nodes if node not in second.nodes]
        assert (incident(story).fault_class, incident(story).action) == (FaultClass.NODE_LOST, Action.NEW_ATTEMPT)
        assert [(item.target, item.state) for item in story.actions if item.kind == NodeAction.QUARANTINE] == [
            (lost, "done")
        ]
        assert (second.resumed_from_step, second.first_step, second.last_step) == (10, 11, STEPS)
        taints = (scene.cluster.get("Node", lost) or {})["spec"]["taints"]
        assert labels.QUARANTINE_TAINT in [taint["key"] for taint in taints]
        assert living(scene) == []


def test_an_exception_in_the_users_code(tmp_path: Path) -> None:
    with simulation(tmp_path, {1: Fate(12, pod=1, kind="raises")}) as scene:
        story = scene.drive()
        assert story.run.state is RunState.FAILED
        seen = incident(story)
        assert (seen.fault_class, seen.action) == (FaultClass.USER_CODE, Action.GIVE_UP)
        assert any("a batch of no shape" in line for line in seen.evidence), seen.evidence
        assert outcomes(story) == ["user_code"]
        assert [item for item in story.actions if item.target] == []
        assert scene.cluster.list("JobSet", {labels.RUN: scene.run}) == []
        assert living(scene) == []
