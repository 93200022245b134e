"""`primus nodes --drift`: what people and programs are told of nodes that differ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import deployments.cli.fleet
import deployments.cli.nodes
from deployments.cli.fleet import (
    Fleet,
    NodeProperties,
    drift_document,
    drift_lines,
    drift_of,
    properties_from_tests,
    show_drift,
)
from deployments.exit_codes import GOOD, UNKNOWN
from flows.decisions.node_tests.grading.standing import NodeStanding
from flows.decisions.views.fleet import FleetNode, Schedulability
from profiles.loading.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.ledger.ledger import Ledger
from workflows.model.records import VerdictRecord

NOW = 1e6
HOUR = 3600.0
PROFILE = load_cluster("local")
[POOL] = [pool for pool in PROFILE.pools if pool.name == "cpu"]
KIND = f"cpu ({POOL.hardware})"


def fleet(count: int, away: str = "") -> Fleet:
    nodes = [FleetNode(f"node-{index}", "cpu", f"rack-{index // 4}") for index in range(count)]
    return Fleet(PROFILE, tuple(nodes), away)


def told(now: Mapping[str, str], before: Mapping[str, str] | None = None) -> NodeProperties:
    facts = [
        {node: {"kernel-version": word} if word else {} for node, word in one.items()} for one in (now, before or {})
    ]
    return NodeProperties(facts[0], facts[1], {node: NOW - HOUR * (index + 1) for index, node in enumerate(now)})


def words(text: str) -> dict[str, str]:
    return {f"node-{index}": word.strip("-") for index, word in enumerate(text.split())}


def test_who_differs_is_named_with_the_rack_and_the_share_of_the_others() -> None:
    found = drift_of(fleet(9), told(words("6.8 6.8 6.8 6.8 6.5 6.8 6.5 6.8")))
    lines = drift_lines("local", found, NOW, 0)
    assert lines[0] == (
        "local: 8 nodes, 1 properties, 1 of them differ; the newest test of node-7 is the oldest, 8.0 h ago"
    )
    assert lines[2].splitlines()[1].split() == (
        f"{KIND} kernel-version 6.8 75 % of 8 2: 6.5 on rack-1: node-4, node-6".split()
    )
    assert lines[-1] == "never tested: 1 nodes: node-8"


def test_two_large_groups_and_a_moved_majority_are_told_as_an_update() -> None:
    half = drift_of(fleet(7), told(words("6.8 6.8 6.8 6.8 6.5 6.5 6.5"), words("6.8 6.8 6.8 6.8 6.5 6.5 6.5")))
    assert drift_lines("local", half, NOW, 0)[-1] == (
        f"two groups: kernel-version in {KIND}: an update is under way, or has stopped half way: 6.8 on 4, 6.5 on 3"
    )
    moved = drift_of(fleet(7), told(words("6.8 6.8 6.8 6.8 6.5 6.5 6.5"), words("6.5 6.5 6.5 6.5 6.5 6.5 6.5")))
    assert drift_lines("local", moved, NOW, 0)[-1] == (
        f"moved: kernel-version in {KIND}: was 6.5 on 7 of 7, now 6.8 on 4, 6.5 on 3"
    )


def test_a_word_longer_than_a_screen_is_cut_for_people_only() -> None:
    found = drift_of(fleet(2), told(dict.fromkeys(("node-0", "node-1"), "quiet " * 90)))
    assert all(len(line) < 200 for line in "\n".join(drift_lines("local", found, NOW, 0)).splitlines())
    assert "quiet " * 80 in str(drift_document("local", found))


def test_what_could_not_be_read_is_told() -> None:
    found = drift_of(fleet(3), told(words("6.8 6.8 -")))
    assert drift_lines("local", found, NOW, 0)[-1] == f"not known: kernel-version of 1 nodes in {KIND}: node-2"


def test_without_a_majority_nobody_is_named() -> None:
    found = drift_of(fleet(4), told(words("6.8 6.8 6.5 6.5")))
    [row] = drift_lines("local", found, NOW, 0)[2].splitlines()[1:]
    assert row.split() == f"{KIND} kernel-version none 50 % of 4 6.5 on 2, 6.8 on 2".split()


def test_pools_are_kept_apart_and_nodes_that_are_gone_are_not_told() -> None:
    nodes = [FleetNode("a", "cpu"), FleetNode("b", "other"), FleetNode("c")]
    found = drift_of(Fleet(PROFILE, tuple(nodes)), told({"a": "1", "b": "2", "c": "3", "gone": "4"}))
    assert [(row.hardware, row.majority) for row in found.rows] == [(KIND, "1"), ("no pool", "3"), ("other", "2")]


def test_many_that_differ_are_counted_and_programs_get_all() -> None:
    found = drift_of(fleet(40), told({f"node-{index}": "new" if index < 12 else "old" for index in range(40)}))
    line = drift_lines("local", found, NOW, 0)[2].splitlines()[1]
    assert "12: new on rack-0: node-0, node-1, node-2, node-3; rack-1: node-4" in line
    assert line.endswith("node-7 and 4 more")
    [row] = drift_document("local", found)["properties"]
    assert [item["node"] for item in row["different"]] == [f"node-{index}" for index in range(12)]
    assert row["different"][5] == {"node": "node-5", "rack": "rack-1", "word": "new"}
    assert (row["majority"], row["share"], row["changing"], row["majority_before"]) == ("old", 0.7, True, None)


def test_nothing_is_known_where_nobody_was_tested() -> None:
    found = drift_of(fleet(2), told({}))
    assert drift_lines("local", found, NOW, 80) == [
        "local: no node reported anything in a test of depth smoke: primus preflight --suite smoke"
    ]
    document = drift_document("local", found)
    assert (document["properties"], document["never_tested"]) == ([], ["node-0", "node-1"])
    assert document["oldest_test_at"] is None


def verdict(node: str, at: float, kernel: str, depth: str = "smoke", source: str = "t") -> VerdictRecord:
    reason: dict[str, Any] = {"check": "kernel-version", "verdict": "pass", "measured": kernel, "unit": ""}
    return VerdictRecord("local", node, VerdictWord.PASS, depth, at, (reason,), source)


def test_the_newest_smoke_test_tells_and_the_one_before_it(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    for record in (
        verdict("a", 3.0, "new"),
        verdict("a", 1.0, "oldest"),
        verdict("a", 2.0, "old"),
        verdict("a", 4.0, "deep", depth="device"),
        verdict("b", 9.0, "only"),
        verdict("b", 9.0, "again", source="u"),
    ):
        ledger.add_verdict(record)
    found = properties_from_tests(ledger, "local")
    assert found.now == {"a": {"kernel-version": "new"}, "b": {"kernel-version": "again"}}
    assert found.before == {"a": {"kernel-version": "old"}}
    assert found.at == {"a": 3.0, "b": 9.0}
    assert properties_from_tests(ledger, "elsewhere") == NodeProperties({}, {}, {})
    ledger.close()


@pytest.mark.parametrize(("away", "code"), [("", GOOD), ("nobody listens", UNKNOWN)])
def test_the_command_prints_a_table_or_a_document(
    away: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    ledger.add_verdicts([verdict(f"node-{index}", time.time() - 9.0, "6.8") for index in range(3)])
    monkeypatch.setattr(deployments.cli.fleet, "read_fleet", lambda cluster: fleet(3, away))
    monkeypatch.setattr(deployments.cli.fleet, "open_ledger", lambda: ledger)
    assert show_drift("", as_json=False) == code
    printed = capsys.readouterr()
    assert "kernel-version" in printed.out
    assert ("nobody listens" in printed.err) == bool(away)
    assert show_drift("", as_json=True) == code
    assert '"majority": "6.8"' in capsys.readouterr().out
    ledger.close()


def test_many_nodes_that_are_well_are_counted_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proven = NodeStanding("", VerdictWord.PASS, "")
    well = [FleetNode(f"well-{index}", "cpu", state=Schedulability.SCHEDULABLE, proven=proven) for index in range(9)]
    nodes = (*well, FleetNode("ill", "cpu", state=Schedulability.CORDONED, why=("fan",), proven=proven))
    monkeypatch.setattr(deployments.cli.nodes, "read_fleet", lambda _cluster: Fleet(PROFILE, nodes))
    for filters, every, shown in (((), False, ["ill"]), ((), True, nodes), (("node=well-*",), False, well)):
        assert deployments.cli.nodes.show_nodes((), "", "", filters, every=every, as_json=False) == GOOD
        told = capsys.readouterr().out
        wanted = [getattr(node, "name", node) for node in shown]
        assert [node.name for node in nodes if f"{node.name} " in told] == wanted
        assert ("9 nodes may be used and are proven; --all shows each" in told) == (wanted == ["ill"])
