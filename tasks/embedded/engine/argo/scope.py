"""What the tags of a template mean while it runs: inputs, globals, and what the steps and tasks before it left.

The outputs of a fan-out's items stand together in lists, as Argo makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.embedded.engine.argo.calls import TemplateCall
from tasks.embedded.engine.argo.names import NodeFailure, display_name
from tasks.embedded.engine.argo.plan import Template
from tasks.embedded.engine.argo.state import Computation, Place
from tasks.embedded.engine.argo.substitution import Lookup, substitute, substitute_strictly
from tasks.embedded.engine.json_values import (
    Json,
    as_list,
    as_map,
    go_json,
    is_list,
    is_map,
    maps,
    text_of,
    whole_seconds,
    why_no_json,
)

_PLAIN = {"id": "id", "status": "phase", "hostNodeName": "hostNodeName"}
_STAMPS = ("startedAt", "finishedAt")

_OWN = ("name", "path", "mode", "recurseMode")
"""What an input artifact keeps of its own; all the rest comes from the argument."""


@dataclass(frozen=True)
class Values:
    """What a template is given, or was started with."""

    parameters: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """None: the argument names an output that was never made, so it counts as not given."""
    artifacts: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Name to artifact, its place resolved."""


@dataclass(frozen=True)
class Boundary:
    """A DAG or steps template while it runs: what its calls are resolved against."""

    node_id: str
    node_name: str
    template: Template
    inputs: Mapping[str, str]
    artifacts: Mapping[str, Json]
    on_exit: bool
    depth: int

    @property
    def prefix(self) -> str:
        """How tags name its calls."""
        return "tasks" if self.template.kind == "dag" else "steps"

    def place(self, call: TemplateCall, node_name: str) -> Place:
        """Where one of its calls runs."""
        return Place(
            node_name,
            call.name,
            self.node_id,
            self.node_name,
            self.template,
            on_exit=self.on_exit,
            depth=self.depth + 1,
            label=display_name(node_name, self.node_name),
        )


def input_tags(values: Values) -> dict[str, str]:
    """Input parameters as tags."""
    given = {name: value for name, value in values.parameters.items() if value is not None}
    tags = {f"inputs.parameters.{name}": value for name, value in given.items()}
    tags["inputs.parameters"] = go_json([{"name": name, "value": value} for name, value in given.items()])
    return tags


def path_tags(template: Template) -> dict[str, str]:
    """Where a pod's files lie: `inputs.artifacts.n.path`, `outputs.artifacts.n.path`, `outputs.parameters.n.path`."""
    found = {f"inputs.artifacts.{item['name']}.path": item.get("path") for item in template.artifact_inputs}
    found |= {f"outputs.artifacts.{item['name']}.path": item.get("path") for item in template.artifact_outputs}
    for item in template.outputs:
        found[f"outputs.parameters.{item['name']}.path"] = as_map(item.get("valueFrom")).get("path")
    return {tag: str(path) for tag, path in found.items() if path}


def resolve_inputs(run: Computation, template: Template, given: Values) -> Values:
    """The values of a template's inputs: the argument, else its value, else its default.

    Raises:
        NodeFailure: an input got no value.
    """
    values: dict[str, str | None] = {}
    for parameter in template.inputs:
        argument = given.parameters.get(parameter.name)
        own = parameter.default if parameter.value is None else parameter.value
        if argument is None and own is None:
            absent = parameter.name in given.parameters
            why = "argument references an absent optional (skipped/omitted node output with no default)"
            raise NodeFailure(f"inputs.parameters.{parameter.name}" + (f": {why}" if absent else " was not supplied"))
        values[parameter.name] = substitute(own or "", run.globals.get) if argument is None else argument
    artifacts: dict[str, Json] = {}
    for artifact in template.artifact_inputs:
        found = _input_artifact(run, artifact, given.artifacts.get(artifact["name"]))
        if found is not None:
            artifacts[artifact["name"]] = found
    return Values(values, artifacts)


def _input_artifact(run: Computation, own: Json, given: Json | None) -> Json | None:
    if given is None and "raw" in own:
        text = substitute(str(as_map(own["raw"]).get("data", "")), run.globals.get)
        return {**own, "raw": {"data": text}}
    if given is None:
        if own.get("optional"):
            return None
        raise NodeFailure(f"inputs.artifacts.{own['name']} was not supplied")
    kept = {name: own[name] for name in _OWN if name in own}
    return {key: value for key, value in given.items() if key not in ("mode", "recurseMode")} | kept


def stored_inputs(node: Json) -> Values:
    """The inputs that a node was started with."""
    inputs = as_map(node.get("inputs"))
    parameters = {str(item["name"]): text_of(item["value"]) for item in maps(inputs.get("parameters"))}
    return Values(parameters, {str(item["name"]): item for item in maps(inputs.get("artifacts"))})


def inputs_field(values: Values) -> Json | None:
    """Inputs as a node shows them; None where there are none."""
    found: Json = {}
    if values.parameters:
        found["parameters"] = [{"name": name, "value": value} for name, value in values.parameters.items()]
    if values.artifacts:
        found["artifacts"] = list(values.artifacts.values())
    return found or None


def lookup_of(run: Computation, boundary: Boundary, more: Mapping[str, str] | None = None) -> Lookup:
    """The values of tags inside the calls of a boundary; those in `more` (`item`) come first."""
    first = more or {}

    def lookup(tag: str) -> str | None:
        for known in (first, boundary.inputs, run.globals):
            if tag in known:
                return known[tag]
        scope, _, rest = tag.partition(".")
        if scope == boundary.prefix:
            name, _, what = rest.partition(".")
            return call_value(run, boundary, name, what)
        return None

    return lookup


def resolve_text(text: str, lookup: Lookup) -> str:
    """The text with all tags replaced.

    Raises:
        NodeFailure: a tag has no value (a skipped step's output without a default, for example).
    """
    return substitute_strictly(text, lookup)


def argument_values(
    run: Computation, boundary: Boundary, arguments: tuple[tuple[str, str], ...], lookup: Lookup
) -> Json:
    """Arguments with their tags replaced; None where one is nothing but the tag of an output that was never made.

    Raises:
        NodeFailure: a tag has no value.
    """
    return {name: None if _is_absent(run, boundary, text) else resolve_text(text, lookup) for name, text in arguments}


def _is_absent(run: Computation, boundary: Boundary, text: str) -> bool:
    if not (text.startswith("{{") and text.endswith("}}")) or "{{" in text[2:]:
        return False
    scope, _, rest = text[2:-2].strip().partition(".")
    name, _, what = rest.partition(".")
    if scope != boundary.prefix or not what.startswith("outputs."):
        return False
    node = call_node(run, boundary, name)
    return node is not None and node["type"] == "Skipped" and call_value(run, boundary, name, what) is None


def call_node(run: Computation, boundary: Boundary, name: str) -> Json | None:
    """The node of a step or task; None where it has not started, or is a fan-out of steps."""
    return run.find(call_node_name(boundary, name))


def call_node_name(boundary: Boundary, name: str) -> str:
    """The full node name of a step or task of a boundary."""
    group = boundary.template.group_of.get(name)
    return f"{boundary.node_name}.{name}" if group is None else f"{boundary.node_name}[{group}].{name}"


def call_value(run: Computation, boundary: Boundary, name: str, what: str) -> str | None:
    """The value of `steps.<name>.<what>` or `tasks.<name>.<what>`; None where it has none (yet)."""
    node = call_node(run, boundary, name)
    if node is None or node["type"] == "TaskGroup":
        if node is not None and (what in _PLAIN or what in _STAMPS):
            return node_value(run, node, what)
        return _aggregate(run, call_node_name(boundary, name), _fan_out(run, boundary, name, node), what)
    value = node_value(run, node, what)
    if value is None and node["type"] == "Skipped":
        template = run.template_of(node)
        return template.defaults().get(what.removeprefix("outputs.parameters.")) if template else None
    return value


def last_attempt(run: Computation, node: Json) -> Json:
    """The last attempt of a retried node; any other node itself."""
    if node["type"] != "Retry":
        return node
    attempts = attempts_of(run, node)
    return attempts[-1] if attempts else node


def attempts_of(run: Computation, node: Json) -> list[Json]:
    """The attempts of a Retry node, in order (its exit hook is a child too, but no attempt)."""
    prefix = node["name"] + "("
    children = [run.nodes[key] for key in node.get("children", ())]
    return [child for child in children if child["name"].startswith(prefix)]


def node_value(run: Computation, node: Json, what: str) -> str | None:
    """One field of a node as tags name them: `status`, `exitCode`, `outputs.result`, `outputs.parameters.n`, …."""
    node = last_attempt(run, node)
    if what in _STAMPS:
        return whole_seconds(node[what]) if node.get(what) else None
    if what in _PLAIN:
        return node.get(_PLAIN[what]) or None
    outputs = as_map(node.get("outputs"))
    if what == "exitCode":
        return outputs.get("exitCode")
    if what == "outputs.result":
        return outputs.get("result")
    if what.startswith("outputs.parameters."):
        wanted = what.removeprefix("outputs.parameters.")
        for parameter in as_list(outputs.get("parameters")):
            if parameter["name"] == wanted and "value" in parameter:
                return text_of(parameter["value"])
    return None


def _fan_out(run: Computation, boundary: Boundary, name: str, group: Json | None) -> list[Json]:
    if group is None:
        index = boundary.template.group_of.get(name)
        group = run.find(f"{boundary.node_name}[{index}]")
    prefix = call_node_name(boundary, name) + "("
    children = [run.nodes[key] for key in (group or {}).get("children", ())]
    return [child for child in children if child["name"].startswith(prefix) and child["type"] != "Skipped"]


def _aggregate(run: Computation, name: str, children: list[Json], what: str) -> str | None:
    if not children:
        return None
    known = run.memo.get((name, what))
    if known is None:
        outputs = [as_map(child.get("outputs")) for child in children if child["phase"] == "Succeeded"]
        known = aggregate_outputs(outputs, what)
        if known is not None:
            run.memo[name, what] = known
    return known


def aggregate_outputs(outputs: list[Json], what: str) -> str | None:
    """`outputs.result`, `outputs.parameters` or `outputs.parameters.n` of the items that succeeded; None for others.

    Raises:
        NodeFailure: a result is no JSON, which Argo cannot put into a list.
    """
    if what == "outputs.result":
        return go_json([_parsed(str(found["result"])) for found in outputs if found.get("result") is not None])
    values = [
        {item["name"]: text_of(item.get("value", "")) for item in maps(found.get("parameters"))} for found in outputs
    ]
    if what == "outputs.parameters":
        return go_json([found for found in values if found])
    if not what.startswith("outputs.parameters."):
        return None
    wanted = what.removeprefix("outputs.parameters.")
    texts = [found[wanted] for found in values if wanted in found]
    return _list_text(texts) if texts else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise NodeFailure(why_no_json(text)) from error


def _item(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _list_text(texts: list[str]) -> str:
    """A JSON list of texts; where every text is itself a JSON list or object, a list of these, as on Argo."""
    values = [_item(text) for text in texts]
    return go_json(values if all(is_map(value) or is_list(value) for value in values) else texts)
