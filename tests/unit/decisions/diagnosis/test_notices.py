"""A notice that a part of a gang was given, and that its ranks pass on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.exits import notice_of, with_passed_notices
from profiles.vocabulary import FaultClass
from tests.support.builders.nodes import a_node
from tests.support.cases.rows import rows
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import Pod
from workflows.wire import RankEnd, Termination, line

SAVED = ["checkpoint step 18 saved to /c/step-18 in 0.019 s (4.9 MiB)", "stopped by SIGTERM after step 18, saved: True"]
PASSED_ON = RankEnd(0, 0, 1795685927.57, 143, last_step=18, last_lines=SAVED)
ASKED = RankEnd(1, 0, 1795685927.534, 143, requested=True, last_step=18, last_lines=["step 18/90 | compute 0.0513 s"])
SAVING = LogLine(
    "2026-11-26T09:38:47.397810Z launcher: saving: SIGTERM reached the launcher", "launcher", node="node-0", file="p1"
)
TOLD = LogLine(line(ASKED), "launcher", node="node-0", file="p1")
PODS = (
    Pod("p0", "trainer", 0, "node-1", "Failed", reason="Error", exit_code=143, ranks=(0,)),
    Pod("p1", "trainer", 1, "node-0", "Running", ranks=(1,)),
)
LEAVING = (PODS[0], replace(PODS[1], deleted_at=1.0))
NODES = (a_node("node-0", True), a_node("node-1", True))
CORDONED = (replace(NODES[0], cordoned=True), NODES[1])


def ended(end: RankEnd, pod: str = "p0", node: str = "node-1") -> Termination:
    return Termination("demo", 1, "trainer", node, pod, "rank-failed", [end], end.rank, 18, end.at)


def early(end: RankEnd) -> Termination:
    """Of a pod whose rank ended with 0, long before its last step."""
    why = "exit 0 after step 18, before the planned last step 90"
    return replace(ended(replace(end, exit_code=0)), first_failing_rank=None, detail=why)


ALONE = Evidence(Signal.POD_FAILED, "demo", 1, 1795685928.0, pods=PODS, nodes=NODES, terminations=(ended(PASSED_ON),))


@pytest.mark.parametrize(
    ("evidence", "rule"),
    [
        (replace(ALONE, lines=(SAVING,)), "launcher-signalled"),
        (replace(ALONE, lines=(SAVING, TOLD)), "launcher-signalled"),
        (replace(ALONE, lines=(SAVING, TOLD), nodes=CORDONED, pods=LEAVING), "node-cordoned"),
        (replace(ALONE, lines=(TOLD,), nodes=CORDONED), "node-cordoned"),
        (replace(ALONE, nodes=CORDONED, pods=LEAVING), "node-cordoned"),
        (replace(ALONE, nodes=CORDONED, pods=PODS[:1]), "node-cordoned"),
        (replace(ALONE, lines=(SAVING,), terminations=(early(PASSED_ON),)), "launcher-signalled"),
        (replace(ALONE, nodes=CORDONED, pods=LEAVING, terminations=(early(PASSED_ON),)), "node-cordoned"),
    ],
    ids=[
        "it is saving",
        "and has ended",
        "its node is emptied",
        "only its end is told",
        "nothing is told yet",
        "its pod is gone",
        "with 0",
        "with 0, untold",
    ],
)
def test_who_ends_by_the_notice_of_another_pod_was_preempted_with_it(evidence: Evidence, rule: str) -> None:
    found = diagnose(evidence)
    assert (found.fault_class, found.rule) == (FaultClass.PREEMPTED, rule)
    assert ("node-1", 0) not in found.culprits
    assert found.step == 18


@pytest.mark.parametrize(
    "evidence",
    [
        ALONE,
        replace(ALONE, nodes=CORDONED),
        replace(ALONE, pods=LEAVING),
        replace(ALONE, lines=(SAVING, TOLD), terminations=(ended(replace(PASSED_ON, at=1795685926.0)),)),
        replace(ALONE, lines=(SAVING, TOLD), terminations=(ended(replace(PASSED_ON, exit_code=None, signal=15)),)),
        replace(ALONE, lines=(LogLine(line(replace(ASKED, signal=9, exit_code=None)), "launcher", file="p1"),)),
    ],
    ids=[
        "nothing else",
        "nothing ran there",
        "no node is emptied",
        "it ended before",
        "it was killed",
        "it was stopped",
    ],
)
def test_a_sigterm_of_its_own_is_one(evidence: Evidence) -> None:
    found = diagnose(evidence)
    assert (found.fault_class, found.first_failing_rank) == (FaultClass.PROCESS_KILLED, 0)


def test_a_rank_that_fails_otherwise_meanwhile_is_still_told_of() -> None:
    raised = RankEnd(2, 1, 1795685927.6, 1, last_lines=["ValueError: x"])
    both = replace(ended(PASSED_ON), ranks=[PASSED_ON, raised])
    (record,) = with_passed_notices(replace(ALONE, lines=(SAVING,), terminations=(both,))).terminations
    assert [end.requested for end in record.ranks] == [True, False]
    assert (record.first_failing_rank, record.reason) == (2, "rank-failed")


@rows("diagnosis/notices")
def test_what_a_launcher_says_of_a_notice(text: str, source: str, says: tuple[str, float] | None) -> None:
    assert notice_of(LogLine(text, source)) == (says and (says[0], pytest.approx(says[1])))
