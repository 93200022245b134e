"""A coordinator that is late, dies, forgets or never comes; a prover that dies; a storage that refuses."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.support.harness.launcher_harness import GangOnLoopback, alive, terminate, until
from workflows.programs.launcher.prover_child import ProverChild
from workflows.programs.launcher.termination import EXIT_LAUNCHER_ERROR
from workflows.wire import CheckpointSeen, line


@pytest.mark.parametrize("forgets", [False, True])
def test_training_goes_on_without_the_coordinator_and_reports_arrive_later(gang: GangOnLoopback, forgets: bool) -> None:
    coordinator = gang.coordinate()
    pod = gang.launch(0, "--steps=100000", STEPS="100000")
    until(lambda: (gang.ask("/status").get("step") or 0) > 5, "steps at the coordinator")
    recorded = gang.folder_of(0) / "steps.jsonl"
    until(lambda: recorded.exists() and recorded.stat().st_size > 0, "steps in the file, which lags behind reports")
    (rank,) = gang.ranks().values()
    coordinator.process.kill()
    coordinator.end()
    died, then = time.time(), gang.steps()[-1]
    until(lambda: gang.steps()[-1] > then + 20, "further steps")
    if forgets:
        (gang.run_dir / "a1" / "coordinator" / "journal.jsonl").unlink()
    gang.coordinate()
    until(lambda: (gang.ask("/status").get("step") or 0) > then + 20, "later steps at the new coordinator")
    assert alive(rank)
    rows = [row[0] for row in gang.ask("/v1/steps?since=0")["steps"]]
    # What it was told before it died may be lost with its memory, nothing that came later.
    told = recorded.read_text().splitlines()
    before = max(step["step"] for step in map(json.loads, told) if step["at"] <= died)
    assert rows == list(range(rows[0], rows[-1] + 1))
    assert rows[0] == 1 or forgets
    assert rows[0] <= before + 1
    terminate(pod)
    assert pod.end() == 143


def test_a_coordinator_that_comes_late_is_waited_for(gang: GangOnLoopback) -> None:
    pod = gang.launch(0, "--steps=10")
    until(lambda: alive(pod.process.pid), "the launcher")
    gang.coordinate()
    assert pod.end() == 0
    assert gang.ask("/status")["step"] == 10


def test_a_coordinator_that_never_comes_is_waited_for_in_vain_and_no_rank_is_to_blame(gang: GangOnLoopback) -> None:
    pod = gang.launch(0, "--join-seconds=0.1")
    assert pod.end() == EXIT_LAUNCHER_ERROR
    assert (gang.message().reason, gang.message().cause) == ("launcher-error", "coordinator-away")
    assert "the coordinator did not answer in time" in gang.message().detail
    assert gang.message().ranks == []


def test_a_gang_that_never_gets_complete_is_given_up(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=2)
    assert gang.launch(0, "--rendezvous-seconds=0.3", pods=2).end() == EXIT_LAUNCHER_ERROR
    assert "not all 2 pods of trainer joined within 0.3 s" in gang.message().detail
    assert gang.message().cause == "gang-incomplete"


def test_an_address_that_is_not_this_machine_s_is_told(gang: GangOnLoopback) -> None:
    gang.coordinate()
    gang.net = "192.0.2"
    assert gang.launch(0).end() == EXIT_LAUNCHER_ERROR
    assert gang.message().cause == "address"
    assert "no port of 192.0.2.10 can be taken" in gang.message().detail


def test_a_wrong_token_is_told(gang: GangOnLoopback) -> None:
    gang.coordinate()
    assert gang.launch(PRIMUS_TOKEN="wrong").end() == EXIT_LAUNCHER_ERROR
    assert "the token is missing or wrong" in gang.message().detail


def test_a_launcher_that_fails_ends_those_that_wait_for_it(gang: GangOnLoopback) -> None:
    gang.coordinate(pods=3)
    waiting = gang.launch(0, pods=3)
    until(lambda: gang.ask("/status")["members"], "the first launcher has joined")
    assert gang.launch(1, "--rendezvous-seconds=0.2", pods=3).end() == EXIT_LAUNCHER_ERROR
    assert waiting.end() == 143
    assert "not all 3 pods" in gang.message(0).detail


def test_a_second_coordinator_on_the_same_port_says_so(gang: GangOnLoopback) -> None:
    gang.coordinate()
    second = gang.start(["coordinate", "--port=29400"], PRIMUS_POD_IP=f"{gang.net}.1")
    assert second.end() == 2
    assert "cannot be bound" in second.text


def test_a_coordinator_without_a_token_does_not_start(gang: GangOnLoopback) -> None:
    program = gang.start(["coordinate"], PRIMUS_TOKEN_FILE="", PRIMUS_TERMINATION_LOG=str(gang.folder / "message"))
    assert program.end() == 2
    assert "PRIMUS_TOKEN_FILE: must be set" in (gang.folder / "message").read_text()


def test_a_token_that_cannot_be_read_is_told_by_the_launcher(gang: GangOnLoopback) -> None:
    assert gang.launch(PRIMUS_TOKEN_FILE="/nowhere/token").end() == 2
    assert "PRIMUS_TOKEN_FILE: /nowhere/token cannot be read" in gang.message().detail
    assert gang.message().cause == "arguments"


def test_a_storage_that_refuses_does_not_stop_the_training(gang: GangOnLoopback) -> None:
    gang.run_dir.mkdir()
    (gang.run_dir / "a1").write_text("a file where the attempt's folder should be")
    pod = gang.alone("--steps=10")
    assert pod.end() == 0
    assert "not written: " in pod.text
    assert "step 10/10" in pod.text
    assert gang.message().reason == "completed"


def test_the_prover_reports_and_is_started_once_more_when_it_dies(gang: GangOnLoopback) -> None:
    checkpoints = gang.folder / "checkpoints"
    checkpoints.mkdir()
    pod = gang.alone("--checkpoint-format=auto", PRIMUS_CHECKPOINT_DIR=str(checkpoints), HOLD="1")
    pod.says("step 1/10")
    children = Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children")

    def prover(other_than: int = 0) -> int:
        for pid in map(int, children.read_text().split()):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"prove" in words and pid != other_than:
                return pid
        return 0

    first = until(prover, "a prover")
    os.kill(first, 9)
    pod.says("the prover ended with signal 9")
    second = until(lambda: prover(first), "a second prover")
    os.kill(second, 9)
    until(lambda: pod.text.count("the prover ended with signal 9") == 2, "the second death")
    terminate(pod)
    assert pod.end() == 143
    assert gang.message().ranks[0].last_step == 1


FOUND = CheckpointSeen(3, "/c/3", 1.0, "pass")


def test_the_prover_child_is_told_of_the_first_nan_also_after_a_restart() -> None:
    script = (
        f"import sys; print({line(FOUND)!r}, flush=True); print('@primus broken'); sys.stdin.readline(); sys.exit(5)"
    )
    child = ProverChild([sys.executable, "-S", "-c", script])
    for _ in range(2):
        assert child.start() == ""
        assert until(child.read, "what it found") == [FOUND]
        child.report_nan(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) == 5
        child.mark_ended()
    assert child.start() == ""
    assert child.pid == 0


def test_a_prover_that_cannot_be_started_is_told() -> None:
    child = ProverChild(["/no/such/python"])
    assert "the prover cannot be started: No such file" in child.start()
    child.report_nan(3)
    child.finish()
    assert child.pid == 0
