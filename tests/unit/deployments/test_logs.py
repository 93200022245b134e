"""`primus logs` of one incarnation: the part of each log that was written in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.logs import numbered, show_logs
from profiles.errors import NotFound, ProfileError
from profiles.request import TrainRequest
from profiles.resolve import Resolved
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
    assert show_logs("r", 1, 0, incarnation, first_failing=False, follow=False) == 0
    return [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]


def test_a_log_is_cut_where_its_ranks_began_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder / "rank-0.log")
    again = "launcher: incarnation 2 begins after step 20"
    assert shown(capsys, 0) == ["first life", again, "second life"]
    assert shown(capsys, 1) == ["first life"]
    assert shown(capsys, 2) == [again, "second life"]
    with pytest.raises(NotFound, match="no line there is of incarnation 3; there: 1, 2"):
        shown(capsys, 3)
    with pytest.raises(ProfileError, match="--incarnation"):
        shown(capsys, -1)


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
    assert show_logs("r", 1, 0, 1, first_failing=False, follow=True) == 0
    assert [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()][1:] == ["more"]
