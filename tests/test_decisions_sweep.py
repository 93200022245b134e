"""The sweep: whose turn it is, and what reports may be held against nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.sweep import judge, next_nodes, pause_seconds
from profiles.cluster import Monitor
from profiles.vocabulary import FaultClass
from workflows.model.manifest import Condition
from workflows.model.nodes import Node
from workflows.node_tests.sweep import MOST
from workflows.wire import GateReport

NOW = 10_000.0
XID = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
THEIRS = "NVRM: Xid (PCI:0000:44:00): 13, pid=7, name=python, Graphics Exception"
READY = (Condition("Ready", "True"),)


def node(name: str, pool: str = "p", **more: Any) -> Node:
    return Node(name, pool, conditions=more.pop("conditions", READY), **more)


def report(name: str, *checks: dict[str, Any], kernel: tuple[tuple[float, str], ...] = ()) -> GateReport:
    said = {"check": "kernel", "verdict": "unknown", "lines": [list(line) for line in kernel]}
    return GateReport(name, "pass", [*checks, *([said] if kernel else [])], NOW)


def failed(check: str, verdict: str = "fail") -> dict[str, Any]:
    return {"check": check, "verdict": verdict, "evidence": "so it is"}


def against(*reports: GateReport, since: float = 0.0) -> list[tuple[str, str, FaultClass]]:
    pools = {item.node: "p" for item in reports}
    found = judge(reports, pools, dict.fromkeys(pools, since)).faults
    return [(item.node, item.condition, item.fault_class) for item in found]


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (report("a"), []),
        (report("a", kernel=((NOW - 10, XID),)), [("a", "SweepKernel", FaultClass.GPU_HARDWARE)]),
        (report("a", kernel=((NOW - 10, THEIRS),)), []),
        (report("a", kernel=((NOW + 10, XID),)), []),
        (report("a", failed("tools")), [("a", "SweepTools", FaultClass.GPU_DRIVER)]),
        (report("a", failed("mounts")), [("a", "SweepMounts", FaultClass.STORAGE)]),
        (report("a", failed("tools", "unknown"), failed("mounts", "unknown")), []),
        (report("a", failed("clock")), []),
        (report("a", failed("something new")), []),
    ],
)
def test_what_is_held_against_a_node(seen: GateReport, found: list[tuple[str, str, FaultClass]]) -> None:
    assert against(seen) == found


def test_what_an_earlier_sweep_has_judged_counts_no_more() -> None:
    seen = report("a", kernel=((NOW - 10, XID),))
    assert against(seen, since=NOW - 5) == []
    assert len(against(seen, since=NOW - 15)) == 1
    assert len(judge([seen], {"a": "p"}, {}).faults) == 1, "an hour counts where nobody looked before"
    old = report("a", kernel=((NOW - 4000, XID),))
    assert judge([old], {"a": "p"}, {}).faults == ()


def test_what_most_nodes_have_comes_from_elsewhere() -> None:
    three = [report(name, failed("mounts")) for name in "abc"]
    found = judge([*three, report("d"), report("e", failed("tools"))], dict.fromkeys("abcde", "p"), {})
    assert [item.node for item in found.faults] == ["e"]
    assert found.shared == ("3 of 5 nodes report storage: they share the cause, so none of them is blamed",)
    assert len(against(*three, *(report(name) for name in "defg"))) == 3, "three of seven"
    assert len(against(*three[:2])) == 2, "too few to say"


def test_everything_that_is_not_well_is_told_and_strangers_are_left_out() -> None:
    found = judge(
        [report("a", failed("clock"), failed("tools", "unknown")), report("x", failed("tools"))], {"a": "p"}, {}
    )
    assert found.faults == ()
    assert found.notes == (
        ("a", "sweep: clock: fail: so it is"),
        ("a", "sweep: tools: unknown: so it is"),
        ("x", "sweep: tools: fail: so it is"),
    )


def test_the_longest_unseen_have_their_turn_in_the_order_of_their_names() -> None:
    nodes = [node(f"n{number}") for number in (10, 2, 1, 3)]
    nodes += [node("gone", leaving=True), node("mute", conditions=(Condition("Ready", "Unknown"),))]
    looked_at = {"n1": NOW, "n2": NOW - 60, "n3": NOW - 30}
    chosen = next_nodes(nodes, looked_at, Monitor(sweep_share=0.5))
    assert [item.name for item in chosen] == ["n2", "n10"]
    assert next_nodes([], {}, Monitor()) == ()


@given(st.integers(1, 20_000), st.floats(0.001, 1.0), st.floats(1.0, 86400.0))
def test_in_its_time_the_share_is_looked_at(count: int, share: float, seconds: float) -> None:
    monitor = Monitor(sweep_seconds=seconds, sweep_share=share)
    quota = max(1.0, share * count)
    chosen = min(MOST, -(-count * share // 1))
    pause = pause_seconds(int(max(1, chosen)), count, monitor)
    assert 0 < pause <= seconds
    if quota >= MOST:
        assert pause == pytest.approx(seconds * MOST / quota)


@given(
    st.lists(
        st.builds(
            GateReport,
            st.sampled_from(["a", "b", "c", "d"]),
            st.sampled_from(["pass", "fail", "unknown"]),
            st.lists(
                st.fixed_dictionaries(
                    {"check": st.sampled_from(["kernel", "tools", "mounts", "clock"])},
                    optional={
                        "verdict": st.sampled_from(["pass", "fail", "unknown"]),
                        "lines": st.lists(st.tuples(st.floats(allow_nan=True), st.text()) | st.integers()),
                        "evidence": st.text(),
                    },
                )
            ),
            st.just(NOW),
        )
    )
)
def test_any_report_is_judged_and_unknown_is_no_fault(reports: list[GateReport]) -> None:
    found = judge(reports, dict.fromkeys("abcd", "p"), {})
    for item in found.faults:
        said = [check for one in reports if one.node == item.node for check in one.checks]
        assert item.condition == "SweepKernel" or any(check.get("verdict") == "fail" for check in said)
