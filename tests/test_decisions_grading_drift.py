"""Facts that nodes of one kind should share: majorities, outliers, ties, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.grading.drift import DriftRow, drift_table, facts_of
from workflows.programs.readings import Parsed, Reading


def table(words: Mapping[str, str], hardware: Mapping[str, str] | None = None) -> tuple[DriftRow, ...]:
    kinds = hardware or dict.fromkeys(words, "mi300x")
    return drift_table({node: {"driver_version": word} for node, word in words.items()}, kinds)


@pytest.mark.parametrize(
    ("words", "majority", "outliers", "missing", "why"),
    [
        (["6.4", "6.4", "6.4"], "6.4", [], [], "6.4 on 3"),
        (["6.4", "6.4", "6.3"], "6.4", ["n-2"], [], "6.4 on 2, 6.3 on 1; different: n-2 (6.3)"),
        (["6.4", "6.3"], "", [], [], "6.3 on 1, 6.4 on 1; a tie: nobody is named"),
        (["6.4", "6.4", "6.3", "6.2"], "", [], [], "6.4 on 2, 6.2 on 1, 6.3 on 1; no majority: nobody is named"),
        (["6.4", "6.4", ""], "6.4", [], ["n-2"], "6.4 on 2; not known of n-2"),
        (["6.4", "6.4", "6.3", ""], "6.4", ["n-2"], ["n-3"], "different: n-2 (6.3); not known of n-3"),
        (["6.4"], "6.4", [], [], "6.4 on 1"),
    ],
)
def test_one_fact_of_one_kind(
    words: list[str], majority: str, outliers: list[str], missing: list[str], why: str
) -> None:
    (row,) = table({f"n-{index}": word for index, word in enumerate(words)})
    assert row.majority == majority
    assert [node for node, _ in row.outliers] == outliers
    assert list(row.missing) == missing
    assert why in row.why
    assert row.same == (not outliers and not missing and "named" not in why)


def test_kinds_of_hardware_are_kept_apart_and_come_in_order() -> None:
    kinds = {"n-1": "mi300x", "n-2": "h100", "n-10": "mi300x", "n-3": "h100"}
    rows = table({"n-1": "a", "n-2": "b", "n-10": "a", "n-3": "b"}, kinds)
    assert [(row.hardware, row.majority, row.same) for row in rows] == [("h100", "b", True), ("mi300x", "a", True)]


def test_a_fact_that_one_node_tells_is_missed_on_the_others() -> None:
    found = drift_table({"n-1": {"kernel": "6.8", "nic": "x"}, "n-2": {"kernel": "6.8"}}, {"n-1": "h", "n-2": "h"})
    assert [(row.fact, row.missing) for row in found] == [("kernel", ()), ("nic", ("n-2",))]
    silent = drift_table({"n-1": {"kernel": "6.8"}}, {"n-1": "h", "n-2": "h"})
    assert silent[0].missing == ("n-2",)
    assert drift_table({}, {"n-1": "h"}) == ()


def test_a_sentence_names_some_and_counts_the_rest() -> None:
    words = {f"n-{index}": "new" if index < 12 else "old" for index in range(40)}
    assert "n-7 (new) and 4 more" in table(words)[0].why


def test_words_of_a_nodes_parts_are_told_together() -> None:
    told = [
        Parsed(
            (
                Reading("nic_firmware", subject="mlx5_1", word="20.35"),
                Reading("nic_firmware", subject="mlx5_0", word="20.31"),
                Reading("nic_firmware", subject="mlx5_2", word="20.35"),
                Reading("pcie_width", 16.0, "lanes"),
                Reading("kernel"),
                Reading("temperature", 40.0, "C"),
            )
        ),
        Parsed(unknown="the tool is not there"),
    ]
    found = facts_of(told, ["nic_firmware", "pcie_width", "kernel"])
    assert found == {"nic_firmware": "20.31, 20.35", "pcie_width": "16 lanes"}


@given(st.dictionaries(st.sampled_from([f"n-{n}" for n in range(12)]), st.sampled_from(["a", "b", "c", ""])))
def test_every_node_is_counted_once_and_the_order_changes_nothing(words: dict[str, str]) -> None:
    rows = table(words)
    assert rows == table(dict(reversed(words.items())))
    for row in rows:
        agreeing = sum(word == row.majority for word in words.values() if row.majority)
        assert sum(count for _, count in row.counts) + len(row.missing) == len(words)
        assert len(row.outliers) < max(1, agreeing)
        assert not row.majority or len(row.outliers) + agreeing + len(row.missing) == len(words)
