"""A workflow manifest read once: templates, calls, dependencies; everything that does not change while it runs.

`constants_of` gives the tags that hold for the whole workflow: its name, parameters, labels, time of creation. Plans
are kept between calls: reading a manifest of a thousand items anew for each event would be most of the work.
"""

from __future__ import annotations

import copy
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

from tasks.embedded.engine.argo.calls import (
    Hook,
    TemplateCall,
    arguments_of,
    artifacts_of,
    call_of,
    hook_of,
    hooks_of,
    leaves,
    topological_order,
)
from tasks.embedded.engine.argo.names import NodeFailure
from tasks.embedded.engine.argo.substitution import substitute
from tasks.embedded.engine.json_values import Json, as_list, as_map, is_map, maps, text_of, whole_seconds, without_nulls

Kind = Literal["container", "script", "resource", "suspend", "dag", "steps"]

STRFTIME = "BbmAadHIMSYypZz"
"""The characters of `workflow.creationTimestamp.<character>` that mean the same to Go's strftime and Python's."""
KINDS: tuple[Kind, ...] = ("container", "script", "resource", "suspend", "dag", "steps")
"""The template types that run here."""

_RESULT = re.compile(
    r"(?:steps|tasks)(?:\.(?P<dotted>[-\w]+)|(?:\?\.)?\[\\?['\"](?P<quoted>[-\w]+)\\?['\"]\])\??\.outputs\??\.result"
)

_KEPT = 32
_METADATA = ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp")
"""The metadata that tags may name; the rest (resource version, generation) changes with every write."""
_known: OrderedDict[str, tuple[Json, Json, Plan]] = OrderedDict()


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
    artifact_inputs: tuple[Json, ...]
    artifact_outputs: tuple[Json, ...]
    retry: Json | None
    parallelism: int | None
    fail_fast: bool
    groups: tuple[tuple[TemplateCall, ...], ...]
    group_of: Mapping[str, int]
    tasks: Mapping[str, TemplateCall]
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
    artifacts: tuple[Json, ...]
    """`arguments.artifacts`, which go to the entry point."""
    hook: Hook | None
    hooks: tuple[Hook, ...]
    limits: bool
    """Whether `parallelism` is set anywhere."""
    parallelism: int | None
    deadline_seconds: float | None
    constants: Mapping[str, str]
    """The global tags that never change: `workflow.name`, `workflow.parameters.n`, …."""


def plan_of(workflow: Json) -> Plan:
    """The plan of a workflow: kept from an earlier call where manifest and metadata are equal, else read.

    Equality is compared, never identity, so that a caller who changes its own copy gets the right answer.
    """
    metadata = as_map(workflow.get("metadata"))
    used = {key: metadata.get(key) for key in _METADATA}
    spec = as_map(workflow.get("spec"))
    name = str(used["name"])
    found = _known.get(name)
    if found is not None and found[0] == spec and found[1] == used:
        _known.move_to_end(name)
        return found[2]
    copied = copy.deepcopy({"metadata": used, "spec": spec})
    plan = read_plan(without_nulls(copied))
    _known[name] = (copied["spec"], copied["metadata"], plan)
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return plan


def read_plan(workflow: Json) -> Plan:
    """Read a workflow that `validate_workflow` accepted."""
    spec, metadata = as_map(workflow.get("spec")), as_map(workflow.get("metadata"))
    common_retry = as_map(spec["retryStrategy"]) if spec.get("retryStrategy") is not None else None
    constants = constants_of(spec, metadata)
    templates = {item["name"]: _template(item, common_retry, constants) for item in templates_of(spec)}
    parallelism, deadline = spec.get("parallelism"), spec.get("activeDeadlineSeconds")
    return Plan(
        name=str(metadata.get("name")),
        namespace=str(metadata.get("namespace") or "default"),
        spec=spec,
        templates=templates,
        entrypoint=str(spec.get("entrypoint")),
        arguments={name: constants[f"workflow.parameters.{name}"] for name, _ in arguments_of(spec)},
        artifacts=artifacts_of(spec),
        hook=hook_of(spec),
        hooks=hooks_of(spec),
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


def _template(spec: Json, common_retry: Json | None, constants: Mapping[str, str]) -> Template:
    kind = kind_of(spec)
    assert kind is not None, "validate_workflow lets no template without a type through"  # noqa: S101 # our own mistake
    dag = as_map(spec.get("dag"))
    groups = tuple(tuple(call_of(step) for step in maps(group)) for group in as_list(spec.get("steps")))
    tasks = {call.name: call for call in map(call_of, maps(dag.get("tasks")))}
    targets = tuple(substitute(str(dag.get("target") or ""), constants.get).split()) or leaves(tasks)
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
        artifact_inputs=tuple(maps(as_map(spec.get("inputs")).get("artifacts"))),
        artifact_outputs=tuple(maps(as_map(spec.get("outputs")).get("artifacts"))),
        retry=as_map(spec["retryStrategy"]) if spec.get("retryStrategy") is not None else common_retry,
        parallelism=spec.get("parallelism"),
        fail_fast=bool(dag.get("failFast", True)),
        groups=groups,
        group_of={call.name: index for index, group in enumerate(groups) for call in group},
        tasks={name: tasks[name] for name in topological_order(tasks, targets)},
        targets=targets,
        wants_result=_wants_result(spec) if kind in ("dag", "steps") else frozenset(),
    )


def _optional(value: object) -> str | None:
    return None if value is None else text_of(value)


def _wants_result(spec: Json) -> frozenset[str]:
    return frozenset(found["dotted"] or found["quoted"] for found in _RESULT.finditer(json.dumps(spec)))


def constants_of(spec: Json, metadata: Json) -> dict[str, str]:
    """The tags and their values."""
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
        **_created(str(metadata.get("creationTimestamp") or "")),
        "workflow.parameters": json.dumps(parameters, separators=(",", ":")),
        "workflow.labels.json": json.dumps(labels, separators=(",", ":")),
        "workflow.annotations.json": json.dumps(annotations, separators=(",", ":")),
    }
    found["workflow.parameters.json"] = found["workflow.parameters"]
    if spec.get("priority") is not None:
        found["workflow.priority"] = str(spec["priority"])
    found |= {f"workflow.labels.{key}": str(value) for key, value in labels.items()}
    found |= {f"workflow.annotations.{key}": str(value) for key, value in annotations.items()}
    return found | {f"workflow.parameters.{name}": _replaced(value, found) for name, value in arguments_of(spec)}


def _replaced(text: str, known: dict[str, str]) -> str:
    """A parameter's value with the tags replaced that are known from the start."""
    try:
        return substitute(text, known.get)
    except NodeFailure:
        return text


def _created(text: str) -> dict[str, str]:
    """The moment of creation, whole seconds as Kubernetes has it."""
    if not text:
        return {}
    when = datetime.fromisoformat(text).astimezone(UTC)
    stamp = whole_seconds(text)
    found = {"workflow.creationTimestamp": stamp, "workflow.creationTimestamp.RFC3339": stamp}
    return found | {f"workflow.creationTimestamp.{letter}": when.strftime(f"%{letter}") for letter in STRFTIME}
