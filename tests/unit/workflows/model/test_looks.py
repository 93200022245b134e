"""What of verdicts is kept in figures, and that packing changes nothing."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from profiles.vocabulary import VerdictWord
from tests.support.builders.pasts import RECORDS
from tests.support.cases.rows import rows
from workflows.model.records import VerdictRecord
from workflows.model.verdict_history import end_of, looks_of, pack, unpack


def record(node: str, at: float, *checks: str, unit: str = "GB/s") -> VerdictRecord:
    reasons = tuple({"check": name, "verdict": "pass", "measured": at, "unit": unit} for name in checks)
    return VerdictRecord("c", node, VerdictWord.PASS, "device", at, reasons)


@rows("workflows/model/looks")
def test_what_was_measured_counts_not_what_was_made_of_it(reason: dict[str, Any], end: int) -> None:
    assert end_of(reason) == end


def test_nodes_that_made_the_same_checks_lie_together() -> None:
    records = [record("a", 1.0, "copy", "load"), record("b", 2.0, "copy", "load"), record("c", 3.0, "load")]
    found = looks_of(records)
    assert [(one.nodes, one.checks) for one in found] == [
        (("a", "b"), (("copy", "GB/s"), ("load", "GB/s"))),
        (("c",), (("load", "GB/s"),)),
    ]
    assert [one.times for one in found] == [(1.0, 2.0), (3.0,)]
    assert struct.unpack("<4d", found[0].figures) == (1.0, 2.0, 1.0, 2.0)


def test_two_looks_at_one_time_stay_in_their_order() -> None:
    [one] = looks_of([record("a", 1.0, "copy"), record("a", 1.0, "copy", unit="TB/s"), record("b", 1.0, "load")])
    assert one.nodes == ("a", "a", "b")
    assert one.checks == (("copy", "GB/s"), ("copy", "TB/s"), ("load", "GB/s"))


def test_a_check_that_is_told_twice_is_two_looks() -> None:
    [one] = looks_of([record("a", 1.0, "mount", "copy", "mount")])
    assert one.nodes == ("a", "a")
    assert struct.unpack("<4b", one.ends) == (1, 1, 1, 0)


def test_of_what_tells_nothing_nothing_is_kept() -> None:
    silent = VerdictRecord("c", "a", VerdictWord.UNKNOWN, "smoke", 1.0, ({"check": "x", "verdict": "unknown"},))
    assert looks_of([silent, VerdictRecord("c", "a", VerdictWord.PASS, "gate", 2.0)]) == []


@given(st.lists(RECORDS, max_size=12))
def test_packing_changes_nothing(records: list[VerdictRecord]) -> None:
    for one in looks_of(records):
        again = unpack(pack(one))
        assert (again.nodes, again.checks, again.times) == (one.nodes, one.checks, one.times)
        assert (bytes(again.figures), bytes(again.ends)) == (one.figures, one.ends)
