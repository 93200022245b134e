"""Any Argo Workflow on any cluster: read, checked, submitted, watched to its end. Through the seam, without Prefect.

Manifests are read as people write them: YAML or JSON, several documents, parameters from the command line.
"""

from __future__ import annotations

import difflib
import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.errors import Conflict, NotFound, ProfileError, Refused, Unavailable
from tasks.cluster import Cluster, Manifest
from tasks.embedded.engine.json_values import as_map, is_list, is_map, maps, text_of
from tasks.embedded.engine.yaml_text import YamlError, read_yaml_documents
from workflows.labels import PREFIX
from workflows.model.ownership import owner_of, refuse_foreign

SUBMITTED = f"{PREFIX}/submitted"
"""Label by which a watch asks for one workflow and not for all of a namespace; its value is the workflow's name."""
ENDED = ("Succeeded", "Failed", "Error")
WATCH_SECONDS = 60.0
"""One watch; then the object is read anew, whatever the watch told."""
PATIENCE_SECONDS = 60.0
"""A cluster that does not answer for so long while its workflow is watched counts as away."""

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own letters for `generateName`: no word can come out by accident."""
_SUFFIX_LENGTH = 5
_NAME_LIMIT = 63
_USED = re.compile(r"""workflow\.parameters(?:\.|\[\\?["'])([-\w]+)""")
"""A workflow parameter as tags and expressions name it, inside JSON text."""


def check_workflow(cluster: Cluster, manifest: Manifest, namespace: str) -> None:
    """What the cluster says of the manifest before anything starts.

    Raises:
        Refused: a field is not accepted; its path is named.
        Conflict: a workflow of that name exists already and ended, or is another one.
    """
    asked = as_map(manifest.get("metadata")).get("namespace")
    if asked and asked != namespace:
        raise Refused("metadata.namespace", f"'{asked}' is not '{namespace}', the namespace of cluster {cluster.name}")
    name = manifest["metadata"]["name"]
    existing = cluster.get("Workflow", name)
    if existing is None:
        cluster.apply(labelled(manifest), dry_run=True)
    elif phase_of(existing) in ENDED or not _same(existing, manifest):
        state = phase_of(existing) or "not started"
        raise Conflict(f"a workflow {name} exists ({state}); choose another with --name, or write a generateName")


def in_the_only_namespace(manifest: Manifest, namespace: str) -> tuple[Manifest, str]:
    """The manifest for a cluster that has one namespace, and the other one that it asked for ("" for none)."""
    metadata = as_map(manifest.get("metadata"))
    asked = str(metadata.get("namespace") or "")
    if asked in ("", namespace):
        return manifest, ""
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}, asked


def submit_workflow(cluster: Cluster, manifest: Manifest) -> Manifest:
    """Create the workflow, or adopt the one that the same request created before; the object as stored.

    Raises:
        Foreign: the one of that name says that it belongs to another ledger than the manifest.
        Unavailable, Refused.
    """
    existing = cluster.get("Workflow", manifest["metadata"]["name"])
    refuse_foreign(existing, owner_of(manifest))
    return cluster.apply(labelled(manifest)) if existing is None else existing


def labelled(manifest: Manifest) -> Manifest:
    """The manifest with our label."""
    metadata = dict(as_map(manifest["metadata"]))
    metadata["labels"] = {**as_map(metadata.get("labels")), SUBMITTED: metadata["name"]}
    return {**manifest, "metadata": metadata}


def _same(existing: Manifest, manifest: Manifest) -> bool:
    """Whether the object came from this manifest: every field of the manifest's specification stands in it."""
    ours = existing["metadata"].get("labels", {}).get(SUBMITTED) == existing["metadata"]["name"]
    return ours and _within(manifest.get("spec"), existing.get("spec"))


def _within(small: Any, large: Any) -> bool:
    if is_map(small) and is_map(large):
        return all(_within(value, large.get(key)) for key, value in small.items())
    if is_list(small) and is_list(large):
        pairs = zip(small, large, strict=False)
        return len(small) == len(large) and all(_within(one, other) for one, other in pairs)
    return small == large


def follow_workflow(cluster: Cluster, name: str) -> Iterator[Manifest]:
    """The object after each change, the last one ended; a cluster that is away for a moment is waited for.

    Raises:
        NotFound: somebody deleted it.
        Unavailable: the cluster did not answer for `PATIENCE_SECONDS`.
    """
    answered = time.monotonic()
    while True:
        try:
            for found in _changes(cluster, name):
                answered = time.monotonic()
                yield found
                if phase_of(found) in ENDED:
                    return
        except Unavailable as error:
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            time.sleep(min(error.retry_after_seconds, 5.0))


def _changes(cluster: Cluster, name: str) -> Iterator[Manifest]:
    for event in cluster.watch("Workflow", {SUBMITTED: name}, timeout_seconds=WATCH_SECONDS):
        if event.type == "DELETED":
            raise NotFound(f"workflow {name} was deleted while it was watched")
        if event.type != "SYNC":
            yield event.object
    current = cluster.get("Workflow", name)
    if current is None:
        raise NotFound(f"workflow {name} was deleted while it was watched")
    yield current


@dataclass(frozen=True)
class StepPod:
    """The pod of one step, as long as it is there."""

    name: str
    step: str
    """The step's name as the tree shows it."""
    node: str
    """Its full name in the workflow: `hello[0].say(1)`."""
    phase: str
    """The step's, not the pod's."""


def pods_of(cluster: Cluster, workflow: Manifest) -> list[StepPod]:
    """The pods of a workflow's steps, in the order in which they began; `status.nodes` must be unpacked.

    Raises:
        Unavailable, Refused.
    """
    nodes = as_map(as_map(workflow.get("status")).get("nodes"))
    found: list[tuple[str, StepPod]] = []
    for pod in cluster.list("Pod", {WORKFLOW_LABEL: workflow["metadata"]["name"]}):
        node = as_map(nodes.get(str(as_map(pod["metadata"].get("annotations")).get(NODE_ID, ""))))
        if node:
            shown, full, phase = str(node.get("displayName") or ""), str(node["name"]), str(node.get("phase") or "")
            found.append((str(node.get("startedAt") or ""), StepPod(pod["metadata"]["name"], shown, full, phase)))
    return [pod for _, pod in sorted(found, key=lambda pair: (pair[0], pair[1].node))]


WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
NODE_ID = "workflows.argoproj.io/node-id"


def log_of(cluster: Cluster, pod: str, tail_lines: int | None = None) -> str:
    """What the step in a pod printed; a sentence where nobody can tell any more."""
    try:
        return cluster.logs(pod, "main", tail_lines=tail_lines)
    except (NotFound, Refused, Unavailable) as error:
        return f"(its output cannot be read: {error})"


def waits_of(workflow: Manifest) -> list[str]:
    """Which steps have a pod that cannot begin, and why; `status.nodes` must be unpacked."""
    nodes = as_map(as_map(workflow.get("status")).get("nodes")).values()
    waiting = [node for node in nodes if node.get("type") == "Pod" and node.get("phase") == "Pending"]
    told = [(str(node.get("displayName")), " ".join(str(node.get("message") or "").split())) for node in waiting]
    return [f"step {name} waits: {why}" for name, why in told if why and not why.startswith(_BEGINNINGS)]


_BEGINNINGS = ("PodInitializing", "ContainerCreating")
"""What every pod waits for a moment."""


def phase_of(manifest: Manifest) -> str:
    """Its `status.phase`, "" before it has one."""
    return str(as_map(manifest.get("status")).get("phase") or "")


def read_documents(text: str, source: str) -> list[Any]:
    """All documents of a YAML or JSON text that hold something.

    Raises:
        ProfileError: no YAML; it names line and column.
    """
    try:
        return [one for one in read_yaml_documents(text) if one is not None]
    except YamlError as error:
        where = f"line {error.line}, column {error.column}" if error.line else "(whole file)"
        raise ProfileError(where, f"is not valid YAML: {error.why}", source) from error


def read_workflow(text: str, source: str) -> Manifest:
    """The Workflow that a text holds.

    Raises:
        ProfileError: no YAML, no Workflow in it, or several.
    """
    documents = read_documents(text, source)
    workflows = [one for one in maps(documents) if one.get("kind") == "Workflow"]
    if len(workflows) == 1:
        return as_texts(workflows[0])
    if workflows:
        names = ", ".join(_called(one) for one in workflows)
        raise ProfileError("(whole file)", f"holds {len(workflows)} Workflows ({names}); give one at a time", source)
    kinds = [str(as_map(one).get("kind", "no kind")) if is_map(one) else type(one).__name__ for one in documents]
    raise ProfileError("kind", f"holds no Workflow; it holds {', '.join(kinds) or 'nothing'}", source)


def as_texts(found: Any) -> Any:
    """The manifest with every parameter's value as the text that Argo's own command makes of it: `3` is "3".

    The API server itself takes nothing but texts there. Items of a fan-out are no parameters and stay as they are.
    """
    if is_list(found):
        return [as_texts(item) for item in found]
    if not is_map(found):
        return found
    held = {key: value if key == "withItems" else as_texts(value) for key, value in found.items()}
    if is_list(held.get("parameters")):
        held["parameters"] = [_texts_of(item) if is_map(item) else item for item in held["parameters"]]
    return held


def _texts_of(parameter: Manifest) -> Manifest:
    """One parameter so: its value, its defaults, the values it may have."""
    held = {key: _text(value) if key in ("value", "default") else value for key, value in parameter.items()}
    if is_list(held.get("enum")):
        held["enum"] = [_text(value) for value in held["enum"]]
    source = held.get("valueFrom")
    if is_map(source) and "default" in source:
        held["valueFrom"] = {**source, "default": _text(source["default"])}
    return held


def _text(value: Any) -> Any:
    """Numbers and truth values as texts; what is none of them is left for the cluster to refuse."""
    return text_of(value) if isinstance(value, (bool, int, float)) else value


def _called(manifest: Manifest) -> str:
    metadata = as_map(manifest.get("metadata"))
    return str(metadata.get("name") or metadata.get("generateName") or "?")


def with_name(manifest: Manifest, name: str) -> Manifest:
    """The manifest with a name: the one given, its own, or its `generateName` and five random letters.

    The letters are drawn here and not by the cluster, so that a repeated request finds what the first one made.

    Raises:
        ProfileError: it has neither a name nor a `generateName`.
    """
    metadata = dict(as_map(manifest.get("metadata")))
    stem = str(metadata.pop("generateName", "") or "")
    if name:
        metadata["name"] = name
    elif not metadata.get("name"):
        if not stem:
            raise ProfileError("metadata.name", "is required: a name, or a generateName to begin one with")
        letters = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
        metadata["name"] = stem[: _NAME_LIMIT - _SUFFIX_LENGTH] + letters
    return {**manifest, "metadata": metadata}


def with_parameters(manifest: Manifest, given: Sequence[str]) -> Manifest:
    """The manifest with workflow parameters from `NAME=VALUE`: given ones replace the file's, new ones are added.

    Raises:
        ProfileError: a word is no `NAME=VALUE`, or nothing in the workflow uses a parameter of that name.
    """
    if not given:
        return manifest
    spec = as_map(manifest.get("spec"))
    arguments = as_map(spec.get("arguments"))
    there = [dict(item) for item in maps(arguments.get("parameters"))]
    values = dict(_pair(word) for word in given)
    _check_known(manifest, [str(item.get("name")) for item in there], list(values))
    for item in there:
        if item.get("name") in values:
            item["value"] = values.pop(str(item["name"]))
            item.pop("valueFrom", None)
    there += [{"name": name, "value": value} for name, value in values.items()]
    return {**manifest, "spec": {**spec, "arguments": {**arguments, "parameters": there}}}


def _pair(word: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not sign or not name:
        raise ProfileError("-p", f"'{word}' is no NAME=VALUE", "flag")
    return name, value


def _check_known(manifest: Manifest, declared: list[str], names: list[str]) -> None:
    """A name that the file neither declares nor uses is a slip of the pen."""
    spec = as_map(manifest.get("spec"))
    used = set(_USED.findall(json.dumps(spec, default=str)))
    for template in maps(spec.get("templates")):
        if template.get("name") == spec.get("entrypoint"):
            used |= {str(item.get("name")) for item in maps(as_map(template.get("inputs")).get("parameters"))}
    known = [*declared, *sorted(used.difference(declared))]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known) or 'no parameters'}"
            raise ProfileError("-p", f"the workflow has no parameter '{name}'{hint}", "flag")
