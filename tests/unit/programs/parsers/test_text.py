"""Figures, units, whole lines and JSON: what every parser of a tool's output stands on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from workflows.programs.parsers.text import amount, document, figure, measure, number, refusal, whole_lines


@rows("programs/parsers/text")
def test_a_figure_is_read_whole(text: str, value: float) -> None:
    assert figure(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "nan", "-nan", "inf", "N/A", "-", "[Not Supported]", "0x10", "1_000", "1,000", "12 W", "1.2.3"),
        *("\uff19", "\u00b2", "18446744073709551615", "9223372036854775794", "1e999", "e5", ".", "+", "1e", "--1"),
        *("12abc", "9" * 5000),
    ],
)
def test_what_is_no_figure_is_none(text: str) -> None:
    assert figure(text) is None


def test_an_amount_is_never_below_zero() -> None:
    assert amount("-1") is None
    assert amount("0") == 0.0


@rows("programs/parsers/text")
def test_a_measure_is_told_in_our_units(text: str, unit: str, expected: tuple[float, str] | None) -> None:
    assert measure(text, unit) == expected


@given(st.text(max_size=60))
def test_no_text_becomes_a_figure_that_is_not_finite(text: str) -> None:
    value = figure(text)
    assert value is None or math.isfinite(value)
    measured = measure(text)
    assert measured is None or math.isfinite(measured[0])


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_a_printed_number_is_read_as_it_is(value: float) -> None:
    assert figure(f"{value:.6f}") == float(f"{value:.6f}")


@pytest.mark.parametrize(
    ("text", "lines", "cut"),
    [
        ("", [], False),
        ("a\n", ["a"], False),
        ("a\nb", ["a"], True),
        ("a\nb ", ["a"], True),
        ("a\n  ", ["a"], False),
        ("a\r\nb\r\n", ["a", "b"], False),
        ("10%\r50%\rdone\n", ["done"], False),
        ("x" * 20000 + "\na\n", ["a"], False),
    ],
)
def test_only_lines_with_an_end_count(text: str, lines: list[str], cut: bool) -> None:
    assert whole_lines(text) == (lines, cut)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('WARNING: x\n{"a": [1, 2.5]}\nbye', {"a": [1, 2.5]}),
        ("[12:00:01] started\n[]", []),
        ('{"a": NaN, "b": Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        ('{"a": ' + "9" * 5000 + "}", {"a": None}),
        ('{"a": {"b": 1}', None),
        ('[\n{"a": 1},\n{"b": 2', None),
        ("[" * 100000, None),
        ("plain", None),
    ],
)
def test_a_document_is_read_whole_or_not_at_all(text: str, expected: Any) -> None:
    assert document(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), ("2.5", 2.5), (True, None), ("N/A", None), (None, None), (math.nan, None), ([], None)],
)
def test_a_json_value_is_a_figure_or_none(value: Any, expected: float | None) -> None:
    assert number(value) == expected


def test_a_refusal_is_found_in_any_case_of_letters() -> None:
    assert refusal("x: PERMISSION DENIED") == "permission was denied"
    assert refusal("all is well") == ""
