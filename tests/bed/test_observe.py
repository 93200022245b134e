"""Mode observe on a real cluster: the audit log shows that what automation decided is not done.

A person's wish is: the run is submitted, in the workspace's own namespace. Each story ends with a stop or in mode act,
so that the same log shows what it would have shown.
"""

from __future__ import annotations

import pytest

from profiles.vocabulary import Action, FaultClass, Mode, NodeAction, RunState
from tests.bed.audit import Write, Writes
from tests.bed.up import Bed
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows.model.records import RequestRecord, Story
from workflows.platform.pod_shapes import NAMESPACE

pytestmark = pytest.mark.story
WORKSPACE = "training"


def ours(bed: Bed) -> Writes:
    """What runner, monitor and pipelines write from now on."""
    return Writes(bed, (NAMESPACE, WORKSPACE))


def elsewhere(writes: list[Write]) -> list[Write]:
    """Those outside the product's namespace and the workspace's."""
    return [write for write in writes if write.namespace not in (NAMESPACE, WORKSPACE)]


def rested(scene: Stage) -> Story:
    """The story when its driver has decided and does nothing more."""
    scene.until(lambda story: bool(story.actions), "a decision")
    return scene.until(lambda story: story.run.state is RunState.RECOVERING, "resting")


def test_a_killed_rank_is_diagnosed_and_nothing_is_done(scene: Stage, bed: Bed) -> None:
    log = ours(bed)
    with scene.start(mode=Mode.OBSERVE).held_at(10):
        submitted = log.seen()
        assert {"workflows", "jobsets"} <= {write.resource for write in submitted}, "a person asked for it"
        scene.fault("kill-rank:1")
    story = rested(scene)
    assert (incident(story).fault_class, incident(story).action) == (FaultClass.PROCESS_KILLED, Action.NEW_ATTEMPT)
    assert {action.state for action in story.actions} == {"recorded"}
    seen = log.seen()
    assert elsewhere(seen) == []
    assert not [write for write in seen if write.verb.startswith("delete")], "what failed stays as it is"
    assert scene.cluster.get("JobSet", "story-a1") is not None
    assert scene.cluster.get("Workflow", "story-a2") is None
    scene.ledger.request(RequestRecord("stop-1", "story", "stop", 0.0, "seen enough"))
    assert scene.end().run.state is RunState.STOPPED, scene.tell()
    assert [write for write in log.seen() if write.verb == "delete"], "the log tells what was deleted"
    assert elsewhere(log.seen()) == []


def test_a_lost_node_is_blamed_and_no_node_is_patched(scene: Stage, bed: Bed) -> None:
    log = ours(bed)
    with scene.start(mode=Mode.OBSERVE).held_at(10):
        lost = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{lost}")
    story = rested(scene)
    assert incident(story).fault_class is FaultClass.NODE_LOST, scene.tell()
    assert {(str(action.kind), action.target, action.state) for action in story.actions} >= {
        (NodeAction.QUARANTINE.value, lost, "recorded")
    }
    assert elsewhere(log.seen()) == []
    assert len(story.attempts) == 1
    assert scene.ledger.nodes("bed") == []
    scene.ledger.set_mode("story", Mode.ACT)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["node_lost", "succeeded"]
    [patched] = elsewhere(log.seen())
    assert (patched.verb, patched.resource, patched.name) == ("patch", "nodes", lost), "the log tells what is patched"
