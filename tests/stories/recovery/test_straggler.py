"""A rank that becomes slow: the gang leaves its node once waiting has cost as much, and loses no step by it."""

from __future__ import annotations

import pytest

from profiles.vocabulary import Action, FaultClass, VerdictWord
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows.model.attempt import Signal
from workflows.model.cluster import pod_of
from workflows.model.records import IncidentRecord, Story, Told
from workflows.model.runs import IncidentQuery

pytestmark = pytest.mark.story
SLOW = "slow-rank:1,factor=20"
"""It may run for 2.5 ms of every 50: however busy the machine is, its peers are faster."""
SLOW_STEPS = ("steps=400", "recovery.straggler.leave=true")


def node_of(scene: Stage, rank: int) -> str:
    """Where a rank of the present attempt runs."""
    role = scene.resolved.run.deciding_role
    pods = [pod_of(pod).ranked(role) for pod in scene.cluster.list("Pod")]
    return next(pod.node for pod in pods if rank in pod.ranks)


def notes_about(story: Story, rank: int) -> list[IncidentRecord]:
    """What was told of a rank that lags."""
    return [item for item in story.incidents if item.signal == Told.SLOW_RANK and item.culprits[0][1] == rank]


def test_a_gang_leaves_a_slow_node(scene: Stage) -> None:
    scene.start(overrides=SLOW_STEPS).at_step(17)
    node = node_of(scene, 1)
    scene.fault(SLOW)
    assert succeeded(scene.end()), scene.tell()
    story = scene.story
    first, second = story.attempts
    assert outcomes(story) == [FaultClass.STRAGGLER.value, "succeeded"], scene.tell()
    found = incident(story)
    assert (found.signal, found.action) == (Signal.STRAGGLER, Action.NEW_ATTEMPT), scene.tell()
    assert found.culprits == ((node, None),), scene.tell()
    assert not found.charged
    note = next(item for item in notes_about(story, 1) if item.culprits == ((node, 1),))
    assert (note.action, note.charged, note.resumed_at) == (Action.NONE, False, None), "told before it cost so much"
    assert note.detected_at <= found.detected_at
    assert note.over_at is not None, "its attempt has ended"
    assert node in first.nodes
    assert node not in second.nodes
    assert second.resumed_from_step == first.last_step, scene.tell()  # ranks saved before they left
    assert second.resume_proof is VerdictWord.PASS
    assert not [action for action in story.actions if action.target], "nobody is taken out for being slow"
    scene.no_orphans()


def test_a_profile_that_forbids_it_only_tells(scene: Stage) -> None:
    scene.start(overrides=("steps=100000",)).at_step(17)
    scene.fault(SLOW)
    node = node_of(scene, 1)
    story = scene.until(lambda story: bool(notes_about(story, 1)), "a rank that is called slow")
    note = notes_about(story, 1)[-1]
    assert (note.fault_class, note.action, note.culprits) == (FaultClass.STRAGGLER, Action.NONE, ((node, 1),))
    named = max(item.last_step or 0 for item in story.attempts)
    scene.at_step(named + 10)
    story = scene.story
    assert (story.troubles, story.actions) == ((), ()), scene.tell()
    assert len(story.attempts) == 1
    told = scene.ledger.incident_lines(IncidentQuery(open_only=True))
    assert told == ([], 0), "nothing is to be done about it"
