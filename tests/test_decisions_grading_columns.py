"""From what attempts and subjects told to the one reading that counts, and to what is not known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flows.decisions.node_tests.grading.columns import CheckColumn, column
from flows.decisions.node_tests.grading.model import (
    AtLeast,
    CheckRule,
    Depth,
    Equals,
    Majority,
    NodeReadings,
    Peers,
    Word,
)
from workflows.programs.parsers.text import ParsedOutput, Reading


def rule(**more: Any) -> CheckRule:
    values: dict[str, Any] = {"limits": (AtLeast(100.0),), "unit": "GB/s", **more}
    return CheckRule("copy", Depth.DEVICE, "bandwidth", **values)


def told(*values: float | None, unit: str = "GB/s", unknown: str = "") -> ParsedOutput:
    """One attempt: a figure for each GPU."""
    readings = tuple(Reading("bandwidth", value, unit, f"gpu {index}") for index, value in enumerate(values))
    return ParsedOutput(readings, unknown)


def of_one(check: CheckRule, *attempts: ParsedOutput, hardware: str = "h") -> CheckColumn:
    return column(check, [NodeReadings("node-1", hardware, {"copy": attempts} if attempts else {})])


def figure(found: CheckColumn) -> float:
    return found.values.tolist()[0]


@pytest.mark.parametrize(
    ("check", "attempts", "value", "gap"),
    [
        (rule(), [told(120.0, 90.0, 110.0)], 90.0, ""),
        (rule(direction="lower_is_better", limits=()), [told(1.0, 9.0)], 9.0, ""),
        (rule(direction="equal", limits=(Equals(16.0),)), [told(16.0, 15.0, 16.5)], 15.0, ""),
        (rule(attempts=3, combine="best"), [told(80.0), told(120.0), told(90.0)], 120.0, ""),
        (rule(attempts=3, combine="median"), [told(80.0), told(120.0), told(90.0)], 90.0, ""),
        (rule(attempts=2, combine="median"), [told(80.0), told(120.0)], 80.0, ""),
        (rule(attempts=3, combine="worst"), [told(80.0), told(120.0), told(90.0)], 80.0, ""),
        (rule(attempts=3, combine="all"), [told(80.0), told(120.0), told(90.0)], 80.0, ""),
        (rule(attempts=3, combine="best"), [told(None), told(120.0), ParsedOutput(unknown="timed out")], 120.0, ""),
        (rule(attempts=3, combine="worst"), [told(None), told(120.0)], 120.0, ""),
        (rule(attempts=3, combine="median"), [told(None), told(120.0)], 120.0, "1 of 3 attempts"),
        (rule(attempts=2, combine="all"), [told(120.0), told(math.nan)], 120.0, "1 of 2 attempts"),
        (rule(attempts=2, combine="all"), [told(120.0), ParsedOutput(unknown="timed out")], 120.0, "timed out"),
        (rule(attempts=2, combine="best"), [told(80.0, 120.0), told(120.0, 80.0)], 120.0, ""),
        (rule(subjects={"h": 8}), [told(*[120.0] * 7)], 120.0, "7 of 8 reported"),
        (rule(subjects={"h": 8}), [told(*[120.0] * 7, unknown="it broke off")], 120.0, "it broke off"),
        (rule(subjects={"h": 2}), [told(120.0, 121.0, unknown="the summary is missing")], 120.0, ""),
        (rule(subjects={"h": 1}), [told(120.0)], 120.0, ""),
        (rule(subjects={"other": 8}), [told(120.0)], 120.0, ""),
        (rule(), [told(120.0, unknown="it broke off")], 120.0, "it broke off"),
    ],
)
def test_the_reading_that_counts_and_what_is_missing(
    check: CheckRule, attempts: list[ParsedOutput], value: float, gap: str
) -> None:
    found = of_one(check, *attempts)
    assert figure(found) == value
    assert gap in found.gaps[0]
    assert bool(found.gaps[0]) == bool(gap)
    assert bool(found.whole[0]) == (not gap)


@pytest.mark.parametrize(
    ("attempts", "gap"),
    [
        ([], "did not run"),
        ([ParsedOutput(unknown="the tool is not there")], "the tool is not there"),
        ([ParsedOutput((Reading("something else", 120.0, "GB/s"),))], "nothing was reported for bandwidth"),
        ([told(None)], "no figure was reported"),
        ([told(math.nan)], "nan is no figure"),
        ([told(math.inf)], "inf is no figure"),
        ([told(120.0, unit="TB/s")], "reported in TB/s, but judged in GB/s"),
        ([told(120.0, unit="")], "reported in no unit"),
        ([ParsedOutput((Reading("bandwidth", word="N/A"),))], "no figure: N/A"),
        ([ParsedOutput((Reading("bandwidth", unit="GB/s", said="pass"),))], "no figure"),
    ],
)
def test_what_cannot_be_judged_is_no_figure_and_says_why(attempts: list[ParsedOutput], gap: str) -> None:
    found = of_one(rule(), *attempts)
    assert found.cells == [None]
    assert math.isnan(figure(found))
    assert gap in found.gaps[0]


def test_a_tools_own_failure_outranks_a_worse_figure_and_needs_none() -> None:
    failed = Reading("bandwidth", 130.0, "GB/s", "gpu 1", said="fail")
    assert of_one(rule(), ParsedOutput((*told(120.0).readings, failed))).cells == [failed]
    without = Reading("bandwidth", None, "", "gpu 1", said="fail")
    assert of_one(rule(), ParsedOutput((*told(120.0).readings, without))).cells == [without]


def test_of_words_the_one_that_differs_counts() -> None:
    check = rule(direction="text_equal", unit="", limits=(Word("Active"),))
    ports = [Reading("bandwidth", subject=f"mlx5_{n}", word="Active" if n != 1 else "Down") for n in range(3)]
    found = of_one(check, ParsedOutput(tuple(ports)))
    assert found.cells == [ports[1]]
    free = rule(direction="text_equal", unit="", limits=(Majority(),))
    assert [cell.word for cell in of_one(free, ParsedOutput(tuple(ports))).cells if cell] == ["Active, Down"]
    assert of_one(check, ParsedOutput((Reading("bandwidth"),))).gaps == ["no word was reported"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"direction": "lower_is_better"},
        {"direction": "equal", "limits": (Peers(),)},
        {"direction": "text_equal"},
        {"attempts": 0},
        {"limits": (AtLeast(math.nan),)},
    ],
)
def test_a_rule_that_would_punish_better_figures_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="copy"):
        rule(**wrong)
