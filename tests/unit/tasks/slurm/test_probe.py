"""A preflight through a made-up Slurm: every bad end of a job is unknown with its reason, and nothing is lost."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from profiles.admission import Slurm
from profiles.errors import NotFound, ProfileError, Unavailable
from tasks.slurm import commands, probe
from tasks.slurm.probe import run_by_slurm
from tests.support.cases.rows import rows
from tests.support.fakes.slurm_fakes import HASTE, PLAN, Stage
from workflows.node_tests import slurm_job


def at_once(_plan: object) -> int:
    return 0


def unheard(*_: object) -> None:
    """Nobody listens."""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_a_job_that_reports_is_told_and_its_folder_removed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_TOKEN", "hush")
    monkeypatch.setenv("SQUEUE_PARTITION", "elsewhere")
    stage.slurm.runs_jobs()
    told = stage.run()
    assert (bool(told.at), told.why, told.answers[0][0].readings[0].quantity) == (True, "", "memory_bandwidth")
    assert stage.said == [("done", 1)]
    assert stage.folders == []
    assert "hush" not in stage.slurm.environment
    assert "SQUEUE" not in stage.slurm.environment


@rows("tasks/slurm/probe")
def test_every_bad_end_of_a_job_is_unknown_with_its_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setattr(slurm_job, "limit_seconds", at_once)
    stage.slurm.says("squeue", line)
    stage.slurm.says("sinfo", "node-0|mixed|none\n")
    code = "0:0" if "COMPLETED" in line else "3:0"
    stage.slurm.says("scontrol", f"JobId=7 JobState=FAILED ExitCode={code} \n")
    began = time.monotonic()
    told = stage.run()
    # How long it waited is the machine's time, and no more than passed here.
    waited = [int(number) for number in re.findall(r"within (\d+) s", told.why)]
    assert all(number <= round(time.monotonic() - began) for number in waited)
    assert (told.at, re.sub(r"within \d+ s", "within N s", told.why)) == (0.0, said)
    live = "PENDING" in line or "RUNNING" in line
    assert (stage.slurm.asked("scancel")[:1] == ["scancel --quiet 7"]) == live, "what waits or runs is ended"
    assert stage.folders == []


def test_a_job_that_nobody_remembers_is_unknown(stage: Stage) -> None:
    stage.slurm.refuses("scontrol", "slurm_load_jobs error: Invalid job id specified\n")
    stage.slurm.refuses("sacct", "Slurm accounting storage is disabled\n")
    assert stage.run().why == "Slurm does not know its job 7 any more, and it left no report"
    stage.slurm.says("sbatch", "hello\n")
    assert stage.run().why.startswith("Slurm does not know its job primus-preflight-machines-1-")


def test_accounts_tell_how_a_job_ended_that_the_controller_forgot(stage: Stage) -> None:
    stage.slurm.refuses("scontrol", "slurm_load_jobs error: Invalid job id specified\n")
    stage.slurm.says("sacct", "OUT_OF_MEMORY|0:125\n")
    assert stage.run().why.startswith("its job ran out of memory (job 7)")


def test_a_job_that_was_sent_before_is_not_sent_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_job, "limit_seconds", at_once)
    stage.slurm.says("squeue", "7|RUNNING|node-0|None|NAME\n")
    stage.run()
    assert stage.slurm.asked("sbatch") == []


def test_a_claim_is_no_folder_of_slurms_nodes(stage: Stage) -> None:
    with pytest.raises(ProfileError) as caught:
        run_by_slurm(PLAN, Slurm(), Path("a-claim"), stage.home, unheard, pace=HASTE)
    assert (caught.value.field, "no folder of the nodes (a-claim)" in caught.value.reason) == ("slurm.folder", True)


def test_where_slurm_is_away_the_test_stays_and_is_taken_up_again(stage: Stage) -> None:
    stage.slurm.away()
    with pytest.raises(Unavailable) as caught:
        stage.run()
    assert caught.value.retry_after_seconds == commands.RETRY_SECONDS
    assert len(stage.folders) == 1, "nothing is lost"
    stage.slurm.away(gone=False)
    stage.slurm.runs_jobs()
    assert stage.run().at


def test_a_person_who_ends_it_gives_the_nodes_back(stage: Stage) -> None:
    stage.home.mkdir()
    (stage.home / "interrupt").touch()
    stage.slurm.says("squeue", "7|RUNNING|node-0|None|NAME\n")
    with pytest.raises(KeyboardInterrupt):
        stage.run()
    assert stage.slurm.asked("scancel") == ["scancel --quiet 7"]
    assert stage.folders == []


def test_a_test_that_somebody_else_removed_says_so(stage: Stage) -> None:
    stage.slurm.says("squeue", "7|RUNNING|node-0|None|NAME\n")
    told: list[str] = []

    def remove(phase: str, count: int) -> None:
        told.append(phase)
        [folder] = stage.shared.glob(".primus-*")
        probe.forget(folder)

    with pytest.raises(NotFound, match="somebody else has read this test"):
        run_by_slurm(PLAN, Slurm(), stage.shared, stage.home, remove, pace=HASTE)
    assert told == ["1 running"]


@rows("tasks/slurm/probe")
def test_a_refusal_that_concerns_all_nodes_names_the_field(stage: Stage, refusal: str, field: str) -> None:
    stage.slurm.refuses("sbatch", f"{refusal}\n")
    with pytest.raises(ProfileError) as caught:
        stage.run()
    assert caught.value.field == field
    assert stage.folders == []


def test_a_refusal_that_concerns_one_node_is_its_reason(stage: Stage) -> None:
    said = "Requested node configuration is not available"
    stage.slurm.refuses("sbatch", f"sbatch: error: Batch job submission failed: {said}\n")
    assert stage.run().why == f"Slurm takes no job for it: Batch job submission failed: {said}"


def test_commands_that_are_missing_or_hang_are_errors_of_ours(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="run this where Slurm's commands are"):
        commands.ask(["no-such-command-of-slurm"])
    with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s"):
        commands.ask(["sleep", "60"], limit_seconds=0.2)
