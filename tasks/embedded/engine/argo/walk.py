"""The core of the interpreter: running a template of any type at a place of the tree, with retries and exit hooks."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.embedded.engine.argo.calls import TemplateCall
from tasks.embedded.engine.argo.hooks import exit_hook_done, hooks_done
from tasks.embedded.engine.argo.names import NodeFailure
from tasks.embedded.engine.argo.outputs import argument_artifacts
from tasks.embedded.engine.argo.plan import Template
from tasks.embedded.engine.argo.pods import Attempt, run_pod
from tasks.embedded.engine.argo.resources import run_resource, run_suspend
from tasks.embedded.engine.argo.retries import DelayedAttempt, RetryEnd, after_attempt, retry_tags
from tasks.embedded.engine.argo.scope import (
    Boundary,
    Values,
    argument_values,
    attempts_of,
    input_tags,
    inputs_field,
    lookup_of,
    path_tags,
    resolve_inputs,
    stored_inputs,
)
from tasks.embedded.engine.argo.state import DONE, Computation, Place
from tasks.embedded.engine.argo.steps_and_dags import run_dag, run_steps
from tasks.embedded.engine.json_values import Json, as_map

MAX_DEPTH = 60
"""How deep templates may call each other: a recursion without an end stops here (Argo stops at 100). Ten Python frames
a level stay well below the interpreter's own limit of 1,000."""


class Walker:
    """Walks the tree once. DAGs and steps call back into it for their own calls."""

    def __init__(self, run: Computation) -> None:
        self.run = run

    def template(self, place: Place, name: str, given: Values) -> Json | None:
        """Run the template `name`, or go on with it; `given` has the values of its inputs, which only its start reads.

        Returns:
            Its node; None where `parallelism` does not let it start yet.

        Raises:
            NodeFailure: it cannot start.
        """
        run = self.run
        node = run.find(place.node_name)
        if node is not None and (node["phase"] in DONE or run.idle(node)):
            return node
        if place.depth > MAX_DEPTH:
            raise NodeFailure(f"Maximum recursion depth exceeded: more than {MAX_DEPTH} templates inside each other")
        template = run.plan.templates[name]
        if node is None and self._is_blocked(place):
            return None
        inputs = resolve_inputs(run, template, given) if node is None else stored_inputs(node)
        if template.retry is not None:
            return self._retry(place, template, node, inputs)
        return self._body(place, template, inputs, None)

    def _is_blocked(self, place: Place) -> bool:
        run = self.run
        if not run.plan.limits:
            return False
        if run.plan.parallelism is not None and run.active_pods >= run.plan.parallelism:
            return True
        limit = place.boundary.parallelism if place.boundary is not None else None
        return limit is not None and run.active_children.get(place.boundary_id, 0) >= limit

    def _retry(self, place: Place, template: Template, node: Json | None, inputs: Values) -> Json:
        run = self.run
        if node is None:
            node = run.add(place, "Retry", template.name, "Running", inputs=inputs_field(inputs))
        key = node["id"]
        while True:
            attempts = attempts_of(run, run.nodes[key])
            deadline = None
            if attempts and attempts[-1]["phase"] in DONE:
                tags = input_tags(inputs) | retry_tags(run, attempts)
                match after_attempt(
                    run,
                    run.nodes[key],
                    template.retry or {},
                    lambda tag, tags=tags: tags.get(tag, run.globals.get(tag)),
                ):
                    case RetryEnd(phase, message):
                        return self._settle(run.nodes[key], attempts[-1], phase, message)
                    case DelayedAttempt(until, message):
                        run.wake(until)
                        return run.mark(run.nodes[key], "Running", message)
                    case again:
                        deadline = again.deadline
                        run.mark(run.nodes[key], "Running", "")
            child = self._attempt(place, template, key, inputs, deadline)
            if child is None or child["phase"] not in DONE:
                return run.nodes[key]

    def _settle(self, node: Json, last: Json, phase: str, message: str | None) -> Json:
        if last.get("outputs"):
            self.run.edit(node["id"])["outputs"] = last["outputs"]
        return self.run.mark(self.run.nodes[node["id"]], phase, message)

    def _attempt(
        self, place: Place, template: Template, key: str, inputs: Values, deadline: float | None
    ) -> Json | None:
        run = self.run
        attempts = attempts_of(run, run.nodes[key])
        running = bool(attempts) and attempts[-1]["phase"] not in DONE
        number = len(attempts) - 1 if running else len(attempts)
        again = place.attempt(f"{place.node_name}({number})")
        if not running and attempts and run.plan.parallelism is not None and run.active_pods >= run.plan.parallelism:
            return None
        before = attempts[:number]
        spread = "nodeAntiAffinity" in as_map((template.retry or {}).get("affinity"))
        avoid = tuple(dict.fromkeys(a["hostNodeName"] for a in before if a.get("hostNodeName"))) if spread else ()
        try:
            child = self._body(again, template, inputs, Attempt(retry_tags(run, attempts), deadline, avoid))
        except NodeFailure as error:
            child = run.find(again.node_name)
            child = (
                run.add(again, "Skipped", template.name, "Error", message=str(error))
                if child is None
                else run.mark(child, "Error", str(error))
            )
        run.link(key, child["id"])
        return child

    def _body(self, place: Place, template: Template, inputs: Values, attempt: Attempt | None) -> Json:
        run = self.run
        tags = input_tags(inputs) | _own_tags(place)
        match template.kind:
            case "dag" | "steps":
                return self._inner(place, template, inputs, tags | dict(attempt.tags if attempt else {}))
            case "suspend":
                return run_suspend(run, place, template, inputs, tags)
            case "container" | "script" | "resource":
                pod = run.pod_of({"name": place.node_name, "templateName": template.name})
                given = attempt or Attempt({})
                tags = {**tags, **path_tags(template), "pod.name": pod, **given.tags}
                if template.kind == "resource":
                    return run_resource(run, place, template, inputs, tags)
                return run_pod(run, place, template, inputs, Attempt(tags, given.deadline, given.avoid_nodes))

    def _inner(self, place: Place, template: Template, inputs: Values, tags: dict[str, str]) -> Json:
        run = self.run
        node = run.find(place.node_name)
        if node is None:
            kind = "DAG" if template.kind == "dag" else "Steps"
            node = run.add(place, kind, template.name, "Running", inputs=inputs_field(inputs))
        if node["phase"] not in DONE:
            boundary = Boundary(
                node["id"], place.node_name, template, tags, inputs.artifacts, place.on_exit, place.depth
            )
            (run_dag if template.kind == "dag" else run_steps)(run, boundary, self)
        return run.nodes[node["id"]]

    def call(self, boundary: Boundary, call: TemplateCall, node_name: str, item: Mapping[str, str]) -> Json | None:
        """Run one instance of a step or task whose `when` is true.

        Raises:
            NodeFailure: it cannot start.
        """
        place = boundary.place(call, node_name)
        given = Values()
        if self.run.find(node_name) is None:
            if self._is_blocked(place):
                return None
            lookup = lookup_of(self.run, boundary, item)
            given = Values(
                argument_values(self.run, boundary, call.arguments, lookup),
                argument_artifacts(self.run, boundary, call.artifacts, lookup),
            )
        return self.template(place, call.template, given)

    def hook_done(self, boundary: Boundary | None, node: Json, call: TemplateCall) -> bool:
        """Run the exit hook of a node that is done; whether nothing of it is left to wait for."""
        return call.hook is None or exit_hook_done(self.run, self, boundary, node, call.name, call.hook)

    def hooks_done(self, boundary: Boundary, node: Json, call: TemplateCall) -> bool:
        """Start the hooks of a node whose expression is true; whether all that started are done.

        Raises:
            NodeFailure: an expression cannot be computed, or a hook cannot start.
        """
        return hooks_done(self.run, self, boundary, node, call.name, call.hooks)


def _own_tags(place: Place) -> dict[str, str]:
    """What a template knows of the place where it runs: its node's name, and the step or task that called it."""
    found = {"node.name": place.node_name}
    if place.boundary is not None and place.label:
        found[f"{'tasks' if place.boundary.kind == 'dag' else 'steps'}.name"] = place.label
    return found
