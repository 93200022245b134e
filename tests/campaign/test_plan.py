"""Plans of fault campaigns: decided by the seed, complete, and such that a run bears them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiles.drill import KINDS
from tests.campaign.__main__ import main
from tests.campaign.cards import ALONE, ENDINGS, TOGETHER, Fault, faults_of
from tests.campaign.expected import EXPECTED, classes_of, must_be_noticed
from tests.campaign.plan import (
    AT_MOST,
    BETWEEN_SAVES,
    LAST_STEP,
    MAX_STRIKES,
    NODE_FAULTS,
    SAVE_EVERY,
    STEPS,
    RunPlan,
    Strike,
    campaign,
)

SEEDS = st.integers(0, 10**6)
COUNTS = st.integers(1, 300)


@given(SEEDS, COUNTS)
def test_a_seed_decides_everything_and_every_fault_is_planned(seed: int, count: int) -> None:
    plans = campaign(seed, count)
    assert plans == campaign(seed, count)
    assert sum(len(plan.faults) for plan in plans) == count
    assert [plan.number for plan in plans] == list(range(len(plans)))
    assert plans[0] == RunPlan(seed, 0), "the one that the others are compared with"
    assert all(plan.strikes for plan in plans[1:])


def test_another_seed_is_another_campaign() -> None:
    assert campaign(1, 200) != campaign(2, 200)


def test_training_outlasts_the_start_of_another_driver_where_more_follows() -> None:
    killed, other = Strike((Fault("kill-flow"),), 20), Strike((Fault("kill-rank", 1),), 40)
    slow, quick = RunPlan(1, 1, strikes=(killed, other)), RunPlan(1, 1, strikes=(other, killed))
    assert slow.step_seconds > quick.step_seconds == RunPlan(1, 0).step_seconds


@given(SEEDS)
def test_two_hundred_faults_hold_every_kind_every_meeting_and_every_ending(seed: int) -> None:
    plans = campaign(seed, 200)
    assert {fault.kind for plan in plans for fault in plan.faults} == {*KINDS, "corrupt-all"} == set(EXPECTED)
    assert {fault.moment for plan in plans for fault in plan.faults} == {
        "step",
        "saving",
        "starting",
        "together",
        "recovering",
    }
    assert {plan.ending for plan in plans} == {*ENDINGS, None}
    assert {plan.in_place for plan in plans} == {True, False}


@given(SEEDS, COUNTS)
@example(140325, 46)
def test_a_run_bears_what_is_planned(seed: int, count: int) -> None:
    for plan in campaign(seed, count)[1:]:
        kinds = Counter(fault.kind for fault in plan.faults)
        assert len(plan.strikes) <= MAX_STRIKES
        assert sum(kinds[kind] for kind in NODE_FAULTS) <= AT_MOST["node"], plan.lines
        for kind in ("disk-full", "nan-rank"):
            assert kinds[kind] <= AT_MOST[kind], plan.lines
        twice = plan.ending is not None and plan.ending.name == "no memory twice"
        assert kinds["oom-rank"] <= AT_MOST["oom-rank"] + twice, plan.lines
        assert kinds["exception-rank"] == (plan.ending is not None and "exception" in plan.ending.name)
        assert not (plan.in_place and plan.ending is not None and not plan.ending.in_place)


@given(SEEDS, COUNTS)
def test_strikes_come_one_after_the_other_and_before_the_end(seed: int, count: int) -> None:
    for plan in campaign(seed, count)[1:]:
        steps = [strike.step for strike in plan.strikes]
        assert all(later - earlier > 2 * SAVE_EVERY for earlier, later in pairwise(steps)), steps
        assert max(steps) <= LAST_STEP + SAVE_EVERY < STEPS
        for place, strike in enumerate(plan.strikes):
            first, *others = strike.faults
            assert (strike.step == 0) == (first.moment == "starting")
            assert first.moment != "starting" or place == 0
            assert first.moment != "saving" or strike.step % SAVE_EVERY == 0
            between = any(fault.kind in BETWEEN_SAVES for fault in strike.faults)
            assert not between or strike.step % SAVE_EVERY == 1
            assert {fault.moment for fault in others} <= {"together", "recovering"}


@pytest.mark.parametrize("card", [*ALONE, *TOGETHER, *(card for ending in ENDINGS for card in ending.cards)])
def test_every_card_names_faults_that_can_be_caused(card: str) -> None:
    faults = faults_of(card, (1, 0))
    for fault in faults:
        kind = KINDS.get(fault.kind)
        assert kind is not None or fault.kind == "corrupt-all", card
        assert (fault.rank is not None) == (kind is not None and kind.target in ("rank", "node")), card
        assert not fault.silent or (kind is not None and "silent" in kind.words), card
    later = [fault for fault in faults if fault.moment == "recovering"]
    assert not later or must_be_noticed(Strike(faults)), "nothing recovers from what nobody notices"


def test_a_card_in_words() -> None:
    assert faults_of("saving lose-node,silent:R + kill-rank:S > kill-flow", (1, 0)) == (
        Fault("lose-node", 1, "saving", silent=True),
        Fault("kill-rank", 0, "together"),
        Fault("kill-flow", None, "recovering"),
    )
    strike = Strike(faults_of("saving lose-node,silent:R + kill-rank:S > kill-flow", (1, 0)), 20)
    assert strike.label == "lose-node,silent:1 while saving + kill-rank:0, then kill-flow"


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_the_last_strike_of_an_ending_may_have_its_class(ending: object) -> None:
    found = next(one for one in ENDINGS if one is ending)
    assert found.fault_class in classes_of(Strike(faults_of(found.cards[-1], (0, 1))))


def test_a_campaign_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="count: must be at least 1"):
        campaign(7, 0)


def test_a_plan_is_told_without_starting_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--faults", "20", "--plan"]) == 0
    assert capsys.readouterr().out.splitlines() == [line for plan in campaign(7, 20) for line in plan.lines]
    assert main(["--seed", "7", "--faults", "20", "--plan", "--run", "2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("run 0 of seed 7")
    assert "run 2 of seed 7" in told
    assert "run 1 of" not in told


@pytest.mark.parametrize(
    "words", [["--faults", "0"], ["--workers", "0"], ["--faults", "20", "--run", "99"], ["--run", "x"]]
)
def test_a_campaign_that_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--plan"])
    assert ended.value.code == 2
