"""An order outlives the node: it is synced before a launcher hears of it, and no storage stops the coordinator."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.launcher_harness import until
from tests.unit.programs.coordinator.test_http import ask
from workflows.programs.coordinator import journal, store
from workflows.programs.coordinator.journal import Journal
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.state import StopRequested
from workflows.programs.coordinator.store import ExpectedGang
from workflows.programs.runtime.files import Appender

KILLED = {"report": "RankEnd", "rank": 0, "local_rank": 0, "at": 6.0, "signal": 9}
Sync = Callable[[int], None]


class Counted:
    """A storage that counts how often it was asked to sync, and what the file held then."""

    def __init__(self, path: Path) -> None:
        self.held: list[str] = []
        self._path = path

    def __call__(self, fd: int) -> None:
        os.fdatasync(fd)
        self.held.append(self._path.read_text())


def gang(path: Path, sync: Sync, monkeypatch: pytest.MonkeyPatch, restarts: int = 3) -> Coordinator:
    """A gang of two pods that writes to a journal."""
    monkeypatch.setattr(store, "Journal", partial(Journal, sync=sync))
    one = Coordinator(ExpectedGang("trainer", 2, 1, 100, restarts), {"PRIMUS_TOKEN": "t"})
    one.open_journal(str(path))
    for index in range(2):
        ask(one, "POST", "/v1/join", {"role": "trainer", "pod_index": index, "pods": 2, "node": f"n{index}"})
        told(one, index, 1, state="running", pids={str(index): 7})
    return one


def told(one: Coordinator, index: int, sequence: int, *reports: dict[str, Any], **more: Any) -> None:
    body = {"role": "trainer", "pod_index": index, "sequence": sequence, "reports": list(reports), **more}
    assert ask(one, "POST", "/v1/report", body).status == 200


def orders(one: Coordinator) -> list[str]:
    found = ask(one, "GET", "/v1/orders", pod_index="1", wait="0").body["orders"]
    return [order["order"] for order in found]


def test_only_orders_are_synced_and_before_anybody_hears_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SYNC_SECONDS", 600.0)
    path = tmp_path / "a1" / "coordinator" / "journal.jsonl"
    counted = Counted(path)
    one = gang(path, counted, monkeypatch)
    for step in range(1, 30):
        told(one, 0, step + 1, {"report": "StepSeen", "step": step, "at": 5.0 + step / 100})
    assert counted.held == []
    told(one, 0, 50, KILLED)
    (held,) = counted.held  # when the answer is there, not soon
    assert '"signal":9' in held.splitlines()[-1]
    assert orders(one) == ["restart"]
    told(one, 1, 51, {"report": "StepSeen", "step": 30, "at": 9.0, "incarnation": 2})
    one.close()
    assert len(counted.held) == 1


def test_a_stop_of_a_gang_without_a_right_is_synced_but_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Event(), threading.Event()

    def hangs(_fd: int) -> None:
        begun.set()
        gate.wait()

    monkeypatch.setattr(journal, "SYNC_SECONDS", 600.0)
    one = gang(tmp_path / "journal", hangs, monkeypatch, restarts=0)
    told(one, 0, 2, KILLED)  # it would not return
    assert orders(one) == ["stop"]
    until(begun.is_set, "the sync")
    gate.set()
    one.close()


def test_a_stop_that_is_asked_for_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SYNC_SECONDS", 600.0)
    counted = Counted(tmp_path / "journal")
    one = gang(tmp_path / "journal", counted, monkeypatch)
    assert ask(one, "POST", "/v1/stop", {"why": "a person"}).status == 200
    (held,) = counted.held
    assert '"event":"StopAsked"' in held.splitlines()[-1]
    one.close()


def test_a_storage_that_hangs_is_told_and_the_order_goes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = threading.Event()

    def hangs(_fd: int) -> None:
        gate.wait()

    one = gang(tmp_path / "journal", hangs, monkeypatch)
    told(one, 0, 2, KILLED)
    assert orders(one) == ["restart"]
    told(one, 1, 3, {**KILLED, "rank": 1, "incarnation": 2})
    gate.set()
    one.close()
    said = capsys.readouterr().out
    assert said.count("not synced in 0.02 s; going on") == 1
    # What could not be synced was written all the same.
    again = Coordinator(ExpectedGang("trainer", 2, 1, 100, 3), {"PRIMUS_TOKEN": "t"})
    again.open_journal(str(tmp_path / "journal"))
    assert len(again.state.restarts) == len(one.state.restarts) >= 1
    again.close()


def test_a_storage_that_cannot_sync_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    one = gang(tmp_path / "journal", refuses, monkeypatch)
    told(one, 0, 2, KILLED)
    assert orders(one) == ["restart"]
    one.close()
    assert "not synced: Input/output error; going on" in capsys.readouterr().out
    assert "bytes are missing" not in (tmp_path / "journal").read_text()


def test_what_is_synced_was_written_before(tmp_path: Path) -> None:
    counted = Counted(tmp_path / "log")
    appender = Appender(sync=counted)
    appender.append(str(tmp_path / "log"), b"one\n")
    appender.append(str(tmp_path / "other"), b"x\n")
    appender.append(str(tmp_path / "log"), b"two\n", sync=True)
    assert appender.flush(10)
    appender.append(str(tmp_path / "log"), b"three\n")
    assert appender.close(10)
    assert counted.held == ["one\ntwo\n"]


@pytest.mark.parametrize("cut", ['{"event":"StopAs', "\0\0\0"])
def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "journal"
    path.write_text(cut)
    for life in range(2):
        memory = Journal(str(path))
        assert len(memory.read()) == life
        memory.write(StopRequested(5.0, f"life {life}", True), order=True, surely=True)
        memory.close()
    memory = Journal(str(path))
    assert [event.why for event in memory.read() if isinstance(event, StopRequested)] == ["life 0", "life 1"]
    memory.close()
    assert path.read_text().count("\n") == 3
