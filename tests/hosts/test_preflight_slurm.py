"""Stories of a preflight through a real Slurm: what it hands out is measured, what it does not is unknown, and why."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from profiles.admission import Slurm
from profiles.errors import NotFound, ProfileError, Unavailable
from tasks.slurm.probe import Pace, run_by_slurm
from tests.support.builders.slurm_plans import SLOW, plan_on, tool
from tests.support.servers.slurm_cluster import SlurmCluster, wait_for
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan
from workflows.node_tests.slurm_job import job_name, name_of

pytest_plugins = ["tests.support.servers.slurm_fixtures"]
pytestmark = pytest.mark.story

QUICK = Pace(look_seconds=0.2, settle_seconds=3.0, kept_out_seconds=2.0, end_seconds=60.0)


class Ground:
    """A shared folder and a home."""

    def __init__(self, folder: Path) -> None:
        self.shared, self.home = folder / "shared", folder / "home"
        self.shared.mkdir(exist_ok=True)
        self.said: list[tuple[str, int]] = []

    def run(self, plan: PreflightPlan, pace: Pace = QUICK, **settings: object) -> dict[str, NodeResult]:
        section = Slurm.model_validate(settings)
        told = run_by_slurm(plan, section, self.shared, self.home, lambda *said: self.said.append(said), pace=pace)
        assert [one.node for one in told] == list(plan.nodes)
        return {one.node: one for one in told}

    def left(self) -> list[str]:
        return sorted(path.name for path in self.shared.iterdir() if path.name != "preflight")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_each_node_measures_and_nothing_is_left(slurm: SlurmCluster, ground: Ground) -> None:
    told = ground.run(plan_on(slurm.nodes))
    assert all(one.at and not one.why for one in told.values()), told
    assert {one.answers[0][0].readings[0].quantity for one in told.values()} == {"memory_bandwidth"}
    assert ground.said[-1] == ("done", len(slurm.nodes))
    assert (slurm.jobs(), ground.left()) == ([], [])


def test_a_drained_node_is_unknown_with_the_words_of_who_drained_it(slurm: SlurmCluster, ground: Ground) -> None:
    slurm.drain("node-1", "bad | DIMM = B2")
    told = ground.run(plan_on(["node-0", "node-1"]))
    assert told["node-0"].at
    assert (told["node-1"].at, "drained (bad | DIMM = B2)" in told["node-1"].why) == (0.0, True), told["node-1"].why
    assert slurm.jobs() == [], "nothing waits for the node until somebody resumes it"


def test_a_node_in_use_is_unknown_once_it_was_waited_for(slurm: SlurmCluster, ground: Ground) -> None:
    script = ground.shared / "busy.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    slurm.ask("sbatch", "--exclusive", "--nodelist=node-0", "--output=/dev/null", "--job-name=train", str(script))
    wait_for("a training on it", lambda: slurm.jobs("RUNNING") == ["train"])
    told = ground.run(plan_on(["node-0", "node-3"]), wait_seconds=3)
    assert told["node-3"].at
    assert "its job waits for Resources" in told["node-0"].why
    assert slurm.jobs() == ["train"], "what was there is left alone"


def test_a_node_that_loses_power_is_unknown_in_the_middle_and_afterwards(slurm: SlurmCluster, ground: Ground) -> None:
    plan = plan_on(["node-0", "node-3"], SLOW)
    name = job_name(name_of(plan, str(ground.home)), "node-3")

    def cut() -> None:
        wait_for("its job to run", lambda: name in slurm.jobs("RUNNING"))
        slurm.cut_power("node-3")

    thread = threading.Thread(target=cut)
    thread.start()
    told = ground.run(plan)
    thread.join()
    assert told["node-0"].at
    assert (told["node-3"].at, told["node-3"].why.startswith("Slurm lost the node")) == (0.0, True), told["node-3"].why
    assert slurm.state("node-3") == "down*"
    told = ground.run(plan_on(["node-0", "node-3"], number=2), wait_seconds=4)
    assert told["node-0"].at, "nobody else is held up"
    assert "Slurm did not hand it out within" in told["node-3"].why
    assert "the node is down, does not answer (Not responding)" in told["node-3"].why


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("no-such-python", "exit code 127; it said:"),
        ("/bin/echo", "its job ended without a report"),
        ("a b'; touch /nowhere/x; '", "exit code 127"),
    ],
    ids=["missing", "something else", "a name with quotes"],
)
def test_a_job_that_tells_nothing_says_what_it_printed(
    slurm: SlurmCluster, ground: Ground, python: str, said: str
) -> None:
    told = ground.run(plan_on(["node-0"]), python=python)
    assert (told["node-0"].at, said in told["node-0"].why) == (0.0, True), told["node-0"].why


def test_a_job_that_is_killed_or_cancelled_is_unknown(slurm: SlurmCluster, ground: Ground) -> None:
    plan = plan_on(["node-0"], tool("kills", "sh", "-c", "kill -9 $PPID"))
    told = ground.run(plan)
    assert "ended by signal 9" in told["node-0"].why
    plan = plan_on(["node-1"], tool("waits", "sleep", "30"), number=2)
    name = job_name(name_of(plan, str(ground.home)), "node-1")

    def cancel() -> None:
        wait_for("its job to run", lambda: name in slurm.jobs("RUNNING"))
        slurm.ask("scancel", "--name", name)

    thread = threading.Thread(target=cancel)
    thread.start()
    told = ground.run(plan)
    thread.join()
    assert told["node-1"].why.startswith("its job was cancelled by somebody")


FOLLOWS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.builders.slurm_plans import SLOW, plan_on
from tests.hosts.test_preflight_slurm import Ground
Ground(Path(sys.argv[2])).run(plan_on(["node-0", "node-1"], SLOW))
"""
"""A caller in a process of its own."""


def test_who_comes_after_a_killed_caller_takes_over_its_jobs(slurm: SlurmCluster, ground: Ground) -> None:
    plan = plan_on(["node-0", "node-1"], SLOW)
    names = [job_name(name_of(plan, str(ground.home)), node) for node in plan.nodes]
    root, folder = Path(__file__).parents[2], ground.home.parent
    first = subprocess.Popen([sys.executable, "-c", FOLLOWS, str(root), str(folder)])
    wait_for("both jobs", lambda: slurm.jobs("RUNNING") == names)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = slurm.ask("squeue", "--noheader", "--states=all", "--format=%i %j").splitlines()
    told = ground.run(plan)
    after = slurm.ask("squeue", "--noheader", "--states=all", "--format=%i %j").splitlines()
    assert sorted(after) == sorted(before), "no job was sent twice"
    assert all(one.at for one in told.values())
    assert ground.left() == []


def test_two_callers_at_once_share_their_jobs(slurm: SlurmCluster, ground: Ground) -> None:
    plan, ends = plan_on(["node-0", "node-1"], SLOW), list[object]()

    def follow() -> None:
        try:
            ends.append(ground.run(plan))
        except NotFound as error:
            ends.append(str(error))

    callers = [threading.Thread(target=follow) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    told = [end for end in ends if isinstance(end, dict)]
    assert told, "whoever comes to the end first has everything"
    assert all(one.at for one in told[0].values())
    assert all("somebody else has read this test" in end for end in ends if isinstance(end, str))
    assert (slurm.jobs(), ground.left()) == ([], [])


def test_nothing_is_begun_where_the_controller_is_away(slurm: SlurmCluster, ground: Ground) -> None:
    slurm.stop_controller()
    with pytest.raises(Unavailable, match=r"Slurm does not answer: .*Unable to contact slurm controller"):
        ground.run(plan_on(["node-0"]))


def test_reports_come_while_the_controller_is_away(slurm: SlurmCluster, ground: Ground) -> None:
    plan = plan_on(["node-0"], SLOW)
    name = job_name(name_of(plan, str(ground.home)), "node-0")

    def stop() -> None:
        wait_for("its job to run", lambda: slurm.jobs("RUNNING") == [name])
        slurm.stop_controller()

    thread = threading.Thread(target=stop)
    thread.start()
    told = ground.run(plan)
    thread.join()
    assert told["node-0"].at
    assert ground.left() == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"partition": "nosuch"}, "slurm.partition"),
        ({"reservation": "nosuch"}, "slurm.reservation"),
        ({"arguments": ["--nosuch=1"]}, "slurm.arguments"),
        ({"gpus_per_node": 4}, ""),
    ],
    ids=["partition", "reservation", "option", "gpus"],
)
def test_what_slurm_does_not_take_names_the_field(
    slurm: SlurmCluster, ground: Ground, settings: dict[str, object], field: str
) -> None:
    plan = plan_on(["node-0"])
    if field:
        with pytest.raises(ProfileError) as caught:
            ground.run(plan, **settings)
        assert (caught.value.field, "Slurm says: " in caught.value.reason) == (field, True)
    else:
        told = ground.run(plan, **settings)
        assert "Slurm takes no job for it: " in told["node-0"].why
    assert (slurm.jobs(), ground.left()) == ([], [])


def test_a_node_that_slurm_does_not_know_is_unknown(slurm: SlurmCluster, ground: Ground) -> None:
    told = ground.run(plan_on(["node-0", "node-99", "node-[1-2]"]))
    assert told["node-0"].at
    assert "Invalid node name" in told["node-99"].why
    assert "no node's name" in told["node-[1-2]"].why


def test_our_environment_does_not_reach_the_nodes(
    slurm: SlurmCluster, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_TOKEN", "secret-of-the-story")
    seen = ground.shared / "seen"
    ground.run(plan_on(["node-0"], tool("env", "sh", "-c", f"env > {seen}")))
    assert "PRIMUS_NODE=node-0" in seen.read_text()
    assert "secret-of-the-story" not in seen.read_text()


def test_a_test_that_was_read_and_not_written_down_is_made_again(slurm: SlurmCluster, ground: Ground) -> None:
    for _ in range(2):
        told = ground.run(plan_on(["node-0"]))
        assert told["node-0"].at, "jobs that ended before are not taken for this one"
    assert len(slurm.jobs("COMPLETED")) >= 2
