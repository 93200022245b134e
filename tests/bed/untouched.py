"""A healthy run through which something of the control plane fails, and what must be true of it afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.bed.commands import until
from tests.bed.up import Bed
from tests.stages import Stage, outcomes, succeeded
from workflows import labels

BACK_S = 60.0


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


def untouched(scene: Stage, bed: Bed, during: Callable[[], None], steps: int = 600) -> None:
    """A healthy run through which `during` happens."""
    scene.start(
        f"through-{during.__qualname__.split('.')[0][5:25].strip('_').replace('_', '-')}", overrides=(f"steps={steps}",)
    )
    scene.at_step(20)
    before, began = gang(scene), trained(scene)
    assert len(before) >= 2, before
    during()
    assert trained(scene) > began, "ranks train while nobody looks"
    assert trained(scene) < steps, "it is over before the run is"
    until("the API server back", bed.api.healthy, BACK_S, every_s=0.2)
    assert gang(scene) == before, scene.tell()
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.incidents == (), scene.tell()
    assert story.actions == (), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
    assert steps_of(scene) == list(range(1, steps + 1)), "each step once, in order"
