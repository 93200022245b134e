"""Rates are those of the program, however many of its lines are read at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.screen.live import trend_of
from flows.decisions.accounting.advice import measured
from flows.decisions.accounting.report import curve_of
from flows.decisions.diagnosis.step_times import falls_of
from flows.decisions.node_tests.trial import TrialObservation, rate_of
from flows.decisions.views.run_page import _speeds  # pyright: ignore[reportPrivateUsage]
from flows.decisions.views.status import Surroundings, status_of
from flows.pages.plots import throughput
from profiles.loading.load import load_cluster, load_run, resolve
from profiles.vocabulary import RunState
from tests.support.builders.ledgers import a_run, an_attempt
from tests.support.builders.restarting_gangs import gang, told
from workflows.model.records import StepRow, Story
from workflows.programs.coordinator.reducer import advance
from workflows.programs.coordinator.state import State
from workflows.programs.coordinator.step_change import GangPace
from workflows.programs.progress.pace import pace_of, step_seconds
from workflows.wire import StepSeen

RESOLVED = resolve(load_run("demo").model_copy(update={"steps": 100000}), load_cluster("local"))
READ_SECONDS = 0.1
RATES = [0.5, 3.0, 12.0, 40.0, 150.0, 900.0]


def read(rate: float, seconds: float = 40.0, every: float = READ_SECONDS, begin: float = 1000.0) -> list[StepRow]:
    """Steps of a program at this rate, whose output is looked at so often."""
    done = [begin + step / rate for step in range(1, int(seconds * rate) + 1)]
    looks = [begin + (int((at - begin) / every) + 1) * every for at in done] if rate * every > 1 / 20 else done
    return [StepRow(step, at) for step, at in enumerate(looks, 1)]


def statistics_of(rows: list[StepRow]) -> State:
    state = gang(pods=1, lent=0)
    for number, row in enumerate(rows[-5000:], 10):
        state = advance(state, told(0, number, StepSeen(row.step, row.at, 0))).state
    return state


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_is_the_programs(rate: float) -> None:
    rows = read(rate)
    status = status_of(
        Story(a_run(state=RunState.RUNNING), attempts=(an_attempt(),)), RESOLVED, Surroundings(rows[-1].at, steps=rows)
    )
    told_rates = {
        "status": status["steps_per_second"],
        "seconds to go": (100000 - rows[-1].step) / status["eta_seconds"],
        "a trial": rate_of(TrialObservation("r", ("n",), len(rows), rows=tuple(rows))),
        "usual step": 1 / (step_seconds((row.step, row.at) for row in rows) or 0.0),
        "coordinator": statistics_of(rows).progress.steps_per_second,
    }
    assert told_rates == pytest.approx(dict.fromkeys(told_rates, rate), rel=0.05)
    lately = statistics_of(rows).progress.step_seconds
    assert lately == pytest.approx(1 / rate, rel=0.25), "of the newest 32 readings"
    for drawn in (trend_of(rows).rates, [one for _, one in _speeds(rows)]):
        assert drawn
        assert sum(drawn) / len(drawn) == pytest.approx(rate, rel=0.1)
        assert max(drawn) <= max(1.25, 1 + 2 / rate) * rate


@pytest.mark.parametrize("rate", [40.0, 150.0])
def test_the_plot_of_a_short_run_has_no_peaks_that_never_were(rate: float) -> None:
    plot = throughput(curve_of({1: read(rate, seconds=6.0)}))
    assert plot is not None
    assert float(plot.left[0].removesuffix("/s")) <= 1.5 * rate


@pytest.mark.parametrize("rate", RATES)
def test_a_steady_program_becomes_no_slower(rate: float) -> None:
    lasts = min(300.0, 20000 / rate)
    rows = read(rate, lasts)
    assert falls_of(rows) == ()
    pace, before = GangPace(), rows[0]
    for row in rows[1:]:
        pace, before = pace.with_steps(row.step, row.step - before.step, row.at - before.at), row
        assert pace.slower is None
    slower = [*rows, *(replace(row, step=row.step + rows[-1].step) for row in read(rate / 2, lasts, begin=rows[-1].at))]
    pace, before = GangPace(), rows[0]
    for row in slower[1:]:
        pace, before = pace.with_steps(row.step, row.step - before.step, row.at - before.at), row
    assert pace.slower is not None
    assert pace.slower.after_seconds / pace.slower.before_seconds == pytest.approx(2.0, rel=0.15)


def test_a_pause_is_in_the_time_to_go_and_not_in_the_present_rate() -> None:
    rows, at = list[tuple[int, float]](), 1000.0
    for step in range(1, 201):
        at += 0.1 if step % 20 else 2.1  # a save
        rows.append((step, at))
    found = pace_of(rows, at)
    assert found is not None
    assert found.steps_per_second == pytest.approx(10.0)
    assert found.whole == pytest.approx(5.0, rel=0.05)


def test_what_was_before_a_restart_is_not_the_present_pace() -> None:
    before, after = read(40.0, begin=1000.0), read(10.0, begin=1100.0)
    for step in (0, before[-1].step, 700):  # from scratch, from the last step, from a checkpoint
        rows = [(row.step, row.at) for row in before] + [(row.step + step, row.at) for row in after]
        found = pace_of(rows, after[-1].at)
        assert found is not None
        assert found == pytest.approx((10.0, 10.0), rel=0.05)
    assert pace_of([(row.step, row.at) for row in before], 1100.0) is None, "old"
    assert pace_of([(1, 10.0), (2, 10.0), (3, 10.0)], 10.0) is None, "one reading"
    assert pace_of([], 10.0) is None


def test_the_usual_step_of_a_report_is_the_programs() -> None:
    story = Story(a_run(), attempts=(an_attempt(),))
    assert measured(story, {1: read(40.0)}, (), RESOLVED, 1100.0).step_seconds == pytest.approx(1 / 40.0, rel=0.05)
