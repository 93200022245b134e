"""Artifacts as the interpreter sees them: names of places, never content.

An artifact with a place is an object with `raw` (its text) or `plugin` (a key inside the cluster's own folder). The
keys are as on Argo's own stores: `<node id>/<name>.tgz` for what was packed, the file's name for what was not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.embedded.engine.evaluation import Environment, evaluate
from tasks.embedded.engine.expression_tree import ExpressionError
from tasks.embedded.engine.expressions import parse
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, as_map, is_map, maps
from tasks.embedded.engine.run import Run
from tasks.embedded.engine.scope import Boundary, call_node, last_attempt
from tasks.embedded.engine.substitution import Lookup, substitute, substitute_strictly

STORE = "primus-flows.io/folder"
"""The name of the plugin that stands for the cluster's own folder, in the form of Argo's artifact plugins."""
Find = Callable[[str], Json | None]
"""From `steps.a.outputs.artifacts.x` to the artifact; None where there is none."""


def stored(artifact: Json, key: str) -> Json:
    """The artifact at a key of the cluster's folder."""
    return {**artifact, "plugin": {"name": STORE, "configuration": "", "key": key}}


def has_place(artifact: Json) -> bool:
    """Whether its content can be found."""
    return "raw" in artifact or "plugin" in artifact


def artifact_of(run: Run, boundary: Boundary | None, path: str) -> Json | None:
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
        found = _computed(str(artifact["fromExpression"]), find, lookup)
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
    return stored(found, f"{found['plugin']['key']}/{below.strip('/')}")


def bare(text: str) -> str:
    """A reference without its braces."""
    return text.strip().removeprefix("{{").removesuffix("}}").strip()


def _computed(expression: str, find: Find, lookup: Lookup) -> Json | None:
    def paths(path: str) -> Any:
        found = find(path)
        return lookup(path) if found is None else found

    try:
        value = evaluate(parse(expression, "expression"), Environment({}, paths))
    except ExpressionError as error:
        raise NodeFailure(f"failed to evaluate expression '{expression}': {error}") from error
    return value if is_map(value) else None


def argument_artifacts(
    run: Run, boundary: Boundary | None, artifacts: tuple[Json, ...], lookup: Lookup
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
