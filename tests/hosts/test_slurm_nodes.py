"""Stories of nodes in a real Slurm: the same verdicts as in pods, drains and their end, and the prolog."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from profiles.admission import Slurm
from profiles.errors import NotFound, ProfileError
from profiles.vocabulary import VerdictWord
from tasks.slurm import nodes
from tasks.slurm.probe import Pace, node_names, run_by_slurm
from tests.support.builders.slurm_plans import plan_on
from tests.support.fakes import launcher_matrix
from tests.support.servers.slurm_cluster import SlurmCluster, wait_for

pytest_plugins = ["tests.support.servers.slurm_fixtures"]
pytestmark = pytest.mark.story

QUICK = Pace(look_seconds=0.2, settle_seconds=3.0, kept_out_seconds=2.0, end_seconds=60.0)


FOLLOWS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from profiles.admission import Slurm
from profiles.errors import Refused
from tasks.slurm import nodes as slurm_nodes
from tasks.slurm.probe import run_by_slurm
from tests.support.builders.slurm_plans import plan_on
folder = Path(sys.argv[2])
plan, settings = plan_on(["node-0", "node-1"]), Slurm(python="/usr/bin/python3")
told = run_by_slurm(plan, settings, folder, folder / "home", lambda *_: None)
try:
    slurm_nodes.drain_node("node-0", "x")
except Refused as error:
    print([bool(one.at) for one in told], error)
"""
"""A test, and a drain, by whoever runs it."""


def test_a_person_without_root_tests_nodes_and_drains_none(slurm: SlurmCluster) -> None:
    nobody = 65534
    if os.geteuid():
        pytest.skip("this is no root already: the other stories show it")
    folder = Path(tempfile.mkdtemp(prefix="nobody-"))
    try:
        os.chown(folder, nobody, nobody)
        root = str(Path(__file__).parents[2])
        # It keeps the right to read what is root's: the interpreter may be in root's home. Slurm sees nobody.
        reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        nobodys = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups", *reads, "--"]
        command = [*nobodys, sys.executable, "-B", "-c", FOLLOWS, root, str(folder)]
        environment = {**os.environ, "HOME": str(folder)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.startswith("[True, True] scontrol: node-0: "), done.stdout + done.stderr
        assert done.stdout.strip().endswith("; ask as SlurmUser, root or an operator")
        assert list(folder.glob(".primus-*")) == [], "the reports were read and removed"
    finally:
        shutil.rmtree(folder)
    assert slurm.state("node-0") == "idle"


def test_primus_tests_the_nodes_of_slurm_and_says_what_it_does_not_hand_out(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    profile = {
        "name": "machines",
        "engine": "kubernetes",
        "pools": [{"name": "all", "hardware": "cpu", "nodes": 4}],
        "storage": [{"kind": "host_path", "source": str(tmp_path / "shared"), "mount_path": "/shared"}],
        "slurm": {"wait_seconds": 4},
    }
    (tmp_path / "machines.yaml").write_text(json.dumps(profile))
    slurm.drain("node-1", "vendor is coming")
    words = ["preflight", "--cluster", str(tmp_path / "machines.yaml"), "--launcher", "slurm", "--json"]
    command = [sys.executable, "-c", "from deployments.cli.main import main; main()", *words, "--suite", "any-machine"]
    environment = {**os.environ, "PRIMUS_HOME": str(tmp_path / "home")}
    done = subprocess.run([*command, "--depth", "smoke"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    [tested] = json.loads(done.stdout)
    found = {node["node"]: node["verdict"] for node in tested["nodes"]}
    assert found == {**dict.fromkeys(slurm.nodes, "pass"), "node-1": "unknown"}
    assert slurm.jobs() == []


def test_nodes_are_listed_drained_and_resumed_by_whom_they_were_drained(slurm: SlurmCluster) -> None:
    assert list(node_names(Slurm())) == slurm.nodes
    with pytest.raises(ProfileError, match=r"slurm\.partition"):
        node_names(Slurm(partition="nosuch"))
    assert "gets no new jobs" in nodes.drain_node("node-1", "cpu-gemm\nslow")
    assert (slurm.state("node-1"), slurm.reason("node-1")) == ("drained", "primus: cpu-gemm slow")
    assert "already, by us" in nodes.drain_node("node-1", "other")
    assert slurm.reason("node-1") == "primus: cpu-gemm slow"
    slurm.drain("node-2", "vendor is coming")
    assert "by somebody else" in nodes.drain_node("node-2", "other")
    assert "stays so: vendor is coming" in nodes.resume_node("node-2")
    assert slurm.state("node-2") == "drained"
    nodes.resume_node("node-1")
    wait_for("it to be idle", lambda: slurm.state("node-1") == "idle")
    assert "is not drained" in nodes.resume_node("node-1")
    with pytest.raises(NotFound):
        nodes.drain_node("node-77", "x")


def test_the_same_nodes_get_the_same_verdicts_through_slurm_and_in_pods(
    slurm_of_six: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked = launcher_matrix.FakedNodes(tmp_path / "bin")
    by_pods, pods = launcher_matrix.told_by_pods(tmp_path / "home", faked)
    monkeypatch.setenv("SLURM_CONF", str(slurm_of_six.configuration))
    monkeypatch.setenv("PATH", faked.path)
    by_jobs = launcher_matrix.plan(launcher_matrix.cluster_of(tmp_path / "home"), "slurm")
    settings = Slurm(python=sys.executable)
    jobs = run_by_slurm(by_jobs, settings, tmp_path, tmp_path / "home", lambda *_: None, pace=QUICK)
    assert [one.why for one in jobs] == [""] * len(launcher_matrix.NODES)
    own, others = launcher_matrix.verdicts(by_jobs, jobs), launcher_matrix.verdicts(by_pods, pods)
    assert launcher_matrix.outline(own) == launcher_matrix.outline(others) == launcher_matrix.EXPECTED
    assert own == others, "records are equal but for time"
    assert set(by_jobs.calls("cpu").number_of) == set(launcher_matrix.CHECKS) - {"pod-only"}


def test_the_prolog_keeps_jobs_from_a_node_that_failed_and_lets_the_test_through(
    slurm_with_prolog: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm, verdicts = slurm_with_prolog, slurm_with_prolog.folder / "verdicts"
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    words = ["sbatch", "--output=/dev/null", "--nodelist=node-0", str(script)]
    slurm.ask("sbatch", "--job-name=before", *words[1:])
    wait_for("a job where nothing is known", lambda: slurm.jobs("COMPLETED") == ["before"])
    nodes.publish_verdict(verdicts, "node-0", VerdictWord.FAIL, "cpu-gemm; slow", 1.0)
    nodes.publish_verdict(verdicts, "node-1", VerdictWord.PASS, "", 1.0)
    slurm.ask("sbatch", "--job-name=after", *words[1:])
    wait_for("the drain", lambda: slurm.state("node-0").startswith("drain"))
    wait_for("it to settle", lambda: slurm.state("node-0") == "drained")
    assert slurm.reason("node-0") == "primus: cpu-gemm slow"
    assert slurm.jobs("COMPLETED") == ["before"], "the job did not begin"
    held = slurm.ask("squeue", "--noheader", "--name=after", "--format=%T %r")
    assert held == "PENDING launch failed requeued held", "Slurm keeps it, and waits for a person"
    nodes.resume_node("node-0")
    shared, home = tmp_path / "shared", tmp_path / "home"
    told = run_by_slurm(plan_on(["node-0", "node-1"]), Slurm(), shared, home, lambda *_: None, pace=QUICK)
    assert all(one.at for one in told), "the test itself runs on a node that failed"
    assert slurm.state("node-0") == "idle"
    nodes.withdraw_verdict(verdicts, "node-0")
    slurm.ask("sbatch", "--job-name=again", *words[1:])
    wait_for("a job where the verdict was withdrawn", lambda: "again" in slurm.jobs("COMPLETED"))
