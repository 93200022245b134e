"""The past of nodes in the ledger: kept with every verdict, read at once, and forgotten in time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from flows.decisions.node_tests.grading.comparisons import laid, reach_days
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from profiles.checks.catalogue import PAST_DAYS
from profiles.vocabulary import VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.ledger.tables import LOOKS
from tasks.ledger.verdicts import SHARDS, shard_of
from tests.support.builders.ledgers import Clock
from tests.support.builders.pasts import NOW, RECORDS, RULES, as_slow, slowly
from workflows.model.records import VerdictRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

SINCE = NOW - reach_days(RULES) * DAY_SECONDS
_CLUSTERS = itertools.count()


def record(node: str, at: float, measured: float = 100.0, cluster: str = "c", source: str = "t") -> VerdictRecord:
    reason: dict[str, Any] = {"check": "copy", "verdict": "pass", "measured": measured, "unit": "GB/s"}
    return VerdictRecord(cluster, node, VerdictWord.PASS, "device", at, (reason,), source)


def kept(ledger: Ledger) -> int:
    with ledger.database.reading() as transaction:
        return int(transaction.connection.execute(select(func.count()).select_from(LOOKS)).scalar_one())


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(RECORDS, max_size=5), max_size=5))
def test_the_past_read_from_the_ledger_is_what_its_verdicts_say(
    ledger: Ledger, clock: Clock, batches: list[list[VerdictRecord]]
) -> None:
    clock.now, cluster = NOW, f"c{next(_CLUSTERS)}"
    for batch in batches:
        mine = [replace(item, cluster=cluster) for item in batch]
        if len(mine) == 1:
            ledger.add_verdict(mine[0])
        else:
            ledger.add_verdicts(mine)
    nodes = ("a", "b")
    found = laid(ledger.looks(cluster, nodes, SINCE), RULES, nodes, NOW)
    assert as_slow(found) == slowly(ledger.verdicts(cluster), RULES, nodes, NOW)


def test_verdicts_come_many_at_once_and_each_is_written_once(ledger: Ledger) -> None:
    many = [record(f"n{number}", NOW + number) for number in range(1200)]
    twice = [*many, replace(many[3], verdict=VerdictWord.FAIL)]
    assert ledger.add_verdicts(twice) == 1200
    assert ledger.add_verdicts([many[0], record("n0", NOW + 5000)]) == 1
    assert ledger.add_verdicts([]) == 0
    assert ledger.verdicts("c") == [*many, record("n0", NOW + 5000)]
    lines = [line for line in ledger.history() if line.kind == "verdict"]
    assert len(lines) == 1201
    looks = ledger.looks("c", [item.node for item in many], 0.0)
    assert sorted(node for one in looks for node in one.nodes) == sorted([*(item.node for item in many), "n0"])


def test_the_history_tells_what_speaks_against_a_node_and_the_verdict_tells_all(ledger: Ledger) -> None:
    reasons = ({"check": "copy", "verdict": "pass"}, {"check": "load", "verdict": "fail", "evidence": "slow"})
    ledger.add_verdict(VerdictRecord("c", "a", VerdictWord.FAIL, "device", 1.0, reasons))
    [line] = ledger.history()
    assert (line.kind, line.subject, line.why) == ("verdict", "c/a", "device: fail")
    assert '"check":"load"' in line.data["reasons"]
    assert "copy" not in line.data["reasons"]
    assert ledger.verdicts("c")[0].reasons == reasons


def test_one_node_is_read_without_those_of_other_shards_or_clusters(ledger: Ledger) -> None:
    names = [f"n{number}" for number in range(400)]
    assert {shard_of(name) for name in names} == set(range(SHARDS))
    ledger.add_verdicts([record(name, NOW, cluster=cluster) for name in names for cluster in ("c", "other")])
    near = {node for one in ledger.looks("c", ["n7"], 0.0) for node in one.nodes}
    assert near == {name for name in names if shard_of(name) == shard_of("n7")}
    assert ledger.looks("nowhere", ["n7"], 0.0) == []
    assert ledger.looks("c", [], 0.0) == []
    assert ledger.looks("c", ["n7"], NOW + 1) == []


def test_what_nobody_is_compared_with_any_more_goes_away(ledger: Ledger, clock: Clock) -> None:
    clock.now = NOW
    ledger.add_verdicts([record("a", NOW), record("b", NOW)])
    assert shard_of("a") != shard_of("b")
    clock.now = NOW + PAST_DAYS * DAY_SECONDS
    ledger.add_verdict(record("a", clock.now))
    assert kept(ledger) == 3, "the older one is not yet too old"
    clock.now += 1.0
    ledger.add_verdict(record("a", clock.now))
    assert kept(ledger) == 3, "where something is added the old goes; that of the other node stays"
    assert len(ledger.verdicts("c")) == 4, "verdicts stay for ever"


def test_of_two_looks_at_one_time_the_one_that_was_written_last_counts(ledger: Ledger) -> None:
    for number in range(1, 6):
        ledger.add_verdict(record("a", NOW, float(number), source=f"test {number}"))
    found = as_slow(laid(ledger.looks("c", ["a"], 0.0), RULES, ("a",), NOW))
    assert found.figures["copy", "a"] == {0: 5.0}
