"""Nodes drained in Slurm and given back, and the prolog that keeps jobs from a node that failed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import ProfileError, Refused
from profiles.vocabulary import VerdictWord
from tasks.slurm import nodes
from tasks.slurm.commands import NodeLine
from tests.support.cases.rows import rows
from tests.support.fakes.slurm_fakes import Stage

PROLOG = Path(__file__).parents[4] / "deployments" / "slurm" / "prolog.sh"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


NODE_TEXTS = st.text(min_size=1, max_size=80)


@given(check=NODE_TEXTS)
def test_a_reason_is_one_line_that_says_it_is_ours(check: str) -> None:
    reason = nodes.reason_of(check)
    assert reason.startswith("primus: ")
    assert (reason.isprintable(), len(reason) <= nodes.MOST_CHARACTERS) == (True, True)
    assert nodes.is_ours(NodeLine("n", "drained", False, reason))


@pytest.mark.parametrize("said", ["Access/permission denied", "Invalid user id"])
def test_people_without_rights_are_told_whom_to_ask(stage: Stage, said: str) -> None:
    stage.slurm.says("sinfo", "node-0|idle|none\n")
    stage.slurm.refuses("scontrol", f"slurm_update error: {said}\n")
    with pytest.raises(Refused, match=f"{said}; ask as SlurmUser, root or an operator"):
        nodes.drain_node("node-0", "gpu-count")
    with pytest.raises(ProfileError, match="no node's name"):
        nodes.drain_node("node-0 State=DOWN", "gpu-count")


def prolog(stage: Stage, settings: str, **environment: str) -> tuple[int, list[str]]:
    """How the prolog ends, and what it asked of scontrol."""
    file = stage.slurm.folder / "prolog.conf"
    file.write_text(settings)
    known = {"PATH": os.environ["PATH"], "PRIMUS_PROLOG_CONF": str(file), "SLURMD_NODENAME": "node-0"}
    done = subprocess.run(
        ["/bin/sh", str(PROLOG)], check=False, env={**known, "SLURM_JOB_NAME": "train", **environment}
    )
    return done.returncode, stage.slurm.asked("scontrol")


DRAIN = "scontrol update NodeName=node-0 State=DRAIN Reason=primus: {}"
ASK = "COMMAND='{}'\n"


@rows("tasks/slurm/nodes")
def test_the_prolog_drains_what_failed_and_nothing_else(
    stage: Stage, line: str, settings: str, code: int, reason: str
) -> None:
    folder = stage.slurm.folder / "verdicts"
    folder.mkdir()
    if line:
        (folder / "node-0").write_text(f"{line}\n")
    found = prolog(stage, f"VERDICTS={folder}\n{settings}")
    assert found == (code, [DRAIN.format(reason)] if reason else [])


@rows("tasks/slurm/nodes")
def test_the_prolog_believes_words_and_not_an_exit_code_alone(stage: Stage, said: str, ends: int, code: int) -> None:
    tool = stage.slurm.folder / "verdict-of"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\nexit {ends}\n")
    tool.chmod(0o755)
    assert prolog(stage, ASK.format(tool)) == (code, [DRAIN.format("cpu-gemm")] if code else [])


def test_the_prolog_does_nothing_where_nobody_told_it_anything(stage: Stage) -> None:
    assert prolog(stage, "") == (0, [])
    assert prolog(stage, f"VERDICTS={stage.slurm.folder}\n", SLURMD_NODENAME="../../etc") == (0, [])
    hangs = "COMMAND='sleep 60 #'\nLIMIT_SECONDS=0.2\n"
    assert prolog(stage, hangs) == (0, []), "a time-out is unknown"


def test_the_prolog_lets_the_test_run_and_leaves_other_peoples_reasons(stage: Stage) -> None:
    folder = stage.slurm.folder / "verdicts"
    nodes.publish_verdict(folder, "node-0", VerdictWord.FAIL, "gpu-count", 5.0)
    assert (folder / "node-0").read_text() == "fail gpu-count 5\n"
    settings = f"VERDICTS={folder}\n"
    assert prolog(stage, settings, SLURM_JOB_NAME="primus-preflight-machines-1-0a.node-0") == (0, [])
    stage.slurm.says("sinfo", "vendor is coming\n")
    assert prolog(stage, settings) == (1, [])
    stage.slurm.says("sinfo", "none\n")
    assert prolog(stage, settings) == (1, [DRAIN.format("gpu-count")])
    nodes.withdraw_verdict(folder, "node-0")
    nodes.withdraw_verdict(folder, "node-0")
    assert prolog(stage, settings)[0] == 0
