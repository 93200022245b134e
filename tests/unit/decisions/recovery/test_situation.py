"""The situation of a run, read from its story."""

from __future__ import annotations

from dataclasses import replace

from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.odds import Tally
from flows.decisions.recovery.resume_rule import CheckpointRule
from flows.decisions.recovery.situation import situation, with_experience
from profiles.hardware import HardwareProfile
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, Mode, RunState, VerdictWord
from tests.support.builders.attempt_plans import a_cluster, a_run
from workflows.model.attempt import Evidence, PastIncident, Signal
from workflows.model.fleet import BrakeState
from workflows.model.records import AttemptRecord, CheckpointRecord, IncidentRecord, RunRecord, Story
from workflows.wire import CheckpointState, ResumeChoice

CLUSTER = a_cluster()
CPU = HardwareProfile(name="cpu", vendor="none", gpus_per_node=0, cpus_per_node=8, memory_per_node="16Gi")
RESOLVED = Resolved(run=a_run(), cluster=CLUSTER, pool=CLUSTER.pools[0], hardware=CPU)


def story(*attempts: AttemptRecord, resumed_at: float | None = None, **more: object) -> Story:
    run = RunRecord("demo", RunState.RECOVERING, "", "demo", {}, "", "local", Mode.ASK, 10.0, resumed_at=resumed_at)
    return Story(run, attempts, **more)  # type: ignore[arg-type]


def attempt(number: int, **facts: object) -> AttemptRecord:
    return AttemptRecord("demo", number, 100.0 * number, "", **facts)  # type: ignore[arg-type]


def evidence(signal: Signal = Signal.POD_FAILED, **facts: object) -> Evidence:
    return Evidence(signal, "demo", 2, 250.0, **facts)  # type: ignore[arg-type]


def saved(step: int, verdict: VerdictWord = VerdictWord.PASS, at: float = 0.0) -> CheckpointRecord:
    return CheckpointRecord("demo", step, f"/c/{step}", 1, at, verdict)


BRAKE = BrakeState(4)


def test_what_the_story_says_is_handed_on() -> None:
    past = (PastIncident("hang", "x", 3, (), 120.0, "new-attempt", True, 3),)
    told = story(attempt(1, last_step=30), attempt(2), paused=True)
    found = situation(RESOLVED, told, evidence(past=past, last_step=41), 300.0, BRAKE, 7200.0)
    assert (found.mode, found.paused, found.past, found.attempts) == (Mode.ASK, True, past, 2)
    assert found.highest_steps == (30, 41)
    assert (found.gpu_hours, found.wall_seconds, found.brake) == (2.0, 290.0, BRAKE)
    assert found.ended
    assert not situation(RESOLVED, story(), evidence(Signal.HANG), 300.0, BRAKE, 0.0).ended


def test_attempts_before_a_person_resumed_the_run_do_not_count() -> None:
    found = situation(RESOLVED, story(attempt(1), attempt(2), resumed_at=150.0), evidence(), 300.0, BRAKE, 0.0)
    assert (found.attempts, len(found.highest_steps), found.resumed_at) == (1, 1, 150.0)


def test_only_checkpoints_that_no_look_called_bad_are_usable_and_the_newest_look_counts() -> None:
    looked = [
        CheckpointState(30, "/c/30", "durable", "primus", 1, True, "bad", False, "digest"),
        CheckpointState(20, "/c/20", "durable", "primus", 1, True, "ok", True, ""),
    ]
    checkpoints = (saved(10), saved(20, at=1.0), saved(20, VerdictWord.FAIL, at=2.0))
    facts = evidence(choice=ResumeChoice("/c/20", 20, looked, "pass", ""))
    found = situation(RESOLVED, story(attempt(1), checkpoints=checkpoints), facts, 300.0, BRAKE, 0.0)
    assert found.checkpoints == ((10, "/c/10"),)


def test_after_an_unreadable_checkpoint_the_one_that_was_given_is_gone_past_also_without_its_workflow() -> None:
    given = attempt(2, resumed_from_step=30, resume_path="/c/30")
    saves = tuple(saved(step) for step in (10, 20, 30))
    found = situation(RESOLVED, story(attempt(1), given, checkpoints=saves), evidence(), 300.0, BRAKE, 0.0)
    diagnosis = Diagnosis(FaultClass.CHECKPOINT_CORRUPT, 0.9, why="it is cut off")
    decided = decide(diagnosis, replace(found, mode=Mode.ACT))
    assert (decided.action, decided.max_resume_step, decided.exclude_checkpoints) == (Action.ROLL_BACK, 20, ("/c/30",))
    assert "step 20, the next one older than /c/30" in decided.why


def test_after_a_roll_back_the_old_lineage_is_out() -> None:
    rolled = IncidentRecord(
        "demo-a1-i1", "demo", 1, 0, 0, "numeric", FaultClass.NUMERIC, step=66, action=Action.ROLL_BACK
    )
    found = situation(
        RESOLVED,
        story(
            attempt(1, last_step=90),
            attempt(2, max_resume_step=40, last_step=55),
            incidents=(rolled,),
            checkpoints=tuple(saved(step) for step in (40, 50, 60, 80)),
        ),
        evidence(),
        300.0,
        BRAKE,
        0.0,
    )
    assert [step for step, _ in found.checkpoints] == [40, 50]
    assert found.roll_back_limits == ((66, 40),)
    assert found.lineage == CheckpointRule(55, (), False, found.lineage.why)


def test_what_must_be_done_twice_and_what_the_fleet_knows_of_retries() -> None:
    trained = attempt(1, first_step=1, first_step_at=100.0, last_step=41, last_step_at=120.0)
    found = situation(RESOLVED, story(trained, checkpoints=(saved(10), saved(30))), evidence(), 300.0, BRAKE, 0.0)
    assert found.redo_seconds == 11 * 0.5
    assert situation(RESOLVED, story(attempt(1)), evidence(), 300.0, BRAKE, 0.0).redo_seconds == 0.0
    fleet = (
        IncidentRecord("a", "other", 1, 5, 5, "pod-failed", FaultClass.FABRIC, action=Action.NEW_ATTEMPT, resumed_at=9),
    )
    known = with_experience(found, fleet)
    assert (known.tallies, known.restart_seconds) == ({FaultClass.FABRIC: Tally(1, 1)}, 4.0)
