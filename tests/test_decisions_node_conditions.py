"""What conditions say against a node: three-valued, and nothing is done about what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.monitoring.node_conditions import (
    LASTING,
    STALE_SECONDS,
    TABLE,
    YOUNG_SECONDS,
    FaultRules,
    find,
    only_programs_xids,
    out_of_service,
    rules_of,
    worst,
)
from profiles.cluster import NodeCondition
from profiles.vocabulary import FaultClass, VerdictWord
from workflows import labels
from workflows.model.manifest import Condition
from workflows.model.nodes import Node, NodeFinding, Taint

NOW = 1_000_000.0
RULES = FaultRules()
READY = Condition("Ready", "True", "KubeletReady", at=NOW - 9000, heard_at=NOW - 10)
BAD = {"True": "True", "False": "False"}


def condition(kind: str, status: str = "True", stood: float = 5000.0, heard: float = 10.0, **words: str) -> Condition:
    return Condition(kind, status, at=NOW - stood, heard_at=NOW - heard, **words)


def node(*conditions: Condition, **facts: object) -> Node:
    seen = Node("node-1", "gpu", "7", NOW - 90_000, (READY, *conditions))
    return replace(seen, **facts)  # type: ignore[arg-type]


def found(*conditions: Condition, **facts: object) -> NodeFinding | None:
    return find(node(*conditions, **facts), RULES, NOW)


@pytest.mark.parametrize("rule", TABLE, ids=lambda rule: f"{rule.type}")
def test_every_entry_of_the_table_tells_a_fault_that_has_stood(rule: object) -> None:
    one = next(item for item in TABLE if item is rule)
    kind = one.type.replace("[Ss]", "s").replace("*", "Some")
    assert RULES.of(kind) is one, "an earlier entry takes its place"
    others = () if kind == "Ready" else (READY,)
    seen = node(conditions=(*others, condition(kind, one.status)))
    finding = find(seen, RULES, NOW)
    assert finding is not None
    assert (finding.verdict, finding.fault_class, finding.condition) == (VerdictWord.FAIL, one.fault_class, kind)
    assert finding.certain is (one.stands_seconds == 0)
    good = "False" if one.status == "True" else "True"
    assert find(node(conditions=(*others, condition(kind, good))), RULES, NOW) is None or kind == "Ready"


@pytest.mark.parametrize(
    "kind", ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "NTPProblem", "X"]
)
def test_what_runs_on_a_node_is_nothing_against_its_hardware(kind: str) -> None:
    assert found(condition(kind)) is None


def test_an_unknown_condition_is_not_known() -> None:
    finding = found(condition("KernelDeadlock", "Unknown"))
    assert finding is not None
    assert finding.verdict is VerdictWord.UNKNOWN
    silent = find(node(conditions=(condition("Ready", "Unknown"),)), RULES, NOW)
    assert silent is not None
    assert silent.verdict is VerdictWord.UNKNOWN
    empty = find(node(conditions=()), RULES, NOW)
    assert empty is not None
    assert (empty.verdict, empty.condition) == (VerdictWord.UNKNOWN, "Ready")


def test_what_nobody_repeats_any_more_is_not_known() -> None:
    stale = found(condition("KernelDeadlock", heard=STALE_SECONDS + 1))
    assert stale is not None
    assert stale.verdict is VerdictWord.UNKNOWN
    assert "not confirmed for 901 s" in stale.why
    undated = found(Condition("KernelDeadlock", "True"))
    assert undated is not None
    assert undated.verdict is VerdictWord.UNKNOWN
    written_once = found(condition("SysLogsGPUFallenOff", heard=86_400))
    assert written_once is not None
    assert written_once.verdict is VerdictWord.FAIL, "its writer repeats nothing"


def test_a_condition_that_flaps_must_stand() -> None:
    fresh = condition("IBLinkFlapping", stood=100)
    finding = found(fresh)
    assert finding is not None
    assert (finding.verdict, finding.due_at) == (VerdictWord.UNKNOWN, NOW + 200)
    later = find(node(fresh), RULES, NOW + 200)
    assert later is not None
    assert later.verdict is VerdictWord.FAIL
    assert later.key == finding.key, "the same standing, the same finding"


def test_our_own_eyes_count_where_the_nodes_clock_is_behind() -> None:
    seen = node(condition("IBLinkFlapping", stood=86_400))
    just_now = find(seen, RULES, NOW, {"IBLinkFlapping": NOW - 1})
    assert just_now is not None
    assert just_now.verdict is VerdictWord.UNKNOWN


def test_a_node_that_joins_may_be_unready() -> None:
    unready = condition("Ready", "False", stood=YOUNG_SECONDS - 1)
    young = find(node(conditions=(unready,), created_at=NOW - YOUNG_SECONDS + 1), RULES, NOW)
    assert young is not None
    assert young.verdict is VerdictWord.UNKNOWN
    old = find(node(conditions=(condition("Ready", "False", stood=LASTING),)), RULES, NOW)
    assert old is not None
    assert old.verdict is VerdictWord.FAIL


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', GPU has fallen off the bus.", False),
        ("NVRM: Xid (PCI:0000:44:00): 31, pid=7, name=python", True),
        ("Xid 13 and Xid 31", True),
        ("Xid 13, then Xid 79", False),
        ("GPU memory is bad", False),
    ],
)
def test_an_xid_of_a_program_is_nothing_against_the_node(text: str, programs: bool) -> None:
    assert only_programs_xids(text) is programs
    finding = found(condition("XIDErrors", message=text))
    assert finding is not None
    assert finding.verdict is (VerdictWord.UNKNOWN if programs else VerdictWord.FAIL)


def test_a_site_has_the_first_word() -> None:
    own = rules_of(
        [
            NodeCondition(type="Acme*", fault_class=FaultClass.FABRIC, status="False", stands_seconds=60),
            NodeCondition(type="KernelDeadlock", fault_class=FaultClass.NONE),
        ]
    )
    finding = find(node(condition("AcmeLinks", "False"), condition("KernelDeadlock")), own, NOW)
    assert finding is not None
    assert (finding.condition, finding.fault_class) == ("AcmeLinks", FaultClass.FABRIC)
    assert find(node(condition("KernelDeadlock")), own, NOW) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cordoned": True}, "cordoned"),
        ({"leaving": True}, "deleted"),
        ({"taints": (Taint(labels.QUARANTINE_TAINT, "x", "NoSchedule"),)}, "our taint"),
        ({"taints": (Taint(labels.HOLD_TAINT, "x", "NoSchedule"),)}, "our taint"),
        ({"taints": (Taint("amd.com/gpu", "present", "NoSchedule"),)}, ""),
    ],
)
def test_whose_node_it_is(facts: dict[str, object], words: str) -> None:
    why = out_of_service(node(**facts))
    assert (words in why) if words else why == ""


STATUS = st.sampled_from(["True", "False", "Unknown", "", "true"])
MOMENT = st.one_of(st.none(), st.floats(0, 2 * NOW))
KINDS = st.sampled_from([rule.type.replace("*", "x") for rule in TABLE] + ["MemoryPressure", "Other"])
CONDITIONS = st.builds(Condition, KINDS, STATUS, st.text(max_size=9), st.text(max_size=20), MOMENT, MOMENT)


@given(st.lists(CONDITIONS, max_size=5), MOMENT)
def test_a_fault_is_always_fresh_named_and_has_stood(conditions: list[Condition], created: float | None) -> None:
    finding = find(Node("n", "p", "1", created, tuple(conditions)), RULES, NOW)
    if finding is None or finding.verdict is not VerdictWord.FAIL:
        return
    rule = RULES.of(finding.condition)
    assert rule is not None
    [*same] = [item for item in conditions if item.type == finding.condition and item.status == rule.status]
    assert same, "a fault is what somebody said"
    stood = [NOW - item.at for item in same if item.at is not None]
    assert not rule.stands_seconds or any(seconds >= rule.stands_seconds for seconds in stood)
    heard = [item.at if item.heard_at is None else item.heard_at for item in same]
    assert not rule.beats or any(at is not None and NOW - at <= STALE_SECONDS for at in heard)


@given(st.lists(CONDITIONS, max_size=5), st.floats(0, 3600))
def test_waiting_never_makes_a_new_kind_of_fault_out_of_nothing(conditions: list[Condition], more: float) -> None:
    seen = Node("n", "p", "1", None, tuple(conditions))
    if find(seen, RULES, NOW) is None:
        assert find(seen, RULES, NOW + more) is None


@given(st.lists(CONDITIONS, max_size=6))
def test_the_order_of_conditions_does_not_matter(conditions: list[Condition]) -> None:
    unique = list({item.type: item for item in conditions}.values())
    one = find(Node("n", "p", "1", None, tuple(unique)), RULES, NOW)
    other = find(Node("n", "p", "1", None, tuple(reversed(unique))), RULES, NOW)
    assert one == other


def test_certain_faults_come_first() -> None:
    finding = found(condition("IBLinkFlapping", stood=9000), condition("KernelDeadlock", stood=1))
    assert finding is not None
    assert finding.condition == "KernelDeadlock"
    assert worst([]) is None
