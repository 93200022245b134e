"""What the prover finds for ranks that begin again inside their pods: at once, and only what they may go on from."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders.checkpoint_samples import dcp, one_file, primus, put
from workflows.programs.checkpoints import prover as checkpoints_prover


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "runs" / "r"
    path.mkdir(parents=True)
    return path


def options(run: Path, **changes: object) -> checkpoints_prover.Options:
    return replace(checkpoints_prover.Options(str(run / "checkpoints"), str(run)), **changes)  # type: ignore[arg-type]


def test_a_look_that_was_asked_for_proves_what_has_a_manifest_and_only_that(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    put(run / "checkpoints", primus(20))
    assert [(seen.step, seen.verdict) for seen in prover.take_line("look")] == [(20, "pass")]
    assert prover.take_line("look") == []
    put(run / "checkpoints", dcp(40))
    # However often it is asked, one without digests stays unproven until two looks of its own have seen it at rest.
    assert [prover.take_line("look") for _ in range(5)] == [[]] * 5
    assert prover.look() == []
    assert prover.take_line("look") == []
    assert [(seen.step, seen.verdict) for seen in prover.look()] == [(40, "pass")]


def test_only_what_this_attempt_wrote_under_a_name_of_its_own_may_be_resumed_in_place(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    for path in (run / "checkpoints").rglob("*"):
        os.utime(path, (1000, 1000))
    prover = checkpoints_prover.Prover(options(run))
    assert [(seen.step, seen.resume_from) for seen in prover.look()] == [(20, "")]
    put(run / "checkpoints", primus(40))
    assert [(seen.step, seen.resume_from) for seen in prover.look()] == [(40, str(run / "checkpoints" / "step-40"))]


def test_a_file_that_is_overwritten_may_not_be_resumed_in_place(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run, format="pattern", pattern=r"^ckpt\.pt$"))
    put(run / "checkpoints", one_file(20))
    seen = [seen for _ in range(3) for seen in prover.look()]
    assert [(one.verdict, one.resume_from) for one in seen] == [("pass", "")]
