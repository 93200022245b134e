"""Checks of manifests: every field is known, has its type, and is one that the embedded cluster runs.

Raises `Refused` with the path of the first field that is not. The interpreter's own tables check Workflows. Beyond the
field tables it checks names that match, one source a volume, limits of ours, images (the cluster must have programs for
them), and mounts where a machine forbids mount namespaces.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from profiles.errors import Refused, check_all
from tasks.embedded.engine.json_values import is_list, is_map
from tasks.embedded.engine.kube.quantity import milli
from tasks.embedded.layout import SHARED_MEMORY, folder_variable
from tasks.embedded.objects import API_VERSIONS, Object, entries, section
from tasks.embedded.schema.fields import KINDS, METADATA, NOT_RUN, Schema
from tasks.embedded.spec import find_image

NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")

_LABEL = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
FIELD_PATHS = re.compile(
    r"^(metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(podIP|podIPs|hostIP))$"
)

_CONTAINERS = ("container", "script")


def validate(manifest: Object, namespace: str) -> None:
    """Check a manifest before anything is written.

    Raises:
        Refused: with the path of the field that is wrong and what to do.
    """
    kind = manifest.get("kind")
    if not isinstance(kind, str) or kind not in API_VERSIONS:
        raise Refused("kind", f"{kind!r} is none of {', '.join(sorted(API_VERSIONS))}")
    if kind in ("Job", "Workload"):
        raise Refused("kind", f"the embedded cluster does not run a {kind}; apply a JobSet")
    if manifest.get("apiVersion") != API_VERSIONS[kind]:
        raise Refused("apiVersion", f"{manifest.get('apiVersion')!r} is not {API_VERSIONS[kind]!r}")
    if kind == "Workflow":
        check_all((partial(_metadata, manifest, kind, namespace), partial(_workflow, manifest, namespace)))
        return
    _metadata(manifest, kind, namespace)
    if kind in KINDS:
        check(manifest, KINDS[kind], "")
    match kind:
        case "Pod":
            check_pod_spec(section(manifest, "spec"), "spec")
        case "JobSet":
            check_jobset(manifest)
        case _:
            return


def _workflow(manifest: Object, namespace: str) -> None:
    from tasks.embedded.engine.argo.validate import validate_workflow  # noqa: PLC0415 - large, seldom needed

    spec = manifest.get("spec")
    templates = spec.get("templates") if is_map(spec) else None
    applied = [
        partial(_applied, resource["manifest"], namespace, f"spec.templates[{index}].resource.manifest")
        for index, template in enumerate(templates if is_list(templates) else ())
        if is_map(template)
        and is_map(resource := template.get("resource"))
        and isinstance(resource.get("manifest"), str)
    ]
    check_all((partial(validate_workflow, manifest), *applied))


def _applied(text: str, namespace: str, path: str) -> None:
    """What a resource template applies: its namespace, and all of it where no tag is still to be replaced."""
    from tasks.embedded.engine.argo.names import NodeFailure  # noqa: PLC0415 - as above
    from tasks.embedded.engine.argo.resources import manifest_of  # noqa: PLC0415 - as above
    from tasks.embedded.engine.argo.substitution import substitute  # noqa: PLC0415 - as above

    unknown = "x"
    try:
        inner = manifest_of(substitute(text, lambda tag: unknown))
    except NodeFailure:
        return  # said by the check of the template itself
    wanted = section(inner, "metadata").get("namespace")
    if "{{" in text and wanted in (None, unknown, namespace):
        return
    try:
        if "{{" in text:
            raise Refused("metadata.namespace", f"{wanted!r} is not this cluster's {namespace!r}")
        validate(inner, namespace)
    except Refused as refused:
        problems = [Refused(f"{path}: {one.path}", one.reason) for one in refused.problems]
        raise Refused(problems[0].path, problems[0].reason, problems) from refused


def _metadata(manifest: Object, kind: str, namespace: str) -> None:
    metadata = manifest.get("metadata")
    if not is_map(metadata):
        raise Refused("metadata", "missing; it needs a name")
    check(metadata, METADATA, "metadata")
    name = str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-") + "-x")
    limit = 63 if kind in ("Workflow", "JobSet", "Pod") else 253
    if not NAME.match(name) or len(name) > limit:
        raise Refused("metadata.name", f"{name!r} is no name: a-z, 0-9 and - only, at most {limit} characters")
    if kind != "Node" and metadata.get("namespace", namespace) != namespace:
        raise Refused("metadata.namespace", f"{metadata['namespace']!r} is not this cluster's {namespace!r}")
    for key, value in section(metadata, "labels").items():
        if len(value) > 63 or (value and not _LABEL.match(value)):
            raise Refused(f"metadata.labels[{key}]", f"{value!r} is no label value: at most 63 of A-Z a-z 0-9 - _ .")


def check(value: Any, schema: Any, path: str) -> None:
    """Check a value against a schema of `fields`."""
    match schema:
        case str():
            _TYPES[schema.rstrip("!")](value, path)
        case [item]:
            if not is_list(value):
                raise Refused(path, f"a list is needed, not {_printable(value)}")
            for index, entry in enumerate(value):
                check(entry, item, f"{path}[{index}]")
        case _:
            _object(value, schema, path)


def _object(value: Any, schema: Schema, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"an object is needed, not {_printable(value)}")
    for key, entry in value.items():
        inner = f"{path}.{key}" if path else key
        if key not in schema:
            raise Refused(inner, _unknown_field(key, schema))
        if entry is not None:
            check(entry, schema[key], inner)
    for key, kind in schema.items():
        if isinstance(kind, str) and kind.endswith("!") and value.get(key) in (None, ""):
            raise Refused(f"{path}.{key}" if path else key, "missing")


def _unknown_field(key: str, schema: Schema) -> str:
    if key in NOT_RUN:
        return "the embedded cluster does not run this field; remove it, or use a Kubernetes cluster"
    near = difflib.get_close_matches(key, schema, n=1)
    return "unknown field" + (f"; did you mean {near[0]}?" if near else "")


def _printable(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _is(*kinds: type) -> Callable[[Any, str], None]:
    words = {str: "text", int: "a whole number", bool: "true or false", float: "a number", dict: "an object"}

    def checked(value: Any, path: str) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(path, f"{words[kinds[0]]} is needed, not {_printable(value)}")

    return checked


def _texts(value: Any, path: str) -> None:
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        raise Refused(path, f"a list of texts is needed, not {_printable(value)} (quote numbers)")


def _numbers(value: Any, path: str) -> None:
    if not is_list(value) or not all(isinstance(item, int) for item in value):
        raise Refused(path, f"a list of whole numbers is needed, not {_printable(value)}")


def _labels(value: Any, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"an object is needed, not {_printable(value)}")
    for key, entry in value.items():
        if not isinstance(entry, str):
            raise Refused(f"{path}[{key}]", f"text is needed, not {_printable(entry)} (quote it)")


def _quantity(value: Any, path: str) -> None:
    try:
        milli(value)
    except (ValueError, TypeError) as error:
        raise Refused(path, str(error)) from error


def _quantities(value: Any, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"an object is needed, not {_printable(value)}")
    for key, entry in value.items():
        _quantity(entry, f"{path}[{key}]")


def _path(value: Any, path: str) -> None:
    _is(str)(value, path)
    if not value.startswith("/"):
        raise Refused(path, f"{value!r} must begin with /")


def _inner_path(value: Any, path: str) -> None:
    _is(str)(value, path)
    if value.startswith("/") or ".." in value.split("/"):
        raise Refused(path, f"{value!r} must stay inside the volume: no leading / and no ..")


def _field_path(value: Any, path: str) -> None:
    _is(str)(value, path)
    if not FIELD_PATHS.match(value):
        raise Refused(path, f"{value!r} is none of metadata.name/namespace/uid/labels['x']/annotations['x'], "
                      "spec.nodeName, spec.serviceAccountName, status.podIP, status.hostIP")  # fmt: skip


_TYPES: Mapping[str, Callable[[Any, str], None]] = {
    "text": _is(str),
    "whole": _is(int),
    "flag": _is(bool),
    "number": _is(float, int),
    "texts": _texts,
    "numbers": _numbers,
    "labels": _labels,
    "quantity": _quantity,
    "quantities": _quantities,
    "path": _path,
    "inner-path": _inner_path,
    "field-path": _field_path,
    "free": lambda value, path: None,
}


def check_pod_spec(spec: Object, path: str) -> None:
    """Check a pod's specification whose fields are known to have the right types.

    Raises:
        Refused: by the path of what is wrong.
    """
    if not entries(spec, "containers"):
        raise Refused(f"{path}.containers", "at least one container is needed")
    _one_of(spec, "restartPolicy", ("Always", "OnFailure", "Never"), path)
    volumes = _volumes(spec, path)
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(entries(spec, group)):
            where = f"{path}.{group}[{index}]"
            if container["name"] in names or not NAME.match(container["name"]):
                raise Refused(f"{where}.name", f"{container['name']!r} stands twice or is no name")
            names.add(container["name"])
            _container(container, volumes, where)


def _one_of(value: Object, field: str, allowed: Sequence[str], path: str) -> None:
    found = value.get(field)
    if found is not None and found not in allowed:
        raise Refused(f"{path}.{field}", f"{found!r} is none of {', '.join(allowed)}")


def _volumes(spec: Object, path: str) -> Mapping[str, Object]:
    volumes: dict[str, Object] = {}
    for index, volume in enumerate(entries(spec, "volumes")):
        where = f"{path}.volumes[{index}]"
        if len(volume) != 2:
            raise Refused(where, f"one source is needed beside the name, found {len(volume) - 1}")
        if volume["name"] in volumes:
            raise Refused(f"{where}.name", f"{volume['name']!r} stands twice")
        volumes[volume["name"]] = volume
    return volumes


def _container(container: Object, volumes: Mapping[str, Object], path: str) -> None:
    for index, mount in enumerate(entries(container, "volumeMounts")):
        if mount["name"] not in volumes:
            raise Refused(f"{path}.volumeMounts[{index}].name", f"the pod has no volume {mount['name']!r}")
    for index, entry in enumerate(entries(container, "env")):
        where = f"{path}.env[{index}]"
        if "valueFrom" in entry and (entry.get("value") or len(section(entry, "valueFrom")) != 1):
            raise Refused(where, "either value or one source in valueFrom")
        if "=" in entry["name"] or "\0" in entry["name"]:
            raise Refused(f"{where}.name", f"{entry['name']!r} is no name of a variable")
    for index, source in enumerate(entries(container, "envFrom")):
        if len(source.keys() - {"prefix"}) != 1:
            raise Refused(f"{path}.envFrom[{index}]", "one of secretRef and configMapRef is needed")


def check_jobset(manifest: Object) -> None:
    """Check a JobSet whose fields are known to have the right types.

    Raises:
        Refused: by the path of what is wrong.
    """
    spec = section(manifest, "spec")
    jobs = entries(spec, "replicatedJobs")
    if not jobs:
        raise Refused("spec.replicatedJobs", "at least one replicated job is needed")
    names: list[str] = [job["name"] for job in jobs]
    for index, job in enumerate(jobs):
        path = f"spec.replicatedJobs[{index}]"
        if names.count(job["name"]) > 1:
            raise Refused(f"{path}.name", f"{job['name']!r} stands twice")
        _job(manifest["metadata"].get("name") or "", job, f"{path}.template.spec")
    _policies(spec, names)


def _policies(spec: Object, names: Sequence[str]) -> None:
    if section(spec, "failurePolicy").get("maxRestarts"):
        reason = "only 0: every attempt is a new JobSet, so that old and new ranks never overlap"
        raise Refused("spec.failurePolicy.maxRestarts", reason)
    _one_of(section(spec, "startupPolicy"), "startupPolicyOrder", ("AnyOrder",), "spec.startupPolicy")
    _one_of(section(spec, "successPolicy"), "operator", ("All", "Any"), "spec.successPolicy")
    for index, name in enumerate(section(spec, "successPolicy").get("targetReplicatedJobs") or []):
        if name not in names:
            raise Refused(f"spec.successPolicy.targetReplicatedJobs[{index}]", f"there is no replicated job {name!r}")
    _one_of(section(spec, "coordinator"), "replicatedJob", names, "spec.coordinator")


def _job(jobset: str, job: Object, path: str) -> None:
    spec = section(job, "template", "spec")
    template = section(spec, "template", "spec")
    _one_of(spec, "completionMode", ("Indexed",), path)
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        if (spec.get(field) or 0) < 0:
            raise Refused(f"{path}.{field}", "must not be negative")
    if template.get("restartPolicy") not in ("OnFailure", "Never"):
        raise Refused(f"{path}.template.spec.restartPolicy", "must be OnFailure or Never")
    count = max(spec.get("completions") or spec.get("parallelism") or 1, 1)
    longest = f"{jobset}-{job['name']}-{(job.get('replicas') or 1) - 1}-{count - 1}-xxxxx"
    if len(longest) > 63:
        raise Refused("metadata.name", f"pods would be named {longest}, longer than 63 characters; shorten the name")
    _pod_failure_policy(spec, template, path)
    check_pod_spec(template, f"{path}.template.spec")


def _pod_failure_policy(spec: Object, template: Object, path: str) -> None:
    for index, rule in enumerate(entries(spec, "podFailurePolicy", "rules")):
        where = f"{path}.podFailurePolicy.rules[{index}]"
        _one_of(rule, "action", ("FailJob", "Ignore", "Count"), where)
        if ("onExitCodes" in rule) == bool(rule.get("onPodConditions")):
            raise Refused(where, "one of onExitCodes and onPodConditions is needed")
        _one_of(section(rule, "onExitCodes"), "operator", ("In", "NotIn"), f"{where}.onExitCodes")
    if spec.get("podFailurePolicy") and template.get("restartPolicy") != "Never":
        raise Refused(f"{path}.podFailurePolicy", "needs restartPolicy Never, as Kubernetes says")


def refuse_unknown_images(manifest: Object, images: Sequence[Object]) -> None:
    """Refuse a workflow with an image that its steps would wait for without end.

    Pods and JobSets are let through: they wait with `ErrImagePull` as on Kubernetes, and a run says so.

    Raises:
        Refused: by the path of the image.
    """
    if manifest.get("kind") != "Workflow":
        return
    check_all(partial(_refuse_unknown_image, *found, images) for found in _images(manifest.get("spec"), "spec"))


def _refuse_unknown_image(path: str, name: str, images: Sequence[Object]) -> None:
    if "{{" not in name and find_image(images, name) is None:
        known = ", ".join(image["pattern"] for image in images)
        reason = f"no image of this cluster matches '{name}'; add it to the cluster profile's images (has {known})"
        raise Refused(path, reason)


def _images(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and name of the image of every container in a workflow's specification."""
    if is_map(value):
        for key, inner in value.items():
            image = inner.get("image") if key in _CONTAINERS and is_map(inner) else None
            if isinstance(image, str):
                yield f"{path}.{key}.image", image
            elif key == "initContainers" and is_list(inner):
                entries = ((f"{path}.{key}[{i}].image", item.get("image")) for i, item in enumerate(inner))
                yield from ((where, name) for where, name in entries if isinstance(name, str))
            else:
                yield from _images(inner, f"{path}.{key}")
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from _images(inner, f"{path}[{index}]")


def refuse_unreachable_mounts(manifest: Object, namespaces: Callable[[], str]) -> None:
    """Refuse a mount that needs a mount namespace where there are none.

    `manifest` is a Pod, JobSet or Workflow; `namespaces` is only called where it matters, and returns `none` where this
    machine or the cluster's setting forbids them.

    Raises:
        Refused: by the path of the mount, or of an input artifact, which is one.
    """
    artifact = next(_input_artifacts(manifest), "")
    if artifact and namespaces() == "none":
        raise Refused(artifact, "this machine allows no mount namespaces, so no file can be laid out at a path")
    unreachable = next((found for found in _mounts(manifest.get("spec"), "spec") if not _reachable(*found[1:])), None)
    if unreachable is not None and namespaces() == "none":
        path, mount, _ = unreachable
        variable = folder_variable(mount["name"])
        reason = f"this machine allows no mount namespaces: give the container a variable {variable} and use that"
        raise Refused(path, reason)


def _input_artifacts(manifest: Object) -> Iterator[str]:
    """The paths of a workflow's input artifacts that a container sees."""
    if manifest.get("kind") != "Workflow" or not is_map(manifest.get("spec")):
        return
    templates = manifest["spec"].get("templates")
    for index, template in enumerate(templates if is_list(templates) else ()):
        inputs = template.get("inputs") if is_map(template) else None
        artifacts = inputs.get("artifacts") if is_map(inputs) else None
        for number, artifact in enumerate(artifacts if is_list(artifacts) else ()):
            if is_map(artifact) and "path" in artifact:
                yield f"spec.templates[{index}].inputs.artifacts[{number}].path"


def _mounts(value: Any, path: str) -> Iterator[tuple[str, Object, Object]]:
    """Path, mount and container of every volume mount, wherever containers stand in the manifest."""
    if is_map(value):
        mounts = value.get("volumeMounts")
        for index, mount in enumerate(mounts if is_list(mounts) else ()):
            if is_map(mount):
                yield f"{path}.volumeMounts[{index}]", mount, value
        for key, inner in value.items():
            yield from _mounts(inner, f"{path}.{key}")
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from _mounts(inner, f"{path}[{index}]")


def _reachable(mount: Object, container: Object) -> bool:
    if str(mount.get("mountPath", "")).rstrip("/") == SHARED_MEMORY:
        return True
    wanted = folder_variable(str(mount.get("name", "")))
    return any(entry.get("name") == wanted for entry in entries(container, "env"))
