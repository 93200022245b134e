"""Trainers that save on another signal, or when a file appears, and go on: real launchers, nothing may be lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness.launcher_harness import GangOnLoopback, Program, alive, terminate, until
from workflows.wire import StepSeen

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
