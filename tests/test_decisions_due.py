"""Which flow runs are started, and what becomes of those whose process died."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.monitoring.flow_runs import (
    GRACE_SECONDS,
    MOST_STARTS,
    Again,
    Cancel,
    Choice,
    Fate,
    GiveUp,
    Skip,
    Start,
    choose,
    look_after_plain,
)
from workflows.model.runs import Due, Phase, Plain

MISSED, OVERLAP = "missed: a later one is due already", "overlap: the one before has not ended"


def due(name: str, at: float, *, asked: bool = False) -> Due:
    """`m1`: a flow run of deployment `m`."""
    return Due(name, name[0], at, not asked)


@pytest.mark.parametrize(
    ("items", "alone", "busy", "chosen"),
    [
        pytest.param([], "", "", [], id="nothing is due"),
        pytest.param([due("m1", 1)], "m", "", [Start("m1")], id="one"),
        pytest.param(
            [due("n1", 1), due("n3", 3), due("n2", 2)],
            "n",
            "",
            [Skip("n1", MISSED), Skip("n2", MISSED), Start("n3")],
            id="missed nights are caught up once",
        ),
        pytest.param([due("m1", 1)], "m", "m", [Skip("m1", OVERLAP)], id="an overlap is skipped"),
        pytest.param([due("t1", 1)], "", "t", [Start("t1")], id="training runs may overlap"),
        pytest.param([due("m1", 1, asked=True)], "m", "m", [], id="what is asked for waits for its turn"),
        pytest.param(
            [due("a1", 1, asked=True), due("a2", 2, asked=True)],
            "",
            "",
            [Start("a1"), Start("a2")],
            id="all that people ask for",
        ),
        pytest.param(
            [due("m1", 1, asked=True), due("m2", 2)],
            "m",
            "",
            [Start("m1"), Skip("m2", OVERLAP)],
            id="what people ask for takes the place",
        ),
    ],
)
def test_what_is_started(items: list[Due], alone: str, busy: str, chosen: list[Choice]) -> None:
    assert choose(items, frozenset(alone), frozenset(busy)) == tuple(chosen)


DUES = st.lists(
    st.builds(
        Due,
        id=st.uuids().map(str),
        deployment=st.sampled_from("abc"),
        at=st.floats(0, 1e9),
        scheduled=st.booleans(),
    ),
    unique_by=lambda item: item.id,
    max_size=12,
)
SETS = st.frozensets(st.sampled_from("abc"))


@given(DUES, SETS, SETS)
def test_each_is_decided_once_and_nothing_overlaps(
    items: list[Due], alone: frozenset[str], busy: frozenset[str]
) -> None:
    chosen = choose(items, alone, busy)
    by_id = {item.id: item for item in items}
    assert len({choice.flow_run for choice in chosen}) == len(chosen)
    started = [by_id[choice.flow_run] for choice in chosen if isinstance(choice, Start)]
    for deployment in alone:
        assert len([one for one in started if one.deployment == deployment]) <= (deployment not in busy)
    for deployment in "abc":
        assert len([one for one in started if one.deployment == deployment and one.scheduled]) <= 1
    for choice in chosen:
        if isinstance(choice, Skip):
            assert by_id[choice.flow_run].scheduled, "what a person asked for is never dropped"
    undecided = {item.id for item in items} - {choice.flow_run for choice in chosen}
    assert all(not by_id[one].scheduled for one in undecided)


NOW = 1000.0
OLD = NOW - GRACE_SECONDS


@pytest.mark.parametrize(
    ("phase", "since", "begun", "works", "fleeting", "fate"),
    [
        (Phase.CLAIMED, NOW, 0, False, False, None),
        (Phase.CLAIMED, OLD, 0, False, False, Again("x", "the process that claimed it did not run it")),
        (Phase.CLAIMED, OLD, 0, False, True, Again("x", "the process that claimed it did not run it")),
        (Phase.RUNNING, OLD, 1, True, False, None),
        (Phase.RUNNING, OLD, 1, False, False, Again("x", "its process died")),
        (Phase.RUNNING, OLD, MOST_STARTS, False, False, GiveUp("x", "its process died 3 times")),
        (Phase.RUNNING, OLD, 1, False, True, GiveUp("x", "its process died; the next run does its work")),
        (Phase.CANCELLING, NOW, 1, True, False, Cancel("x")),
        (Phase.CANCELLING, NOW, 0, False, True, Cancel("x")),
        (Phase.WAITING, OLD, 0, False, False, None),
    ],
)
def test_what_becomes_of_a_flow_run(
    phase: Phase, since: float, begun: int, works: bool, fleeting: bool, fate: Fate | None
) -> None:
    seen = [Plain("x", "d", phase, since, begun)]
    working = frozenset("x" if works else "")
    found = look_after_plain(seen, working, frozenset("d" if fleeting else ""), NOW)
    assert found == (() if fate is None else (fate,))
