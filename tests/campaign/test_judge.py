"""The judge of fault campaigns: silent on a good run, and it finds each kind of thing that must never be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.accounting.report import tiles_of
from flows.decisions.accounting.tiles import totals
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction, RunState, VerdictWord
from tests.campaign.cards import ENDINGS, Fault
from tests.campaign.crew import compared
from tests.campaign.judge import KINDS, differing, judge
from tests.campaign.outcome import RunOutcome, StrikeOutcome, from_json, outcome_of, unplayed
from tests.campaign.plan import STEPS, RunPlan, Strike
from tests.campaign.report import document, text
from tests.campaign.seen import Hit, Seen
from workflows.model.records import ActionRecord, AttemptRecord, IncidentRecord, RunRecord, StepRow, Story

LOST, OTHER, SPARE = "node-0", "node-1", "node-2"
PLAN = RunPlan(7, 3, strikes=(Strike((Fault("lose-node", 0),), 20), Strike((Fault("api-away"),), 40)))
INCIDENT = IncidentRecord(
    id="c-a1-i1",
    run="c",
    attempt=1,
    at=30.0,
    detected_at=30.5,
    signal="node-not-ready",
    fault_class=FaultClass.NODE_LOST,
    culprits=((LOST, None),),
    action=Action.NEW_ATTEMPT,
    resumed_at=36.0,
)


def attempt(number: int, **facts: Any) -> AttemptRecord:
    return AttemptRecord("c", number, facts.pop("planned_at"), "", **facts)


def good(**changes: Any) -> Seen:
    """A run that lost a node at step 20, came back, and did not notice that the cluster was away."""
    run = RunRecord("c", RunState.SUCCEEDED, "all done", "story", {}, "", "local", Mode.ACT, 0.0, ended_at=120.0)
    first = attempt(1, planned_at=1.0, submitted_at=1.1, ended_at=31.0, outcome="node_lost", nodes=(LOST, OTHER))
    second = attempt(
        2, planned_at=32.0, submitted_at=32.1, ended_at=119.0, outcome="succeeded", nodes=(OTHER, SPARE),
        resumed_from_step=15, resume_proof=VerdictWord.PASS,
    )  # fmt: skip
    taken = ActionRecord("x", "c", INCIDENT.id, NodeAction.QUARANTINE, LOST, "done", "", 30.6)
    seen = Seen(
        PLAN,
        Story(run, (first, second), (INCIDENT,), (taken,)),
        {1: rows(1, 20, 9.0), 2: rows(16, STEPS, 35.0)},
        (
            Hit(0, PLAN.faults[0], 29.9, 30.0, (LOST,)),
            Hit(1, PLAN.faults[1], 60.0, 60.0),
        ),
        gpus=2,
        tainted=(LOST,),
        weights="abc",
    )
    seen = replace(seen, **changes)
    return seen if "kept" in changes else replace(seen, kept=kept(seen))


def rows(first: int, last: int, begin: float) -> list[StepRow]:
    return [StepRow(step, begin + step - first + 1) for step in range(first, last + 1)]


def kept(seen: Seen) -> dict[str, float]:
    spans = tiles_of(seen.story, seen.steps, 120.0)
    return {str(state): seconds for state, seconds in totals(spans, 1).by_state.items()}


def story(**changes: Any) -> Seen:
    seen = good()
    return good(story=replace(seen.story, **changes))


def run_is(state: RunState, why: str = "") -> Seen:
    return story(run=replace(good().story.run, state=state, why=why))


def incident_is(**changes: Any) -> Seen:
    return story(incidents=(replace(INCIDENT, **changes),))


def attempts_are(**changes: Any) -> Seen:
    first, second = good().story.attempts
    return story(attempts=(first, replace(second, **changes)))


LAGS = IncidentRecord(
    id="c-a1-n1",
    run="c",
    attempt=1,
    at=12.0,
    detected_at=12.0,
    signal="slow-rank",
    fault_class=FaultClass.STRAGGLER,
    culprits=((OTHER, 1),),
    action=Action.NONE,
)


def told(**changes: Any) -> Seen:
    """The same run, of which something was told before anything was broken."""
    return story(incidents=(replace(LAGS, **changes), INCIDENT))


TAKEN = ActionRecord("y", "c", INCIDENT.id, NodeAction.QUARANTINE, OTHER, "done", "", 30.6)
WRONG: dict[str, tuple[str, Seen]] = {
    "the player failed": ("played", good(error="GaveUpError: did not happen")),
    "a fault did not fire": ("played", good(hits=good().hits[:1])),
    "the run failed": ("end", run_is(RunState.FAILED, "gave up")),
    "the run still runs": ("end", run_is(RunState.RUNNING)),
    "another class": ("explained", incident_is(fault_class=FaultClass.HANG)),
    "no class yet": ("explained", incident_is(fault_class=None)),
    "an incident before anything was broken": ("explained", incident_is(at=10.0, detected_at=10.0)),
    "an incident after a fault that costs nothing": ("explained", incident_is(detected_at=61.0, resumed_at=62.0)),
    "a jump before anything was broken": (
        "explained",
        told(signal="loss-jump", fault_class=FaultClass.NUMERIC, culprits=()),
    ),
    "a rank that lags, charged to the run": ("explained", told(charged=True)),
    "a gang that left a slow node, though nothing was slow": (
        "explained",
        told(signal="straggler", action=Action.NEW_ATTEMPT),
    ),
    "well again before it lagged": ("order", told(over_at=11.0)),
    "a lost node of which only slow ranks were told": (
        "noticed",
        story(incidents=(replace(LAGS, at=30.6, detected_at=30.6),)),
    ),
    "a lost node that nobody noticed": ("noticed", story(incidents=())),
    "a healthy node is named": ("blame", incident_is(culprits=((OTHER, 1),))),
    "a healthy node is taken out": ("blame", story(actions=(*good().story.actions, TAKEN))),
    "a healthy node carries our quarantine": ("blame", good(tainted=(LOST, SPARE))),
    "a process lives on": ("orphans", good(orphans=("4711 python3 train.py",))),
    "the run has no end": ("tiling", story(run=replace(good().story.run, ended_at=None))),
    "no summary": ("tiling", good(kept=None)),
    "a summary of something else": ("tiling", good(kept={**kept(good()), "productive": 1.0})),
    "a summary without a state": ("tiling", good(kept={k: v for k, v in kept(good()).items() if k != "productive"})),
    "attempts with a gap": ("attempts", attempts_are(number=3)),
    "an attempt without an end": ("attempts", attempts_are(outcome=None)),
    "a resume that was not proven": ("attempts", attempts_are(resume_proof=VerdictWord.UNKNOWN)),
    "a step that the ledger does not know": ("attempts", good(steps={1: rows(1, 20, 9.0), 2: rows(22, STEPS, 35.0)})),
    "noticed before it happened": ("order", incident_is(at=31.0)),
    "resumed before it was noticed": ("order", incident_is(resumed_at=30.2)),
}


def test_a_good_run_has_nothing_wrong() -> None:
    assert judge(good()) == []


@pytest.mark.parametrize(
    "seen",
    [told(), told(over_at=13.0), told(at=61.0, detected_at=61.0), told(signal="slow-gang", culprits=())],
)
def test_ranks_that_lag_on_a_busy_machine_are_explained_where_they_are_only_told(seen: Seen) -> None:
    assert judge(seen) == []


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_thing_is_found(name: str) -> None:
    kind, seen = WRONG[name]
    assert kind in {item.kind for item in judge(seen)}, judge(seen)


def test_steps_that_a_killed_launcher_could_not_tell_are_proven_by_the_checkpoint() -> None:
    untold = {1: rows(1, 13, 9.0), 2: rows(16, STEPS, 35.0)}
    assert judge(good(steps=untold)) == []
    hits = good().hits
    noted = replace(hits[0], fault=Fault("kill-rank", 0))
    wrong = judge(replace(good(steps=untold), hits=(noted, hits[1])))
    assert "steps of which the ledger knows nothing: [14, 15]" in [one.text for one in wrong]
    gap = judge(good(steps={1: rows(1, 13, 9.0), 2: rows(17, STEPS, 35.0)}))
    assert [one.text for one in gap] == ["steps of which the ledger knows nothing: [16]"]


def test_each_look_finds_something() -> None:
    assert {kind for kind, _ in WRONG.values()} == set(KINDS)


def test_nothing_is_charged_to_a_node_that_something_was_done_to() -> None:
    both = replace(PLAN, strikes=(Strike((Fault("lose-node", 0), Fault("lose-node", 1, "together")), 20),))
    hits = tuple(Hit(0, fault, 29.9, 30.0, (node,)) for fault, node in zip(both.faults, (LOST, OTHER), strict=True))
    seen = good(plan=both, hits=hits, story=replace(good().story, actions=(*good().story.actions, TAKEN)))
    assert judge(seen) == []


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_a_run_that_must_give_up(ending: Any) -> None:
    fault = Fault("corrupt-all" if ending.fault_class is FaultClass.CHECKPOINT_CORRUPT else "exception-rank", 1)
    plan = RunPlan(7, 5, strikes=(Strike((fault,), 20),), ending=ending)
    hits = (Hit(0, fault, 29.9, 30.0, (OTHER,)),)
    last = replace(INCIDENT, fault_class=ending.fault_class, action=Action.GIVE_UP, culprits=(), resumed_at=None)

    def ends(why: str, incident: IncidentRecord = last, state: RunState = RunState.FAILED) -> set[str]:
        known = run_is(state, f"it ended: {why}").story
        seen = good(plan=plan, hits=hits, tainted=(), story=replace(known, incidents=(incident,), actions=()))
        return {item.text for item in judge(seen) if item.kind == "end"}

    assert ends(ending.words) == set()
    assert ends("for another reason") != set()
    assert ends(ending.words, replace(last, action=Action.NEW_ATTEMPT)) != set()
    assert ends(ending.words, replace(last, fault_class=FaultClass.HANG)) != set()
    assert ends(ending.words, state=RunState.SUCCEEDED) != set()


def test_weights_are_those_of_the_run_without_faults() -> None:
    assert differing("abc", "abc") == []
    assert [item.kind for item in (*differing("abc", "abd"), *differing("", "abc"), *differing("", ""))] == [
        "weights"
    ] * 3


def test_runs_that_give_up_have_no_weights_to_compare() -> None:
    plans = (RunPlan(7, 0), replace(PLAN, number=1), replace(PLAN, number=2, ending=ENDINGS[0]))
    told = [RunOutcome(number, False, weights=weights) for number, weights in enumerate(("abc", "abd", ""))]
    assert [[item.kind for item in one.violations] for one in compared(plans, told)] == [[], ["weights"], []]


def test_an_outcome_survives_the_way_to_the_report() -> None:
    outcome = outcome_of(incident_is(fault_class=FaultClass.HANG))
    assert from_json(json.loads(json.dumps(outcome.to_json()))) == outcome
    lost, away = outcome.strikes
    assert (lost.actions, lost.seconds) == (("new-attempt",), 6.0)
    assert (away.actions, away.seconds) == ((), None)


def test_the_report_has_a_row_for_each_kind_and_says_how_to_play_a_run_again() -> None:
    plans = tuple(replace(PLAN, number=number) for number in range(3))
    strikes = (StrikeOutcome("lose-node:0", ("lose-node",), ("new-attempt",), 2.0),)
    twice = (*strikes, StrikeOutcome("x", ("kill-rank", "lose-node"), ("restart-in-place",), 4.0))
    outcomes = [RunOutcome(0, False), RunOutcome(1, True, twice), unplayed(plans[2], "its player told nothing")]
    found = document(plans, outcomes, 7, 200)
    lose = next(row for row in found["kinds"] if row["fault"] == "lose-node")
    assert (lose["caused"], lose["with others"], lose["new attempts"], lose["median s"]) == (3, 1, 1, 2.0)
    assert lose["violations"] == 1
    assert found["restarts_in_place"] == 1
    said = text(found, plans, outcomes)
    assert "python -m tests.campaign --seed 7 --faults 200 --run 2" in said
    assert "WRONG played: its player told nothing" in said
    assert said.endswith("1 violations")
