"""What may go of ended runs: never of one that lives, never the newest two, never what another run names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.decisions.views.run_page import _checkpoint_rows  # pyright: ignore[reportPrivateUsage]
from flows.monitor import keep_house
from flows.watching.nodes import NodeNotice
from profiles.cluster import Retention, Storage
from profiles.errors import Conflict, Unavailable
from profiles.request import TrainRequest
from profiles.vocabulary import Mode, RunState, VerdictWord
from tasks.context import Right, World, at_hand, standing_in
from tasks.ledger.ledger import Ledger
from tasks.runs.housekeeping import EndedRun, beyond_retention, clean_up, surplus, whole_run
from tasks.runs.open import checkpoint_folder, open_run, resolved_of, run_folder
from tasks.runs.submit import Notebook
from tasks.settings import Settings, localised
from tests.support.builders.checkpoint_samples import primus, put
from tests.support.builders.ledgers import HERE, Clock, a_person, an_attempt, an_incident, everyone_died
from tests.support.cases.rows import rows
from tests.support.faults.node_faults import local
from workflows.model.attempt import AttemptView
from workflows.model.records import ApprovalRecord, CheckpointRecord
from workflows.programs.checkpoints.prover import Options, Prover
from workflows.programs.checkpoints.surplus import left_over
from workflows.wire import REMOVED

Say = Callable[..., tuple[int, str, str]]
STEPS = (10, 20, 30, 40, 50)


@pytest.fixture
def wishes() -> tuple[str, ...]:
    return ()


@pytest.fixture
def ledger(settings: Settings, wishes: tuple[str, ...]) -> Ledger:
    opened = Ledger(settings.ledger_url)
    request = TrainRequest(profile="demo", name="demo", overrides=wishes)
    open_run(request, settings, opened, 1000.0, a_person())
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


def test_what_is_of_several_files_goes_whole_and_what_a_kill_left_goes_too(
    ledger: Ledger, settings: Settings, say: Say
) -> None:
    folder = checkpoint_folder(resolved_of(ledger.story("demo").run), "demo")
    cut_off = Path(left_over(str(folder / "step-5")))
    (cut_off / "inside").mkdir(parents=True)
    (folder / "latest").symlink_to("step-20")
    end(ledger)
    assert say("gc")[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-20", "step-30", "step-40", "step-50"]
    run = run_folder(resolved_of(ledger.story("demo").run), "demo")
    run.rename(left_over(str(run)))
    assert say("runs", "rm", "demo")[0] == 0
    assert list(run.parent.iterdir()) == []


def test_after_a_roll_back_those_that_a_resume_may_take_count(ledger: Ledger, settings: Settings) -> None:
    fencing = ledger.acquire("demo", HERE, 1000.0, everyone_died).fencing
    rolled = an_attempt(submitted_at=1002.0, ended_at=1003.0, max_resume_step=20, last_step=24)
    ledger.plan_attempt(fencing, rolled)
    ledger.set_run_state("demo", fencing, RunState.STOPPED, "asked", 1003.0)
    assert [one.path.name for one in surplus(ledger, settings.home)] == [], "of those up to 24 there are but two"


@pytest.mark.parametrize("wishes", [("checkpoint.remove_surplus=while_running",)])
@pytest.mark.parametrize(
    ("what", "may"),
    [
        ("nothing", True),
        ("question", False),
        ("paused", False),
        ("observe", False),
        ("rolled back", False),
        ("passed over", False),
        ("trained past it", True),
        ("long ago", False),
    ],
)
def test_the_driver_lets_checkpoints_go_only_while_nobody_may_want_an_earlier_one(
    ledger: Ledger, settings: Settings, what: str, may: bool
) -> None:
    fencing = ledger.acquire("demo", HERE, 1000.0, everyone_died).fencing
    ledger.plan_attempt(fencing, an_attempt(ended_at=1002.0, last_step=50))
    for step in STEPS:
        ledger.add_checkpoint(fencing, CheckpointRecord("demo", step, f"/c/{step}", 1, 1001.0, VerdictWord.PASS))
    limits: dict[str, dict[str, Any]] = {
        "rolled back": {"max_resume_step": 20, "last_step": 49},
        "passed over": {"excluded_checkpoints": ("/c/50",), "resumed_from_step": 40, "last_step": 49},
        "trained past it": {"max_resume_step": 20, "resumed_from_step": 20, "last_step": 50},
    }
    ledger.plan_attempt(fencing, second := an_attempt(2, **limits.get(what, {})))
    if what == "paused":
        ledger.pause("demo", "a look", by=a_person())
    elif what == "observe":
        ledger.set_mode("demo", Mode.OBSERVE, by=a_person())
    elif what == "question":
        ledger.open_incident(fencing, an_incident())
        ledger.ask(fencing, ApprovalRecord("q", "demo", "demo-a1-i1", "roll back?", "waiting", 1003.0, 9e9))
    clock = Clock()
    with standing_in(World(settings, ledger, Right("demo", fencing), clock)):
        notebook = Notebook(second, resolved_of(ledger.story("demo").run).run)
        notebook.with_requests(AttemptView("demo", 2, clock.now))
    clock.now += 10.0 if what == "long ago" else 0.0
    assert notebook.release() == (ledger.identity() if may else ""), "asked by a thread of its own, without a world"


@pytest.mark.parametrize(
    ("wishes", "kept"),
    [
        ((), STEPS),
        (("checkpoint.remove_surplus=at_end",), STEPS[2:]),
        (("checkpoint.remove_surplus=while_running", "checkpoint.keep=1"), STEPS[3:]),
        (("checkpoint.remove_surplus=at_end", "checkpoint.keep_every_steps=30"), (10, 30, 40, 50)),
    ],
)
def test_the_monitor_removes_what_the_profile_asks_for_and_of_the_living_nothing(
    ledger: Ledger, settings: Settings, kept: tuple[int, ...]
) -> None:
    folder = checkpoint_folder(resolved_of(ledger.story("demo").run), "demo")
    with at_hand(settings):
        end(ledger)
        assert clean_up(local()) == [], "none was proven, and it reads none"
        Prover(Options(str(folder), str(folder.parent))).look()
        put(folder, primus(60))
        ledger.resume_run("demo", "go on", 1002.0, by=a_person())
        assert clean_up(local()) == [], "it lives"
        end(ledger)
        (folder / "step-60" / "manifest.json").unlink()
        said = clean_up(local())
        shutil.rmtree(folder / "step-60")
        assert left(settings) == list(kept)
        assert [run for run, _ in said] == ["demo"] * (kept != STEPS)
        assert clean_up(local()) == []
    acts = [act for act in ledger.story("demo").acts if "the monitor removed" in act.why]
    assert len(acts) == (kept != STEPS), "once, whatever their number"


def test_the_monitor_says_what_it_removed_and_why_it_cannot(ledger: Ledger, settings: Settings, tmp_path: Path) -> None:
    end(ledger)
    wanted, told = local(retention=Retention(run_folders_days=7)), list[NodeNotice]()
    elsewhere = Storage(kind="host_path", source=str(tmp_path / "none"), mount_path="/shared")
    with at_hand(settings):
        keep_house(wanted, Mode.OBSERVE, told.append)
        ledger.pause(None, "a look", by=a_person())
        keep_house(wanted, Mode.ACT, told.append)
        ledger.unpause(None, by=a_person())
        with pytest.raises(Unavailable, match="is not mounted here"):
            keep_house(wanted.model_copy(update={"storage": (elsewhere,)}), Mode.ACT, told.append)
        assert (told, left(settings)) == ([], list(STEPS))
        keep_house(localised(wanted, settings.home), Mode.ACT, told.append)
    assert [(one.event, one.subject) for one in told] == [("removed", "demo")]


def test_a_run_that_ended_long_ago_goes_as_a_whole_where_the_cluster_says_so(
    ledger: Ledger, settings: Settings
) -> None:
    end(ledger)
    folder = run_folder(resolved_of(ledger.story("demo").run), "demo")
    old = local().model_copy(update={"retention": Retention(run_folders_days=7)})
    with at_hand(settings):
        assert clean_up(old.model_copy(update={"name": "another"})) == []
        assert folder.is_dir()
        [(run, what)] = clean_up(old)
        assert run == "demo"
        assert "retention.run_folders_days is 7" in what
        assert not folder.exists()
        assert clean_up(old) == []
    with pytest.raises(Conflict, match="primus runs rm removed its files; choose another --name"):
        ledger.resume_run("demo", "go on", 1002.0, by=a_person())


@rows("tasks/runs/housekeeping")
def test_the_oldest_runs_go_first_and_young_ones_stay(ended: str, days: float, limit: int, gone: str) -> None:
    """`name:days ago:bytes`."""
    now, known = 1e9, list[EndedRun]()
    for word in ended.split():
        name, ago, size = word.split(":")
        known.append(EndedRun(name, now - float(ago) * 86400.0, int(size)))
    found = beyond_retention(known, Retention(run_folders_days=days, run_folders_bytes=limit), now)
    assert [one.run for one in found] == gone.split()
    assert all(one.why for one in found)


def test_people_are_told_how_many_went(ledger: Ledger, say: Say) -> None:
    fencing = ledger.acquire("demo", HERE, 1000.0, everyone_died).fencing
    for step in (3, 6):
        gone = CheckpointRecord("demo", step, f"/c/{step}", 1, 9.0, VerdictWord.UNKNOWN, "removed: older", 4_000_000)
        ledger.add_checkpoint(fencing, replace(gone, format=REMOVED))
    assert (
        "\n2 older ones were removed while it ran (0.008 GB), the newest of step 6\n" in say("checkpoints", "demo")[1]
    )
    page = _checkpoint_rows(ledger.story("demo").checkpoints)
    assert [(row["step"], row["proof"]) for row in page] == [(6, "removed")]


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
