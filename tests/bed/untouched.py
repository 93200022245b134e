"""A healthy run through which one part of the control plane fails after the other, and what must be true all the time.

The run is one for all tests of a module: what it goes through one after the other it would go through in its life. It
trains at a steady pace until a file tells its trainers to hurry; then time passes for them whenever they sleep.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployments.processes.driver import driver_pid
from profiles.vocabulary import RunState
from tests.bed.commands import until
from tests.bed.ground import BedGround
from tests.bed.up import Bed
from tests.support.harness.stages import PROFILE, Stage, outcomes, stage, succeeded
from tests.support.running.waiting import patience
from workflows import labels

BACK_S = patience(60.0)
STEPS = 4000
"""Three minutes at its pace, twice as long as all of it takes."""
HURRYING = """
import os, runpy, sys, time
sign, skipped, wait, clock = sys.argv.pop(1), [0.0], time.sleep, time.monotonic
def sleep(seconds):
    if os.path.exists(sign):
        skipped[0] += seconds
    else:
        wait(seconds)
time.sleep, time.monotonic = sleep, lambda: clock() + skipped[0]
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def trained(scene: Stage) -> int:
    """The newest step that rank 0 of the first attempt wrote, read past the cluster."""
    return max(steps_of(scene), default=0)


def steps_of(scene: Stage) -> list[int]:
    """All steps that it wrote, in their order."""
    [log] = scene.folder.glob("a1/*/rank-0.log")
    return [int(word) for word in re.findall(r"\bstep (\d+)/\d+ \|", log.read_text(errors="replace"))]


def gang(scene: Stage) -> dict[str, tuple[str, int]]:
    """Uid and restarts of each pod of the run that trains."""
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run})
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], sum(one["restartCount"] for one in statuses))
        for pod in pods
        if labels.ROLE in pod["metadata"]["labels"] and (statuses := pod["status"].get("containerStatuses", []))
    }


def profile(home: Path) -> Path:
    """The stories' profile with trainers that can be hurried."""
    found: dict[str, Any] = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))
    python, *program = found["roles"][0]["command"]
    found["roles"][0]["command"] = [python, "-c", HURRYING, "{run_dir}/hurry", *program]
    found |= {"steps": STEPS, "checkpoint": {"interval_steps": 100}}
    made = home / "hurried.yaml"
    made.write_text(yaml.safe_dump(found), encoding="utf-8")
    return made


@dataclass(frozen=True)
class Healthy:
    """A run that trains, driven by a process of its own."""

    scene: Stage
    bed: Bed
    pods: dict[str, tuple[str, int]]
    """Its gang as it was in the beginning."""

    @contextmanager
    def through(self) -> Generator[None]:
        """What fails inside changes nothing: ranks train meanwhile, and the flow goes on afterwards."""
        scene, began = self.scene, trained(self.scene)
        yield
        assert trained(scene) > began, "ranks train while nobody looks"
        until("the API server back", self.bed.api.healthy, BACK_S, every_s=0.2)
        assert gang(scene) == self.pods, scene.tell()
        step = trained(scene)
        assert step < STEPS, "it is over before the run is"
        scene.until(lambda story: (story.attempts[0].last_step or 0) >= step, "the flow goes on")
        self.left_alone()

    def left_alone(self) -> None:
        """Nothing was made of it."""
        story = self.scene.story
        assert (story.troubles, story.actions) == ((), ()), self.scene.tell()
        assert len(story.attempts) == 1, self.scene.tell()

    def ends(self) -> None:
        """It goes to its end as if nothing had been."""
        (self.scene.folder / "hurry").touch()
        story = self.scene.end()
        assert succeeded(story), self.scene.tell()
        self.left_alone()
        assert outcomes(story) == ["succeeded"], self.scene.tell()
        assert steps_of(self.scene) == list(range(1, STEPS + 1)), "each step once, in order"


class Runs:
    """The healthy run of a module; another one where a test has hurt it.

    Args:
        api_url: of the Prefect server.
        bed: the bed.
        kubeconfig: of the driver; "": the ground's own.
    """

    def __init__(self, api_url: str, bed: Bed, kubeconfig: str = "") -> None:
        self._api_url, self._bed, self._kubeconfig = api_url, bed, kubeconfig
        self._stage = ExitStack()
        self._healthy: Healthy | None = None
        self._begun = 0

    def healthy(self) -> Healthy:
        """It trains."""
        if self._healthy is None or not self._is_well(self._healthy):
            self.close()
            self._healthy = self._begin()
        os.environ["PRIMUS_HOME"] = str(self._healthy.scene.home)
        return self._healthy

    def _is_well(self, healthy: Healthy) -> bool:
        story = healthy.scene.story
        return not story.troubles and story.run.state is RunState.RUNNING and gang(healthy.scene) == healthy.pods

    def _begin(self) -> Healthy:
        self._bed.settle()
        made: AbstractContextManager[Stage] = stage(self._api_url, BedGround())
        scene = self._stage.enter_context(made)
        if self._kubeconfig:
            os.environ["KUBECONFIG"] = self._kubeconfig
        self._begun += 1
        scene.open(f"through-all-{self._begun}", str(profile(scene.home))).drive_in_process()
        scene.at_step(20)
        pods = gang(scene)
        assert len(pods) >= 2, pods
        return Healthy(scene, self._bed, pods)

    def close(self) -> None:
        """End what is left of it."""
        driver = driver_pid(self._healthy.scene.home, self._healthy.scene.run) if self._healthy else None
        if driver is not None:
            os.kill(driver, signal.SIGKILL)
        self._healthy = None
        self._stage.close()
