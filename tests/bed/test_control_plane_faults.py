"""The control plane fails while a run trains: training goes on, nothing is made of it, the flow goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from profiles.vocabulary import FaultClass
from tests.bed import faults
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.resets import resets
from tests.bed.untouched import BACK_S, trained, untouched
from tests.bed.up import Bed
from tests.stages import Stage, incident, outcomes, stage, succeeded

pytestmark = pytest.mark.story


@pytest.fixture
def scene(prefect_server: str, bed: Bed) -> Iterator[Stage]:
    with stage(prefect_server, BedGround()) as made:
        yield made
    bed.settle()


def test_the_api_server_is_restarted_twice(scene: Stage, bed: Bed) -> None:
    def during() -> None:
        bed.processes.stop("kube-apiserver")
        bed.processes.start_again("kube-apiserver")
        until("the API server back", bed.api.healthy, BACK_S, every_s=0.2)
        bed.processes.send("kube-apiserver", signal.SIGKILL)  # the supervisor starts it again
        time.sleep(1.0)

    untouched(scene, bed, during)


def test_etcd_is_away_for_half_a_minute(scene: Stage, bed: Bed) -> None:
    def during() -> None:
        bed.processes.stop("etcd")
        time.sleep(30.0)
        bed.processes.start_again("etcd")

    untouched(scene, bed, during, steps=900)


def test_controllers_are_killed_one_after_the_other(scene: Stage, bed: Bed) -> None:
    def during() -> None:
        for name in ("workflow-controller", "jobset", "kueue", "kube-controller-manager", "kube-scheduler", "dns"):
            before, step = bed.processes.running(name), trained(scene)
            bed.processes.send(name, signal.SIGKILL)
            until(f"{name} again", lambda: bed.processes.running(name) not in (0, before), BACK_S)  # noqa: B023
            until("training", lambda: trained(scene) >= step + 10, BACK_S)  # noqa: B023

    untouched(scene, bed, during)


def test_all_connections_are_reset(scene: Stage, bed: Bed) -> None:
    def during() -> None:
        for _ in range(3):
            with resets():
                time.sleep(2.0)
            until("the API server back", bed.api.healthy, BACK_S, every_s=0.2)

    untouched(scene, bed, during)


def test_the_api_server_stands_still(scene: Stage, bed: Bed) -> None:
    def during() -> None:
        bed.processes.send("kube-apiserver", signal.SIGSTOP)
        time.sleep(15.0)
        bed.processes.send("kube-apiserver", signal.SIGCONT)

    untouched(scene, bed, during, steps=800)


def test_a_node_lost_while_the_api_server_is_away_is_handled_afterwards(scene: Stage, bed: Bed) -> None:
    scene.start("lost-unseen", overrides=("steps=300",)).at_step(20)
    node = scene.story.attempts[0].nodes[1]
    bed.processes.stop("kube-apiserver")
    faults.kill(bed.options.real_node(node), bed.processes)
    time.sleep(5.0)
    assert scene.story.incidents == (), "nothing is concluded while nobody answers"
    bed.processes.start_again("kube-apiserver")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert incident(story).fault_class is FaultClass.NODE_LOST, scene.tell()
    assert outcomes(story) == [FaultClass.NODE_LOST.value, "succeeded"], scene.tell()
    assert node not in story.attempts[1].nodes, scene.tell()
