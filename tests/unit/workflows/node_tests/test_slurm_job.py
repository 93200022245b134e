"""Jobs of Slurm for a preflight: script, words of sbatch, names. Nothing of a user's text gets out of its quotes."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.admission import Slurm
from profiles.errors import ProfileError
from tests.support.builders.slurm_plans import check, plan_on
from tests.support.cases.rows import rows
from workflows.node_tests import slurm_job

PLAN = plan_on(["node-0"])


@rows("workflows/node_tests/slurm_job")
def test_settings_that_sbatch_cannot_take_name_the_field(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ProfileError) as caught:
        slurm_job.check_settings(Slurm.model_validate(settings))
    assert caught.value.field == field


def test_a_test_is_known_by_what_it_tests_and_whose_home_it_is() -> None:
    other = dataclasses.replace(PLAN, name="primus-preflight-machines-2")
    calls = plan_on(["node-0"], check("copy", deadline_seconds=10))
    names = [
        slurm_job.name_of(plan, home)
        for plan, home in ((PLAN, "/a"), (PLAN, "/b"), (plan_on(["node-1"]), "/a"), (other, "/a"), (calls, "/a"))
    ]
    assert len(set(names)) == len(names)
    assert slurm_job.name_of(plan_on(["node-0"]), "/a") == names[0]
    assert all(name.startswith("primus-preflight-machines-") for name in names)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)


@given(python=TEXT, storage=TEXT, folder=TEXT)
def test_no_word_of_a_script_gets_out_of_its_quotes(python: str, storage: str, folder: str) -> None:
    script = slurm_job.job_script(PLAN, "node-0", Slurm(python=python), storage, folder)
    words = shlex.split(script, comments=True)
    assert python in words
    assert f"{folder}/programs.pyz" in words
    assert f"--path={storage}/preflight" in words
    assert f"--out-dir={folder}/node-0" in words
    assert words.count("exec") == 1 + (python == "exec")


def test_a_shell_runs_a_script_with_hostile_names_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "a b'; touch x; $(touch y) `touch z`\n touch w #"
    script = slurm_job.job_script(PLAN, "node-0", Slurm(python="/bin/echo"), "/s'\n touch v", str(folder))
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout.startswith("-I -S "), list(tmp_path.iterdir())) == (True, [])


def test_a_script_whose_report_is_there_measures_nothing(tmp_path: Path) -> None:
    (tmp_path / "node-0").mkdir()
    (tmp_path / "node-0" / "report").write_text("{}")
    script = slurm_job.job_script(PLAN, "node-0", Slurm(python="/bin/false"), "", str(tmp_path))
    assert subprocess.run(["/bin/sh", "-c", script], check=False).returncode == 0


def test_the_users_words_stand_before_ours_and_the_script_is_last() -> None:
    settings = Slurm(partition="gpu", account="ops", reservation="night", arguments=("--qos=tests",), wait_seconds=60)
    words = slurm_job.sbatch_words(PLAN, "node-0", settings, "T", "/shared/100%")
    assert words[:5] == ["--cpus-per-task=4", "--partition=gpu", "--account=ops", "--reservation=night", "--qos=tests"]
    assert words[-2:] == ["--output=/shared/100%%/node-0/output", "/shared/100%/node-0/job.sh"]
    limit = slurm_job.limit_seconds(PLAN)
    assert (limit, "--time=0:02:00" in words) == (120, True), "whole minutes, as Slurm counts"
    assert f"--deadline=now+{60 + limit + slurm_job.SPARE_SECONDS}" in words
    assert {"--nodes=1", "--nodelist=node-0", "--job-name=T.node-0", "--no-requeue"} <= set(words)


@rows("workflows/node_tests/slurm_job")
def test_who_needs_the_node_for_itself_asks_for_all_of_it(
    needs: list[str], gpus: int | None, expected: set[str]
) -> None:
    plan = plan_on(["node-0"], check("copy", needs=needs, vendors=["amd"]), hardware="mi300x")
    words = slurm_job.sbatch_words(plan, "node-0", Slurm(gpus_per_node=gpus), "T", "/shared")
    found = {word for word in words if word.startswith(("--exclusive", "--mem", "--gpus"))}
    assert found == expected
