"""Why a run stands where it stands: one table over what the ledger and the cluster's objects say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.explain.reasons import BLOCKS_FIRST, Hold
from flows.decisions.explain.why import explain
from profiles.vocabulary import Mode, RunState
from tests.support.builders.nodes import a_node
from tests.support.builders.why_cases import (
    ASKED,
    CASES,
    DEAD,
    DECIDED,
    ENDED,
    FAILED,
    LATER,
    NEXT,
    NO_ROOM,
    PULL,
    SEEN,
    WORKFLOW,
    before,
    story,
)
from tests.support.builders.why_sights import (
    ADMITTED,
    JOBSET,
    PLANNED,
    RUN,
    TRAINING,
    cluster,
    pod,
    queued,
    running,
    sight,
    told,
    unplaced,
    waiting,
    workload,
)
from workflows.model.fleet import NodeCandidate
from workflows.model.records import Story
from workflows.model.why import ClusterSight, DriverSight, RunSight
from workflows.programs.progress.pace import StepRate


@pytest.mark.parametrize(("hold", "seen", "words"), CASES, ids=[f"{hold}-{i}" for i, (hold, _, _) in enumerate(CASES)])
def test_what_blocks_first_is_told_first(hold: Hold, seen: RunSight, words: str) -> None:
    found = explain(seen)
    first = found.reasons[0]
    assert (first.hold, words in first.sentence) == (hold, True), first.sentence
    assert first.advice or first.hold is Hold.RUNNING, "everything but a good run has something to do about it"
    assert first.witnesses or first.hold is Hold.UNKNOWN, "somebody says so"
    assert "\n" not in first.sentence


def test_every_reason_stands_in_a_table() -> None:
    from tests.unit.decisions.explain.test_held_by_queue import CASES as QUEUE_CASES

    assert {hold for hold, _, _ in CASES} | {hold for hold, _, _ in QUEUE_CASES} == set(Hold)


def test_the_pool_s_nodes_say_what_the_scheduler_does_not_name() -> None:
    found = explain(sight(cluster(pods=(unplaced(NO_ROOM),)))).reasons[0]
    nodes = {item.name: item.message for item in found.witnesses if item.kind == "Node"}
    assert nodes == {"node-1": "quarantined: Xid 79 twice"}
    assert [item.message for item in found.witnesses if item.kind == "Pool"] == ["1 of 2 nodes"]


def test_a_gang_half_of_which_is_placed_says_so() -> None:
    found = explain(sight(cluster(pods=(unplaced(NO_ROOM), *running(2)[1:]))))
    assert "1 of the same role are placed and wait for the others" in found.reasons[0].sentence


def test_one_reason_for_all_pods_that_hear_nearly_the_same() -> None:
    other = NO_ROOM.replace("2 Insufficient", "1 Insufficient").replace("4 node", "5 node")
    pods = (unplaced(NO_ROOM), unplaced(other, 1), pod(2))
    assert [reason.hold for reason in explain(sight(cluster(pods=pods))).reasons] == [Hold.RESOURCES]


def test_training_that_makes_steps_is_held_by_nothing() -> None:
    pods = (*running(2), waiting("ImagePullBackOff", PULL, 2))
    found = explain(sight(cluster(pods=pods), TRAINING, step=120, last_step_at=999.0, pace=StepRate(2.0, 2.0)))
    assert [reason.hold for reason in found.reasons] == [Hold.RUNNING]
    assert any("cannot be pulled" in note for note in found.notes)


def test_a_node_that_somebody_wants_empty_is_told() -> None:
    nodes = (a_node("node-0", True), a_node("node-1", True, cordoned=True))
    unused = a_node("node-9", True, cordoned=True)
    found = explain(sight(cluster(pods=running(2), nodes=(*nodes, unused)), TRAINING, step=9, pace=StepRate(2.0, 2.0)))
    assert [reason.hold for reason in found.reasons] == [Hold.RUNNING]
    [note] = found.notes
    assert note.startswith("node-1 is cordoned: the run moves away as soon as others are free")
    assert note.endswith("false`")
    others = (
        NodeCandidate("node-0", "main", busy="run-1"),
        NodeCandidate("node-2", "main", quarantined="node_lost"),
        NodeCandidate("node-3", "main"),
    )
    held = cluster(pods=running(2), nodes=nodes, candidates=others)
    [note] = explain(sight(held, TRAINING, step=9, pace=StepRate(2.0, 2.0))).notes
    assert note.endswith("; not free: node-2 (quarantined: node_lost)")
    assert explain(sight(cluster(pods=running(1), nodes=nodes), TRAINING, pace=StepRate(2.0, 2.0))).notes == ()


def test_a_cluster_that_waits_and_nobody_who_drives() -> None:
    found = explain(sight(queued(workload()), driver=DEAD))
    assert [reason.hold for reason in found.reasons] == [Hold.QUEUED, Hold.UNWATCHED]
    assert "driver.log" in found.reasons[1].witnesses[0].message


def test_a_question_without_a_driver_needs_both() -> None:
    asked = story(incidents=(DECIDED,), approvals=(ASKED,), actions=(NEXT,))
    found = explain(sight(story=asked, driver=DEAD))
    assert [reason.hold for reason in found.reasons] == [Hold.APPROVAL, Hold.NO_DRIVER]
    assert f"primus approve {ASKED.id} --why" in found.reasons[0].advice
    assert found.since == ASKED.asked_at


def test_what_could_not_be_read_is_told_and_never_counts_as_absent() -> None:
    blind = queued(None, unread=(("Workload", "workloads is forbidden"),), local_queues=(), cluster_queues=())
    found = explain(sight(blind))
    assert found.reasons[0].hold is Hold.UNQUEUED
    assert "that we may read (workloads is forbidden)" in found.reasons[0].sentence
    assert found.notes == ("Workload could not be read: workloads is forbidden",)


def test_an_ended_attempt_says_nothing_of_its_pods() -> None:
    found = explain(sight(cluster(pods=(unplaced(NO_ROOM),)), ENDED, driver=DEAD))
    assert Hold.RESOURCES not in {reason.hold for reason in found.reasons}


PODS = st.lists(
    st.sampled_from(
        [
            unplaced(NO_ROOM),
            pod(1),
            waiting("ErrImagePull", PULL),
            waiting("ContainerCreating", index=1),
            *running(2),
            pod(3, node="node-3", phase="Failed"),
            pod(4, deleted_at=5.0),
        ]
    ),
    max_size=5,
).map(tuple)
FOUND = st.one_of(
    st.none(),
    st.builds(lambda pods: cluster(pods=pods), PODS),
    st.builds(lambda pods: before(WORKFLOW, pods=pods), PODS),
    st.sampled_from([before(None), queued(None), queued(workload()), queued(ADMITTED), cluster(jobset=JOBSET)]),
)
STORIES = st.sampled_from(
    [
        story(attempts=()),
        story(attempts=(PLANNED,)),
        story(),
        story(attempts=(TRAINING,)),
        story(attempts=(ENDED,)),
        story(incidents=(SEEN,)),
        story(incidents=(DECIDED,), actions=(NEXT,)),
        story(incidents=(DECIDED,), actions=(LATER,), paused=True),
        story(incidents=(DECIDED,), actions=(NEXT,), approvals=(ASKED,)),
        story(replace(RUN, mode=Mode.OBSERVE), attempts=(PLANNED,)),
        story(FAILED, incidents=(DECIDED,)),
    ]
)


@given(STORIES, FOUND, st.booleans(), st.sampled_from(["", "no answer"]), st.sampled_from([None, 2.0]))
def test_there_is_always_an_answer_in_the_order_of_blocking(
    told_story: Story, found: ClusterSight | None, alive: bool, away: str, rate: float | None
) -> None:
    pace = None if rate is None else StepRate(rate, rate)
    seen = sight(found, story=told_story, driver=DriverSight(alive=alive), away=away, pace=pace, step=5)
    answer = explain(seen)
    places = [BLOCKS_FIRST[reason.hold] for reason in answer.reasons]
    assert places
    assert places == sorted(places)
    assert (answer.state == "finished") == (told_story.run.state is RunState.FAILED)
    assert explain(seen) == answer
    if not alive and answer.state != "finished":
        holds = {reason.hold for reason in answer.reasons}
        assert holds & {Hold.NO_DRIVER, Hold.UNWATCHED}, "a missing driver is never kept silent"


def test_since_is_when_the_first_object_said_so() -> None:
    found = explain(sight(cluster(pods=(unplaced(NO_ROOM),))))
    assert found.since == told("PodScheduled", "False").at


def test_every_reason_stands_on_the_page_in_the_order_of_blocking() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "why.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [str(hold) for hold in Hold]
