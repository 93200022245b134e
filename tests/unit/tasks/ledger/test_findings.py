"""Findings and cursors of the ledger, on every database it knows."""

from __future__ import annotations

import pytest

from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import a_run
from workflows.model.runs import FindingRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


def found(subject: str = "demo-1", at: float = 10.0, why: str = "nobody drives it") -> FindingRecord:
    return FindingRecord(f"local/undriven/{subject}@{at:.0f}", "local", "undriven", subject, "", why, "driven", at, at)


def test_what_is_seen_again_is_one_finding_until_it_is_closed(ledger: Ledger) -> None:
    first = ledger.open_finding(found())
    again = ledger.open_finding(found(at=12.0, why="still"))
    assert (again.id, again.why, again.last_at) == (first.id, "nobody drives it", 12.0)
    assert ledger.findings("local") == [again]
    ledger.close_finding(first.id, 13.0)
    ledger.close_finding(first.id, 14.0)
    assert ledger.findings("local") == []
    [closed] = ledger.findings("local", open_only=False)
    assert closed.closed_at == 13.0
    anew = ledger.open_finding(found(at=20.0))
    assert ledger.findings("local") == [anew]
    assert [line.subject for line in ledger.history() if line.kind == "finding"] == [first.id, first.id, anew.id]


def test_clusters_and_times_are_kept_apart(ledger: Ledger) -> None:
    ledger.open_finding(found())
    assert ledger.findings("other") == []
    assert ledger.findings("local", since=11.0) == []


@pytest.mark.parametrize(("moves", "stands"), [([3], 3), ([3, 7], 7), ([7, 3], 7), ([0], 0)])
def test_a_cursor_never_goes_back(ledger: Ledger, moves: list[int], stands: int) -> None:
    assert ledger.cursor("events") is None
    for position in moves:
        ledger.move_cursor("events", position, 1.0)
    cursor = ledger.cursor("events")
    assert cursor is not None
    assert cursor.position == stands


def test_the_history_is_read_in_order_from_any_place(ledger: Ledger) -> None:
    assert ledger.history_end() == 0
    for name in ("a", "b", "c"):
        ledger.open_run(a_run(name))
    rows = ledger.history_after(0, 100)
    assert [row.subject for row in rows] == ["a", "b", "c"]
    assert ledger.history_after(rows[0].seq, 1) == [rows[1]]
    assert ledger.history_end() == rows[-1].seq
    assert ledger.history_after(rows[-1].seq, 100) == []
