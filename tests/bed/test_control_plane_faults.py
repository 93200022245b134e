"""The control plane fails while a run trains: training goes on, nothing is made of it, the flow goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from profiles.vocabulary import FaultClass
from tests.bed import faults, up
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.resets import resets
from tests.bed.untouched import BACK_S, Healthy, Runs, trained
from tests.bed.up import Bed
from tests.support.harness.stages import Stage, incident, outcomes, stage, succeeded
from workflows import labels
from workflows.model.workflow import workflow_of

pytestmark = pytest.mark.story
CONTROLLERS = ("workflow-controller", "jobset", "kueue", "kube-controller-manager", "kube-scheduler", "dns")


@pytest.fixture(scope="module")
def runs(prefect_server: str, standing: None) -> Iterator[Runs]:
    """The run that all of it happens to."""
    del standing
    found = up.find()
    assert found is not None
    made = Runs(prefect_server, found)
    yield made
    made.close()


@pytest.fixture
def healthy(bed: Bed, runs: Runs) -> Healthy:
    """It trains, and all of the bed is well."""
    del bed
    return runs.healthy()


def test_the_api_server_is_restarted_twice(healthy: Healthy, bed: Bed) -> None:
    with healthy.through():
        bed.processes.stop("kube-apiserver")
        bed.processes.start_again("kube-apiserver")
        until("the API server back", bed.api.healthy, BACK_S, every_s=0.2)
        bed.processes.send("kube-apiserver", signal.SIGKILL)  # the supervisor starts it again
        time.sleep(1.0)


def test_etcd_is_away_for_half_a_minute(healthy: Healthy, bed: Bed) -> None:
    with healthy.through():
        bed.processes.stop("etcd")
        time.sleep(30.0)
        bed.processes.start_again("etcd")


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_is_killed(healthy: Healthy, bed: Bed, name: str) -> None:
    with healthy.through():
        before, step = bed.processes.running(name), trained(healthy.scene)
        bed.processes.send(name, signal.SIGKILL)
        until(f"{name} again", lambda: bed.processes.running(name) not in (0, before), BACK_S)
        until("training", lambda: trained(healthy.scene) >= step + 10, BACK_S)


def test_all_connections_are_reset(healthy: Healthy, bed: Bed) -> None:
    with healthy.through():
        for _ in range(3):
            with resets():
                time.sleep(2.0)
            until("the API server back", bed.api.healthy, BACK_S, every_s=0.2)


def test_the_api_server_stands_still(healthy: Healthy, bed: Bed) -> None:
    with healthy.through():
        bed.processes.send("kube-apiserver", signal.SIGSTOP)
        time.sleep(15.0)
        bed.processes.send("kube-apiserver", signal.SIGCONT)


def test_the_run_ends_as_if_nothing_had_been(healthy: Healthy, runs: Runs) -> None:
    healthy.ends()
    runs.close()


@pytest.fixture
def scene(prefect_server: str, bed: Bed, runs: Runs) -> Iterator[Stage]:
    runs.close()  # its nodes are needed; it is open where the test that ends it is not in turn
    with stage(prefect_server, BedGround()) as made:
        yield made
    bed.settle()


def test_a_node_lost_while_the_api_server_is_away_is_handled_afterwards(scene: Stage, bed: Bed) -> None:
    scene.start("lost-unseen", overrides=("steps=300",)).at_step(20)
    node = scene.story.attempts[0].nodes[1]
    bed.processes.stop("kube-apiserver")
    faults.kill(bed.options.real_node(node), bed.processes)
    time.sleep(5.0)
    assert scene.story.troubles == (), "nothing is concluded while nobody answers"
    bed.processes.start_again("kube-apiserver")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert incident(story).fault_class is FaultClass.NODE_LOST, scene.tell()
    assert outcomes(story) == [FaultClass.NODE_LOST.value, "succeeded"], scene.tell()
    assert node not in story.attempts[1].nodes, scene.tell()


def test_a_gang_for_which_no_webhook_answers_is_made_once_one_does(scene: Stage, bed: Bed) -> None:
    def refused() -> list[str]:
        found = scene.cluster.list("Workflow", {labels.RUN: "unanswered"})
        return [said for one in found for step, said in workflow_of(one).failed_steps if step.startswith("apply")]

    bed.processes.stop("jobset")
    scene.start("unanswered", overrides=("steps=20",))
    until("a gang that was refused", lambda: bool(refused()), BACK_S)
    assert "failed calling webhook" in refused()[0], "Argo keeps the API server's own words, by which it asks again"
    bed.processes.start_again("jobset")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
