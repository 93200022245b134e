"""What a failed test of a node leads to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.actions import OTHERWISE, TABLE, actions_of, consequence_of
from flows.decisions.node_tests.grading.model import NodeGrade
from profiles.checks.check import Check
from profiles.loading.load import load_suite
from profiles.vocabulary import FaultClass, NodeAction, VerdictWord
from tests.support.cases.rows import rows

CHECKS = load_suite("full").checks
NAMES = {check.name: check for check in CHECKS}
A, F, V = NodeAction, FaultClass, VerdictWord


def grade(*reasons: tuple[str, VerdictWord]) -> NodeGrade:
    """A node's grade with these verdicts of checks."""
    told: list[dict[str, Any]] = []
    for name, verdict in reasons:
        one: dict[str, Any] = {"check": name, "verdict": str(verdict), "evidence": f"{name} saw it"}
        told.append(one | ({"severity": "warning"} if NAMES[name].severity == "warning" else {}))
    fatal = [verdict for name, verdict in reasons if NAMES[name].severity == "fatal"]
    worst = V.FAIL if V.FAIL in fatal else V.UNKNOWN if V.UNKNOWN in fatal or not fatal else V.PASS
    return NodeGrade("node-0", worst, tuple(told))


@rows("node_tests/actions")
def test_the_class_of_the_failed_check_decides(
    check: str, fault_class: FaultClass, action: NodeAction, certain: bool
) -> None:
    fault = actions_of(grade((check, V.FAIL)), CHECKS)
    assert fault is not None
    assert (fault.fault_class, fault.action, fault.certain) == (fault_class, action, certain)
    assert (fault.node, fault.check, fault.why) == ("node-0", check, f"{check}: {check} saw it")
    assert fault.what_to_do == NAMES[check].what_to_do


def test_the_worst_failed_check_decides_and_counters_stand_above_figures_that_vary() -> None:
    fault = actions_of(
        grade(("disk-space", V.FAIL), ("gemm-bf16", V.FAIL), ("gpu-count", V.FAIL), ("ecc-nvidia", V.FAIL)), CHECKS
    )
    assert fault is not None
    assert (fault.check, fault.certain) == ("gpu-count", True)


def test_a_failure_is_acted_on_where_others_are_unknown() -> None:
    fault = actions_of(grade(("gpu-count", V.UNKNOWN), ("nic-ports", V.FAIL)), CHECKS)
    assert fault is not None
    assert (fault.check, fault.action) == ("nic-ports", A.QUARANTINE)


def test_a_warning_leads_to_nothing() -> None:
    assert actions_of(grade(("ecc-nvidia", V.PASS), ("throttle-nvidia", V.FAIL)), CHECKS) is None
    assert actions_of(grade(("ecc-nvidia", V.PASS), ("throttle-nvidia", V.UNKNOWN)), CHECKS) is None


def test_what_is_unknown_is_tested_again_and_the_reasons_are_named() -> None:
    names = ("ecc-nvidia", "gpu-count", "nic-ports", "disk-space")
    fault = actions_of(grade(("clock", V.PASS), *((name, V.UNKNOWN) for name in names)), CHECKS)
    assert fault is not None
    assert (fault.action, fault.fault_class, fault.certain) == (None, F.UNKNOWN, False)
    assert fault.what_to_do.startswith("test again")
    assert fault.why == (
        "ecc-nvidia: ecc-nvidia saw it; gpu-count: gpu-count saw it; nic-ports: nic-ports saw it (and 1 more)"
    )


def test_a_node_of_which_no_fatal_check_was_made_is_tested_again() -> None:
    fault = actions_of(grade(("throttle-nvidia", V.FAIL)), CHECKS)
    assert fault is not None
    assert (fault.action, fault.check, fault.why) == (None, "", "no fatal check was made")


def test_a_check_that_is_gone_from_the_suite_is_looked_at_by_a_person() -> None:
    reason = {"check": "of-old", "verdict": "fail", "evidence": "", "what_to_do": "Mend it."}
    fault = actions_of(NodeGrade("node-0", V.FAIL, (reason,)), CHECKS)
    assert fault is not None
    assert (fault.action, fault.fault_class, fault.why, fault.what_to_do) == (
        A.VALIDATE,
        F.UNKNOWN,
        "of-old",
        "Mend it.",
    )


@given(st.lists(st.tuples(st.sampled_from(CHECKS), st.sampled_from(V)), max_size=12, unique_by=lambda one: one[0].name))
def test_only_a_failed_fatal_check_touches_a_node(found: list[tuple[Check, VerdictWord]]) -> None:
    made = grade(*((check.name, verdict) for check, verdict in found))
    fault = actions_of(made, CHECKS)
    failed = {check.name for check, verdict in found if verdict is V.FAIL and check.severity == "fatal"}
    assert (fault is None) == (made.verdict is V.PASS)
    if fault is not None:
        assert (fault.action is not None) == bool(failed)
        assert not failed or fault.check in failed
        assert fault.action is not A.QUARANTINE or made.verdict is V.FAIL


def test_every_class_that_a_shipped_check_has_stands_in_the_table() -> None:
    shipped = {check.fault_class for check in (*CHECKS, *load_suite("any-machine").checks)}
    assert shipped <= set(TABLE)
    assert consequence_of(F.USER_CODE) is OTHERWISE
    assert all(one.why for one in TABLE.values())
    assert all(one.action is not A.RELEASE for one in TABLE.values())
