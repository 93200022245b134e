"""Which nodes are examined, and what their examination adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.losses import lost_nodes
from flows.decisions.policy import POLICY, policy_of
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import Situation
from flows.decisions.recovery.situation import (
    MAX_SUSPECTS,
    examination_text,
    ordinal,
    pause_reason,
    suspects,
    with_examination,
)
from profiles.vocabulary import FaultClass, Mode, RunState
from tests.support.builders.nodes import a_node
from tests.support.cases.rows import rows
from tests.unit.decisions.diagnosis.test_diagnose import (
    EVIDENCE,
    NOW,
    TIMEOUT,
    XID,
    end,
    incident,
    kernel,
    left,
    pod,
    rank_line,
)
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.nodes import Node
from workflows.model.records import AttemptRecord, IncidentRecord, RunRecord, Story
from workflows.wire import GateReport

F = FaultClass
FABRIC = "NCCL WARN NET/IB : Got completion from peer 10.0.0.9<54862> with status=12 opcode=0 len=0 vendor err 129"
HIP = "RuntimeError: HIP error: unspecified launch failure"
THREE = tuple(pod(f"node-{rank}", rank) for rank in range(3))
WELL = tuple(a_node(f"node-{rank}", True) for rank in range(3))


def failed(*last: str, nodes: tuple[Node, ...] = WELL, lines: tuple[LogLine, ...] = ()) -> Evidence:
    """A gang of three whose rank 1 ended with these lines."""
    ended = left("node-1", end(1, 1, lines=last))
    return incident(terminations=(ended,), pods=THREE, nodes=nodes, lines=lines)


def said(kind: FaultClass, confidence: float = 0.7, **more: object) -> Diagnosis:
    return Diagnosis(kind, confidence, **more)  # type: ignore[arg-type]


def report(
    verdict: str, node: str = "node-1", kernel_check: Mapping[str, Any] | None = None, **check: str
) -> GateReport:
    made: list[dict[str, Any]] = [{"check": "storage", "verdict": verdict, **check}]
    return GateReport(node, verdict, [*made, dict(kernel_check)] if kernel_check else made, NOW)


CASES: dict[str, tuple[Evidence, tuple[str, ...]]] = {
    "a fabric error that names nobody: where it was printed": (failed(FABRIC), ("node-1",)),
    "a launch failure may be the driver's or the code's": (failed(HIP), ("node-1",)),
    "nothing tells what it was: the node of the rank that failed first": (failed("bye"), ("node-1",)),
    "all ranks waited for each other: whoever said so, who failed first first": (
        incident(
            lines=tuple(rank_line(rank, f"[Rank {rank}] {TIMEOUT}") for rank in (0, 1, 2)),
            terminations=(left("node-2", end(2, 1, at=980.0)), left("node-0", end(0, 1, at=980.01))),
            pods=THREE,
            nodes=WELL,
        ),
        ("node-2", "node-0", "node-1"),
    ),
    "the kernel named the GPU: sure, and somebody is to blame": (failed(HIP, lines=(kernel("node-1", XID),)), ()),
    "the user's code": (failed("Traceback (most recent call last):", "  File x", "KeyError: 'x'"), ()),
    "a killed rank": (incident(terminations=(left("node-1", end(1, signal=9)),), pods=THREE, nodes=WELL), ()),
    "a lost node": (
        incident(Signal.NODE_NOT_READY, pods=THREE, nodes=(a_node("node-1", False, "PowerLost"), *WELL[::2])),
        (),
    ),
    "out of memory": (failed("MemoryError"), ()),
    "a suspect that nobody hears any more cannot be examined": (
        failed(FABRIC, nodes=(WELL[0], a_node("node-1", None), WELL[2])),
        (),
    ),
    "a suspect whose node is no longer known": (failed(FABRIC, nodes=(WELL[0], WELL[2])), ()),
    "the gate has just looked": (
        incident(
            Signal.GATE_FAILED,
            nodes=WELL,
            gate=(
                GateReport("node-0", "pass", []),
                GateReport("node-1", "fail", [{"check": "storage", "verdict": "fail", "evidence": "slow"}]),
            ),
        ),
        (),
    ),
    "a cordoned suspect is examined all the same": (
        failed(FABRIC, nodes=(WELL[0], a_node("node-1", True, cordoned=True), WELL[2])),
        ("node-1",),
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_who_is_examined(sentence: str) -> None:
    evidence, wanted = CASES[sentence]
    assert suspects(diagnose(evidence), evidence) == wanted


@pytest.mark.parametrize("kind", FaultClass)
def test_only_classes_that_may_be_the_hardware_s_are_looked_at(kind: FaultClass) -> None:
    evidence = incident(pods=THREE, nodes=WELL)
    found = suspects(said(kind, nodes=("node-1",)), evidence)
    assert found == (("node-1",) if POLICY[kind].may_be_hardware else ())


@rows("recovery/suspects")
def test_where_the_evidence_has_decided_nobody_looks(
    confidence: float, culprits: tuple[tuple[str, int | None], ...], examined: tuple[str, ...]
) -> None:
    first = said(F.FABRIC, confidence, culprits=culprits, nodes=("node-1",))
    assert suspects(first, incident(pods=THREE, nodes=WELL)) == examined


def test_where_it_is_sure_that_nothing_is_known_the_node_of_who_failed_first_is_looked_at() -> None:
    evidence = incident(pods=THREE, nodes=WELL)
    found = suspects(said(F.UNKNOWN, nodes=("node-1",), confidence=1.0, culprits=(("node-1", 1),)), evidence)
    assert found == ("node-1",)


def test_a_whole_gang_is_not_examined() -> None:
    names = [f"node-{number}" for number in range(40)]
    evidence = incident(nodes=tuple(a_node(name, True) for name in names))
    found = suspects(said(F.COLLECTIVE_TIMEOUT, nodes=tuple(names)), evidence)
    assert len(found) == MAX_SUSPECTS
    assert set(found) <= set(names)


@settings(max_examples=300)
@given(EVIDENCE, st.sampled_from(FaultClass), st.floats(0, 1), st.lists(st.sampled_from(["node-0", "node-7", ""])))
def test_nobody_is_examined_who_is_lost_or_not_in_the_evidence(
    evidence: Evidence, kind: FaultClass, confidence: float, culprits: list[str]
) -> None:
    bold = said(kind, confidence, culprits=tuple((node, None) for node in culprits), nodes=("node-1", "node-8"))
    for diagnosis in (bold, diagnose(evidence)):
        found = suspects(diagnosis, evidence)
        assert set(found) <= {node.name for node in evidence.nodes if node.ready is True}
        assert not set(found) & set(lost_nodes(evidence))
        assert len(found) == len(set(found)) <= MAX_SUSPECTS
        assert not found or policy_of(diagnosis.fault_class, diagnosis.rule).may_be_hardware


def test_what_the_kernel_said_is_judged_by_the_rules() -> None:
    evidence = failed(HIP)
    first = diagnose(evidence)
    assert (first.fault_class, first.node_suspect) == (F.USER_CODE, False)
    lines = {"check": "kernel", "verdict": "unknown", "lines": [[NOW - 5, XID]]}
    second = diagnose(with_examination(evidence, (report("pass", kernel_check=lines),)))
    assert (second.fault_class, second.culprits) == (F.GPU_HARDWARE, (("node-1", None),))
    assert second.confidence > 0.9


def test_what_the_kernel_said_long_ago_is_no_evidence() -> None:
    evidence = failed(HIP)
    lines = {"check": "kernel", "verdict": "unknown", "lines": [[NOW - 86400, XID]]}
    second = diagnose(with_examination(evidence, (report("pass", kernel_check=lines),)))
    assert second.fault_class is F.USER_CODE


def test_a_failed_check_blames_the_node() -> None:
    evidence = with_examination(failed("bye"), (report("fail", evidence="the storage is not mounted"),))
    second = diagnose(evidence)
    assert (second.fault_class, second.culprits) == (F.STORAGE, (("node-1", None),))
    assert "examination on node-1: storage failed: the storage is not mounted" in second.why


@pytest.mark.parametrize("verdict", ["pass", "unknown"])
@pytest.mark.parametrize("evidence", [failed(FABRIC), failed("bye"), failed(HIP)], ids=["fabric", "unknown", "driver"])
def test_an_examination_that_finds_nothing_changes_nothing(verdict: str, evidence: Evidence) -> None:
    quiet = {"check": "kernel", "verdict": "unknown", "evidence": "not permitted"}
    reports = tuple(report(verdict, f"node-{number}", quiet) for number in range(3))
    first, second = diagnose(evidence), diagnose(with_examination(evidence, reports))
    assert second == first
    assert decide(second, Situation(NOW)) == decide(first, Situation(NOW))


BROKEN = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=3)), max_size=3))),
)


@given(BROKEN)
def test_lines_of_another_form_are_left_out(lines: object) -> None:
    told_wrongly = report("pass", kernel_check={"check": "kernel", "verdict": "unknown", "lines": lines})
    evidence = with_examination(incident(), (told_wrongly,))
    assert all(isinstance(line.text, str) and isinstance(line.at, float) for line in evidence.lines)
    diagnose(evidence)
    assert examination_text(told_wrongly).startswith("examined node-1: pass")


@pytest.mark.parametrize(
    ("given_report", "words"),
    [
        (report("pass"), "examined node-1: pass"),
        (
            report("pass", kernel_check={"check": "kernel", "verdict": "pass"}),
            "examined node-1: pass; its kernel log shows no fault",
        ),
        (
            report("pass", kernel_check={"check": "kernel", "verdict": "unknown", "lines": [[1.0, "a"], [2.0, "b"]]}),
            "examined node-1: pass; its kernel log has 2 lines about faults",
        ),
        (
            report("fail", evidence="slow", kernel_check={"check": "kernel", "verdict": "unknown", "evidence": "no"}),
            "examined node-1: fail; storage: slow; its kernel log could not be read (no)",
        ),
        (report("unknown", evidence="no answer"), "examined node-1: unknown; storage: no answer"),
    ],
)
def test_what_an_examination_found_in_words(given_report: GateReport, words: str) -> None:
    assert examination_text(given_report) == words


def test_words_are_bounded() -> None:
    assert len(examination_text(report("fail", evidence="x" * 9999))) <= 300


def a_story(mode: Mode = Mode.ACT, *, paused: bool = False) -> Story:
    run = RunRecord("demo", RunState.RECOVERING, "", "demo", {}, "", "local", mode, 1.0)
    seen = [(1, 1), (1, 2), (2, 1)]
    found = [IncidentRecord(f"demo-a{a}-i{number}", "demo", a, 1.0, 1.0, "pod-failed") for a, number in seen]
    attempts = (AttemptRecord("demo", 1, 1.0, ""), AttemptRecord("demo", 2, 1.0, ""))
    return Story(run, attempts, tuple(found), paused=paused)


def test_nothing_is_touched_in_a_pause_or_in_mode_observe() -> None:
    assert pause_reason(a_story()) == pause_reason(a_story(Mode.ASK)) == ""
    assert "observe" in pause_reason(a_story(Mode.OBSERVE))
    assert "paused" in pause_reason(a_story(paused=True))


def test_an_examination_is_numbered_by_the_incident_of_its_attempt() -> None:
    story = a_story()
    assert [ordinal(item, story) for item in story.incidents] == [1, 2, 1]
    later = replace(story, incidents=(*story.incidents, replace(story.incidents[0], id="demo-a2-i2", attempt=2)))
    assert [ordinal(item, later) for item in later.incidents] == [1, 2, 1, 2]
