"""What is wrong with a workflow is named by its path before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profiles.errors import Refused
from tasks.embedded.engine.argo.validate import validate_workflow
from tests.support.fakes.workflow_simulator import World, a_workflow, workflow


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one field; `...` takes it away."""

    def apply(manifest: dict[str, Any]) -> None:
        current: Any = manifest
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            current = current[part]
        if value is ...:
            del current[last]
        else:
            current[last] = value

    return apply


def test_the_workflow_itself_is_accepted() -> None:
    validate_workflow(a_workflow())


T = "spec.templates"
REFUSED = [
    ("kind", "Pod", "kind", "must be one of Workflow"),
    ("apiVersion", "v1", "apiVersion", "argoproj.io/v1alpha1"),
    ("metadata.name", ..., "metadata.name", "is required"),
    ("metadata.name", "Not Legal", "metadata.name", "lower-case"),
    ("metadata.name", "x" * 64, "metadata.name", "63"),
    ("spec.entrypoint", "nope", "spec.entrypoint", "there is no template 'nope'; known: main"),
    ("spec.entrypoint", ..., "spec.entrypoint", "is required"),
    ("spec.templates", [], "spec.templates", "at least 1"),
    ("spec.podSpecPatch", "x", "spec.podSpecPatch", "not supported by the embedded cluster"),
    ("spec.workflowTemplateRef", {}, "spec.workflowTemplateRef", "not supported"),
    ("spec.volumeClaimTemplates", [], "spec.volumeClaimTemplates", "create the claim beforehand"),
    ("spec.synchronization", {}, "spec.synchronization", "parallelism"),
    ("spec.parallelisms", 1, "spec.parallelisms", "did you mean parallelism?"),
    ("spec.parallelism", "2", "spec.parallelism", "must be a whole number, not a text"),
    ("spec.parallelism", 0, "spec.parallelism", "at least 1"),
    ("spec.shutdown", "Now", "spec.shutdown", "must be one of Stop, Terminate"),
    ("spec.onExit", "nope", "spec.onExit", "there is no template 'nope'"),
    ("spec.hooks", {"running": {}}, "spec.hooks.running.template", "is required"),
    ("spec.hooks", {"run": {"template": "pause"}}, "spec.hooks.run.expression", "only the hook exit runs without one"),
    ("spec.hooks", {"run": {"template": "pause", "expression": "x"}}, "spec.hooks.run.expression", "the name x"),
    ("spec.hooks", {"exit": {"template": "pause", "expression": "true"}}, "spec.hooks.exit.expression", "when"),
    ("spec.arguments.parameters.0.value", ..., "spec.arguments.parameters[0].value", "has no value"),
    ("spec.arguments.artifacts", [{"name": "a"}], "spec.arguments.artifacts[0]", "exactly one of from"),
    ("spec.arguments.artifacts", [{"name": "a", "s3": {}}], "spec.arguments.artifacts[0].s3", "no artifact store"),
    ("spec.volumes.0.nfs", {}, "spec.volumes[0].nfs", "hostPath or a claim"),
    ("spec.volumes.0.ephemeral", {}, "spec.volumes[0].ephemeral.volumeClaimTemplate", "is required"),
    (
        "spec.securityContext",
        {"sysctls": [{"name": "kernel.sem", "value": "1"}]},
        "spec.securityContext.sysctls[0].name",
        "net.ipv4.ping_group_range",
    ),
    ("spec.tolerations.0.key", 1, "spec.tolerations[0].key", "must be a text"),
    (f"{T}.0.name", "graph", "spec.templates[1].name", "two templates 'graph'"),
    (f"{T}.0.name", "a_b", "spec.templates[0].name", "letters, digits and -"),
    (f"{T}.0.suspend", {}, "spec.templates[0]", "exactly one of"),
    (f"{T}.0.steps.0.0.template", "nope", "spec.templates[0].steps[0][0].template", "no template 'nope'"),
    (f"{T}.0.steps.0.0.templateRef", {}, "spec.templates[0].steps[0][0].templateRef", "not supported"),
    (f"{T}.0.steps.0.0.arguments", {}, "spec.templates[0].steps[0][0].template", "needs the argument 'm'"),
    (f"{T}.0.steps.0.0.when", "a ==", "spec.templates[0].steps[0][0].when", "Unexpected end"),
    (f"{T}.0.steps.0.0.name", "b", "spec.templates[0].steps[1][0].name", "used twice"),
    (
        f"{T}.0.steps.1.0.when",
        "{{steps.z.status}}",
        "spec.templates[0].steps[1][0].when",
        "failed to resolve {{steps.z",
    ),
    (f"{T}.0.steps.0.0.when", "{{steps.a.status}}", "spec.templates[0].steps[0][0].when", "failed to resolve"),
    (f"{T}.0.steps.0.0.when", "{{item}} == 1", "spec.templates[0].steps[0][0].when", "failed to resolve {{item}}"),
    (f"{T}.0.steps.0.0.withParam", "[]", "spec.templates[0].steps[0][0].withParam", "only one of"),
    (f"{T}.0.steps.0.0.withSequence", {"start": 1}, "spec.templates[0].steps[0][0].withSequence", "count and end"),
    (f"{T}.0.activeDeadlineSeconds", 5, "spec.templates[0].activeDeadlineSeconds", "spec.activeDeadlineSeconds"),
    (f"{T}.1.dag.tasks.1.depends", "p.Gone", "spec.templates[1].dag.tasks[1].depends", "'Gone'"),
    (f"{T}.1.dag.tasks.1.depends", "p &&", "spec.templates[1].dag.tasks[1].depends", "Unexpected end"),
    (f"{T}.1.dag.tasks.1.depends", "z", "spec.templates[1].dag.tasks[1].depends", "no task 'z'"),
    (f"{T}.1.dag.tasks.1.depends", "p.AllFailed", "spec.templates[1].dag.tasks[1].depends", "need a fan-out"),
    (f"{T}.1.dag.tasks.1.dependencies", ["p"], "spec.templates[1].dag.tasks[1].dependencies", "either"),
    (f"{T}.1.dag.tasks.0.dependencies", ["r"], "spec.templates[1].dag.tasks[0].dependencies", "in all of its tasks"),
    (f"{T}.2.parallelism", 1, "spec.templates[2].parallelism", "only steps and dag"),
    (f"{T}.2.container.image", "", "spec.templates[2].container.image", "must be set"),
    (f"{T}.2.container.args", ["{{workflow.failures}} {{x}}"], "spec.templates[2].container.args[0]", "{{x}}"),
    (f"{T}.1.dag.tasks.1.when", "{{item.k}}", "spec.templates[1].dag.tasks[1].when", "failed to resolve"),
    (
        f"{T}.0.steps.0.0.arguments.parameters",
        [{"name": "m", "value": "1"}, {"name": "m", "value": "2"}],
        "spec.templates[0].steps[0][0].arguments.parameters[1].name",
        "two parameters 'm'",
    ),
    (
        f"{T}.0.steps.0.0.arguments.artifacts",
        [{"name": "a b", "raw": {"data": ""}}],
        "spec.templates[0].steps[0][0].arguments.artifacts[0].name",
        "letters, digits",
    ),
    (
        f"{T}.2.outputs.artifacts",
        [{"name": "a", "path": "/{{workflow.parameters.no}}"}],
        "spec.templates[2].outputs.artifacts[0].path",
        "failed to resolve",
    ),
    (
        f"{T}.2.container.volumeMounts",
        [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/v"}],
        "spec.templates[2].container.volumeMounts[1].mountPath",
        "is taken by",
    ),
    (f"{T}.1.dag.tasks.0.continueOn", {"failed": True}, "spec.templates[1].dag.tasks[0].continueOn", "name.Failed"),
    (f"{T}.1.dag.tasks.0.name", "1p", "spec.templates[1].dag.tasks[0].name", "begin with a digit"),
    (f"{T}.1.dag.tasks.1.depends", "r", "spec.templates[1].dag.tasks", "in a circle: q, r"),
    (f"{T}.1.dag.tasks.0.template", "graph", "spec.templates[1].dag.tasks[0].template", "calls itself without end"),
    (f"{T}.1.dag.target", "z", "spec.templates[1].dag.target", "no task 'z'"),
    (f"{T}.2.container.lifecycle", {}, "spec.templates[2].container.lifecycle", "not supported"),
    (f"{T}.2.container.command", ..., "spec.templates[2].container.command", "is required"),
    (f"{T}.2.container.command", [], "spec.templates[2].container.command", "must be set"),
    (f"{T}.2.container.command", "echo", "spec.templates[2].container.command", "must be a list"),
    (f"{T}.2.container.args", [1], "spec.templates[2].container.args[0]", "must be a text, not a number"),
    (f"{T}.2.container.args", ["{{x}}"], "spec.templates[2].container.args[0]", "failed to resolve {{x}}"),
    (f"{T}.2.container.args", ["{{=x.y + 1}}"], "spec.templates[2].container.args[0]", "x"),
    (
        f"{T}.2.container.env",
        [{"name": "E", "valueFrom": {}}],
        "spec.templates[2].container.env[0].valueFrom",
        "one of",
    ),
    (
        f"{T}.2.container.volumeMounts",
        [{"name": "z", "mountPath": "/z"}],
        "spec.templates[2].container.volumeMounts[0].name",
        "no volume 'z'",
    ),
    (
        f"{T}.2.container.volumeMounts",
        [{"name": "v", "mountPath": "/v", "subPath": "../x"}],
        "spec.templates[2].container.volumeMounts[0].subPath",
        "inside the volume",
    ),
    (
        f"{T}.2.container.resources",
        {"limits": {"cpu": "two"}},
        "spec.templates[2].container.resources.limits.cpu",
        "500m",
    ),
    (
        f"{T}.2.container.env",
        [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}],
        "spec.templates[2].container.env[0].valueFrom.fieldRef.fieldPath",
        "metadata.name",
    ),
    (f"{T}.2.sidecars", [], "spec.templates[2].sidecars", "inside the step"),
    (f"{T}.2.daemon", True, "spec.templates[2].daemon", "not supported"),
    (
        f"{T}.2.inputs.parameters.0.name",
        "a b",
        "spec.templates[2].inputs.parameters[0].name",
        "letters, digits, - and _",
    ),
    (f"{T}.2.container.args", ["{{=1 +}}"], "spec.templates[2].container.args[0]", "Unexpected end"),
    (f"{T}.2.container.args", ["{{=now()}}"], "spec.templates[2].container.args[0]", "unknown function now"),
    (f"{T}.2.inputs.artifacts", [{"name": "a"}], "spec.templates[2].inputs.artifacts[0].path", "is required"),
    (
        f"{T}.2.inputs.artifacts",
        [{"name": "a", "path": "/a"}],
        "spec.templates[0].steps[0][0].template",
        "artifact 'a'",
    ),
    (f"{T}.2.outputs.artifacts", [{"name": "a"}], "spec.templates[2].outputs.artifacts[0].path", "is required"),
    (f"{T}.4.inputs", {"artifacts": [{"name": "a"}]}, "spec.templates[4].inputs.artifacts[0]", "no files"),
    (
        f"{T}.0.outputs",
        {"artifacts": [{"name": "a", "from": "{{steps.a.outputs.artifacts.z}}"}]},
        "spec.templates[0].outputs.artifacts[0].from",
        "failed to resolve",
    ),
    (
        f"{T}.2.outputs.parameters.0.valueFrom",
        {"jsonPath": "{.a}"},
        "spec.templates[2].outputs.parameters[0].valueFrom.jsonPath",
        "come from path",
    ),
    (
        f"{T}.2.outputs.parameters.0.valueFrom",
        {"default": "x"},
        "spec.templates[2].outputs.parameters[0].valueFrom",
        "needs path",
    ),
    (
        f"{T}.2.outputs.parameters.0.valueFrom",
        {"path": "o"},
        "spec.templates[2].outputs.parameters[0].valueFrom.path",
        "absolute",
    ),
    (
        f"{T}.2.outputs.parameters.0.valueFrom",
        {"expression": "1"},
        "spec.templates[2].outputs.parameters[0].valueFrom.expression",
        "come from path",
    ),
    (
        f"{T}.2.retryStrategy.retryPolicy",
        "Never",
        "spec.templates[2].retryStrategy.retryPolicy",
        "must be one of Always",
    ),
    (f"{T}.2.retryStrategy.limit", "x", "spec.templates[2].retryStrategy.limit", "whole number"),
    (f"{T}.2.retryStrategy.expression", "1 +", "spec.templates[2].retryStrategy.expression", "Unexpected end"),
    (f"{T}.2.retryStrategy.expression", "x == 1", "spec.templates[2].retryStrategy.expression", "the name x"),
    (
        f"{T}.2.retryStrategy.expression",
        "lastRetry.code == 1",
        "spec.templates[2].retryStrategy.expression",
        "lastRetry.code",
    ),
    (
        f"{T}.2.retryStrategy.expression",
        "now() == 1",
        "spec.templates[2].retryStrategy.expression",
        "unknown function now",
    ),
    (f"{T}.2.retryStrategy.backoff.duration", "soon", "spec.templates[2].retryStrategy.backoff.duration", "duration"),
    (f"{T}.2.retryStrategy.backoff.duration", ..., "spec.templates[2].retryStrategy.backoff.duration", "is required"),
    (f"{T}.2.activeDeadlineSeconds", "x", "spec.templates[2].activeDeadlineSeconds", "whole number of seconds"),
    (f"{T}.2.metadata.labels.l", 1, "spec.templates[2].metadata.labels.l", "must be a text"),
    (f"{T}.3.resource.action", "delete", "spec.templates[3].resource.action", "must be one of apply, create"),
    (f"{T}.3.resource.manifest", "a: [", "spec.templates[3].resource.manifest", "cannot be read: line 1"),
    (f"{T}.3.resource.manifest", "[1]", "spec.templates[3].resource.manifest", "must be one object"),
    (f"{T}.3.resource.manifest", "a: 1", "spec.templates[3].resource.manifest", "has no apiVersion"),
    (f"{T}.3.resource.successCondition", "x", "spec.templates[3].resource.successCondition", "watch the object"),
    (f"{T}.3.resource.setOwnerReference", True, "spec.templates[3].resource.setOwnerReference", "must be false"),
    (f"{T}.3.resource.flags", ["--prune"], "spec.templates[3].resource.flags[0]", "not supported"),
    (f"{T}.4.suspend.duration", "x", "spec.templates[4].suspend.duration", "duration"),
    (f"{T}.5.script.source", ..., "spec.templates[5].script.source", "is required"),
    (f"{T}.5.http", {}, "spec.templates[5].http", "not supported"),
]


@pytest.mark.parametrize(
    ("where", "value", "path", "reason"), REFUSED, ids=[f"{row[0]}={row[1]}"[:80] for row in REFUSED]
)
def test_a_mistake_is_named_by_its_path(where: str, value: Any, path: str, reason: str) -> None:
    manifest = a_workflow()
    if where.endswith("withParam"):
        change(where.replace("withParam", "withItems"), [1])(manifest)
    change(where, value)(manifest)
    with pytest.raises(Refused) as error:
        validate_workflow(manifest)
    assert error.value.path == path
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
