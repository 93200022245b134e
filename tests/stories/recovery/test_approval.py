"""A question that is answered as a flow run, whoever drives the run by then."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from flows.approve import approve
from profiles.vocabulary import Action, Mode, RunState
from tasks.runs.faults import rank_process
from tests.support.harness.stages import DEADLINE_SECONDS, Stage, succeeded
from workflows.model.attempt import Signal
from workflows.model.records import ApprovalRecord, NodeRecord, Story

pytestmark = pytest.mark.story


def page(key: str, holds: str) -> str:
    """The page of a question once it says something."""
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with get_client(sync_client=True) as client:
            found = client.read_artifacts(artifact_filter=wanted)
        if found and holds in str(found[0].data):
            assert len(found) == 1
            return str(found[0].data)
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def fresh(name: str) -> str:
    """A name of its own: the server keeps the pages of a story that is told again."""
    return f"{name}-{time.time_ns() % 10**9}"


def asked(scene: Stage, name: str) -> Story:
    """A run that loses a node where no more may go: a person is asked."""
    record = NodeRecord("local", "node-5", "quarantined", "another run", time.time(), "other-a1-i1", "cpu")
    assert scene.ledger.take_out([record], None) == ""
    scene.open(name)
    return scene.story


def answered(approval: str, answer: str, why: str) -> Any:
    given: Any = approve
    return asyncio.run(given(approval, answer, why, return_state=True))


def test_the_page_tells_what_is_asked_and_the_flow_answers_it(scene: Stage) -> None:
    asked(scene, fresh("asked"))
    with scene.drive().held_at(8):
        lost = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{lost}")
    story = scene.until(lambda story: story.run.state is RunState.WAITING_FOR_APPROVAL, "a question")
    identity = story.approvals[0].id
    text = page(f"approval-{identity}", "Waits for an answer")
    seen = story.troubles[0].evidence[0]  # by the node's condition or by its pods, whichever was heard first
    for part in (f"quarantine {lost}", "ends as stopped", f"primus approve {identity}", "node_lost", seen):
        assert part in text, (part, text)
    state = answered(identity, "approve", "we have spares")
    assert state.is_completed(), state.message
    assert succeeded(scene.end()), scene.tell()
    assert "we have spares" in page(f"approval-{identity}", "**Approved** by prefect")
    assert answered(identity, "deny", "too late").is_failed()


def test_an_answer_that_nobody_drove_for_is_read_by_the_next_driver(scene: Stage) -> None:
    asked(scene, fresh("left"))
    pid = scene.drive_in_process()
    with scene.held_at(8):
        lost = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{lost}")
    story = scene.until(lambda story: story.run.state is RunState.WAITING_FOR_APPROVAL, "a question")
    scene.fault("kill-flow")
    assert pid > 0
    assert answered(story.approvals[0].id, "deny", "not tonight").is_completed()
    assert scene.story.run.state is RunState.WAITING_FOR_APPROVAL, "nobody drives"
    scene.drive()
    story = scene.end()
    assert story.run.state is RunState.STOPPED
    assert "not tonight" in story.run.why


HANG = (*("steps=60", "recovery.hang.step_floor_seconds=1"), 'recovery.ask_before=["new-attempt"]')


def asked_about(scene: Stage, sign: Signal) -> ApprovalRecord:
    """The question that waits, of the newest incident."""

    def waits(story: Story) -> bool:
        newest = story.troubles[-1].signal if story.troubles else ""
        return newest == sign and any(item.state == "waiting" for item in story.approvals)

    story = scene.until(waits, f"a question about {sign}")
    [question] = [item for item in story.approvals if item.state == "waiting"]
    assert question.incident == story.troubles[-1].id
    return question


def test_a_question_about_a_hang_is_over_when_the_gang_trains_again(scene: Stage) -> None:
    scene.start(fresh("well"), mode=Mode.ASK, overrides=HANG).fault("hang-rank:1,step=12")
    question = asked_about(scene, Signal.HANG)
    os.kill(rank_process(scene.scene(), 1), signal.SIGCONT)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert len(story.attempts) == 1, "nothing began anew"
    [seen], [taken] = story.troubles, story.approvals
    assert (seen.action, seen.charged, seen.went_on) == (Action.NONE, False, True), seen
    assert seen.why.startswith("taken back: it trains again by itself, step "), seen
    assert (taken.id, taken.state, taken.why, taken.taken_back) == (question.id, "expired", seen.why, True)
    assert [action.state for action in story.actions] == ["refused"]
    assert seen.over_at is not None
    assert seen.over_at < (story.run.ended_at or 0.0)


def test_a_question_about_a_hang_is_over_when_the_gang_ends_by_something_else(scene: Stage) -> None:
    scene.start(fresh("worse"), mode=Mode.ASK, overrides=HANG).fault("hang-rank:1,step=12")
    question = asked_about(scene, Signal.HANG)
    os.kill(rank_process(scene.scene(), 1), signal.SIGKILL)
    again = asked_about(scene, Signal.POD_FAILED)
    first = next(item for item in scene.story.approvals if item.id == question.id)
    assert first.taken_back, first
    assert "trainer" in first.why, "what ended it"
    assert answered(again.id, "approve", "go on").is_completed()
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert [item.signal for item in story.troubles] == [Signal.HANG, Signal.POD_FAILED]
    assert [item.resumed_at is None for item in story.troubles] == [True, False], "only the last one was answered"
    assert [item.number for item in story.attempts] == [1, 2]
