"""What is wrong with a workflow is named by its path before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from profiles.errors import Refused
from tasks.embedded.engine.argo.validate import validate_workflow
from tests.support.builders.manifests import with_field
from tests.support.cases.rows import rows
from tests.support.fakes.workflow_simulator import World, a_workflow, workflow


def test_the_workflow_itself_is_accepted() -> None:
    validate_workflow(a_workflow())


@rows("embedded/engine/argo/refused")
def test_a_mistake_is_named_by_its_path(at: str, reason: str, value: Any = ..., path: str = "") -> None:
    manifest = a_workflow()
    if at.endswith("withParam"):
        manifest = with_field(manifest, at.replace("withParam", "withItems"), [1])
    with pytest.raises(Refused) as error:
        validate_workflow(with_field(manifest, at, value))
    assert error.value.path == (path or at)
    assert reason in error.value.reason


def test_defaults_count_as_given() -> None:
    manifest = a_workflow()
    del manifest["spec"]["templates"][2]["container"]["image"]
    with pytest.raises(Refused, match=r"spec.templates\[2\].container.image: is required"):
        validate_workflow(manifest)
    manifest["spec"]["templateDefaults"] = {"container": {"image": "i"}}
    validate_workflow(manifest)
    manifest["spec"]["templateDefaults"]["container"]["tty"] = True
    with pytest.raises(Refused, match=r"container\.tty: not supported"):
        validate_workflow(manifest)


def test_a_null_is_an_absent_field() -> None:
    manifest = a_workflow()
    manifest["spec"]["parallelism"] = None
    manifest["spec"]["templates"][0] |= {"inputs": None, "dag": None, "retryStrategy": None}
    manifest["spec"]["templates"][1]["dag"]["tasks"][1] |= {"withParam": None, "dependencies": None}
    world = World(manifest)
    world.run()
    assert world.phase == "Succeeded"
    manifest["spec"]["nothing"] = None
    with pytest.raises(Refused, match=r"spec\.nothing: unknown field"):
        validate_workflow(manifest)


def test_only_an_exit_handler_knows_failures_and_only_given_parameters_are_json() -> None:
    manifest = a_workflow()
    manifest["spec"]["templates"][2]["container"]["args"] = ["{{workflow.failures}}"]
    del manifest["spec"]["onExit"]
    with pytest.raises(Refused, match=r"workflow\.failures"):
        validate_workflow(manifest)
    manifest["spec"]["templates"][2]["container"]["args"] = ["{{workflow.parameters.json}}"]
    del manifest["spec"]["arguments"]
    with pytest.raises(Refused, match=r"workflow\.parameters\.json"):
        validate_workflow(manifest)


def test_recursion_needs_a_condition() -> None:
    again: dict[str, Any] = {"name": "again", "template": "main"}
    manifest = workflow(templates=[{"name": "main", "steps": [[again]]}])
    with pytest.raises(Refused, match="calls itself without end"):
        validate_workflow(manifest)
    again["when"] = "a == b"
    validate_workflow(manifest)
