"""The manifest of the pod that runs a container or script template."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.json_values import Json, as_list, as_map, go_json, maps, text_of
from tasks.embedded.engine.plan import Template
from tasks.embedded.engine.run import Place, Run
from tasks.embedded.engine.scope import Values
from tasks.embedded.engine.substitution import Lookup, substitute_all

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


@dataclass(frozen=True)
class Attempt:
    """What is particular to one attempt."""

    tags: Mapping[str, str]
    """`inputs.…`, `pod.name`, `retries`, `lastRetry.…`."""
    deadline: float | None = None
    """When it must have ended, from the backoff's `maxDuration`; seconds since 1970."""
    avoid_nodes: tuple[str, ...] = ()
    """Nodes where earlier attempts failed (`retryStrategy.affinity.nodeAntiAffinity`)."""


def pod_manifest(run: Run, place: Place, template: Template, attempt: Attempt, inputs: Values) -> Json:
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


def _metadata(run: Run, place: Place, template: Template, lookup: Lookup, inputs: Values) -> Json:
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
    files = _artifacts(run, key, template, inputs)
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


def _artifacts(run: Run, key: str, template: Template, inputs: Values) -> Json:
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


def _spec(run: Run, template: Template, attempt: Attempt, lookup: Lookup) -> Json:
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


def _volumes(run: Run, template: Template, containers: list[Json]) -> list[Json]:
    """The template's own volumes, and those of the workflow that a container of the pod mounts."""
    mounted = {mount["name"] for container in containers for mount in maps(container.get("volumeMounts"))}
    own = maps(template.spec.get("volumes"))
    names = {volume["name"] for volume in own}
    shared = [
        item for item in maps(run.plan.spec.get("volumes")) if item["name"] in mounted and item["name"] not in names
    ]
    return [*shared, *own]


def _set_deadline(run: Run, own: Json, attempt: Attempt, lookup: Lookup, spec: Json) -> None:
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
