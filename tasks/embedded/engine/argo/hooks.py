"""Lifecycle hooks: templates that run beside a node as soon as an expression is true, or when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tasks.embedded.engine.argo.calls import EXIT, Hook
from tasks.embedded.engine.argo.names import NodeFailure, exit_node_name
from tasks.embedded.engine.argo.outputs import argument_artifacts
from tasks.embedded.engine.argo.scope import Boundary, Values, argument_values, last_attempt, lookup_of
from tasks.embedded.engine.argo.state import COMPLETED, DONE, Computation, Place
from tasks.embedded.engine.argo.substitution import Lookup, substitute
from tasks.embedded.engine.expr.evaluate import evaluate_condition
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import Json, as_map, maps


class Templates(Protocol):
    """What hooks need of the walker."""

    def template(self, place: Place, name: str, given: Values) -> Json | None:
        """Run a template, or go on with it; None where it may not start yet."""
        ...


def hook_node_name(parent_name: str, hook: str) -> str:
    """The name of the node of a hook with an expression."""
    return f"{parent_name}.hooks.{hook}"


def hooks_done(
    run: Computation, templates: Templates, boundary: Boundary | None, node: Json, call: str, hooks: tuple[Hook, ...]
) -> bool:
    """Start the hooks whose expression is true now; whether all that ever started are done.

    The hooks belong to `node`, which ran the step or task `call` ("" for the workflow) inside `boundary` (None for the
    workflow's own hooks).

    Raises:
        NodeFailure: an expression cannot be computed, or a hook cannot start.
    """
    done = True
    for hook in hooks:
        place = _place(boundary, hook_node_name(node["name"], hook.name), on_exit=False)
        if run.find(place.node_name) is None and not _is_due(run, boundary, node, call, hook):
            continue
        given = _values(run, boundary, node, call, hook) if run.find(place.node_name) is None else Values()
        started = templates.template(place, hook.template, given)
        if started is not None:
            run.link(node["id"], started["id"])
        done = done and started is not None and started["phase"] in DONE
    return done


def _is_due(run: Computation, boundary: Boundary | None, node: Json, call: str, hook: Hook) -> bool:
    """Whether the expression is true; a step's own status is that of now."""
    lookup: Lookup = run.globals.get
    if boundary is not None:
        lookup = lookup_of(run, boundary, {f"{boundary.prefix}.{call}.status": node["phase"]})
    try:
        return evaluate_condition(hook.expression, {}, lookup)
    except ExpressionError as error:
        raise NodeFailure(f"hooks.{hook.name}.expression: {error}") from error


def exit_hook_done(
    run: Computation, templates: Templates, boundary: Boundary | None, node: Json, call: str, hook: Hook
) -> bool:
    """Run the exit hook of a node that is done; whether nothing of it is left to wait for."""
    if node["phase"] not in COMPLETED:
        return True
    place = _place(boundary, exit_node_name(node["name"]), on_exit=True)
    existing = run.find(place.node_name)
    if existing["phase"] in DONE if existing is not None else run.shutdown == "Terminate":
        return True
    try:
        if existing is None and hook.expression and not _is_due(run, boundary, node, call, hook):
            return True
        given = _values(run, boundary, node, call, hook) if existing is None else Values()
        started = templates.template(place, hook.template, given)
    except NodeFailure as error:
        started = run.add(place, "Skipped", hook.template, "Error", message=str(error))
    if started is None:
        return False
    if boundary is not None:
        run.link(node["id"], started["id"])
    return started["phase"] in DONE


def _place(boundary: Boundary | None, name: str, *, on_exit: bool) -> Place:
    if boundary is None:
        return Place(name, on_exit=on_exit, hooked=True)
    return Place(
        name,
        "",
        boundary.node_id,
        boundary.node_name,
        boundary.template,
        on_exit=on_exit or boundary.on_exit,
        hooked=True,
        depth=boundary.depth + 1,
    )


def _values(run: Computation, boundary: Boundary | None, node: Json, call: str, hook: Hook) -> Values:
    """A hook's arguments. An exit hook without any gets the workflow's; it may name its own step's outputs."""
    common: Mapping[str, str | None] = run.plan.arguments if hook.name == EXIT and not hook.arguments else {}
    if boundary is None:
        own = {name: substitute(value, run.globals.get) for name, value in hook.arguments}
        return Values({**common, **own}, argument_artifacts(run, None, hook.artifacts, run.globals.get))
    outputs = as_map(last_attempt(run, node).get("outputs"))
    texts = {item["name"]: str(item["value"]) for item in maps(outputs.get("parameters")) if "value" in item}
    # Seen as the step's own outputs, and as `outputs.parameters.n`, which Argo replaces while it reads the hook.
    more = {f"outputs.parameters.{name}": value for name, value in texts.items()}
    more |= {f"{boundary.prefix}.{call}.outputs.parameters.{name}": value for name, value in texts.items()}
    lookup = lookup_of(run, boundary, more)
    parameters = argument_values(run, boundary, hook.arguments, lookup)
    return Values({**common, **parameters}, argument_artifacts(run, boundary, hook.artifacts, lookup))
