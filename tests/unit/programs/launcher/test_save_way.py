"""How a program is asked to save, and what says that it has: the rules, and the file that asks."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.harness.launcher_harness import until
from workflows.programs.launcher import lifecycle
from workflows.programs.launcher.lifecycle import (
    Action,
    EndRanks,
    GangReady,
    KillRanks,
    PodState,
    RanksEnded,
    RequestSave,
    SaveComplete,
    SaveWay,
    SignalReceived,
    StopOrdered,
    Tick,
    advance,
)
from workflows.programs.launcher.options import Options
from workflows.programs.launcher.rendezvous import LogNote
from workflows.programs.launcher.saves import SaveRequester
from workflows.programs.progress.reader import ProgressReader, StepCounting, framework_of
from workflows.wire import CheckpointSeen, PhaseSeen, RankEnd, StepSeen

USR1 = SaveWay("USR1")
RUNNING = advance(PodState(20.0, save_way=USR1), GangReady(frozenset({0, 1})), 0.0).state
SAVING = advance(RUNNING, SignalReceived("SIGTERM"), 100.0).state


@pytest.mark.parametrize(
    ("way", "itself", "after"),
    [
        (SaveWay(), True, None),
        (USR1, False, 15.0),
        (SaveWay("INT"), False, 15.0),
        (SaveWay(file="/f"), False, 15.0),
        (SaveWay("HUP", "/f"), False, 15.0),
    ],
)
def test_who_is_asked_by_sigterm_ends_by_itself(way: SaveWay, itself: bool, after: float | None) -> None:
    assert (way.ends_itself, way.end_after(20.0)) == (itself, after)


def test_of_a_short_notice_most_is_left_for_the_save() -> None:
    assert USR1.end_after(2.0) == 1.5


def test_ranks_are_told_to_end_once_their_save_was_seen() -> None:
    assert (SAVING.stage, SAVING.kill_at, SAVING.end_at) == ("saving", 120.0, 115.0)
    assert advance(SAVING, Tick(), 114.9).actions == ()
    seen = advance(SAVING, SaveComplete("step 7 is there"), 101.0)
    assert seen.actions == (EndRanks("the save was seen: step 7 is there"),)
    assert (seen.state.stage, seen.state.end_at, seen.state.kill_at) == ("saving", None, 120.0)
    assert advance(seen.state, SaveComplete("again"), 102.0).actions == ()
    assert advance(seen.state, Tick(), 119.0).actions == ()
    assert advance(seen.state, Tick(), 120.0).actions == (KillRanks(),)


def test_ranks_of_which_no_save_was_seen_are_told_to_end_before_they_are_killed() -> None:
    late = advance(SAVING, Tick(), 115.0)
    assert late.actions == (EndRanks("no save was seen, and the notice is nearly over"),)
    assert advance(late.state, Tick(), 116.0).actions == ()
    assert advance(late.state, Tick(), 120.0).actions == (KillRanks(),)


def test_a_stop_that_lets_save_goes_the_same_way_and_one_that_does_not_kills() -> None:
    told = advance(RUNNING, StopOrdered("drain", True), 100.0)
    assert told.actions == (RequestSave(),)
    assert told.state.end_at == 115.0
    assert advance(told.state, StopOrdered("a member died", False), 101.0).actions == (KillRanks(),)


def test_what_is_seen_of_saves_means_nothing_to_ranks_that_were_not_asked() -> None:
    for state in (RUNNING, advance(PodState(20.0), GangReady(frozenset({0})), 0.0).state):
        assert advance(state, SaveComplete("an ordinary save"), 1.0) == (state, ())
    by_term = advance(replace(RUNNING, save_way=SaveWay()), SignalReceived("SIGTERM"), 100.0).state
    assert by_term.end_at is None
    assert advance(by_term, SaveComplete("step 7"), 101.0).actions == ()


events = st.sampled_from(
    [
        SignalReceived("SIGTERM"),
        StopOrdered("drain", True),
        SaveComplete("x"),
        Tick(),
        RanksEnded((RankEnd(0, 0, 1.0, exit_code=0),)),
    ]
)


@given(st.lists(events, max_size=10))
def test_ranks_are_told_to_end_once_at_most_and_only_after_they_were_asked(history: list[Any]) -> None:
    state, done = RUNNING, list[type[Action]]()
    for now, event in enumerate(history):
        state, actions = advance(state, event, 6.0 * now)
        done += [type(action) for action in actions]
    assert done.count(EndRanks) <= 1
    assert EndRanks not in done or RequestSave in done[: done.index(EndRanks)]


ASKED = lifecycle.new_save_request(100.0, 7)


def phase(name: str, at: float, detail: str = "", rank: int = 0) -> PhaseSeen:
    return PhaseSeen(name, at, rank, detail)


def checkpoint(step: int, written_at: float | None = 100.5, verdict: str = "pass") -> CheckpointSeen:
    return CheckpointSeen(step, f"/c/{step}", 101.0, verdict, written_at=written_at)


@pytest.mark.parametrize(
    ("reports", "seen"),
    [
        ([phase("checkpoint", 100.2, "saving"), phase("step", 100.4, "saved in 0.2 s")], "saved in 0.2 s"),
        ([phase("checkpoint", 100.2), phase("step", 100.4)], "rank 0 says so"),
        # It began before: it may hold an older step.
        ([phase("checkpoint", 99.9, "saving"), phase("step", 100.4, "saved in 0.5 s")], ""),
        # Nobody said that it is complete: the next step came.
        ([phase("checkpoint", 100.2, "saving"), phase("step", 100.4)], ""),
        ([phase("step", 100.4, "saved in 0.2 s")], ""),
        (
            [
                phase("checkpoint", 100.2, "x"),
                phase("step", 100.4, "scheduled an async checkpoint save at iteration 7"),
            ],
            "",
        ),
        (
            [
                phase("checkpoint", 100.2, "x"),
                phase("step", 100.4, "Finished saving the checkpoint (or staging if async"),
            ],
            "",
        ),
        # The other rank is still at it.
        (
            [phase("checkpoint", 100.2, "a"), phase("checkpoint", 100.2, "a", 1), phase("step", 100.4, "saved in 1 s")],
            "",
        ),
        (
            [
                phase("checkpoint", 100.2, "a"),
                phase("checkpoint", 100.2, "a", 1),
                phase("step", 100.4, "saved in 1 s", 1),
                phase("step", 100.5, "saved in 2 s"),
            ],
            "saved in 2 s",
        ),
        ([checkpoint(7)], "/c/7 is complete, step 7"),
        ([checkpoint(8, verdict="unknown")], "/c/8 is complete, step 8"),
        # A save in the background that was begun steps ago.
        ([checkpoint(6)], ""),
        ([checkpoint(7, verdict="fail")], ""),
        ([CheckpointSeen(-1, "/c", 101.0, "unknown", "the storage is away")], ""),
        ([StepSeen(8, 100.5)], ""),
    ],
)
def test_what_says_that_a_save_is_complete(reports: list[Any], seen: str) -> None:
    known = ASKED
    for report in reports:
        known = lifecycle.update_save_request(known, report)
    assert known.completion == seen


def test_without_steps_a_checkpoint_written_after_the_request_counts() -> None:
    known = lifecycle.new_save_request(100.0, None)
    assert lifecycle.update_save_request(known, checkpoint(3, 99.5)).completion == ""
    assert lifecycle.update_save_request(known, checkpoint(3, 100.5)).completion == "/c/3 is complete, step 3"


MEGATRON = "saving checkpoint at iteration   7 to /c"
OWN = '@primus {"report": "PhaseSeen", "phase": "%s"}'


@pytest.mark.parametrize(
    ("framework", "lines", "complete"),
    [
        ("primus-demo", ["checkpoint step 7 is being saved", "checkpoint step 7 saved to /c in 0.1 s"], True),
        ("megatron", [MEGATRON, "successfully saved checkpoint at iteration 7"], True),
        (
            "megatron",
            [
                MEGATRON,
                "scheduled an async checkpoint save at iteration 7",
                "successfully saved checkpoint at iteration 7",
            ],
            False,
        ),
        ("torchtitan", ["Saving the checkpoint", "Finished staging the checkpoint in 0.10 seconds"], False),
        ("regex", ["checkpoint saved to /c in 0.1 s"], True),
        ("none", [OWN % "checkpoint", OWN % "step"], True),
    ],
)
def test_what_programs_print_of_their_saves(framework: str, lines: list[str], complete: bool) -> None:
    reader = ProgressReader(framework_of(framework, r"step (?P<step>\d+)"), StepCounting(), rank=0)
    known, at = ASKED, 101.0
    for text in lines:
        at += 0.1
        for report in reader.feed(text, at):
            known = lifecycle.update_save_request(known, report)
    assert bool(known.completion) == complete


def test_a_helping_role_is_told_to_end_whatever_the_trainer_wants() -> None:
    assert Options("t", save_signal="USR1", save_file="/f").save_way == SaveWay("USR1", "/f")
    assert Options("t", decides=False, save_signal="USR1", save_file="/f").save_way == SaveWay()


class Heard:
    """Who an asker talks to."""

    def __init__(self) -> None:
        self.seen: list[SaveComplete] = []
        self.notes: list[LogNote] = []

    def asker(self, file: Path) -> SaveRequester:
        return SaveRequester(SaveWay(file=str(file)), list, self.seen.append, self.notes.append)


def test_the_file_comes_whole_and_goes_when_the_save_was_seen(tmp_path: Path) -> None:
    file, heard = tmp_path / "not" / "yet" / "there", Heard()
    asker = heard.asker(file)
    asker.request(7, "SIGTERM reached the launcher")
    until(file.exists, "the file")
    assert file.read_text() == "SIGTERM reached the launcher\n"
    assert [one.name for one in file.parent.iterdir()] == ["there"]
    asker.update([StepSeen(8, 1.0)])
    assert heard.seen == []
    asker.update([checkpoint(8)])
    asker.update([checkpoint(9)])
    assert heard.seen == [SaveComplete("/c/8 is complete, step 8")]
    until(lambda: not file.exists(), "the end of the file")


def test_a_file_of_an_earlier_request_is_gone_before_ranks_start(tmp_path: Path) -> None:
    file, heard = tmp_path / "save", Heard()
    file.write_text("from the attempt before")
    heard.asker(file).begin()
    assert not file.exists()
    assert heard.notes == []


def test_a_storage_that_refuses_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    heard = Heard()
    heard.asker(tmp_path / "file" / "save").request(7, "why")
    (note,) = until(lambda: heard.notes, "the complaint")
    assert str(tmp_path / "file" / "save") in note.text
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_storage_that_hangs_keeps_nobody_from_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def hang(_path: str, _text: str) -> None:
        gate.wait()

    monkeypatch.setattr("workflows.programs.launcher.saves.make_file", hang)
    asker = Heard().asker(tmp_path / "save")
    asker.request(7, "why")  # returns although nothing was written
    asker.update([checkpoint(8)])
    assert not (tmp_path / "save").exists()
    gate.set()
