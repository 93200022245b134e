"""Slow ranks, slow gangs and figures that jump, from what ranks report."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from profiles.vocabulary import Action, FaultClass
from tasks.observe.objects import coordinator_facts
from tests.support.builders.ledgers import an_attempt
from tests.support.builders.restarting_gangs import gang, told
from workflows.model.incidents import notes_of
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.reducer import advance
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.state import LauncherJoined, Member, SlowVote, State, WindowClosed
from workflows.programs.coordinator.store import ExpectedGang as CoordinatorGang
from workflows.programs.coordinator.stragglers import (
    KEPT_JUMPS,
    WARM_ROWS,
    GangStatistics,
    JumpDetector,
    StragglerLimits,
)
from workflows.programs.launcher.reporting import step_data
from workflows.programs.progress.reader import ProgressReader, StepCounting, framework_of
from workflows.programs.runtime.http_server import Request
from workflows.status import Jump, read_status
from workflows.wire import PhaseSeen, StepSeen, from_dict

STEP_SECONDS = 0.1


@dataclass
class Gang:
    """Pods of one rank each; every rank reports each step with its own time."""

    ranks: int = 8
    state: State = field(init=False)
    numbers: GangStatistics = field(init=False)
    step: int = 0
    now: float = 100.0
    sequence: int = 10
    named_at: int | None = None
    named: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.state = gang(pods=self.ranks, lent=0)
        self.numbers = GangStatistics(self.ranks, StragglerLimits())

    def tell(self, rank: int, *reports: Any) -> None:
        self.sequence += 1
        event = told(rank, self.sequence, *reports)
        self.state, effects = advance(self.state, event)
        self.numbers.update(self.state, event, effects)

    def run(self, times: list[float], step_seconds: float | None = None, **more: Any) -> None:
        self.step += 1
        longest = max(times) if step_seconds is None else step_seconds
        self.now += longest
        for rank, own in enumerate(times):
            self.tell(rank, StepSeen(self.step, self.now, rank, seconds=longest, compute_seconds=own, **more))
        for one in self.numbers.stragglers(lambda rank: f"node-{rank}"):
            self.named.add(one.rank)
            self.named_at = self.named_at or self.step


def times(dice: random.Random, ranks: int, slow: int | None, factor: float = 2.0) -> list[float]:
    """Own times with noise of 5 %, and now and then a pause."""
    return [
        STEP_SECONDS * dice.lognormvariate(0, 0.05) * (factor if rank == slow else 1.0)
        + (0.3 if dice.random() < 0.01 else 0.0)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_of_half_the_speed_is_named_within_twenty_steps_and_nobody_else(ranks: int) -> None:
    for seed in range(20):
        dice = random.Random(seed)
        slow = dice.randrange(ranks)
        one = Gang(ranks)
        for _ in range(WARM_ROWS + 40):
            one.run(times(dice, ranks, slow))
        assert one.named == {slow}, seed
        assert one.named_at is not None
        assert one.named_at <= WARM_ROWS + 20


@pytest.mark.parametrize("every", [2, 3, 5])
def test_saves_delay_nothing_much_whenever_the_rank_became_slow(every: int) -> None:
    limit = 20 if every == 5 else 30  # two steps of three or four are left to look at
    for seed in range(20):
        dice, one = random.Random(seed), Gang(2)
        began = 30 + seed % every
        for step in range(1, began + 41):
            one.run(times(dice, 2, 1 if step > began else None))
            if step % every == 0:
                for rank in range(2):
                    one.tell(rank, PhaseSeen("checkpoint", one.now, rank, "saving"))
                    one.tell(rank, PhaseSeen("step", one.now + 0.01, rank, "saved"))
        assert one.named == {1}, seed
        assert one.named_at is not None
        assert one.named_at - began <= limit, seed


def test_in_an_even_gang_nobody_is_named() -> None:
    for seed in range(20):
        dice, one = random.Random(100 + seed), Gang()
        for _ in range(60):
            one.run(times(dice, 8, None))
        assert one.named == set(), seed


def test_what_a_slow_rank_costs_adds_up_and_says_where_and_since_when() -> None:
    one = Gang()
    for _ in range(WARM_ROWS + 39):
        one.run([0.1] * 7 + [0.2])
    (found,) = one.numbers.stragglers(lambda rank: f"node-{rank}")
    assert (found.rank, found.node, found.ratio, found.since_step) == (7, "node-7", 2.0, WARM_ROWS + 1)
    assert found.cost_seconds == pytest.approx(0.1 * 39)
    assert one.numbers.slowdown() is None


def test_a_rank_that_is_well_again_is_named_no_more() -> None:
    one = Gang()
    for own in [0.2] * 40 + [0.1] * 40:
        one.run([0.1] * 7 + [own])
    assert one.named == {7}
    assert one.numbers.stragglers(str) == []


def test_a_gang_that_becomes_slower_together_is_told_as_such_and_no_rank_is() -> None:
    dice, one = random.Random(3), Gang()
    for factor in [1.0] * 60 + [1.5] * 40:
        one.run([seconds * factor for seconds in times(random.Random(dice.random()), 8, None)], STEP_SECONDS * factor)
    slower = one.numbers.slowdown()
    assert slower is not None
    assert 58 <= (slower.since_step or 0) <= 68
    assert slower.ratio == pytest.approx(1.5, rel=0.1)
    assert one.named == set()


def test_a_gang_that_waits_for_one_rank_is_not_slower_as_a_whole() -> None:
    one = Gang()
    for own in [0.1] * 60 + [0.3] * 40:
        one.run([0.1] * 7 + [own])
    assert one.numbers.slowdown() is None
    assert one.named == {7}


def test_a_gang_of_one_rank_is_never_called_slow() -> None:
    one = Gang(1)
    for own in [0.1] * 60 + [0.4] * 80:
        one.run([own])
    assert one.numbers.slowdown() is None
    assert one.named == set()


def test_what_a_spell_has_cost_is_no_reason_to_leave_in_the_next_one() -> None:
    one = Gang()
    for own in [0.2] * 40 + [0.1] * 40 + [0.2] * 18:
        one.run([0.1] * 7 + [own])
    (found,) = one.numbers.stragglers(str)
    assert found.since_step is not None
    assert found.since_step > 78
    assert found.cost_seconds == pytest.approx(0.1 * 18, abs=0.31), "less by a window at most"


def test_a_gang_three_times_slower_is_told_as_such_also_beside_a_rank_a_tenth_slower_still() -> None:
    one = Gang()
    for factor in [1.0] * 60 + [3.0] * 100:
        one.run([0.1 * factor] * 7 + [0.1 * factor * (1.12 if factor > 1 else 1.0)])
    slower = one.numbers.slowdown()
    assert slower is not None
    assert slower.ratio == pytest.approx(3.36)
    assert one.named == {7}


def test_votes_are_remembered_and_counted_once(tmp_path: Path) -> None:
    def steps(one: Coordinator, since: int, until: int) -> None:
        for step in range(since, until):
            for rank in range(4):
                own = 0.1 if rank < 3 else 0.2
                seen = StepSeen(step, 100.0 + step, rank, seconds=0.2, compute_seconds=own)
                one.store.take(told(rank, 10 + step, seen))

    def begun() -> Coordinator:
        one = Coordinator(CoordinatorGang("trainer", 4, 1, 1000), {"PRIMUS_TOKEN": "t"})
        one.open_journal(str(tmp_path / "journal"))
        return one

    first = begun()
    for rank in range(4):
        first.store.take(LauncherJoined(1.0, Member("trainer", rank, f"pod-{rank}", f"node-{rank}")))
        first.store.take(told(rank, 1, state="running"))
    steps(first, 1, WARM_ROWS + 25)
    before = first.store.statistics[0].stragglers(str)
    assert [one.rank for one in before] == [3]
    first.close()
    second = begun()
    assert second.store.statistics[0].stragglers(str) == before
    steps(second, WARM_ROWS + 25, WARM_ROWS + 28)
    assert second.store.statistics[0].stragglers(str)[0].cost_seconds == pytest.approx(before[0].cost_seconds + 0.3)
    second.close()


def test_a_vote_that_makes_no_sense_is_no_vote() -> None:
    good = WindowClosed(5.0, 1, 9, (SlowVote(3, 0.2, 2.0),))
    assert journal.from_line(journal.to_line(good)) == good
    assert journal.from_line(
        '{"event":"Voted","at":1,"incarnation":1,"step":2,"slow":[[-1,1,2],[1,1e999,2],[2,1,0.5]]}'
    ) == (WindowClosed(1.0, 1, 2, ()))
    assert journal.from_line('{"event":"Voted","at":1,"incarnation":1,"step":2,"slow":[7]}') is None


def test_steps_beside_saves_say_nothing_about_speed() -> None:
    one = Gang()
    for number in range(1, 121):
        one.run([0.1] * 8 if number % 5 else [0.1] * 7 + [0.9], 0.1 if number % 5 else 0.9)
        if number % 5 == 4:
            one.tell(0, PhaseSeen("checkpoint", one.now, detail="saving"))
            one.tell(0, PhaseSeen("step", one.now, detail="saved"))
    assert one.numbers.stragglers(str) == []
    assert one.numbers.slowdown() is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([2.0] * 20 + [9.9], []),
        ([2.0] * 20 + [10.1], [(20, 10.1, 2.0)]),
        ([2.0] * 20 + [30.0] * 10, [(20, 30.0, 2.0)]),
        ([2.0] * 20 + [30.0, 2.0, 2.0, 30.0], [(20, 30.0, 2.0), (23, 30.0, 2.0)]),
        ([2.0] * 5 + [30.0], []),
        ([0.0] * 20 + [1.0], []),
        ([2.0] * 20 + [float("nan")] * 3, [(20, "nan", 2.0)]),
        ([float("inf")], [(0, "inf", None)]),
        ([11.0 * 0.97**number for number in range(200)], []),
    ],
)
def test_a_figure_five_times_its_recent_median_is_told_once(values: list[float], said: list[Any]) -> None:
    jumps = JumpDetector("loss")
    found = [one for step, value in enumerate(values) if (one := jumps.check(step, value)) is not None]
    assert [(one.step, one.value, one.before) for one in found] == said


def test_losses_and_gradient_norms_of_the_gang_are_looked_at() -> None:
    one = Gang(2)
    for step in range(1, 31):
        one.run([0.1, 0.1], loss=3.0 if step != 25 else 20.0, gradient_norm=1.0 if step != 27 else 8.0)
    assert one.numbers.anomalies() == [
        Jump(25, "loss", 20.0, 3.0, 1),
        Jump(27, "gradient_norm", 8.0, 1.0, 1),
    ]


def test_the_newest_jumps_are_told_however_many_there_were() -> None:
    one = Gang(2)
    for step in range(1, 3 * KEPT_JUMPS):
        one.run([0.1, 0.1], gradient_norm=1.0 if step % 2 else float("inf"))
    found = one.numbers.anomalies()
    assert len(found) == KEPT_JUMPS
    last = 3 * KEPT_JUMPS - 2
    assert found[-1] == Jump(last, "gradient_norm", "inf", 1.0, 1)


MEGATRON = (
    " iteration {step:8d}/  2000 | consumed samples: 12 | elapsed time per iteration (ms): 100.0 | lm loss: 2.5E+00 |"
    " loss scale: 1.0 | grad norm: {norm} | number of skipped iterations: 0 | number of nan iterations: 0 |"
)


@pytest.mark.parametrize("norm", ["nan", "inf"])
def test_a_norm_that_is_no_number_is_told_on_its_whole_way_and_rolls_nothing_back(norm: str) -> None:
    """From the line that a trainer prints to the incident of the flow."""
    one = Coordinator(CoordinatorGang("trainer", 1, 1, 2000), {"PRIMUS_TOKEN": "t"})
    one.store.take(LauncherJoined(1.0, Member("trainer", 0, "pod-0", "node-0")))
    one.store.take(told(0, 1, state="running"))
    reader = ProgressReader(framework_of("megatron", ""), StepCounting(steps=2000), rank=0)
    for step, printed in ((1, "0.231"), (2, norm), (3, "0.4")):
        for report in reader.feed(MEGATRON.format(step=step, norm=printed), 100.0 + step):
            if isinstance(report, StepSeen):
                sent = json.loads(json.dumps(step_data(report), allow_nan=False))
                del sent["report"]
                one.store.take(told(0, 10 + step, from_dict(StepSeen, sent)))
    answer = one.status(Request("GET", "/status", {}, "t")).body
    one.close()
    status = read_status(json.dumps(answer, allow_nan=False).encode())
    assert status is not None
    facts = coordinator_facts(status, 9.0)
    assert (facts.step, facts.first_nan_step) == (3, None), "no roll-back: loss scalers skip such a step"
    assert facts.news.jumps == (Jump(2, "gradient_norm", norm, 0.231),)
    (note,) = notes_of(an_attempt(), facts.news, 9.0)
    assert (note.signal, note.fault_class, note.action, note.step) == (
        "gradient-norm-not-finite", FaultClass.NUMERIC, Action.NONE, 2)  # fmt: skip
