from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.screen.tables import LEAST, cut, fitted, table

ROWS = [{"run": "a", "n": 5, "pool": "gpu", "why": "x" * 80}, {"run": "bb", "n": 12, "pool": None, "why": "short"}]
COLUMNS = ("run", "n", "pool", "why")


def test_numbers_stand_to_the_right_and_nothing_is_cut_without_a_terminal() -> None:
    assert fitted(ROWS, COLUMNS, 0, giving="why").splitlines() == [
        "run   n  pool  why",
        f"a     5  gpu   {'x' * 80}",
        "bb   12        short",
    ]


def test_one_column_gives_way() -> None:
    lines = fitted(ROWS, COLUMNS, 40, giving="why").splitlines()
    assert lines[1] == f"a     5  gpu   {'x' * 24}…"
    assert max(map(len, lines)) == 40


def test_columns_are_left_out_where_cutting_is_not_enough() -> None:
    text = fitted(ROWS, COLUMNS, 9 + LEAST, giving="why", dropped=("pool", "n"))
    assert text.splitlines()[0].split() == ["run", "n", "why"]
    assert fitted(ROWS, COLUMNS, 10, giving="why", dropped=("pool", "n")).splitlines()[0].split() == ["run", "why"]


def test_a_cell_is_one_line() -> None:
    assert cut("a\nb  c", 20) == "a b c"
    assert cut("abcdef", 4) == "abc…"
    assert cut("ab def", 4) == "ab…"


@given(
    st.lists(st.fixed_dictionaries({"run": st.text(max_size=8), "why": st.text(max_size=90)}), max_size=6),
    st.integers(min_value=30, max_value=150),
)
def test_a_table_fits_its_terminal(rows: list[dict[str, str]], width: int) -> None:
    plain = [{key: " ".join(value.split()) for key, value in row.items()} for row in rows]
    text = fitted(plain, ("run", "why"), width, giving="why")
    assert all(len(line) <= width for line in text.split("\n"))
    assert len(text.split("\n")) == len(rows) + 1


def test_the_table_that_need_not_fit_stays_as_it_is() -> None:
    assert table([{"a": 1, "b": "x"}], ("a", "b")) == "a  b\n1  x"
