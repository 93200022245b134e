"""Nodes that are pods: starting them, and reading what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tasks.embedded.engine.artifact_places import stored
from tasks.embedded.engine.durations import seconds_of
from tasks.embedded.engine.facts import PodFacts
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, as_map, moment, text_of
from tasks.embedded.engine.outputs import output_field, publish
from tasks.embedded.engine.plan import Template
from tasks.embedded.engine.pod_manifest import Attempt, pod_manifest
from tasks.embedded.engine.run import DONE, Place, Run
from tasks.embedded.engine.scope import Values, inputs_field
from tasks.embedded.engine.substitution import substitute

NOT_LOADED = "ArtifactNotLoaded"
"""Reason of a container's end that never began: an input artifact could not be laid out."""
OVERDUE = "Step exceeded its deadline"
_OVERDUE_POD = "DeadlineExceeded"
"""Reason of a pod that was ended for its `activeDeadlineSeconds`: its node tells no exit code."""


def run_pod(run: Run, place: Place, template: Template, inputs: Values, attempt: Attempt) -> Json:
    """Start the pod of a container or script template, or go on waiting for it."""
    node = run.find(place.node_name)
    if node is None:
        node = run.add(
            place, "Pod", template.name, "Pending", inputs=inputs_field(inputs), progress="0/1", children=None
        )
        refused = no_start_reason(run, place)
        if refused:
            return run.mark(node, "Failed", refused)
    if node["phase"] not in DONE and run.pod_of(node) not in run.pods:
        limits = [
            limit for limit in (attempt.deadline, timeout_of(run, node, template, attempt.tags)) if limit is not None
        ]
        attempt = replace(attempt, deadline=min(limits, default=None))
        manifest = pod_manifest(run, place, template, attempt, inputs)
        run.create[manifest["metadata"]["name"]] = manifest
    return node


def timeout_of(run: Run, node: Json, template: Template, tags: Mapping[str, str]) -> float | None:
    """The moment at which a node's template times out, waiting counted; None where it never does.

    Raises:
        NodeFailure: it is no duration.
    """
    text = text_of(template.spec.get("timeout") or "")
    if not text:
        return None
    try:
        return moment(node["startedAt"]) + seconds_of(substitute(text, lambda tag: tags.get(tag, run.globals.get(tag))))
    except ValueError as error:
        raise NodeFailure(f"timeout: {error}") from error


def no_start_reason(run: Run, place: Place) -> str:
    """Why nothing new may start here any more; "" where it may."""
    if run.stops(place.on_exit):
        return f"workflow shutdown with strategy: {run.shutdown}"
    return OVERDUE if run.overdue and not place.on_exit else ""


def pod_changed(run: Run, node: Json, facts: PodFacts, template: Template) -> None:
    """Write what is known about a pod into its node."""
    if facts.node and node.get("hostNodeName") != facts.node:
        node = run.edit(node["id"])
        node["hostNodeName"] = facts.node
    match facts.phase:
        case "Pending":
            run.mark(node, "Pending", _sentence(facts))
        case "Running":
            run.mark(node, "Running", "")
        case "Succeeded":
            _ended(run, node, facts, template, "Succeeded", "")
        case "Failed":
            phase = "Error" if facts.reason == NOT_LOADED else "Failed"
            _ended(run, node, facts, template, phase, failure_message(facts))
        case _:
            run.mark(node, "Error", f"Unexpected pod phase for {run.pod_of(node)}: {facts.phase}")


def _sentence(facts: PodFacts) -> str:
    return f"{facts.reason}: {facts.message}" if facts.reason and facts.message else facts.reason or facts.message


def failure_message(facts: PodFacts) -> str:
    """What a failed pod's node says: `main: Error (exit code 3)`, or why the pod failed as a whole."""
    if facts.exit_code and facts.reason != _OVERDUE_POD:
        text = f"main: {facts.reason or 'Error'} (exit code {facts.exit_code})"
        return f"{text}: {facts.message}" if facts.message else text
    if facts.reason == _OVERDUE_POD:
        return facts.message
    return _sentence(facts) or "pod failed: main container did not complete successfully"


def _ended(run: Run, node: Json, facts: PodFacts, template: Template, phase: str, message: str) -> None:
    outputs, missing = _outputs(facts, template)
    if missing and phase == "Succeeded":
        phase, message = "Error", missing
    node = run.edit(node["id"])
    if outputs:
        node["outputs"] = outputs
        publish(run, outputs)
    if phase == "Succeeded":
        node["progress"] = "1/1"
    run.mark(node, phase, message, facts.finished_at)


def _outputs(facts: PodFacts, template: Template) -> tuple[Json, str]:
    """The outputs a pod left behind, and which required one is missing ("" where none is)."""
    found: list[Json] = []
    missing = ""
    for parameter in template.outputs:
        source = as_map(parameter.get("valueFrom"))
        content = facts.outputs.get(parameter["name"])
        if content is not None:
            found.append(output_field(parameter, content.removesuffix("\n")))
        elif source.get("default") is not None:
            found.append(output_field(parameter, text_of(source["default"])))
        else:
            missing = missing or (
                f"main: output parameter '{parameter['name']}': the file {source.get('path')} was not written "
                "and valueFrom.default is not set"
            )
    artifacts, lacking = _artifacts(facts, template)
    missing = missing or lacking
    outputs: Json = {"parameters": found} if found else {}
    if artifacts:
        outputs["artifacts"] = artifacts
    if facts.result is not None:
        outputs["result"] = facts.result
    if facts.exit_code is not None and facts.reason != _OVERDUE_POD:
        outputs["exitCode"] = str(facts.exit_code)
    return outputs, missing


def _artifacts(facts: PodFacts, template: Template) -> tuple[list[Json], str]:
    """The artifacts a pod left behind, and which required one is missing ("" where none is)."""
    found: list[Json] = []
    missing = ""
    for artifact in template.artifact_outputs:
        key = facts.artifacts.get(artifact["name"])
        if key is not None:
            found.append(stored({name: value for name, value in artifact.items() if name != "optional"}, key))
        elif not artifact.get("optional"):
            missing = missing or (
                f"main: output artifact '{artifact['name']}': {artifact.get('path')} no such file or directory"
            )
    return found, missing
