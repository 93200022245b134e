from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.text import BROKEN, LEVELS, bar, sparkline
from tests.support.cases.rows import rows


@rows("decisions/sparks")
def test_numbers_become_characters(values: list[float | None], width: int, drawn: str) -> None:
    assert sparkline(values, width) == drawn


def test_a_bottom_keeps_small_changes_small() -> None:
    assert sparkline([9.6, 9.7], 2) == "▁█"
    assert sparkline([9.6, 9.7], 2, bottom=0.0) == "██"


@given(
    st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=300),
    st.integers(min_value=-1, max_value=200),
)
def test_it_is_never_wider_than_asked_and_hides_no_broken_value(values: list[float | None], width: int) -> None:
    drawn = sparkline(values, width)
    told = [value for value in values if value is not None]
    assert len(drawn) == max(0, min(width, len(told)))
    assert set(drawn) <= {*LEVELS, BROKEN}
    if drawn:
        assert (BROKEN in drawn) == any(not math.isfinite(value) for value in told)


@given(st.floats(allow_nan=False), st.integers(min_value=0, max_value=100))
def test_a_bar_has_its_width(share: float, width: int) -> None:
    assert len(bar(share, width)) == width


def test_a_bar_shows_its_share() -> None:
    assert [bar(share, 4) for share in (-1.0, 0.0, 0.5, 1.0, 7.0)] == ["░░░░", "░░░░", "██░░", "████", "████"]
