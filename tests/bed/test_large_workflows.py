"""Workflows whose status is too large for one object, that are pruned, and whose controller dies in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from profiles.workspace import WorkspaceProfile
from tests.bed import samples, up
from tests.bed.api import Manifest, path_of
from tests.bed.commands import until
from tests.bed.up import Bed
from tests.waiting import patience
from workflows.model.workflow import WorkflowStep, steps_of, workflow_of
from workflows.platform.workspace import PIPELINES

SPACE = "bed-large"
SKIPPED = 1500
"""Nodes of some 1.2 kB each: Argo compresses a status from 1 MiB on."""
WORDS = "x" * 600
"""Stands in the condition that each of them does not meet, which the node's message repeats."""
FAN_OUT = 12
LARGE_LIMIT_S = patience(150.0)


@pytest.fixture(scope="module")
def space(standing: None) -> Iterator[str]:
    """A workspace of its own."""
    del standing
    found = up.find()
    assert found is not None
    found.settle()
    with samples.workspaces(found, WorkspaceProfile(name=SPACE, queue=samples.QUEUE, flavors=(samples.played(4),))):
        yield SPACE


def workflow(name: str, steps: list[list[Manifest]], templates: list[Manifest], **spec: Any) -> Manifest:
    """A workflow with the rights to tell its outputs."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "entrypoint": "main",
            "serviceAccountName": PIPELINES,
            "templates": [{"name": "main", "steps": steps}, *templates],
            **spec,
        },
    }


def say(command: str) -> Manifest:
    """A template whose output `word` is what its command writes to /tmp/word."""
    return {
        "name": "say",
        "inputs": {"parameters": [{"name": "words", "value": ""}]},
        "container": {"image": samples.BUSYBOX, "command": ["sh", "-c", command]},
        "outputs": {"parameters": [{"name": "word", "valueFrom": {"path": "/tmp/word"}}]},
    }


def wait_end(bed: Bed, wanted: Manifest) -> Manifest:
    """The workflow once it succeeded."""
    path, name = path_of(wanted), wanted["metadata"]["name"]
    until(f"{name} done", lambda: bed.api.get(path).get("status", {}).get("phase") == "Succeeded", LARGE_LIMIT_S, 0.5)
    return bed.api.get(path)


def test_a_status_that_is_too_large_is_read_all_the_same(bed: Bed, space: str) -> None:
    del space
    many = {"name": "many", "template": "say", "when": f"{{{{item}}}} == -1 || '{WORDS}' == 'y'"}
    steps = [[{**many, "withSequence": {"count": str(SKIPPED)}}], [{"name": "last", "template": "say"}]]
    wanted = workflow("large", steps, [say("echo -n heard >/tmp/word")])
    bed.api.ensure(wanted)
    done = wait_end(bed, wanted)
    assert done["status"]["compressedNodes"]
    assert "nodes" not in done["status"]
    nodes = steps_of(done)
    assert sum(node.phase == "Skipped" for node in nodes) == SKIPPED
    [last] = [node for node in nodes if node.name == "last"]
    assert last.outputs == {"word": "heard"}
    assert workflow_of(done).steps == ()


def test_what_ended_is_pruned(bed: Bed, space: str) -> None:
    keeping = {"ttlStrategy": {"secondsAfterCompletion": 2}}
    pods = {"podGC": {"strategy": "OnPodCompletion", "deleteDelayDuration": "1s"}}
    steps = [[{"name": "first", "template": "say"}], [{"name": "pause", "template": "pause"}]]
    pause = {"name": "pause", "suspend": {}}
    wanted = workflow("pruned", steps, [say("echo -n gone >/tmp/word"), pause], **keeping, **pods)
    bed.api.ensure(wanted)

    def first() -> list[WorkflowStep]:
        found = steps_of(bed.find(wanted) or {})
        return [node for node in found if node.name == "first" and node.phase == "Succeeded"]

    until("the first step done", lambda: bool(first()), samples.LIMIT_S, 0.2)
    until("its pod gone", lambda: not _pods(bed, space, "pruned"), samples.LIMIT_S, 0.2)
    [node] = first()  # the workflow goes on without the pod, and still has what the pod said
    assert node.outputs == {"word": "gone"}
    bed.api.merge(path_of(wanted), {"spec": {"shutdown": "Terminate"}})
    until("the workflow gone", lambda: bed.find(wanted) is None, samples.LIMIT_S, 0.2)


def test_a_controller_killed_in_a_fan_out_runs_nothing_twice(bed: Bed, space: str) -> None:
    each = {"parameters": [{"name": "words", "value": "{{item}}"}]}
    steps = [[{"name": "many", "template": "say", "arguments": each, "withSequence": {"count": str(FAN_OUT)}}]]
    command = "echo -n {{inputs.parameters.words}} >/tmp/word; sleep 1"
    wanted = workflow("killed", steps, [say(command)], parallelism=4)
    bed.api.ensure(wanted)

    def done() -> list[WorkflowStep]:
        found = steps_of(bed.find(wanted) or {})
        return [node for node in found if node.kind == "Pod" and node.phase == "Succeeded"]

    until("some of them done", lambda: len(done()) >= 3, LARGE_LIMIT_S, 0.2)
    before = bed.processes.running("workflow-controller")
    bed.processes.send("workflow-controller", signal.SIGKILL)
    assert len(done()) < FAN_OUT, "killed too late to prove anything"
    until("again", lambda: bed.processes.running("workflow-controller") not in (0, before), limit_s=30)
    nodes = steps_of(wait_end(bed, wanted))
    said = sorted(int(node.outputs["word"]) for node in nodes if node.kind == "Pod")
    assert said == list(range(FAN_OUT))
    assert len(_pods(bed, space, "killed")) == FAN_OUT


def _pods(bed: Bed, space: str, name: str) -> list[Manifest]:
    return samples.pods(bed, space, f"workflows.argoproj.io/workflow={name}")
