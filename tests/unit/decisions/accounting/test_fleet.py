"""The account of all runs: sums, windows that cut runs, causes, failures, cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.accounting.fleet import fleet_account
from flows.decisions.accounting.report import STRETCH_SECONDS, clip, stretches, summarise, tiles_of
from flows.decisions.accounting.tiles import totals, window
from profiles.vocabulary import FaultClass, RunState, Tile
from tests.support.builders.simulated_runs import NOON, PRICE, Simulation, resolved, twenty
from workflows.model.runs import HeldGang, LedgerWindow, RunSummary, WindowIncident, WindowRun

DAY = 86400.0
RUNS = twenty()


def summary(run: Simulation) -> RunSummary:
    return summarise(run.story, run.steps, resolved(run.nodes, run.price), run.now)


SUMMARIES = {run.name: summary(run) for run in RUNS}


def window_of(runs: list[Simulation], since: float = NOON, until: float = NOON + DAY) -> LedgerWindow:
    lived = [run for run in runs if run.begin < until and run.now > since]
    return LedgerWindow(
        since,
        until,
        tuple(WindowRun(run.name, "local", "succeeded", run.begin, run.now, None) for run in lived),
        tuple(
            HeldGang(run.name, item.applied_at, item.ended_at)
            for run in lived
            for item in run.attempts
            if item.applied_at and item.ended_at and item.applied_at < until and item.ended_at > since
        ),
        tuple(
            WindowIncident(
                run.name, item.detected_at, str(item.fault_class), str(item.action), tuple(n for n, _ in item.culprits)
            )
            for run in lived
            for item in run.incidents
            if since <= item.detected_at <= until
        ),
    )


def account(
    runs: list[Simulation], since: float = NOON, until: float = NOON + DAY, gpus: int = 512, nodes: int = 64
) -> dict[str, Any]:
    found = window_of(runs, since, until)
    return fleet_account(found, [SUMMARIES[item.run] for item in found.runs], gpus, "local", nodes)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_summary_says_what_the_tiles_say(run: Simulation) -> None:
    found = SUMMARIES[run.name]
    summed = totals(tiles_of(run.story, run.steps, run.now), 1)
    assert math.isclose(sum(found.by_state.values()), run.now - run.begin, rel_tol=1e-9)
    for state, seconds in summed.by_state.items():
        assert math.isclose(found.by_state[state.value], seconds, rel_tol=1e-9, abs_tol=1e-6)
    assert all(a.end == b.begin for a, b in zip(found.stretches, found.stretches[1:], strict=False))
    assert all(math.isclose(sum(s.by_state.values()), s.end - s.begin, abs_tol=1e-6) for s in found.stretches)


def test_every_lost_second_after_the_first_alarm_has_a_cause_and_the_start_has_none() -> None:
    run = next(item for item in RUNS if item.name == "many-nodes")
    found = SUMMARIES[run.name]
    lost = (Tile.DETECT, Tile.DIAGNOSE, Tile.RESTART, Tile.RESTORE, Tile.ROLLBACK)
    start = run.attempts[0].applied_at or 0.0
    caused = sum(found.by_state.get(state.value, 0.0) for state in lost)
    caused += sum(
        span.end - span.begin
        for span in tiles_of(run.story, run.steps, run.now)
        if span.attempt > 1 and span.state in (Tile.PREFLIGHT, Tile.QUEUE, Tile.INIT)
    )
    assert math.isclose(sum(found.lost_by_class.values()), caused, rel_tol=1e-6)
    assert start > run.begin
    assert SUMMARIES["never-failed"].lost_by_class == {}


def test_rollback_and_detection_count_for_the_incident_that_comes_after_them() -> None:
    run = next(item for item in RUNS if len(item.incidents) == 3)
    spans = tiles_of(run.story, run.steps, run.now)
    first = run.incidents[0]
    alone = [span for span in spans if span.attempt == 1 and span.state in (Tile.ROLLBACK, Tile.DETECT)]
    assert alone
    pieces = stretches(alone, run.story.incidents)
    assert {name for piece in pieces for name in piece.lost_by_class} == {str(first.fault_class)}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RUNS), st.floats(-0.2, 1.2), st.floats(0.0, 1.0))
def test_a_cut_summary_is_near_the_tiles_of_the_window(run: Simulation, begin: float, length: float) -> None:
    """Exact outside of training; within it a cut piece counts by its length."""
    whole = run.now - run.begin
    since = run.begin + begin * whole
    until = since + length * whole
    found = clip(SUMMARIES[run.name], since, until)
    inside = totals(window(tiles_of(run.story, run.steps, run.now), since, until), 1)
    assert math.isclose(sum(found.by_state.values()), inside.wall_seconds, abs_tol=1e-6)
    for state in (Tile.QUEUE, Tile.DETECT, Tile.DIAGNOSE, Tile.RESTART, Tile.RESTORE, Tile.PREFLIGHT):
        assert math.isclose(found.by_state.get(state.value, 0.0), inside.by_state.get(state, 0.0), abs_tol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RUNS), st.floats(0.0, 1.0))
def test_two_windows_side_by_side_are_one(run: Simulation, place: float) -> None:
    middle = run.begin + place * (run.now - run.begin)
    whole = SUMMARIES[run.name]
    parts = (clip(whole, run.begin, middle), clip(whole, middle, run.now))
    for state in Tile:
        both = sum(part.by_state.get(state.value, 0.0) for part in parts)
        assert math.isclose(both, whole.by_state.get(state.value, 0.0), abs_tol=1e-6)
    for word in FaultClass:
        both = sum(part.lost_by_class.get(word.value, 0.0) for part in parts)
        assert math.isclose(both, whole.lost_by_class.get(word.value, 0.0), abs_tol=1e-6)


def test_pieces_of_training_are_an_hour_long_at_most() -> None:
    run = Simulation("days", 4, nodes=2, steps_to_do=3000, step_seconds=60.0, mttf_seconds=50_000, save_every=60)
    found = summary(run)
    assert run.now - run.begin > 2 * DAY
    assert max(item.end - item.begin for item in found.stretches) <= STRETCH_SECONDS * 1.1
    assert len(found.stretches) < 400


def test_the_account_adds_up() -> None:
    found = account(RUNS)
    goodput = found["goodput"]
    assert found["run_count"] == 20
    assert goodput["capacity_gpu_hours"] == 512 * 24
    assert goodput["used_gpu_hours"] + goodput["idle_gpu_hours"] == pytest.approx(512 * 24)
    gpu_seconds = sum((run.now - run.begin) * run.nodes * 8 for run in RUNS)
    assert sum(found["states"].values()) == pytest.approx(gpu_seconds / 3600, rel=1e-6)
    assert found["states"]["productive"] == pytest.approx(goodput["productive_gpu_hours"])
    assert goodput["of_used"] == pytest.approx(goodput["productive_gpu_hours"] / goodput["used_gpu_hours"], abs=1e-5)
    assert sum(row["held_gpu_hours"] for row in found["runs"]) == pytest.approx(goodput["used_gpu_hours"], abs=1e-3)
    lost = sum(SUMMARIES[run.name].lost_by_class.get(w.value, 0.0) * run.nodes * 8 for run in RUNS for w in FaultClass)
    assert sum(row["lost_gpu_hours"] for row in found["causes"]) == pytest.approx(lost / 3600, abs=1e-3)
    assert sum(row["share"] for row in found["causes"]) == pytest.approx(1.0, abs=1e-4)
    assert [row["gpu_hours"] for row in found["runs"]] == sorted((r["gpu_hours"] for r in found["runs"]), reverse=True)


def test_failures_are_counted_over_the_days_that_nodes_trained() -> None:
    failures = account(RUNS)["failures"]
    held = sum(((i.ended_at or 0) - (i.applied_at or 0)) * run.nodes for run in RUNS for i in run.attempts) / DAY
    count = sum(len(run.incidents) for run in RUNS)
    assert failures["count"] == count
    assert failures["node_days"] == pytest.approx(held, abs=1e-5)
    assert failures["node_mttf_hours"] == pytest.approx(24 * held / count, abs=1e-5)
    assert failures["node_mttf_hours_low"] < failures["node_mttf_hours"] < failures["node_mttf_hours_high"]
    calm = account([run for run in RUNS if run.name == "never-failed"])["failures"]
    assert calm["node_mttf_hours"] is None
    assert calm["node_mttf_hours_low"] > 0
    assert calm["node_mttf_hours_high"] is None
    assert calm["spares_for_a_day"] == 2, "a day without a failure proves nothing: as nodes fail elsewhere"
    assert failures["spares_for_a_day"] == 64, "nodes that fail each hour: no number of spares is enough"
    assert account(RUNS, nodes=0)["failures"]["spares_for_a_day"] is None


def test_what_interrupted_nothing_is_no_failure() -> None:
    run = RUNS[0]
    found = window_of([run])
    quiet = [item._replace(action="none") for item in found.incidents[:1]]
    quiet += [item._replace(fault_class="scheduling") for item in found.incidents[1:2]]
    open_ = [item._replace(fault_class=None, action=None) for item in found.incidents[2:]]
    given_ = replace(found, incidents=(*quiet, *open_))
    told = fleet_account(given_, [SUMMARIES[run.name]], 0)
    assert told["failures"]["count"] == len(open_)
    counts = {row["class"]: row["count"] for row in told["causes"]}
    assert counts["unknown"] == len(open_)
    assert counts["scheduling"] == 1


def test_cost_is_of_what_was_held_at_the_price_of_the_pool() -> None:
    priced = [run for run in RUNS if run.price]
    found = account(RUNS)
    held = sum(((i.ended_at or 0) - (i.applied_at or 0)) * run.nodes * 8 for run in priced for i in run.attempts)
    (cost,) = found["cost"]
    assert cost["currency"] == "USD"
    assert cost["used"] == pytest.approx(held / 3600 * PRICE, abs=0.01)
    assert cost["used"] == pytest.approx(cost["productive"] + cost["lost"], abs=0.02)
    assert {row["run"] for row in found["runs"] if row["cost"] is not None} == {run.name for run in priced}
    assert account([run for run in RUNS if not run.price])["cost"] == []


def test_blamed_nodes_are_in_the_order_of_their_blame() -> None:
    nodes = account(RUNS)["nodes"]
    assert [row["count"] for row in nodes] == sorted((row["count"] for row in nodes), reverse=True)
    blamed = sum(len(item.culprits) for run in RUNS for item in run.incidents)
    assert sum(row["count"] for row in nodes) == blamed
    assert all(sum(row["classes"].values()) == row["count"] for row in nodes)


def test_an_empty_window_is_no_error() -> None:
    found = fleet_account(LedgerWindow(NOON, NOON + DAY, (), (), ()), (), 64, "local")
    assert found["run_count"] == 0
    assert found["goodput"]["of_capacity"] == 0.0
    assert found["goodput"]["idle_share"] == 1.0
    assert found["failures"]["node_mttf_hours"] is None
    assert (found["runs"], found["causes"], found["nodes"], found["cost"]) == ([], [], [], [])


def test_a_cluster_without_gpus_has_no_capacity_to_compare_with() -> None:
    goodput = account(RUNS, gpus=0)["goodput"]
    assert (goodput["capacity_gpu_hours"], goodput["of_capacity"], goodput["idle_share"]) == (None, None, None)
    assert goodput["of_used"] > 0


def test_a_run_that_still_holds_its_nodes_counts_to_the_windows_end() -> None:
    run = RUNS[0]
    found = replace(window_of([run]), held=(HeldGang(run.name, NOON, None),), until=NOON + 3600)
    told = fleet_account(found, [SUMMARIES[run.name]], 0)
    assert told["goodput"]["used_gpu_hours"] == run.nodes * 8
    assert told["runs"][0]["state"] == RunState.SUCCEEDED


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 0.5), st.floats(0.01, 0.5))
def test_goodput_is_a_share_whatever_the_window(begin: float, length: float) -> None:
    found = account(RUNS, NOON + begin * DAY, NOON + (begin + length) * DAY)
    for name in ("of_capacity", "of_used", "ettr", "idle_share"):
        assert 0 <= found["goodput"][name] <= 1
    for row in found["runs"]:
        assert 0 <= row["ettr"] <= row["ettr_without_queue"] <= 1
