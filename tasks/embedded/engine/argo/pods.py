"""Nodes that are pods (container and script templates): their manifests, starting them, and what became of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.embedded.engine.argo.names import NodeFailure, seconds_of
from tasks.embedded.engine.argo.outputs import artifact_location, output_field, publish
from tasks.embedded.engine.argo.plan import Template
from tasks.embedded.engine.argo.scope import Values, inputs_field
from tasks.embedded.engine.argo.state import DONE, Computation, Place, PodFacts
from tasks.embedded.engine.argo.substitution import Lookup, substitute, substitute_all
from tasks.embedded.engine.json_values import Json, as_list, as_map, go_json, maps, moment, text_of

SCRIPT_PATH = "/argo/staging/script"
"""Where a script's source lies; `PRIMUS_SCRIPT` gives its real path where there are no mount namespaces."""
LABEL_WORKFLOW = "workflows.argoproj.io/workflow"
LABEL_ON_EXIT = "workflows.argoproj.io/on-exit"
ANNOTATION_NODE_NAME = "workflows.argoproj.io/node-name"
ANNOTATION_NODE_ID = "workflows.argoproj.io/node-id"
ANNOTATION_OUTPUTS = "primus-flows.io/outputs"
ANNOTATION_RESULT = "primus-flows.io/result"
ANNOTATION_SCRIPT = "primus-flows.io/script-source"
ANNOTATION_ARTIFACTS = "primus-flows.io/artifacts"
"""JSON {"store", "inputs", "outputs"}: files laid out before main starts, and files kept when it ended."""
ANNOTATION_PRIVATE_TMP = "primus-flows.io/private-tmp"

_FROM_TEMPLATE_OR_WORKFLOW = (
    "serviceAccountName",
    "automountServiceAccountToken",
    "securityContext",
    "affinity",
    "tolerations",
    "schedulerName",
    "hostAliases",
)
"""Pod fields that a template may set and the workflow sets otherwise, under the same name in all three places."""
_FROM_WORKFLOW = ("imagePullSecrets", "dnsPolicy", "dnsConfig", "hostNetwork")

NOT_LOADED = "ArtifactNotLoaded"
"""Reason of a container's end that never began: an input artifact could not be laid out."""
OVERDUE = "Step exceeded its deadline"
_OVERDUE_POD = "DeadlineExceeded"
"""Reason of a pod that was ended for its `activeDeadlineSeconds`: its node tells no exit code."""


@dataclass(frozen=True)
class Attempt:
    """What is particular to one attempt."""

    tags: Mapping[str, str]
    """`inputs.…`, `pod.name`, `retries`, `lastRetry.…`."""
    deadline: float | None = None
    """When it must have ended, from the backoff's `maxDuration`; seconds since 1970."""
    avoid_nodes: tuple[str, ...] = ()
    """Nodes where earlier attempts failed (`retryStrategy.affinity.nodeAntiAffinity`)."""


def run_pod(run: Computation, place: Place, template: Template, inputs: Values, attempt: Attempt) -> Json:
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


def timeout_of(run: Computation, node: Json, template: Template, tags: Mapping[str, str]) -> float | None:
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


def no_start_reason(run: Computation, place: Place) -> str:
    """Why nothing new may start here any more; "" where it may."""
    if run.stops(place.on_exit):
        return f"workflow shutdown with strategy: {run.shutdown}"
    return OVERDUE if run.overdue and not place.on_exit else ""


def update_pod_node(run: Computation, node: Json, facts: PodFacts, template: Template) -> None:
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


def _ended(run: Computation, node: Json, facts: PodFacts, template: Template, phase: str, message: str) -> None:
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
        if parameter["name"] in facts.too_large:
            missing = missing or (
                f"main: output parameter '{parameter['name']}': the file {source.get('path')} holds "
                f"{facts.too_large[parameter['name']]} bytes, more than an object has room for; make it an artifact"
            )
        elif content is not None:
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
            found.append(
                artifact_location({name: value for name, value in artifact.items() if name != "optional"}, key)
            )
        elif not artifact.get("optional"):
            missing = missing or (
                f"main: output artifact '{artifact['name']}': {artifact.get('path')} no such file or directory"
            )
    return found, missing


def pod_manifest(run: Computation, place: Place, template: Template, attempt: Attempt, inputs: Values) -> Json:
    """The pod of one node, complete: what the store's own checks of pods accept.

    Raises:
        NodeFailure: a value that only the run knows does not fit its field.
    """

    def lookup(tag: str) -> str | None:
        return attempt.tags.get(tag, run.globals.get(tag))

    metadata = _metadata(run, place, template, lookup, inputs)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _spec(run, template, attempt, lookup),
    }


def _metadata(run: Computation, place: Place, template: Template, lookup: Lookup, inputs: Values) -> Json:
    common = as_map(run.plan.spec.get("podMetadata"))
    own = as_map(template.spec.get("metadata"))
    labels = as_map(common.get("labels")) | as_map(own.get("labels")) | {LABEL_WORKFLOW: run.plan.name}
    if place.on_exit:
        labels[LABEL_ON_EXIT] = "true"
    annotations = as_map(common.get("annotations")) | as_map(own.get("annotations"))
    key = run.id_of(place.node_name)
    annotations |= {ANNOTATION_NODE_NAME: place.node_name, ANNOTATION_NODE_ID: key, ANNOTATION_PRIVATE_TMP: "true"}
    paths = {item["name"]: path for item in template.outputs if (path := as_map(item.get("valueFrom")).get("path"))}
    if paths:
        annotations[ANNOTATION_OUTPUTS] = go_json(paths)
    if place.boundary is not None and place.call in place.boundary.wants_result:
        annotations[ANNOTATION_RESULT] = "true"
    files = _artifacts_of_manifest(run, key, template, inputs)
    if files:
        annotations[ANNOTATION_ARTIFACTS] = go_json(files)
    source = as_map(template.spec.get("script")).get("source")
    if source:
        annotations[ANNOTATION_SCRIPT] = source
    name = run.pod_of({"name": place.node_name, "templateName": template.name})
    kept = {ANNOTATION_NODE_NAME: place.node_name}
    resolved = {name: text_of(value) for name, value in substitute_all(annotations, lookup).items()}
    return {
        "name": name,
        "namespace": run.plan.namespace,
        "labels": {key: text_of(value) for key, value in substitute_all(labels, lookup).items()},
        "annotations": resolved | kept,
    }


def _artifacts_of_manifest(run: Computation, key: str, template: Template, inputs: Values) -> Json:
    """What the supervisor must know of a pod's artifacts; empty where it has none. Keys are the node's own folder."""
    if not template.artifact_outputs and not inputs.artifacts:
        return {}
    outputs = [{**item, "key": _key(key, item)} for item in template.artifact_outputs]
    store = str(run.plan.constants["workflow.uid"])
    return {"store": store, "inputs": list(inputs.artifacts.values()), "outputs": outputs}


def _key(node_id: str, artifact: Json) -> str:
    """Where an output artifact is kept: packed unless it says otherwise, as Argo does."""
    archive = as_map(artifact.get("archive"))
    if "none" in archive:
        return f"{node_id}/{artifact['name']}/{str(artifact['path']).rstrip('/').rpartition('/')[2]}"
    return f"{node_id}/{artifact['name']}.{'zip' if 'zip' in archive else 'tgz'}"


def _spec(run: Computation, template: Template, attempt: Attempt, lookup: Lookup) -> Json:
    workflow, own = run.plan.spec, template.spec
    main = _main(template)
    init = [_init_container(item, main) for item in maps(own.get("initContainers"))]
    spec: Json = {"restartPolicy": "Never", "containers": [main]}
    if init:
        spec["initContainers"] = init
    for field in _FROM_TEMPLATE_OR_WORKFLOW:
        value = own.get(field, workflow.get(field))
        if value is not None:
            spec[field] = value
    spec |= {field: workflow[field] for field in _FROM_WORKFLOW if workflow.get(field) is not None}
    selector = as_map(workflow.get("nodeSelector")) | as_map(own.get("nodeSelector"))
    if selector:
        spec["nodeSelector"] = selector
    priority = own.get("priorityClassName", workflow.get("podPriorityClassName"))
    if priority:
        spec["priorityClassName"] = priority
    volumes = _volumes(run, template, [main, *init])
    if volumes:
        spec["volumes"] = volumes
    resolved: Json = substitute_all(spec, lookup)
    _set_deadline(run, own, attempt, lookup, resolved)
    if attempt.avoid_nodes:
        resolved["affinity"] = _avoiding(as_map(resolved.get("affinity")), attempt.avoid_nodes)
    return resolved


def _main(template: Template) -> Json:
    source = as_map(template.spec[template.kind])
    main = {field: value for field, value in source.items() if field != "source"}
    main["name"] = "main"
    if template.kind == "script" and source.get("source"):
        main["args"] = [*as_list(source.get("args")), SCRIPT_PATH]
    return main


def _init_container(container: Json, main: Json) -> Json:
    made = {field: value for field, value in container.items() if field != "mirrorVolumeMounts"}
    if container.get("mirrorVolumeMounts"):
        made["volumeMounts"] = [*as_list(made.get("volumeMounts")), *as_list(main.get("volumeMounts"))]
    return made


def _volumes(run: Computation, template: Template, containers: list[Json]) -> list[Json]:
    """The template's own volumes, and those of the workflow that a container of the pod mounts."""
    mounted = {mount["name"] for container in containers for mount in maps(container.get("volumeMounts"))}
    own = maps(template.spec.get("volumes"))
    names = {volume["name"] for volume in own}
    shared = [
        item for item in maps(run.plan.spec.get("volumes")) if item["name"] in mounted and item["name"] not in names
    ]
    return [*shared, *own]


def _set_deadline(run: Computation, own: Json, attempt: Attempt, lookup: Lookup, spec: Json) -> None:
    limits: list[int] = []
    if own.get("activeDeadlineSeconds") is not None:
        text = text_of(substitute_all(own["activeDeadlineSeconds"], lookup))
        if not text.isdigit():
            raise NodeFailure(f"activeDeadlineSeconds must be a whole number of seconds, not '{text}'")
        limits.append(int(text))
    if attempt.deadline is not None:
        limits.append(max(1, math.ceil(attempt.deadline - run.now)))
    if limits:
        spec["activeDeadlineSeconds"] = min(limits)


def _avoiding(affinity: Json, nodes: tuple[str, ...]) -> Json:
    """The affinity with every required term also excluding nodes by host name."""
    exclusion = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(nodes)}
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = as_map(affinity.get("nodeAffinity"))
    terms: list[Any] = as_list(as_map(node_affinity.get(field)).get("nodeSelectorTerms")) or [{}]
    changed = [{**term, "matchExpressions": [*as_list(term.get("matchExpressions")), exclusion]} for term in terms]
    return {**affinity, "nodeAffinity": {**node_affinity, field: {"nodeSelectorTerms": changed}}}
