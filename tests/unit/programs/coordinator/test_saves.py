"""How far a gang's saves are, what they cost and how often to save, from what its ranks and its prover report.

Checkpoint intervals: published vectors, the minimum itself, advice from measurements.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.programs.coordinator import saves as coordinator_saves
from workflows.programs.coordinator.hang_watch import Watch
from workflows.programs.coordinator.metrics import UsageByLauncher, render_metrics
from workflows.programs.coordinator.progress import Progress, after_restart, apply_report
from workflows.programs.coordinator.saves import (
    KEPT_SAVES,
    LEAST_SAVES,
    Saves,
    advice,
    daly_seconds,
    optimal_seconds,
    overhead,
    young_seconds,
)
from workflows.programs.coordinator.state import State
from workflows.programs.coordinator.status import saves
from workflows.wire import CheckpointSeen, PhaseSeen, StepSeen

Report = StepSeen | PhaseSeen | CheckpointSeen


def after(*reports: Report, since: Progress | None = None) -> Progress:
    progress = since or Progress()
    for report in reports:
        progress = apply_report(progress, report).progress
    return progress


def saved(step: int, at: float, stall: float = 0.5) -> list[Report]:
    """A step and the save after it."""
    return [StepSeen(step, at), PhaseSeen("checkpoint", at), PhaseSeen("step", at + stall)]


def proven(step: int, at: float, written_at: float | None = None, verdict: str = "pass") -> CheckpointSeen:
    return CheckpointSeen(step, f"/c/step-{step}", at, verdict, written_at=at if written_at is None else written_at)


def test_a_save_is_staged_then_written_then_durable() -> None:
    progress = after(StepSeen(20, 10.0), PhaseSeen("checkpoint", 10.0))
    assert progress.saves.staged is None, "the ranks still stand"
    progress = after(PhaseSeen("step", 10.4), since=progress)
    told = progress.saves
    assert (told.staged, told.written, told.durable) == (20, None, None)
    progress = after(StepSeen(21, 10.6), proven(20, 13.0, written_at=12.0), since=progress)
    told = progress.saves
    assert (told.staged, told.written, told.durable) == (20, 20, 20)
    assert told.stalls == pytest.approx([0.4])
    assert told.drains == pytest.approx([3.0]), "from the begin until it was proven"
    assert told.recent[-1].written_at == 12.0


def test_what_is_whole_is_written_before_it_is_durable() -> None:
    progress = after(*saved(20, 10.0), StepSeen(21, 11.0), proven(20, 12.5, written_at=12.0, verdict="unknown"))
    told = progress.saves
    assert (told.staged, told.written, told.durable) == (20, 20, None)
    assert (told.recent[-1].written_at, told.recent[-1].durable_at, told.drains) == (12.0, None, [])
    # A clock of the storage that is ahead: what was said first is not taken back when it has been read.
    progress = after(proven(20, 40.0, written_at=12.0), since=progress)
    told = progress.saves
    assert (told.written, told.durable, told.recent[-1].written_at) == (20, 20, 12.0)
    assert told.drains == pytest.approx([30.0])


def test_what_nobody_has_read_is_no_checkpoint() -> None:
    unread = proven(40, 21.0, verdict="unknown")
    progress = after(*saved(20, 10.0), proven(20, 11.0), *saved(40, 20.0), unread)
    assert (progress.last_checkpoint_step, progress.saves.written, progress.saves.durable) == (20, 40, 20)
    assert [one.step for one in progress.checkpoints] == [20]
    again = after(proven(20, 22.0, verdict="unknown"), since=progress)
    assert [(one.step, one.verdict) for one in again.checkpoints] == [(20, "pass")], "the proof stands"
    gone = after(proven(40, 30.0, verdict="fail"), since=progress)
    assert (gone.last_checkpoint_step, gone.saves.written, gone.saves.durable) == (20, 40, 20)


def test_a_save_that_is_only_whole_is_still_waited_for() -> None:
    begun, over = PhaseSeen("checkpoint", 10.0, detail="saving"), PhaseSeen("step", 10.5, detail="saved in 0.5 s")
    progress = after(StepSeen(20, 10.0), begun, over)
    assert progress.unproven
    assert after(proven(20, 11.0, verdict="unknown"), since=progress).unproven
    assert not after(proven(20, 12.0), since=progress).unproven


def test_a_save_that_ranks_did_not_finish_is_none() -> None:
    progress = after(*saved(20, 10.0), StepSeen(40, 20.0), PhaseSeen("checkpoint", 20.0))
    progress = after_restart(progress, 20.2).progress
    assert [one.step for one in progress.saves.recent] == [20]
    progress = after(StepSeen(21, 25.0), *saved(40, 30.0, 0.1), proven(40, 31.0), since=progress)
    assert progress.saves.count == 2
    assert progress.saves.drains == pytest.approx([1.0]), "of the second try"


def test_several_that_are_told_newest_first_leave_the_newest_the_durable_one() -> None:
    progress = after(*saved(20, 10.0), *saved(40, 20.0), proven(40, 22.0), proven(20, 22.5))
    assert (progress.last_checkpoint_step, progress.saves.durable, progress.saves.written) == (40, 40, 40)
    assert progress.saves.drains == pytest.approx([12.5, 2.0])


def test_what_is_taken_back_is_durable_no_more() -> None:
    progress = after(*saved(20, 10.0), proven(20, 11.0), *saved(40, 20.0), proven(40, 21.0))
    progress = after(proven(40, 22.0, verdict="fail"), since=progress)
    assert (progress.last_checkpoint_step, progress.saves.durable, progress.saves.written) == (20, 20, 40)


def test_a_checkpoint_of_an_earlier_attempt_measures_nothing() -> None:
    progress = after(proven(20, 9.0, written_at=3.0), StepSeen(21, 10.0), *saved(40, 20.0))
    assert progress.saves.drains == []
    assert progress.saves.durable == 20


def test_a_program_that_prints_every_tenth_step_saves_between_two() -> None:
    rows = [StepSeen(10, 1.0), StepSeen(20, 2.0), PhaseSeen("checkpoint", 2.5), PhaseSeen("step", 2.6)]
    assert after(*rows, proven(25, 3.0)).saves.drains == pytest.approx([0.5])
    assert after(*rows, proven(35, 3.0)).saves.drains == [], "no save of ours"


def test_a_storage_whose_clock_is_ahead_writes_no_later_than_it_was_read() -> None:
    one = after(*saved(20, 10.0), proven(20, 11.0, written_at=99.0)).saves.recent[-1]
    assert (one.written_at, one.durable_at) == (11.0, 11.0)


def trained(stall: float, between: int, count: int) -> Progress:
    """`count` saves, steps of a second."""
    progress, at = Progress(), 0.0
    for number in range(1, count * between + 1):
        at += 1.0
        progress = after(StepSeen(number, at), since=progress)
        if number % between == 0:
            progress = after(PhaseSeen("checkpoint", at), PhaseSeen("step", at + stall), since=progress)
            at += stall
            progress = after(proven(number, at + 0.1), since=progress)
    return progress


def test_advice_is_daly_s_from_what_was_measured() -> None:
    progress = trained(stall=10.0, between=30, count=4)
    assert progress.step_seconds == pytest.approx(1.0)
    found = coordinator_saves.advice_for(progress.saves, progress.step_seconds, 24 * 3600.0)
    assert found is not None
    # Daly: sqrt(2 * 10 * 86400) = 1314.5 s, times 1.0025, less the save itself
    assert found.steps == 1308
    assert found.change
    few = trained(stall=10.0, between=30, count=2)
    early = coordinator_saves.advice_for(few.saves, few.step_seconds, 24 * 3600.0)
    assert early is not None
    assert not early.measured
    assert coordinator_saves.advice_for(progress.saves, progress.step_seconds, 0.0) is None, "nobody knows the failures"
    assert coordinator_saves.advice_for(Saves(), 1.0, 3600.0) is None


def test_status_and_metrics_tell_it() -> None:
    state = State("trainer", mttf_seconds=24 * 3600.0, progress=trained(stall=10.0, between=30, count=4))
    told = saves(state)
    assert {key: getattr(told, key) for key in ("staged", "written", "durable", "count", "steps_between")} == {
        "staged": 120, "written": 120, "durable": 120, "count": 4, "steps_between": 30}  # fmt: skip
    assert told.stall_seconds == pytest.approx(10.0)
    assert told.advice is not None
    assert told.advice.change
    text = render_metrics(state, {}, UsageByLauncher(), Watch(), [], 0.0)
    assert 'primus_gang_save_step{stage="durable"} 120\n' in text
    assert "primus_gang_saves_total 4\n" in text
    assert f"primus_gang_save_advised_steps {told.advice.steps}\n" in text
    assert "advised" not in render_metrics(State("trainer"), {}, UsageByLauncher(), Watch(), [], 0.0)


@given(st.lists(st.one_of(
    st.builds(StepSeen, st.integers(0, 99), st.floats(0, 100), rank=st.integers(0, 2)),
    st.builds(PhaseSeen, st.sampled_from(["checkpoint", "step", "restore", "init", "ended"]), st.floats(0, 100),
              rank=st.integers(0, 2)),
    st.builds(proven, st.integers(0, 99), st.floats(0, 100), st.floats(0, 200),
              st.sampled_from(["pass", "fail", "unknown"])),
), max_size=60))  # fmt: skip
def test_whatever_is_told_figures_are_figures(reports: list[Report]) -> None:
    known = after(*reports).saves
    assert len(known.recent) <= KEPT_SAVES
    assert all(seconds > 0 for seconds in known.stalls)
    assert all(seconds >= 0 for seconds in known.drains)
    assert known.durable is None or any(
        isinstance(one, CheckpointSeen) and one.step == known.durable for one in reports
    )
    assert sum(one.stall_seconds is None for one in known.recent) <= 1, "one save at a time"


MINUTE, HOUR = 60.0, 3600.0
STALLS, MTTFS = st.floats(1e-3, 1e4), st.floats(1.0, 1e8)


@pytest.mark.parametrize(
    ("mttf_minutes", "daly", "young", "exact"),
    [(24 * 60, 116.7, 120.0, 116.69), (6 * 60, 56.7, 60.0, 56.71), (15, 9.1, 12.2, 9.17)],
)
def test_the_figures_of_dalys_paper(mttf_minutes: float, daly: float, young: float, exact: float) -> None:
    given_figures = (5 * MINUTE, mttf_minutes * MINUTE)
    assert daly_seconds(*given_figures) / MINUTE == pytest.approx(daly, abs=0.06)
    assert young_seconds(*given_figures) / MINUTE == pytest.approx(young, abs=0.06)
    assert optimal_seconds(*given_figures) / MINUTE == pytest.approx(exact, abs=6e-3)


@settings(deadline=None)
@given(STALLS, MTTFS, st.floats(0.5, 0.99))
def test_no_other_interval_costs_less(stall: float, mttf: float, share: float) -> None:
    best = optimal_seconds(stall, mttf)
    least = overhead(best, stall, 0.0, mttf)
    assert all(overhead(best * factor, stall, 0.0, mttf) >= least * (1 - 1e-9) for factor in (share, 1 / share))
    assert 0 < best <= mttf


def test_advice_waits_for_measurements_and_for_a_gain() -> None:
    early = advice([1.0] * (LEAST_SAVES - 1), [], 1.0, 100, 1e5)
    assert (early.steps, early.change) == (100, False)
    assert "saves measured" in early.why
    for step, mttf in ((math.nan, 1e5), (0.0, 1e5), (1.0, 0.0), (1.0, math.inf)):
        assert not advice([1.0] * 9, [], step, 100, mttf).change
    # d = 5 min, M = 6 h, 10 s steps: 56.71 min = 340 steps; every 30 steps costs twice the time
    often = advice([300.0] * 3, [], 10.0, 30, 6 * HOUR)
    assert (often.steps, often.change) == (340, True)
    cost = [overhead(steps * 10.0, 300.0, 600.0, 6 * HOUR) for steps in (30, 340)]
    assert often.gain == pytest.approx(1 - cost[1] / cost[0])
    near = advice([300.0] * 3, [], 10.0, 330, 6 * HOUR)
    assert (near.steps, near.change) == (340, False), "a gain below a hundredth is no reason"


def test_background_saves_never_overtake_each_other() -> None:
    found = advice([0.05] * 3, [95.0, 90.0, 100.0], 1.0, 10, 1e4)
    assert found.steps == 95
    assert found.change
    assert advice([0.05] * 3, [94.5] * 3, 2.0, 10, 1e4).steps == 48, "rounded up: the drain is a floor"


@settings(deadline=None)
@given(st.lists(STALLS, min_size=3, max_size=9), st.floats(0.01, 100), st.integers(1, 10_000), MTTFS)
def test_advice_never_makes_it_worse(stalls: list[float], step: float, between: int, mttf: float) -> None:
    found = advice(stalls, [], step, between, mttf)
    assert found.steps >= 1
    assert 0 <= found.gain <= 1
    if found.change:
        stall = sorted(stalls)[len(stalls) // 2]
        assert overhead(found.seconds, stall, 1.0, mttf) < overhead(between * step, stall, 1.0, mttf)
