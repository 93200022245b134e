"""What steps and tasks share: the instances of a call, and whether an instance's `when` lets it run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

from tasks.embedded.engine.argo.calls import Instance, ItemsError, TemplateCall, instances
from tasks.embedded.engine.argo.names import NodeFailure, node_id
from tasks.embedded.engine.argo.scope import Boundary, lookup_of, resolve_text
from tasks.embedded.engine.argo.state import Computation
from tasks.embedded.engine.argo.substitution import UnresolvedError, substitute, substitute_all, tags
from tasks.embedded.engine.expr.evaluate import evaluate_when
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import Json


class Calls(Protocol):
    """What DAGs and steps need of the walker."""

    def call(self, boundary: Boundary, call: TemplateCall, node_name: str, item: Mapping[str, str]) -> Json | None:
        """Run one instance of a call, or go on with it; None where it may not start yet."""
        ...

    def hook_done(self, boundary: Boundary | None, node: Json, call: TemplateCall) -> bool:
        """Run the exit hook of a node that is done; whether nothing of it is left to wait for."""
        ...

    def hooks_done(self, boundary: Boundary, node: Json, call: TemplateCall) -> bool:
        """Start the hooks of a node whose expression is true; whether all that started are done."""
        ...


def instances_of(run: Computation, boundary: Boundary, call: TemplateCall, node_name: str) -> tuple[Instance, ...]:
    """The instances of a step or task: one for each item, or just itself.

    Of a fan-out that is ruled out nothing else is resolved: where its list needs that, it has no instances.

    Raises:
        NodeFailure: the list of items cannot be made.
    """
    if call.items is None:
        return (Instance(node_name, node_id(run.plan.name, node_name), {}),)
    source = call.items.source
    if is_ruled_out(run, boundary, call):
        try:
            return instances(run.plan.name, node_name, call.items.kind, source)
        except ItemsError:
            return ()
    if "{{" in source:
        lookup = lookup_of(run, boundary)
        if call.items.kind == "parameter":
            source = resolve_text(source, lookup)
        else:
            source = json.dumps(substitute_all(json.loads(source), lookup))
    try:
        return instances(run.plan.name, node_name, call.items.kind, source)
    except ItemsError as error:
        raise NodeFailure(str(error)) from error


def is_ruled_out(run: Computation, boundary: Boundary, call: TemplateCall) -> bool:
    """Whether the `when` of a step or task is false before anything else of it, its items included, is looked at.

    Raises:
        NodeFailure: the `when` cannot be computed, and no item could change that.
    """
    if not call.when:
        return False
    try:
        text = substitute(call.when, lookup_of(run, boundary))
        unknown = next((tag for tag in tags(text) if tag.partition(".")[0] != "item"), None)
        if unknown is not None:
            raise UnresolvedError(unknown)
        return not evaluate_when(text)
    except (NodeFailure, ExpressionError) as error:
        if call.items is None:
            raise NodeFailure(str(error)) from error
        return False


def skip_reason(run: Computation, boundary: Boundary, call: TemplateCall, item: Mapping[str, str]) -> str:
    """Why an instance is skipped; "" where its `when` is true or absent.

    Raises:
        NodeFailure: the `when` cannot be computed.
    """
    if not call.when:
        return ""
    text = resolve_text(call.when, lookup_of(run, boundary, item))
    try:
        return "" if evaluate_when(text) else f"when '{text}' evaluated false"
    except ExpressionError as error:
        raise NodeFailure(str(error)) from error


def outbound(run: Computation, key: str) -> list[str]:
    """The nodes that whatever follows this node hangs under in the tree: its last ones."""
    node = run.nodes[key]
    match node["type"]:
        case "TaskGroup":
            return [last for child in _own(run, node) for last in outbound(run, child)] or [key]
        case "Retry":
            return _own(run, node)[-1:] or [key]
        case "Steps" | "DAG":
            return [last for end in node.get("outboundNodes", ()) for last in outbound(run, end)] or [key]
        case _:
            return [key]


def _own(run: Computation, node: Json) -> list[str]:
    """The items or attempts of a node: hooks and whatever follows it hang under it too."""
    prefix = node["name"] + "("
    return [child for child in node.get("children", ()) if run.nodes[child]["name"].startswith(prefix)]
