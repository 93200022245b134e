"""Every `{{...}}` of a workflow must have a chance to be replaced: checked against what its place can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.embedded.engine.calls import EXIT, call_of, ordered
from tasks.embedded.engine.global_values import STRFTIME
from tasks.embedded.engine.json_values import Json, as_list, as_map, maps
from tasks.embedded.engine.plan import kind_of
from tasks.embedded.engine.validation_artifacts import check_argument_artifacts, check_output_artifacts
from tasks.embedded.engine.validation_calls import FAN_OUTS, calls_of
from tasks.embedded.engine.validation_sight import Sight, check_expression, check_texts

_WORKFLOW = (
    "name",
    "namespace",
    "uid",
    "serviceAccountName",
    "mainEntrypoint",
    "creationTimestamp",
    "creationTimestamp.RFC3339",
    "labels.json",
    "annotations.json",
    "duration",
    "priority",
    "status",
)
_RETRY = ("retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message")


def check_tags(manifest: Json, templates: Mapping[str, Json]) -> None:
    """Check all tags.

    Raises:
        Refused: a tag can never be replaced; with the path of the text that holds it.
    """
    spec = as_map(manifest["spec"])
    artifacts = frozenset(f"workflow.outputs.artifacts.{name}" for name in _global_names(templates, "artifacts"))
    common = Sight(frozenset(_globals(manifest, templates)), artifacts=artifacts)
    for key, value in spec.items():
        if key not in ("templates", "templateDefaults", "hooks", "arguments"):
            check_texts(value, f"spec.{key}", common)
    _check_parameters(spec, "spec", common)
    check_argument_artifacts(spec, "spec", common)
    _check_hooks(spec, "spec", common, common)
    for index, template in enumerate(templates.values()):
        _check_template(template, templates, f"spec.templates[{index}]", common, "retryStrategy" in spec)


def _globals(manifest: Json, templates: Mapping[str, Json]) -> set[str]:
    spec, metadata = as_map(manifest["spec"]), as_map(manifest["metadata"])
    extra = as_map(spec.get("workflowMetadata"))
    found = {f"workflow.{name}" for name in _WORKFLOW}
    if spec.get("onExit"):
        found.add("workflow.failures")
    if parameters := [item["name"] for item in maps(as_map(spec.get("arguments")).get("parameters"))]:
        found |= {"workflow.parameters", "workflow.parameters.json"}
        found |= {f"workflow.parameters.{name}" for name in parameters}
    for part in ("labels", "annotations"):
        found |= {f"workflow.{part}.{key}" for key in as_map(metadata.get(part)) | as_map(extra.get(part))}
    found |= {f"workflow.creationTimestamp.{letter}" for letter in STRFTIME}
    return found | {f"workflow.outputs.parameters.{name}" for name in _global_names(templates, "parameters")}


def _global_names(templates: Mapping[str, Json], part: str) -> set[str]:
    outputs = (maps(as_map(template.get("outputs")).get(part)) for template in templates.values())
    return {str(item["globalName"]) for items in outputs for item in items if item.get("globalName")}


def _check_template(
    template: Json, templates: Mapping[str, Json], path: str, common: Sight, always_retried: bool
) -> None:
    kind = kind_of(template)
    own = as_map(template.get("inputs"))
    inputs = {f"inputs.parameters.{item['name']}" for item in maps(own.get("parameters"))}
    names = common.names | inputs | {"inputs.parameters", "node.name", "steps.name", "tasks.name"}
    if kind in ("container", "script", "resource"):
        names |= {"pod.name", *_paths(template)}
    if always_retried or template.get("retryStrategy") is not None:
        names |= set(_RETRY)
    artifacts = common.artifacts | {f"inputs.artifacts.{item['name']}" for item in maps(own.get("artifacts"))}
    sight = replace(common, names=frozenset(names), artifacts=artifacts)
    for key, value in template.items():
        if key not in ("dag", "steps", "inputs", "outputs"):
            check_texts(value, f"{path}.{key}", sight)
    check_texts(template.get("inputs"), f"{path}.inputs", common)
    sights = _call_sights(template, templates, sight)
    for where, call in calls_of(template, path):
        _check_call(call, where, sights[call["name"]], templates)
    _check_outputs(template, path, _after_all(template, templates, sight))


def _paths(template: Json) -> set[str]:
    """Tags for the paths of a pod's files."""
    found: set[str] = set()
    for part, kinds in (("inputs", ("artifacts",)), ("outputs", ("artifacts", "parameters"))):
        for kind in kinds:
            found |= {f"{part}.{kind}.{item['name']}.path" for item in maps(as_map(template.get(part)).get(kind))}
    return found


def _check_outputs(template: Json, path: str, sight: Sight) -> None:
    for index, parameter in enumerate(maps(as_map(template.get("outputs")).get("parameters"))):
        where = f"{path}.outputs.parameters[{index}].valueFrom"
        source = dict(as_map(parameter["valueFrom"]))
        if source.get("expression"):
            check_expression(str(source["expression"]), f"{where}.expression", sight)
        elif "parameter" in source and "{{" not in str(source["parameter"]):
            source["parameter"] = f"{{{{{source['parameter']}}}}}"
        check_texts(source, where, sight)
    check_output_artifacts(template, path, sight)


def _called(template: Json, templates: Mapping[str, Json]) -> dict[str, Json]:
    return {call["name"]: templates[call["template"]] for _, call in calls_of(template, "")}


def _after_all(template: Json, templates: Mapping[str, Json], sight: Sight) -> Sight:
    prefix = {"dag": "tasks", "steps": "steps"}.get(str(kind_of(template)), "")
    return replace(sight, calls=_called(template, templates), prefix=prefix)


def _call_sights(template: Json, templates: Mapping[str, Json], sight: Sight) -> dict[str, Sight]:
    """What each call sees: steps of earlier groups; tasks it depends on, directly or not."""
    called = _called(template, templates)
    found: dict[str, Sight] = {}
    before: set[str] = set()
    for group in as_list(template.get("steps")):
        for step in maps(group):
            calls = {name: called[name] for name in called if name in before}
            found[step["name"]] = replace(sight, calls=calls, prefix="steps")
        before |= {step["name"] for step in maps(group)}
    tasks = {task["name"]: call_of(task) for task in maps(as_map(template.get("dag")).get("tasks"))}
    for name in tasks:
        ancestors = [other for other in ordered(tasks, (name,)) if other != name]
        calls = {other: called[other] for other in ancestors}
        found[name] = replace(sight, calls=calls, prefix="tasks")
    return found


def _check_call(call: Json, path: str, sight: Sight, templates: Mapping[str, Json]) -> None:
    fan_out = any(call.get(name) is not None for name in FAN_OUTS)
    for key in FAN_OUTS:
        check_texts(call.get(key), f"{path}.{key}", sight)
    inside = replace(sight, items=fan_out, keys=_item_keys(call))
    check_texts(call.get("when"), f"{path}.when", inside)
    _check_parameters(call, path, inside)
    check_argument_artifacts(call, path, inside)
    own = templates[call["template"]]
    outputs = {f"outputs.parameters.{item['name']}" for item in maps(as_map(own.get("outputs")).get("parameters"))}
    after = replace(sight, calls={**sight.calls, call["name"]: own}, names=sight.names | outputs)
    during = replace(sight, names=sight.names | {f"{sight.prefix}.{call['name']}.status"})
    _check_hooks(call, path, during, after)


def _item_keys(call: Json) -> frozenset[str] | None:
    """What the items of a fan-out have, as far as it is written down."""
    if call.get("withParam") is not None:
        return None
    return frozenset(str(key) for item in maps(call.get("withItems")) for key in item)


def _check_parameters(holder: Json, path: str, sight: Sight) -> None:
    check_texts(as_map(holder.get("arguments")).get("parameters"), f"{path}.arguments.parameters", sight)


def _check_hooks(holder: Json, path: str, during: Sight, after: Sight) -> None:
    """Hooks see their step as it runs, exit hooks also what it left."""
    for name, hook in as_map(holder.get("hooks")).items():
        where = f"{path}.hooks.{name}"
        if as_map(hook).get("expression"):
            check_expression(str(hook["expression"]), f"{where}.expression", during)
        sight = after if name == EXIT else during
        _check_parameters(as_map(hook), where, sight)
        check_argument_artifacts(as_map(hook), where, sight)
