"""Stories of a real Slurm that is told verdicts: drains within the brake, their end, and what its prolog reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiles.admission import Slurm
from profiles.vocabulary import VerdictWord
from tasks.nodes.marks import VerdictMark
from tasks.slurm.nodes import act_by_slurm
from tests.support.servers.slurm_cluster import SlurmCluster, wait_for

pytest_plugins = ["tests.support.servers.slurm_fixtures"]
pytestmark = pytest.mark.story


def told(words: str) -> list[VerdictMark]:
    """One verdict a node: `pfu` is pass of node-0, fail of node-1, unknown of node-2."""
    meant = {"p": VerdictWord.PASS, "f": VerdictWord.FAIL, "u": VerdictWord.UNKNOWN}
    return [
        VerdictMark(f"node-{number}", meant[word], "smoke", "because", 5.0, "cpu-gemm" if word != "p" else "")
        for number, word in enumerate(words)
    ]


def act(settings: Slurm, verdicts: Sequence[VerdictMark], most: int) -> list[str]:
    lines: list[str] = []
    act_by_slurm(settings, verdicts, lines.append, most=most)
    return lines


def test_nodes_that_failed_are_drained_within_the_brake_and_resumed_when_they_pass(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    settings = Slurm(drain=True, verdicts=str(tmp_path / "verdicts"))
    slurm.drain("node-3", "vendor is coming")
    lines = act(settings, told("ffup"), 1)
    assert lines == [
        "node-0 gets no new jobs from Slurm: primus: cpu-gemm",
        "node-1 failed and stay in Slurm: the brake of the cluster profile is reached, a person decides about them",
    ]
    wait_for("the drain", lambda: slurm.state("node-0") == "drained")
    assert slurm.reason("node-0") == "primus: cpu-gemm"
    assert [slurm.state(node) for node in ("node-1", "node-2", "node-3")] == ["idle", "idle", "drained"]
    assert slurm.reason("node-3") == "vendor is coming", "it passes, and is none of ours"
    assert (tmp_path / "verdicts" / "node-1").read_text() == "fail cpu-gemm 5\n"
    assert act(settings, told("pf"), 1) == [
        "node-0 gets jobs from Slurm again",
        "node-1 gets no new jobs from Slurm: primus: cpu-gemm",
    ]
    wait_for("both", lambda: [slurm.state(f"node-{number}") for number in (0, 1)] == ["idle", "drained"])
    assert act(settings, told("pf"), 1) == [], "the second time nothing is left to be done"


def test_the_prolog_reads_what_was_published_and_its_drain_ends_with_a_pass(
    slurm_with_prolog: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm = slurm_with_prolog
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    published = Slurm(verdicts=str(slurm.folder / "verdicts"))
    assert act(published, told("fp"), 1) == []
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    for node in slurm.nodes:
        slurm.ask("sbatch", "--output=/dev/null", f"--job-name=on-{node}", f"--nodelist={node}", str(script))
    wait_for("the job on the node that passed", lambda: slurm.jobs("COMPLETED") == ["on-node-1"])
    wait_for("the prolog's drain", lambda: slurm.state("node-0") == "drained")
    assert slurm.reason("node-0") == "primus: cpu-gemm"
    slurm.ask("scancel", "--name=on-node-0")
    assert act(published, told("pp"), 1) == [
        "node-0 passed, but drained by our prolog before: scontrol update NodeName=… State=RESUME"
    ]
    assert act(published.model_copy(update={"drain": True}), told("pp"), 1) == ["node-0 gets jobs from Slurm again"]
    wait_for("it to be idle", lambda: slurm.state("node-0") == "idle")


def test_a_slurm_that_is_away_costs_one_question(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.stop_controller()
    began = time.monotonic()
    lines = act(Slurm(drain=True, verdicts=str(tmp_path / "v")), told("ffff"), 4)
    assert [line.partition(": ")[0] for line in lines] == ["Slurm was not told all that was found"]
    assert time.monotonic() - began < 60
    assert len(list((tmp_path / "v").iterdir())) == 4
    slurm.mend()  # a slurmctld that was killed remembers what it had saved last
    assert len(act(Slurm(drain=True), told("ffff"), 4)) == 4
