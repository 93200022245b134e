"""What a coordinator tells beyond steps: read tolerantly, written into the ledger once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.vocabulary import Action, FaultClass
from tasks.context import Right, World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.observe.objects import gang_news
from tasks.runs.in_place import (
    AT_ONCE,
    MOST,
    SAME_SPELL_SECONDS,
    IncidentWriter,
    happened,
    incident_of,
    note_restart,
    write_note,
)
from tasks.runs.state import recent_incidents
from tasks.runs.watch import failed_since
from tasks.settings import Settings
from tests.support.builders.ledgers import an_attempt, driven
from tests.support.cases.rows import rows
from workflows.model.attempt import CoordinatorFacts
from workflows.model.gang_status import JUMP_MARK, RESTART_MARK, STRAGGLERS_MARK, GangNews
from workflows.model.records import MarkRecord, Story
from workflows.model.runs import IncidentQuery
from workflows.status import CoordinatorStatus, Hang, Jump, RestartInPlace, Slower, Straggler, read_status

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

TOLD: dict[str, Any] = {
    "restarts": [
        {
            "number": 1,
            "at": 1010.0,
            "incarnation": 2,
            "kind": "rank-failed",
            "why": "rank 1 of demo-a1-trainer-0-1 ended with signal 9",
            "rank": 1,
            "node": "node-1",
            "step": 23,
            "resume_step": 20,
            "resume_from": "/c/step-20",
            "first_step": 21,
            "first_step_at": 1010.4,
            "stacks": "",
        },
        {"number": 2, "at": 1020.0, "incarnation": 3, "kind": "hang", "why": "no step for 20 s", "rank": None,
         "node": "", "step": 30, "resume_step": None, "resume_from": "", "first_step": None, "first_step_at": None,
         "stacks": ["rank 0: recv", "rank 1: sleep"]},
    ],
    "right": {"restarts": 3, "left": 1},
    "orders": [{"number": 1, "order": "restart", "why": "x"}, {"number": 3, "order": "stop", "why": "enough"}],
    "stragglers": [{"rank": 3, "node": "node-3", "ratio": 1.8, "since_step": 40, "cost_seconds": 2.5}],
    "slower": {"since_step": 50, "ratio": 1.4},
    "numeric": [{"step": 12, "what": "loss", "value": 50.0, "before": 2.0}],
    "hang": {"verdict": "confirmed", "budget_seconds": 20.0, "waited_seconds": 31.0, "phase": "step",
             "why": "no progress", "rank": 3, "node": "node-3", "stacks": "rank 3: sleep"},
}  # fmt: skip


def status_of(told: dict[str, Any]) -> CoordinatorStatus:
    status = read_status(json.dumps(told).encode())
    assert status is not None
    return status


def restart(number: int = 1, **changes: Any) -> RestartInPlace:
    why = "rank 1 of p ended with signal 9"
    first = RestartInPlace(
        number, 1000.0 + 10 * number, number + 1, "rank-failed", why, 1, "node-1", 23, 20, "/c/step-20"
    )
    return replace(first, **changes)


def test_everything_that_is_told_is_read() -> None:
    news = gang_news(status_of(TOLD))
    first, second = news.restarts
    assert (first.kind, first.rank, first.node, first.step, first.resume_step) == ("rank-failed", 1, "node-1", 23, 20)
    assert (first.first_step, first.first_step_at, first.words) == (21, 1010.4, "rank 1, from step 20")
    assert (second.kind, second.words, second.stacks) == (
        "hang", "the gang, from scratch", "rank 0: recv\nrank 1: sleep")  # fmt: skip
    assert (news.left, news.stopping, news.stop_why) == (1, True, "enough")
    assert news.stragglers == (Straggler(3, "node-3", 1.8, 40, 2.5),)
    assert news.slower is not None
    assert (news.slower.since_step, news.slower.ratio) == (50, 1.4)
    assert news.jumps == (Jump(12, "loss", 50.0, 2.0),)
    assert news.hang == Hang(31.0, "step", "confirmed", "no progress", 3, "node-3", "rank 3: sleep", None, 20.0)


@rows("tasks/runs/in_place")
def test_only_what_is_confirmed_counts_as_hung(told: str | None, verdict: str, confirmed: bool) -> None:
    hang = gang_news(status_of({"hang": {"verdict": told, "waited_seconds": 31.0}})).hang
    assert hang is not None
    assert (hang.verdict, hang.confirmed) == (verdict, confirmed)


def test_a_coordinator_of_before_tells_nothing() -> None:
    assert gang_news(status_of({})) == GangNews()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TOLD, *TOLD["restarts"][0], "order",
                                                                                 "left", "ratio"]), inner, max_size=6),
    max_leaves=25,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(list(TOLD)), JSON))
def test_nothing_that_is_told_breaks_it(told: dict[str, Any]) -> None:
    news = gang_news(status_of(told))
    assert all(item.number >= 1 for item in news.restarts)
    json.dumps([item.ratio for item in news.stragglers or ()], allow_nan=False)


def test_since_when_a_gang_is_broken_is_told_by_the_clock_of_who_listens() -> None:
    well = CoordinatorFacts(at=5.0, incarnation=1, launched_at=1.0)
    failed = replace(well, at=6.0, failed_ranks=(1,))
    assert failed_since(well, None) is None
    assert failed_since(failed, well) == 6.0
    assert failed_since(replace(failed, at=7.0), replace(failed, failed_since=6.0)) == 6.0
    again = CoordinatorFacts(at=8.0, incarnation=2, launched_at=None, news=GangNews((restart(),)))
    assert failed_since(again, replace(failed, failed_since=6.0)) == 8.0, "another incarnation begins anew"
    assert failed_since(replace(again, launched_at=8.5), again) is None, "every rank is up"


def test_a_restart_is_an_incident_that_was_decided() -> None:
    found = incident_of(an_attempt(2), restart(), 1009.0)
    assert (found.id, found.at, found.detected_at) == ("demo-a2-r1", 1009.0, 1010.0)
    assert (found.signal, found.fault_class, found.action) == (
        "rank-failed", FaultClass.PROCESS_KILLED, Action.RESTART_IN_PLACE)  # fmt: skip
    assert (found.culprits, found.fingerprint, found.charged) == ((("node-1", 1),), "signal 9", False)
    assert found.why == "restart in place 1: rank 1, from step 20"
    hung = incident_of(an_attempt(2), restart(kind="hang", why="no step", rank=None, node="", stacks="a\nb"), 1.0)
    assert (hung.fault_class, hung.culprits, hung.evidence, hung.fingerprint) == (
        FaultClass.HANG, (), ("no step", "a\nb"), "")  # fmt: skip


def test_a_fault_that_was_caused_belongs_to_the_restart_after_it() -> None:
    marks = [MarkRecord("demo", 1, "fault", at) for at in (1001.0, 1009.5, 1010.5)]
    assert happened(marks, 1, restart(), 1000.5) == 1009.5
    assert happened(marks, 1, restart(), 1009.5) == 1010.0, "the fault before was of the restart before"
    assert happened(marks, 1, restart(happened_at=1009.7), 1009.5) == 1009.7, "as its launcher saw it"
    assert happened(marks, 2, restart(), 0.0) == 1010.0


@pytest.fixture
def here(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A driver at a ledger; what would be a task of a flow run is called directly."""
    monkeypatch.setattr("tasks.runs.in_place.note_restart", note_restart.fn)
    monkeypatch.setattr("tasks.runs.in_place.write_note", write_note.fn)
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    world = World(
        Settings.from_environment({"PRIMUS_HOME": "/nowhere"}), ledger, Right("demo", fencing), count(1100.0).__next__
    )
    with standing_in(world):
        yield world


def story(here: World) -> Story:
    return here.ledger.story("demo")


def test_each_restart_is_written_once_whoever_looks(here: World) -> None:
    news = GangNews((restart(), restart(2)))
    first = IncidentWriter(an_attempt())
    first.keep(GangNews((restart(),)))
    assert first.is_new(news)
    first.keep(news)
    assert not first.is_new(news)
    before = here.ledger.changes("demo")
    first.keep(news)
    assert here.ledger.changes("demo") == before, "nothing is written without news"
    second = IncidentWriter(an_attempt())  # the flow was killed and driven again
    second.keep(news)
    assert [item.id for item in story(here).incidents] == ["demo-a1-r1", "demo-a1-r2"]
    assert [mark.at for mark in story(here).marks if mark.kind == RESTART_MARK] == [1010.0, 1020.0]
    assert story(here).open_incident is None


def test_when_it_trained_again_is_written_when_it_is_known(here: World) -> None:
    keeper = IncidentWriter(an_attempt())
    keeper.keep(GangNews((restart(),)))
    assert story(here).incidents[0].resumed_at is None
    keeper.keep(GangNews((restart(), restart(2))))
    keeper.keep(GangNews((restart(), restart(2, first_step=21, first_step_at=1020.5))))
    assert [item.resumed_at for item in story(here).incidents] == [1020.5, 1020.5], "the first one never trained"
    # One that the ledger says is over stays so.
    IncidentWriter(an_attempt()).keep(GangNews((restart(first_step=21, first_step_at=1010.9), restart(2))))
    assert [item.resumed_at for item in story(here).incidents] == [1020.5, 1020.5]


def test_ranks_that_lag_and_numbers_that_jump_are_moments(here: World) -> None:
    keeper, slow = IncidentWriter(an_attempt()), Straggler(1, "node-1", 1.5, 10)
    keeper.keep(GangNews(stragglers=()))
    assert story(here).marks == (), "nobody lags"
    keeper.keep(GangNews(stragglers=(slow,), jumps=(Jump(5, "loss", 9.0, 1.0), Jump(6, "loss", 8.0, 1.0))))
    keeper.keep(GangNews(stragglers=(replace(slow, ratio=1.7, cost_seconds=4.0),), jumps=(Jump(5, "loss", 9.0, 1.0),)))
    IncidentWriter(an_attempt()).keep(GangNews(stragglers=(slow,)))
    keeper.keep(GangNews(stragglers=()))
    kinds = [(mark.kind, json.loads(mark.detail)) for mark in story(here).marks]
    assert [kind for kind, _ in kinds].count(JUMP_MARK) == 2
    assert [len(told) for kind, told in kinds if kind == STRAGGLERS_MARK] == [1, 0]


SLOW = Straggler(1, "node-1", 1.5, 10)
ODD = GangNews(
    stragglers=(SLOW, replace(SLOW, rank=3, node="node-3")),
    slower=Slower(20, 1.4),
    jumps=(Jump(5, "loss", 9.0, 1.0), Jump(6, "gradient_norm", "nan", 1.0), Jump(7, "loss", "nan", 1.0)),
)


def told(here: World) -> list[tuple[str, str]]:
    return [(item.id, item.signal) for item in story(here).incidents]


def test_what_is_only_told_becomes_an_incident_each_once_whoever_looks(here: World) -> None:
    keeper = IncidentWriter(an_attempt())
    assert keeper.is_new(ODD)
    keeper.keep(ODD)
    assert not keeper.is_new(ODD)
    expected = [
        ("demo-a1-n1", "loss-jump"),
        ("demo-a1-n2", "gradient-norm-not-finite"),
        ("demo-a1-n3", "slow-rank"),
        ("demo-a1-n4", "slow-rank"),
        ("demo-a1-n5", "slow-gang"),
    ]
    assert sorted(told(here)) == expected
    grown = tuple(replace(one, ratio=2.0, cost_seconds=8.0) for one in ODD.stragglers or ())
    keeper.keep(replace(ODD, stragglers=grown))
    IncidentWriter(an_attempt()).keep(ODD)  # the flow was killed and driven again
    assert sorted(told(here)) == expected
    whole = story(here)
    assert (whole.open_incident, whole.troubles, whole.actions) == (None, (), ())
    assert here.ledger.incident_lines(IncidentQuery(open_only=True)) == ([], 0), "nothing is open for ever"
    assert len(here.ledger.incident_lines(IncidentQuery())[0]) == len(expected)
    assert here.ledger.window("", 0.0, 1e10).incidents == (), "no cause of anything, nobody's record"
    assert recent_incidents(1200.0) == []
    assert {item.action for item in whole.incidents} == {Action.NONE}
    assert [item.culprits for item in whole.incidents if item.signal == "slow-rank"] == [
        (("node-1", 1),), (("node-3", 3),)]  # fmt: skip
    assert not [mark for mark in whole.marks if mark.kind in ("detected", "diagnosed", "decided", RESTART_MARK)]


def test_a_rank_that_is_well_again_closes_its_incident_and_the_same_spell_opens_it_again(here: World) -> None:
    keeper = IncidentWriter(an_attempt())
    keeper.keep(GangNews(stragglers=(SLOW,)))
    assert story(here).incidents[0].over_at is None
    assert not keeper.is_new(GangNews()), "nobody looks: nothing is known"
    assert keeper.is_new(GangNews(stragglers=()))
    keeper.keep(GangNews(stragglers=()))
    [over] = story(here).incidents
    assert over.over_at is not None
    assert over.over_at > over.at
    assert not keeper.is_new(GangNews(stragglers=()))
    IncidentWriter(an_attempt()).keep(GangNews(stragglers=(SLOW,)))
    assert [item.over_at for item in story(here).incidents] == [None]
    later = IncidentWriter(an_attempt())  # well again while nobody drove
    later.keep(GangNews(stragglers=()))
    assert [item.over_at is None for item in story(here).incidents] == [False]
    assert [mark.detail for mark in story(here).marks if mark.kind == STRAGGLERS_MARK][-1] == "[]"


def test_of_each_slow_rank_one_note_is_open_and_moments_of_slowness_are_one(here: World) -> None:
    keeper, healthy = IncidentWriter(an_attempt()), GangNews(stragglers=())
    for moment in range(50):
        keeper.keep(GangNews(stragglers=(replace(SLOW, since_step=10 + moment),), slower=Slower(20 + moment, 1.4)))
        keeper.keep(GangNews(stragglers=(replace(SLOW, since_step=500 + moment),)))
        keeper.keep(healthy)
    assert [(item.signal, item.over_at is None) for item in story(here).incidents] == [
        ("slow-rank", False), ("slow-gang", False)]  # fmt: skip
    begun = here.now()
    while here.now() - begun < SAME_SPELL_SECONDS:
        pass  # the clock of this world moves when it is looked at
    again = IncidentWriter(an_attempt())
    again.keep(GangNews(stragglers=(replace(SLOW, since_step=900),)))
    assert [(item.step, item.over_at is None) for item in story(here).incidents if item.signal == "slow-rank"] == [
        (10, False), (900, True)], "another spell is another note"  # fmt: skip


def test_what_lasted_is_over_when_its_attempt_ends(here: World) -> None:
    IncidentWriter(an_attempt()).keep(ODD)
    here.ledger.update_attempt(here.fencing, "demo", 1, ended_at=1200.0, outcome="succeeded")
    assert {(item.signal, item.over_at, item.resumed_at) for item in story(here).incidents} == {
        ("loss-jump", None, None),
        ("gradient-norm-not-finite", None, None),
        ("slow-rank", 1200.0, None),
        ("slow-gang", 1200.0, None),
    }
    here.ledger.plan_attempt(here.fencing, an_attempt(2))
    here.ledger.update_attempt(here.fencing, "demo", 2, first_step=1, first_step_at=1300.0)
    assert {item.resumed_at for item in story(here).incidents} == {None}, "nothing of it was to be recovered from"


def test_a_gang_whose_figures_jump_for_ever_fills_no_ledger(here: World) -> None:
    keeper = IncidentWriter(an_attempt())
    for begin in range(0, MOST + 20, 20):
        news = GangNews(jumps=tuple(Jump(begin + n, "loss", 9.0, 1.0) for n in range(20)))
        before = len(story(here).incidents)
        keeper.keep(news)
        assert len(story(here).incidents) - before <= AT_ONCE, "the driver has other things to look at"
        while keeper.is_new(news):
            keeper.keep(news)
    assert len(story(here).incidents) == MOST
    assert not keeper.is_new(GangNews(jumps=(Jump(MOST + 19, "loss", 9.0, 1.0),)))
    assert len([mark for mark in story(here).marks if mark.kind == JUMP_MARK]) == MOST + 20


@rows("tasks/runs/in_place")
def test_a_norm_that_is_no_number_is_read(said: dict[str, Any], read: Jump | None) -> None:
    news = gang_news(status_of({"numeric": [{"step": 12, "what": "gradient_norm", **said}]}))
    assert news.jumps == (() if read is None else (read,))
