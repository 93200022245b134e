"""Verdicts in the ledger: all are kept, and few of them still decide."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from flows.decisions.node_tests.grading.model import DEEPER, Depth
from flows.decisions.node_tests.grading.standing import DEPTHS, SKEW_SECONDS, standings
from profiles.vocabulary import VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.ledger.verdicts import CLEARED_BY, newest_query
from tasks.ledger.verdicts import SKEW_SECONDS as LEDGERS_SKEW
from workflows.model.records import VerdictRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

F, P, U = VerdictWord.FAIL, VerdictWord.PASS, VerdictWord.UNKNOWN
NOW = 1e6
HOUR = 3600.0
HOURS = dict.fromkeys(Depth, 24.0)
_CLUSTERS = itertools.count()
WHY: tuple[dict[str, Any], ...] = ({"check": "gpu-count", "verdict": "fail", "measured": 7, "evidence": "7 of 8"},)


def told(hours_ago: float, depth: str, word: VerdictWord, node: str = "n", source: str = "t") -> VerdictRecord:
    return VerdictRecord("c", node, word, depth, NOW - hours_ago * HOUR, () if word is P else WHY, source)


def test_verdicts_are_kept_all_and_each_once(ledger: Ledger) -> None:
    reasons = ({"check": "gpu-count", "verdict": "fail", "measured": 7, "limit": 8, "unit": "GPUs"},)
    failed = VerdictRecord("local", "node-0", VerdictWord.FAIL, "gate", 1.0, reasons, "demo-a1")
    passed = VerdictRecord("local", "node-0", VerdictWord.PASS, "device", 2.0)
    for record in (failed, failed, passed):
        ledger.add_verdict(record)
    assert ledger.verdicts("local", "node-0") == [failed, passed]
    assert ledger.verdicts("local", since=1.5) == [passed]


def test_the_ledger_lets_a_failure_be_cleared_by_what_clears_it_where_standing_is_decided() -> None:
    wanted = {word: {other for other, own in DEPTHS.items() if own in DEEPER[depth]} for word, depth in DEPTHS.items()}
    told_here = {word: set(CLEARED_BY.get(word, ("training",))) for word in DEPTHS}
    assert told_here == wanted
    assert set(CLEARED_BY) <= set(DEPTHS)
    assert LEDGERS_SKEW == SKEW_SECONDS


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([told(3, "smoke", P), told(2, "smoke", P)], [1]),
        ([told(3, "smoke", P), told(2, "device", P)], [0, 1]),
        ([told(3, "smoke", F), told(2, "smoke", P)], [1]),
        ([told(3, "smoke", F), told(2, "device", P)], [1]),
        ([told(3, "device", F), told(2, "smoke", P)], [0, 1]),
        ([told(3, "fabric", F), told(2, "storage", P)], [0, 1]),
        ([told(3, "condition", F), told(2, "smoke", P)], [1]),
        ([told(3, "invented", F), told(2, "storage", P)], [0, 1]),
        ([told(3, "invented", F), told(2, "training", P)], [1]),
        ([told(3, "smoke", F), told(2, "smoke", F)], [0, 1]),
        ([told(2, "smoke", P), told(2, "smoke", F, source="u")], [0, 1]),
        ([told(3, "smoke", F), told(2, "smoke", P, "other")], [0, 1]),
        ([told(3, "smoke", U), told(2, "smoke", U)], [1]),
        ([told(3, "smoke", P), told(-1, "smoke", P)], [0, 1]),
        ([told(3, "smoke", F), told(-1, "smoke", P)], [0, 1]),
        ([told(4, "smoke", P), told(3, "smoke", P), told(-1, "smoke", P), told(-2, "smoke", P)], [1, 3]),
    ],
)
def test_only_what_can_still_matter_is_read(
    ledger: Ledger, records: Sequence[VerdictRecord], kept: Sequence[int]
) -> None:
    for record in records:
        ledger.add_verdict(record)
    assert ledger.deciding_verdicts("c", now=NOW) == [records[index] for index in kept]
    mine = [records[index] for index in kept if records[index].node == "n"]
    assert ledger.deciding_verdicts("c", "n", now=NOW) == mine
    assert ledger.deciding_verdicts("elsewhere") == []


def test_reasons_are_read_of_what_stands_only(ledger: Ledger) -> None:
    passed = VerdictRecord("c", "a", P, "smoke", 2.0, ({"check": "gpu-count", "verdict": "pass"},), "night")
    silenced = VerdictRecord("c", "a", U, "smoke", 1.0, WHY)
    silent = VerdictRecord("c", "a", U, "device", 3.0, WHY)
    for record in (passed, silenced, silent):
        ledger.add_verdict(record)
    found = {(item.depth, item.verdict): item for item in ledger.deciding_verdicts("c")}
    assert found["smoke", P] == VerdictRecord("c", "a", P, "smoke", 2.0, (), "night")
    assert found["smoke", U].reasons == ()
    assert found["device", U] == silent


def test_without_a_time_a_pass_may_be_as_new_as_the_ledgers_clock(ledger: Ledger) -> None:
    now = ledger.database.clock()
    old, failed, ahead = (
        VerdictRecord("c", "a", word, "smoke", at) for word, at in ((P, now - 9), (F, now), (P, now + 9999))
    )
    for record in (old, failed, ahead):
        ledger.add_verdict(record)
    assert ledger.deciding_verdicts("c") == [old, failed, ahead]


VERDICTS = st.builds(
    VerdictRecord,
    cluster=st.just("c"),
    node=st.sampled_from(["a", "b"]),
    verdict=st.sampled_from(list(VerdictWord)),
    depth=st.sampled_from([*DEPTHS, "invented"]),
    at=st.integers(-4, 40).map(lambda hours: NOW - hours * HOUR / 2),
    reasons=st.sampled_from([(), WHY, ({"check": "nics", "verdict": "unknown", "evidence": "no tool"},)]),
    source=st.sampled_from(["t", "u"]),
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(VERDICTS, max_size=14), st.sets(st.sampled_from(list(Depth))))
def test_what_decides_says_of_a_node_what_all_verdicts_say(
    ledger: Ledger, records: list[VerdictRecord], wanted: set[Depth]
) -> None:
    cluster = f"c{next(_CLUSTERS)}"
    for record in records:
        ledger.add_verdict(VerdictRecord(cluster, *list(vars(record).values())[1:]))
    every, few = ledger.verdicts(cluster), ledger.deciding_verdicts(cluster, now=NOW)
    assert standings("ab", few, wanted, HOURS, NOW) == standings("ab", every, wanted, HOURS, NOW)


def test_the_newest_are_found_without_reading_the_rows_themselves(ledger: Ledger) -> None:
    if ledger.database.url.get_backend_name() != "sqlite":
        pytest.skip("the plan of a small table says nothing in PostgreSQL")
    with ledger.database.reading() as transaction:
        query = newest_query("c", None, NOW).compile(transaction.connection, compile_kwargs={"literal_binds": True})
        plan = transaction.connection.execute(text(f"EXPLAIN QUERY PLAN {query}")).all()
    steps = [str(row[-1]) for row in plan if "verdicts" in str(row[-1])]
    assert steps
    assert all("USING COVERING INDEX verdicts_by_word" in step for step in steps)


def test_the_last_two_tests_of_each_node_are_read_page_by_page(ledger: Ledger) -> None:
    many = [told(hours, "smoke", P, f"n{number}") for number in range(520) for hours in (3, 1, 2)]
    ledger.add_verdicts([*many, told(0, "device", P, "n0"), told(9, "smoke", F, "alone")])
    found = list(ledger.last_tests("c", "smoke"))
    assert {(turn, item.node): item.at for turn, item in found} == {
        **{(turn, f"n{number}"): NOW - (turn + 1) * HOUR for number in range(520) for turn in (0, 1)},
        (0, "alone"): NOW - 9 * HOUR,
    }
    assert [turn for turn, _ in found] == [0] * 521 + [1] * 520
    assert list(ledger.last_tests("c", "training")) == []


def test_a_pass_that_is_dated_ahead_does_not_hide_why_nothing_is_known(ledger: Ledger) -> None:
    records = [told(3, "smoke", P), told(2, "smoke", U), told(-1, "smoke", P)]
    ledger.add_verdicts(records)
    assert ledger.deciding_verdicts("c", now=NOW) == records
