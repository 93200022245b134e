"""Resource templates and suspend templates: nodes without a pod.

The keeper applies a resource template's manifest itself, and its outputs are read from the object. A suspend template
waits for a time, or until somebody resumes the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from profiles.errors import Refused
from tasks.embedded.engine.argo.names import NodeFailure, seconds_of
from tasks.embedded.engine.argo.outputs import output_field, publish
from tasks.embedded.engine.argo.plan import Template
from tasks.embedded.engine.argo.pods import no_start_reason
from tasks.embedded.engine.argo.scope import Values, inputs_field
from tasks.embedded.engine.argo.state import DONE, Computation, Place, ResourceFacts
from tasks.embedded.engine.argo.substitution import substitute
from tasks.embedded.engine.json_values import Json, as_list, as_map, is_list, is_map, moment, text_of
from tasks.embedded.objects import API_VERSIONS

_PATH_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\['([^']+)'\]")

_FLAGS = ("--server-side", "--force-conflicts", "--field-manager", "--validate")
"""Flags of kubectl that say how to apply, not what: the cluster here applies in one way only."""

_UNKNOWN = "x"
"""Stands for what only the run will know."""


def run_resource(run: Computation, place: Place, template: Template, inputs: Values, tags: Mapping[str, str]) -> Json:
    """Ask for the manifest to be applied, or go on waiting for it."""
    node = run.find(place.node_name)
    if node is None:
        node = run.add(place, "Pod", template.name, "Pending", inputs=inputs_field(inputs), progress="0/1")
        refused = no_start_reason(run, place)
        if refused:
            return run.mark(node, "Failed", refused)
    if node["phase"] not in DONE and node["id"] not in run.resources:
        resource = as_map(template.spec["resource"])
        text = substitute(str(resource["manifest"]), lambda tag: tags.get(tag, run.globals.get(tag)))
        run.apply[node["id"]] = (node["id"], str(resource["action"]), manifest_of(text))
    return node


def manifest_of(text: str) -> Json:
    """The manifest of a resource template as an object.

    Raises:
        NodeFailure: the text is neither JSON nor YAML, or no object.
    """
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else _yaml_value(text)
    except ValueError as error:
        raise NodeFailure(f"the manifest cannot be read: {error}") from error
    if not is_map(value):
        raise NodeFailure("the manifest must be one object")
    return value


def _yaml_value(text: str) -> object:
    from tasks.embedded.engine.yaml_text import read_yaml  # noqa: PLC0415 - see there

    return read_yaml(text)


def check_resource(resource: Json, path: str) -> None:
    """Check a resource template before anything starts.

    Raises:
        Refused: the manifest is none, or a flag asks for what is not done here.
    """
    for index, flag in enumerate(as_list(resource.get("flags"))):
        if str(flag).partition("=")[0] not in _FLAGS:
            raise Refused(f"{path}.flags[{index}]", f"'{flag}' is not supported; known: {', '.join(_FLAGS)}")
    if resource.get("setOwnerReference"):
        raise Refused(f"{path}.setOwnerReference", "must be false: what is applied outlives the workflow")
    try:
        manifest = manifest_of(substitute(str(resource["manifest"]), lambda tag: _UNKNOWN))
    except NodeFailure as error:
        raise Refused(f"{path}.manifest", str(error)) from error
    for field in ("apiVersion", "kind"):
        if not manifest.get(field):
            raise Refused(f"{path}.manifest", f"has no {field}")
    if manifest["kind"] not in (*API_VERSIONS, _UNKNOWN):
        raise Refused(
            f"{path}.manifest", f"kind {manifest['kind']} is not known here; known: {', '.join(API_VERSIONS)}"
        )


def end_resource_node(run: Computation, node: Json, facts: ResourceFacts, template: Template) -> None:
    """Write the end of an applied resource into its node."""
    node = run.edit(node["id"])
    if facts.phase == "Failed":
        run.mark(node, "Failed", facts.message or "the manifest was not applied")
        return
    found: list[Json] = []
    for parameter in template.outputs:
        source = as_map(parameter.get("valueFrom"))
        value = facts.outputs.get(parameter["name"])
        if value is None and facts.object is not None:
            value = read_json_path(facts.object, str(source.get("jsonPath", "")))
        if value is None and source.get("default") is not None:
            value = text_of(source["default"])
        if value is None:
            run.mark(node, "Error", f"output parameter '{parameter['name']}': nothing at {source.get('jsonPath')}")
            return
        found.append(output_field(parameter, value))
    if found:
        node["outputs"] = {"parameters": found}
        publish(run, node["outputs"])
    node["progress"] = "1/1"
    run.mark(node, "Succeeded", "")


def json_path_parts(path: str) -> list[str | int]:
    """The parts of a JSONPath like `{.status.conditions[0].type}` (plain members and indices only).

    Raises:
        ValueError: the path has something else in it.
    """
    inner = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    parts: list[str | int] = []
    position = 0
    while position < len(inner):
        found = _PATH_PART.match(inner, position)
        if found is None:
            raise ValueError(f"'{path}' may hold only members and indices, like {{.status.phase}}")
        position = found.end()
        parts.append(int(found[2]) if found[2] is not None else (found[1] or found[3]))
    return parts


def read_json_path(value: Any, path: str) -> str | None:
    """The text at a JSONPath of an object; None where nothing is there."""
    current: object = value
    for part in json_path_parts(path):
        if isinstance(part, int):
            if not is_list(current) or part >= len(current):
                return None
            current = current[part]
        else:
            if not is_map(current) or part not in current:
                return None
            current = current[part]
    return text_of(current)


def run_suspend(run: Computation, place: Place, template: Template, inputs: Values, tags: Mapping[str, str]) -> Json:
    """Start waiting, or end the wait when its time is over."""
    node = run.find(place.node_name)
    if node is None:
        outputs = [dict(item) for item in template.outputs]
        node = run.add(
            place,
            "Suspend",
            template.name,
            "Running",
            inputs=inputs_field(inputs),
            outputs={"parameters": outputs} if outputs else None,
        )
        refused = no_start_reason(run, place)
        if refused:
            return run.mark(node, "Failed", refused)
    text = text_of(as_map(template.spec.get("suspend")).get("duration") or "")
    if node["phase"] in DONE or not text:
        return node
    try:
        until = moment(node["startedAt"]) + seconds_of(
            substitute(text, lambda tag: tags.get(tag, run.globals.get(tag)))
        )
    except ValueError as error:
        raise NodeFailure(f"suspend.duration: {error}") from error
    if run.now < until:
        run.wake(until)
        return node
    if node.get("outputs"):
        run.edit(node["id"])["outputs"] = {"parameters": [_with_default(item) for item in template.outputs]}
    return run.mark(run.nodes[node["id"]], "Succeeded")


def _with_default(parameter: Json) -> Json:
    """An output without a value gets its default, where there is one."""
    default = as_map(parameter.get("valueFrom")).get("default")
    return dict(parameter) if default is None else {"name": parameter["name"], "value": text_of(default)}
