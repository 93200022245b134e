"""Stories of a brake that other runs used up: a person is asked, also where the decision was made before."""

from __future__ import annotations

import time

import pytest

from profiles.vocabulary import Action, NodeAction, RunState
from tests.support.builders.ledgers import a_person
from tests.support.harness.stages import Stage, incident, succeeded
from workflows import labels
from workflows.model.records import NodeRecord, Story

pytestmark = pytest.mark.story


def use_up(scene: Stage, node: str = "node-5") -> None:
    """Another run takes the one node out that may go of six."""
    record = NodeRecord("local", node, "quarantined", "another run", time.time(), "other-a1-i1", "cpu")
    assert scene.ledger.take_out([record], None) == ""


def quarantined(scene: Stage, node: str) -> bool:
    taints = scene.cluster.get("Node", node)["spec"].get("taints", [])
    return any(item["key"] == labels.QUARANTINE_TAINT for item in taints)


def states(story: Story) -> dict[str, str]:
    return {str(action.kind): action.state for action in story.actions}


def test_a_brake_that_another_run_used_up_after_the_decision_asks(scene: Stage) -> None:
    with scene.start().held_at(8):
        scene.ledger.pause("story", "maintenance")
        lost = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{lost}")
    story = scene.until(lambda story: bool(story.actions), "a decision")
    assert (incident(story).action, states(story)[NodeAction.QUARANTINE]) == (Action.NEW_ATTEMPT, "recorded")
    use_up(scene)
    scene.ledger.unpause("story", "done")
    story = scene.until(lambda story: story.run.state is RunState.WAITING_FOR_APPROVAL, "a question")
    assert incident(story).action is Action.ASK
    assert "the brake: 1 + 1 of 6 nodes in quarantine" in incident(story).why
    assert lost in story.approvals[0].question
    assert states(story) == {"quarantine": "recorded", "new-attempt": "recorded"}, "nothing was done"
    assert not quarantined(scene, lost)
    assert scene.ledger.node("local", lost) is None
    scene.ledger.answer(story.approvals[0].id, True, a_person(), "we know", 0.0)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert quarantined(scene, lost)
    assert states(story) == {"quarantine": "done", "new-attempt": "done"}
    scene.no_orphans()


def test_nothing_is_taken_out_where_a_person_says_no(scene: Stage) -> None:
    use_up(scene)
    with scene.start().held_at(8):
        lost = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{lost}")
    story = scene.until(lambda story: any(item.state == "waiting" for item in story.approvals), "a question")
    scene.ledger.answer(story.approvals[0].id, False, a_person(), "not that one", 0.0)
    story = scene.end()
    assert story.run.state is RunState.STOPPED, scene.tell()
    assert states(story)[NodeAction.QUARANTINE] == "refused"
    assert "not that one" in next(item.why for item in story.actions if item.target)
    assert not quarantined(scene, lost)
    assert scene.ledger.node("local", lost) is None
    scene.no_orphans()
