"""Members of a group as processes that meet, measure and report: all there, one missing, one dead, one that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flows.decisions.node_tests.fabric.groups import read_group
from tests.waiting import patience
from workflows.programs.fabric import group_member
from workflows.programs.fabric.meeting import Options, machine_id
from workflows.programs.fabric.report import SOCKETS, GangReport, parse_report

MAIN = Path(group_member.__file__).parents[1] / "main.py"
PATIENCE_SECONDS = patience(60.0)
FAST = {"meet_seconds": 30.0, "deadline_seconds": 50.0, "all_reduce_bytes": 100_003, "iterations": 2}


class Gang:
    """Members of one group, each a process with an address of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int, ranks: int, **more: Any) -> None:
        options = Options(str(self.folder / "round-1"), 0, rank, ranks, **{**FAST, **more})
        environment = {**os.environ, "PRIMUS_NODE": f"node-{rank}", "PRIMUS_POD_IP": f"127.0.1.{rank + 1}"}
        command = [sys.executable, "-I", "-S", str(MAIN), "probe-gang", *options.argv()]
        self.members[rank] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def report(self, rank: int) -> GangReport:
        told, _ = self.members[rank].communicate(timeout=PATIENCE_SECONDS)
        assert self.members[rank].returncode == 0
        return parse_report(told)

    def cards(self) -> int:
        with suppress(FileNotFoundError):
            return sum(name.endswith(".card") for name in os.listdir(self.folder / "round-1" / "group-0"))
        return 0

    def wait_for_cards(self, count: int) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while self.cards() < count:
            assert time.monotonic() < until
            time.sleep(0.005)


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    for member in made.members.values():
        if member.poll() is None:
            member.kill()
        member.wait()
        if member.stdout:
            member.stdout.close()


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_all_who_come_measure_and_agree_that_every_value_is_right(gang: Gang, ranks: int) -> None:
    for rank in range(ranks):
        gang.start(rank, ranks, all_to_all_bytes=50_001)
    reports = [gang.report(rank) for rank in range(ranks)]
    assert [(one.node, one.rank, one.wrong, one.why, one.missed) for one in reports] == [
        (f"node-{rank}", rank, 0, "", ()) for rank in range(ranks)
    ]
    assert all(one.rails and one.rails[0] > 0 and one.all_reduce and one.all_to_all for one in reports)
    assert all("one machine stands for several nodes" in one.notes for one in reports)
    assert list(gang.folder.iterdir()) == [], "cards and folders are gone"


def test_who_does_not_come_is_named_by_all_others_within_the_time(gang: Gang) -> None:
    for rank in (0, 2):
        gang.start(rank, 3, meet_seconds=1.5)
    reports = {f"node-{rank}": gang.report(rank) for rank in (0, 2)}
    assert all((one.rails, one.missed) == (None, (1,)) for one in reports.values())
    assert any("1 of 3 did not come in time" in one.why for one in reports.values())
    found = read_group(("node-0", "node-1", "node-2"), reports, {"node-1": "its pod was never started"})
    assert found.measurement.gigabytes_per_second is None
    assert "node-1: its pod was never started; node-1: missed by 2 of 3" in found.why


def test_who_dies_after_the_meeting_is_missed_at_once_and_nobody_hangs(gang: Gang) -> None:
    gang.start(1, 3)
    gang.wait_for_cards(1)
    gang.members[1].send_signal(signal.SIGKILL)
    gang.members[1].wait()
    began = time.monotonic()
    for rank in (0, 2):
        gang.start(rank, 3)
    reports = [gang.report(rank) for rank in (0, 2)]
    assert all(one.rails is None and one.missed for one in reports)
    assert {rank for one in reports for rank in one.missed} == {1}, "not each other"
    assert time.monotonic() - began < FAST["meet_seconds"], "a dead neighbour's closed door is noticed at once"


def test_a_member_that_hangs_is_missed_and_the_deadline_ends_everybody(gang: Gang) -> None:
    for rank in (0, 1):
        gang.start(rank, 3, deadline_seconds=4.0, meet_seconds=30.0)
    gang.wait_for_cards(2)
    gang.members[1].send_signal(signal.SIGSTOP)
    gang.start(2, 3, deadline_seconds=4.0)
    told = gang.report(0)
    assert (told.rails, 0 < told.seconds < 30) == (None, True)
    assert told.why
    assert gang.report(2).rails is None


def test_a_process_that_hangs_itself_says_so_at_its_deadline(tmp_path: Path) -> None:
    pipe = tmp_path / "round-1" / "group-0" / f"1.{machine_id()}.{SOCKETS}.card"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)  # whoever opens it waits for ever
    gang = Gang(tmp_path)
    gang.start(0, 2, deadline_seconds=1.5, meet_seconds=1.0)
    told = gang.report(0)
    assert told.why.startswith("no answer within 1.5 s: it measures with the others")
    assert told.rails is None


def test_a_folder_that_cannot_be_written_is_a_reason(gang: Gang) -> None:
    (gang.folder / "round-1").write_text("a file")
    gang.start(0, 2)
    told = gang.report(0)
    assert (told.rails, told.why.startswith("Not a directory")) == (None, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rank=2",), "--rank: must be below --ranks"),
        (("--rank=0", "--ranks=1"), "--rank: must be below --ranks, which is at least 2"),
        (("--iterations=0",), "must be at least 1"),
        (("--nosuch=1",), "--nosuch: no such flag"),
    ],
)
def test_wrong_use_is_refused_by_name(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert group_member.main([*Options(str(tmp_path), 0, 0, 2).argv(), *words]) == 2
    assert said in capsys.readouterr().err
