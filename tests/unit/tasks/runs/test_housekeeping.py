"""What may go of ended runs: never of one that lives, never the newest two, never what another run names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from profiles.errors import Conflict
from profiles.request import TrainRequest
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.runs.housekeeping import beyond, surplus, whole_run
from tasks.runs.open import checkpoint_folder, open_run, resolved_of, run_folder
from tasks.settings import Settings
from tests.support.builders.checkpoint_samples import primus, put
from tests.support.builders.ledgers import HERE, a_person, an_attempt, everyone_died
from workflows.wire import CheckpointState

Say = Callable[..., tuple[int, str, str]]
STEPS = (10, 20, 30, 40, 50)


def state(step: int, *, usable: bool = True, resumes: bool = False) -> CheckpointState:
    word = "ok" if usable else "bad"
    return CheckpointState(step, f"/c/step-{step}", "durable", "primus", 1, usable, word, usable, "", resumes)


@pytest.mark.parametrize(
    ("states", "keep", "needed", "gone"),
    [
        ([state(step) for step in STEPS], 3, [], [10, 20]),
        ([state(step) for step in STEPS], 1, [], [10, 20, 30]),
        ([state(step) for step in STEPS], 2, [20], [10, 30]),
        ([state(step) for step in STEPS], 9, [], []),
        ([*(state(step) for step in STEPS[:3]), state(40, usable=False), state(50, usable=False)], 2, [], [10]),
        ([state(10), state(20, usable=False), state(30), state(40)], 2, [], [10]),
        ([state(10, resumes=True), state(20), state(30)], 2, [], []),
        ([state(10), state(20), state(30)], 3, [], []),
        ([state(-1), state(20), state(30)], 2, [], []),
        ([state(10, usable=False)], 1, [], []),
        ([], 3, [], []),
    ],
)
def test_the_newest_usable_ones_stay_and_what_is_damaged_too(
    states: list[CheckpointState], keep: int, needed: list[int], gone: list[int]
) -> None:
    assert [one.step for one in beyond(states, keep, needed)] == gone


@pytest.fixture
def ledger(settings: Settings) -> Ledger:
    opened = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="demo"), settings, opened, 1000.0, a_person())
    run = opened.story("demo").run
    for step in STEPS:
        put(checkpoint_folder(resolved_of(run), "demo"), primus(step))
    return opened


def end(ledger: Ledger, name: str = "demo") -> None:
    fencing = ledger.acquire(name, HERE, 1000.0, everyone_died).fencing
    ledger.set_run_state(name, fencing, RunState.FAILED, "the disk burnt", 1001.0)


def left(settings: Settings) -> list[int]:
    folder = settings.home / "shared" / "runs" / "demo" / "checkpoints"
    return sorted(int(path.name.removeprefix("step-")) for path in folder.iterdir())


def test_of_an_ended_run_all_but_the_newest_go_when_asked(ledger: Ledger, settings: Settings, say: Say) -> None:
    end(ledger)
    code, out, _ = say("gc", "--dry-run")
    assert (code, left(settings)) == (0, list(STEPS))
    assert "older than the newest 3" in out
    assert "would go; nothing was removed" in out
    assert say("gc")[0] == 0
    assert left(settings) == [30, 40, 50]
    assert any("gc" in str(act) and "2 checkpoints removed" in str(act) for act in ledger.story("demo").acts)
    assert say("gc")[1] == "0.0 MB removed\n"


def test_of_a_run_that_has_not_ended_nothing_goes(ledger: Ledger, settings: Settings, say: Say) -> None:
    assert list(surplus(ledger, settings.home)) == []
    code, _, err = say("runs", "rm", "demo")
    assert (code, left(settings)) == (2, list(STEPS))
    assert "it is pending: primus stop demo ends it" in err


def test_a_run_whose_pods_may_live_keeps_all(ledger: Ledger, settings: Settings) -> None:
    fencing = ledger.acquire("demo", HERE, 1000.0, everyone_died).fencing
    ledger.plan_attempt(fencing, an_attempt(submitted_at=1002.0))
    ledger.set_run_state("demo", fencing, RunState.STOPPED, "asked", 1003.0)
    with pytest.raises(Conflict, match="its pods may live"):
        whole_run("demo", ledger, settings.home)


def test_what_another_run_names_and_what_lies_in_another_home_stays(ledger: Ledger, settings: Settings) -> None:
    end(ledger)
    folder = run_folder(resolved_of(ledger.story("demo").run), "demo")
    (folder.parent / "ledger.sqlite").touch()
    with pytest.raises(Conflict, match="lies in another home"):
        whole_run("demo", ledger, settings.home)
    (folder.parent / "ledger.sqlite").unlink()
    start = f"roles.trainer.environment.START={folder}/checkpoints/step-20"
    request = TrainRequest(profile="demo", name="second", overrides=(start,))
    open_run(request, settings, ledger, 1000.0, a_person())
    assert list(surplus(ledger, settings.home)) == []
    with pytest.raises(Conflict, match="the profile of run second, which has not ended, names a file of it"):
        whole_run("demo", ledger, settings.home)
    end(ledger, "second")
    assert whole_run("demo", ledger, settings.home)


def test_a_run_whose_files_are_gone_stays_in_the_history_and_never_goes_on(
    ledger: Ledger, settings: Settings, say: Say
) -> None:
    end(ledger)
    assert say("runs", "rm", "demo", "--dry-run")[0] == 0
    assert left(settings) == list(STEPS)
    assert say("runs", "rm", "demo")[0] == 0
    assert not (settings.home / "shared" / "runs" / "demo").exists()
    assert [run.name for run in ledger.runs()] == ["demo"]
    with pytest.raises(Conflict, match="primus runs rm removed its files; choose another --name"):
        ledger.resume_run("demo", "go on", 1002.0, by=a_person())


def test_runs_takes_no_other_word(say: Say, tmp_path: Path) -> None:
    assert say("runs", "remove", "demo")[0] == 2
    assert say("runs", "rm")[0] == 2
