"""The outputs of DAG and steps templates, made from those of their calls; outputs that the whole workflow knows."""

from __future__ import annotations

from typing import Any

from tasks.embedded.engine.artifact_places import artifact_of, resolve_artifact
from tasks.embedded.engine.evaluation import Environment, evaluate
from tasks.embedded.engine.expression_tree import ExpressionError
from tasks.embedded.engine.expressions import parse
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, as_map, is_list, is_map, maps, text_of
from tasks.embedded.engine.run import Run
from tasks.embedded.engine.scope import Boundary, lookup_of
from tasks.embedded.engine.substitution import Lookup, substitute_strictly


def template_outputs(run: Run, boundary: Boundary) -> Json | None:
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
            return _computed(str(source["expression"]), lookup)
        return substitute_strictly(_braced(str(source.get("parameter", ""))), lookup)
    except (NodeFailure, ExpressionError) as error:
        if source.get("default") is None:
            raise NodeFailure(f"unable to resolve outputs.parameters.{parameter['name']}: {error}") from error
        return text_of(source["default"])


def _computed(expression: str, lookup: Lookup) -> str:
    value = evaluate(parse(expression, "expression"), Environment({}, lookup))
    if value is None:
        raise ExpressionError(f"failed to evaluate expression '{expression}'")
    return _printed(value)


def _printed(value: Any) -> str:
    """A value as Go's `%v` prints it, which is what Argo does with an output's expression."""
    if is_list(value):
        return f"[{' '.join(_printed(item) for item in value)}]"
    if is_map(value):
        return f"map[{' '.join(f'{key}:{_printed(value[key])}' for key in sorted(value))}]"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    return "<nil>" if value is None else text_of(value)


def _braced(text: str) -> str:
    """Argo takes the reference with and without braces."""
    return text if "{{" in text else f"{{{{{text}}}}}"


def _artifact(run: Run, boundary: Boundary, output: Json) -> Json | None:
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
    for artifact in maps(as_map(outputs).get("artifacts")):
        name = artifact.get("globalName")
        if name:
            kept = {key: value for key, value in artifact.items() if key not in ("globalName", "path")}
            found = {**kept, "name": str(name)}
            if run.artifacts.get(name) != found:
                run.changed = True
            run.artifacts[str(name)] = found
