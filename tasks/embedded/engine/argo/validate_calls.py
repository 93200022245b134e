"""Checks of steps, tasks and hooks: what they call, with which arguments, in which order, and which tags they see.

Every `{{...}}` of a workflow must have a chance to be replaced: it is checked against what its place can see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from profiles.errors import Refused, check_all
from tasks.embedded.engine.argo.calls import (
    EXIT,
    ItemsError,
    arguments_of,
    call_of,
    go_format,
    read_depends,
    sequence,
    topological_order,
)
from tasks.embedded.engine.argo.plan import STRFTIME, kind_of
from tasks.embedded.engine.argo.substitution import substitute
from tasks.embedded.engine.argo.validate_names import (
    TagScope,
    check_argument_artifacts,
    check_argument_names,
    check_expression,
    check_given_artifacts,
    check_output_artifacts,
    check_texts,
)
from tasks.embedded.engine.expr.parser import parse
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import Json, as_list, as_map, maps, text_of

_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?")
FAN_OUTS = ("withItems", "withParam", "withSequence")

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


def calls_of(template: Json, path: str) -> Iterator[tuple[str, Json]]:
    """The steps or tasks of a template with their paths."""
    for index, task in enumerate(maps(as_map(template.get("dag")).get("tasks"))):
        yield f"{path}.dag.tasks[{index}]", task
    for group, steps in enumerate(as_list(template.get("steps"))):
        for index, step in enumerate(maps(steps)):
            yield f"{path}.steps[{group}][{index}]", step


def check_calls(spec: Json, templates: Mapping[str, Json]) -> None:
    """Check every call of every template, and the workflow's own hooks.

    Raises:
        Refused: a call cannot work; with its path.
    """
    given = argument_names(spec)
    parameters = {f"workflow.parameters.{name}": value for name, value in arguments_of(spec)}
    checks = [
        partial(_check_target, templates, str(spec["entrypoint"]), given, "spec.entrypoint"),
        partial(_check_hooks, spec, templates, given, "spec"),
        partial(_check_exit_expression, spec),
    ]
    for index, template in enumerate(templates.values()):
        path = f"spec.templates[{index}]"
        seen: set[str] = set()
        for where, call in calls_of(template, path):
            checks.append(partial(_check_call, call, templates, given, where, seen))
            checks.append(partial(_check_step_hooks, template, call, where))
        if "dag" in template:
            checks.append(partial(_check_dag, as_map(template["dag"]), f"{path}.dag", parameters))
    check_all(checks)
    _check_recursion(templates)


def _check_exit_expression(spec: Json) -> None:
    if as_map(as_map(spec.get("hooks")).get(EXIT)).get("expression"):
        raise Refused("spec.hooks.exit.expression", "Argo does not look at it; test workflow.status in a when")


def _check_step_hooks(template: Json, call: Json, path: str) -> None:
    """Argo knows the items of a step only by their own names, so a hook's expression cannot name their step."""
    if "steps" in template and any(call.get(field) is not None for field in FAN_OUTS):
        for hook in as_map(call.get("hooks")):
            if hook != EXIT:
                raise Refused(f"{path}.hooks.{hook}", "a step with a fan-out has none: put the loop into a template")


@dataclass(frozen=True)
class ArgumentNames:
    """The names of arguments."""

    parameters: frozenset[str]
    artifacts: frozenset[str]

    def __or__(self, other: ArgumentNames) -> ArgumentNames:
        return ArgumentNames(self.parameters | other.parameters, self.artifacts | other.artifacts)


def argument_names(holder: Json) -> ArgumentNames:
    """What a workflow, step, task or hook gives to the template that it calls."""
    arguments = as_map(holder.get("arguments"))
    parameters, artifacts = (maps(arguments.get(part)) for part in ("parameters", "artifacts"))
    return ArgumentNames(frozenset(item["name"] for item in parameters), frozenset(item["name"] for item in artifacts))


def _check_call(call: Json, templates: Mapping[str, Json], given: ArgumentNames, path: str, seen: set[str]) -> None:
    name = call["name"]
    if not _NAME.fullmatch(name):
        raise Refused(f"{path}.name", f"'{name}' may hold only letters, digits and -, and no - at its ends")
    if name in seen:
        raise Refused(f"{path}.name", f"the name '{name}' is used twice in this template")
    seen.add(name)
    check_all(
        (
            partial(_check_target, templates, call["template"], argument_names(call), f"{path}.template"),
            partial(check_argument_names, call, path),
            partial(_check_given_values, call, path),
            partial(_check_when, call, path),
            partial(_check_fan_out, call, path),
            partial(_check_hooks, call, templates, given, path),
        )
    )


def _check_given_values(call: Json, path: str) -> None:
    for index, parameter in enumerate(maps(as_map(call.get("arguments")).get("parameters"))):
        if parameter.get("value") is None:
            raise Refused(f"{path}.arguments.parameters[{index}].value", "is required")


def _check_when(call: Json, path: str) -> None:
    if call.get("when") and "{{" not in call["when"]:
        try:
            parse(call["when"], "when")
        except ExpressionError as error:
            raise Refused(f"{path}.when", f"'{call['when']}': {error}") from error


def _check_target(templates: Mapping[str, Json], name: str, given: ArgumentNames, path: str) -> None:
    """A called template must exist, and each of its inputs must have a value."""
    template = templates.get(name)
    if template is None:
        raise Refused(path, f"there is no template '{name}'; known: {', '.join(templates)}")
    for parameter in maps(as_map(template.get("inputs")).get("parameters")):
        if (
            parameter["name"] not in given.parameters
            and parameter.get("value") is None
            and parameter.get("default") is None
        ):
            raise Refused(path, f"template '{name}' needs the argument '{parameter['name']}', which is not given")
    check_given_artifacts(template, set(given.artifacts), path)


def _check_hooks(holder: Json, templates: Mapping[str, Json], given: ArgumentNames, path: str) -> None:
    """An exit hook without arguments gets the workflow's; every other hook needs an expression."""
    if holder.get("onExit"):
        _check_target(templates, holder["onExit"], given, f"{path}.onExit")
    for name, hook in as_map(holder.get("hooks")).items():
        where, own = f"{path}.hooks.{name}", argument_names(hook)
        check_argument_names(hook, where)
        if name != EXIT and not hook.get("expression"):
            raise Refused(f"{where}.expression", "is required; only the hook exit runs without one")
        inherited = name == EXIT and not own.parameters and not own.artifacts
        _check_target(templates, hook["template"], given if inherited else own, f"{where}.template")


def _check_fan_out(call: Json, path: str) -> None:
    used = [name for name in FAN_OUTS if call.get(name) is not None]
    if len(used) > 1:
        raise Refused(f"{path}.{used[1]}", f"a step has only one of {', '.join(FAN_OUTS)}")
    if "withSequence" not in used:
        return
    loop = as_map(call["withSequence"])
    where = f"{path}.withSequence"
    if ("count" in loop) == ("end" in loop):
        raise Refused(where, "needs exactly one of count and end")
    try:
        go_format(str(loop.get("format") or "%d"), 0)
        if not any("{{" in text_of(value) for value in loop.values()):
            sequence(loop)
    except ItemsError as error:
        raise Refused(where, str(error)) from error


def _check_dag(dag: Json, path: str, known: Mapping[str, str]) -> None:
    tasks = {task["name"]: task for task in maps(dag["tasks"])}
    needs: dict[str, tuple[str, ...]] = {}
    by_depends = any(task.get("depends") for task in tasks.values())
    for index, task in enumerate(tasks.values()):
        where = f"{path}.tasks[{index}]"
        _check_way(task, by_depends, where)
        field = "depends" if task.get("depends") else "dependencies"
        needs[task["name"]] = _needed(task, tasks, f"{where}.{field}")
    for target in substitute(str(dag.get("target") or ""), known.get).split():
        if target not in tasks:
            raise Refused(f"{path}.target", f"there is no task '{target}'")
    _check_cycles(needs, path)


def _check_way(task: Json, by_depends: bool, path: str) -> None:
    """All tasks of one DAG must state their dependencies in the same way."""
    if by_depends and task.get("dependencies"):
        raise Refused(f"{path}.dependencies", "a DAG has either depends or dependencies in all of its tasks")
    if by_depends and task.get("continueOn"):
        raise Refused(f"{path}.continueOn", "not beside depends: write name.Failed or name.Errored there")
    if (by_depends or task.get("dependencies")) and task["name"][0] in "0123456789":
        raise Refused(f"{path}.name", "must not begin with a digit where tasks wait for each other")


def _needed(task: Json, tasks: Mapping[str, Json], path: str) -> tuple[str, ...]:
    if task.get("depends"):
        try:
            names = read_depends(task["depends"]).tasks
        except ExpressionError as error:
            raise Refused(path, f"'{task['depends']}': {error}") from error
        _check_item_results(task["depends"], tasks, path)
    else:
        names = tuple(as_list(task.get("dependencies")))
    for name in names:
        if name not in tasks:
            raise Refused(path, f"there is no task '{name}'; known: {', '.join(tasks)}")
    return names


def _check_item_results(text: str, tasks: Mapping[str, Json], path: str) -> None:
    for name in re.findall(r"([-\w]+)\.(?:AnySucceeded|AllFailed)\b", text):
        if name in tasks and not any(tasks[name].get(field) is not None for field in FAN_OUTS):
            raise Refused(path, f"AnySucceeded and AllFailed need a fan-out; '{name}' is none")


def _check_cycles(needs: Mapping[str, tuple[str, ...]], path: str) -> None:
    """Take away what needs nothing any more until nothing is left; what stays is a circle."""
    left = {name: set(others) for name, others in needs.items()}
    while left:
        free = [name for name, others in left.items() if not others & left.keys()]
        if not free:
            raise Refused(f"{path}.tasks", f"tasks depend on each other in a circle: {', '.join(sorted(left))}")
        for name in free:
            del left[name]


def _check_recursion(templates: Mapping[str, Json]) -> None:
    """A template may call itself only under a condition or from a list that may be empty."""
    certain = {
        name: {call["template"]: where for where, call in calls_of(template, f"spec.templates[{index}]") if _sure(call)}
        for index, (name, template) in enumerate(templates.items())
    }
    left = {name: set(targets) for name, targets in certain.items()}
    while left:
        free = [name for name, targets in left.items() if not targets & left.keys()]
        if not free:
            name = next(iter(left))
            target = next(target for target in certain[name] if target in left)
            raise Refused(f"{certain[name][target]}.template", f"'{name}' calls itself without end; give it a when")
        for name in free:
            del left[name]


def _sure(call: Json) -> bool:
    return (
        not call.get("when") and not call.get("depends") and not any(call.get(field) is not None for field in FAN_OUTS)
    )


def check_tags(manifest: Json, templates: Mapping[str, Json]) -> None:
    """Check all tags.

    Raises:
        Refused: a tag can never be replaced; with the path of the text that holds it.
    """
    spec = as_map(manifest["spec"])
    artifacts = frozenset(f"workflow.outputs.artifacts.{name}" for name in _global_names(templates, "artifacts"))
    common = TagScope(frozenset(_globals(manifest, templates)), artifacts=artifacts)
    own = {key: value for key, value in spec.items() if key not in _WITH_TAGS_OF_THEIR_OWN}
    check_all(
        (
            *(partial(check_texts, value, f"spec.{key}", common) for key, value in own.items()),
            partial(_check_parameters, spec, "spec", common),
            partial(check_argument_artifacts, spec, "spec", common),
            partial(_check_hook_tags, spec, "spec", common, common),
            *(
                partial(_check_template, one, templates, f"spec.templates[{i}]", common, "retryStrategy" in spec)
                for i, one in enumerate(templates.values())
            ),
        )
    )


_WITH_TAGS_OF_THEIR_OWN = ("templates", "templateDefaults", "hooks", "arguments")


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
    template: Json, templates: Mapping[str, Json], path: str, common: TagScope, always_retried: bool
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
    bodies = {key: value for key, value in template.items() if key not in ("dag", "steps", "inputs", "outputs")}
    sights = _call_sights(template, templates, sight)
    check_all(
        (
            *(partial(check_texts, value, f"{path}.{key}", sight) for key, value in bodies.items()),
            partial(check_texts, template.get("inputs"), f"{path}.inputs", common),
            *(
                partial(_check_call_tags, one, at, sights[one["name"]], templates)
                for at, one in calls_of(template, path)
            ),
            partial(_check_outputs, template, path, _after_all(template, templates, sight)),
        )
    )


def _paths(template: Json) -> set[str]:
    """Tags for the paths of a pod's files."""
    found: set[str] = set()
    for part, kinds in (("inputs", ("artifacts",)), ("outputs", ("artifacts", "parameters"))):
        for kind in kinds:
            found |= {f"{part}.{kind}.{item['name']}.path" for item in maps(as_map(template.get(part)).get(kind))}
    return found


def _check_outputs(template: Json, path: str, sight: TagScope) -> None:
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


def _after_all(template: Json, templates: Mapping[str, Json], sight: TagScope) -> TagScope:
    prefix = {"dag": "tasks", "steps": "steps"}.get(str(kind_of(template)), "")
    return replace(sight, calls=_called(template, templates), prefix=prefix)


def _call_sights(template: Json, templates: Mapping[str, Json], sight: TagScope) -> dict[str, TagScope]:
    """What each call sees: steps of earlier groups; tasks it depends on, directly or not."""
    called = _called(template, templates)
    found: dict[str, TagScope] = {}
    before: set[str] = set()
    for group in as_list(template.get("steps")):
        for step in maps(group):
            calls = {name: called[name] for name in called if name in before}
            found[step["name"]] = replace(sight, calls=calls, prefix="steps")
        before |= {step["name"] for step in maps(group)}
    tasks = {task["name"]: call_of(task) for task in maps(as_map(template.get("dag")).get("tasks"))}
    for name in tasks:
        ancestors = [other for other in topological_order(tasks, (name,)) if other != name]
        calls = {other: called[other] for other in ancestors}
        found[name] = replace(sight, calls=calls, prefix="tasks")
    return found


def _check_call_tags(call: Json, path: str, sight: TagScope, templates: Mapping[str, Json]) -> None:
    fan_out = any(call.get(name) is not None for name in FAN_OUTS)
    inside = replace(sight, items=fan_out, keys=_item_keys(call))
    own = templates[call["template"]]
    outputs = {f"outputs.parameters.{item['name']}" for item in maps(as_map(own.get("outputs")).get("parameters"))}
    after = replace(sight, calls={**sight.calls, call["name"]: own}, names=sight.names | outputs)
    during = replace(sight, names=sight.names | {f"{sight.prefix}.{call['name']}.status"})
    check_all(
        (
            *(partial(check_texts, call.get(key), f"{path}.{key}", sight) for key in FAN_OUTS),
            partial(check_texts, call.get("when"), f"{path}.when", inside),
            partial(_check_parameters, call, path, inside),
            partial(check_argument_artifacts, call, path, inside),
            partial(_check_hook_tags, call, path, during, after),
        )
    )


def _item_keys(call: Json) -> frozenset[str] | None:
    """What the items of a fan-out have, as far as it is written down."""
    if call.get("withParam") is not None:
        return None
    return frozenset(str(key) for item in maps(call.get("withItems")) for key in item)


def _check_parameters(holder: Json, path: str, sight: TagScope) -> None:
    check_texts(as_map(holder.get("arguments")).get("parameters"), f"{path}.arguments.parameters", sight)


def _check_hook_tags(holder: Json, path: str, during: TagScope, after: TagScope) -> None:
    """Hooks see their step as it runs, exit hooks also what it left."""
    for name, hook in as_map(holder.get("hooks")).items():
        where = f"{path}.hooks.{name}"
        if as_map(hook).get("expression"):
            check_expression(str(hook["expression"]), f"{where}.expression", during)
        sight = after if name == EXIT else during
        _check_parameters(as_map(hook), where, sight)
        check_argument_artifacts(as_map(hook), where, sight)
