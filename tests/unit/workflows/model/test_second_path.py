"""What launchers' own logs say of a gang whose coordinator is not heard."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from workflows.model.attempt import AttemptView, CoordinatorFacts, LogSign, SecondSight
from workflows.model.cluster import Pod
from workflows.model.gang_status import GangNews
from workflows.model.liveness import (
    CALM,
    LOOK_SECONDS,
    MOST_PODS,
    Look,
    after,
    deaf_since,
    pace_seconds,
    runs,
    sample,
    sign_of,
    unheard_since,
)
from workflows.status import Hang
from workflows.wire import PhaseSeen, RankEnd, StepSeen, line

PODS = tuple(Pod(f"t-{index}", "trainer", index, f"node-{index}", "Running", ranks=(index,)) for index in range(9))
CO = Pod("c-0", "coordinator", 0, "node-9", "Running")
FACTS = CoordinatorFacts(
    at=100.0, told_at=1100.0, step=5, heard=tuple((f"t-{i}", f"node-{i}", 1099.5) for i in (0, 1, 2))
)
VIEW = AttemptView("r", 1, 100.2, jobset="Running", pods=(*PODS[:3], CO), coordinator=FACTS)


# When it is asked.


@pytest.mark.parametrize(
    ("said", "view", "expected"),
    [
        ("all run", VIEW, True),
        ("the coordinator's pod is no rank's", replace(VIEW, pods=(*PODS[:3], replace(CO, phase="Failed"))), True),
        ("a pod has failed", replace(VIEW, pods=(PODS[0], replace(PODS[1], phase="Failed"))), False),
        ("a pod waits for room", replace(VIEW, pods=(PODS[0], replace(PODS[1], phase="Pending"))), False),
        ("there are none", replace(VIEW, pods=()), False),
        ("the cluster does not answer", replace(VIEW, away="it stands still"), False),
        ("not all was told", replace(VIEW, partial=True), False),
        ("it has ended", replace(VIEW, jobset="Completed"), False),
    ],
)
def test_only_a_gang_of_which_every_pod_runs_is_asked(said: str, view: AttemptView, expected: bool) -> None:
    assert runs(view) is expected, said


@pytest.mark.parametrize(
    ("said", "view", "began", "expected"),
    [
        ("it is heard", VIEW, 50.0, None),
        ("not long enough", replace(VIEW, now=129.0), 50.0, None),
        ("long enough", replace(VIEW, now=130.0), 50.0, 100.0),
        ("the cluster was away meanwhile", replace(VIEW, now=130.0), 120.0, None),
        ("it never said a word", replace(VIEW, now=130.0, coordinator=None), 100.0, 100.0),
        ("it never did, and the pods run since a moment", replace(VIEW, now=130.0, coordinator=None), 110.0, None),
    ],
)
def test_silence_is_counted_from_the_last_word(said: str, view: AttemptView, began: float, expected: float) -> None:
    assert unheard_since(view, began, 30.0) == expected, said


def test_one_late_answer_is_no_silence_even_where_none_is_granted() -> None:
    assert unheard_since(replace(VIEW, now=100.9), 50.0, 0.0) is None
    assert unheard_since(replace(VIEW, now=101.0), 50.0, 0.0) == 100.0


def hang(verdict: str) -> GangNews:
    return GangNews(hang=Hang(40.0, "step", verdict))  # pyright: ignore[reportArgumentType]


def heard(*ages: float) -> CoordinatorFacts:
    return replace(FACTS, heard=tuple((f"t-{index}", "n", 1100.0 - age) for index, age in enumerate(ages)))


@pytest.mark.parametrize(
    ("said", "facts", "expected"),
    [
        ("it hears all", FACTS, None),
        ("one is silent: its node may be lost", heard(0.5, 0.5, 50.0), None),
        ("half of them: not more", heard(0.5, 0.5, 50.0, 50.0), None),
        ("more than half", heard(0.5, 40.0, 50.0), 60.0),
        ("all, but not for long", heard(29.0, 29.0, 29.0), None),
        ("its clock is not known", replace(heard(40.0, 40.0, 40.0), told_at=None), None),
        ("nobody has joined", replace(FACTS, heard=()), None),
        ("it suspects a hang", replace(FACTS, news=hang("suspect")), None),
        ("it suspects itself", replace(FACTS, news=hang("observer")), 60.0),
        ("it knows", replace(FACTS, news=hang("confirmed")), None),
    ],
)
def test_a_coordinator_that_answers_may_be_deaf(said: str, facts: CoordinatorFacts, expected: float | None) -> None:
    assert deaf_since(facts, 30.0) == expected, said
    assert unheard_since(replace(VIEW, coordinator=facts), 50.0, 30.0) == expected


# What is read.


def log(*reports: object) -> str:
    relayed = "2026-11-21T10:02:56.123456Z [rank0]: @primus {}\n"
    return relayed.join(f"{line(report)}\n" for report in reports)


FIRST = StepSeen(11, 50.0, rank=4, loss=float("nan"))


@pytest.mark.parametrize(
    ("said", "text", "expected"),
    [
        ("nothing", "", None),
        ("what ranks print is not believed", f"2026 [rank0]: {line(FIRST)}\n", None),
        ("broken lines", '@primus {"report": "StepSeen"}\n@primus {\n@primus []\n', None),
        ("a time that is none", '@primus {"report":"StepSeen","step":1,"at":NaN}\n', None),
        ("an end is no progress", log(RankEnd(0, 0, 60.0)), None),
        ("a step", log(FIRST), LogSign(4, 11, 50.0)),
        ("the furthest of several ranks", log(replace(FIRST, rank=5, step=12, at=49.0), FIRST), LogSign(5, 12, 50.0)),
        ("ranks started", log(PhaseSeen("init", 40.0, 4)), LogSign(4, None, 40.0, 1, "init")),
        ("a save behind a step", log(FIRST, PhaseSeen("checkpoint", 51.0, 4)), LogSign(4, 11, 51.0, 1, "checkpoint")),
        (
            "the newest incarnation alone",
            log(FIRST, StepSeen(6, 60.0, rank=4, incarnation=2)),
            LogSign(4, 6, 60.0, 2),
        ),
    ],
)
def test_the_newest_sign_of_progress(said: str, text: str, expected: LogSign | None) -> None:
    assert sign_of(text) == expected, said


LOGS = damaged(
    [log(FIRST, PhaseSeen("checkpoint", 51.0, 4)), log(RankEnd(0, 0, 60.0), StepSeen(6, 60.0, rank=4, incarnation=2))],
    ["@primus ", "\n", '"at":', "NaN", "Infinity", "1e999", "null", "[]", "{}", '"'],
)


@given(LOGS | st.text())
def test_no_log_breaks_it(text: str) -> None:
    sign = sign_of(text)
    if sign is not None:
        assert any(one.startswith("@primus ") for one in text.splitlines())
        assert math.isfinite(sign.at)
        assert sign.phase


def test_such_logs_are_read_and_refused() -> None:
    assert reaches(LOGS, lambda text: sign_of(text) is not None)
    assert reaches(LOGS, lambda text: sign_of(text) is None and "@primus " in text)


def test_the_lowest_the_highest_and_one_between_are_read() -> None:
    assert [pod.index for pod in sample((*PODS, CO), SecondSight(1.0))] == [0, 4, 8]
    assert [pod.index for pod in sample((*PODS[:2], CO), SecondSight(1.0))] == [0, 1]
    assert sample((CO,), SecondSight(1.0)) == ()


def test_where_none_of_them_tells_steps_the_whole_gang_is_asked_in_turns() -> None:
    sight, asked = SecondSight(1.0), set[str]()
    for at in range(4):
        chosen = sample(PODS, sight)
        assert len(chosen) == MOST_PODS
        asked |= {pod.name for pod in chosen}
        sight = after(sight, float(at), Look(mute=tuple(pod.name for pod in chosen)))
    assert asked == {pod.name for pod in PODS}
    assert (sight.signs, sight.unread) == ((), ()), "a log that never told anything is no gap"
    told = after(sight, 9.0, Look({"t-5": LogSign(5, 3, 1.0)}))
    assert [pod.index for pod in sample(PODS, told)] == [0, 5, 8], "whoever tells steps is asked again"


# What two looks say.


def look(step: int | None, at: float, pod: str = "t-0", incarnation: int = 1) -> Look:
    return Look({pod: LogSign(0, step, at, incarnation)})


def test_one_look_says_where_it_is_and_two_whether_it_goes_on() -> None:
    one = after(SecondSight(100.0), 130.0, look(7, 5.0))
    assert (one.step, one.still_since, one.moved, one.ever_moved) == (7, 130.0, False, False)
    same = after(one, 140.0, look(7, 5.0))
    assert (same.looks, same.still_since, same.moved) == (2, 130.0, False)
    on = after(same, 150.0, look(8, 6.0))
    assert (on.step, on.still_since, on.moved, on.longest_seconds) == (8, 150.0, True, 20.0)
    still = after(on, 180.0, look(8, 6.0))
    assert (still.still_since, still.moved, still.ever_moved) == (150.0, False, True)


@rows("workflows/model/second_path")
def test_what_counts_as_going_on(said: str, second: Look, moved: bool) -> None:
    one = after(SecondSight(100.0), 130.0, look(7, 5.0))
    assert after(one, 140.0, second).moved is moved, said


def test_a_step_that_was_pushed_out_of_the_newest_lines_stays_known() -> None:
    one = after(SecondSight(100.0), 130.0, look(7, 5.0))
    two = after(one, 140.0, Look({"t-0": LogSign(3, None, 6.0, 1, "checkpoint")}))
    assert two.signs == (("t-0", LogSign(0, 7, 6.0, 1, "checkpoint")),)
    assert after(two, 150.0, look(3, 7.0, incarnation=2)).step == 3


def test_what_could_not_be_read_is_told_until_it_can() -> None:
    one = after(SecondSight(100.0), 130.0, Look(unread={"t-0": "no answer"}, unreached=("node-0",)))
    assert (one.unread, one.unreached, one.still_since) == ((("t-0", "no answer"),), ("node-0",), None)
    two = after(one, 140.0, look(7, 5.0))
    assert (two.unread, two.unreached, two.still_since) == ((), (), 140.0)
    mute = after(two, 150.0, Look(mute=("t-0", "t-1")))
    assert [pod for pod, _ in mute.unread] == ["t-0"], "it told something before: its lines were pushed out"


def test_while_it_goes_on_looks_are_rare() -> None:
    assert pace_seconds(SecondSight(1.0), 30.0) == LOOK_SECONDS
    assert pace_seconds(SecondSight(1.0, moved=True), 30.0) == LOOK_SECONDS * CALM
    assert pace_seconds(SecondSight(1.0), 3600.0) == LOOK_SECONDS
    assert pace_seconds(SecondSight(1.0), 6.0) == 2.0
    assert pace_seconds(SecondSight(1.0), 0.0) == 1.0


SIGNS = st.builds(LogSign, st.just(0), st.none() | st.integers(1, 5), st.integers(0, 5).map(float), st.integers(1, 2))
LOOKS = st.builds(
    Look,
    st.dictionaries(st.sampled_from(["a", "b"]), SIGNS),
    st.sets(st.sampled_from(["a", "b", "c"])).map(lambda names: tuple(sorted(names))),
    st.dictionaries(st.sampled_from(["a", "b"]), st.just("away")),
)


@given(st.lists(LOOKS, max_size=12))
def test_time_only_runs_while_nothing_new_is_seen(looks: list[Look]) -> None:
    sight = SecondSight(0.0)
    for at, one in enumerate(looks, 1):
        before, sight = sight, after(sight, float(at), one)
        assert sight.looks == at
        assert sight.still_since is None or (before.still_since or 1.0) <= sight.still_since <= at
        assert (sight.still_since == at) is sight.moved or before.still_since is None
        assert not (before.still_since and not sight.moved and sight.still_since != before.still_since)
        assert {pod for pod, _ in before.signs} <= {pod for pod, _ in sight.signs}
        for pod, sign in before.signs:
            assert not sign.newer_than(dict(sight.signs)[pod]), "what was seen once stays seen"
