"""The next move of a run is named by its story alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.recovery.moves import (
    AwaitAnswer,
    CarryOut,
    Done,
    Finish,
    Plan,
    Recover,
    Rest,
    Submit,
    Watch,
    next_move,
)
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction, RunState
from workflows.model.records import (
    ActionRecord,
    ApprovalRecord,
    AttemptRecord,
    IncidentRecord,
    RequestRecord,
    RunRecord,
    Story,
)

RUN = RunRecord("r", RunState.RUNNING, "", "demo", {}, "d", "local", Mode.ACT, 0.0)
PLANNED = AttemptRecord("r", 1, 1.0, "first")
LIVE = replace(PLANNED, submitted_at=2.0)
ENDED = replace(LIVE, ended_at=9.0, outcome="node_lost")
SECOND = AttemptRecord("r", 2, 10.5, "whatever people may read here", incident="r-a1-i1")
WISHED = replace(SECOND, incident="")
OBSERVED = replace(RUN, mode=Mode.OBSERVE)
SEEN = IncidentRecord("r-a1-i1", "r", 1, 8.0, 8.1, "node-not-ready")
AGAIN = IncidentRecord("r-a1-r1", "r", 1, 7.0, 7.1, "rank-failed", FaultClass.PROCESS_KILLED,
                       action=Action.RESTART_IN_PLACE, why="restart in place 1: rank 1, from step 20")  # fmt: skip
LAGS = IncidentRecord("r-a1-n1", "r", 1, 8.2, 8.2, "slow-rank", FaultClass.STRAGGLER, 0.9, (("node-1", 1),),
                      action=Action.NONE, why="told only")  # fmt: skip
DECIDED = replace(SEEN, fault_class=FaultClass.NODE_LOST, action=Action.NEW_ATTEMPT, why="w")
NEXT = ActionRecord("r-a1-i1-new-attempt", "r", SEEN.id, Action.NEW_ATTEMPT, "", "planned", "w", 8.2)
NODE = ActionRecord("r-a1-i1-quarantine-n", "r", SEEN.id, NodeAction.QUARANTINE, "n", "planned", "w", 8.2)
ASKED = ApprovalRecord("r-a1-i1-approval", "r", SEEN.id, "really?", "waiting", 8.2, 100.0)
STOP = RequestRecord("s", "r", "stop", 5.0, "enough")


def story(**parts: object) -> Story:
    return replace(Story(run=RUN), **parts)  # pyright: ignore


@pytest.mark.parametrize(
    ("said", "told", "move"),
    [
        ("a run without attempts plans the first", story(), Plan(1, "first", None)),
        ("a planned attempt is submitted", story(attempts=(PLANNED,)), Submit(PLANNED)),
        ("a submitted attempt is watched", story(attempts=(LIVE,)), Watch(LIVE)),
        ("a new incident is examined", story(attempts=(LIVE,), incidents=(SEEN,)), Recover(SEEN)),
        ("after a restart in place it is watched on", story(attempts=(LIVE,), incidents=(AGAIN,)), Watch(LIVE)),
        ("what comes after one is examined", story(attempts=(LIVE,), incidents=(AGAIN, SEEN)), Recover(SEEN)),
        ("also where one is told of later", story(attempts=(LIVE,), incidents=(SEEN, AGAIN)), Recover(SEEN)),
        (
            "what was decided is carried out, the node first",
            story(attempts=(LIVE,), incidents=(DECIDED,), actions=(NODE, NEXT)),
            CarryOut(DECIDED, (NODE, NEXT)),
        ),
        (
            "what was done is not done again",
            story(attempts=(LIVE,), incidents=(DECIDED,), actions=(replace(NODE, state="done"), NEXT)),
            CarryOut(DECIDED, (NEXT,)),
        ),
        (
            "after the last action the next attempt is planned",
            story(attempts=(ENDED,), incidents=(DECIDED,), actions=(replace(NEXT, state="done"),)),
            Plan(2, "new-attempt: w", DECIDED),
        ),
        (
            "a question waits for its answer before anything is done",
            story(attempts=(LIVE,), incidents=(DECIDED,), actions=(NEXT,), approvals=(ASKED,)),
            AwaitAnswer(ASKED),
        ),
        (
            "who stops the run needs no answer",
            story(
                attempts=(LIVE,),
                incidents=(DECIDED,),
                actions=(NEXT,),
                approvals=(ASKED,),
                requests=(STOP,),
            ),
            Finish(RunState.STOPPED, "enough"),
        ),
        (
            "a yes carries it out",
            story(
                attempts=(LIVE,), incidents=(DECIDED,), actions=(NEXT,), approvals=(replace(ASKED, state="approved"),)
            ),
            CarryOut(DECIDED, (NEXT,)),
        ),
        (
            "a pause holds what was decided",
            story(attempts=(LIVE,), incidents=(DECIDED,), actions=(NEXT,), paused=True),
            Rest("paused: new-attempt waits for `primus unpause r`"),
        ),
        ("a pause does not stop the watching", story(attempts=(LIVE,), paused=True), Watch(LIVE)),
        (
            "mode observe does what a person asked for: the first attempt",
            story(run=OBSERVED, attempts=(PLANNED,)),
            Submit(PLANNED),
        ),
        (
            "mode observe does what a person asked for: the first attempt after a resume",
            story(run=replace(OBSERVED, resumed_at=10.0), attempts=(ENDED, WISHED), incidents=(DECIDED,)),
            Submit(WISHED),
        ),
        (
            "mode observe submits no attempt that answers an incident",
            story(run=OBSERVED, attempts=(ENDED, SECOND), incidents=(DECIDED,)),
            Rest("mode observe: submit is recorded but not carried out"),
        ),
        (
            "a resume asks for one attempt and no more",
            story(run=replace(OBSERVED, resumed_at=8.5), attempts=(ENDED, SECOND), incidents=(DECIDED,)),
            Rest("mode observe: submit is recorded but not carried out"),
        ),
        (
            "mode observe does nothing that was decided",
            story(
                run=OBSERVED, attempts=(LIVE,), incidents=(DECIDED,), actions=(NODE, replace(NEXT, state="recorded"))
            ),
            Rest("mode observe: quarantine is recorded but not carried out"),
        ),
        (
            "mode observe stops what a person stops",
            story(run=OBSERVED, attempts=(LIVE,), incidents=(DECIDED,), actions=(NEXT,), requests=(STOP,)),
            Finish(RunState.STOPPED, "enough"),
        ),
        (
            "a pause holds no stop",
            story(attempts=(LIVE,), incidents=(DECIDED,), actions=(NEXT,), requests=(STOP,), paused=True),
            Finish(RunState.STOPPED, "enough"),
        ),
        (
            "a pause holds the first attempt too",
            story(attempts=(PLANNED,), paused=True),
            Rest("paused: submit waits for `primus unpause r`"),
        ),
        (
            "giving up ends the run as failed",
            story(
                attempts=(ENDED,),
                incidents=(replace(DECIDED, action=Action.GIVE_UP),),
                actions=(replace(NEXT, kind=Action.GIVE_UP, state="done"),),
            ),
            Finish(RunState.FAILED, "w"),
        ),
        (
            "nothing to do about an incident means to go on watching",
            story(attempts=(LIVE,), incidents=(replace(DECIDED, action=Action.NONE),)),
            Watch(LIVE),
        ),
        (
            "a completed attempt ends the run",
            story(attempts=(replace(ENDED, outcome="succeeded"),)),
            Finish(RunState.SUCCEEDED, "attempt 1 completed"),
        ),
        (
            "a stopped attempt ends the run as stopped",
            story(attempts=(replace(ENDED, outcome="stopped"),), requests=(STOP,)),
            Finish(RunState.STOPPED, "enough"),
        ),
        ("a stop before the first attempt", story(requests=(STOP,)), Finish(RunState.STOPPED, "enough")),
        (
            "a stop during a recovery wins over the next attempt",
            story(attempts=(ENDED,), incidents=(DECIDED,), actions=(replace(NEXT, state="done"),), requests=(STOP,)),
            Finish(RunState.STOPPED, "enough"),
        ),
        (
            "a person's resume starts a new attempt whatever happened before",
            story(
                run=replace(RUN, resumed_at=10.0),
                attempts=(ENDED,),
                incidents=(replace(DECIDED, action=Action.GIVE_UP),),
            ),
            Plan(2, "resumed by a person", None),
        ),
        ("an ended run is done", story(run=replace(RUN, state=RunState.FAILED, why="x")), Done(RunState.FAILED, "x")),
    ],
)
def test_the_story_names_the_move(said: str, told: Story, move: object) -> None:
    assert next_move(told) == move, said


def test_a_no_stops_the_run_and_does_nothing() -> None:
    told = story(
        attempts=(LIVE,),
        incidents=(DECIDED,),
        actions=(replace(NEXT, state="refused"),),
        approvals=(replace(ASKED, state="denied", why="not now"),),
    )
    move = next_move(told)
    assert isinstance(move, Finish)
    assert move.state is RunState.STOPPED
    assert "not now" in move.why


ATTEMPTS = st.sampled_from(
    [(), (PLANNED,), (LIVE,), (ENDED,), (ENDED, SECOND), (ENDED, WISHED), (replace(ENDED, outcome="succeeded"),)]
)
INCIDENTS = st.sampled_from([(), (SEEN,), (DECIDED,), (replace(DECIDED, action=Action.GIVE_UP),)])
ACTIONS = st.sampled_from(
    [(), (NEXT,), (replace(NEXT, state="done"),), (NODE, NEXT), (replace(NEXT, state="recorded"),)]
)


@given(ATTEMPTS, INCIDENTS, ACTIONS, st.booleans(), st.sampled_from(list(Mode)), st.booleans())
def test_nothing_that_was_decided_is_done_while_paused_or_observing(
    attempts, incidents, actions, paused, mode, stop
) -> None:
    told = story(
        run=replace(RUN, mode=mode),
        attempts=attempts,
        incidents=incidents if attempts else (),
        actions=actions,
        paused=paused,
        requests=(STOP,) if stop else (),
    )
    move = next_move(told)
    assert next_move(told) == move
    if paused:
        assert not isinstance(move, Submit | CarryOut)
    if mode is Mode.OBSERVE:
        assert not isinstance(move, CarryOut)
        assert not isinstance(move, Submit) or not move.attempt.incident


def test_an_incident_without_a_decision_is_open_also_behind_a_restart_in_place() -> None:
    assert story(incidents=(AGAIN,)).open_incident is None
    assert story(incidents=(SEEN, AGAIN)).open_incident == SEEN
    assert story(incidents=(DECIDED, AGAIN)).open_incident is None


@pytest.mark.parametrize(
    "incidents",
    [
        (),
        (SEEN,),
        (DECIDED,),
        (AGAIN,),
        (replace(DECIDED, action=Action.GIVE_UP),),
        (replace(SEEN, action=Action.NONE),),
    ],
)
def test_what_is_only_told_changes_no_move(incidents: tuple[IncidentRecord, ...]) -> None:
    for attempt in (LIVE, ENDED):
        told = story(attempts=(attempt,), incidents=(*incidents, LAGS, replace(LAGS, id="n2", signal="loss-jump")))
        without = story(attempts=(attempt,), incidents=incidents)
        assert next_move(told) == next_move(without)
        assert told.open_incident == without.open_incident
        assert told.troubles == incidents
