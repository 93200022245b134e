"""A workflow manifest read once: templates, calls, dependencies; everything that does not change while it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tasks.embedded.engine.depends import Depends, from_dependencies, read_depends
from tasks.embedded.engine.items import Items
from tasks.embedded.engine.json_values import Json, as_list, as_map, is_map, maps, text_of
from tasks.embedded.engine.substitution import substitute

Kind = Literal["container", "script", "resource", "suspend", "dag", "steps"]
KINDS: tuple[Kind, ...] = ("container", "script", "resource", "suspend", "dag", "steps")
"""The template types that run here."""

Arguments = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Hook:
    """An exit hook: a template that runs after its step, whatever became of it."""

    template: str
    arguments: Arguments


@dataclass(frozen=True)
class Call:
    """One step or task: a template called with arguments."""

    name: str
    template: str
    arguments: Arguments
    when: str
    items: Items | None
    continue_on: frozenset[str]
    """Phases of a failed end that count as allowed: Failed, Error."""
    hook: Hook | None
    depends: Depends | None


@dataclass(frozen=True)
class Input:
    """One input parameter."""

    name: str
    value: str | None
    default: str | None


@dataclass(frozen=True, eq=False)
class Template:
    """One template, merged with the workflow's `templateDefaults`."""

    name: str
    kind: Kind
    spec: Json
    inputs: tuple[Input, ...]
    outputs: tuple[Json, ...]
    retry: Json | None
    parallelism: int | None
    fail_fast: bool
    groups: tuple[tuple[Call, ...], ...]
    group_of: Mapping[str, int]
    tasks: Mapping[str, Call]
    """The tasks of a DAG that its targets need, each after all tasks it depends on."""
    targets: tuple[str, ...]
    wants_result: frozenset[str]
    """The steps or tasks whose `outputs.result` is referred to inside this template."""

    def defaults(self) -> dict[str, str]:
        """Output parameters' defaults: what a skipped step of this template gives."""
        found = {parameter["name"]: as_map(parameter.get("valueFrom")).get("default") for parameter in self.outputs}
        return {name: text_of(value) for name, value in found.items() if value is not None}


@dataclass(frozen=True, eq=False)
class Plan:
    """One workflow."""

    name: str
    namespace: str
    spec: Json
    templates: Mapping[str, Template]
    entrypoint: str
    arguments: Mapping[str, str]
    hook: Hook | None
    limits: bool
    """Whether `parallelism` is set anywhere."""
    parallelism: int | None
    deadline_seconds: float | None
    constants: Mapping[str, str]
    """The global tags that never change: `workflow.name`, `workflow.parameters.n`, …."""


def read_plan(workflow: Json) -> Plan:
    """Read a workflow that `validate_workflow` accepted."""
    spec, metadata = as_map(workflow.get("spec")), as_map(workflow.get("metadata"))
    common_retry = as_map(spec["retryStrategy"]) if spec.get("retryStrategy") is not None else None
    templates = {item["name"]: _template(item, common_retry) for item in templates_of(spec)}
    parallelism, deadline = spec.get("parallelism"), spec.get("activeDeadlineSeconds")
    constants = _constants(spec, metadata)
    return Plan(
        name=str(metadata.get("name")),
        namespace=str(metadata.get("namespace") or "default"),
        spec=spec,
        templates=templates,
        entrypoint=str(spec.get("entrypoint")),
        arguments={name: constants[f"workflow.parameters.{name}"] for name, _ in arguments_of(spec)},
        hook=hook_of(spec),
        limits=parallelism is not None or any(item.parallelism is not None for item in templates.values()),
        parallelism=parallelism,
        deadline_seconds=None if deadline is None else float(deadline),
        constants=constants,
    )


def kind_of(template: Json) -> Kind | None:
    """The type of a template; None where it has none or several."""
    found: list[Kind] = [kind for kind in KINDS if kind in template]
    return found[0] if len(found) == 1 else None


def templates_of(spec: Json) -> list[Json]:
    """The templates, each merged over the workflow's `templateDefaults`; a default never gives a template its type."""
    defaults = as_map(spec.get("templateDefaults"))
    if not defaults:
        return maps(spec["templates"])
    return [
        {key: value for key, value in merged.items() if key not in KINDS or key in original}
        for original in maps(spec["templates"])
        for merged in (cast(Json, _merge(defaults, original)),)
    ]


def _merge(under: Any, over: Any) -> Any:
    if is_map(under) and is_map(over):
        low, high = under, over
        return {
            key: _merge(low[key], high[key]) if key in low and key in high else (high | low)[key]
            for key in (*low, *(key for key in high if key not in low))
        }
    return over


def arguments_of(holder: Json) -> Arguments:
    """Names and texts of `arguments.parameters` (those with a value)."""
    parameters = maps(as_map(holder.get("arguments")).get("parameters"))
    return tuple((str(item["name"]), text_of(item["value"])) for item in parameters if item.get("value") is not None)


def hook_of(holder: Json) -> Hook | None:
    """The exit hook of a workflow, step or task."""
    exit_hook = as_map(as_map(holder.get("hooks")).get("exit"))
    if exit_hook:
        return Hook(str(exit_hook["template"]), arguments_of(exit_hook))
    return Hook(str(holder["onExit"]), ()) if holder.get("onExit") else None


def _template(spec: Json, common_retry: Json | None) -> Template:
    kind = kind_of(spec)
    assert kind is not None, "validate_workflow lets no template without a type through"  # noqa: S101 # our own mistake
    dag = as_map(spec.get("dag"))
    groups = tuple(tuple(call_of(step) for step in maps(group)) for group in as_list(spec.get("steps")))
    tasks = {call.name: call for call in map(call_of, maps(dag.get("tasks")))}
    targets = tuple(str(dag.get("target") or "").split()) or leaves(tasks)
    parameters = maps(as_map(spec.get("inputs")).get("parameters"))
    return Template(
        name=str(spec.get("name")),
        kind=kind,
        spec=spec,
        inputs=tuple(
            Input(str(item["name"]), _optional(item.get("value")), _optional(item.get("default")))
            for item in parameters
        ),
        outputs=tuple(maps(as_map(spec.get("outputs")).get("parameters"))),
        retry=as_map(spec["retryStrategy"]) if spec.get("retryStrategy") is not None else common_retry,
        parallelism=spec.get("parallelism"),
        fail_fast=bool(dag.get("failFast", True)),
        groups=groups,
        group_of={call.name: index for index, group in enumerate(groups) for call in group},
        tasks={name: tasks[name] for name in ordered(tasks, targets)},
        targets=targets,
        wants_result=_wants_result(spec) if kind in ("dag", "steps") else frozenset(),
    )


def _optional(value: object) -> str | None:
    return None if value is None else text_of(value)


def call_of(step: Json) -> Call:
    """Read one step or task."""
    allowed = as_map(step.get("continueOn"))
    phases = [phase for phase, key in (("Failed", "failed"), ("Error", "error")) if allowed.get(key)]
    return Call(
        name=str(step["name"]),
        template=str(step["template"]),
        arguments=arguments_of(step),
        when=str(step.get("when") or ""),
        items=_items(step),
        continue_on=frozenset(phases),
        hook=hook_of(step),
        depends=_depends(step),
    )


def _items(step: Json) -> Items | None:
    if step.get("withItems") is not None:
        return Items("items", json.dumps(step["withItems"]))
    if step.get("withParam") is not None:
        return Items("parameter", text_of(step["withParam"]))
    if step.get("withSequence") is not None:
        return Items("sequence", json.dumps(step["withSequence"]))
    return None


def _depends(step: Json) -> Depends | None:
    if step.get("depends"):
        return read_depends(str(step["depends"]))
    names = [str(name) for name in as_list(step.get("dependencies"))]
    return from_dependencies(names) if names else None


def leaves(tasks: Mapping[str, Call]) -> tuple[str, ...]:
    """The tasks that nothing depends on: what a DAG without `target` is there for."""
    needed = {name for call in tasks.values() if call.depends for name in call.depends.tasks}
    return tuple(sorted(name for name in tasks if name not in needed))


def ordered(tasks: Mapping[str, Call], targets: tuple[str, ...]) -> list[str]:
    """The targets and all they depend on, every task after those it depends on (no recursion: chains may be long)."""
    done: dict[str, None] = {}
    waiting = list(reversed(targets))
    while waiting:
        name = waiting[-1]
        depends = tasks[name].depends
        missing = [other for other in (depends.tasks if depends else ()) if other not in done]
        if missing:
            waiting.extend(reversed(missing))
            continue
        waiting.pop()
        done[name] = None
    return list(done)


def _wants_result(spec: Json) -> frozenset[str]:
    text = json.dumps(spec)
    dotted = re.findall(r"(?:steps|tasks)\.([-\w]+)\.outputs\.result", text)
    indexed = re.findall(r"(?:steps|tasks)\[\\?['\"]([-\w]+)\\?['\"]\]\.outputs\.result", text)
    return frozenset(dotted) | frozenset(indexed)


def _constants(spec: Json, metadata: Json) -> dict[str, str]:
    parameters = maps(as_map(spec.get("arguments")).get("parameters"))
    extra = as_map(spec.get("workflowMetadata"))
    labels = as_map(metadata.get("labels")) | as_map(extra.get("labels"))
    annotations = as_map(metadata.get("annotations")) | as_map(extra.get("annotations"))
    found = {
        "workflow.name": str(metadata.get("name")),
        "workflow.namespace": str(metadata.get("namespace") or "default"),
        "workflow.uid": str(metadata.get("uid") or ""),
        "workflow.serviceAccountName": str(spec.get("serviceAccountName") or ""),
        "workflow.mainEntrypoint": str(spec.get("entrypoint")),
        "workflow.creationTimestamp": str(metadata.get("creationTimestamp") or ""),
        "workflow.creationTimestamp.RFC3339": str(metadata.get("creationTimestamp") or ""),
        "workflow.parameters": json.dumps(parameters, separators=(",", ":")),
        "workflow.labels.json": json.dumps(labels, separators=(",", ":")),
        "workflow.annotations.json": json.dumps(annotations, separators=(",", ":")),
    }
    found["workflow.parameters.json"] = found["workflow.parameters"]
    if spec.get("priority") is not None:
        found["workflow.priority"] = str(spec["priority"])
    found |= {f"workflow.labels.{key}": str(value) for key, value in labels.items()}
    found |= {f"workflow.annotations.{key}": str(value) for key, value in annotations.items()}
    return found | {f"workflow.parameters.{name}": substitute(value, found.get) for name, value in arguments_of(spec)}
