"""How a program is asked to save, and what says that it has: the rules, and the file that asks.

Trainers that save on another signal, or when a file appears, and go on: real launchers, nothing may be lost.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator

from tests.support.cases.rows import rows
from tests.support.harness.launcher_harness import GangOnLoopback, Program, alive, terminate, until
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


@rows("programs/launcher/save_way")
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


KINDS: dict[str, Callable[..., Any]] = {
    "phase": phase,
    "checkpoint": checkpoint,
    "StepSeen": StepSeen,
    "CheckpointSeen": CheckpointSeen,
}
Report = Annotated[Any, BeforeValidator(lambda told: next(KINDS[kind](**fields) for kind, fields in told.items()))]


@rows("programs/launcher/save_way")
def test_what_says_that_a_save_is_complete(reports: list[Report], seen: str) -> None:
    known = ASKED
    for report in reports:
        known = lifecycle.update_save_request(known, report)
    assert known.completion == seen


def test_without_steps_a_checkpoint_written_after_the_request_counts() -> None:
    known = lifecycle.new_save_request(100.0, None)
    assert lifecycle.update_save_request(known, checkpoint(3, 99.5)).completion == ""
    assert lifecycle.update_save_request(known, checkpoint(3, 100.5)).completion == "/c/3 is complete, step 3"


@rows("programs/launcher/save_way")
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


TRAINER = r"""
import os, signal, sys, time
rank = int(os.environ["RANK"])
folder, way = os.environ["PRIMUS_CHECKPOINT_DIR"], os.environ["WAY"]
asked = False
def ask(number, frame):
    global asked
    asked = True
if not way.startswith("/"):
    signal.signal(getattr(signal, "SIG" + way), ask)
step = int(os.environ["PRIMUS_RESUME_STEP"] or 0)
print("file is there at the start:", os.path.exists(way), flush=True)
while True:
    step += 1
    if rank == 0:
        print(f"step {step}/0 | loss 1.0 | tokens/s 5 | step time 0.0100 s", flush=True)
    time.sleep(0.02)
    if way.startswith("/") and os.path.exists(way) and not saved_for(way):
        asked = True
    if asked:
        asked = False
        if os.environ.get("DEAF"):
            continue
        time.sleep(0.1)
        with open(f"{folder}/model.{step}.{rank}.new", "w") as file:
            file.write(f"weights of step {step}")
        os.rename(f"{folder}/model.{step}.{rank}.new", f"{folder}/model.{step}.{rank}")
        if os.environ.get("SAYS"):
            print(f"checkpoint step {step} saved to {folder} in 0.1 s", flush=True)
"""
ONCE = """
answered = set()
def saved_for(way):
    told = os.stat(way).st_mtime_ns
    again = told in answered
    answered.add(told)
    return again
"""
PATTERN = r"--checkpoint-pattern=^model\.(?P<step>\d+)\.\d+$"


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[GangOnLoopback]:
    one = GangOnLoopback(tmp_path)
    one.trainer.write_text(ONCE.replace("answered = set()", "import os\nanswered = set()") + TRAINER)
    (tmp_path / "checkpoints").mkdir()
    yield one
    one.close()


def train(gang: GangOnLoopback, index: int, *flags: str, pods: int = 1, says: str = "1", **environment: str) -> Program:
    """A pod whose trainer saves in the way of the flags; the prover watches only where the trainer says nothing."""
    watched = ("--checkpoint-format=none",) if says else ("--checkpoint-format=pattern", PATTERN)
    way = next(flag.partition("=")[2] for flag in flags if flag.startswith("--save-"))
    place = {"PRIMUS_CHECKPOINT_DIR": str(gang.folder / "checkpoints"), "WAY": way, "SAYS": says, **environment}
    command = [sys.executable, "-S", str(gang.trainer)]
    return gang.launch(index, *watched, *flags, pods=pods, command=command, **place)  # pyright: ignore[reportArgumentType] - variables are in capitals


def last_seen(pod: Program) -> int:
    return max((report.step for report in pod.reports() if isinstance(report, StepSeen)), default=0)


def saved(gang: GangOnLoopback, rank: int = 0) -> int:
    return max(
        (int(one.name.split(".")[1]) for one in (gang.folder / "checkpoints").glob(f"model.*.{rank}")), default=0
    )


@pytest.mark.parametrize("says", ["1", ""], ids=["by its own word", "by the prover's"])
@pytest.mark.parametrize("way", ["--save-signal=USR1", "--save-signal=HUP", "--save-file"])
def test_a_trainer_that_saves_and_goes_on_loses_no_step(gang: GangOnLoopback, way: str, says: str) -> None:
    file = gang.folder / "run" / "save-now"
    if way == "--save-file":
        way = f"--save-file={file}"
        file.parent.mkdir()
        file.write_text("from an attempt before\n")
    pod = train(gang, 0, way, "--save-grace-seconds=60", PRIMUS_COORDINATOR_URL="", says=says)
    known = until(lambda: (seen := last_seen(pod)) >= 5 and seen, "step 5")
    assert pod.says("file is there at the start: False")
    terminate(pod)
    assert pod.end() == 143
    assert saved(gang) >= known
    assert gang.termination().reason == "signalled"
    assert [(end.signal, end.requested) for end in gang.termination().ranks] == [(15, True)]
    assert "the ranks are told to end: the save was seen" in pod.text
    until(lambda: not file.exists(), "the end of the file")


def test_a_stop_of_the_flow_lets_them_save_as_well(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2)
    pods = [train(gang, index, "--save-signal=USR2", "--save-grace-seconds=60", pods=2) for index in (0, 1)]
    pods[1].says("file is there at the start")  # from now on the signal finds somebody
    ranks, known = gang.ranks(), until(lambda: (seen := last_seen(pods[0])) >= 5 and seen, "step 5")
    assert gang.tell("/v1/stop", {"why": "a person asked"}) == 200
    assert [pod.end() for pod in pods] == [143, 143]
    assert [gang.message(index).reason for index in (0, 1)] == ["told-to-stop"] * 2
    assert saved(gang, 0) >= known
    assert saved(gang, 1) > 0
    assert not any(alive(pid) for pid in ranks.values())


def test_a_trainer_that_does_not_answer_is_told_to_end_before_the_notice_is_over(gang: GangOnLoopback) -> None:
    pod = train(gang, 0, "--save-signal=USR1", "--save-grace-seconds=2", PRIMUS_COORDINATOR_URL="", DEAF="1")
    pod.says("step 3/")
    terminate(pod)
    assert pod.end() == 143
    assert [(end.signal, end.requested) for end in gang.termination().ranks] == [(15, True)]  # and not by SIGKILL
    assert "the ranks are told to end: no save was seen, and the notice is nearly over" in pod.text
    assert saved(gang) == 0


def test_a_wrong_way_is_named(gang: GangOnLoopback) -> None:
    assert gang.alone("--save-signal=KILL").end() == 2
    assert "--save-signal: must be one of TERM, USR1, USR2, HUP, INT, got 'KILL'" in gang.message().detail
    assert gang.alone("--save-file=save-now").end() == 2
    assert "--save-file: must be an absolute path, got 'save-now'" in gang.message().detail
