"""What the tags of a template mean while it runs: inputs, globals, and the outputs of steps and tasks before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.embedded.engine.json_values import Json, as_list, as_map, go_json, is_list, is_map, maps, text_of
from tasks.embedded.engine.plan import Call, Template
from tasks.embedded.engine.run import NodeFailure, Place, Run
from tasks.embedded.engine.substitution import Lookup, UnresolvedError, substitute, substitute_strictly

_PLAIN = {
    "id": "id",
    "startedAt": "startedAt",
    "finishedAt": "finishedAt",
    "status": "phase",
    "hostNodeName": "hostNodeName",
}


@dataclass(frozen=True)
class Boundary:
    """A DAG or steps template while it runs: what its calls are resolved against."""

    node_id: str
    node_name: str
    template: Template
    inputs: Mapping[str, str]
    on_exit: bool
    depth: int

    def place(self, call: Call, node_name: str) -> Place:
        """Where one of its calls runs."""
        return Place(
            node_name,
            call.name,
            self.node_id,
            self.node_name,
            self.template,
            on_exit=self.on_exit,
            depth=self.depth + 1,
        )


def input_tags(values: Mapping[str, str]) -> dict[str, str]:
    """Input parameters as tags."""
    tags = {f"inputs.parameters.{name}": value for name, value in values.items()}
    tags["inputs.parameters"] = go_json([{"name": name, "value": value} for name, value in values.items()])
    return tags


def resolve_inputs(run: Run, template: Template, arguments: Mapping[str, str]) -> dict[str, str]:
    """The values of a template's inputs: the argument, else its value, else its default.

    Raises:
        NodeFailure: an input got no value.
    """
    values: dict[str, str] = {}
    for parameter in template.inputs:
        given = arguments.get(parameter.name)
        own = parameter.default if parameter.value is None else parameter.value
        if given is None and own is None:
            raise NodeFailure(f"inputs.parameters.{parameter.name} was not supplied")
        values[parameter.name] = substitute(own or "", run.globals.get) if given is None else given
    return values


def stored_inputs(node: Json) -> dict[str, str]:
    """The inputs that a node was started with."""
    return {str(item["name"]): text_of(item["value"]) for item in maps(as_map(node.get("inputs")).get("parameters"))}


def inputs_field(values: Mapping[str, str]) -> Json | None:
    """Inputs as a node shows them; None where there are none."""
    return {"parameters": [{"name": name, "value": value} for name, value in values.items()]} if values else None


def lookup_of(run: Run, boundary: Boundary, more: Mapping[str, str] | None = None) -> Lookup:
    """What tags mean inside the calls of a boundary.

    Args:
        run: the run.
        boundary: the surrounding template.
        more: tags of one instance (`item`), which win.
    """
    first = more or {}
    prefix = "tasks" if boundary.template.kind == "dag" else "steps"

    def lookup(tag: str) -> str | None:
        for known in (first, boundary.inputs, run.globals):
            if tag in known:
                return known[tag]
        scope, _, rest = tag.partition(".")
        if scope == prefix:
            name, _, field = rest.partition(".")
            return boundary.node_name if (name, field) == ("name", "") else call_value(run, boundary, name, field)
        return None

    return lookup


def resolved(text: str, lookup: Lookup) -> str:
    """The text with all tags replaced.

    Raises:
        NodeFailure: a tag has no value (a skipped step's output without a default, for example).
    """
    try:
        return substitute_strictly(text, lookup)
    except UnresolvedError as error:
        raise NodeFailure(str(error)) from error


def call_node(run: Run, boundary: Boundary, name: str) -> Json | None:
    """The node of a step or task; None where it has not started, or is a fan-out of steps."""
    return run.find(call_node_name(boundary, name))


def call_node_name(boundary: Boundary, name: str) -> str:
    """The full node name of a step or task of a boundary."""
    group = boundary.template.group_of.get(name)
    return f"{boundary.node_name}.{name}" if group is None else f"{boundary.node_name}[{group}].{name}"


def call_value(run: Run, boundary: Boundary, name: str, field: str) -> str | None:
    """The value of `steps.<name>.<field>` or `tasks.<name>.<field>`; None where it has none (yet)."""
    node = call_node(run, boundary, name)
    if node is None or node["type"] == "TaskGroup":
        children = _fan_out(run, boundary, name, node)
        if node is not None and field in _PLAIN:
            return node_value(run, node, field)
        return _aggregate(run, call_node_name(boundary, name), children, field)
    value = node_value(run, node, field)
    if value is None and node["type"] == "Skipped":
        template = run.template_of(node)
        return template.defaults().get(field.removeprefix("outputs.parameters.")) if template else None
    return value


def last_attempt(run: Run, node: Json) -> Json:
    """The last attempt of a retried node; any other node itself."""
    if node["type"] != "Retry":
        return node
    attempts = attempts_of(run, node)
    return attempts[-1] if attempts else node


def attempts_of(run: Run, node: Json) -> list[Json]:
    """The attempts of a Retry node, in order (its exit hook is a child too, but no attempt)."""
    prefix = node["name"] + "("
    children = [run.nodes[key] for key in node.get("children", ())]
    return [child for child in children if child["name"].startswith(prefix)]


def node_value(run: Run, node: Json, field: str) -> str | None:
    """One field of a node as tags name them: `status`, `exitCode`, `outputs.result`, `outputs.parameters.n`, …."""
    node = last_attempt(run, node)
    if field in _PLAIN:
        return node.get(_PLAIN[field]) or None
    outputs = as_map(node.get("outputs"))
    if field == "exitCode":
        return outputs.get("exitCode")
    if field == "outputs.result":
        return outputs.get("result")
    if field.startswith("outputs.parameters."):
        wanted = field.removeprefix("outputs.parameters.")
        for parameter in as_list(outputs.get("parameters")):
            if parameter["name"] == wanted and "value" in parameter:
                return text_of(parameter["value"])
    return None


def _fan_out(run: Run, boundary: Boundary, name: str, group: Json | None) -> list[Json]:
    if group is None:
        index = boundary.template.group_of.get(name)
        group = run.find(f"{boundary.node_name}[{index}]")
    prefix = call_node_name(boundary, name) + "("
    children = [run.nodes[key] for key in (group or {}).get("children", ())]
    return [child for child in children if child["name"].startswith(prefix) and child["type"] != "Skipped"]


def _aggregate(run: Run, name: str, children: list[Json], field: str) -> str | None:
    if not children:
        return None
    known = run.memo.get((name, field))
    if known is None:
        outputs = [as_map(child.get("outputs")) for child in children if child["phase"] == "Succeeded"]
        known = _aggregated(outputs, field)
        if known is not None:
            run.memo[name, field] = known
    return known


def _aggregated(outputs: list[Json], field: str) -> str | None:
    if field == "outputs.result":
        return go_json([_item(str(found["result"])) for found in outputs if found.get("result") is not None])
    values = [
        {item["name"]: text_of(item.get("value", "")) for item in maps(found.get("parameters"))} for found in outputs
    ]
    if field == "outputs.parameters":
        return go_json([found for found in values if found])
    if not field.startswith("outputs.parameters."):
        return None
    wanted = field.removeprefix("outputs.parameters.")
    texts = [found[wanted] for found in values if wanted in found]
    return _list_text(texts) if texts else None


def _item(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _list_text(texts: list[str]) -> str:
    """A JSON list of texts; where every text is itself a JSON list or object, a list of these, as on Argo."""
    values = [_item(text) for text in texts]
    return go_json(values if all(is_map(value) or is_list(value) for value in values) else texts)


def template_outputs(run: Run, boundary: Boundary) -> Json | None:
    """The outputs of a DAG or steps template from those of its steps; None where it has none.

    Raises:
        NodeFailure: an output refers to what was never made and has no default.
    """
    lookup = lookup_of(run, boundary)
    found: list[Json] = []
    for parameter in boundary.template.outputs:
        source = as_map(parameter.get("valueFrom"))
        try:
            value = substitute_strictly(_braced(str(source.get("parameter", ""))), lookup)
        except UnresolvedError as error:
            if source.get("default") is None:
                raise NodeFailure(f"unable to resolve outputs.parameters.{parameter['name']}: {error}") from error
            value = text_of(source["default"])
        found.append(output_field(parameter, value))
    return {"parameters": found} if found else None


def _braced(text: str) -> str:
    """Argo takes the reference with and without braces."""
    return text if "{{" in text else f"{{{{{text}}}}}"


def output_field(parameter: Json, value: str) -> Json:
    """One output parameter as a node shows it."""
    named = {"globalName": parameter["globalName"]} if parameter.get("globalName") else {}
    return {"name": parameter["name"], "value": value, **named}


def publish(run: Run, outputs: object) -> None:
    """Make outputs with a `globalName` known to the whole workflow."""
    for parameter in maps(as_map(outputs).get("parameters")):
        name = parameter.get("globalName")
        if name and "value" in parameter:
            value = text_of(parameter["value"])
            if run.outputs.get(name) != value:
                run.changed = True
            run.outputs[str(name)] = value
            run.globals[f"workflow.outputs.parameters.{name}"] = value
