"""Facts that nodes of one kind should share: majorities, outliers, ties, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.drift import STEADY_FIGURES, DriftRow, drift_table, facts_of, shifts
from flows.decisions.node_tests.judge import NodeAnswer, judge
from profiles.loading.load import load_hardware, load_suite
from tests.support.cases.rows import rows
from tests.support.faults.texts import smi_xml
from workflows.programs.parsers.registry import PARSERS


def table(words: Mapping[str, str], hardware: Mapping[str, str] | None = None) -> tuple[DriftRow, ...]:
    kinds = hardware or dict.fromkeys(words, "mi300x")
    return drift_table({node: {"driver_version": word} for node, word in words.items()}, kinds)


@rows("node_tests/grading/drift")
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


def test_properties_are_read_from_the_reasons_of_a_verdict() -> None:
    reasons = [
        {"check": "kernel-version", "verdict": "unknown", "measured": "6.8.0", "unit": ""},
        {"check": "nic-firmware", "verdict": "pass", "measured": "20.31, 20.35", "unit": "", "severity": "warning"},
        {"check": "driver-version", "verdict": "unknown", "measured": None, "unit": "", "evidence": "no tool"},
        {"check": "pcie-width", "verdict": "pass", "measured": 16.0, "unit": "count"},
        {"check": "numa-balancing", "verdict": "fail", "measured": 1, "unit": ""},
        {"check": "gpu-memory-in-use", "verdict": "pass", "measured": 0.3, "unit": "GiB"},
        {"check": "clock", "verdict": "unknown", "measured": "N/A", "unit": "s"},
        {"verdict": "fail"},
    ]
    found = facts_of(reasons)
    assert found == {
        "kernel-version": "6.8.0",
        "nic-firmware": "20.31, 20.35",
        "pcie-width": "16 count",
        "numa-balancing": "1",
    }


SLOWER = {
    3: (("<sm_clock>1980 MHz<", "<sm_clock>1755 MHz<"), ("<graphics_clock>1980 MHz<", "<graphics_clock>1395 MHz<"))
}


def test_clocks_are_read_from_what_the_tool_prints_and_who_differs_is_named() -> None:
    hardware = load_hardware("h100")
    checks = [check for check in load_suite("smoke").checks_of("smoke", hardware) if check.parser == "nvidia-smi"]
    texts = [smi_xml("h100")] * 4 + [smi_xml("h100", 8, SLOWER)]
    answers = [
        NodeAnswer(f"n-{index}", "h100", {check.name: (PARSERS["nvidia-smi"](text),) for check in checks})
        for index, text in enumerate(texts)
    ]
    found = judge({"h100": checks}, {"h100": hardware}, answers)
    rows = drift_table({name: facts_of(grade.reasons) for name, grade in found.items()}, dict.fromkeys(found, "h100"))
    clocks = {row.fact: (row.majority, row.outliers) for row in rows if "clock" in row.fact}
    assert clocks == {
        "gpu-clock-nvidia": ("1980 MHz", (("n-4", "1755 MHz"),)),
        "gpu-clock-set-nvidia": ("1980 MHz", (("n-4", "1395 MHz, 1980 MHz"),)),
        "memory-clock-nvidia": ("2619 MHz", ()),
    }


def test_figures_that_are_properties_are_those_of_shipped_checks() -> None:
    assert {check.name for check in load_suite("smoke").checks} >= STEADY_FIGURES


@rows("node_tests/grading/drift")
def test_two_large_groups_are_an_update_under_way(words: str, changing: bool, share: float) -> None:
    (row,) = table({f"n-{index}": word for index, word in enumerate(words)})
    assert (row.changing, row.share) == (changing, pytest.approx(share))


@rows("node_tests/grading/drift")
def test_it_is_told_when_the_majority_moves(before: str, now: str, moved: list[tuple[str, str, str]]) -> None:
    tables = [table({f"n-{index}": word for index, word in enumerate(words)}) for words in (now, before)]
    assert [(item.was, item.now, item.why) for item in shifts(*tables)] == moved


@given(st.dictionaries(st.sampled_from([f"n-{n}" for n in range(12)]), st.sampled_from(["a", "b", "c", ""])))
def test_every_node_is_counted_once_and_the_order_changes_nothing(words: dict[str, str]) -> None:
    rows = table(words)
    assert rows == table(dict(reversed(words.items())))
    for row in rows:
        agreeing = sum(word == row.majority for word in words.values() if row.majority)
        assert sum(count for _, count in row.counts) + len(row.missing) == len(words)
        assert len(row.outliers) < max(1, agreeing)
        assert not row.majority or len(row.outliers) + agreeing + len(row.missing) == len(words)
