"""How ranks ended as launchers' logs tell it, where no record is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.exits import end_of, logged_ends, with_logged_ends
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.builders.damaged import damaged, reaches
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import Pod
from workflows.programs.launcher.lifecycle import describe
from workflows.wire import RankEnd, Termination, line

KILLED = RankEnd(0, 0, 100.0, None, 9, last_step=50, last_lines=["checkpoint step 50 is being saved"])
FELL = RankEnd(1, 0, 100.2, 1, last_step=50, last_lines=["rank 1: all-reduce failed: rank 0 closed the connection"])
ASKED = RankEnd(1, 0, 100.4, None, 9, requested=True, last_step=50, last_lines=["step 50/90"])


def said(end: RankEnd, file: str = "", node: str = "") -> LogLine:
    return LogLine(line(end), "launcher", None, node, file=file, line=7)


def record(end: RankEnd, pod: str, node: str) -> Termination:
    return Termination("demo", 1, "trainer", node, pod, "rank-failed", [end], end.rank, 50, end.at)


def test_a_pod_without_a_record_is_told_of_by_its_launcher() -> None:
    lines = (said(KILLED, "p0", "node-0"), said(replace(FELL, last_step=7), "p1", "node-1"))
    evidence = Evidence(Signal.POD_FAILED, "demo", 1, 101.0, terminations=(record(FELL, "p1", "node-1"),), lines=lines)
    whole = with_logged_ends(evidence)
    assert whole.terminations[0] == evidence.terminations[0], "its own record counts where there is one"
    (told,) = whole.terminations[1:]
    assert (told.pod, told.node, told.ranks, told.first_failing_rank) == ("p0", "node-0", [KILLED], 0)
    bare = replace(evidence, lines=())
    assert with_logged_ends(bare) is bare


def test_a_killed_rank_whose_launcher_has_not_ended_is_what_broke_the_others() -> None:
    pods = (
        Pod("p0", "trainer", 0, "node-0", "Running", ranks=(0,)),
        Pod("p1", "trainer", 1, "node-1", "Failed", reason="Error", exit_code=1, ranks=(1,)),
    )
    ended = (record(FELL, "p1", "node-1"),)
    evidence = Evidence(Signal.POD_FAILED, "demo", 1, 101.0, pods=pods, terminations=ended)
    assert diagnose(evidence).fault_class is FaultClass.COLLECTIVE_TIMEOUT
    found = diagnose(replace(evidence, lines=(said(KILLED, "p0", "node-0"),)))
    assert (found.fault_class, found.first_failing_rank) == (FaultClass.PROCESS_KILLED, 0)
    assert found.victims == (1,)


CHAIN = """\
step 8/12 | loss 0.125
Traceback (most recent call last):
  File "/work/train.py", line 7, in setup
    load()
FileNotFoundError: settings for the tokenizer are missing

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/work/train.py", line 15, in <module>
    if mode == "chain": setup()
  File "/work/train.py", line 9, in setup
    raise RuntimeError("could not build the dataset") from error
RuntimeError: could not build the dataset"""
NO_KERNEL = """\
step 8/12 | loss 0.125
Traceback (most recent call last):
  File "/work/train.py", line 11, in forward
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
RuntimeError: CUDA error: no kernel image is available for execution on the device"""


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (CHAIN, FaultClass.CONFIG, "FileNotFoundError: settings for the tokenizer are missing ["),
        (NO_KERNEL, FaultClass.CONFIG, "RuntimeError: CUDA error: no kernel image is available"),
    ],
)
def test_a_run_and_its_log_have_one_diagnosis_with_the_first_exception_in_front(
    text: str, kind: FaultClass, why: str
) -> None:
    """What a launcher quotes of its ranks and says of their ends is no second exception."""
    printed = text.splitlines()
    end = RankEnd(0, 0, 100.0, 1, last_step=8, last_lines=printed)
    told = describe(end)
    ours = (line(end), "launcher: ranks that begin again: forked from process 16592", f"launcher: holding: {told}")
    relayed = [LogLine(text, "rank", 0, "node-0", file="p0", line=at) for at, text in enumerate(printed, 1)]
    own = [LogLine(text, "launcher", None, "node-0", file="p0", line=at) for at, text in enumerate(ours, 40)]
    ended = (replace(record(end, "p0", "node-0"), detail=told),)
    seen = f"failed: p0 ({told})"
    run = diagnose(
        Evidence(Signal.POD_FAILED, "demo", 1, 101.0, terminations=ended, lines=(*relayed, *own), detail=seen)
    )
    saved = diagnose(evidence_of([("rank-0.log", printed)]))
    assert run.fault_class is saved.fault_class is kind
    assert run.why.startswith(why), run.why
    assert not any(clue.text.startswith("launcher: ") for clue in run.evidence)


@pytest.mark.parametrize(("role", "code"), [("worker", 7), ("ps", 1)])
def test_who_failed_first_is_to_blame_whatever_number_the_ranks_of_other_roles_have(role: str, code: int) -> None:
    """Rank 0 of the chief, and of the other role, were asked to end; that says nothing of rank 0 of this one."""
    first = RankEnd(0, 0, 100.0, code, last_lines=[f"{role} leaves"])
    asked = RankEnd(0, 0, 100.3, None, 9, requested=True, last_lines=["step 12/100"])
    ended = (
        replace(record(asked, "p-chief", "node-0"), role="chief", reason="told-to-stop", first_failing_rank=None),
        replace(record(first, "p-role", "node-2"), role=role),
        replace(record(asked, "p-other", "node-3"), role="other", reason="told-to-stop", first_failing_rank=None),
    )
    found = diagnose(Evidence(Signal.POD_FAILED, "demo", 1, 101.0, terminations=ended))
    assert (found.fault_class, found.culprits, found.victims) == (FaultClass.UNKNOWN, (("node-2", 0),), ())
    assert found.why.startswith(
        f"{role} rank 0 on node-2 ended first, with exit code {code}, after it printed: {role} leaves"
    )
    assert not found.node_suspect


def test_saved_logs_of_launchers_tell_of_a_killed_rank() -> None:
    zero = ["2026-11-26T03:00:00Z launcher: rank 0 was killed by signal 9 after step 50", line(KILLED)]
    found = diagnose(evidence_of([("trainer-0.log", zero), ("trainer-1.log", [line(ASKED)])]))
    assert (found.fault_class, found.first_failing_rank) == (FaultClass.PROCESS_KILLED, 0)
    assert diagnose(evidence_of([("trainer-0.log", zero[:1])])).fault_class is FaultClass.NONE


def test_only_the_newest_incarnation_counts_and_of_a_rank_its_first_end() -> None:
    later = replace(FELL, incarnation=2)
    twice = replace(KILLED, at=300.0, incarnation=2)
    lines = [said(KILLED), said(later), said(twice), said(replace(twice, at=400.0)), said(ASKED)]
    (found,) = logged_ends(lines)
    assert found.ranks == [twice, later]
    assert (found.first_failing_rank, found.at) == (1, 300.0)


def test_a_record_says_why_its_pod_ended() -> None:
    well = replace(KILLED, exit_code=0, signal=None)
    reasons = [logged_ends([said(one)])[0].reason for one in (KILLED, ASKED, well)]
    assert reasons == ["rank-failed", "told-to-stop", "completed"]


@pytest.mark.parametrize("before", ["", "2026-11-26T03:00:00.1Z ", "[pod/demo-a1-trainer-0-0-abcde/trainer] "])
def test_whatever_a_collector_puts_before_it_an_end_is_found(before: str) -> None:
    assert end_of(before + line(KILLED)) == KILLED


def test_a_line_that_was_cut_tells_how_the_rank_ended() -> None:
    whole = line(replace(KILLED, last_lines=["x" * 2000] * 100))
    assert end_of(whole[:5000]) == replace(KILLED, last_lines=[])
    assert end_of(whole[:60]) is None


ENDS = damaged(
    [line(KILLED), line(FELL), line(ASKED)], ["null", "[]", "{}", '"', ",", "@primus ", "NaN", '"rank":', '"at":']
)


def test_damaged_ends_are_other_ends_and_none() -> None:
    assert reaches(ENDS, lambda text: end_of(text) not in (None, KILLED, FELL, ASKED))
    assert reaches(ENDS, lambda text: "@primus " in text and end_of(text) is None)


@given(ENDS | st.text(), st.integers(0, 200))
def test_no_line_is_an_end_that_is_none(text: str, cut: int) -> None:
    whole = line(KILLED)
    found: list[Any] = [end_of(text), end_of(whole[:cut] + text), end_of(text + whole)]
    assert all(one is None or isinstance(one, RankEnd) for one in found)


def role(name: str, end: RankEnd) -> Termination:
    return replace(record(end, f"demo-a1-{name}-0", f"node-{end.rank}"), role=name)


def test_who_failed_first_is_told_with_its_role_and_its_code() -> None:
    """A worker's code that nobody knows; a parameter server whose end the others only notice."""
    seven = role("worker", RankEnd(3, 0, 100.0, 7, last_step=5, last_lines=["bye"]))
    found = diagnose(Evidence(Signal.POD_FAILED, "demo", 1, 101.0, terminations=(seven, role("chief", ASKED))))
    assert (found.fault_class, found.first_failing_rank) == (FaultClass.UNKNOWN, 3)
    assert found.why.startswith("worker rank 3 on node-3 ended first, with exit code 7, after it printed: bye; ")
    assert [clue.text for clue in found.evidence] == ["rank 3 on node-3: exit code 7"]
    server = role("ps", RankEnd(2, 0, 99.0, 1, last_step=5, last_lines=["serving"]))
    reset = ["ConnectionResetError: [Errno 104] Connection reset by peer"]
    others = (role("worker", replace(FELL, last_lines=reset)), role("chief", replace(FELL, rank=0, last_lines=reset)))
    found = diagnose(Evidence(Signal.POD_FAILED, "demo", 1, 101.0, terminations=(server, *others)))
    assert found.why.startswith("ps rank 2 on node-2 ended first, with exit code 1")
    assert not {0, 1} & {rank for _, rank in found.culprits}
