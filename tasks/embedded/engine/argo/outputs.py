"""Outputs of DAG and steps templates, made from those of their calls; outputs of the whole workflow.

The interpreter knows artifacts by their places, never by content. An artifact with a place is an object with `raw` (its
text) or `plugin` (a key inside the cluster's own folder). Keys are as on Argo's own stores: `<node id>/<name>.tgz` for
a packed artifact, the file's name for another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.embedded.engine.argo.names import NodeFailure
from tasks.embedded.engine.argo.scope import Boundary, call_node, last_attempt, lookup_of
from tasks.embedded.engine.argo.state import Computation
from tasks.embedded.engine.argo.substitution import Lookup, substitute, substitute_strictly
from tasks.embedded.engine.expr.evaluate import Environment, evaluate
from tasks.embedded.engine.expr.go_values import plain
from tasks.embedded.engine.expr.parser import parse
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import Json, as_map, is_map, maps, text_of

STORE = "primus-flows.io/folder"
"""The name of the plugin that stands for the cluster's own folder, in the form of Argo's artifact plugins."""
Find = Callable[[str], Json | None]
"""From `steps.a.outputs.artifacts.x` to the artifact; None where there is none."""


def artifact_location(artifact: Json, key: str) -> Json:
    """The artifact at a key of the cluster's folder."""
    return {**artifact, "plugin": {"name": STORE, "configuration": "", "key": key}}


def has_place(artifact: Json) -> bool:
    """Whether its content can be found."""
    return "raw" in artifact or "plugin" in artifact


def artifact_of(run: Computation, boundary: Boundary | None, path: str) -> Json | None:
    """The artifact that a path names inside a boundary; None where it does not exist (yet)."""
    if path.startswith("workflow.outputs.artifacts."):
        return run.artifacts.get(path.removeprefix("workflow.outputs.artifacts."))
    if boundary is None:
        return None
    if path.startswith("inputs.artifacts."):
        return boundary.artifacts.get(path.removeprefix("inputs.artifacts."))
    scope, _, rest = path.partition(".")
    name, _, what = rest.partition(".")
    if scope != boundary.prefix or not what.startswith("outputs.artifacts."):
        return None
    node = call_node(run, boundary, name)
    if node is None:
        return None
    wanted = what.removeprefix("outputs.artifacts.")
    outputs = maps(as_map(last_attempt(run, node).get("outputs")).get("artifacts"))
    return next((item for item in outputs if item["name"] == wanted), None)


def resolve_artifact(artifact: Json, find: Find, lookup: Lookup) -> Json | None:
    """The artifact with its place instead of `from` or `fromExpression`; None where there is none.

    Raises:
        NodeFailure: its expression or sub-path cannot be computed.
    """
    if artifact.get("fromExpression"):
        found = _computed_place(str(artifact["fromExpression"]), find, lookup)
    elif artifact.get("from"):
        found = find(bare(str(artifact["from"])))
    else:
        text = substitute(str(as_map(artifact.get("raw")).get("data", "")), lookup)
        return {**artifact, "raw": {"data": text}} if "raw" in artifact else None
    if found is None or not has_place(found):
        return None
    below = substitute_strictly(str(artifact.get("subPath") or ""), lookup)
    if not below:
        return found
    if "raw" in found:
        raise NodeFailure("a raw artifact has no sub-path")
    return artifact_location(found, f"{found['plugin']['key']}/{below.strip('/')}")


def bare(text: str) -> str:
    """A reference without its braces."""
    return text.strip().removeprefix("{{").removesuffix("}}").strip()


def _computed_place(expression: str, find: Find, lookup: Lookup) -> Json | None:
    def paths(path: str) -> Any:
        found = find(path)
        return lookup(path) if found is None else found

    try:
        value = evaluate(parse(expression, "expression"), Environment({}, paths))
    except ExpressionError as error:
        raise NodeFailure(f"failed to evaluate expression '{expression}': {error}") from error
    return value if is_map(value) else None


def argument_artifacts(
    run: Computation, boundary: Boundary | None, artifacts: tuple[Json, ...], lookup: Lookup
) -> dict[str, Json]:
    """Arguments that are artifacts, by name, each with its place; optional ones without a place are left out.

    Raises:
        NodeFailure: a required one was never made.
    """
    found: dict[str, Json] = {}
    for artifact in artifacts:
        one = resolve_artifact(artifact, lambda path: artifact_of(run, boundary, path), lookup)
        if one is not None:
            found[artifact["name"]] = {key: value for key, value in one.items() if key != "globalName"} | {
                "name": artifact["name"]
            }
        elif not artifact.get("optional"):
            what = artifact.get("from") or artifact.get("fromExpression") or artifact["name"]
            raise NodeFailure(f"unable to resolve references: Unable to resolve: {what}")
    return found


def template_outputs(run: Computation, boundary: Boundary) -> Json | None:
    """The outputs of a DAG or steps template; None where it has none.

    Raises:
        NodeFailure: an output refers to what was never made and has no default.
    """
    lookup = lookup_of(run, boundary)
    parameters = [output_field(item, _value(item, lookup)) for item in boundary.template.outputs]
    artifacts = [_artifact(run, boundary, item) for item in boundary.template.artifact_outputs]
    found: Json = {"parameters": parameters} if parameters else {}
    made = [item for item in artifacts if item is not None]
    return found | ({"artifacts": made} if made else {}) or None


def _value(parameter: Json, lookup: Lookup) -> str:
    source = as_map(parameter.get("valueFrom"))
    try:
        if source.get("expression"):
            return _compute(str(source["expression"]), lookup)
        return substitute_strictly(_braced(str(source.get("parameter", ""))), lookup)
    except (NodeFailure, ExpressionError) as error:
        if source.get("default") is None:
            raise NodeFailure(f"unable to resolve outputs.parameters.{parameter['name']}: {error}") from error
        return text_of(source["default"])


def _compute(expression: str, lookup: Lookup) -> str:
    value = evaluate(parse(expression, "expression"), Environment({}, lookup))
    if value is None:
        raise ExpressionError(f"failed to evaluate expression '{expression}'")
    return plain(value)  # as Argo does with an output's expression


def _braced(text: str) -> str:
    """Argo takes the reference with and without braces."""
    return text if "{{" in text else f"{{{{{text}}}}}"


def _artifact(run: Computation, boundary: Boundary, output: Json) -> Json | None:
    found = resolve_artifact(output, lambda path: artifact_of(run, boundary, path), lookup_of(run, boundary))
    if found is None:
        if output.get("optional"):
            return None
        what = output.get("from") or output.get("fromExpression")
        raise NodeFailure(f"unable to resolve outputs from scope: Unable to resolve: {what}")
    named = {"globalName": output["globalName"]} if output.get("globalName") else {}
    return {key: value for key, value in found.items() if key != "globalName"} | {"name": output["name"], **named}


def output_field(parameter: Json, value: str) -> Json:
    """One output parameter as a node shows it."""
    named = {"globalName": parameter["globalName"]} if parameter.get("globalName") else {}
    return {"name": parameter["name"], "value": value, **named}


def publish(run: Computation, outputs: object) -> None:
    """Make outputs with a `globalName` known to the whole workflow."""
    for parameter in maps(as_map(outputs).get("parameters")):
        name = parameter.get("globalName")
        if name and "value" in parameter:
            value = text_of(parameter["value"])
            if run.outputs.get(name) != value:
                run.changed = True
            run.outputs[str(name)] = value
            run.globals[f"workflow.outputs.parameters.{name}"] = value
    for artifact in maps(as_map(outputs).get("artifacts")):
        name = artifact.get("globalName")
        if name:
            kept = {key: value for key, value in artifact.items() if key not in ("globalName", "path")}
            found = {**kept, "name": str(name)}
            if run.artifacts.get(name) != found:
                run.changed = True
            run.artifacts[str(name)] = found
