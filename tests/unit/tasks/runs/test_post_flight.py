"""Which of the collected steps the ledger lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.runs.examine import lacking
from workflows.model.records import StepRow


def rows(*told: tuple[int, float]) -> list[StepRow]:
    return [StepRow(step, at) for step, at in told]


@pytest.mark.parametrize(
    ("collected", "known", "fresh"),
    [
        ([(1, 1.0), (2, 2.0)], [], [(1, 1.0), (2, 2.0)]),
        ([(1, 1.0), (2, 2.0)], [(1, 1.0), (2, 2.0)], []),
        ([(1, 1.0), (2, 2.0)], [(1, 0.98), (2, 2.0)], []),  # another rank told the first step first
        ([(1, 1.0), (2, 2.0), (3, 3.0)], [(1, 1.01), (2, 2.0)], [(3, 3.0)]),
        ([(1, 1.0), (2, 2.0), (1, 3.0), (2, 4.0)], [(1, 1.0), (2, 2.0)], [(1, 3.0), (2, 4.0)]),  # begun again
        ([(1, 1.0), (2, 2.0), (1, 3.0), (2, 4.0)], [(1, 1.0), (2, 2.0), (1, 3.0)], [(2, 4.0)]),
        ([(2, 2.0), (1, 1.0)], [(1, 1.0)], [(2, 2.0)]),
        ([(3, 3.0)], [(1, 1.0), (2, 2.0)], [(3, 3.0)]),
    ],
)
def test_what_the_ledger_lacks(
    collected: list[tuple[int, float]], known: list[tuple[int, float]], fresh: list[tuple[int, float]]
) -> None:
    assert lacking(rows(*collected), rows(*known)) == rows(*fresh)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 100)), max_size=20))
def test_what_is_known_is_never_lacking(told: list[tuple[int, float]]) -> None:
    assert lacking(rows(*told), rows(*told)) == []
    assert lacking(rows(*told), []) == sorted(rows(*told), key=lambda row: row.at)
