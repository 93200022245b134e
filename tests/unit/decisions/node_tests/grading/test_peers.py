"""A node against its peers: who is accused, who is a measure, and when nothing is said."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.columns import Stage, column
from flows.decisions.node_tests.grading.comparisons import MAD_TO_SIGMA, by_majority, by_peers, others
from flows.decisions.node_tests.grading.model import CheckRule, Depth, Direction, Majority, NodeReadings, Peers
from tests.support.cases.rows import rows
from workflows.programs.parsers.text import ParsedOutput, Reading

FIGURES = st.floats(1.0, 1e6)


def judged(
    values: Sequence[float],
    direction: Direction = "higher_is_better",
    limit: Peers | None = None,
    hardware: Sequence[str] = (),
    sound: Sequence[bool] = (),
) -> Stage:
    rule = CheckRule("copy", Depth.DEVICE, "bandwidth", "GB/s", direction)
    kinds = hardware or ["h"] * len(values)
    nodes = [
        NodeReadings(f"node-{n}", kinds[n], {"copy": (ParsedOutput((Reading("bandwidth", value, "GB/s"),)),)})
        for n, value in enumerate(values)
    ]
    good = np.array(sound or [True] * len(values))
    return by_peers(column(rule, nodes), limit or Peers(), good)


def accused(found: Stage) -> list[int]:
    return np.flatnonzero(found.fails).tolist()


USUAL = [2000.0, 2010.0, 1990.0, 2005.0, 1995.0]


@pytest.mark.parametrize(
    ("values", "direction", "blamed"),
    [
        ([*USUAL, 1700.0], "higher_is_better", [5]),
        ([*USUAL, 2300.0], "higher_is_better", []),
        ([*USUAL, 2300.0], "lower_is_better", [5]),
        ([*USUAL, 1700.0], "lower_is_better", []),
        ([*USUAL, 1900.0], "higher_is_better", []),
        ([*USUAL, 1894.0], "higher_is_better", [5]),
        ([2000.0] * 12 + [1700.0, 1600.0], "higher_is_better", [12, 13]),
        ([0.0] * 8 + [1.0], "lower_is_better", [8]),
    ],
)
def test_only_who_is_far_off_on_the_bad_side_is_accused(
    values: list[float], direction: Direction, blamed: list[int]
) -> None:
    assert accused(judged(values, direction)) == blamed


def test_the_sentence_names_how_far_off_and_of_how_many() -> None:
    found = judged([*USUAL, 1700.0])
    assert found.words(5) == "15.0 % below the median 2000 GB/s of 5 peers"
    assert judged([0.0] * 8 + [1.0], "lower_is_better").words(8) == "far from the median 0 GB/s of 8 peers"


def test_fewer_than_four_peers_say_nothing() -> None:
    assert not judged([2000.0, 2000.0, 2000.0, 1.0]).applies.any()
    assert judged([2000.0, 2000.0, 2000.0, 2000.0, 1.0]).applies.all()


def test_nodes_of_other_hardware_are_no_peers() -> None:
    kinds = ["fast"] * 5 + ["slow"] * 5
    assert accused(judged([2000.0] * 5 + [500.0] * 5, hardware=kinds)) == []
    assert accused(judged([2000.0] * 5 + [500.0] * 4 + [400.0], hardware=kinds)) == [9]


def test_nodes_that_failed_their_limits_are_no_measure() -> None:
    values, sound = [100.0] * 6 + [2000.0] * 4 + [1500.0], [False] * 6 + [True] * 5
    found = judged(values, sound=sound)
    assert accused(found) == [10]
    assert not found.applies[:6].any()


def test_a_node_whose_figure_is_missing_is_neither_judged_nor_a_measure() -> None:
    found = judged([*USUAL, float("nan")])
    assert found.applies.tolist() == [True] * 5 + [False]


@given(st.floats(-1e300, 1e300), st.integers(2, 40), st.floats(0.0, 10.0), st.floats(0.0, 1.0))
def test_peers_that_are_all_equal_accuse_nobody(value: float, count: int, z: float, floor: float) -> None:
    for direction in ("higher_is_better", "lower_is_better"):
        assert accused(judged([value] * count, direction, Peers(z, floor))) == []


@given(st.lists(FIGURES, min_size=2, max_size=30), st.floats(0.0, 8.0), st.floats(0.0, 0.2))
def test_each_bound_is_that_of_everybody_else(values: list[float], z: float, floor: float) -> None:
    bounds, _ = others(np.array(values), Peers(z, floor))
    for index, found in enumerate(bounds.tolist()):
        rest = values[:index] + values[index + 1 :]
        middle = statistics.median(rest)
        mad = statistics.median(abs(one - middle) for one in rest)
        wanted = middle - z * max(MAD_TO_SIGMA * mad, floor * abs(middle))
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-6)


@given(st.lists(FIGURES, min_size=5, max_size=30), st.integers(0, 29), st.floats(0.0, 1e6))
def test_a_better_figure_never_makes_the_own_limit_stricter(values: list[float], which: int, more: float) -> None:
    one = which % len(values)
    better = [*values[:one], values[one] + more, *values[one + 1 :]]
    before, after = judged(values), judged(better)
    assert before.bound is not None
    assert after.bound is not None
    assert after.bound[one] == before.bound[one]
    assert not after.fails[one] or before.fails[one]


def test_figures_too_large_to_have_a_median_say_nothing() -> None:
    found = judged([1.7e308] * 3 + [-1.7e308] * 2)
    assert found.applies.tolist() == [False] * 3 + [True] * 2
    assert accused(found) == [3, 4]


def worded(words: Sequence[str], sound: Sequence[bool] = (), least: int = 4) -> Stage:
    rule = CheckRule("driver", Depth.SMOKE, "driver_version", direction="text_equal")
    nodes = [
        NodeReadings(f"node-{n}", "h", {"driver": (ParsedOutput((Reading("driver_version", word=word),)),)})
        for n, word in enumerate(words)
    ]
    return by_majority(column(rule, nodes), Majority(least), np.array(sound or [True] * len(words)))


@rows("node_tests/grading/peers")
def test_the_word_of_most_others_is_the_measure(
    words: list[str], sound: list[bool], blamed: list[int], spoke: int
) -> None:
    found = worded(words, sound)
    assert accused(found) == blamed
    assert int(found.applies.sum()) == spoke


def test_the_sentence_of_a_majority_names_its_word() -> None:
    assert worded(["a"] * 4 + ["b"]).words(4) == "4 of its peers say a"


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=14))
def test_a_majority_is_that_of_everybody_else(words: list[str]) -> None:
    found = worded(words)
    for index, word in enumerate(words):
        rest = words[:index] + words[index + 1 :]
        usual = next((one for one in "abc" if 2 * rest.count(one) > len(rest) >= 4), "")
        assert bool(found.applies[index]) == bool(usual)
        assert bool(found.fails[index]) == bool(usual and usual != word)
