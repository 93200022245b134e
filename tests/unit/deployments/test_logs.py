"""`primus logs`: of one incarnation, of all ranks, since a time, the last lines, and as they come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from deployments.cli.logs import numbered, show_logs
from profiles.errors import NotFound
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.runs.open import open_run, run_folder
from tasks.settings import Settings
from tests.support.builders.ledgers import THERE, everyone_died
from workflows.model.records import AttemptRecord
from workflows.programs.launcher.options import Place, Rendezvous
from workflows.programs.launcher.output import RankLog, RankOutput, TimestampFormatter
from workflows.programs.launcher.rank_set import describe_restart
from workflows.programs.progress.reader import ProgressReader, StepCounting
from workflows.programs.runtime.files import GENERATIONS, Appender

BEGINS = "2026-11-21T10:02:56.123456Z launcher: incarnation {} begins after step 20"


@pytest.mark.parametrize(
    ("said", "lines", "whole", "expected"),
    [
        ("none began again", ["a", "b"], True, [1, 1]),
        ("one did", ["a", BEGINS.format(2), "b"], True, [1, 2, 2]),
        ("one that brought no rank up", ["a", BEGINS.format(3), "b"], True, [1, 3, 3]),
        ("the beginning is gone", ["a", BEGINS.format(3), "b", BEGINS.format(4)], False, [2, 3, 3, 4]),
        ("nobody knows", ["a", "b"], False, [0, 0]),
        ("words of a rank", ["a", "2026 it says: launcher: incarnation 2 begins"], True, [1, 1]),
        ("nothing", [], True, []),
    ],
)
def test_each_line_has_its_incarnation(said: str, lines: list[str], whole: bool, expected: list[int]) -> None:
    found = list(numbered(lines, whole))
    assert [number for number, _ in found] == expected, said
    assert [line for _, line in found] == lines


PLACE = Place("r", 1, 0, "node-0", "p", "127.0.0.5", "", "", "/c/step-20", 20, "", "", "", "")


def written(path: Path, limit_bytes: int = 0, long: int = 0) -> None:
    """A rank's log as a launcher writes it, over two incarnations."""
    appender = Appender(limit_bytes)
    log = RankLog(str(path), appender, TimestampFormatter())
    output = RankOutput(0, ProgressReader(None, StepCounting(), 0), log, TimestampFormatter())
    output.open(1)
    for line in ["first life", *(f"line {number} of it" for number in range(long))]:
        output.feed(1, f"{line}\n".encode(), 1.0)
    log.note(describe_restart(PLACE, Rendezvous(2, "127.0.0.5", 1, 0)), 2.0)
    output.feed(1, b"second life\n", 3.0)
    assert appender.close(30.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run's attempt, with the run in a ledger."""
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ledger = Ledger(settings.ledger_url)
    run = open_run(TrainRequest(profile="demo", name="r", cluster="local"), settings, ledger, 1.0)
    fencing = ledger.acquire("r", THERE, 1.0, everyone_died).fencing
    ledger.plan_attempt(fencing, AttemptRecord("r", 1, 1.0, "first"))
    ledger.close()
    return run_folder(Resolved.model_validate(run.resolved), "r") / "a1" / "trainer-0"


def shown(capsys: pytest.CaptureFixture[str], incarnation: int) -> list[str]:
    assert show_logs("r", 1, "0", incarnation) == 0
    return [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]


def test_a_log_is_cut_where_its_ranks_began_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder / "rank-0.log")
    again = "launcher: incarnation 2 begins after step 20"
    assert shown(capsys, 0) == ["first life", again, "second life"]
    assert shown(capsys, 1) == ["first life"]
    assert shown(capsys, 2) == [again, "second life"]
    with pytest.raises(NotFound, match="no line there is of incarnation 3; there: 1, 2"):
        shown(capsys, 3)


def test_what_was_rotated_away_does_not_make_the_rest_older(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder / "rank-0.log", limit_bytes=2000, long=300)
    assert (folder / f"rank-0.log.{GENERATIONS}").exists()
    first = shown(capsys, 1)
    assert "first life" not in first, "it was rotated away"
    assert first[-1] == "line 299 of it"
    assert shown(capsys, 2)[-1] == "second life"


def test_following_one_ends_where_the_next_begins(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "rank-0.log"
    folder.mkdir(parents=True)
    path.write_text(f"{BEGINS.format(1)}\n")
    calls = 0

    def is_over(*_: object) -> bool:
        """Asked before each look: while it follows the ranks print and begin again."""
        nonlocal calls
        calls += 1
        with path.open("a") as log:
            log.write({1: "2026 more\n", 2: f"{BEGINS.format(2)}\n2026 later\n"}.get(calls, ""))
        assert calls < 3, "it follows on"
        return False

    monkeypatch.setattr("deployments.cli.logs._is_over", is_over)
    monkeypatch.setattr("deployments.cli.logs.LOOK_SECONDS", 0.0)
    assert show_logs("r", 1, "0", 1, follow=True) == 0
    assert [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()][1:] == ["more"]


def stamped(second: int, text: str) -> str:
    return f"2026-11-21T10:02:{second:02}.000000Z {text}\n"


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.replace("2026-11-21T10:02:", "") for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def ranks(folder: Path) -> Path:
    """Two ranks on two nodes, and what their launchers said."""
    for rank, seconds in ((0, (1, 3)), (10, (2, 4))):
        place = folder.parent / f"trainer-{rank}"
        place.mkdir(parents=True)
        (place / f"rank-{rank}.log").write_text("".join(stamped(second, f"of {rank}") for second in seconds) + "more\n")
        (place / "launcher.log").write_text(stamped(0, "launcher: started") + '@primus {"report":"StepSeen"}\n')
    return folder


def test_launchers_are_shown_without_what_they_tell_programs(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_logs("r") == 0
    assert [line for line in printed(capsys) if line.startswith("@primus")] == []
    assert show_logs("r", protocol=True) == 0
    assert len([line for line in printed(capsys) if line.startswith("@primus")]) == 2


def test_all_ranks_stand_in_order_of_time_behind_their_numbers(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = [
        "[rank 0] 01.000000Z of 0",
        "[rank 10] 02.000000Z of 10",
        "[rank 0] 03.000000Z of 0",
        "[rank 0] more",
        "[rank 10] 04.000000Z of 10",
        "[rank 10] more",
    ]
    assert show_logs("r", rank="all") == 0
    assert printed(capsys) == whole
    assert show_logs("r", rank="all", tail=2) == 0
    assert printed(capsys) == whole[-2:]
    assert show_logs("r", rank="all", tail=0) == 0
    assert printed(capsys) == []
    assert show_logs("r", rank="all", since="2026-11-21T10:02:03") == 0
    assert printed(capsys) == whole[2:], "a line without a time belongs to the one before"
    assert show_logs("r", rank="10", tail=1) == 0
    assert printed(capsys) == ["more"]


def test_whoever_follows_waits_for_the_first_line_and_sees_all_logs_whole(
    ranks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late, first, over = ranks.parent / "trainer-2" / "rank-2.log", ranks.parent / "trainer-0" / "rank-0.log", False
    aside = ranks.parent.rename(ranks.parent.with_name("aside"))

    def add(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as log:
            log.write(text)

    def rotate() -> None:
        first.rename(f"{first}.1")
        add(first, stamped(7, "after rotation") + "no end")

    steps: list[Callable[[], object]] = [
        lambda: aside.rename(ranks.parent),
        lambda: add(first, stamped(5, "half")[:-3]),
        lambda: (add(first, "lf\n"), add(late, stamped(6, "of 2"))),
        rotate,
    ]

    def sleep(_: float) -> None:
        nonlocal over
        over = not steps
        if steps:
            steps.pop(0)()

    monkeypatch.setattr("deployments.cli.logs.time", SimpleNamespace(sleep=sleep, time=time.time))

    def is_over(*_: object) -> bool:
        return over

    monkeypatch.setattr("deployments.cli.logs._is_over", is_over)
    assert show_logs("r", rank="all", tail=1, follow=True) == 0
    said = capsys.readouterr()
    assert said.err.startswith("nothing of it was printed yet")
    assert [line.replace("2026-11-21T10:02:", "") for line in said.out.splitlines()] == [
        "[rank 10] more",
        "[rank 0] 05.000000Z half",
        "[rank 2] 06.000000Z of 2",
        "[rank 0] 07.000000Z after rotation",
        "[rank 0] no end",
    ]


def test_a_run_that_is_over_is_not_waited_for(folder: Path) -> None:
    settings = Settings.from_environment({"PRIMUS_HOME": os.environ["PRIMUS_HOME"]})
    ledger = Ledger(settings.ledger_url)
    lease = ledger.lease("r")
    assert lease is not None
    ledger.set_run_state("r", lease.fencing, RunState.STOPPED, "stopped by a person")
    ledger.close()
    with pytest.raises(NotFound, match="no such log"):
        show_logs("r", follow=True)
