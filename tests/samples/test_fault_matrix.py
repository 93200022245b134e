"""The preflight tells healthy nodes from faulty ones, on what tools really print; what says nothing never passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.decisions.node_tests.actions import actions_of
from flows.decisions.node_tests.judge import NodeAnswer, judge
from profiles.loading.load import load_hardware, load_suite
from profiles.vocabulary import NodeAction, VerdictWord
from tests.proof import everything
from tests.support.faults.cases import Case, Seen, check_of, every_check, good_answer, run
from tests.support.faults.changes import EVERY, offers, services, tells
from tests.support.faults.matrix import BEGIN, CASES, PAGE, page
from tests.support.faults.node import VirtualNode
from tests.support.faults.silence import NODES, WAYS, checks_on, grades
from tests.support.faults.trees import healthy, quiet_kernel
from workflows.node_tests.preflight import node_checks
from workflows.programs.parsers.text import Reading
from workflows.programs.probes.one import GPU_PROBES

ON_GPUS = GPU_PROBES
"""Probes that compute on GPUs, of which there are none here."""


AS_PROCESSES = CASES if everything() else tuple({case.tool: case for case in reversed(CASES)}.values())
"""The first case of each tool and of each probe."""


def title(case: Case) -> str:
    return f"{case.check}-{case.name}".replace(" ", "-")


def without_figures(seen: Seen, folder: Path) -> str:
    """What was told, without times, ports and the node's folder."""
    return re.sub(r"\d[\d.e+-]*", "#", repr(seen.told).replace(str(folder), ""))


def check(case: Case, seen: Seen) -> None:
    reason, fault, expect = seen.reason(case.check), seen.fault, case.expect
    assert reason["verdict"] == expect.verdict, reason
    assert reason.get("severity", "fatal") == expect.severity == check_of(case.check).severity
    assert seen.grade.verdict is expect.node, seen.grade.reasons
    assert (str(fault.fault_class) if fault else "none") == str(expect.fault_class)
    assert (fault.action if fault else None) is expect.action
    assert (fault is not None and fault.certain) is expect.certain
    if expect.action is not None:
        assert fault is not None
        assert fault.check == case.check
        assert fault.what_to_do == check_of(case.check).what_to_do
        assert reason["evidence"]


@pytest.mark.parametrize("case", CASES, ids=title)
def test_what_a_node_has_is_told_and_acted_on(case: Case, tmp_path: Path) -> None:
    check(case, run(case, tmp_path))


@pytest.mark.parametrize("case", AS_PROCESSES, ids=title)
def test_processes_tell_the_same(case: Case, tmp_path: Path) -> None:
    """The program, each probe and each tool are processes, as in a pod."""
    folder = tmp_path / "processes"
    seen = run(case, folder, as_processes=True)
    check(case, seen)
    assert without_figures(seen, folder) == without_figures(run(case, tmp_path), tmp_path)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_that_does_not_do_its_work_leaves_its_checks_unknown(way: str, node: str, tmp_path: Path) -> None:
    for kind, grade in grades(way, node, tmp_path / "node").items():
        passed = [one["check"] for one in grade.reasons if one["verdict"] != "unknown"]
        assert passed == [], kind
        assert all(one["evidence"] for one in grade.reasons)
        assert grade.verdict is VerdictWord.UNKNOWN
        fault = actions_of(grade, checks_on(load_hardware(kind)))
        assert fault is not None
        assert fault.action is None
        assert fault.what_to_do.startswith("test again")


def test_the_nodes_on_which_tools_fail_make_every_shipped_check() -> None:
    for name, kinds in NODES.items():
        made = {check.name for check in checks_on(load_hardware(name))}
        assert {check.name for kind in kinds for check in checks_on(load_hardware(kind))} <= made
    assert {check.name for name in NODES for check in checks_on(load_hardware(name))} == {
        check.name for check in every_check()
    }
    assert {kind for kinds in NODES.values() for kind in kinds} == {*EVERY, "cpu"}


@pytest.mark.parametrize("kind", [*EVERY, "cpu"])
def test_a_node_with_nothing_wrong_passes_all_of_smoke_and_device(kind: str, tmp_path: Path) -> None:
    hardware = load_hardware(kind)
    node = VirtualNode(tmp_path / "node")
    healthy(node, hardware)
    quiet_kernel(node)
    services("active\nactive\n", 0)(node)
    offers(float(hardware.gpus_per_node), "True")(node)
    tells("fabric-environment", Reading("fabric_environment_wrong", 0.0, "count"))(node)
    node.answers |= {name: good_answer(name, hardware) for name in ON_GPUS}
    suite = load_suite("full")
    checks = [*node_checks(suite, "smoke", hardware), *node_checks(suite, "device", hardware)]
    told = node.ask(checks, hardware, deadline_seconds=120.0, as_processes=everything() or kind in NODES)
    nodes = [NodeAnswer(f"node-{number}", kind, told) for number in range(5)]
    found = judge({kind: checks}, {kind: hardware}, nodes)
    assert [one for one in found["node-0"].reasons if one["verdict"] != "pass"] == []
    assert {name: grade.verdict for name, grade in found.items()} == {item.node: VerdictWord.PASS for item in nodes}
    assert actions_of(found["node-0"], checks) is None


def test_the_matrix_is_large_and_names_each_case_once() -> None:
    assert len(CASES) >= 400
    names = [(case.name, case.check) for case in CASES]
    assert len(set(names)) == len(names)
    actions = {case.expect.action for case in CASES}
    assert actions == {None, NodeAction.QUARANTINE, NodeAction.DRAIN, NodeAction.REPAIR, NodeAction.VALIDATE}
    for verdict in VerdictWord:
        assert sum(case.expect.verdict is verdict for case in CASES) >= 50


def test_nothing_is_done_to_a_node_that_passes_or_is_unknown() -> None:
    assert [case.name for case in CASES if case.expect.action and case.expect.node is not VerdictWord.FAIL] == []
    assert [case.name for case in CASES if case.expect.severity == "warning" and case.expect.action] == []


def test_every_fatal_check_of_smoke_and_device_fails_somewhere() -> None:
    suite = load_suite("full")
    wanted = {one.name for one in suite.checks if one.depth in ("smoke", "device") and one.severity == "fatal"}
    tried = {case.check for case in CASES if case.expect.verdict is VerdictWord.FAIL}
    assert wanted - tried == {"shared-memory"}  # the size of a mount cannot be made up


def test_the_page_holds_the_matrix() -> None:
    _, found, kept = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    assert found + kept == page(), "python -m tests.support.faults.matrix --write"
