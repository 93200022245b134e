"""Suspend templates: wait for a time, or until somebody resumes the node."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.embedded.engine.durations import seconds_of
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, as_map, moment, text_of
from tasks.embedded.engine.plan import Template
from tasks.embedded.engine.pod_nodes import no_start_reason
from tasks.embedded.engine.run import DONE, Place, Run
from tasks.embedded.engine.scope import Values, inputs_field
from tasks.embedded.engine.substitution import substitute


def run_suspend(run: Run, place: Place, template: Template, inputs: Values, tags: Mapping[str, str]) -> Json:
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
    """An output that nobody supplied has its default, where there is one."""
    default = as_map(parameter.get("valueFrom")).get("default")
    return dict(parameter) if default is None else {"name": parameter["name"], "value": text_of(default)}
