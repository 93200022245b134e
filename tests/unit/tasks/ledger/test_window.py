"""All runs of a stretch of time, read in bulk, on each kind of database; and the account that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.decisions.accounting.report import clip, summarise
from flows.report import account_of_all, capacity_of, summary_of
from profiles.errors import NotFound, ProfileError
from profiles.loading.load import load_cluster
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import HERE, a_run, an_attempt, driven, nobody_knows
from tests.support.builders.simulated_runs import NOON, Simulation, keep, resolved
from workflows.model.runs import HeldGang, RunSummary, Stretch

pytest_plugins = ["tests.support.servers.ledger_fixtures"]
DAY = 86400.0


def runs() -> list[Simulation]:
    return [Simulation(f"run-{seed}", seed, nodes=2, begin=NOON + 3600.0 * seed, steps_to_do=100) for seed in range(4)]


def test_a_window_holds_the_runs_that_lived_in_it_and_nothing_else(ledger: Ledger) -> None:
    made = runs()
    keep(ledger, made)
    found = ledger.window("local", made[1].begin - 1, made[2].now + 1)
    assert [item.run for item in found.runs] == ["run-1", "run-2"]
    assert [(item.begin, item.end) for item in found.runs] == [(run.begin, run.now) for run in made[1:3]]
    inside = made[1:3]
    expected = {(run.name, item.applied_at, item.ended_at) for run in inside for item in run.attempts}
    assert set(found.held) == {HeldGang(name, begin or 0.0, end) for name, begin, end in expected}
    told = [(item.run, item.detected_at, item.fault_class, item.action) for item in found.incidents]
    seen = [item for run in inside for item in run.incidents]
    assert told == sorted(
        ((item.run, item.detected_at, str(item.fault_class), str(item.action)) for item in seen), key=lambda row: row[1]
    )
    by_time = sorted(seen, key=lambda item: item.detected_at)
    assert [item.culprit_nodes for item in found.incidents] == [tuple(n for n, _ in item.culprits) for item in by_time]
    assert ledger.window("elsewhere", 0.0, NOON + DAY).runs == ()
    assert len(ledger.window("", 0.0, NOON + DAY).runs) == 4


def test_a_summary_is_made_once_and_read_back_as_it_was(ledger: Ledger) -> None:
    made = runs()
    keep(ledger, made)
    assert all(item.summary is None for item in ledger.window("local", NOON, NOON + DAY).runs)
    kept = {run.name: summary_of(ledger, run.name, NOON + DAY) for run in made}
    for item in ledger.window("local", NOON - 1, NOON + DAY).runs:
        summary = kept[item.run]
        assert item.summary is not None
        assert item.summary.by_state == summary.by_state
        assert item.summary.lost_by_class == summary.lost_by_class
        assert item.summary.stretches == (), "nobody asked for the pieces of a run that the window does not cut"
    middle = (made[1].begin + made[1].now) / 2
    (cut,) = [item for item in ledger.window("local", middle, NOON + DAY).runs if item.run == "run-1"]
    assert cut.summary == kept["run-1"]
    assert isinstance(kept["run-1"].stretches[0], Stretch)
    assert clip(kept["run-1"], middle, NOON + DAY).begin == middle


def test_a_run_that_was_resumed_is_not_told_by_its_old_summary(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    ledger.set_run_state("demo", fencing, RunState.FAILED, "a fault", 1100.0)
    kept = summary_of_demo(ledger, 1100.0)
    assert ledger.window("local", 0.0, 2000.0).runs[0].summary is not None
    ledger.resume_run("demo", "fixed", 1200.0)
    (living,) = ledger.window("local", 0.0, 2000.0).runs
    assert (living.end, living.summary) == (None, None)
    ledger.set_run_state("demo", fencing, RunState.SUCCEEDED, "done", 1300.0)
    assert ledger.window("local", 0.0, 2000.0).runs[0].summary is None
    again = summary_of_demo(ledger, 1300.0)
    assert (kept.end, again.end) == (1100.0, 1300.0)
    (ended,) = ledger.window("local", 0.0, 2000.0).runs
    assert ended.summary is not None
    assert ended.summary.end == 1300.0


def summary_of_demo(ledger: Ledger, end: float) -> RunSummary:
    """As `summary_of`, of a run whose profile is no real one."""
    found = summarise(ledger.story("demo"), {}, resolved(2), end)
    ledger.keep_summary(found)
    return found


def test_the_account_of_all_runs_is_the_same_before_and_after_summaries_were_kept(ledger: Ledger) -> None:
    made = runs()
    keep(ledger, made)
    told: list[str] = []
    profile = load_cluster("kubernetes-example").model_copy(update={"name": "local"})
    first = account_of_all(ledger, profile, NOON, NOON + DAY, told.append)
    kept = ledger.window("local", NOON, NOON + DAY).runs
    assert all(item.summary is not None for item in kept)
    assert account_of_all(ledger, profile, NOON, NOON + DAY, told.append) == first
    assert first["run_count"] == 4
    assert first["goodput"]["capacity_gpu_hours"] == capacity_of(profile) * 24 == (64 + 32) * 8 * 24
    assert told == []


def test_a_living_run_is_counted_until_now_and_gets_no_summary(ledger: Ledger) -> None:
    living = resolved(2).model_dump(mode="json")
    ledger.open_run(a_run("alive", resolved=living, created_at=NOON, state=RunState.RUNNING))
    fencing = ledger.acquire("alive", HERE, NOON, nobody_knows).fencing
    ledger.plan_attempt(fencing, an_attempt(run="alive", submitted_at=NOON + 10, applied_at=NOON + 20))
    told = account_of_all(ledger, None, NOON - 100, NOON + 3620, lambda _: None)
    assert told["cluster"] == ""
    assert told["goodput"]["used_gpu_hours"] == 16.0
    assert told["goodput"]["capacity_gpu_hours"] is None
    assert told["runs"][0]["ended_at"] is None
    assert ledger.window("", NOON - 100, NOON + 3620).runs[0].summary is None


def test_a_window_that_lies_in_the_future_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="--since"):
        account_of_all(Ledger(f"sqlite:///{tmp_path}/l.sqlite"), None, NOON, NOON, lambda _: None)


def test_there_is_no_summary_of_a_run_that_nobody_knows(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        summary_of(ledger, "nobody", NOON)
