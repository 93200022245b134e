"""One row of policy a fault class: no class lacks one, no row contradicts itself, and no other module lists classes."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.accounting.advice import NO_FAILURE_CLASSES
from flows.decisions.diagnosis.clues import GPU_CONSEQUENCES
from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.selection import evidence_of
from flows.decisions.node_tests.actions import OTHERWISE, TABLE, consequence_of
from flows.decisions.policy import BY_RULE, POLICY, FaultPolicy, RetryPrior, policy_of
from flows.decisions.recovery.odds import Tally, chance
from profiles.vocabulary import Action, FaultClass
from tests.support.cases.rows import rows

F = FaultClass
ROOT = Path(__file__).resolve().parents[3]
WORKS = frozenset({F.PREEMPTED, F.CONTROL_PLANE, F.NONE})
"""Nothing is left for a person to do."""


def test_every_class_of_the_vocabulary_has_a_row_in_its_order() -> None:
    assert list(POLICY) == list(FaultClass)
    assert {kind for kind, policy in POLICY.items() if not policy.advice} == WORKS


BREAKS: dict[str, Callable[[FaultPolicy], bool]] = {
    "a retry does not help where we give up, and only there": (
        lambda policy: (policy.action is Action.GIVE_UP) is policy.retry_helps
    ),
    "odds matter only where the action is to give up": (
        lambda policy: policy.ends_whatever_the_odds and policy.action is not Action.GIVE_UP
    ),
    "what may be the code's has several owners": lambda policy: policy.may_be_code and not policy.several_owners,
    "where nobody is to blame, no rank and no node is": (
        lambda policy: (
            policy.blames_nobody and (policy.strikes_few_nodes or policy.lone_rank != "never" or policy.nodes != "none")
        )
    ),
    "a node is quarantined only for what checks of nodes know": (
        lambda policy: policy.nodes != "none" and policy.failed_check is None
    ),
    "who tries again may do so once at least": lambda policy: policy.tries is not None and policy.tries < 1,
    "a prior is a share that some retries outweigh": (
        lambda policy: not (0 < policy.prior.success_share < 1 and policy.prior.worth_retries > 0)
    ),
    "waits and odds are finite": (
        lambda policy: policy.wait_seconds < 0 or not math.isfinite(policy.wait_seconds + policy.log_odds_after_steps)
    ),
}


def contradictions(policy: FaultPolicy) -> list[str]:
    """What a row breaks of the sentences that hold for all."""
    return [sentence for sentence, broken in BREAKS.items() if broken(policy)]


def test_no_row_contradicts_itself() -> None:
    rows = {**POLICY, **BY_RULE}
    assert {name: found for name, row in rows.items() if (found := contradictions(row))} == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    list(
        zip(
            (
                {"retry_helps": False},
                {"ends_whatever_the_odds": True},
                {"several_owners": False},
                {"blames_nobody": True},
                {"failed_check": None},
                {"tries": 0},
                {"prior": RetryPrior(1.0, 4)},
                {"wait_seconds": math.inf},
            ),
            BREAKS,
            strict=True,
        )
    ),
)
def test_a_contradiction_is_seen(change: dict[str, object], sentence: str) -> None:
    assert contradictions(replace(POLICY[F.GPU_DRIVER], **change)) == [sentence]  # type: ignore[arg-type]


def test_classes_of_checks_are_ranked_without_gap_or_tie() -> None:
    assert [found.rank for found in TABLE.values()] == list(range(1, 1 + len(TABLE)))
    assert all(POLICY[kind].failed_check is found for kind, found in TABLE.items())


@given(st.sampled_from(FaultClass))
def test_derived_sets_say_what_the_rows_say(kind: FaultClass) -> None:
    policy = POLICY[kind]
    assert (kind in NO_FAILURE_CLASSES) is (not policy.interrupts_training or policy.exception_blames_code)
    assert (kind.value in GPU_CONSEQUENCES) is policy.follows_broken_gpu
    assert (kind in TABLE) is (policy.failed_check is not None)
    assert consequence_of(kind) == (policy.failed_check or OTHERWISE)
    assert chance(kind, Tally()) == pytest.approx(policy.prior.success_share)
    assert policy_of(kind) is policy


def lists_of_classes(tree: ast.AST) -> Iterator[int]:
    """Lines of sets, tuples and lists of two and more fault classes, and of tables by fault class."""
    unpacked = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign) and _unpacks(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and id(node) not in unpacked:
            parts: list[ast.expr | None] = [*node.elts]
        else:
            parts = [*node.keys] if isinstance(node, ast.Dict) else []
        if sum(_names_class(part) for part in parts) > 1:
            yield node.lineno  # type: ignore[attr-defined]


def _unpacks(node: ast.Assign) -> bool:
    """Short names for classes say nothing about them."""
    return isinstance(node.targets[0], ast.Tuple)


def _names_class(node: ast.expr | None) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in F.__members__:
        return False
    return ast.unparse(node.value) in ("F", "FaultClass")


@rows("decisions/policy")
def test_a_list_of_classes_is_seen(line: str, found: list[int]) -> None:
    assert list(lists_of_classes(ast.parse(line))) == found


def test_no_other_module_of_flows_or_tasks_lists_classes() -> None:
    paths = [path for layer in ("flows", "tasks") for path in sorted((ROOT / layer).rglob("*.py"))]
    lists = {
        path.relative_to(ROOT).as_posix(): lines
        for path in paths
        if (lines := list(lists_of_classes(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert list(lists) == ["flows/decisions/policy.py"], lists


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
    ],
)
def test_the_same_start_again_does_not_help_where_something_must_change_first(line: str) -> None:
    assert not diagnose(evidence_of([("a.log", (line,))])).retry_helps
    assert diagnose(
        evidence_of([("a.log", ("NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.",))])
    ).retry_helps
