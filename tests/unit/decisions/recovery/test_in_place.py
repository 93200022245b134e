"""What restarts in place change about decisions, pages and words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.recovery.liveness import last_end, started_over
from flows.decisions.recovery.odds import restart_seconds
from flows.decisions.recovery.straggler import sentences, slow_ranks_document
from flows.decisions.views.run_page import moments
from profiles.loading.load import load_run
from profiles.recovery import RecoveryProfile
from profiles.vocabulary import Action, FaultClass, Mode, RunState
from tests.support.cases.rows import rows
from workflows.model.attempt import CoordinatorFacts, Evidence, Signal
from workflows.model.cluster import Pod
from workflows.model.gang_status import JUMP_MARK, SLOWER_MARK, STRAGGLERS_MARK, GangNews, lent_restarts
from workflows.model.incidents import ended_by
from workflows.model.records import AttemptRecord, IncidentRecord, MarkRecord, RunRecord, Story
from workflows.status import RestartInPlace

RUN = RunRecord("r", RunState.RUNNING, "", "demo", {}, "d", "local", Mode.ACT, 0.0)
LIVE = AttemptRecord("r", 1, 1.0, "first", submitted_at=2.0)
AGAIN = IncidentRecord("r-a1-r1", "r", 1, 7.0, 7.1, "rank-failed", FaultClass.PROCESS_KILLED, 0.75, (("node-1", 1),),
                       evidence=("rank 1 of p ended with signal 9",), action=Action.RESTART_IN_PLACE,
                       why="restart in place 1: rank 1, from step 20", resumed_at=7.4)  # fmt: skip
ENDED = replace(AGAIN, id="r-a1-i1", detected_at=20.0, action=Action.NEW_ATTEMPT, resumed_at=25.0)


@rows("recovery/in_place")
def test_the_right_is_lent_where_the_flow_itself_might_act(
    mode: Mode, paused: bool, changes: dict[str, Any], expected: int
) -> None:
    assert lent_restarts(RecoveryProfile(**changes), mode, paused=paused) == expected


@rows("recovery/in_place")
def test_only_what_lost_steps_has_started_over(resumed: int | None, first: int | None, every: int, said: str) -> None:
    restart = RestartInPlace(1, 1.0, 2, "rank-failed", "killed", 1, "node-1", 27, resumed, first_step=first)
    facts = CoordinatorFacts(5.0, news=GangNews(restarts=(restart,)))
    demo = load_run("demo")
    run = demo.model_copy(update={"progress": demo.progress.model_copy(update={"every_steps": every})})
    assert started_over(facts, run) == said


def test_a_restart_in_place_says_nothing_of_how_long_a_new_attempt_takes() -> None:
    assert restart_seconds([AGAIN, ENDED]) == 5.0
    assert restart_seconds([AGAIN]) is None


def test_the_incidents_that_end_attempts_are_counted_without_restarts_in_place() -> None:
    assert ended_by(Story(RUN, (LIVE,), (AGAIN, ENDED)), 1) == [ENDED]
    assert last_end(Story(RUN, (LIVE,), (ENDED, AGAIN))) == ENDED
    assert last_end(Story(RUN, (LIVE,), (AGAIN,))) is None


def test_the_log_tells_a_restart_in_place_in_a_line_and_when_it_was_over() -> None:
    told = [text for key, text in moments(Story(RUN, (LIVE,), (AGAIN,))) if key.startswith(AGAIN.id)]
    assert told == [
        "restart in place 1: rank 1, from step 20: rank 1 of p ended with signal 9 (process_killed)",
        "attempt 1 trains again 0.40 s after it",
    ]


def marks(*told: tuple[str, str]) -> tuple[MarkRecord, ...]:
    return tuple(MarkRecord("r", 1, kind, float(at), text) for at, (kind, text) in enumerate(told))


SLOW = '[{"rank": 1, "node": "node-1", "ratio": 1.83, "since_step": 40, "cost_seconds": 2.0}]'


def test_the_ranks_that_lag_now_are_shown() -> None:
    told = marks(
        (STRAGGLERS_MARK, SLOW),
        (SLOWER_MARK, '{"since_step": 50, "ratio": 1.4}'),
        (JUMP_MARK, '{"step": 12, "what": "loss", "value": 50.0, "before": 2.0}'),
        (JUMP_MARK, "broken"),
    )
    status = slow_ranks_document(Story(RUN, (LIVE,), marks=told))
    assert sentences(status) == [
        "rank 1 on node-1 is slow since step 40: a step takes 1.83 times as long as on its peers",
        "all ranks are slower since step 50: a step takes 1.40 times as long as before; no single rank is the cause",
        "loss jumped at step 12: 2 to 50",
    ]
    nobody: dict[str, object] = {"stragglers": [], "slower": None, "jumps": []}
    assert (
        slow_ranks_document(Story(RUN, (LIVE,), marks=marks((STRAGGLERS_MARK, SLOW), (STRAGGLERS_MARK, "[]"))))
        == nobody
    )
    assert slow_ranks_document(Story(RUN, (replace(LIVE, ended_at=9.0),), marks=told)) == nobody, (
        "of attempts that live"
    )
    assert slow_ranks_document(Story(RUN)) == nobody


PODS = tuple(Pod(f"p{rank}", "trainer", rank, f"node-{rank}", "Running", ranks=(rank,)) for rank in range(4))


@rows("recovery/in_place")
def test_whom_a_hang_is_owed_to_is_blamed_and_a_node_only_the_second_time(
    told: str, culprits: tuple[tuple[str, int | None], ...]
) -> None:
    why = f"no progress for 31 s after step 5; {told}"
    found = diagnose(Evidence(Signal.HANG, "r", 1, 9.0, pods=PODS, detail=why))
    assert (found.fault_class, found.culprits) == (FaultClass.HANG, culprits)
    assert found.node_suspect is any(rank is None for _, rank in culprits)
